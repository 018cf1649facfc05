"""Files that killed processes left in the middle of a write: no record names them, and no object is one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from lcstore.errors import StorageError
from lcstore.records.kinds import FOLDERS
from lcstore.storage.backend import Backend, Leftover, Leftovers, storage_clock
from lcstore.storage.patient import no_room

#: Seconds, besides the grace, for which nobody wrote to such a file before it is taken for a dead writer's. A
#: large object takes minutes on a slow disk, a grace may be of seconds, and clocks are a minute apart.
UNTOUCHED: Final = 3600.0
#: The same where the run is declared dead, the grace included.
UNTOUCHED_OF_DEAD: Final = 60.0


class Leavings(NamedTuple):
    """What goes of such files, and what waits: somebody may be writing to it."""

    going: Sequence[Leftover] = ()
    waiting: Sequence[Leftover] = ()


def left_over(backend: Backend) -> Leftovers:
    """Return the files of all writes that have not ended, those under way too."""
    return backend.leftovers(FOLDERS)


def bytes_left(found: Sequence[Leftover]) -> int:
    """Return the bytes of such files."""
    return sum(one.nbytes for one in found)


def untouched(grace: float, *, run_is_dead: bool) -> float:
    """Return for how many seconds nobody must have written to such a file."""
    return max(grace, UNTOUCHED_OF_DEAD) if run_is_dead else grace + UNTOUCHED


def take_away(backend: Backend, seconds: float, *, dry_run: bool) -> Leavings:
    """Take away the files to which nobody wrote for some seconds, by the storage's clock.

    A dry run, which stores nothing, only says which those are, by this machine's clock.
    """
    found = left_over(backend)
    now = _now(backend, dry_run=dry_run) if found else None
    if now is None:
        return Leavings(waiting=found)
    before = now - seconds
    if not dry_run:
        found = backend.leftovers(FOLDERS, before)
    going = [one for one in found if one.stored < before]
    return Leavings(going, [one for one in found if one.stored >= before])


def _now(backend: Backend, *, dry_run: bool) -> float | None:
    """Return what time it is; None where there is no room to ask."""
    if dry_run:
        return time.time()
    try:
        return storage_clock(backend)
    except StorageError as error:
        if not no_room(error):
            raise
        return None
