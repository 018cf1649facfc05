"""Stores that are broken on purpose, one promise each, and the ways in which the kit looks for that.

A breakage is a context in which the real code is wrong; a way of looking runs something and returns what it
found. The sound store must give nothing in every way of looking, each broken one something in its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

from deletion import (
    ByAgeAlone,
    CondemnsLate,
    Forked,
    NeverLooksAgain,
    collector_of,
    forked,
    lost_to_damaged_reads,
    meeting,
)
from kit import ScheduleError, StoreModel, explore, problems
from kit.around import Around
from runs import base, opened, record, state, straight

from lcstore.errors import LcstoreError
from lcstore.index import contents
from lcstore.maintain.collect import Collector
from lcstore.storage import local
from lcstore.storage.backend import Backend
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import every_point
from lcstore.write import writer

Look = Callable[[Path], list[str]]

#: Nothing is stored twice: what is lost is not made good by that.
_ALONE = {"durability": "none"}
#: Schedules tried with a writer and a collector; those that matter come early.
SCHEDULES = 120


# Ways of looking ------------------------------------------------------------------------------------------


def by_power_cuts(folder: Path) -> list[str]:
    """Cut the power during a run of saves."""
    recorded = record(straight, folder / "top")
    return [problem for seed in range(40) for problem in recorded.cut(seed, folder)]


def by_crashes(folder: Path, wrap: Callable[[Backend], Backend] = lambda backend: backend) -> list[str]:
    """Die at every operation of a save; `wrap` stands between the store and the storage."""
    start = base(2)

    def save(backend: Backend) -> None:
        with opened(wrap(backend)) as store:
            store.resume()
            store.save(10, state(10))

    return [
        f"{point.kind} at {point.operation}: {problem}"
        for point in every_point(start.backend, save)
        for problem in problems(point.backend, start.model, settled=False)
    ]


def by_use(folder: Path) -> list[str]:
    """Save, save again, and look at both."""
    backend, model = MemoryBackend.fresh(), StoreModel()
    try:
        for number in (0, 1):
            with opened(backend) as store:
                model.acknowledge(store, store.save(number, state(number)).node)
    except LcstoreError as error:
        return [f"fails: {error}"]
    return problems(backend, model)


def by_schedules(folder: Path, kind: type[Collector] = Collector) -> list[str]:
    """Let a writer go on from a state while that is retired and collected."""
    try:
        explore(meeting(_forked(), collector_of(kind), resumed=True, **_ALONE), limit=SCHEDULES)
    except ScheduleError as error:
        return [str(error)]
    return []


def by_damaged_reads(folder: Path) -> list[str]:
    """Collect while a record comes back damaged."""
    return lost_to_damaged_reads(_forked(), collector_of(Collector))


@cache
def _forked() -> Forked:
    return forked(**_ALONE)


# Breakages ------------------------------------------------------------------------------------------------


def no_fsync() -> AbstractContextManager[object]:
    """Files and folders are never synced."""
    return patch.object(local, "_sync", lambda fd: None)


def no_fsync_of_files() -> AbstractContextManager[object]:
    """Names are made durable, the bytes behind them are not."""
    return patch.object(
        local, "_sync", lambda fd: local.os.fsync(fd) if stat.S_ISDIR(os.fstat(fd).st_mode) else None
    )


def no_fsync_of_folders() -> AbstractContextManager[object]:
    """Bytes are made durable, the names for them are not."""
    return patch.object(local, "sync_directory", lambda path: None)


def no_fsync_above() -> AbstractContextManager[object]:
    """The folder of a new file is synced, but not the new folders above it."""
    real = local.LocalBackend._sync_folders

    def sync_folders(self: local.LocalBackend, folders: set[str]) -> None:
        self._synced.update(above for folder in folders for above in self._up_from(folder))
        real(self, folders)

    return patch.object(local.LocalBackend, "_sync_folders", sync_folders)


class RecordFirst(Around):
    """The record of a node is written before the objects that it needs."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.held: list[tuple[str, bytes]] = []

    def put(self, key: str, data: bytes) -> None:
        if key.startswith("data/"):
            self.held.append((key, bytes(data)))
            return
        self.inner.put(key, data)
        if key.startswith("nodes/"):
            while self.held:
                self.inner.put(*self.held.pop(0))


def overwriting() -> AbstractContextManager[object]:
    """Edges have one fixed name, so that a save writes over the one before."""
    return patch.object(writer.secrets, "token_hex", lambda nbytes=32: "ab" * nbytes)


def skipping_unreadable() -> AbstractContextManager[object]:
    """A collector takes records that it cannot read to be none."""
    return patch.multiple(
        contents,
        _refuse=lambda key, error: None,
        _check_parents=lambda taken: None,
    )


def writer_never_looks() -> AbstractContextManager[object]:
    """A writer acknowledges without looking at what was condemned and retired meanwhile."""
    return patch.object(writer.Writer, "_is_let_go", lambda self, base, step: False)


@dataclass(frozen=True)
class Broken:
    """A broken store: how it is broken, how that is found, and what the problem says, in part."""

    breakage: Callable[[], AbstractContextManager[object]]
    look: Look
    says: str


def _collector(kind: type[Collector]) -> Broken:
    return Broken(nullcontext, partial(by_schedules, kind=kind), "missing")


BROKEN = {
    "no fsync": Broken(no_fsync, by_power_cuts, "acknowledged step"),
    "no fsync of files": Broken(no_fsync_of_files, by_power_cuts, "acknowledged step"),
    "no fsync of folders": Broken(no_fsync_of_folders, by_power_cuts, "acknowledged step"),
    "no fsync of new folders above": Broken(no_fsync_above, by_power_cuts, "acknowledged step"),
    "record first": Broken(nullcontext, partial(by_crashes, wrap=RecordFirst), "does not restore"),
    "overwriting": Broken(overwriting, by_use, "acknowledged step 0"),
    "never looks again": _collector(NeverLooksAgain),
    "by age alone": _collector(ByAgeAlone),
    "condemns late": _collector(CondemnsLate),
    "writer never looks": Broken(writer_never_looks, by_schedules, "missing"),
    "skips unreadable records": Broken(skipping_unreadable, by_damaged_reads, "acknowledged step"),
}

LOOKS: dict[str, Look] = {
    "power cuts": by_power_cuts,
    "crashes": by_crashes,
    "use": by_use,
    "schedules": by_schedules,
    "damaged reads": by_damaged_reads,
}
