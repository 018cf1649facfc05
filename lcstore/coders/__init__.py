"""Levels to bits: code tables, which coder suits some levels, and the numbers that frames are made of.

Knows what coders there are and how many bits each takes; never knows what a level stands for.
"""
