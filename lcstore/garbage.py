"""Python's collector of garbage in cycles, told to wait while many objects are made that all stay."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet


class _Block:
    """A block that has the collector wait. One that was left in any way is gone, and holds nothing up."""


_blocks: WeakSet[_Block] = WeakSet()
_switched_off = False


@contextmanager
def garbage_waits() -> Iterator[None]:
    """Have the collector wait for a ``with`` block, which is to compute for a moment and wait for nothing.

    The more objects there are, the more often the collector goes through those made last. All that states
    of many tensors are taken apart to stays: nearly half of the time of their saves would go into that.
    Nothing is done about a collector that somebody else has switched off.
    """
    global _switched_off
    block = _Block()
    try:
        _blocks.add(block)
        if gc.isenabled():
            _switched_off = True
            gc.disable()
        yield
    finally:
        _blocks.discard(block)
        if _switched_off and not _blocks:
            _switched_off = False
            gc.enable()


def _begin_anew() -> None:
    """In a process that was forked off: no block of another thread goes on there."""
    global _switched_off
    _blocks.clear()
    if _switched_off:
        _switched_off = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
