"""Of processes that train together one saves: what another is told that seems to mean to."""

from __future__ import annotations

import logging
from functools import cache
from typing import Final

from lcstore.ranks import is_own

_log: Final = logging.getLogger("lcstore")


def is_left_out(url: str, number: int) -> bool:
    """Return whether a process is not of rank 0, and saves nothing; tell it once of a store of its own."""
    if number and is_own(url, number):
        _tell(url, number)
    return number > 0


@cache
def _tell(url: str, number: int) -> None:
    _log.warning(
        "%s: this process is of rank %d and saves nothing, as a CheckpointManager saves in rank 0 only. For "
        "a store of each rank save by Store.save: lcstore.open(url).save(step, state)",
        url,
        number,
    )
