"""Files of other tools to states of a store."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from lcstore.durability import DurabilityLike, durability_from
from lcstore.errors import (
    ConflictError,
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    LimitError,
    NotFoundError,
    UnsupportedFormatError,
)
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.dcpfolder import read_dcp
from lcstore.exchange.npzfile import read_npz
from lcstore.exchange.opaque import read_data
from lcstore.exchange.orbaxfolder import read_orbax
from lcstore.exchange.sources import Source, sources
from lcstore.exchange.steps import NoStepError, step_in
from lcstore.exchange.tensorfile import read_safetensors
from lcstore.exchange.torchfile import read_torch
from lcstore.exchange.trainerfolder import read_folder
from lcstore.exchange.zarrfolder import read_zarr
from lcstore.format.labels import check_step
from lcstore.format.policyfile import PolicyLike
from lcstore.index.states import Listed
from lcstore.jobs.survey import OnProgress
from lcstore.storage.backend import Backend
from lcstore.storage.targets import open_backend
from lcstore.store.opening import open_store
from lcstore.store.store import Store
from lcstore.units import listed

#: In the metadata of a state: what it was imported from.
_IMPORTED: Final = "imported"
#: What is wrong with a file, and no trouble of the store.
_OF_A_FILE: Final = (InvalidInputError, CorruptionError, LimitError, UnsupportedFormatError)
#: What became of a file: a state as an anchor or a delta, or it is one already, or it would become one, or it
#: cannot, since it is broken, or of a step before the last one there.
Outcome: TypeAlias = Literal["anchor", "delta", "there", "to import", "broken", "late"]


@dataclass(frozen=True)
class Imported:
    """A file, and what became of it.

    Attributes
    ----------
    url, format, nbytes
        The file or folder.
    step
        The step of its state.
    outcome
        ``"anchor"`` or ``"delta"``: it was imported so. ``"there"``: its state was there already.
        ``"to import"``: it was only looked at. ``"broken"``, ``"late"``: it was left out, as it cannot be
        read, or as the store has later steps.
    bytes_stored
        What its state takes in the store; 0 where it was not imported now.
    exact
        Whether every bit of it comes back; None where it was not imported now.
    problem
        Why one was left out; "" where it was not.
    left_out
        Names of what is no data in a file of torch, objects of classes: its state has None for them.
    """

    url: str
    format: str
    nbytes: int
    step: int
    outcome: Outcome
    bytes_stored: int = 0
    exact: bool | None = None
    problem: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportReport:
    """What was imported.

    Attributes
    ----------
    url
        The store.
    files
        Each file, in the order of the steps.
    dry_run
        Whether nothing was done.
    left_out
        The files of which nothing tells the step, beside others that tell theirs: mostly copies of one of
        those, such as ``best.pt``. With `step`, each can be imported by itself.
    policy
        What was saved under; "" where nothing was done.
    """

    url: str
    files: tuple[Imported, ...]
    dry_run: bool
    left_out: tuple[str, ...] = ()
    policy: str = ""

    @property
    def ok(self) -> bool:
        """Whether no file was left out of which the step is told."""
        return not any(one.problem for one in self.files)


def import_files(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    url: str | os.PathLike[str] | Backend,
    *,
    step: int | None = None,
    steps_from: str | None = None,
    format: str | None = None,
    under: str | None = None,
    metrics: Iterable[str] = (),
    policy: PolicyLike | None = None,
    durability: DurabilityLike | None = None,
    dry_run: bool = False,
    skip_broken: bool = False,
    skip_objects: bool = False,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    file_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> ImportReport:
    """Have checkpoint files become states of a store, in the order of their steps.

    Each goes on from the one before, as the saves of a run do. A file whose state is there already is passed
    over: name, size and time of change are kept in the metadata of a state. So this may be interrupted and
    called again, and called again when there are more files. Nothing in a file is ever run.

    Parameters
    ----------
    files
        Paths, globs and URLs of files, of folders that are a checkpoint, and of folders of such.
    url
        The store, as for `lcstore.open`; made if there is none.
    step
        The training step, of a single file.
    steps_from
        A regular expression that finds the step in the path of a file, as its first group.
    format
        What all of the files are; told by names if not given.
    under
        A name to have the tree of a file below: with ``"model"``, ``fc.weight`` becomes
        ``model/fc.weight``.
    metrics
        Names of numbers in each file (``"val_loss"``, or a path: ``"stats/val_loss"``) that become metrics of
        its state, by the last part of the name: `BestN` and ``"best:val_loss"`` go by them.
    policy, durability, threads, storage_options
        As for `lcstore.open`. Without a policy a store that has states goes on under that of the latest.
    dry_run
        Read nothing but names and sizes; only say what would be done.
    skip_broken
        Leave out files that cannot be imported, and report them. They cannot follow once later ones are
        there: then they are reported each time, as late, until they are moved away.
    skip_objects
        Leave out what is no data beside the tensors in files of torch, objects of classes, and report their
        names. Where an object would be, a state has None.
    file_options
        Passed on to where the files are.
    on_progress
        Called with "import", how many files are done, and how many there are; and as by `Store.save`.

    Raises
    ------
    NotFoundError
        There is no such file, or no checkpoint among them.
    InvalidInputError
        Nothing tells the step of any file, or the format of one; two files are of one step; or a file holds
        what no store does, or no number of such a name.
    CorruptionError
        A file is damaged, or not what its name says, and `skip_broken` does not leave it out. Those before it
        are imported.
    ConflictError
        The store has later steps: what is imported last would be taken for the latest.

    Examples
    --------
    >>> lcstore.export(store[10], "files/step10.npz").step
    10
    >>> lcstore.export(store[20], "files/step20.npz").step
    20
    >>> report = lcstore.import_files("files", "runs/imported")
    >>> [(one.step, one.outcome) for one in report.files]
    [(10, 'anchor'), (20, 'delta')]
    """
    if durability is not None:
        durability_from(durability)  # a dry run that makes no store refuses it, too
    given = [files] if isinstance(files, str | os.PathLike) else [*files]
    wanted = [metrics] if isinstance(metrics, str) else [*metrics]
    found, left_out = by_step(sources(given, format, file_options), step, steps_from)
    mode: Literal["r", "a"] = "r" if dry_run else "a"
    try:
        how: dict[str, Any] = {"policy": policy, "durability": durability, "threads": threads}
        store = open_store(url, mode, storage_options=storage_options, **how)
    except NotFoundError:
        if not dry_run:
            raise
        place = open_backend(url, storage_options).url
        return ImportReport(place, tuple([_seen(*one) for one in found.items()]), True, left_out)
    with store:
        states = store.states(retired=True) if store.latest_step() is not None else []
        there = {_mark(state.step, state.info.metadata.get(_IMPORTED)) for state in states if state.info}
        new = {at: source for at, source in found.items() if _mark(at, _about(source)) not in there}
        late = _late(store, states, new)
        if late and not skip_broken:
            raise next(iter(late.values()))
        done: dict[int, Imported] = {
            at: _seen(at, source, "to import" if at in new else "there") for at, source in found.items()
        } | {at: _left_out(at, new[at], "late", error) for at, error in late.items()}
        new = {at: source for at, source in new.items() if at not in late}
        if new and not dry_run:
            _go_on(store, states)
            for count, (at, source) in enumerate(new.items(), 1):
                store.goes_on = count < len(new)
                try:
                    done[at] = _import(store, at, source, under, wanted, skip_objects, on_progress)
                except _OF_A_FILE as error:
                    if isinstance(error.__cause__, ImportError):  # a library is missing: no file is broken
                        raise
                    if not skip_broken:
                        error.message += _way_on(count - 1, len(new))
                        raise
                    done[at] = _left_out(at, source, "broken", error)
                if on_progress is not None:
                    on_progress("import", count, len(new))
        name = store.policy.name if new and not dry_run else ""
        return ImportReport(store.url, tuple(done.values()), dry_run, left_out, name)


def _way_on(done: int, wanted: int) -> str:
    """Return how to have the other files where one cannot be imported, for its error."""
    if wanted == 1:
        return ""
    return (
        f". {done} of {wanted} files are imported. For the others move this one away and do the same again: "
        "what is there is passed over; or leave out all that are broken (--skip-broken, skip_broken=True)"
    )


def by_step(
    found: Sequence[Source], step: int | None, regex: str | None
) -> tuple[dict[int, Source], tuple[str, ...]]:
    """Return files by their steps, which rise; and those among them of which nothing tells the step.

    Raises
    ------
    InvalidInputError
        Nothing tells the step of any, two are of one step, or a name has several numbers.
    """
    if step is not None and len(found) != 1:
        raise InvalidInputError(f"{len(found)} files cannot be of one step: --steps-from REGEX says theirs")
    by_step: dict[int, list[Source]] = defaultdict(list)
    untold: dict[str, NoStepError] = {}
    for source in found:
        try:
            at = step_in(source.url, regex) if step is None else check_step(step)
            by_step[at].append(source)
        except NoStepError as error:
            untold[source.url] = error
    if untold and not by_step:
        raise next(iter(untold.values()))
    for at, some in by_step.items():
        if len(some) > 1:
            raise InvalidInputError(
                f"{some[0].url} and {some[1].url} are both of step {at}: name one of them, or say where the "
                "step is with --steps-from REGEX (steps_from=)"
            )
    return {at: by_step[at][0] for at in sorted(by_step)}, tuple(untold)


def _about(source: Source) -> dict[str, Any]:
    """Return what is kept of a file, by which it is known again."""
    return {
        "name": source.name,
        "format": source.format,
        "bytes": source.nbytes,
        "modified": source.modified,
    }


def _mark(step: int, about: Any) -> tuple[Any, ...]:
    """Return what is alike for a file and the state that it became."""
    known = about if isinstance(about, dict) else {}
    return step, *(str(known.get(word)) for word in ("name", "bytes", "modified"))


def _seen(step: int, source: Source, outcome: Outcome = "to import") -> Imported:
    return Imported(source.url, source.format, source.nbytes, step, outcome)


def _left_out(step: int, source: Source, outcome: Outcome, error: LcstoreError) -> Imported:
    return replace(_seen(step, source, outcome), problem=str(error))


def _late(store: Store, states: Sequence[Listed], new: Mapping[int, Source]) -> dict[int, ConflictError]:
    """Return why those files cannot be imported that are of steps before the last one there."""
    last = max((state.step for state in states if not state.retired), default=-1)
    known = {_mark(state.step, state.info.metadata.get(_IMPORTED))[:-1] for state in states if state.info}
    late = {}
    for at, source in new.items():
        if at < last:
            why = (
                f"{store.url} has step {last}, and {source.url} is of step {at}, before it: what is imported "
                "now would be restored as the latest. Import into a store of its own"
            )
            if _mark(at, _about(source))[:-1] in known:
                why += (
                    f". Step {at} was imported from a file of this name and length that was changed at "
                    "another time: if this is a copy of it, copy with `cp -a` or `rsync -a`, which keep that"
                )
            late[at] = ConflictError(why, step=at)
    return late


def _go_on(store: Store, states: Sequence[Listed]) -> None:
    """Have the first state be a delta to the last one that is there."""
    kept = [state for state in states if not state.retired and not state.without]
    if kept:
        store.go_on_from(max(kept, key=lambda state: (state.step, state.seq)).node)


def _import(
    store: Store,
    step: int,
    source: Source,
    under: str | None,
    metrics: Sequence[str],
    skip_objects: bool,
    on_progress: OnProgress | None,
) -> Imported:
    with source.local() as path:
        try:
            found = read(path, source, skip_objects=skip_objects)
            info = store.save(
                step,
                found.state if under is None else {under: found.state},
                metadata={**found.metadata, _IMPORTED: _about(source)},
                metrics=found.metrics | found.numbers(metrics),
                on_progress=on_progress,
            )
        except _OF_A_FILE as error:
            if source.url not in error.message:
                error.message = f"{source.url}: {error.message}"
            if source.format == "torch" and isinstance(error, InvalidInputError) and not skip_objects:
                error.message += _without_objects(path, source)
            raise
    seen = _seen(step, source, info.kind)  # type: ignore[arg-type]
    return replace(seen, bytes_stored=info.bytes_stored, exact=info.exact, left_out=found.left_out)


def _without_objects(path: str, source: Source) -> str:
    """Return how to have a file that is refused without its objects, for its error; "" where that fails."""
    try:
        left_out = read(path, source, skip_objects=True).left_out
    except LcstoreError:
        return ""
    if not left_out:
        return ""
    return (
        f". Or leave out of files the objects that are no data ({listed(left_out)}): "
        "--skip-objects, skip_objects=True"
    )


def read(path: str, source: Source, *, skip_objects: bool = False) -> Checkpoint:
    """Return what a file, which lies at a path on this machine, holds; of torch without objects if told."""
    reader = read_data if skip_objects and source.format == "torch" else _READERS[source.format]
    try:
        return reader(path, source.url)
    except OSError as error:
        raise InvalidInputError(f"{source.url} cannot be read: {error.strerror or error}") from error


_READERS: Final[dict[str, Callable[[str, str], Checkpoint]]] = {
    "safetensors": read_safetensors,
    "torch": read_torch,
    "npz": read_npz,
    "zarr": read_zarr,
    "transformers": read_folder,
    "dcp": read_dcp,
    "orbax": read_orbax,
}
