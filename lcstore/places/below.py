"""All stores below a place in one call: maintained, verified, collected, unretired, copied."""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from random import shuffle
from typing import Any, Generic, TypeAlias, TypeVar

from lcstore.check.findings import Level, VerifyReport
from lcstore.cluster.tasks import Client, Task, carried_out
from lcstore.copying.copy import CopyReport, copy_store
from lcstore.copying.receiving import check_apart
from lcstore.errors import InvalidInputError, LcstoreError, NotFoundError
from lcstore.index.resolve import headless
from lcstore.jobs.survey import OnProgress
from lcstore.maintain.collected import CollectReport
from lcstore.maintain.unretire import UnretireReport
from lcstore.places.whole import copy
from lcstore.records.kinds import is_store
from lcstore.retention.base import Retention
from lcstore.retention.parse import as_rule
from lcstore.storage.backend import Backend
from lcstore.storage.finding import stores_below
from lcstore.storage.patient import patient
from lcstore.storage.targets import open_backend
from lcstore.store.nightly import MaintainReport
from lcstore.store.opening import open_store
from lcstore.store.store import Store
from lcstore.units import parse_seconds

R = TypeVar("R", MaintainReport, VerifyReport, CopyReport, CollectReport, UnretireReport)


@dataclass(frozen=True)
class Tended(Generic[R]):
    """What came of one store of many.

    Attributes
    ----------
    url
        The store.
    report
        What was done, or found; None where the store could not be opened, or its task failed.
    problem
        Why there is no report. (`wrong` also says what is wrong in one.)
    is_gone
        Whether somebody moved or deleted the store while others had their turn. That is told as the
        `problem`, and it is none of the store: there is nothing to mend.
    """

    url: str
    report: R | None
    problem: LcstoreError | None = None
    is_gone: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is a report, and nothing wrong in it, or the store is gone."""
        return self.is_gone or not self.wrong

    @property
    def wrong(self) -> str:
        """What is wrong, in words; "" where nothing is."""
        return str(self.problem) if self.report is None else self.report.wrong


OnDone: TypeAlias = Callable[[Tended[R]], object]


def maintain_below(
    url: str | os.PathLike[str],
    keep: Retention | str,
    *,
    leave_out: Sequence[str] = (),
    client: Client | None = None,
    storage_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    dry_run: bool = False,
    max_bytes: int | None = None,
    max_seconds: float | None = None,
    level: Level = "structure",
    on_progress: OnProgress | None = None,
    on_done: OnDone[MaintainReport] | None = None,
) -> list[Tended[MaintainReport]]:
    """Maintain every store below a place, as `Store.maintain` does one. One that fails stops no other.

    Parameters
    ----------
    url, storage_options
        A folder or prefix, and options, as for `lcstore.open`. Stores are looked for eight folders deep.
    keep, dry_run, level
        As for `Store.maintain`.
    leave_out
        Stores to pass over, and folders of them, by their paths below `url`, or paths that lead there. ``*``
        stands for any text.
    client
        A `distributed.Client`: workers of that Dask cluster do it, a store in each task. Here, if None.
    threads
        Threads to code with; by default one per core here, and one in a task of a cluster.
    max_bytes, max_seconds
        As for `Store.compact`, for each store.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.
    on_done
        Called with what came of each store, as soon as that is known.

    Returns
    -------
    list of Tended
        By URL.

    Raises
    ------
    NotFoundError
        There is no store.
    InvalidInputError
        `keep` is no rule; something to leave out is not there; workers see nothing of this process's memory.
    """
    call = partial(
        _tend,
        Store.maintain,
        keep=as_rule(keep),
        threads=1 if threads is None and client is not None else threads,
        dry_run=dry_run,
        max_bytes=max_bytes,
        max_seconds=max_seconds,
        level=level,
    )
    return _each(url, storage_options, "maintain", lambda *_: call, client, on_progress, on_done, leave_out)


def collect_below(
    url: str | os.PathLike[str],
    *,
    leave_out: Sequence[str] = (),
    grace: float | str | None = None,
    run_is_dead: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    on_done: OnDone[CollectReport] | None = None,
) -> list[Tended[CollectReport]]:
    """Delete what no kept state needs in every store below a place, as `Store.collect` does in one.

    Parameters
    ----------
    url, leave_out, storage_options, on_progress, on_done
        As for `maintain_below`, which raises the same.
    grace, run_is_dead, dry_run
        As for `Store.collect`. A store with a run that may be alive has that error as its `problem`.
    """
    seconds = parse_seconds(grace) if isinstance(grace, str) else grace
    call = partial(_tend, Store.collect, grace=seconds, run_is_dead=run_is_dead, dry_run=dry_run)
    return _each(url, storage_options, "collect", lambda *_: call, None, on_progress, on_done, leave_out)


def unretire_below(
    url: str | os.PathLike[str],
    *,
    leave_out: Sequence[str] = (),
    since: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    on_done: OnDone[UnretireReport] | None = None,
) -> list[Tended[UnretireReport]]:
    """Bring back what every store below a place let go of, as `Store.unretire` does in one.

    Parameters
    ----------
    url, leave_out, storage_options, on_progress, on_done
        As for `maintain_below`, which raises the same.
    since, dry_run
        As for `Store.unretire`.
    """
    call = partial(_tend, Store.unretire, since=since, dry_run=dry_run)
    return _each(url, storage_options, "unretire", lambda *_: call, None, on_progress, on_done, leave_out)


def verify_below(
    url: str | os.PathLike[str],
    level: Level = "structure",
    *,
    client: Client | None = None,
    storage_options: Mapping[str, Any] | None = None,
    sample: tuple[int, int] = (1, 1),
    max_seconds: float | None = None,
    on_progress: OnProgress | None = None,
    on_done: OnDone[VerifyReport] | None = None,
) -> list[Tended[VerifyReport]]:
    """Look for damage in every store below a place, as `Store.verify` does in one.

    Parameters
    ----------
    url, storage_options, client, on_progress, on_done
        As for `maintain_below`.
    level, sample
        As for `Store.verify`.
    max_seconds
        As for `Store.verify`, for each store.

    Raises
    ------
    NotFoundError
        There is no store.
    """
    call = partial(_verify, level=level, sample=sample, max_seconds=max_seconds)
    return _each(url, storage_options, "verify", lambda *_: call, client, on_progress, on_done)


def copy_below(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    check: bool = False,
    source_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    on_done: OnDone[CopyReport] | None = None,
) -> list[Tended[CopyReport]]:
    """Copy every store below a place, as `lcstore.copy` does one, to the same name below another.

    One that fails stops no other. Stores of the target that the source has not, or not any more, stay.

    Parameters
    ----------
    source, source_options
        A folder or prefix, and options, as for `lcstore.open`. Stores are looked for eight folders deep.
    target, target_options
        Where the copies go: a place apart, as ``"s3://backup/runs"``.
    check
        As for `lcstore.copy`.
    on_progress, on_done
        As for `maintain_below`.

    Returns
    -------
    list of Tended
        By URL, that of the source.

    Raises
    ------
    NotFoundError
        There is no store.
    InvalidInputError
        The one place lies in the other, or the target is a store.
    StorageError
        The target does not answer.
    """
    above, to = os.fspath(source).rstrip("/"), os.fspath(target)
    there = patient(open_backend(target, target_options), None, None)
    check_apart(open_backend(source, source_options), there)
    if is_store(there):  # where it does not answer, no store waits for it again
        raise InvalidInputError(f"{there.url} is a store, and no store lies in another: name another place")

    def call(url: str, found: Sequence[str]) -> Callable[[Backend], CopyReport]:
        place = to + "/" * (not to.endswith("/")) + url.removeprefix(above).strip("/")
        copied = copy if _is_apart(url, found) else _copy_as_it_lies
        return lambda backend: copied(backend, open_backend(place, target_options), check=check)

    return _each(source, source_options, "copy", call, None, on_progress, on_done)


def _is_apart(url: str, found: Sequence[str]) -> bool:
    """Return whether a store lies in none of some, and none of them in it."""
    own = f"{url.rstrip('/')}/"
    others = (f"{one.rstrip('/')}/" for one in found if one != url)
    return not any(one.startswith(own) or own.startswith(one) for one in others)


def _copy_as_it_lies(source: Backend, target: Backend, *, check: bool) -> CopyReport:
    """Copy a store to a place that lies in another, or another in it, as the store itself does."""
    return copy_store(patient(source, None, None), patient(target, None, None), check=check)


def _tend(do: Callable[..., R], backend: Backend, *, dry_run: bool, threads: int | None = 1, **how: Any) -> R:
    """Do to a store what a method of stores does."""
    with open_store(backend, "r" if dry_run else "r+", threads=threads) as store:
        return do(store, dry_run=dry_run, **how)


def _verify(backend: Backend, *, level: Level, **how: Any) -> VerifyReport:
    from lcstore.check.verify import verify

    return verify(patient(backend, None, None), level, **how)


def _each(
    url: str | os.PathLike[str],
    options: Mapping[str, Any] | None,
    what: str,
    call: Callable[[str, Sequence[str]], Callable[[Backend], R]],
    client: Client | None,
    on_progress: OnProgress | None,
    on_done: OnDone[R] | None,
    leave_out: Sequence[str] = (),
) -> list[Tended[R]]:
    """Do the same to every store, as `call` gives it for a URL and all of them; return what came of each."""
    found = stores_below(os.fspath(url), options, sealed=True)
    if not found:
        raise NotFoundError(f"there is no store at {url}, nor eight folders below it", missing="store")
    found = _without(found, os.fspath(url), leave_out)
    shuffle(found)  # where each night is cut off, all get their turn in the end
    tasks = [_task(what, one, open_backend(one, options), call(one, found)) for one in found]
    tended = list[Tended[R]]()
    try:
        for done, (_, one) in enumerate(carried_out(tasks, client), 1):
            tended.append(one)
            if on_done is not None:
                on_done(one)
            if on_progress is not None:
                on_progress("stores", done, len(tasks))
    except BaseException:  # as where a night is cut off: what was found is not lost with it
        bad = ", ".join(one.url for one in tended if not one.ok) or "none"
        said = "%s: cut off after %d of %d stores; of those that were done, not good: %s"
        logging.getLogger("lcstore").warning(said, url, len(tended), len(tasks), bad)
        raise
    return sorted(tended, key=lambda one: one.url)


def _without(found: list[str], url: str, globs: Sequence[str]) -> list[str]:
    """Return the stores that no glob matches, nor a folder that they lie in."""
    left, paths = set[str](), {one: [*_paths(one, url)] for one in found}
    for glob in globs:
        some = (_matching(paths, meant) for meant in (_meant(glob, url) if glob else ()))
        matched = next(filter(None, some), None)
        if matched is None:  # a name that is mistyped would have a store tended as it must not be
            below = [path for names in paths.values() for path in names if path]
            near = get_close_matches(posixpath.basename(glob.rstrip("/")), below, 1, 0)
            hint = f": give a path below it, as {near[0]!r}" if near else ""
            raise InvalidInputError(
                f"no store below {url} is called {glob!r}, so none is left out by that{hint}"
            )
        left |= matched
    return [one for one in found if one not in left]


def _matching(paths: Mapping[str, list[str]], glob: str) -> set[str]:
    """Return the stores of which a path matches, where ``*`` alone stands for other text."""
    literal = glob.replace("[", "[[]")
    return {one for one, names in paths.items() if any(fnmatchcase(name, literal) for name in names)}


def _meant(glob: str, url: str) -> Iterator[str]:
    """Yield what a glob may mean below a place: that path, or one to there, as a shell completes it."""
    yield glob.rstrip("/")
    yield glob.rstrip("/").removeprefix(f"{url.rstrip('/')}/")
    given, place = glob.removeprefix("file://"), url.removeprefix("file://")
    if "://" not in given + place:
        for path in (os.path.normpath(given), os.path.relpath(given, place)):
            yield "" if path == "." else path  # the place itself, a store in which others lie


def _paths(store: str, above: str) -> Iterator[str]:
    """Yield the path of a store below a place, and those of the folders between."""
    names = store.removeprefix(above.rstrip("/")).strip("/").split("/")
    yield from ("/".join(names[:count]) for count in range(1, len(names) + 1))


def _task(what: str, url: str, backend: Backend, call: Callable[[Backend], R]) -> Task[Tended[R]]:
    return Task(what, backend.url, partial(_tended, url, call, backend), otherwise=partial(Tended, url, None))


def _tended(url: str, call: Callable[[Backend], R], backend: Backend, _: Sequence[Tended[R]]) -> Tended[R]:
    try:
        return Tended(url, call(backend))
    except NotFoundError as error:
        if error.missing != "store" or headless(backend):
            raise
        gone = f"{backend.url} was a store when this began, and is gone: moved or deleted meanwhile"
        return Tended(url, None, NotFoundError(gone, missing="store"), is_gone=True)
