"""Edges that several writers make, each its part, with shards of tensors that they share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from joined import check_stored, join_parts
from parted import Group, Host, cut

import lcstore
from lcstore.edges.columns import ADD, EXACT, KEEP, SET
from lcstore.errors import CorruptionError, InvalidInputError, NotFoundError, StorageError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import EdgeBody
from lcstore.format.records import node_id
from lcstore.layout import layout as layouts
from lcstore.read.resolved import Resolved
from lcstore.storage.memory import MemoryBackend
from lcstore.track.parted import track_of

TALL, WIDE = "model/tall.weight", "model/wide.weight"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks so small that the pools of these states have several."""
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: 2048)


class Counting(MemoryBackend):
    """Remembers which objects of data were read."""

    read: list[str]

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        if keys.is_data_key(key):
            self.__dict__.setdefault("read", []).append(key)
        return super().get(key, start, end)

    def chunks(self) -> list[str]:
        """The chunks read since last asked."""
        found, self.read = sorted({key for key in self.__dict__.get("read", ()) if "/c." in key}), []
        return found


class Training:
    """A pretend run of two writers: one matrix cut by rows, one by columns, and tensors of their own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        shapes = {"tall": (192, 64), "wide": (64, 192), "own0": (40, 64), "own1": (64, 80)}
        self.weights = {name: self.normal(shape) for name, shape in shapes.items()}
        self.count = 0

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def step(self) -> None:
        self.count += 1
        for name, value in self.weights.items():
            self.weights[name] = value + self.normal(value.shape) * np.float32(1e-3)

    def split(self, rows: int = 80, columns: int = 64) -> list[tuple[Any, dict]]:
        """What each writer has, when the matrices are cut at these places."""
        states = []
        for number, (first, last) in enumerate([((0, rows), (0, columns)), ((rows, 192), (columns, 192))]):
            tall, of_tall = cut(self.weights["tall"], 0, *first)
            wide, of_wide = cut(self.weights["wide"], 1, *last)
            own = self.weights[f"own{number}"]
            model = {"tall.weight": tall, "wide.weight": wide, f"own{number}.weight": own}
            moments = {"state": {number: {"exp_avg": own * np.float32(1e-3), "step": np.float32(self.count)}}}
            state = {"model": model, "optim": moments, "count": self.count, f"seed{number}": number}
            states.append((state, {("model", "tall.weight"): of_tall, ("model", "wide.weight"): of_wide}))
        return states


@pytest.fixture(params=[False, True], ids=["inline", "apart"])
def run(request) -> tuple[Training, Group]:
    """A run of one anchor, saved by two writers."""
    training = Training()
    group = Group(Counting.fresh(), [Host("0", request.param), Host("1", request.param)])
    group.save(0, training.split())
    return training, group


def saved(training: Training, group: Group, steps: range, **options: int) -> dict[int, dict[str, np.ndarray]]:
    """Save some steps; return what readers are to get of each."""
    found = {}
    for step in steps:
        training.step()
        states = training.split(**options)
        group.save(step, states)
        found[step] = group.held(states)
    return found


def assert_holds(store, step: int, expected: dict[str, np.ndarray]) -> None:
    tree, streams = store.restore(step), [dict(store[step].stream(ahead=ahead)) for ahead in (None, 0)]
    for name, value in expected.items():
        for streamed in streams:
            np.testing.assert_array_equal(streamed[name], value)
        got = tree["model"][name.removeprefix("model/")]
        np.testing.assert_array_equal(got, value)
        np.testing.assert_array_equal(store.read(step, name), value)


def test_a_state_of_two_writers_is_one_state(run):
    training, group = run
    store = lcstore.open(group.backend, "r")
    tree = store.restore(0)
    for name, value in training.weights.items():
        np.testing.assert_array_equal(tree["model"][f"{name}.weight"], value)
    assert (tree["count"], tree["seed0"], tree["seed1"]) == (0, 0, 1)
    assert store.leaves(0) == {"count": 0, "seed0": 0, "seed1": 1}
    assert store.paths(0)[TALL] == ((192, 64), "float32", "weights")
    assert set(tree["optim"]["state"]) == {0, 1}
    with pytest.raises(NotFoundError):
        store.read(0, "model/none")


def test_a_slice_across_shards_reads_the_chunks_that_it_touches(run):
    training, group = run
    backend, store = group.backend, lcstore.open(group.backend, "r")
    tall, wide = training.weights["tall"], training.weights["wide"]
    for sel, parts, most in (
        ((slice(0, 8),), "0", 1),
        ((slice(79, 81),), "01", 3),
        ((100,), "1", 1),
        ((slice(100, 104), slice(3, 9)), "1", 1),
    ):
        store.read(0, TALL, sel)
        backend.chunks()
        np.testing.assert_array_equal(store.read(0, TALL, sel), tall[sel])
        read = backend.chunks()
        assert {keys.part_name(key) for key in read} == {*parts}
        assert len(read) <= most
    for sel, parts in (
        ((slice(None), slice(0, 64)), "0"),
        ((slice(0, 5), 70), "1"),
        ((slice(2, 60, 3), slice(60, 70, 2)), "01"),
        ((-1, -1), "1"),
    ):
        store.read(0, WIDE, sel)
        backend.chunks()
        np.testing.assert_array_equal(store.read(0, WIDE, sel), wide[sel])
        assert {keys.part_name(key) for key in backend.chunks()} == {*parts}
    for sel in (..., None, np.s_[::-1, 3], np.s_[[3, 90]], np.s_[5:5]):
        np.testing.assert_array_equal(store.read(0, TALL, sel), tall[sel])


def node_of(store, at: int | str):
    """The node of a state, its record and layout read."""
    return store.at(at).using(lambda state: state.node)


def ops(store, step: int) -> dict[tuple[str, str], int]:
    """What the own edge of a step does, by name and part."""
    node = node_of(store, step)
    parts = [(part.name, spec.name[-1]) for part in node.layout.parts for spec in part.layout.tensors]
    return {(name, part): int(op) for (part, name), op in zip(parts, node.columns.op, strict=True)}


def test_deltas_with_the_same_cut_and_with_another(run):
    training, group = run
    expected = saved(training, group, range(1, 4))
    expected |= saved(training, group, range(4, 6), rows=112, columns=64)
    store = lcstore.open(group.backend, "r")
    for step, held in expected.items():
        assert_holds(store, step, held)
    same, other, after = (ops(store, step) for step in (3, 4, 5))
    for part in "01":
        assert same["tall.weight", part] == same["wide.weight", part] == ADD
        assert other["tall.weight", part] == EXACT  # cut elsewhere: it is set
        assert other["wide.weight", part] == other[f"own{part}.weight", part] == ADD
        assert after["tall.weight", part] == ADD
    got = dict(store.walk(range(6), "model/tall*"))
    for step, held in expected.items():
        np.testing.assert_array_equal(got[step]["model"]["tall.weight"], held[TALL])
    for step, value in store.history(WIDE, range(1, 6)):
        np.testing.assert_array_equal(value, expected[step][WIDE])
    assert store.diff(3, 3).tensors[0].after is not None


def test_the_digests_of_shards_add_up_to_the_tensor_s(run):
    training, group = run
    saved(training, group, range(1, 2))
    for rows, columns in ((80, 64), (112, 20)):
        whole = Group(MemoryBackend.fresh(), [Host("0")])
        whole.save(0, [({"model": {f"{n}.weight": v for n, v in training.weights.items()}}, {})])
        parts = Group(MemoryBackend.fresh(), [Host("0"), Host("1")])
        parts.save(0, training.split(rows=rows, columns=columns))
        one, other = (node_of(lcstore.open(g.backend, "r"), 0) for g in (whole, parts))
        grids = {s.name: int(g) for s, g in zip(one.layout.tensors, one.columns.grid, strict=True)}
        for place, spec in enumerate(other.layout.wholes):
            cuts = list(other.layout.shards[place])
            if len(cuts) == 2 and all(other.columns.grid[cuts] == grids[spec.name]):
                total = sum(map(int, other.columns.digest[cuts])) % (1 << 64)
                assert total == int(one.columns.digest[one.layout.index[spec.name]])
                break
        else:
            pytest.fail("no tensor has one grid in both")


@pytest.mark.parametrize("level", ["structure", "checksum", "decode", "restore"])
def test_every_level_verifies_it(run, level):
    training, group = run
    saved(training, group, range(1, 3))
    saved(training, group, range(3, 5), rows=64)
    report = lcstore.open(group.backend, "r").verify(level)
    assert report.ok, report.findings
    assert [f.severity for f in report.findings if f.check != "store"] == []
    assert (report.states, report.good) == (5, 4)


def test_compaction_and_collection_know_no_part(run):
    training, group = run
    expected = saved(training, group, range(1, 13))
    expected |= saved(training, group, range(13, 17), rows=96)
    store = lcstore.open(group.backend)
    report = store.compact()
    assert report.added == report.planned > 0
    assert store.verify("restore").ok
    for step, held in expected.items():
        assert_holds(lcstore.open(group.backend, "r"), step, held)
    kept = (0, 7, 13, 16)
    for step in set(range(17)) - {*kept}:
        store.retire(step)
    for _ in range(3):
        store.collect()
    store = lcstore.open(group.backend)
    assert store.steps() == [*kept]
    assert store.verify("restore").ok
    for step in kept[1:]:
        assert_holds(store, step, expected[step])
    condemned = [markkeys.parse_condemned_key(key) for key in group.backend.list(keys.CONDEMNED)]
    assert not any("/" in name.scope for name in condemned)


def test_a_scope_means_the_array_in_all_parts(run):
    training, group = run
    expected = saved(training, group, range(1, 3))
    store = lcstore.open(group.backend)
    scope, edge = "first-float32.set", node_of(store, 1).record.edge.id

    def moments() -> set[str]:
        return {keys.part_name(key) for key in group.backend.list(f"data/{edge}") if f"/{scope}/" in key}

    assert moments() == {"0", "1"}
    report = store.retain("latest:3 | strip:optim/**:latest:1")
    assert "pool.first-float32" in {one.what for one in report.retired}
    for _ in range(3):
        store.collect()
    condemned = {markkeys.parse_condemned_key(key).scope for key in group.backend.list(keys.CONDEMNED)}
    assert scope in condemned
    assert moments() == set()
    store = lcstore.open(group.backend, "r")
    assert store.verify("restore").ok
    with pytest.raises(NotFoundError, match="let go"):
        store.restore(1)
    assert_holds(store, 2, expected[2])
    model = store.restore(1, names="model/**")["model"]
    np.testing.assert_array_equal(model["tall.weight"], expected[1][TALL])


def test_a_part_goes_on_from_its_own_track(run):
    training, group = run
    expected = saved(training, group, range(1, 3))
    store = lcstore.open(group.backend, "r")
    built = store.at(2).using(Resolved.rebuild)
    node, pools, values = built.node, built.pools, built.values
    for host in group.hosts:
        before = host.held()
        host.track = track_of(host.name, node.layout, node.columns, pools, values, 1)
        for name, (shard, value) in host.held().items():
            assert shard == before[name][0]
            np.testing.assert_array_equal(value, before[name][1])
    expected |= saved(training, group, range(3, 5))
    assert set(ops(store, 3).values()) <= {ADD, KEEP, SET}
    for step, held in expected.items():
        assert_holds(store, step, held)
    stranger = track_of("5", node.layout, node.columns, pools, values, 1)
    assert stranger.layout is None


def test_a_part_names_its_layout_again_only_if_the_head_does(run):
    training, group = run
    saved(training, group, range(1, 2))
    group.hosts[1].named = None  # as of a writer whose head is not acknowledged
    saved(training, group, range(2, 3))
    store = lcstore.open(group.backend, "r")
    first, second, third = ([part.layout for part in node_of(store, at).record.edge.parts] for at in range(3))
    assert first == second
    assert second[0] == third[0]
    assert second[1] != third[1]
    layouts_of = [[part.layout for part in node_of(store, at).layout.parts] for at in range(3)]
    assert layouts_of[0] == layouts_of[1] == layouts_of[2]


def test_one_writer_goes_on_from_the_state_of_two(run):
    training, group = run
    saved(training, group, range(1, 3))
    store = lcstore.open(group.backend)
    state = store.resume(2)
    state["model"]["own0.weight"] += np.float32(1e-3)
    info = store.save(3, state)
    assert info.kind == "delta"
    again = lcstore.open(group.backend, "r").restore(3)
    np.testing.assert_array_equal(again["model"]["tall.weight"], state["model"]["tall.weight"])
    assert ops_of_one(store, 3)[("model", "own0.weight")] == ADD
    assert ops_of_one(store, 3)[("model", "tall.weight")] == EXACT
    store.compact()
    assert store.verify("restore").ok


def ops_of_one(store, step: int) -> dict[tuple, int]:
    node = node_of(store, step)
    return {spec.name: int(op) for spec, op in zip(node.layout.tensors, node.columns.op, strict=True)}


def test_exact_values_are_kept_by_all_parts_or_none(run):
    training, group = run
    training.step()
    group.save(1, training.split(), exact=True)
    store = lcstore.open(group.backend, "r")
    tree = store.restore(1)
    for name, value in training.weights.items():
        np.testing.assert_array_equal(tree["model"][f"{name}.weight"], value)
    parts = node_of(store, group.head).record.edge.parts
    layout = [part.layout for part in node_of(store, 1).layout.parts]
    half = [(parts[0], layout[0]), (replace(parts[1], exact=None), layout[1])]
    with pytest.raises(InvalidInputError, match="exact"):
        join_parts("e" * 32, "root", half)


def test_what_does_not_fit_together_is_not_committed(run):
    _training, group = run
    store = lcstore.open(group.backend, "r")
    node = node_of(store, 0)
    parts = list(zip(node.record.edge.parts, [part.layout for part in node.layout.parts], strict=True))
    assert join_parts("e" * 32, "root", parts[::-1]).parts == node.record.edge.parts  # in their order
    for wrong, what in (
        (parts[:1], "gaps"),
        ([parts[0], parts[0]], "numbered"),
        ([], "numbered"),
        ([parts[0], (replace(parts[1][0], leaves=[9, 1]), parts[1][1])], "plain values"),
        ([parts[0], (replace(parts[0][0], name="1"), parts[0][1])], "shards of the tensor"),
    ):
        with pytest.raises(InvalidInputError, match=what):
            join_parts("e" * 32, "root", wrong)
    edge = node.record.edge
    check_stored(group.backend, edge)
    group.backend.delete(edge.parts[1].objects[0].key)
    with pytest.raises(StorageError, match="part 1") as caught:
        check_stored(group.backend, EdgeBody(edge.id, edge.base, edge.parts))
    assert caught.value.key == edge.parts[1].objects[0].key


def test_a_store_whose_shards_leave_a_gap_is_corrupt(run):
    _, group = run
    store = lcstore.open(group.backend, "r")
    record = node_of(store, 0).record
    lone = replace(record, edge=EdgeBody(record.edge.id, "root", record.edge.parts[:1]))
    data = lone.to_bytes()
    for key in group.backend.list(keys.NODES):
        group.backend.delete(key)
    group.backend.put(keys.node_key(lone.name(node_id(data))), data)
    store = lcstore.open(group.backend, "r")
    with pytest.raises(CorruptionError, match="gaps"):
        store.restore(0)
    report = store.verify("checksum")
    assert not report.ok
    assert any("gaps" in finding.message for finding in report.findings)


def test_damage_to_a_part_of_its_own_is_found_and_repaired_around():
    training = Training()
    group = Group(MemoryBackend.fresh(), [Host("0", True), Host("1", True)])
    group.save(0, training.split())
    expected = {0: None} | saved(training, group, range(1, 3))
    store = lcstore.open(group.backend, "r")
    ref = node_of(store, group.head).record.edge.parts[1].stored
    data = bytearray(group.backend.get(ref.key))
    data[len(data) // 2] ^= 4
    group.backend.delete(ref.key)
    group.backend.put(ref.key, bytes(data))
    store = lcstore.open(group.backend)
    with pytest.raises(CorruptionError) as caught:
        store.restore(2)
    assert caught.value.key == ref.key
    report = store.verify("structure")
    assert not report.ok
    assert report.good == 1
    done = store.repair(dry_run=False)
    assert [loss.step for loss in done.lost] == [2]
    store = lcstore.open(group.backend, "r")
    assert store.steps() == [0, 1]
    assert_holds(store, 1, expected[1])
