"""The one write that makes something so, and settling what a lost reply left open."""

from __future__ import annotations

from collections.abc import Iterable

from lcstore.errors import LcstoreError, NotFoundError, StorageError, UnknownOutcomeError
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef
from lcstore.storage.backend import Backend


def put_record(backend: Backend, key: str, data: bytes) -> None:
    """Store a record; on return it is there.

    A write with an unknown outcome is settled: the name is unique and the bytes are known, so writing them
    again is always right, and what is found under the name is this record or nothing.

    Raises
    ------
    UnknownOutcomeError
        Whether the record is there could not be found out. Writing the same bytes again is still right.
    StorageError
        It is not there.
    """
    try:
        backend.put(key, data)
    except LcstoreError as error:
        _settle(backend, key, data, error)


def _settle(backend: Backend, key: str, data: bytes, error: LcstoreError) -> None:
    unknown = isinstance(error, StorageError) and error.outcome_unknown
    if unknown:
        try:
            backend.put(
                key, data
            )  # on a durable target this also makes it so, where a read would only see it
        except LcstoreError:
            pass
        else:
            return
    try:
        found = backend.get(key, 0, len(data) + 1)
    except NotFoundError:
        if not unknown:
            raise error from None
        raise UnknownOutcomeError(
            "the write of the record may still land: save again, which settles it first", key=key
        ) from error
    except LcstoreError:
        if not unknown:
            raise error from None
        raise UnknownOutcomeError(
            "the record was sent, but whether it arrived cannot be read: save again, which settles it first",
            key=key,
        ) from error
    if found != data or backend.durable:
        raise UnknownOutcomeError("the record's name is taken, but not surely by it", key=key) from error


def is_taken_away(backend: Backend, edge: str, objects: Iterable[ObjectRef]) -> bool:
    """Say whether a collector took objects of an edge, just committed, for those of an interrupted write.

    Whatever is condemned after this, its collector lists the records once more and finds the new one.
    """
    if any(keys.parse_condemned_key(key).edge == edge for key in backend.list(keys.CONDEMNED)):
        return True
    # The condemnation goes last: one that came and went took along what was there by then, whatever that was.
    there = set(backend.list(keys.edge_folder(edge)))
    return any(ref.key not in there for ref in objects)
