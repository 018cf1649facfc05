"""The one write that makes something so, and settling what a lost reply left open."""

from __future__ import annotations

from lcstore.errors import LcstoreError, NotFoundError, StorageError, UnknownOutcomeError
from lcstore.store.backend import Backend


def put_record(backend: Backend, key: str, data: bytes) -> None:
    """Store a record; on return it is there.

    A failed write is settled by reading back: the name is unique and the bytes are known, so what is there
    under it either is this record or nothing.

    Raises
    ------
    UnknownOutcomeError
        Whether the record is there could not be found out. Writing the same bytes again is always right.
    StorageError
        It is not there.
    """
    try:
        backend.put(key, data)
    except LcstoreError as error:
        if _landed(backend, key, data, error):
            return
        raise


def _landed(backend: Backend, key: str, data: bytes, error: LcstoreError) -> bool:
    """Say whether the record is there in spite of `error`."""
    try:
        found = backend.get(key, 0, len(data) + 1)
    except NotFoundError:
        if isinstance(error, StorageError) and error.outcome_unknown:
            raise UnknownOutcomeError(
                "the write of the record may still land: save again, which settles it first", key=key
            ) from error
        return False
    except LcstoreError:
        raise UnknownOutcomeError(
            "the record was sent, but whether it arrived cannot be read: save again, which settles it first",
            key=key,
        ) from error
    if found == data:
        return True
    raise UnknownOutcomeError("another record lies under this record's own name", key=key) from error
