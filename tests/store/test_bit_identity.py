"""Every node gives the same bits over every path, whatever compactions and collections have run."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from damaged import merge
from kit.actors import alone, deterministic
from states import same
from story import CHUNK, Story, simple_paths

import lcstore
from lcstore.compaction.compact import Compactor
from lcstore.edges.compose import Composer
from lcstore.graph import newest, paths
from lcstore.graph.plan import Shortcut
from lcstore.layout import layout as layouts
from lcstore.maintain import verdict
from lcstore.storage.memory import MemoryBackend

pytestmark = pytest.mark.unprotected

#: One that hides the bytes of such small states, as it does those of small edges anywhere; one that does not.
EDGE_COSTS = (1 << 18, 200)


@pytest.fixture(params=EDGE_COSTS)
def edge_cost(request, monkeypatch):
    for module in (newest, paths):
        monkeypatch.setattr(module, "EDGE_COST", request.param)
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: CHUNK)
    # What is planned depends on the names of nodes: without chance a seed tells the same story every time.
    with deterministic(), alone():
        yield


def tell(seed: int, turns: int, paths: int) -> None:
    story = Story(seed)
    story.go_on(turns)
    story.check(paths=min(paths, 4))
    for _ in range(6):
        planned = story.store.compact().planned
        assert story.check(paths=paths) >= len(story.kept)
        deleted = story.store.collect().deleted_objects
        assert story.check(paths=paths) >= len(story.kept)
        if not planned and not deleted:
            break
    else:
        raise AssertionError("compacting and collecting finds ever more to do")
    with story.store:
        report = story.store.verify(level="checksum")
        assert report.ok, report


@pytest.mark.usefixtures("edge_cost")
@pytest.mark.parametrize("seed", range(10))
def test_any_history_keeps_its_bits(seed):
    tell(seed, 24, paths=3)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("edge_cost")
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_long_histories_keep_their_bits(seed):
    tell(seed, 300, paths=16)


def test_a_pool_that_nobody_has_any_more_closes_no_path():
    """The anchor holds weights that went away since: the rest of it is what all states stand on."""
    rng = np.random.default_rng(0)
    model = {name: rng.standard_normal((40, 50)) for name in ("a.weight", "b.weight")}
    model["a.weight"] = model["a.weight"].astype(np.float32)
    with lcstore.open(MemoryBackend.fresh(), threads=1, grace=0) as store:
        store.save(0, {"model": model})
        del model["b.weight"]
        for step in range(1, 5):
            model["a.weight"] = model["a.weight"] + np.float32(1e-3)
            store.save(step, {"model": model})
        states = {step: store.restore(step) for step in (2, 3, 4)}
        for step in (0, 1):
            store.retire(step)
            store.collect()
            graph = store._index.refresh(full=True)
            assert not [node for node in graph.nodes if graph.is_in_danger(node)]
        assert all(same(store.restore(step), state) for step, state in states.items())
        store.resume(4)
        assert store.save(5, {"model": model}).kind == "delta"


def test_a_merge_to_a_retired_state_that_is_not_whole_any_more_is_left_out():
    """Nobody has the ids of steps 2 and 3 any more, so there is no edge that leads to all of step 3."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((40, 50)).astype(np.float32)
    with lcstore.open(MemoryBackend.fresh(), threads=1, grace=0) as store:
        for step, ids in enumerate((1, 1, 2, 2, 3)):
            weight = weight + np.float32(1e-3)
            store.save(step, {"model": {"a.weight": weight, "ids": np.arange(5) * ids}})
        names = [store.info(step).node for step in store.steps()]
        states = {step: store.restore(step) for step in (0, 4)}
        for step in (1, 2, 3):
            store.retire(step)
        store.collect()
        store.compact(dry_run=True)
        compactor = Compactor(store._reader, store.durability)
        condemned = {(name.edge, name.scope) for name in store._index.marks.condemned}
        assert compactor._is_partial(Shortcut(names[0], names[3], 0, 3), condemned)
        assert not compactor._is_partial(Shortcut(names[0], names[4], 0, 4), condemned)
        refused = compactor.maker.make(Shortcut(names[0], names[3], 0, 3))
        assert refused.name is None
        assert "collected meanwhile" in refused.why
        assert compactor.maker.make(Shortcut(names[0], names[4], 0, 4)).name is not None
        assert all(same(store.restore(step), state) for step, state in states.items())


def test_a_way_that_no_state_needs_is_closed_though_it_stores_no_weights(monkeypatch):
    """The last step moved nothing: nothing of its own edge goes, but what that stands on does."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((40, 50)).astype(np.float32)
    with lcstore.open(MemoryBackend.fresh(), threads=1, grace=0, durability="none") as store:
        moved = weight + rng.standard_normal((40, 50)).astype(np.float32) * np.float32(1e-3)
        store.save(0, {"model": {"a.weight": weight, "ids": np.full(5, False)}})
        fork = 1
        while store.save(fork, {"model": {"a.weight": moved, "ids": np.full(5, True)}}).objects > 1:
            fork += 1
        last = fork + 1
        store.save(last, {"model": {"a.weight": moved, "ids": np.full(5, True)}})
        store.resume(fork)
        store.save(100, {"model": {"a.weight": moved + np.float32(1), "ids": np.full(5, False)}})
        shortcut = merge(store, 0, last)
        names = {step: store._index.graph.at_step(step) for step in store.steps()}
        states = {step: store.restore(step) for step in (0, last, 100)}
        for step in names.keys() - states.keys():
            store.retire(step)
        own = [name.ref for step, name in names.items() if step != last]
        made = store._index.graph.edges[shortcut]
        tree = frozenset([*own, made.ref])
        monkeypatch.setattr(verdict, "needed", lambda *_, **__: tree)
        assert store.collect().deleted_objects
        graph = store._index.refresh(full=True)
        node = store._reader.node(names[last])
        for path in simple_paths(graph, names[last].node, random.Random(0), 50):
            composer = Composer(store._reader.edges(path), node.layout, node.columns, range(2))
            for job in composer.jobs():
                job()
        assert all(same(store.restore(step), state) for step, state in states.items())
        monkeypatch.undo()
        assert store.verify(level="restore").ok
        assert not store.collect().condemned


@pytest.mark.parametrize("saves", [100, pytest.param(1000, marks=pytest.mark.soak)])
def test_a_long_run_has_short_paths(saves):
    """Save, compact, collect: every state as before, over no more than log2(n) + 2 edges."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((60, 40)).astype(np.float32)
    with lcstore.open(MemoryBackend.fresh(), threads=1, grace=0) as store:
        truth = {}
        for step in range(saves):
            weight = weight + rng.standard_normal(weight.shape).astype(np.float32) * np.float32(1e-3)
            state = {"model": {"a.weight": weight}, "epoch": step}
            store.save(step, state)
            if step % (saves // 20) == 0:
                truth[step] = store.restore(step)
        report = store.compact()
        store.collect()
        graph = store._index.refresh(full=True)
        longest = max(len(graph.path(node)) for node in graph.nodes)
        assert len(graph.nodes) == saves
        assert longest <= math.log2(saves) + 2
        assert longest <= report.longest_after
        assert all(same(store.restore(step), state) for step, state in truth.items())
        assert not store.compact().planned
