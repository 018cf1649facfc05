"""Which of the processes that train together this one is."""

from __future__ import annotations

import re
import sys
from typing import Any


def rank() -> int:
    """Return the number of this process among those that train together in torch; 0 where it is alone."""
    return _rank_in_group() or 0


def _rank_in_group() -> int | None:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank())


class RankOfHandle:
    """The rank of this process as a handle knows it: what it was last, once the group was destroyed.

    Without that, each process would count as the first one then, and all of them save. A handle that is made
    after the end of the group is of a process that is alone: a worker goes on with other tasks.
    """

    def __init__(self) -> None:
        self._known = rank()

    @property
    def number(self) -> int:
        """The number of this process among those that train together; 0 where it was always alone."""
        found = _rank_in_group()
        self._known = self._known if found is None else found
        return self._known


def is_own(url: str, number: int) -> bool:
    """Return whether a store is that of one rank: its name has the number in it, or that of its folder."""
    name = "/".join(url.rstrip("/").split("/")[-2:])
    return number in map(int, re.findall(r"[0-9]+", name))
