"""Whole stores: copied to another place, and deleted."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any, TypeAlias

from lcstore.copying.copy import CopyReport, copy_store
from lcstore.errors import InvalidInputError
from lcstore.format import keys
from lcstore.index.resolve import no_store
from lcstore.jobs.survey import OnProgress
from lcstore.maintain.removal import RemoveReport, remove_store
from lcstore.records.kinds import is_store
from lcstore.storage.backend import Backend, exists
from lcstore.storage.patient import patient
from lcstore.storage.targets import open_backend
from lcstore.store.opening import check_place
from lcstore.write.apart import check_around

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
        The target lies inside a store, or a store in it.
    ConflictError
        The target holds another store, or states that this one has not.
    CorruptionError
        The source is damaged: repair it first. Or ``lcstore.json`` of the target is, without `check`.
    """
    store = patient(open_backend(source, source_options), timeout, retries)
    to = patient(open_backend(target, target_options), timeout, retries)
    if not is_store(store):
        raise no_store(store, source, source_options)
    if not exists(to, keys.STORE_KEY):
        check_place(to)
        check_around(to)
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
    InvalidInputError
        `url` is a link to where the store is.
    ConflictError
        A run stored something meanwhile: what was there before is deleted.
    """
    _check_no_link(url)
    backend = patient(open_backend(url, storage_options), timeout, retries)
    return remove_store(backend, dry_run=dry_run, on_progress=on_progress)


def _check_no_link(url: Target) -> None:
    """Refuse a link on this machine: whoever tidies links up may not mean what they lead to."""
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else ""
    protocol, _, path = text.rpartition("://")
    place = os.path.abspath(os.path.expanduser(path))
    if protocol in ("", "file", "local") and os.path.islink(place):
        real = shlex.quote(os.path.realpath(place))
        raise InvalidInputError(
            f"{place} is a link: `lcstore rm {real}` deletes the store that it leads to; the link alone is "
            "deleted as any file is"
        )
