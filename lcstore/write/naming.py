"""Tags and pins: names set on states, and taken away."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import Final

from lcstore.errors import ConflictError, CorruptionError, InvalidInputError, LcstoreError, NotFoundError
from lcstore.format import markkeys
from lcstore.format.marks import TagRecord, read_tag
from lcstore.format.records import utc_now
from lcstore.index.index import Index
from lcstore.index.listing import TAGS, Listing
from lcstore.index.marked import bearers, next_seq
from lcstore.index.standing import is_too_late
from lcstore.limits import MAX_RECORD_BYTES
from lcstore.storage.backend import Backend, read_capped
from lcstore.storage.settle import put_record

#: What those begin with who pin for as long as they hold a snapshot: each has a name of its own.
SNAPSHOT: Final = "snapshot "


def set_name(backend: Backend, kind: markkeys.TagKind, name: str, node: str | None) -> None:
    """Set a tag or pin on a node, or take it away from all (None)."""
    named = Listing.take(backend, TAGS).named
    record = TagRecord(name, node, next_seq(named, kind, name), utc_now(), kind)
    put_record(backend, record.key(), record.to_bytes())


def pin(backend: Backend, index: Index, node: str, by: str) -> None:
    """Keep a node from being retired, or collected if it was.

    Raises
    ------
    ConflictError
        It is being collected: too late.
    """
    name = _pin_name(node, by)
    too_late = is_too_late(index, node)  # a pin that is left behind would show what is no more whole
    if not too_late and not _set_again(backend, name, node):
        set_name(backend, "pin", name, node)
        try:
            # As for a save: whoever condemns from now on sees the pin.
            too_late = is_too_late(index, node)
        except LcstoreError:
            with suppress(LcstoreError):
                set_name(backend, "pin", name, None)
            raise
        if too_late:
            set_name(backend, "pin", name, None)
    if too_late:
        raise ConflictError(
            f"it is too late to pin node {node}: some of what it is restored from is being collected, or was "
            "set aside as damaged. As long as it can be read, "
            f"`lcstore export {shlex.quote(f'{backend.url}@{node}')} state.safetensors` saves its values"
        )


def _set_again(backend: Backend, name: str, node: str) -> bool:
    """Write the record of a pin again, if it is there, and return whether it is.

    Who wrote it may have died before it was durable.
    """
    held = bearers(Listing.take(backend, TAGS).named, "pin", {node}).get(name)
    if held is None:
        return False
    key = markkeys.tag_key(held[-1])
    try:
        record = read_tag(key, read_capped(backend, key, MAX_RECORD_BYTES))
    except (NotFoundError, CorruptionError):  # a repair takes away a damaged one
        return False
    put_record(backend, key, record.to_bytes())
    return True


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
