"""A state that is stored and not acknowledged stays until another one is: it may be all that a run has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from meetings import Meanwhile

import lcstore
from lcstore import LcstoreError, StorageError, UnknownOutcomeError
from lcstore.format import keys
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash, FaultBackend, Operation
from lcstore.write import writer


def state(step: int) -> dict[str, np.ndarray]:
    """Weights that move a little with each step."""
    start, way = np.random.default_rng(7).standard_normal((2, 64, 64)).astype(np.float32)
    return {"weight": start + np.float32(step * 1e-3) * way}


def retain(backend: MemoryBackend, collects: int = 0) -> None:
    with lcstore.open(backend, grace=0) as store:
        store.retain("latest:1")
        for _ in range(collects):
            store.collect(grace=0)


def steps(backend: MemoryBackend) -> list[int]:
    with lcstore.open(backend, "r") as store:
        assert store.verify("restore").ok
        return store.steps()


class Target(FaultBackend):
    """A store of which an operation fails as a test says, from some moment on."""

    def __init__(self, backend: MemoryBackend) -> None:
        self.fails = ""
        super().__init__(
            backend,
            {
                lambda asked: self.fails == "look" and asked.name == "list": "eio",
                lambda asked: self.fails == "full" and self._is_data(asked): "enospc",
                lambda asked: self.fails == "dies" and self._is_data(asked): "crash_before",
                lambda asked: self.fails == "marks" and asked.key.startswith(keys.RETIRED + "/"): "eio",
            },
        )

    @staticmethod
    def _is_data(asked: Operation) -> bool:
        return asked.name == "put" and asked.key.startswith(keys.DATA)


def unlooked() -> tuple[MemoryBackend, Target, lcstore.Store]:
    """A run that stored state 3, of which the look around failed; then what that stands on was let go of."""
    backend = MemoryBackend.fresh()
    target = Target(backend)
    store = lcstore.open(target, grace=0)
    for step in range(3):
        store.save(step, state(step))
    target.fails = "look"
    with pytest.raises(UnknownOutcomeError):
        store.save(3, state(3))
    target.fails = ""
    retain(backend)
    assert steps(backend) == [3]
    return backend, target, store


@pytest.mark.parametrize("fails", ["full", "dies"])
def test_it_stays_where_the_next_save_fails(fails):
    backend, target, store = unlooked()
    target.fails = fails
    with pytest.raises((StorageError, Crash)):
        store.save(4, state(4))
    retain(backend, collects=3)
    assert steps(backend) == [3]
    target.fails = ""
    if fails == "dies":
        store = lcstore.open(backend)
        np.testing.assert_allclose(store.resume()["weight"], state(3)["weight"], atol=1e-2)
    target.revive()
    store.save(5, state(5))
    assert steps(backend) == ([3, 5] if fails == "dies" else [5])
    retain(backend, collects=3)
    assert steps(backend) == [5]


@pytest.mark.parametrize("fails", ["full", "dies"])
def test_it_stays_where_it_cannot_be_saved_again(fails):
    """What it stands on is let go of between its record and the look around."""
    backend = MemoryBackend.fresh()
    target = Target(backend)

    def meanwhile() -> None:
        retain(backend)
        target.fails = fails

    with lcstore.open(target, grace=0) as store:
        for step in range(3):
            store.save(step, state(step))
        store._writer.backend = Meanwhile(target, "put", keys.NODES, meanwhile, after=True)
        with pytest.raises((StorageError, Crash)):
            store.save(3, state(3))
    retain(backend, collects=3)
    assert steps(backend) == [3]


class Deleting(MemoryBackend):
    """The target of a collector that stalls as it begins to delete."""

    def __init__(self, inner: MemoryBackend, meanwhile: Callable[[], None]) -> None:
        self._inner, self._meanwhile = inner, [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def delete_many(self, keys: Iterable[str]) -> None:
        for meanwhile in self._meanwhile:
            self._meanwhile = []
            meanwhile()
        self._inner.delete_many(keys)


@pytest.mark.parametrize("fails", ["full", "dies"])
def test_it_goes_at_once_where_its_base_may_be_deleted_and_another_run_has_states(fails):
    """It could not be read, and stayed listed: nothing was collected any more, and nothing made room."""
    backend = MemoryBackend.fresh()
    target = Target(backend)
    stalled = lcstore.open(target, grace=0)
    for step in range(4):
        stalled.save(step, state(step))
    with lcstore.open(backend) as other:  # takes over
        other.resume()
        other.save(4, state(4))
        other.retain("latest:1")
        other.compact()

    def fail() -> None:
        target.fails = fails

    def save() -> None:
        stalled._writer.backend = Meanwhile(target, "put", keys.NODES, fail, after=True)
        with pytest.raises((StorageError, Crash)):
            stalled.save(4, state(5))

    with lcstore.open(Deleting(backend, save)) as collector:
        collector.collect(grace=0)
    assert steps(backend) == [4]
    with lcstore.open(backend) as store:
        store.collect(grace=0)
        np.testing.assert_allclose(store.restore()["weight"], state(4)["weight"], atol=1e-2)


def test_it_goes_once_another_is_acknowledged():
    backend, _, store = unlooked()
    assert store.save(4, state(4)).kind == "anchor"
    assert steps(backend) == [4]


def test_what_cannot_be_let_go_of_yet_is_so_with_the_next_save(caplog):
    backend, target, store = unlooked()
    target.fails = "marks"
    assert store.save(4, state(4)).kind == "anchor"
    assert "not acknowledged stay listed until the next save" in caplog.text
    assert steps(backend) == [3, 4]
    target.fails = ""
    assert store.save(5, state(5)).kind == "delta"
    assert steps(backend) == [4, 5]


def test_it_stays_where_the_run_goes_on_from_it():
    backend, _, store = unlooked()
    store.resume()
    assert store.step == 3
    store.save(4, state(4))
    store.save(5, state(5))
    assert steps(backend) == [3, 4, 5]
    retain(backend, collects=3)
    assert steps(backend) == [5]


def test_all_that_could_not_be_acknowledged_goes(monkeypatch):
    """A collector condemns each try: that save fails, and the next one lets go of what it left."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as store:
        store.save(0, state(0))
        with monkeypatch.context() as patch:
            patch.setattr(writer, "is_taken_away", lambda *_: True)
            with pytest.raises(LcstoreError, match="keeps condemning"):
                store.save(1, state(1))
        assert [found.step for found in store.states()] == [0, 1, 1, 1]
        store.save(2, state(2))
    assert steps(backend) == [0, 2]
