"""Walks: what each step gives is what a restore gives, at about one edge a step, whatever lies between."""

from __future__ import annotations

import itertools
import random
import re
import time
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import Run
from damaged import with_part
from kit.requests import FarBackend
from states import differing, leaves, same
from story import CHUNK, Story, hashed

import lcstore
from lcstore import ClosedError, CorruptionError, InvalidInputError, NotFoundError, Store
from lcstore.compaction.making import Maker
from lcstore.format import keys
from lcstore.format.records import node_id
from lcstore.graph.lines import line_to
from lcstore.graph.plan import Shortcut
from lcstore.graph.refs import ROOT
from lcstore.layout import layout as layouts
from lcstore.storage.memory import MemoryBackend
from lcstore.walks import readahead
from lcstore.walks.walk import Walk

pytestmark = pytest.mark.unprotected


def shortcut(store: Store, base: str, target: str) -> None:
    """Add the edge from one node (or the root) to another that is the sum of what lies between."""
    store._index.refresh(full=True)
    maker = Maker(store._reader, store.durability)
    maker.make(Shortcut(base, target, 0, 0))


def random_shortcuts(store: Store, chance: random.Random, count: int) -> None:
    for _ in range(count):
        graph = store._index.refresh(full=True)
        target = chance.choice(sorted(graph.nodes))
        bases = [edge.base for edge in graph.path(target)]
        if graph.is_condemned(graph.path(target)[-1]):
            continue
        try:
            shortcut(store, chance.choice([ROOT, *bases]), target)
        except lcstore.CorruptionError:  # what of it no kept state needs may be gone
            assert target in graph.hidden or target in store._index.marks.stripped


def chain(count: int, backend: MemoryBackend | None = None, **options: Any) -> Store:
    store = lcstore.open(backend or MemoryBackend.fresh(), **options)
    run = Run()
    for step in range(count):
        store.save(step, run.step())
    return store


class Counting(MemoryBackend):
    """Counts reads by key."""

    reads: Counter[str]

    def get(self, key: str, *window: Any) -> bytes:
        self.reads[key] += 1
        return super().get(key, *window)


# Bits -----------------------------------------------------------------------------------------------------


def restored(store: lcstore.Store, node: str, glob: str) -> Any:
    """Return what a restore gives; an empty tree where the state has nothing of these names."""
    try:
        return store.restore(node, names=glob)
    except NotFoundError as error:
        assert "nothing that matches" in str(error) or "no value at" in str(error)
        return {}


def check_walk(story: Story, walk: Walk[Any], wanted: list[str], glob: str) -> None:
    """Compare a walk with what was committed of the nodes that it should give, and some with a restore."""
    count, matched = 0, False
    try:
        for node, (step, tree) in zip(wanted, walk, strict=True):
            if story.chance.random() < 0.2:
                back = restored(story.store, node, glob)
                assert same(tree, back), (step, differing(tree, back))
            for path, array in leaves(tree).items():
                assert hashed(array) == story.given[node][path], (step, path)
            count, matched = count + 1, matched or bool(tree)
    except NotFoundError as error:
        assert "nothing that matches" in str(error) or "no value at" in str(error)
        assert not matched, "a name that some states have is no error"
    else:
        assert matched or not wanted
    assert count == len(wanted)


def check_all(story: Story) -> None:
    store, chance = story.store, story.chance
    newest = [store.info(step).node for step in store.steps()]
    for glob in ("model/**", chance.choice(["model/embed.weight", "**/*.weight", "model/*.weight"])):
        check_walk(story, store.walk(names=glob), newest, glob)
        check_walk(story, store.walk(names=glob, reverse=True), newest[::-1], glob)
    some = [node for node in story.kept if not story.stripped.get(node)]
    some = [chance.choice(some) for _ in range(min(12, 2 * len(some)))] if some else []
    check_walk(story, store.walk(some, "**"), some, "**")
    check_walk(story, store.walk(sorted(some), "optim/**"), sorted(some), "optim/**")
    path = chance.choice(["model/embed.weight", "optim/state/mix.weight/exp_avg", "model/ids"])
    there = [node for node in newest if path in store.paths(node) and not lost(story, node, path)]
    if not there:
        with pytest.raises(lcstore.NotFoundError, match="has"):
            list(store.history(path))
        return
    found = dict(store.history(path))
    assert list(found) == [store.info(node).step for node in there]
    assert all(hashed(found[store.info(node).step]) == story.given[node][path] for node in there)


def lost(story: Story, node: str, path: str) -> bool:
    layout = story._node(node).layout
    return any(
        spec.pool in story.stripped.get(node, ())
        for spec in layout.tensors
        if "/".join(map(str, spec.name)) == path
    )


@pytest.mark.parametrize("seed", range(6))
def test_any_history_any_order(seed, monkeypatch):
    if seed % 3 == 0:
        monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: CHUNK)
    story = Story(seed)
    story.go_on(24)
    check_all(story)
    random_shortcuts(story.store, story.chance, 8)
    check_all(story)
    story.store.compact()
    story.store.collect()
    check_all(story)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 200))
def test_any_long_history_any_order(seed, monkeypatch):
    test_any_history_any_order(seed, monkeypatch)
    story = Story(seed)
    story.go_on(150)
    check_all(story)


def test_a_tensor_set_anew_between_is_composed_anew_on_the_way_back():
    store = lcstore.open(MemoryBackend.fresh())
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 64, 64)).astype(np.float32)
    for step in range(20):
        a, b = a + np.float32(1e-3) * rng.standard_normal(a.shape).astype(np.float32), b * np.float32(1.001)
        if step == 10:
            a = a * 300
        store.save(step, {"model": {"a.weight": a, "b.weight": b}})
    walk = store.walk(reverse=True)
    for step, tree in walk:
        assert same(tree, store.restore(step, names="model/**"))
    # Twenty to begin with, one for each step back, and once more up to the step before the tensor was set.
    assert 20 + 19 < walk.edges_applied <= 20 + 19 + 10


def test_exact_values_where_they_are_kept():
    store, run = lcstore.open(MemoryBackend.fresh()), Run()
    states = [run.step() for _ in range(9)]
    for step, state in enumerate(states):
        store.save(step, state, exact=step % 3 == 2)
    for reverse in (False, True):
        for step, tree in store.walk(names="**", reverse=reverse):
            assert same(tree, store.restore(step))
            assert (step % 3 == 2) <= same(tree["model"], states[step]["model"])
    walk = store.walk([2, 5, 8], "model/*.weight")
    assert all(same(tree["model"]["fc1.weight"], states[step]["model"]["fc1.weight"]) for step, tree in walk)
    assert walk.edges_applied == 0


def test_what_is_given_is_the_callers_own():
    store = chain(6)
    wanted = [store.restore(step) for step in range(6)]
    held = []
    for step, tree in store.walk(names="**"):
        assert same(tree, wanted[step])
        for array in leaves(tree).values():
            array[...] = 0
        held.append(tree)
    arrays = [array for tree in held for array in leaves(tree).values()]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    for _, array in store.history("model/fc1.weight"):
        array[...] = 0


# Edges ----------------------------------------------------------------------------------------------------


def test_a_chain_takes_one_edge_a_step():
    store = chain(300, durability="none")  # without anchors, which make it fewer still
    forward, backward = store.walk(), store.walk(reverse=True)
    assert sum(1 for _ in forward) == sum(1 for _ in backward) == 300
    assert forward.edges_applied == 299  # the anchor is given exactly, and its track comes of that
    assert backward.edges_applied == 300 + 298  # the first one is kept exactly
    some = store.history("model/fc2.weight", range(0, 300, 50))
    assert [step for step, _ in some] == [0, 50, 100, 150, 200, 250]
    assert some.edges_applied == 250


def test_shortcuts_shorten_a_chain_and_own_edges_lead_on():
    store = chain(60)
    store.compact()
    forward, backward = store.walk(), store.walk(reverse=True)
    for walk in (forward, backward):
        for step, tree in walk:
            assert same(tree, store.restore(step, names="model/**"))
    assert forward.edges_applied == 59
    assert backward.edges_applied < 60 + 15


def test_a_tree_of_shortcuts_alone_takes_two_edges_a_step():
    """Every eighth step hangs on shortcuts, those between on lines of their own: an Euler tour."""
    store = chain(64, grace=0)
    nodes = {step: store.info(step).node for step in store.steps()}
    for low in range(8, 64, 8):
        shortcut(store, nodes[low - 8], nodes[low])
    graph = store._index.refresh(full=True)
    for low in range(8, 64, 8):
        graph.condemn(node=nodes[low])
    for reverse in (False, True):
        walk = unlisted(store, reverse)
        for step, tree in walk:
            assert same(tree, store.restore(step, names="model/**"))
        assert walk.edges_applied <= 2 * 64


def unlisted(store: Store, reverse: bool) -> Walk[Any]:
    """A walk over the graph as it is: with a listing the marks that a test made on it would go."""
    graph, refresh = store._index.graph, store._index.refresh
    store._index.refresh = lambda *, full=False: graph  # type: ignore[method-assign]
    try:
        return store.walk(reverse=reverse)
    finally:
        store._index.refresh = refresh  # type: ignore[method-assign]


@pytest.mark.parametrize(("most", "nbytes"), [(16, 1 << 25), (1, 0)])
def test_each_delta_is_read_once_and_no_more_than_some_edges_ahead(most, nbytes, monkeypatch):
    monkeypatch.setattr(readahead, "MOST_BYTES", nbytes)
    backend = Counting.fresh()
    backend.reads = Counter()
    store = chain(40, backend)
    backend.reads.clear()
    walk = store.walk(names="model/*.weight")
    for count, (_, _) in zip(range(1, 21), walk, strict=False):
        while store._requests._work_queue.qsize():
            time.sleep(0.001)
        time.sleep(0.002)
        # The anchor has none. Who looks at few states has few read ahead.
        assert len(deltas(backend)) <= count - 1 + min(most, 2**count)
    assert sum(1 for _ in walk) == 20
    assert len(deltas(backend)) == 39
    assert set(deltas(backend).values()) == {1}


def deltas(backend: Counting) -> dict[str, int]:
    return {key: n for key, n in backend.reads.items() if ".add/" in key and "zarr" not in key}


# Damage, and maintenance meanwhile ------------------------------------------------------------------------


def test_a_wrong_digest_names_step_and_tensor():
    backend = MemoryBackend.fresh()
    store = chain(6, backend, durability="none")
    record = store._index.record(store.info(5).node)
    digests = np.frombuffer(record.edge.columns["digest"], "<u8").copy()
    tensor = store.at(5).using(lambda state: state.node.layout.index["model", "fc1.weight"])
    digests[tensor] += 1
    columns = record.edge.columns | {"digest": digests.tobytes()}
    data = replace(record, edge=with_part(record.edge, columns=columns)).to_bytes()
    backend.delete(keys.node_key(record.name(store.info(5).node)))
    backend.put(keys.node_key(record.name(node_id(data))), data)
    with lcstore.open(backend, "r") as other:
        good = []
        with pytest.raises(CorruptionError, match=r"fc1\.weight") as caught:
            good.extend(other.walk())
        assert [step for step, _ in good] == [0, 1, 2, 3, 4]
        assert caught.value.step == 5
        with pytest.raises(CorruptionError, match=r"fc1\.weight"):
            next(other.walk(reverse=True))
        assert len(list(other.history("model/fc2.weight"))) == 6


def test_a_damaged_delta_is_named():
    backend = MemoryBackend.fresh()
    store = chain(6, backend, durability="none")
    (ref,) = (r for r in store._index.record(store.info(3).node).edge.objects if "weights" in r.key
              and ".add/c" in r.key)  # fmt: skip
    data = bytearray(backend.get(ref.key))
    data[len(data) // 2] ^= 1
    backend.delete(ref.key)
    backend.put(ref.key, bytes(data))
    good = []
    with pytest.raises(CorruptionError) as caught:
        good.extend(store.walk())
    assert [step for step, _ in good] == [0, 1, 2]
    assert (caught.value.key, caught.value.step) == (ref.key, 3)


@pytest.mark.parametrize("lost", ["a record", "a delta"])
def test_an_exact_value_is_given_whatever_became_of_what_leads_to_it(lost):
    backend, run = MemoryBackend.fresh(), Run()
    with lcstore.open(backend, durability="none") as store:
        for step in range(6):
            store.save(step, run.step(), exact=step == 4)
        if lost == "a record":
            backend.delete(keys.node_key(store._index.graph.at_step(3)))
        else:
            objects = store._index.record(store.info(4).node).edge.objects
            backend.delete(next(ref.key for ref in objects if "weights" in ref.key and ".add/c" in ref.key))
    store = lcstore.open(backend, "r")
    steps = [step for step in store.steps() if step < 5]
    for reverse in (False, True):
        for step, tree in store.walk(steps, "**", reverse=reverse):
            assert same(tree, store.restore(step))
    for name in ("model/fc1.weight", "model/fc2.bias", "optim/state/#0/exp_avg"):
        for step, value in store.history(name, steps):
            assert same(value, store.read(step, name))
    assert store.diff(2, 4)["model/fc1.weight"].status == "changed"
    with pytest.raises(CorruptionError):
        list(store.walk([4, 5]))


@pytest.mark.filterwarnings("ignore::lcstore.FallbackWarning")
@pytest.mark.parametrize("repaired", [False, True])
@pytest.mark.parametrize("policy", ["lossless", "balanced"])
@pytest.mark.parametrize("lost", [2, 6, 9])
def test_all_that_can_be_read_beside_a_save_that_is_lost_as_a_whole_is_walked_to(lost, policy, repaired):
    """Behind it a restore goes past a state, and back to it. A walk that began there saw the loss alone."""
    backend, run = MemoryBackend.fresh(), Run()
    with lcstore.open(backend, policy=policy) as store:
        for step in range(14):
            store.save(step, run.step())
            if step == 8:
                shortcut(store, ROOT, store.info(8).node)
        edge = store._index.record(store.info(lost).node).edge.id
    for key in backend.list(keys.edge_folder(edge)):
        backend.delete(key)
    with lcstore.open(backend, "r+") as store:
        if repaired:
            store.repair(dry_run=False)
        readable = {}
        for step in store.steps():
            with suppress(CorruptionError):
                readable[step] = store.restore(step)
    assert len(readable) >= lost
    for steps in ([*readable], [*readable][::-1], [step for step in readable if step > lost]):
        with lcstore.open(backend, "r") as store:
            assert [step for step, _ in store.walk(steps, None)] == steps
    for step in readable:
        with lcstore.open(backend, "r") as store:
            ((_, found),) = store.walk([step], None)
            assert same(found, readable[step])


def test_back_to_before_a_tensor_was_made_nothing_is_composed_anew():
    store = lcstore.open(MemoryBackend.fresh())
    rng = np.random.default_rng(0)
    tensors = {"a": rng.standard_normal((64, 64)).astype(np.float32)}
    for step in range(12):
        if step == 6:
            tensors["b"] = tensors["a"] * 2
        moved = {name: np.float32(1e-3) * rng.standard_normal((64, 64)) for name in tensors}
        tensors = {name: (value + moved[name]).astype(np.float32) for name, value in tensors.items()}
        store.save(step, {"model": {f"{name}.weight": value for name, value in tensors.items()}})
    walk = store.walk(reverse=True)
    for step, tree in walk:
        assert same(tree, store.restore(step, names="model/**"))
    assert walk.edges_applied <= 12 + 11


def test_what_went_wrong_in_memory_is_composed_anew():
    store = chain(8)
    walk = store.walk()
    for step, tree in walk:
        assert same(tree, store.restore(step, names="model/**"))
        for pool in walk._walker._held.pools.values():
            pool += 1
    assert walk.edges_applied > 8 * 4


def test_a_collector_takes_edges_away_meanwhile():
    backend = MemoryBackend.fresh()
    store = chain(40, backend, grace=0)
    wanted = dict(store.walk())
    walk = store.walk()
    given = [next(walk)[0] for _ in range(5)]
    other = lcstore.open(backend)
    other.retain("every:4 | latest:1")
    other.compact()
    other.collect()
    assert other.collect().deleted_objects == 0
    left = other.steps()
    for step, tree in walk:
        assert same(tree, wanted[step])
        given.append(step)
    # The next ones were fetched already; of the rest, what is gone is passed over.
    assert set(given[:20]) == set(range(20))
    assert set(given[20:]) == set(left) - set(range(20))
    assert len(left) < 15


def test_a_state_of_a_list_that_was_collected_is_missed(monkeypatch):
    monkeypatch.setattr(readahead, "_STATES", 1)
    backend = MemoryBackend.fresh()
    store = chain(12, backend, grace=0)
    walk = store.walk([0, 1, 6])
    next(walk)
    other = lcstore.open(backend)
    other.retain("every:4 | latest:1")
    other.compact()
    other.collect()
    with pytest.raises(NotFoundError):
        list(walk)


# Which steps ----------------------------------------------------------------------------------------------


def steps_of(walk: Walk[Any]) -> list[int]:
    return [step for step, _ in walk]


def test_which_steps_are_visited():
    store, run = lcstore.open(MemoryBackend.fresh()), Run()
    for step in (0, 10, 20, 30, 50):
        store.save(step, run.step(), tags=["good"] if step == 20 else ())
    assert steps_of(store.walk()) == [0, 10, 20, 30, 50]
    assert steps_of(store.walk(reverse=True)) == [50, 30, 20, 10, 0]
    assert steps_of(store.walk(range(5, 10**15, 5))) == [10, 20, 30, 50]
    assert steps_of(store.walk(range(40, 0, -10))) == [30, 20, 10]
    assert steps_of(store.walk([30, 0, "good", 30, "latest"])) == [30, 0, 20, 30, 50]
    assert steps_of(store.walk([30, 0, 20], reverse=True)) == [20, 0, 30]
    assert steps_of(store.walk(range(60, 70))) == steps_of(store.history("epoch", range(1, 5))) == []
    assert steps_of(store.walk(np.arange(0, 30, 10))) == [0, 10, 20]
    with pytest.raises(NotFoundError, match="40"):
        store.walk([30, 40])
    for wrong in (30, "good", [2.5], [True]):
        with pytest.raises(InvalidInputError):
            store.walk(wrong)
    with pytest.raises(InvalidInputError):
        store.walk(to="paper")


def test_revisions_and_forks():
    store, run = lcstore.open(MemoryBackend.fresh()), Run()
    first = [store.save(step, run.step()).node for step in range(6)]
    store.resume(2)
    second = [store.save(step, run.step()).node for step in (3, 4)]
    wanted = {node: store.restore(node) for node in (*first, *second)}
    for step, tree in store.walk(names="**"):
        assert same(tree, wanted[{3: second[0], 4: second[1]}.get(step, first[step])])
    order = [first[4], second[1], first[3], second[0], first[5], first[0]]
    walk = store.walk(order, "**")
    for node, (_, tree) in zip(order, walk, strict=True):
        assert same(tree, wanted[node])
    # From one branch to the other: back to where they part, and on.
    assert walk.edges_applied == 5 + (2 + 2) + (2 + 1) + (1 + 1) + (1 + 3)  # the last is kept exactly


def test_the_steps_of_one_run():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store, lcstore.open(backend) as fork:
        for step in range(4):
            store.save(step, {"w": np.full(64, step, np.float32)}, exact=True)
        fork.resume(1)
        for step in (2, 3):
            fork.save(step, {"w": np.full(64, -step, np.float32)}, exact=True)
        told = [[(step, w[0]) for step, w in store.history("w", run=run)] for run in (None, 1, 2)]
        first, second = [(0, 0), (1, 1), (2, 2), (3, 3)], [(2, -2), (3, -3)]
        assert told == [first[:2] + second, first, second]
        assert [tree["w"][0] for _, tree in store.walk([3, 0], "w", run=1)] == [3, 0]
        with pytest.raises(NotFoundError, match="no run 7"):
            store.walk(run=7)
        with pytest.raises(NotFoundError):
            store.history("w", [0], run=2)


def forked(store: Store, steps: list[int], rng: np.random.Generator, weight: np.ndarray) -> list[str]:
    """Save on; return the nodes."""
    nodes = []
    for step in steps:
        weight += 1e-3 * rng.standard_normal(weight.shape, dtype=np.float32)
        nodes.append(store.save(step, {"model": {"w": weight}, "at": step}).node)
    return nodes


def fork_of(backend: MemoryBackend, **more: Any) -> list[list[str]]:
    """Save steps 0 to 70 and, from step 30 on, 40 to 60 once more; return the nodes of both runs."""
    rng, nodes = np.random.default_rng(3), []
    for steps in (range(0, 80, 10), range(40, 70, 10)):
        with lcstore.open(backend, **more) as store:
            weight = np.zeros((64, 64), np.float32)
            if nodes:
                store.resume(30)
            nodes.append(forked(store, [*steps], rng, weight))
    return nodes


def told_of_lines(series: Any) -> list[str]:
    """Return what a series warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        series()
    assert {one.category for one in caught} <= {lcstore.BesideWarning}
    assert all(one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    "series",
    [
        lambda store: store.history("at"),
        lambda store: store.walk(range(20, 80)),
        lambda store: store.walk([60, 0, 70]),
        lambda store: store.zarr_history("model/w"),
    ],
)
def test_a_series_of_several_lines_of_training_is_told_once_by_each_handle(series):
    backend = MemoryBackend.fresh()
    fork_of(backend)
    for mode in ("r", "r+"):
        with lcstore.open(backend, mode) as store:
            (said,) = told_of_lines(lambda: series(store))
            assert re.search(r"1 of these \d states .* step 60 of run 2: step 70 of run 1\. ", said)
            ids = [store.info(run=run).run_id for run in (1, 2)]
            assert f"there are: 1 ({ids[0]}), 2 ({ids[1]})" in said
            assert "line='latest' gives that line alone; run= the states of one run" in said
            assert not told_of_lines(lambda: series(store))


def test_a_series_that_names_its_line_or_its_states_or_ends_before_the_fork_is_not_told_of_lines():
    backend = MemoryBackend.fresh()
    first, second = fork_of(backend)
    with lcstore.open(backend, "r") as store:
        for ask in (
            lambda: store.history("at", run=1),
            lambda: store.walk(line="latest"),
            lambda: store.walk(line="latest", run=1),
            lambda: store.zarr_history("model/w", run=2),
            lambda: store.walk([first[5], second[0], 70]),
            lambda: store.walk(range(0, 50, 10)),
            lambda: store.history("at", [40, 60]),
            lambda: store.walk([]),
        ):
            assert not told_of_lines(ask)
        assert dict(store.history("at", line="latest", run=1)) == {step: step for step in range(0, 80, 10)}
        many = told_of_lines(lambda: store.walk([*store.steps()]))
        assert len(many) == 1


def test_a_series_that_a_rewind_or_a_handle_that_went_back_left_is_told_of_lines():
    rng, weight = np.random.default_rng(3), np.zeros((64, 64), np.float32)
    for back in ("rewind", "resume"):
        with lcstore.open(MemoryBackend.fresh()) as store:
            forked(store, [*range(8)], rng, weight)
            getattr(store, back)(2)
            last = forked(store, [3, 4], rng, weight)[-1]
            (said,) = told_of_lines(lambda: store.history("at", range(5)) and store.history("at"))
            assert "3 of these 8 states" in said
            assert "steps 5 to 7 of run 1. " in said
            assert [*dict(store.history("at", line="latest"))] == [0, 1, 2, 3, 4]
            assert not told_of_lines(lambda: store.history("at", line=last))  # noqa: B023


@pytest.mark.parametrize(("rule", "back"), [(None, 120), ("latest:2 | every:40", 140)])
def test_a_job_that_was_started_again_and_went_on_is_not_told_of_lines(rule, back):
    """Also with other layouts and policies; where it repeats steps; where what it went on from is gone."""
    rng, weight = np.random.default_rng(3), np.zeros((64, 64), np.float32)
    backend = MemoryBackend.fresh()
    for part, (start, end) in enumerate([(None, 80), (70, 150), (back, 220), (210, 300)]):
        policy = ("balanced", "high")[part % 2]
        with lcstore.open(backend, grace=0, policy=policy) as store:
            if start is not None:
                store.resume(start)
            for step in range(0 if start is None else start + 10, end, 10):
                weight += 1e-3 * rng.standard_normal(weight.shape, dtype=np.float32)
                more = {f"other{n}": weight for n in range(part)}
                store.save(step, {"model": {"w": weight, **more}, "at": step})
            if rule:
                store.maintain(rule)
    with lcstore.open(backend) as store:
        assert not told_of_lines(lambda: store.history("at"))
        assert not told_of_lines(lambda: store.walk(names=None))


def test_whether_a_series_is_of_one_line_costs_no_request():
    far = FarBackend(MemoryBackend.fresh(), 0)
    fork_of(far)
    asked = []
    for run in (None, 1):
        with lcstore.open(far, "r") as store:
            before = len(far.log)
            assert len(told_of_lines(lambda: store.walk(run=run))) == (run is None)  # noqa: B023
            asked.append(sorted((one.name, one.key) for one in far.log[before:]))
    assert asked[0] == asked[1]


def test_a_line_goes_through_rewinds_and_resumed_runs():
    rng, weight = np.random.default_rng(3), np.zeros((64, 64), np.float32)
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        first = forked(store, [0, 10, 20, 30], rng, weight)
        store.rewind(10)
        second = forked(store, [20, 30, 40], rng, weight)
    with lcstore.open(backend) as store:
        store.resume(30, run=2)
        third = forked(store, [40, 50], rng, weight)
        lines = {
            first[3]: first,
            second[2]: first[:2] + second,
            "latest": first[:2] + second[:2] + third,
        }
        for end, wanted in lines.items():
            steps = [store.info(node).step for node in wanted]
            found = [(step, tree["at"]) for step, tree in store.walk(names="at", line=end)]
            assert found == [(step, step) for step in steps]
            values = dict(store.history("model/w", line=end))
            assert list(values) == steps
            assert all(
                np.array_equal(values[s], store.read(n, "model/w"))
                for s, n in zip(steps, wanted, strict=True)
            )
        assert [step for step, _ in store.history("at", range(40, 5, -10), line="latest")] == [40, 30, 20, 10]
        assert [step for step, _ in store.history("at", [50, first[1]], line="latest")] == [50, 10]
        assert store.zarr_history("model/w", line=first[3]).attrs["steps"] == [0, 10, 20, 30]
        assert [step for step, _ in store.history("at", line=40, run=2)] == [0, 10, 20, 30, 40]
        for other in (first[3], 60):
            with pytest.raises(NotFoundError, match=r"not among the 6 that led to step 50|no state 60"):
                store.history("at", [other], line="latest")


def test_a_line_of_a_handle_that_went_back_by_itself():
    rng, weight = np.random.default_rng(3), np.zeros((64, 64), np.float32)
    with lcstore.open(MemoryBackend.fresh(), grace=0) as store:
        first = forked(store, [*range(6)], rng, weight)
        store.resume(2)
        second = forked(store, [3, 4, 7], rng, weight)
        lines = {"latest": first[:3] + second, first[5]: first}
        for end, wanted in lines.items():
            line = line_to(store._index.refresh(full=True), store.info(end).node)
            assert [name.node for name in line] == wanted


def test_a_line_goes_on_over_what_was_let_go_and_collected():
    rng, weight = np.random.default_rng(3), np.zeros((64, 64), np.float32)
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as store:
        forked(store, [*range(8)], rng, weight)
        store.rewind(4)
        forked(store, [*range(5, 12)], rng, weight)
        store.retain("every:4 | latest:1")
        for _ in range(2):
            store.compact()
            store.collect()
            store.collect()
    with lcstore.open(backend, "r") as store:
        assert [(one.step, one.run) for one in store.states(records=False)] == [
            (0, 1),
            (4, 1),
            (8, 2),
            (11, 2),
        ]
        assert [step for step, _ in store.history("at", line="latest")] == [0, 4, 8, 11]
        assert [step for step, _ in store.history("at", line=4)] == [0, 4]


@pytest.mark.parametrize("rule", ["latest:3 | every:100", "latest:1 | every:100", "latest:2"])
def test_a_line_goes_on_over_runs_that_were_resumed_thinned_out_compacted_and_collected(rule):
    """As a job that is preempted does: each of its processes is a run, of which few states are kept."""
    rng, weight = np.random.default_rng(3), np.zeros((64, 64), np.float32)
    backend, saved = MemoryBackend.fresh(), []
    for first, end in itertools.pairwise((0, 80, 150, 220, 270, 300)):
        with lcstore.open(backend, grace=0) as store:
            if first:
                store.resume()
            saved += forked(store, [*range(first, end, 10)], rng, weight)
            store.maintain(rule)
            kept = {state.node for state in store.states(records=False)}
            line = line_to(store._index.refresh(full=True), saved[-1])
            assert [name.node for name in line] == [node for node in saved if node in kept]
            assert store.verify(level="restore").ok
    with lcstore.open(backend, grace=0) as store:
        step = store.steps()[1]
        store.rewind(step)
        forked(store, [step + 10], rng, weight)
        store.retain("latest:1")  # none of the later ones is still kept as the latest of its run
        assert max(store.steps()) == step + 10
        store.collect()
        store.collect()
        graph = store._index.refresh(full=True)
        assert graph.came_from.keys() <= graph.nodes.keys()
        assert [name.step for name in line_to(graph, store.info().node)] == store.steps()


def test_saves_meanwhile_are_not_seen():
    store = chain(3)
    walk = store.walk()
    store.save(3, Run().step())
    assert steps_of(walk) == [0, 1, 2]


def test_a_closed_store_ends_the_walk():
    store = chain(3)
    walk = store.walk()
    next(walk)
    store.close()
    with pytest.raises(ClosedError):
        next(walk)
    with pytest.raises(ClosedError):
        store.walk()


def test_trees_are_as_restored():
    torch = pytest.importorskip("torch")
    store = chain(3)
    assert all(isinstance(t["model"]["fc1.weight"], torch.Tensor) for _, t in store.walk(to="torch"))
    assert all(
        set(tree) == {"epoch"} and tree["epoch"] == step + 1 for step, tree in store.walk(names="epoch")
    )
    with pytest.raises(NotFoundError, match="nothing that matches"):
        list(store.walk(names="nothing/*"))
    with pytest.raises(NotFoundError, match="nothing"):
        list(store.walk(names=["epoch", "nothing"]))


# One tensor -----------------------------------------------------------------------------------------------


def test_history_of_what_comes_and_goes():
    store = lcstore.open(MemoryBackend.fresh())
    w = np.ones((64, 64), np.float32)
    for step in range(8):
        model = {"a.weight": w * (step + 1)} | ({"b.weight": w * step} if 2 <= step < 5 else {})
        store.save(step, {"model": model, "lr": 0.1 * step})
    assert steps_of(store.history("model/b.weight")) == [2, 3, 4]
    assert steps_of(store.history(("model", "b.weight"), range(3, 9))) == [3, 4]
    for step, array in store.history("model/a.weight"):
        assert array.tobytes() == store.read(step, "model/a.weight").tobytes()
        assert array.shape == (64, 64)
    assert list(store.history("lr", [3, 1])) == [(3, 0.1 * 3), (1, 0.1)]
    with pytest.raises(NotFoundError, match=r"none of these 8 states has it.*nearest is 'model/a\.weight'"):
        list(store.history("model.a.weight"))
    with pytest.raises(NotFoundError, match=r"b\.weight"):
        list(store.history("model/b.weight", [2, 3, 6]))


def test_history_passes_over_what_was_let_go():
    store = chain(6, grace=0)
    store.retain("strip:optim/**:latest:2")
    path = "optim/state/#0/exp_avg"
    assert steps_of(store.history(path)) == [4, 5]
    with pytest.raises(NotFoundError, match="let go"):
        list(store.history(path, [1, 4]))
    with pytest.raises(NotFoundError, match="let go"):
        list(store.walk(names="**"))
    assert steps_of(store.walk()) == list(range(6))


def test_a_name_that_matches_nothing_is_told_before_anything_is_given():
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step in range(4):
            more = {"late": np.ones(5)} if step == 2 else {}
            store.save(step, {"model": {"weight": np.full((9, 9), step, np.float32)}, **more})
        with pytest.raises(lcstore.NotFoundError, match="mdel"):
            next(store.walk(names="mdel/**"))
        assert [(step, list(tree)) for step, tree in store.walk(names="late")] == [
            *((0, []), (1, []), (2, ["late"]), (3, [])),
        ]


def test_a_walk_that_was_not_told_what_it_is_over_says_how():
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, {"state": {"params": np.ones((8, 8), np.float32)}, "key": 1})
        with pytest.raises(NotFoundError, match=r"it has 'state', 'key'.*; names= says what a walk is over"):
            list(store.walk())
        with pytest.raises(NotFoundError, match="nothing that matches") as told:
            list(store.walk(names="net/**"))
        assert "names= says" not in str(told.value)


@pytest.mark.parametrize("steps", [None, range(10)])
def test_where_no_state_is_a_walk_says_what_a_restore_does(tmp_path, steps):
    with lcstore.open(tmp_path / "rnus") as mistyped, lcstore.open(tmp_path / "runs", grace=0) as store:
        store.save(0, {"w": np.ones(4)})
        for key in [key for key in store.backend.list("data") if "zarr" not in key]:
            store.backend.delete(key)
        store.repair()
        for one, said in ((mistyped, "there is no store at .*rnus"), (store, "there is no state in .*runs")):
            for ask in (one.walk, partial(one.history, "w"), partial(one.zarr_history, "w")):
                with pytest.raises(NotFoundError, match=said):
                    ask(steps=steps)
            with pytest.raises(NotFoundError, match=said):
                one.restore()
