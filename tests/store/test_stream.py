"""Streams: the values of a restore, in order, each chunk once, little held ahead, nothing left at work."""

from __future__ import annotations

import os
import random
import threading
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from conftest import Run
from damaged import faults, grown, keys_of
from hypothesis import given
from hypothesis import strategies as st
from states import same
from story import CHUNK, Story, hashed

import lcstore
from lcstore import ClosedError, CorruptionError, FallbackWarning, InvalidInputError, NotFoundError, Snapshot
from lcstore.edges.compose import Composer
from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.layout import layout as layouts
from lcstore.storage.memory import MemoryBackend


class Watched(MemoryBackend):
    """Counts the reads of chunks by key, and has those of some wait."""

    reads: Counter[str]
    late: str
    go: threading.Event

    @classmethod
    def of(cls, objects: dict[str, bytes] | None = None) -> Watched:
        backend = cls.fresh(objects or {})
        backend.reads, backend.late, backend.go = Counter(), "", threading.Event()
        return backend

    def get(self, key: str, *window: Any) -> bytes:
        if key.startswith(keys.DATA):
            if self.late and key.startswith(self.late):
                assert self.go.wait(30)
            self.reads[key] += 1
        return super().get(key, *window)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: CHUNK)


def layered(step: int, layers: int = 12) -> dict[str, Any]:
    """Layers of a model, the last one tied to the first, with moments and plain values between."""
    rng = np.random.default_rng(0)
    model = {f"{i:02}.weight": rng.standard_normal((40, 45), np.float32) for i in range(layers)}
    moved = {f"{i:02}.weight": rng.standard_normal((40, 45), np.float32) for i in range(layers)}
    model = {name: w + np.float32(1e-3 * step) * moved[name] for name, w in model.items()}
    moments = {
        i: {"step": np.float32(step), "exp_avg": w, "exp_avg_sq": w * w} for i, w in enumerate(moved.values())
    }
    model |= {"bias": np.arange(5.0) + step, "none.weight": np.zeros((0, 4))}
    model["last.weight"] = model["00.weight"]
    return {"model": model, "epoch": step, "optim": {"state": moments}, "note": "n" * step}


def filled(backend: MemoryBackend, count: int = 6, exact: Any = (), **options: Any) -> lcstore.Store:
    store = lcstore.open(backend, threads=2, **options)
    for step in range(count):
        store.save(step, layered(step), exact=step in exact)
    return store


def by_name(snapshot: Snapshot, names: str | None = None) -> dict[str, Any]:
    """What a restore gives, by name."""
    tree = snapshot.tree(names=names)
    found = {}
    for name in snapshot.names(names):
        at = tree
        for key in name.split("/"):
            at = at[int(key.removeprefix("#")) if key.startswith("#") else key]
        found[name] = at
    return found


# Values and order -----------------------------------------------------------------------------------------


@cache
def kinds() -> tuple[lcstore.Store, dict[int, dict[str, Any]]]:
    """A store of chunks that are small, and what restores of its states give."""
    with patch.object(layouts, "chunk_elements", lambda size, dtype, covered=False: CHUNK):
        store = filled(MemoryBackend.fresh(), exact=(3,))
    return store, {step: by_name(store[step]) for step in range(6)}


@given(st.data())
def test_any_names_in_any_order_are_those_of_a_restore(data):
    store, wanted = kinds()
    step = data.draw(st.integers(0, 5))
    snapshot = store[step]
    texts = [*snapshot, "model", "optim/**", "**/exp_avg", "model/*.weight", "**"]
    names = data.draw(st.none() | st.sampled_from(texts) | st.lists(st.sampled_from(texts), min_size=1))
    ahead = data.draw(st.sampled_from([None, 0, 5000, 50_000, 1 << 30]))
    found = [*snapshot.stream(names, ahead=ahead)]
    assert all(same(value, wanted[step][name]) for name, value in found)
    asked = [names] if names is None or isinstance(names, str) else names
    order = [name for one in asked for name in snapshot.names(one)]
    assert [name for name, _ in found] == list(dict.fromkeys(order))


def test_tied_tensors_are_one_object():
    found = dict(kinds()[0][4].stream())
    assert found["model/last.weight"] is found["model/00.weight"]
    assert found["model/00.weight"] is not found["model/01.weight"]
    last, first = dict(kinds()[0][4].stream(["model/last.weight", "model/00.weight"])).items()
    assert last[0] == "model/last.weight"
    assert last[1] is first[1]


def test_items_are_streamed():
    store, wanted = kinds()
    items = store[3].items()
    assert [name for name, _ in items] == [*wanted[3]]
    assert all(same(value, wanted[3][name]) for name, value in items)
    assert len(items) == len(wanted[3])
    assert ("epoch", 3) in items


@pytest.mark.parametrize("seed", range(4))
def test_any_history(seed, monkeypatch):
    if seed % 2:
        monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: CHUNK)
    story = Story(seed)
    story.go_on(24)
    for act in (lambda: None, story.store.compact, story.store.collect):
        act()
        for node in story.kept:
            if story.stripped.get(node):
                continue
            found = story.store[node].stream(ahead=story.chance.choice([None, 0, 9000]))
            sums = {name: hashed(value) for name, value in found if isinstance(value, np.ndarray)}
            assert sums.items() >= {n: s for n, s in story.given[node].items() if n in sums}.items()
            assert {*story.given[node]} <= {*story.store[node]}


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, {"model": {"a.weight": torch.ones(4, 4), "steps": torch.tensor(3)}})
        found = dict(store[0].stream())
        assert torch.equal(found["model/a.weight"], torch.ones(4, 4))
        assert found["model/steps"].shape == ()
        assert isinstance(dict(store[0].stream(to="numpy"))["model/a.weight"], np.ndarray)


def test_what_is_asked_for_wrongly():
    snapshot = kinds()[0][2]
    with pytest.raises(NotFoundError, match=r"nearest is 'model/bias'"):
        snapshot.stream("model/bais")
    with pytest.raises(NotFoundError, match="nothing that matches"):
        snapshot.stream(["model", "zz*/**"])
    with pytest.raises(InvalidInputError, match="to"):
        snapshot.stream(to="tensorflow")
    for ahead in (-1, 0.5, "1 MB"):
        with pytest.raises(InvalidInputError, match="ahead"):
            snapshot.stream(ahead=ahead)


def test_parts_that_were_let_go_of():
    with filled(MemoryBackend.fresh(), 3) as store:
        store.retain("strip:optim/**:latest:1")
        with pytest.raises(NotFoundError, match="let"):
            store[1].stream()
        assert same(dict(store[1].stream("model")), by_name(store[1], "model"))


def chunk_of(key: str) -> int:
    return int(key.rpartition("/c.")[2])


# How much is read, and when -------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_chunks")
def test_each_chunk_is_read_once_in_the_order_of_a_state():
    backend = Watched.of()
    with filled(backend, exact=(3,)) as store:
        for step in range(6):
            for names in (None, "model", ["optim", "model"]):
                snapshot = store[step]
                backend.reads.clear()
                snapshot.tree(names=names)
                wanted = backend.reads.copy()
                backend.reads.clear()
                for _ in snapshot.stream(names):
                    pass
                assert backend.reads == wanted
                assert {*wanted.values()} == {1}


@pytest.mark.usefixtures("small_chunks")
def test_the_first_layer_is_there_before_the_last_is_read():
    backend = Watched.of()
    with filled(backend) as store:
        snapshot = store[5]
        wanted = by_name(snapshot)
        backend.reads.clear()
        layers = snapshot.stream("model", ahead=2 * 40 * 45 * 4)
        assert not backend.reads  # nothing is asked for before the first layer is
        name, value = next(layers)
        assert same(value, wanted[name])
        few = backend.reads.total()
        rest = [*layers]
        assert 0 < few < backend.reads.total() / 2
        assert len(rest) == len(snapshot.names("model")) - 1
        backend.late = max((key for key in backend.reads if "/weights" in key), key=chunk_of)
        try:
            name, value = next(layers := snapshot.stream("model"))
            assert same(value, wanted[name])
        finally:
            backend.go.set()
        assert len([*layers]) == len(rest)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("leave", ["close", "break", "raise", "forget"])
def test_leaving_ends_the_work(leave):
    backend = Watched.of()
    with filled(backend) as store:
        snapshot = store[5]
        snapshot.tree()
        everything = backend.reads.copy()
        backend.reads.clear()
        with patch.object(Composer, "chunk", autospec=True, side_effect=Composer.chunk) as decoded:
            _leave(leave, snapshot.stream(ahead=20_000))
            begun = decoded.call_count
            snapshot.read("epoch")
            store._executor.submit(int).result()  # whatever was cancelled is passed over before it
            assert store._executor._work_queue.empty()
            assert decoded.call_count == begun
        assert 0 < begun < 10
        assert backend.reads.total() < everything.total() / 2


def _leave(how: str, layers: Iterator[Any]) -> None:
    next(layers)
    if how == "close":
        layers.close()  # type: ignore[attr-defined]
    elif how == "break":
        for _ in layers:
            break
        del layers
    elif how == "raise":
        with pytest.raises(RuntimeError, match="enough"):
            layers.throw(RuntimeError("enough"))  # type: ignore[attr-defined]


LARGE = 1 << 20


@pytest.mark.parametrize("order", ["as saved", "shuffled"])
def test_what_is_held_ahead_is_bounded(order, monkeypatch):
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: LARGE // 4)
    rng = np.random.default_rng(0)
    model = {f"{i:02}.weight": rng.standard_normal((384, 512), np.float32) for i in range(48)}
    with lcstore.open(MemoryBackend.fresh(), threads=2) as store:
        for step in range(3):
            moved = {name: w + np.float32(1e-3 * step) for name, w in model.items()}
            store.save(step, {"model": moved}, exact=step == 1)
        names = store[0].names()
        if order == "shuffled":
            random.Random(0).shuffle(names)
        for step in range(3):
            snapshot = store[step]
            whole = peak(lambda snapshot=snapshot: snapshot.tree())
            held = peak(lambda snapshot=snapshot: _drain(snapshot, names))
            assert held < 20 * LARGE < whole / 2  # decoding takes some of its own


def _drain(snapshot: Snapshot, names: list[str]) -> None:
    for _ in snapshot.stream(names, ahead=4 * LARGE):
        pass


def peak(run: Any) -> int:
    """The most bytes that were held meanwhile, besides those that were before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


# Errors ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_chunks")
def test_what_is_damaged_is_told_when_its_turn_comes():
    backend = MemoryBackend.fresh()
    with filled(backend, durability="none") as store:
        wanted = by_name(store[5])
    last = max((key for key in backend.snapshot() if "/weights" in key and "/c." in key), key=chunk_of)
    data = backend.get(last)
    backend.delete(last)
    backend.put(last, data[:-1] + bytes([data[-1] ^ 1]))
    with lcstore.open(backend, "r", threads=2) as store:
        given, names = {}, store[5].names("model")
        with pytest.raises(CorruptionError) as caught:
            given.update(store[5].stream("model"))
        assert caught.value.key == last
        assert [*given] == names[: len(given)] != []
        assert all(same(value, wanted[name]) for name, value in given.items())
        with pytest.raises(CorruptionError) as alone:
            store[5][names[len(given)]]
        assert str(alone.value) == str(caught.value)


@pytest.mark.filterwarnings("ignore::lcstore.errors.FallbackWarning")
def test_any_object_that_is_lost_or_damaged():
    """A stream gives what a restore gives, over whatever path, or fails as it does."""
    objects = grown()
    data = [key for key in keys_of(objects, 2) if keys.is_data_key(key)]
    seen = Counter[str]()
    for key in data:
        for broken in faults(objects, key).values():
            with lcstore.open(MemoryBackend.fresh(broken), "r", threads=1) as store:
                for step in store.steps():
                    wanted = given_or_error(lambda step=step, store=store: by_name(store[step]))
                    found = given_or_error(lambda step=step, store=store: dict(store[step].stream()))
                    if isinstance(wanted, LcstoreError):
                        assert type(found) is type(wanted)
                        assert found.key == wanted.key
                    else:
                        assert same(found, wanted)
                    seen[type(found).__name__] += 1
    assert seen.keys() == {"dict", "CorruptionError"}


def given_or_error(use: Any) -> Any:
    try:
        return use()
    except LcstoreError as error:
        return error


@pytest.mark.usefixtures("small_chunks")
def test_another_path_is_taken_meanwhile():
    backend = MemoryBackend.fresh()
    with filled(backend, 9, durability="none") as store:
        wanted = by_name(store[8])
        before = set(backend.snapshot())
        store.compact()
        added = [key for key in set(backend.snapshot()) - before if "/c." in key]
    assert added
    with lcstore.open(backend, "r", threads=2) as store:
        layers = store[8].stream("model", ahead=0)
        found = dict([next(layers)])
        for key in added:
            backend.delete(key)
        with pytest.warns(FallbackWarning, match="lcstore repair") as caught:
            found |= layers
        assert {warning.filename for warning in caught} == {__file__}
        assert len(caught) == 1
        assert all(same(value, wanted[name]) for name, value in found.items())
        assert [*found] == store[8].names("model")


@pytest.mark.usefixtures("small_chunks")
def test_beside_a_collector():
    backend = MemoryBackend.fresh()
    filled(backend, 9, grace=0).close()
    with lcstore.open(backend, "r", threads=2) as store:
        wanted = by_name(store[8])
        layers, gone = store[8].stream(ahead=0), store[5].stream(ahead=0)
        found = dict([next(layers)])
        next(gone)
        with lcstore.open(backend, threads=1) as other:
            other.retain("latest:2")
            other.compact()
            other.collect()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found |= layers
        assert all(same(value, wanted[name]) for name, value in found.items())
        with pytest.raises(NotFoundError):
            dict(gone)


def test_one_tensor_that_is_not_as_committed_says_nothing_of_its_neighbours(run: Run):
    with lcstore.open(MemoryBackend.fresh(), threads=1) as store:
        for step in range(2):
            store.save(step, run.step())
        real, names = Composer.__init__, store[1].names("model")

        def begin(self: Composer, edges: Any, layout: Any, columns: Any, *args: Any, **kwargs: Any) -> None:
            other = np.array(["fc1.weight" in spec.name for spec in layout.tensors], np.uint64)
            real(self, edges, layout, columns.but(digest=columns.digest + other), *args, **kwargs)

        given: dict[str, Any] = {}
        with patch.object(Composer, "__init__", begin), pytest.raises(CorruptionError, match="digest"):
            given.update(store[1].stream("model"))
        assert [*given] == names[: names.index("model/fc1.weight")] != []


@pytest.mark.usefixtures("small_chunks")
def test_a_closed_store_ends_it():
    store = filled(MemoryBackend.fresh(), 3)
    layers = store[2].stream(ahead=20_000)
    next(layers)
    store.close()
    with pytest.raises(ClosedError):
        dict(layers)
    with pytest.raises(ClosedError):
        store[2].stream()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_can_leave_it():
    with filled(MemoryBackend.fresh(), 3) as store:
        layers = store[2].stream(ahead=1 << 30)
        next(layers)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a fork where threads run
            child = os.fork()
        if child == 0:
            code = 1
            try:
                dict(layers)
            except ClosedError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len([*layers]) == len(store[2]) - 1
