"""Writing and reading files whole.

Large ones are read to memory of huge pages. In pages of 4 KiB, memory that nobody had before takes a fault
for each 4096 bytes that are read to it. Of an anchor that lies in the system's cache this was a third of the
time that a load took.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

#: One system call moves at most 2 GiB, less a page; macOS refuses more.
_MOST_AT_ONCE: Final = 1 << 30
#: Files of so many bytes lie in memory of huge pages, where the system has any. numpy's arrays do, too.
_LARGE: Final = 4 << 20
_HUGE_PAGE: Final = 2 << 20
#: `PyBUF_WRITE` of Python's interface for C.
_TO_WRITE: Final = 0x200


def write_all(fd: int, data: memoryview) -> None:
    """Write all of `data`."""
    done = 0
    while done < len(data):
        done += os.write(fd, data[done : done + _MOST_AT_ONCE])


def read_all(fd: int, count: int) -> bytes:
    """Read up to `count` bytes. A single read of the system usually gives them all, without a copy."""
    if count >= _LARGE and (make := _maker()) is not None:
        return _read_into(fd, count, make)
    data = os.read(fd, min(count, _MOST_AT_ONCE))
    if len(data) == count or not data:
        return data
    parts = [data]
    left = count - len(data)
    while left and (data := os.read(fd, min(left, _MOST_AT_ONCE))):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _read_into(fd: int, count: int, make: Callable[[int], tuple[bytes, memoryview]]) -> bytes:
    data, room = make(count)
    done = 0
    while done < count and (some := os.readv(fd, [room[done : done + _MOST_AT_ONCE]])):
        done += some
    return data if done == count else data[:done]


@cache
def _maker() -> Callable[[int], tuple[bytes, memoryview]] | None:
    """Return what makes bytes to be filled, and the view to fill them by; None where there are none such.

    Python's interface for C allows to fill bytes that nobody else has seen yet.
    """
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if sys.platform != "linux" or advice is None or sys.implementation.name != "cpython":
        return None
    try:
        api, advise = ctypes.pythonapi, ctypes.CDLL(None).madvise
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
            ("PyBytes_FromStringAndSize", api)
        )
        where = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", api))
        view = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
            ("PyMemoryView_FromMemory", api)
        )
    except (OSError, AttributeError):
        return None
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def make(count: int) -> tuple[bytes, memoryview]:
        data = new(None, count)
        at = where(data)
        first = -(-at // _HUGE_PAGE) * _HUGE_PAGE
        advise(first, max(0, at + count - first) // _HUGE_PAGE * _HUGE_PAGE, advice)  # may be refused
        return data, view(at, count, _TO_WRITE)

    return make
