"""Whole stores: copied to another place, and deleted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from lcstore.copying.copy import CopyReport, copy_store
from lcstore.index.kinds import is_store
from lcstore.index.resolve import no_store
from lcstore.maintain.removal import RemoveReport, remove_store
from lcstore.storage.backend import Backend
from lcstore.storage.patient import patient
from lcstore.storage.survey import OnProgress
from lcstore.storage.targets import open_backend
from lcstore.store.opening import check_place

Target: TypeAlias = "str | os.PathLike[str] | Backend"


def copy(
    source: Target,
    target: Target,
    *,
    check: bool = False,
    source_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    on_progress: OnProgress | None = None,
) -> CopyReport:
    """Copy a store to another place: what was committed when this began, whoever writes to it meanwhile.

    Lengths and hashes are checked on the way. The place becomes a store at the very end: nobody takes an
    interrupted copy for one, and called again, this goes on.

    Parameters
    ----------
    source, target
        URLs, as for `lcstore.open`.
    check
        Read what the target has already, too. What is damaged there is moved to ``quarantine/``, and stored
        anew. Otherwise what is as long as it should be is passed over.
    source_options, target_options
        Passed on to the one and the other.
    timeout, retries
        As for `lcstore.open`.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.

    Raises
    ------
    NotFoundError
        There is no store to copy.
    InvalidInputError
        The target lies inside a store.
    ConflictError
        The target holds another store, or states that this one has not.
    CorruptionError
        The source is damaged: repair it first. Or ``lcstore.json`` of the target is, without `check`.
    """
    store = patient(open_backend(source, source_options), timeout, retries)
    to = patient(open_backend(target, target_options), timeout, retries)
    if not is_store(store):
        raise no_store(store, source, source_options)
    check_place(to)
    return copy_store(store, to, on_progress, check=check)


def remove(
    url: Target,
    *,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    on_progress: OnProgress | None = None,
) -> RemoveReport:
    """Delete a store for good, with all of its states, pinned ones too. Stop its writers first.

    Only what lcstore stores goes; other things in its place are named in the report, and left. Interrupted
    and called again, it goes on.

    Parameters
    ----------
    url, storage_options, timeout, retries
        As for `lcstore.open`.
    dry_run
        Only say what would be deleted.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.

    Raises
    ------
    NotFoundError
        There is no store.
    ConflictError
        A run stored something meanwhile: what was there before is deleted.
    """
    backend = patient(open_backend(url, storage_options), timeout, retries)
    return remove_store(backend, dry_run=dry_run, on_progress=on_progress)
