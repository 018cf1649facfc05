"""Plain tensors that move a little: saved as what their bits differ by, given back bit for bit every way."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from states import leaves, same, tracked

import lcstore
from lcstore import CorruptionError
from lcstore.edges.columns import ADD, EXACT, KEEP, SET
from lcstore.format import keys
from lcstore.graph.refs import ROOT
from lcstore.layout import layout as layouts
from lcstore.storage.memory import MemoryBackend
from lcstore.testing.faults import every_point

pytestmark = [pytest.mark.once, pytest.mark.unprotected]

DTYPES = [
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    np.int32,
    np.int64,
    np.uint16,
    np.uint8,
    ml_dtypes.float8_e4m3fn,
]
SAVES = 9


def moved(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """Values some of whose patterns are near what they were; a few are anything, NaN and infinities too."""
    words = values.copy().view(f"i{values.itemsize}")
    some = rng.random(words.shape) < (
        0.3 if words.itemsize > 1 else 0.03
    )  # a delta of bytes has to save half
    words[some] += rng.integers(-9, 9, words.shape).astype(words.dtype)[some]
    far = rng.random(words.shape) < 1e-3
    words[far] = rng.integers(np.iinfo(words.dtype).min, np.iinfo(words.dtype).max, words.shape)[far]
    return words.view(values.dtype)


def states(count: int = SAVES) -> list[dict[str, Any]]:
    """A moving average, accumulators of all dtypes, what never moves, and what is no number."""
    rng = np.random.default_rng(3)
    held = {f"{np.dtype(d)}": (rng.standard_normal((70, 60)) * 20).astype(d) for d in DTYPES}
    still = rng.standard_normal((40, 40))
    weight = rng.standard_normal((64, 48)).astype(np.float32)
    average, made = weight.copy(), []
    for step in range(count):
        made.append(
            {
                "model": {"fc.weight": weight},
                "ema": {"fc.weight": average},
                "buffers": dict(held),
                "still": still,
                "mask": rng.random(300) < 0.5,
                "phase": np.exp(1j * (np.arange(900) + step)).astype(np.complex64),
                "step": step,
            }
        )
        weight = weight + rng.standard_normal(weight.shape).astype(np.float32) * np.float32(1e-3)
        average = average + (weight - average) * np.float32(1e-3)
        held = {name: moved(rng, values) for name, values in held.items()}
    return made


STATES = states()


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Have pools of several chunks."""
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: 3072)


def saved(backend: Any = None, policy: Any = "lossless", **options: Any) -> lcstore.Store:
    store = lcstore.open(MemoryBackend.fresh() if backend is None else backend, policy=policy, **options)
    for step, state in enumerate(STATES):
        store.save(step, state)
    return store


def ops(store: lcstore.Store, step: int) -> dict[str, int]:
    """By tensor, what the edge that a step was saved with says of it."""
    node = store._reader.node(store._index.refresh(full=True).at_step(step))
    names = ("/".join(map(str, spec.name)) for spec in node.layout.tensors)
    return dict(zip(names, node.columns.op.tolist(), strict=True))


def test_what_moves_a_little_is_added_to():
    store = saved(durability="none")
    first, later = ops(store, 0), ops(store, 3)
    assert set(first.values()) == {EXACT}
    added = {name for name, op in later.items() if op == ADD}
    assert added == {"model/fc.weight", "ema/fc.weight", *(f"buffers/{np.dtype(d)}" for d in DTYPES)}
    assert later["still"] == KEEP
    assert later["mask"] == later["phase"] == SET
    sizes = [store.info(step).bytes_stored for step in range(SAVES)]
    assert max(sizes[1:]) < 0.6 * sizes[0]


def test_a_ring_of_frames_costs_what_is_written_to_it():
    """Some whole segments are overwritten, with noise, and single flags."""
    rng, at = np.random.default_rng(5), 0
    frames, done = rng.integers(0, 9, (600, 1024), np.uint8), rng.random(40_000) < 0.5
    store, truth = lcstore.open(MemoryBackend.fresh(), durability="none", grace=0), []
    for step in range(SAVES):
        truth.append({"frames": frames.copy(), "done": done.copy()})
        store.save(step, truth[-1])
        frames[at : at + 70] = rng.integers(0, 256, (70, 1024))
        done[rng.integers(0, done.size, 9)] ^= True
        at = (at + 70) % 500
    assert ops(store, 4) == {"frames": ADD, "done": ADD}
    assert all(store.info(step).bytes_stored < 1.2 * 70 * 1024 for step in range(1, SAVES))
    for _ in range(2):
        assert all(same(store.restore(step), state) for step, state in enumerate(truth))
        store.compact()
    store.retain(lcstore.LatestN(1))
    store.collect()
    assert same(store.restore(SAVES - 1), truth[-1])
    assert store.verify(level="restore").ok


def test_what_saves_too_little_is_set_anew():
    rng = np.random.default_rng(0)
    small = rng.standard_normal(400).astype(np.float32)
    with lcstore.open(MemoryBackend.fresh(), policy="lossless", durability="none") as store:
        for step in range(3):
            store.save(step, {"small": small, "noise": rng.standard_normal((64, 64))})
            small = small * np.float32(1.0000001)
        assert ops(store, 2) == {"small": SET, "noise": SET}


@pytest.mark.parametrize("policy", ["lossless", "balanced"])
def test_every_state_comes_back_before_and_after_maintenance(policy):
    store = saved(policy=policy, grace=0)
    exact = ["buffers", "still", "mask", "phase"]

    def check(steps):
        for step in steps:
            back = store.restore(step)
            assert all(same(back[path], STATES[step][path]) for path in exact)
            assert policy != "lossless" or same(back, STATES[step])

    check(range(SAVES))
    assert store.verify(level="restore").ok
    store.compact()
    check(range(SAVES))
    store.retain(lcstore.EveryNSteps(3))
    store.compact()
    store.collect(grace=0)
    assert store.verify(level="restore").ok
    check(store.steps())


def test_walks_both_ways_ranges_and_differences():
    store = saved()
    for reverse in (False, True):
        for step, state in store.walk(names="buffers/**", reverse=reverse):
            assert same(state["buffers"], STATES[step]["buffers"])
    part = store.read(5, "buffers/float64", sel=slice(7, 9))
    assert part.tobytes() == STATES[5]["buffers"]["float64"][7:9].tobytes()
    assert store.diff(2, 2).total.norm == 0
    assert store.diff(2, 6)["still"].status == "same"


def test_a_resumed_run_goes_on_with_deltas():
    backend = MemoryBackend.fresh()
    saved(backend, durability="none").close()
    with lcstore.open(backend, policy="lossless", durability="none") as store:
        state = store.resume(4)
        assert same(state, STATES[4])
        info = store.save(50, STATES[5])
        assert info.bytes_stored < 0.6 * store.info(0).bytes_stored
        assert same(store.restore(50), STATES[5])
        assert ops(store, 50)["ema/fc.weight"] == ADD


@pytest.mark.parametrize("kind", ["eio", "crash_after"])
def test_a_save_that_fails_changes_nothing_for_the_next(kind):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, policy="lossless", durability="none") as store:
        store.save(0, STATES[0])
        store.save(1, STATES[1])
    objects, handles, points = backend.snapshot(), [], 0

    def save(faulty: Any) -> None:
        store = lcstore.open(faulty, policy="lossless", durability="none", threads=1)
        store.resume()
        handles.append(store)
        store.save(2, STATES[2])

    for point in every_point(lambda: MemoryBackend.fresh(objects), save, [kind]):
        points += 1
        if kind == "eio" and point.error is not None and handles:
            handles[0].save(2, STATES[2])
            handles[0].save(3, STATES[3])
            assert ops(handles[0], 3)["ema/fc.weight"] == ADD
            held = leaves(STATES[3])
            assert all(held[path].tobytes() == data for path, data in tracked(handles[0]).items())
        handles.clear()
        with lcstore.open(point.backend, "r") as other:
            for step in other.steps():
                assert same(other.restore(step), STATES[step])
    assert points > 5


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_of_a_delta_is_never_given_as_a_value(seed):
    rng = np.random.default_rng(seed)
    backend = MemoryBackend.fresh()
    saved(backend, durability="none").close()
    objects = backend.snapshot()
    deltas = sorted(key for key in objects if "/plain-" in key and ".add/c." in key)
    for key in rng.choice(deltas, 3, replace=False).tolist():
        data = bytearray(objects[key])
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        with lcstore.open(MemoryBackend.fresh(objects | {key: bytes(data)}), "r") as store:
            assert not store.verify(level="checksum").ok
            spoiled = 0
            for step in store.steps():
                try:
                    assert same(store.restore(step), STATES[step])
                except CorruptionError as error:
                    assert error.key == key
                    spoiled += 1
            assert spoiled


def test_a_delta_to_another_base_is_found_out_by_the_digests():
    """What hashes cannot tell, as a writer that believes in another base would have stored it."""
    backend = MemoryBackend.fresh()
    store = saved(backend, durability="none")
    track = store._writer.track
    pool = next(name for name in track.pools if name.startswith("plain-float32"))
    track.pools[pool].view(np.int32)[:4000] += 1
    store.save(SAVES, STATES[-1])
    assert not store.verify(level="restore").ok
    with pytest.raises(CorruptionError, match="digest"):
        store.restore(SAVES)


def test_merged_deltas_are_smaller_than_what_they_are_merged_of():
    store = saved(durability="none", grace=0)
    deltas = sum(store.info(step).bytes_stored for step in range(1, SAVES))
    for step in range(1, SAVES - 1):
        store.retire(step)
    assert store.compact().added
    names = map(keys.parse_edge_key, store.backend.list(keys.EDGES))
    assert 0 < sum(name.nbytes for name in names if name.base != ROOT) < deltas / 4
    store.collect(grace=0)
    assert same(store.restore(SAVES - 1), STATES[SAVES - 1])
    assert store.verify(level="restore").ok


def test_accumulators_of_an_optimizer_are_let_go_of_but_in_the_latest_state():
    rng, made = np.random.default_rng(1), []
    total = rng.gamma(1, 1, (70, 60)).astype(np.float32)
    with lcstore.open(MemoryBackend.fresh(), policy="lossless", durability="none", grace=0) as store:
        for step in range(6):
            total = total + rng.random(total.shape, np.float32) * np.float32(1e-4)
            made.append({"model": {"fc.weight": total[:4] * 2}, "optim": {"state": {0: {"sum": total}}}})
            store.save(step, made[-1])
        assert ops(store, 4)["optim/state/0/sum"] == ADD
        store.retain(lcstore.LatestN(9) | lcstore.Strip("optim/**", after=lcstore.LatestN(1)))
        store.compact()
        store.collect(grace=0)
        assert same(store.restore(5), made[5])
        assert same(store.restore(2, names="model/**")["model"], made[2]["model"])
        with pytest.raises(lcstore.NotFoundError):
            store.restore(2, names="optim/**")
        assert store.verify(level="restore").ok


@pytest.mark.parametrize("rows", [1, 7, 300])
@pytest.mark.parametrize("where", ["anywhere", "in one block"])
def test_few_changed_rows_of_a_large_tensor_come_back(monkeypatch, rows, where):
    """Rows that lie between what samples look at, in large chunks."""
    monkeypatch.undo()
    rng = np.random.default_rng(rows)
    tables = {f"{np.dtype(d)}": (rng.standard_normal((20_000, 16)) * 20).astype(d) for d in DTYPES}
    with lcstore.open(MemoryBackend.fresh(), policy="lossless", durability="none") as store:
        for step in range(6):
            store.save(step, {"tables": tables})
            assert same(store.restore(step), {"tables": tables})
            place = rng.integers(20_000 - rows) if where == "in one block" else 0
            changed = place + np.arange(rows) if place else rng.choice(20_000, rows, replace=False)
            for name, table in tables.items():
                tables[name] = table.copy()
                tables[name][changed] = moved(rng, table[changed])


def test_merged_edges_leave_out_what_lies_between_the_tensors_that_they_set(monkeypatch):
    monkeypatch.undo()  # one chunk for all of them
    rng = np.random.default_rng(0)
    state = {f"l{at:02}": rng.standard_normal((128, 128)).astype(np.float32) for at in range(12)}
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, policy="lossless", grace=0, durability="none") as store:
        store.save(0, state)
        for step in range(1, 40):
            anew = rng.standard_normal((128, 128)).astype(np.float32)
            state["l05"] = anew if step % 12 == 1 else moved(rng, state["l05"])
            store.save(step, state)
        saved = {key for key in backend.snapshot() if "exact/c." in key}
        assert store.compact().added
        merged = {key for key in backend.snapshot() if "exact/c." in key} - saved
        assert min(len(backend.get(key)) for key in merged) < state["l05"].nbytes
