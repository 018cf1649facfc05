"""Tags and pins: names set on states, and taken away."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from lcstore.errors import ConflictError, InvalidInputError, LcstoreError
from lcstore.format import markkeys
from lcstore.format.marks import TagRecord
from lcstore.format.records import distinct_now
from lcstore.index.index import Index
from lcstore.index.listing import TAGS, Listing
from lcstore.index.marked import bearers, next_seq
from lcstore.index.standing import is_too_late
from lcstore.storage.backend import Backend
from lcstore.storage.settle import put_record

#: What those begin with who pin for as long as they hold a snapshot: each has a name of its own.
SNAPSHOT: Final = "snapshot "


def set_name(backend: Backend, kind: markkeys.TagKind, name: str, node: str | None) -> None:
    """Set a tag or pin on a node, or take it away from all (None)."""
    _put_name(backend, Listing.take(backend, TAGS).named, kind, name, node)


def pin(backend: Backend, index: Index, node: str, by: str) -> None:
    """Keep a node from being retired, or collected if it was.

    Each call stores a record of its own, and takes that away where it comes too late: another that sets the
    same pin at once may have come in time.

    Raises
    ------
    ConflictError
        It is being collected: too late.
    """
    name = _pin_name(node, by)
    too_late = is_too_late(index, node)  # a pin that is left behind would show what is no more whole
    if not too_late:
        named = Listing.take(backend, TAGS).named
        spare = [_put_name(backend, named, "pin", name, node)]
        try:
            # As for a save: whoever condemns from now on sees the pin.
            too_late = is_too_late(index, node)
            if not too_late:
                # All but the last: a listing under way may have passed over where the new one is.
                held = bearers(named, "pin", {node}).get(name, [])
                spare = [*map(markkeys.tag_key, held[:-1])]
        finally:
            with suppress(LcstoreError):
                backend.delete_many(spare)
    if too_late:
        raise ConflictError(
            f"it is too late to pin node {node}: some of what it is restored from is being collected, or was "
            "set aside as damaged. As long as it can be read, "
            f"`lcstore export {shlex.quote(f'{backend.url}@{node}')} state.safetensors` saves its values"
        )


def _put_name(
    backend: Backend, named: Sequence[markkeys.TagName], kind: markkeys.TagKind, name: str, node: str | None
) -> str:
    """Store a record of its own that sets a name beside those that are listed; return its key."""
    record = TagRecord(name, node, next_seq(named, kind, name), distinct_now(), kind)
    put_record(backend, record.key(), record.to_bytes())
    return record.key()


def unpin(backend: Backend, index: Index, node: str, by: str | None) -> int:
    """Take pins from a node: all, or that of one holder. Return how many."""
    named = Listing.take(backend, TAGS).named
    held = bearers(named, "pin", index.graph.nodes)
    names = [name for name, records in held.items() if any(record.node == node for record in records)]
    if by is not None:
        names = [name for name in names if name == _pin_name(node, by)]
    for name in names:
        set_name(backend, "pin", name, None)
    return len(names)


def _pin_name(node: str, by: str) -> str:
    """Return the name of a pin: one for each node and holder, so that each is taken away by itself."""
    name = f"{node} {by}" if by else node
    if len(name) > markkeys.MAX_TAG_CHARS:
        raise InvalidInputError(f"the name of who pins is up to {markkeys.MAX_TAG_CHARS - 33} characters")
    return name
