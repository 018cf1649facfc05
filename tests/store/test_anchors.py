"""Anchors that a writer adds beside its deltas, and a writer that notices what it stands on is damaged."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from damaged import CREATED, merge, state
from states import same

import lcstore
from lcstore.errors import StorageError
from lcstore.format import keys, markkeys
from lcstore.format.marks import CondemnedRecord
from lcstore.graph.refs import ROOT
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Fault, FaultBackend
from lcstore.write.pathwatch import MOST_NEAR

EVERY_FIVE = lcstore.Durability("none", copies=False, anchor_every=5)


def saved(backend, steps, durability="none"):
    """Save states; return what each restores to."""
    with lcstore.open(backend, durability=durability) as store:
        for step in steps:
            store.save(step, state(step))
        return {step: store.restore(step) for step in steps}


def own_folder(store, step):
    return keys.edge_folder(store._index.record(store.info(step).node).edge.id)


def test_anchors_are_added_by_count_and_change_no_bit():
    backend = MemoryBackend.fresh()
    seen = saved(backend, range(17), EVERY_FIVE)
    with lcstore.open(backend, "r", threads=1) as store:
        graph = store._index.refresh(full=True)
        anchored = sorted(graph.nodes[edge.target].step for edge in graph.edges.values())
        assert anchored == [5, 10, 15]
        assert {edge.base for edge in graph.edges.values()} == {ROOT}
        assert all(same(store.restore(step), value) for step, value in seen.items())
        assert store.verify(level="decode").ok
        # Without them it is the same bits: an edge may go at any time.
        for edge in list(graph.edges.values()):
            backend.delete(keys.edge_key(edge))
    with lcstore.open(backend, "r", threads=1) as store:
        assert all(same(store.restore(step), value) for step, value in seen.items())


def test_what_is_stored_besides_is_told():
    backend = MemoryBackend.fresh()
    saved(backend, range(24), lcstore.Durability(anchor_every=5))
    with lcstore.open(backend) as store:
        for step in store.steps():
            folder = own_folder(store, step)
            parities = [key for key in backend.list(folder) if keys.is_parity(key)]
            assert store.info(step).bytes_parity == sum(map(backend.size, parities)) > 0
    with lcstore.open(backend, durability=EVERY_FIVE) as store:
        told = store.compact(dry_run=True)
        with lcstore.open(backend, durability="none") as plain:
            bare = plain.compact(dry_run=True)
        assert bare.bytes_besides == 0
        assert told.bytes_besides == told.bytes_after - bare.bytes_after > 0


def test_anchors_are_added_by_cost():
    backend = MemoryBackend.fresh()
    saved(backend, range(12), lcstore.Durability("none", copies=False, anchor_ratio=0.2, anchor_every=None))
    with lcstore.open(backend, "r", threads=1) as store:
        graph = store._index.refresh(full=True)
        assert graph.edges
        for name in graph.nodes.values():
            path = graph.path(name.node)
            assert sum(ref.nbytes for ref in path[1:]) <= 0.2 * path[0].nbytes + name.nbytes


@pytest.mark.parametrize("frozen", [0, 200])
def test_by_default_anchors_take_a_small_part_of_what_is_saved(frozen):
    """Where most of a model is frozen an anchor costs as much as hundreds of deltas."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((frozen, 200)).astype(np.float32)
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, policy="high") as store:
        trained = np.zeros((40, 40), np.float32)
        for step in range(130):
            trained = trained + rng.standard_normal((40, 40)).astype(np.float32)
            store.save(step, {"model": {"base.weight": base, "head.weight": trained}})
        graph = store._index.refresh(full=True)
    anchors = sum(edge.nbytes for edge in graph.edges.values())
    assert bool(anchors) is not bool(frozen)
    assert anchors <= sum(name.nbytes for name in graph.nodes.values()) / 8


def test_resumed_runs_agree_on_when_an_anchor_is_due():
    backend = MemoryBackend.fresh()
    for first in range(0, 12, 3):
        with lcstore.open(backend, durability=EVERY_FIVE) as store:
            if first:
                store.resume()
            for step in range(first, first + 3):
                store.save(step, state(step))
    with lcstore.open(backend, "r") as store:
        graph = store._index.refresh(full=True)
        assert sorted(graph.nodes[edge.target].step for edge in graph.edges.values()) == [5, 10]


@pytest.mark.parametrize("which", ["chunk", "record"])
def test_an_anchor_that_fails_harms_no_save_and_is_tried_again(which, monkeypatch):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability=EVERY_FIVE) as store:
        for step in range(5):
            store.save(step, state(step))
        put, refused = backend.put, []

        def failing(key, data):
            grid = ".grid/c." in key if which == "chunk" else key.startswith(keys.EDGES)
            if grid and not refused:
                refused.append(key)
                raise StorageError("no", key=key)
            put(key, data)

        monkeypatch.setattr(backend, "put", failing)
        store.save(5, state(5))
        assert refused
        store.save(6, state(6))
        graph = store._index.refresh(full=True)
        assert [graph.nodes[edge.target].step for edge in graph.edges.values()] == [6]
    with lcstore.open(backend, "r") as store:
        assert store.verify(level="decode").ok


def test_a_writer_warns_of_damage_though_there_is_another_way():
    """No anchor is needed then: the way around it is the one that the states were saved along."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        for step in range(6):
            store.save(step, state(step))
        shortcut = merge(store, None, 4)
        assert [ref.edge for ref in store._index.path(store.info(5).node)] == [shortcut, None]
        for key in backend.list(keys.edge_folder(shortcut)):
            if "weights" in key and "/c." in key:
                backend.delete(key)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(6, 10):
                store.save(step, state(step))
        assert [w.category for w in caught] == [lcstore.DamageWarning]
        assert "stands on step 4, and object data/" in str(caught[0].message)
        assert "it is read over other edges" in str(caught[0].message)
        assert set(store._index.refresh(full=True).edges) == {shortcut}
        assert store.restore(9)["epoch"] == 9


def test_a_long_path_makes_no_save_list_more(monkeypatch):
    backend = MemoryBackend.fresh()
    listed = []
    with lcstore.open(backend, durability="none") as store:
        list_ = backend.list
        monkeypatch.setattr(backend, "list", lambda *asked: (listed.append(asked[0]), list_(*asked))[1])
        for step in range(150):
            listed.clear()
            store.save(step, state(step))
        edges = {folder for folder in listed if folder.startswith(f"{keys.DATA}/")}
        assert len(edges) <= MOST_NEAR + 2  # and its own, and the one before
        seen = set()
        for step in range(150, 200):
            store.save(step, state(step))
            seen |= set(listed)
        assert {own_folder(store, step) for step in range(150)} <= seen


@pytest.mark.parametrize("lost", [0, 4, 9])
def test_a_writer_notices_within_three_saves_that_an_object_is_missing(lost):
    """Every save after that is restorable, and what lies behind the damage as well."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        for step in range(10):
            store.save(step, state(step))
        seen = {step: store.restore(step) for step in range(10)}
        for key in backend.list(own_folder(store, lost)):
            if "weights" in key and "/c." in key:
                backend.delete(key)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(10, 16):
                store.save(step, state(step))
        assert [w.category for w in caught] == [lcstore.DamageWarning]
        assert f"stands on step {lost}, and object data/" in str(caught[0].message)
        anchored = [store._index.graph.nodes[e.target].step for e in store._index.graph.edges.values()]
        assert len(anchored) == 1
        assert 10 <= anchored[0] <= 12
    with lcstore.open(backend) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", lcstore.FallbackWarning)
        assert store.resume()["epoch"] == 15
        for step in range(10, 16):
            assert store.restore(step)["epoch"] == step
        for step, value in seen.items():
            if step != lost:
                assert same(store.restore(step), value)
        # That one's weights too, but where they were the exact ones of the first anchor.
        if lost:
            assert same(store.restore(lost, names="model/**")["model"], value_of(seen, lost))


def value_of(seen, step):
    return seen[step]["model"]


def test_a_writer_beside_maintenance_neither_warns_nor_adds_anchors():
    """What is collected beside it was let go of because shortcuts lead past it: that is no damage."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0, durability="none") as store:
        first = store.save(0, state(0))
        with lcstore.open(backend, "r+") as other, warnings.catch_warnings():
            warnings.simplefilter("error", lcstore.DamageWarning)
            for step in range(1, 50):
                assert store.save(step, state(step)).bytes_stored < 0.7 * first.bytes_stored
                if step % 7 == 0:
                    other.collect()
                    other.retain("latest:2 | every:40")
                    assert other.compact().added
            for step in store.steps():
                assert store.restore(step)["epoch"] == step
            assert other.verify(level="restore").ok


@pytest.mark.parametrize("scope", [markkeys.PATH, markkeys.WHOLE_EDGE])
def test_a_writer_notices_that_an_edge_of_its_path_is_condemned(scope):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        for step in range(6):
            store.save(step, state(step))
        record = store._index.record(store.info(2).node)
        mark = CondemnedRecord(record.edge.id, store.info(2).node, scope, CREATED)
        backend.put(mark.key(), mark.to_bytes())
        with pytest.warns(lcstore.DamageWarning, match="is condemned"):
            store.save(6, state(6))
        assert [e.base for e in store._index.graph.edges.values()] == [ROOT]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.save(7, state(7))
    for key in backend.list(keys.edge_folder(record.edge.id)):
        backend.delete(key)
    with lcstore.open(backend, "r") as store:
        assert store.restore(7)["epoch"] == 7


@pytest.mark.parametrize("lists", [False, True])
def test_a_run_whose_records_go_is_readable_again(lists):
    """Of records without second copies: a rule of a bucket, or somebody, deletes some of them."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        for step in range(4):
            store.save(step, state(step))
        for key in backend.list(keys.NODES):
            if keys.parse_node_key(key).step in (1, 2):
                backend.delete(key)
        if lists:
            assert store.steps() == [0, 3]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(4, 12):
                store.save(step, state(step))
        assert [w.category for w in caught] == [lcstore.DamageWarning]
        assert "records that lead to it are gone: an anchor was added" in str(caught[0].message)
        (anchor,) = store._index.refresh(full=True).edges.values()
        since = range(store.info(anchor.target).step, 12)
        assert since.start <= 8
    with lcstore.open(backend, "r", threads=1) as store:
        for step in since:
            back = store.restore(step)
            assert back["epoch"] == step
            np.testing.assert_allclose(back["model"]["w"], state(step)["model"]["w"], atol=0.05)


def test_an_anchor_whose_record_is_refused_leaves_nothing():
    inner = MemoryBackend.fresh()
    backend = FaultBackend(
        inner, {lambda op: op.name == "put" and op.key.startswith(keys.EDGES): Fault("eio", None)}
    )
    with lcstore.open(backend, durability=EVERY_FIVE) as store:
        for step in range(13):
            store.save(step, state(step))
        assert store.stats().orphans == 0
    assert backend.struck
