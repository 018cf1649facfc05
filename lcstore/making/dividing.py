"""Which planned edges are made in parts, so that threads of a cluster do not wait for one row of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Edges of rows that take less than this part of the time that all would, evenly divided, stay whole.
_SHORT: Final = 0.75
#: The most parts: what each of them does besides merging is done as often.
_MOST: Final = 16


def parts_of(after: Sequence[Sequence[int]], threads: int, chunks: int) -> list[int]:
    """Return in how many parts each edge of a plan is made: 1 where it is made whole.

    Parameters
    ----------
    after
        For each edge the places of those that it waits for, before its own.
    threads
        How many merge at a time.
    chunks
        How many chunks an edge has, about.

    Notes
    -----
    Edges wait for each other in rows, and a row takes as long as all of its edges: however many threads there
    are, nothing is done before the longest row is. Cut in parts, its edges take a part of that each. What is
    in no long row fills the threads that are free, and costs least as a whole.
    """
    most = min(threads, chunks, _MOST)
    before, behind = [1] * len(after), [0] * len(after)
    for place, those in enumerate(after):
        before[place] += max((before[one] for one in those), default=0)
    for place in reversed(range(len(after))):
        for one in after[place]:
            behind[one] = max(behind[one], behind[place] + 1)
    fair = len(after) / max(threads, 1)
    rows = (before[place] + behind[place] for place in range(len(after)))
    return [most if most > 1 and row > max(1.0, _SHORT * fair) else 1 for row in rows]
