"""From what a user calls a state to a snapshot of it; and on to an earlier one where that is damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, get_args

from lcstore.errors import CorruptionError, FallbackWarning, NotFoundError, warn
from lcstore.format.labels import At, OnCorrupt, check_at, check_choice
from lcstore.read.reader import Reader
from lcstore.read.snapshot import Snapshot

T = TypeVar("T")

#: How often a state is resolved anew when maintenance changed what is there meanwhile.
_TRIES: Final = 4


def find(reader: Reader, at: At, use: Callable[[Snapshot], T], *, listed: bool = False) -> T:
    """Return what `use` makes of a state.

    It is resolved anew where what it was resolved to is gone meanwhile: the whole node, or its exact value.

    Parameters
    ----------
    reader, at, use
        What reads, what a user calls the state, and what is to be made of it.
    listed
        Whether a listing was just taken.

    Raises
    ------
    NotFoundError
        There is no such state.
    CorruptionError
        What is stored is not what was committed.
    """
    failed: tuple[NotFoundError, str, object] | None = None
    left = _TRIES
    while True:
        left -= 1
        if not listed or failed is not None:
            reader.listed()
        name = reader.index.resolve(check_at(at))
        situation = reader.index.situation(name.node)
        if failed is not None and (left <= 0 or failed[1:] == (name.node, situation)):
            raise failed[0]
        try:
            return use(Snapshot(reader, name))
        except NotFoundError as error:
            failed = error, name.node, situation


def snapshot_at(reader: Reader, at: At) -> Snapshot:
    """Return a state of which the record and the layout are read; errors as for `find`."""

    def loaded(snapshot: Snapshot) -> Snapshot:
        snapshot.using(lambda state: state.node)
        return snapshot

    return find(reader, at, loaded)


def find_whole(reader: Reader, at: At, use: Callable[[Snapshot], T], on_corrupt: OnCorrupt) -> T:
    """Return what `use` makes of a state, or of the newest earlier one that is whole (`FallbackWarning`)."""
    check_choice("on_corrupt", on_corrupt, get_args(OnCorrupt))
    try:
        return find(reader, at, use)
    except CorruptionError as error:
        if on_corrupt == "raise":
            raise
        damage = error
    graph = reader.index.graph
    damaged = reader.index.resolve(check_at(at))
    earlier = [n for n in graph.nodes.values() if n.order < damaged.order and n.node not in graph.hidden]
    for name in sorted(earlier, key=lambda name: name.order, reverse=True):
        try:
            found = find(reader, name.node, use)
        except (CorruptionError, NotFoundError):
            continue
        message = f"step {damaged.step} is damaged ({damage}): this is step {name.step} instead"
        warn(message, FallbackWarning)
        return found
    raise damage
