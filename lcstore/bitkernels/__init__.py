"""Loops from levels to bits and back: packed symbols, runs, wide levels, escapes, and their code tables.

They know of no tensor, step size or track: those are :mod:`lcstore.kernels`.
"""
