"""How kernels are compiled: one decorator, its cache, and processes that compile beside the first one.

It knows kernels by name alone.
"""
