"""Scratch memory: what coding needs beside a chunk, and gives back as soon as it is done."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array

#: Fewer bytes come from the allocator.
_LEAST: Final = 1 << 20
_LARGE_PAGES: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_LARGE_PAGE: Final = 2 << 20
_PRIVATE: Final = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def scratch_array(size: int, dtype: Any) -> Array:
    """Return ``dtype[size]``, zeros.

    Large ones are mapped by themselves. Pages that nobody writes to take no memory, and all go back to the
    system with the array. Allocators keep what a thread has freed: glibc a hundred megabytes after a save.
    Pages are large where the system has such: to map many small ones takes longer than to fill them. The
    first begins where the array does, as what lies before it would be of small ones.
    """
    nbytes = size * np.dtype(dtype).itemsize
    if nbytes < _LEAST:
        return np.zeros(size, dtype)
    if _LARGE_PAGES is None:
        return np.frombuffer(mmap.mmap(-1, nbytes, **_PRIVATE), dtype)
    mapped = mmap.mmap(-1, nbytes + _LARGE_PAGE, **_PRIVATE)
    with suppress(OSError):  # a kernel may be built without them
        mapped.madvise(_LARGE_PAGES)
    before = -np.frombuffer(mapped, np.uint8).ctypes.data % _LARGE_PAGE
    return np.frombuffer(mapped, dtype, size, before)
