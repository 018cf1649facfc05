"""How many requests a store makes, and how many of them one after another: a target may be far away."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from kit.requests import FarBackend, Request, in_series
from states import same

import lcstore
from lcstore.copying.copy import copy_store
from lcstore.report.gather import gather
from lcstore.storage.memory import MemoryBackend


def state(number: int) -> dict[str, object]:
    """Return five small tensors: four of weights, and one that is plain."""
    rng = np.random.default_rng(3)
    model: dict[str, object] = {
        f"l{k}.weight": (
            rng.standard_normal((32, 32)) + 1e-3 * number * rng.standard_normal((32, 32))
        ).astype(np.float32)
        for k in range(4)
    }
    return {"model": model | {"l.bias": np.full(32, number + 1, np.float32)}, "step": number}


class Far:
    """A store, and what its last call cost."""

    def __init__(self) -> None:
        self.backend = FarBackend(MemoryBackend.fresh(), 0.03)
        self.log: list[Request] = []

    def open(self, mode: str = "a", **options) -> lcstore.Store:
        return self.cost(lambda: lcstore.open(self.backend, mode, **options))

    def cost(self, call: Callable):
        with self.backend.counted() as log:
            found = call()
        self.log = log
        return found

    @property
    def count(self) -> int:
        return len(self.log)

    @property
    def series(self) -> int:
        return in_series(self.log)


def far_of(count: int, **options) -> Far:
    """Return a store of some saves on a target that answers at once."""
    far = Far()
    far.backend.seconds = 0
    with far.open(**options) as store:
        for number in range(count):
            store.save(number, state(number))
    return far


def reads_of_nodes(far: Far) -> set[int]:
    """Return how often the last call read a record of a state."""
    read = Counter(request.key for request in far.log if request.name == "get")
    return {read[key] for key in far.backend.list("nodes")}


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Kernels are compiled when they are first used; requests do not wait for each other meanwhile."""
    with lcstore.open(MemoryBackend.fresh()) as store:
        for number in range(3):
            store.save(number, state(number))
        store.restore(1)


def least(measure: Callable[[], tuple[int, ...]], bar: tuple[int, ...]) -> None:
    """Measure until a bar is met: what a busy machine delays seems to be one after another."""
    for _ in range(4):
        found = measure()
        if all(a <= b for a, b in zip(found, bar, strict=True)):
            return
    assert not [(a, b) for a, b in zip(found, bar, strict=True) if a > b]


def test_the_first_save():
    def measure():
        far = Far()
        store = far.open()
        assert (far.count, far.series) == (1, 1)
        far.cost(lambda: store.save(0, state(0)))
        return far.count, far.series

    least(measure, (10, 4))


@pytest.mark.parametrize("before", [1, 2, 20])
def test_a_delta(before):
    far = Far()
    far.backend.seconds = 0
    store = far.open()
    for number in range(before):
        store.save(number, state(number))
    far.backend.seconds = 0.03

    numbers = itertools.count(before)

    def measure():
        number = next(numbers)
        far.cost(lambda: store.save(number, state(number)))
        return far.count, far.series

    least(measure, (8, 3))


@pytest.fixture(scope="module")
def long():
    far = far_of(20)
    far.backend.seconds = 0.03
    return far


def test_opening_and_asking_for_the_latest(long):
    def measure():
        store = long.open("r")
        opened = long.count, long.series
        assert long.cost(store.latest_step) is not None
        return opened[0] + long.count, opened[1] + long.series

    least(measure, (7, 2))  # one for the store's record; then all folders side by side


def test_a_restore_of_a_long_path(long):
    def measure():
        store = long.open("r")
        tree = long.cost(lambda: store.restore(19))
        assert same(tree["step"], 19)
        return (long.series,)

    least(measure, (6,))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_walk_asks_for_many_states_at_a_time(long, reverse):
    def measure():
        store = long.open("r")
        steps = long.cost(lambda: [step for step, _ in store.walk(reverse=reverse)])
        assert sorted(steps) == store.steps()
        return (long.series,)

    least(measure, (14,))


@pytest.fixture(scope="module")
def anchored():
    """Three runs, each of which begins with an anchor, and a state that is kept exactly besides."""
    far = Far()
    far.backend.seconds = 0
    for first in (0, 4, 8):
        with warnings.catch_warnings(), far.open() as store:
            warnings.simplefilter("ignore")  # it goes on from none of the states that are there
            for number in range(first, first + 4):
                moments = np.random.default_rng(number).standard_normal((32, 32)).astype(np.float32)
                whole = state(number) | {"optim": {"state": {0: {"exp_avg": moments}}}}
                store.save(number, whole, exact=number in (4, 6))
    with far.open("r") as store:
        assert [one.step for one in store.states() if one.kind == "anchor"] == [0, 4, 8]
    return far


def one_by_one(array) -> None:
    """Read the steps of an array in their order: threads of Zarr may come in another."""
    for place in range(array.shape[0]):
        assert array[place].size


@pytest.mark.parametrize(
    "read",
    [
        lambda store: list(store.walk()),
        lambda store: list(store.walk([0, 1])),
        lambda store: list(store.walk(range(0, 12, 4), names="model/l1.weight")),
        lambda store: list(store.history("model/l2.weight")),
        lambda store: one_by_one(store.zarr_history("model/l2.weight")),
        lambda store: store.diff(0, 11),
        lambda store: store.diff(4, 5),
        lambda store: list(store.walk(names=["model/*.weight", "optim"])),
    ],
    ids=["walk", "two", "some", "history", "array", "diff", "after-an-anchor", "lossy"],
)
def test_what_goes_over_an_anchor_reads_it_once(anchored, read):
    store = anchored.open("r")
    anchored.cost(lambda: read(store))
    asked = Counter(request.key for request in anchored.log if request.name == "get" and "/c." in request.key)
    # Of a state that is saved exactly without being an anchor the track is stored beside its values.
    assert asked
    assert max(asked.values()) == 1


def test_what_goes_over_anchors_gives_what_is_restored(anchored):
    store = anchored.open("r")
    for names in (None, "model", "model/l0.weight"):
        for reverse in (False, True):
            for step, tree in store.walk(names=names, reverse=reverse):
                assert same(tree, store.restore(step, names=names))


def test_an_exact_value_that_is_off_its_grid_is_given(anchored, monkeypatch):
    """Only what is told by the track is damaged then: the state itself is read, as a restore reads it."""

    def refuse(*_: object) -> None:
        raise lcstore.CorruptionError("does not fit its grid")

    monkeypatch.setattr("lcstore.edges.compose.to_track", refuse)
    store = anchored.open("r")
    for step, tree in store.walk([0, 1], names="model"):
        assert same(tree, store.restore(step, names="model"))


def test_what_is_read_to_be_checked_is_asked_for_once(long):
    store = long.open("r")
    report = long.cost(lambda: store.verify("checksum"))
    keys = [request.key for request in long.log if request.name in ("get", "size") and "/c." in request.key]
    assert report.ok
    assert len(keys) == len({*keys}) > 30


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_night_reads_each_record_to_collect_to_retain_and_to_verify(dry_run):
    """What decides what is deleted, and what is whole, is read anew."""
    far = far_of(8)
    with far.open("r+") as store:
        report = far.cost(lambda: store.maintain("latest:3", dry_run=dry_run))
        assert report.ok
        assert reads_of_nodes(far) == {3}


def test_a_rule_reads_each_record_once_where_something_was_collected_too():
    far = far_of(8, grace=0)
    with far.open("r+") as store:
        store.retain("latest:4")
        store.compact()
    with far.open("r+") as store:
        assert store.collect().deleted_objects
        far.cost(lambda: store.retain("latest:3"))
        assert reads_of_nodes(far) == {1}


def test_a_report_reads_each_record_once_and_once_more_to_verify():
    far = far_of(8)
    with far.open("r") as store:
        assert len(far.cost(lambda: gather(store)).tensors.tensors) == 5
    assert reads_of_nodes(far) == {2}


def test_what_decides_what_goes_is_read_anew():
    """A state whose record was damaged since may be all that a rule would keep."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none", grace=0) as store:
        for number in range(4):
            store.save(number, state(number))
        store.stats()
        store.forecast()
        key = max(backend.list("nodes"))
        held = backend.get(key)
        backend.delete(key)
        backend.put(key, held[:-2])
        for decide in (lambda: store.retain("latest:1"), store.collect):
            with pytest.raises(lcstore.CorruptionError):
                decide()
        assert not backend.list("retired")
        assert store.stats().unreadable.keys() == {key}
        assert [one.problem is None for one in store.states()] == [True, True, True, False]


def test_lengths_are_those_that_a_listing_tells(long):
    store = long.open("r")
    report = long.cost(lambda: store.verify("structure"))
    assert report.ok
    assert report.objects > 30
    assert not [request for request in long.log if request.name == "size"]


@pytest.mark.parametrize("count", [2, 20])
def test_numbers_of_a_store_and_removing_it_ask_for_the_lengths_of_few_objects(count):
    far = Far()
    far.backend.seconds = 0
    with lcstore.open(far.backend.inner) as store:  # no bucket: with second copies of all records
        for number in range(count):
            store.save(number, state(number), tags=[f"tag{number}"])
        for number in range(20):  # of a save that was killed
            store.backend.put(f"data/{'5' * 32}/0/plain-float64.set/c.{number}", b"12345")
        wanted, now = store.stats(), store.forecast().bytes_now
    with far.open("r") as store:
        assert far.cost(store.stats) == dataclasses.replace(wanted, url=store.url)
        sizes = [request.key for request in far.log if request.name == "size"]
        assert len(sizes) == len({*sizes}) < 17
        assert far.cost(store.forecast).bytes_now == now
        assert len([request for request in far.log if request.name == "size"]) < 17
    there = {key: far.backend.inner.size(key) for key in far.backend.inner.list("")}
    report = far.cost(lambda: lcstore.remove(far.backend, dry_run=True))
    assert (report.objects, report.nbytes) == (len(there), sum(there.values()))
    asked = Counter(request.name for request in far.log)
    assert asked["get"] == 0
    assert asked["size"] < 17 * 5


def test_what_a_listing_tells_another_length_of_is_asked_for(long, monkeypatch):
    """A listing may lag behind: what decides is the answer to a request for the object itself."""
    told = FarBackend.lengths

    def odd(backend, prefix):
        found = sorted(told(backend, prefix).items())
        return {key: nbytes + (k == 0) for k, (key, nbytes) in enumerate(found) if k != 1}

    monkeypatch.setattr(FarBackend, "lengths", odd)
    store = long.open("r")
    report = long.cost(lambda: store.verify("structure"))
    assert report.ok
    assert 0 < len([request for request in long.log if request.name == "size"]) <= 2


def test_an_object_that_is_cut_off_is_found_by_its_length_in_a_listing():
    far = far_of(1)
    key = max(key for key in far.backend.list("data") if "/c." in key)
    held = far.backend.get(key)
    far.backend.delete(key)
    far.backend.put(key, held[:-1])
    report = far.open("r").verify("structure")
    assert [finding.key for finding in report.findings if finding.severity != "info"] == [key]


def test_a_copy_that_is_there_is_looked_at_many_objects_at_a_time(long):
    target = Far()
    target.backend.seconds = 0
    copy_store(long.backend.inner, target.backend)
    target.backend.seconds = 0.03

    def measure():
        report = target.cost(lambda: copy_store(long.backend.inner, target.backend))
        assert report.objects == 0
        assert not [request for request in target.log if request.name == "size"]
        return (target.series,)

    least(measure, (26,))


def test_the_first_save_after_a_resume(long):
    def measure():
        with long.open() as store:
            store.resume()
            step = store.latest_step() + 1
            long.cost(lambda: store.save(step, state(step)))
        return long.count, long.series

    least(measure, (12, 4))


def test_what_is_saved_after_a_resume_names_the_layout_that_is_there(long):
    before = {*long.backend.inner.list("layouts")}
    with long.open() as store:
        store.resume(19)
        store.save(100, state(100))
        assert {*long.backend.inner.list("layouts")} == before
        assert store.verify().ok


def test_a_delta_makes_few_names_durable(tmp_path, monkeypatch):
    from lcstore.storage import local

    synced: list[int] = []
    sync = local._sync

    def counted(fd: int) -> None:
        synced.append(fd)
        sync(fd)

    monkeypatch.setattr(local, "_sync", counted)
    with lcstore.open(tmp_path / "s", durability="none") as store:
        store.save(0, state(0))
        counts = []
        for number in range(1, 4):
            synced.clear()
            store.save(number, state(number))
            counts.append(len(synced))
    # Two chunks, Zarr's metadata and the record; folders: two arrays, part, edge, data and nodes.
    assert counts == [10, 10, 10]
