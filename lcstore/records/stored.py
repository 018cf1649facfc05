"""Stored objects, each what its record says; what is not is rebuilt where it can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from lcstore.errors import CorruptionError, FallbackWarning, LcstoreError, NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, ObjectRef
from lcstore.format.parity import Family, Xor
from lcstore.jobs.survey import spread
from lcstore.storage.backend import Backend, read_twice
from lcstore.warned import warn


def fetch_object(backend: Backend, ref: ObjectRef) -> bytes:
    """Return a stored object that is what its record says.

    What fails the check is read once more: a bit may have flipped on the way.

    Raises
    ------
    CorruptionError
        It is missing or differs.
    """
    try:
        return read_twice(lambda: ref.check(backend.get(ref.key, 0, ref.nbytes + 1)))
    except NotFoundError as error:
        raise CorruptionError("an object that a record needs is missing", key=ref.key) from error


def fetch_copied(backend: Backend, ref: ObjectRef) -> bytes:
    """Return an object that has a copy beside it: that, if need be (`FallbackWarning`).

    Raises
    ------
    CorruptionError
        It is missing or differs, and so does its copy.
    """
    try:
        return fetch_object(backend, ref)
    except CorruptionError as damage:
        try:
            data = fetch_copy(backend, ref)
        except CorruptionError as other:
            raise damage from other
        tell(backend, damage, "its second copy was read")
        return data


def fetch_copy(backend: Backend, ref: ObjectRef) -> bytes:
    """Return what the copy beside an object holds; errors as for `fetch_object`."""
    return fetch_object(backend, replace(ref, key=keys.own_copy_key(ref.key)))


def fetch_parts(backend: Backend, refs: Sequence[ObjectRef]) -> Iterable[bytes]:
    """Return several objects as `fetch_copied` does, read side by side."""
    return spread(partial(fetch_copied, backend), refs) if len(refs) > 1 else [fetch_copied(backend, refs[0])]


def is_stored(backend: Backend, edge: EdgeBody) -> bool:
    """Return whether any of what an edge needs is stored, if it needs anything.

    If not, a copy of its record was stored after a collector had taken the rest: by a target long after it
    said that it could not, or by a compactor whose edge nobody needed.
    """
    there = set(backend.list(keys.edge_folder(edge.id)))
    needed = {ref.key for part in edge.parts for ref in part.needed}
    return not needed or bool(needed & there)


def rebuild(backend: Backend, ref: ObjectRef, family: Family) -> bytes:
    """Return what an object was before it was lost or damaged; no more than one other is held at a time.

    Raises
    ------
    CorruptionError
        Another of its family is missing or damaged as well, or what they come to is not what was committed.
    """
    lost = Xor()
    for other in family.others(ref.key):
        lost.add(fetch_object(backend, other))
    return ref.check(bytes(lost.value(ref.nbytes)))


def fetch_rebuilt(backend: Backend, ref: ObjectRef, family: Family | None, damage: CorruptionError) -> bytes:
    """Return a damaged object rebuilt from its family (`FallbackWarning`).

    Raises
    ------
    CorruptionError
        The damage, where that cannot be done.
    """
    if family is None:
        raise damage
    try:
        data = rebuild(backend, ref, family)
    except CorruptionError as other:
        raise damage from other
    tell(backend, damage, "it was rebuilt from the others of its array")
    return data


def tell(backend: Backend, damage: LcstoreError, instead: str) -> None:
    """Warn of damage that cost nothing."""
    warn(f"{damage}: {instead}; run `lcstore repair {backend.url}`", FallbackWarning)
