"""Runs of saves that power cuts, crashes and schedules are tried on, and what to look for afterwards."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from kit import Chronicle, Disk, StoreModel, power_loss, problems, refuses_to_go_on
from kit.actors import alone, deterministic

import lcstore
from lcstore.storage.backend import Backend
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash

#: The store's place below the top of the simulated disk; neither directory exists at first.
PLACE = "runs/first"


def state(number: int) -> dict[str, Any]:
    """A small state of a run: every number another one, all of them alike in shape."""
    rng = np.random.default_rng(7)
    weights = rng.standard_normal((8, 16)).astype(np.float32)
    for _ in range(number):
        weights = weights + rng.standard_normal(weights.shape).astype(np.float32) * np.float32(1e-3)
    return {
        "model": {"a.weight": weights, "bn.running_mean": weights[0] * 2},
        "optim": {"state": {0: {"step": np.float32(number), "exp_avg": weights * 1e-3}}},
        "epoch": number,
    }


@contextmanager
def opened(backend: Backend, mode: Any = "a", threads: int = 1, **options: Any) -> Iterator[lcstore.Store]:
    with lcstore.open(backend, mode, threads=threads, **options) as store:
        yield store


# Power cuts ---------------------------------------------------------------------------------------------


@dataclass
class Recorded:
    """A run on a simulated disk, and what had been acknowledged at each moment of it."""

    disk: Disk
    chronicle: Chronicle

    def cut(self, seed: int, folder: Path) -> list[str]:
        """Cut the power at some moment; return what is wrong with what is found then."""
        at = random.Random(seed).randint(0, self.disk.now)
        top = self.disk.crash(seed, folder / f"cut-{seed}", at)
        backend = LocalBackend(top / PLACE)
        # For speed: nothing waits for a disk, or for other threads.
        with power_loss(top), deterministic(seed), alone():
            found = problems(backend, self.chronicle.at(at), settled=False)
            found += refuses_to_go_on(backend, 1000, state(50))
        shutil.rmtree(top)
        return found


class Recorder:
    """Saves to a store on a simulated disk, noting when each save was acknowledged."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.chronicle = Chronicle()
        self.count = 0

    def backend(self) -> LocalBackend:
        return LocalBackend(f"{self.disk.top}/{PLACE}")

    def save(self, store: lcstore.Store, **options: Any) -> str:
        self.count += 1
        info = store.save(self.count, state(self.count), **options)
        with opened(self.backend(), "r") as fresh:
            self.chronicle.model.acknowledge(fresh, info.node)
        self.chronicle.note(self.disk.now)
        return info.node


def straight(rec: Recorder, threads: int = 1) -> None:
    """One handle."""
    with opened(rec.backend(), threads=threads) as store:
        for _ in range(4):
            rec.save(store)


def branches(rec: Recorder) -> None:
    """Two handles, two branches; exact states and tags; one goes back and saves a step again."""
    with opened(rec.backend()) as one, opened(rec.backend()) as two:
        first = rec.save(one, exact=True)
        rec.save(two, tags=["good"])
        one.resume(first)
        rec.count -= 1
        rec.save(one, tags=["good"])
        two.resume("latest")
        rec.save(two)


def killed(rec: Recorder) -> None:
    """Processes that are killed in the middle of saves, and others that go on without a power cut between."""
    for changes in (3, 40, 1000, 30, 1000, 80, 82):
        with opened(rec.backend()) as store:
            if store.steps():
                store.resume()
            rec.disk.die_at = rec.disk.now + changes
            with contextlib.suppress(Crash):
                rec.save(store)
        rec.disk.die_at = None
    with opened(rec.backend()) as store:
        store.resume()
        rec.save(store)


RUNS: dict[str, Callable[[Recorder], None]] = {
    "straight": straight,
    "threads": partial(straight, threads=2),
    "branches": branches,
    "killed": killed,
}


def record(run: Callable[[Recorder], None], top: Path) -> Recorded:
    """Record a run on a fresh disk."""
    top.mkdir()
    with power_loss(top) as disk:
        rec = Recorder(disk)
        run(rec)
    return Recorded(rec.disk, rec.chronicle)


# Stores in memory -----------------------------------------------------------------------------------------


@dataclass
class Base:
    """A store with a few saves, to begin from again and again."""

    objects: dict[str, bytes]
    model: StoreModel

    def backend(self) -> MemoryBackend:
        return MemoryBackend.fresh(self.objects)


def base(saves: int) -> Base:
    backend, model = MemoryBackend.fresh(), StoreModel()
    with opened(backend) as store:
        for number in range(saves):
            model.acknowledge(store, store.save(number, state(number)).node)
    return Base(backend.snapshot(), model)
