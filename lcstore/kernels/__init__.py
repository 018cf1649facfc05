"""Loops over elements. Takes arrays and fills arrays; returns a status.

Knows nothing of bytes on storage, exceptions or files, and holds no policy. Every kernel has a plain
numpy twin in `tests/kernels/twins.py` which it must equal bit for bit.
"""
