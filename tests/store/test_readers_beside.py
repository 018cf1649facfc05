"""Reading while maintenance takes away what was about to be read: another way is found, and the same bits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from states import same

import lcstore
from lcstore import ConflictError, CorruptionError, FallbackWarning, NotFoundError
from lcstore.format import keys
from lcstore.storage.backend import Backend
from lcstore.storage.memory import MemoryBackend

pytestmark = [pytest.mark.once, pytest.mark.unprotected]

STEPS = 9


class Interrupted:
    """A backend in which something happens before one operation, as if another process did it."""

    def __init__(self, inner: Backend, at: int, happens: Callable[[], object]) -> None:
        self._inner = inner
        self._at = at
        self._happens = happens
        self._lock = threading.RLock()
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("get", "list", "size", "created"):
            return found

        def asked(*args: Any) -> Any:
            with self._lock:
                if self.count == self._at:
                    self.count += 1
                    self._happens()
                self.count += 1
            return found(*args)

        return asked


@pytest.fixture
def store_of(run) -> Callable[[], tuple[MemoryBackend, dict[int, Any]]]:
    """Makes copies of a store whose paths are long, with what each step gives."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, threads=1, grace=0) as store:
        for step in range(STEPS):
            store.save(step, run.step(), exact=step == 5)
        states = {step: store.restore(step) for step in range(STEPS)}
    objects = backend.snapshot()
    return lambda: (MemoryBackend.fresh(objects), states)


def upkeep(backend: Backend, retire: Iterable[int] = ()) -> None:
    """What another process does meanwhile: nothing is left of what is not needed."""
    with lcstore.open(backend, threads=1) as other:
        for step in retire:
            other.retire(step)
        assert other.compact().added
        assert other.collect().deleted_objects


def every_moment(make: Callable[[], Backend], happens: Callable[[Backend], None]) -> Iterator[lcstore.Store]:
    """Give a reading handle for each operation that reading takes, before which something happens."""
    at = 0
    while True:
        backend = make()
        beside = Interrupted(backend, at, lambda backend=backend: happens(backend))
        with lcstore.open(beside, "r+", threads=1) as store:  # type: ignore[arg-type]
            yield store
        if beside.count <= at:
            return
        at += 1


def looks(store: lcstore.Store, states: dict[int, Any], how: str, step: int) -> None:
    """Read a step in one way, and compare."""
    wanted = states[step]
    if how == "restore":
        assert same(store.restore(step), wanted)
    elif how == "resume":
        assert same(store.resume(step), wanted)
        node = store.save(100, wanted, exact=True).node
        with lcstore.open(store.backend._inner, "r", threads=1) as fresh:
            assert same(fresh.restore(node), wanted)
    elif how == "read":
        weight = wanted["model"]["fc1.weight"]
        np.testing.assert_array_equal(store.read(step, "model/fc1.weight", slice(3, 9)), weight[3:9])
    else:
        for at, tree in store.walk([step - 1, step, step - 3]):
            assert same(tree["model"], states[at]["model"])


@pytest.mark.parametrize("how", ["restore", "resume", "read", "walk"])
def test_what_is_collected_meanwhile_is_read_another_way(store_of, how):
    """States in the middle of a chain go, so the rest of it is restored over new edges."""
    going = (2, 3, 4, 6)
    moments = 0
    states = store_of()[1]
    for store in every_moment(lambda: store_of()[0], lambda backend: upkeep(backend, going)):
        looks(store, states, how, STEPS - 1)
        moments += 1
    assert moments > STEPS  # the whole of the path was read


@pytest.mark.parametrize(
    "is_right",
    [
        lambda store, state: same(store.restore(5), state),
        lambda store, state: store.retire(5).step == 5,
        lambda store, state: store.retire(5, dry_run=True).step == 5,
    ],
    ids=["restore", "retire", "dry run"],
)
def test_a_state_that_is_collected_meanwhile_is_not_there(store_of, is_right):
    """It is whole and right, or it is said not to be there: never called damaged, never something else."""
    outcomes = set()
    states = store_of()[1]
    for store in every_moment(lambda: store_of()[0], lambda backend: upkeep(backend, (4, 5, 6))):
        try:
            assert is_right(store, states[5])
            outcomes.add("whole")
        except NotFoundError:
            outcomes.add("not there")
    assert outcomes == {"whole", "not there"}


def test_a_state_that_is_collected_meanwhile_is_not_kept(store_of):
    kept = set()
    for store in every_moment(lambda: store_of()[0], lambda backend: upkeep(backend, (4, 5, 6))):
        kept.add(store.retain(f"latest:{STEPS}").kept)
    assert kept == {(0, 1, 2, 3, 4, 5, 6, 7, 8), (0, 1, 2, 3, 7, 8)}


def test_by_its_id_too_a_collected_state_is_not_damaged(store_of):
    backend, states = store_of()
    with lcstore.open(backend, threads=1) as store:
        node = store.info(5).node
        store.retire(5)
        assert same(store.restore(node), states[5])
        store.collect()
        assert keys.DATA in {key.split("/")[0] for key in backend.list("")}
        with pytest.raises(NotFoundError, match="retired"):
            store.restore(node)
        with pytest.raises(ConflictError):
            store.pin(node)


def test_what_is_retired_and_not_collected_comes_back_with_a_pin(store_of):
    backend, states = store_of()
    with lcstore.open(backend, threads=1) as store:
        node = store.info(5).node
        store.retire(5)
        store.pin(node)
        store.collect()
        assert same(store.restore(5), states[5])


def test_the_state_before_is_given_for_one_that_is_damaged(store_of):
    """Also where shortcuts lead to it and maintenance has been there."""
    backend, states = store_of()
    with lcstore.open(backend, threads=1) as store:
        for step in (2, 3, 4):
            store.retire(step)
        store.compact()
        store.collect()
        node = store.info().node
        edge = store._index.record(node).edge
        damaged = next(ref.key for ref in edge.objects if keys.parse_data_key(ref.key).op is not None)
        data = backend.get(damaged)
        backend.put(damaged, bytes([data[0] ^ 1]) + data[1:])
        with pytest.raises(CorruptionError, match=damaged):
            store.restore()
        with pytest.warns(FallbackWarning, match=str(STEPS - 1)):
            found = store.restore(on_corrupt="previous")
        assert same(found, states[STEPS - 2])


def test_a_run_goes_on_from_the_state_before_one_that_is_damaged(store_of):
    """A job that is started again by nobody has to get over damage by itself."""
    backend, states = store_of()
    with lcstore.open(backend, threads=1) as store:
        before, latest = store.info(STEPS - 2).node, store.info()
        for ref in store._index.record(latest.node).edge.objects:
            backend.delete(ref.key)
    with lcstore.open(backend, threads=1) as store:
        with pytest.raises(CorruptionError):
            store.resume()
        with pytest.warns(FallbackWarning, match=str(STEPS - 1)):
            found = store.resume(on_corrupt="previous")
        assert same(found, states[STEPS - 2])
        assert store.save(STEPS - 1, found).base == before


def test_a_retired_state_is_never_given_for_a_damaged_one(store_of):
    backend, states = store_of()
    with lcstore.open(backend, threads=1) as store:
        store.retire(STEPS - 2)
        node = store.info().node
        for ref in store._index.record(node).edge.objects:
            backend.delete(ref.key)
        with pytest.warns(FallbackWarning):
            found = store.restore(on_corrupt="previous")
        assert same(found, states[STEPS - 3])
