"""What is said where a disk is too full for the records that let go of something, or say what goes."""

from __future__ import annotations

import shlex
from typing import Final

from lcstore.errors import StorageError
from lcstore.units import size

_ONCE: Final = "once it was silent for twice as long as its saves were apart (a minute at least)"


def nothing_goes(url: str, key: str | None, *, at_once: bool) -> StorageError:
    """Return the error of a collection that found no room, and nothing that was old enough to make some.

    Parameters
    ----------
    url, key
        The store, and the record that there was no room for.
    at_once
        Whether that collection waited for no grace already.
    """
    dead = f". Where its run has ended, {_ONCE}, {_collect(url)} deletes at once what was condemned before"
    return StorageError(
        f"there is no room on {url} for the records that say what goes, of some 4 KiB each: delete anything "
        f"else there, and collect again; or copy the store to another disk: `lcstore cp {shlex.quote(url)} "
        f"TO`{'' if at_once else dead}",
        key=key,
        reason="full",
    )


def not_all_let_go(url: str, stored: int, wanted: int, key: str | None) -> StorageError:
    """Return the error that says how to go on where so many of what was to be let go of are."""
    if not stored:
        return StorageError(
            f"there is no room on {url} for the records that let go of anything, of 4 KiB each, and what "
            "would go has no parity or second copies of its own whose place they could take: delete anything "
            f"else there, or copy the store to another disk, `lcstore cp {shlex.quote(url)} TO`. Where some "
            f"were let go of before, and their run has ended, {_collect(url)} may make room {_ONCE}",
            key=key,
            reason="full",
        )
    return StorageError(
        f"{stored} of {wanted} are let go of; there is no room on {url} for more records, of 4 KiB each. "
        f"Make room now, then do the same again for the rest. Where the run has ended, {_ONCE}: "
        f"{_collect(url)}",
        key=key,
        reason="full",
    )


def little_room(url: str, free: int, kept_free: int) -> StorageError:
    """Return the error of a compaction that would take the last room of a disk."""
    return StorageError(
        f"no more edges are added on {url}: {size(free)} are free, and {size(kept_free)} are left for the "
        "next saves and for the records that let go of states. Delete other files there, or copy the store "
        f"to another disk: `lcstore cp {shlex.quote(url)} TO`. Where its run has ended, states can go: "
        f"`lcstore retain {shlex.quote(url)} --keep latest:3 --apply`, and then, {_ONCE}, {_collect(url)}",
        reason="full",
    )


def _collect(url: str) -> str:
    return f"`lcstore collect {shlex.quote(url)} --grace 0 --run-is-dead --apply`"
