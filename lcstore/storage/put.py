"""Storing objects, and records: the one write that makes something so, and finding out whether it arrived."""

from __future__ import annotations

from typing import Final

from lcstore.arrays import Buffer
from lcstore.errors import LcstoreError, NotFoundError, StorageError, UnknownOutcomeError
from lcstore.jobs.deadline import deadline
from lcstore.storage.backend import Backend

#: Seconds for what is asked of a target that has failed.
LITTLE: Final = 1.0
_AGAIN: Final = "do the same again, which is right either way"


def put_object(backend: Backend, key: str, data: Buffer) -> None:
    """Store an object that says nothing by itself: a record will name it, or it marks a node to come.

    Raises
    ------
    StorageError
        It may be there or not, which makes no difference.
    """
    try:
        backend.put(key, data)
    except UnknownOutcomeError as error:
        failed = StorageError(error.message, key=key, reason=error.reason)
        failed.gave_up = error.gave_up
        raise failed from error.__cause__ or error


def put_record(backend: Backend, key: str, data: bytes, again: str = _AGAIN) -> None:
    """Store a record; on return it is there. `again` tells the user what to do where that is not known.

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
    except StorageError as error:
        if not error.outcome_unknown:
            _look(backend, key, data, error, again)
        elif error.gave_up:
            with deadline(LITTLE):
                _look(backend, key, data, error, again)
        else:
            _settle(backend, key, data, error, again)


def _settle(backend: Backend, key: str, data: bytes, error: StorageError, again: str) -> None:
    """Write a record again, which on a durable target also makes it so, where a read would only see it."""
    try:
        backend.put(key, data)
    except StorageError as second:
        error.volatile |= second.volatile
        _look(backend, key, data, error, again)


def _look(backend: Backend, key: str, data: bytes, error: StorageError, again: str) -> None:
    """Return if a record is there although writing it failed with an error; raise what is known if not."""
    unknown = error.outcome_unknown
    try:
        found = backend.get(key, 0, len(data) + 1)
    except NotFoundError:
        if not unknown:
            raise error from error.__cause__
        message = f"the write of the record may still land: {again}"
        raise UnknownOutcomeError(message, key=key) from error
    except LcstoreError:
        if not unknown:
            raise error from error.__cause__
        message = f"the record was sent, but whether it arrived cannot be read: {again}"
        raise UnknownOutcomeError(message, key=key) from error
    if found != data:
        raise UnknownOutcomeError("the record's name is taken, but not by it", key=key) from error
    if error.volatile:
        message = f"the record is there, but may not outlive a power cut: {again}"
        raise UnknownOutcomeError(message, key=key) from error
