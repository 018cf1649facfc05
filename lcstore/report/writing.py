"""A report to a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lcstore.errors import InvalidInputError
from lcstore.exchange.newfile import new_file
from lcstore.report.extra import check_drawing
from lcstore.report.gather import gather
from lcstore.report.page import page_of
from lcstore.store.store import Store

if TYPE_CHECKING:
    from lcstore.jobs.survey import OnProgress
    from lcstore.report.facts import StoreReport


def write_report(
    store: Store,
    file: str | os.PathLike[str],
    *,
    run: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> StoreReport:
    """Write what a store holds as one page of HTML, and return it as data.

    The page needs nothing but itself: no network and no JavaScript. It is gathered from names and records; no
    tensor is read. A file that is there is replaced, once the page is whole.

    Parameters
    ----------
    store
        An open store; it may be in use meanwhile.
    file
        Where to: a path, or any URL that fsspec opens.
    run
        The number or id of the run whose layers are looked at, from where its line began; None for that of
        the latest state. All else is of the whole store.
    storage_options
        For the target of the file.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.

    Raises
    ------
    InvalidInputError
        `store` is something else.
    NotFoundError
        There is no such run.
    LcstoreError
        matplotlib or jinja2 is not installed: ``pip install 'lcstore[report]'``.
    ConflictError
        There is a folder of that name.
    StorageError
        The target failed.

    Examples
    --------
    >>> report = lcstore.write_report(store, "report.html")
    >>> len(report.states), report.verified.ok
    (3, True)
    """
    given: object = store
    if not isinstance(given, Store):
        raise InvalidInputError(
            f"write_report(store, file) takes an open store, not {given!r:.100}: lcstore.open(url, 'r')"
        )
    check_drawing()
    report = gather(store, on_progress, run)
    write_page(report, file, storage_options)
    return report


def write_page(
    report: StoreReport, file: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> None:
    """Write the page of a report; parameters and errors as for `write_report`."""
    page = page_of(report).encode()
    with new_file(os.fspath(file), storage_options, overwrite=True) as out:
        out.write(page)
