"""Which of the processes that train together this one is."""

from __future__ import annotations

import re
import sys
from typing import Any


def rank() -> int:
    """Return the number of this process among those that train together in torch; 0 where it is alone."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0
    return int(distributed.get_rank())


def is_own(url: str, number: int) -> bool:
    """Return whether a store is that of one rank: its name has the number in it, or that of its folder."""
    name = "/".join(url.rstrip("/").split("/")[-2:])
    return number in map(int, re.findall(r"[0-9]+", name))
