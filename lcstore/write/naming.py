"""Tags and pins: names set on states, and taken away."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Final

from lcstore.errors import ConflictError, InvalidInputError, LcstoreError
from lcstore.format import markkeys
from lcstore.format.marks import TagRecord
from lcstore.format.records import distinct_now
from lcstore.index.index import Index
from lcstore.index.listing import TAGS, Listing
from lcstore.index.marked import bearers, next_seq
from lcstore.index.standing import too_late
from lcstore.jobs.jobs import run_all
from lcstore.storage.backend import Backend
from lcstore.storage.put import put_record

#: What those begin with who pin for as long as they hold a snapshot: each has a name of its own.
SNAPSHOT: Final = "snapshot "


def set_name(backend: Backend, kind: markkeys.TagKind, name: str, node: str | None) -> None:
    """Set a tag or pin on a node, or take it away from all (None)."""
    _put(backend, _new_name(Listing.take(backend, TAGS).named, kind, name, node))


def pin(index: Index, executor: Executor, node: str, by: str) -> None:
    """Keep a node from being retired, or collected if it was.

    Raises
    ------
    ConflictError
        It is being collected: too late.
    """
    if pin_all(index, executor, [node], by):
        raise too_late_to_pin(index.backend, node)


def pin_all(index: Index, executor: Executor, nodes: Sequence[str], by: str) -> set[str]:
    """Keep nodes from being retired, or collected if they were; return those for which it is too late.

    Each call stores records of its own, and takes those away that come too late: another that sets the same
    pin at once may have come in time.
    """
    late = too_late(index, nodes)  # a pin that is left behind would show what is no more whole
    in_time = [node for node in nodes if node not in late]
    if not in_time:
        return late
    backend = index.backend
    named = Listing.take(backend, TAGS).named
    before = bearers(named, "pin", {*in_time})
    pins = {node: _new_name(named, "pin", _pin_name(node, by), node) for node in in_time}
    spare = [record.key() for record in pins.values()]
    try:
        run_all(executor, [partial(_put, backend, record) for record in pins.values()])
        # As for a save: whoever condemns from now on sees the pins.
        now_late = too_late(index, in_time)
        # All but the last: a listing under way may have passed over where the new one is.
        spare = [record.key() for node, record in pins.items() if node in now_late]
        held = (before.get(record.name, []) for node, record in pins.items() if node not in now_late)
        spare += [markkeys.tag_key(one) for those in held for one in those[:-1]]
    finally:
        with suppress(LcstoreError):
            backend.delete_many(spare)
    return late | now_late


def too_late_to_pin(backend: Backend, node: str) -> ConflictError:
    """Return the error of whoever wanted to keep a node that is being collected."""
    return ConflictError(
        f"it is too late to pin node {node}: some of what it is restored from is being collected, or was "
        "set aside as damaged. As long as it can be read, "
        f"`lcstore export {shlex.quote(f'{backend.url}@{node}')} state.safetensors` saves its values"
    )


def hide_again(backend: Backend, named: Sequence[markkeys.TagName], node: str) -> None:
    """Take away what `unretire` set on a node, as it was listed: one that is set meanwhile holds."""
    _put(backend, _new_name(named, "pin", _pin_name(node, markkeys.UNRETIRED), None))


def _new_name(
    named: Sequence[markkeys.TagName], kind: markkeys.TagKind, name: str, node: str | None
) -> TagRecord:
    """Return a record of its own that sets a name beside those that are listed."""
    return TagRecord(name, node, next_seq(named, kind, name), distinct_now(), kind)


def _put(backend: Backend, record: TagRecord) -> None:
    put_record(backend, record.key(), record.to_bytes())


def unpin(index: Index, node: str, by: str | None) -> int:
    """Take pins from a node: all, or that of one holder. Return how many."""
    named = Listing.take(index.backend, TAGS).named
    held = bearers(named, "pin", {*index.graph.nodes, node})  # a record may be lost, and the pin is there
    names = [name for name, records in held.items() if any(record.node == node for record in records)]
    if by is not None:
        names = [name for name in names if name == _pin_name(node, by)]
    for name in names:
        set_name(index.backend, "pin", name, None)
    return len(names)


def _pin_name(node: str, by: str) -> str:
    """Return the name of a pin: one for each node and holder, so that each is taken away by itself."""
    name = f"{node} {by}" if by else node
    if len(name) > markkeys.MAX_TAG_CHARS:
        raise InvalidInputError(f"the name of who pins is up to {markkeys.MAX_TAG_CHARS - 33} characters")
    return name
