"""Merging edges: any mix of shortcuts and original edges gives the same bits, and damage is never merged."""

from __future__ import annotations

import importlib
import math
import tracemalloc
from dataclasses import replace

import edge_histories as histories
import numpy as np
import pytest
from edge_histories import ROOT, History, Segment, edge_of, random_history, same_bits
from hypothesis import given
from hypothesis import strategies as st

from lcstore import CorruptionError, LimitError, UnsupportedFormatError
from lcstore.edges.columns import ADD, EXACT, KEEP, OWN, SET, SET_GRID, Columns
from lcstore.edges.merge import bytes_per_job
from lcstore.frames.pieces import Pieces
from lcstore.frames.scales import step_size_of
from lcstore.layout.specs import ALIGN

seeds = st.integers(0, 1 << 30)


def merged_at_random(rng: np.random.Generator, history: History, last: int) -> list[Segment]:
    """Give a path from the root to a node on which runs of segments have been merged, some of them twice."""
    path = list(history.segments[: last + 1])
    for _ in range(int(rng.integers(1, 5))):
        low = int(rng.integers(len(path)))
        high = int(rng.integers(low, len(path))) + 1
        path[low:high] = [history.shortcut(path[low:high])]
    return path


@given(seeds)
def test_any_mix_of_merged_and_original_edges_gives_the_same_bits(seed):
    rng, history = np.random.default_rng(seed), random_history(seed)
    last = int(rng.integers(len(history.segments)))
    wanted = history.values(history.segments[: last + 1])
    assert same_bits(history.values(merged_at_random(rng, history, last)), wanted)


@given(seeds)
def test_an_anchor_merged_from_the_root_stands_alone(seed):
    history = random_history(seed)
    anchor = history.shortcut(history.segments)
    assert anchor.base == ROOT
    assert not np.isin(anchor.edge.columns.op, (ADD, KEEP)).any()
    assert same_bits(history.values([anchor]), history.values(history.segments))


@given(seeds)
def test_merging_is_associative(seed):
    rng, history = np.random.default_rng(seed), random_history(seed)
    low, high = sorted(int(n) for n in rng.integers(0, len(history.segments) + 1, 2))
    path = history.segments[low:high]
    if not path:
        return
    at_once = history.shortcut(path)
    grouped = list(path)
    while len(grouped) > 1:
        at = int(rng.integers(len(grouped) - 1))
        grouped[at : at + 2] = [history.shortcut(grouped[at : at + 2])]
    in_pairs = history.shortcut(grouped)
    assert in_pairs.chunks == at_once.chunks
    assert in_pairs.edge.columns.to_bytes() == at_once.edge.columns.to_bytes()


@given(seeds)
def test_a_damaged_edge_is_noticed_and_never_merged(seed):
    rng, history = np.random.default_rng(seed), random_history(seed)
    wanted = history.values(history.segments)
    low = int(rng.integers(len(history.segments)))
    path = history.segments[low:]
    stored = [(segment, name) for segment in path for name in segment.chunks]
    if not stored:
        return
    segment, name = stored[int(rng.integers(len(stored)))]
    others = [s.chunks[name] for s in history.segments if name in s.chunks and s is not segment]
    good = segment.chunks[name]
    flipped = bytearray(good)
    flipped[int(rng.integers(len(good)))] ^= 1 << int(rng.integers(8))
    segment.chunks[name] = (
        others[int(rng.integers(len(others)))] if others and rng.random() < 0.5 else flipped
    )
    try:
        shortcut = history.shortcut(path)
    except (CorruptionError, UnsupportedFormatError, LimitError) as error:  # any field of a frame may be hit
        assert "tensor" in str(error) or error.key == f"{name[0]}.{name[1]}/{name[2]}"
        return
    segment.chunks[name] = good  # it was not needed, or says the same
    assert same_bits(history.values([*history.segments[:low], shortcut]), wanted)


def simple(saves=4, seed=0, shape=(64, 64), **more):
    """A history of two matrices that move a little, and what else is asked for."""
    rng, history = np.random.default_rng(seed), History()
    a, b = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    for index in range(saves):
        history.save({"w0": a, "w1": b, **{name: make(index) for name, make in more.items()}})
        a, b = (x + rng.standard_normal(shape).astype(np.float32) * np.float32(1e-3) for x in (a, b))
    return history


def test_what_the_targets_own_edge_sets_is_left_to_it():
    history = simple(m0=lambda i: np.full((8, 8), 0.5 + i, np.float32), e0=lambda i: np.array([i]))
    shortcut = history.shortcut(history.segments[1:])
    assert shortcut.edge.columns.op.tolist() == [ADD, ADD, OWN, OWN]
    assert {name[:2] for name in shortcut.chunks} == {("weights-float32", "add")}
    anchor = history.shortcut(history.segments)
    assert anchor.edge.columns.op.tolist() == [SET_GRID, SET_GRID, OWN, OWN]
    assert {name[:2] for name in anchor.chunks} == {("weights-float32", "grid")}


def test_exact_values_of_an_edge_between_are_copied():
    history = simple(e0=lambda i: np.array([7.5 if i else 1.5]), e1=lambda i: np.array([3]))
    shortcut = history.shortcut(history.segments[1:])
    assert shortcut.edge.columns.op.tolist() == [ADD, ADD, EXACT, KEEP]
    assert ("plain-float64", "exact", 0) in shortcut.chunks
    path = [history.segments[0], shortcut]
    assert same_bits(history.values(path), history.values(history.segments))


def test_moments_that_only_an_edge_between_sets_keep_every_bit():
    history = simple(saves=3, m0=lambda i: np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8))
    first, between, last = history.segments
    wanted = history.values([first, between])[2]
    last.edge.columns.op[2] = KEEP
    last.edge.columns.digest[2] = between.edge.columns.digest[2]
    shortcut = history.shortcut([between, last])
    assert shortcut.edge.columns.op.tolist() == [ADD, ADD, SET]
    assert history.values([first, shortcut])[2].tobytes() == wanted.tobytes()


def test_a_tensor_set_anew_between_becomes_a_sum_beside_deltas_of_the_same_chunk():
    history = simple(saves=3)
    a, b = history.values(history.segments)
    for grown in (a * 100, a * 101):
        history.save({"w0": grown.reshape(64, 64), "w1": b.reshape(64, 64)})
    assert history.segments[3].edge.columns.op.tolist() == [EXACT, ADD]
    shortcut = history.shortcut(history.segments[1:])
    assert shortcut.edge.columns.op.tolist() == [SET_GRID, ADD]
    assert {name[1:] for name in shortcut.chunks} == {("add", 0), ("grid", 0)}
    whole = history.values(history.segments)
    assert same_bits(history.values([history.segments[0], shortcut]), whole)
    assert same_bits(history.values([history.shortcut([history.segments[0], shortcut])]), whole)


def test_sums_that_are_all_zero_are_not_stored():
    history = History()
    state = {"w0": np.ones((64, 64), np.float32), "w1": np.zeros((64, 64), np.float32)}
    for _ in range(4):
        history.save(state)
    shortcut = history.shortcut(history.segments[2:])
    assert shortcut.chunks == {}
    assert shortcut.edge.columns.shift.tolist() == [0, 0]
    path = [*history.segments[:2], shortcut]
    assert same_bits(history.values(path), history.values(history.segments))


def test_removed_tensors_are_not_merged_with_what_is_left():
    from lcstore.edges.deltas import apply_delta

    rng, history = np.random.default_rng(0), History()
    a, b, c = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(3))
    history.save({"w0": a, "w1": b, "w2": c})
    for index in range(3):
        a, b, c = a + np.float32(0.01), b * np.float32(1.01), c - np.float32(0.01)
        history.save({"w0": a, "w1": b, "w2": c} if index < 2 else {"w0": a, "w2": c})
    shortcut = history.shortcut(history.segments[1:])
    out = np.zeros(3 * 64 * 64, np.int32)
    apply_delta(shortcut.chunks["weights-float32", "add", 0], out)
    assert out[:4096].any()
    assert not out[4096:8192].any()
    assert out[8192:].any()


def test_steps_divide_those_merged():
    history = simple(saves=6)
    shortcut = history.shortcut(history.segments[1:])
    merged = [[step_size_of(int(scale)) for scale in s.edge.columns.shift] for s in history.segments[1:]]
    assert len({tuple(steps) for steps in merged}) > 1
    divisors = [math.gcd(*steps) for steps in zip(*merged, strict=True)]
    assert [step_size_of(int(scale)) for scale in shortcut.edge.columns.shift] == divisors
    for name in ("grid", "digest", "scale"):
        mine, own = (getattr(e.columns, name) for e in (shortcut.edge, history.segments[-1].edge))
        np.testing.assert_array_equal(mine, own)


def test_several_chunks_side_by_side_are_the_same_bytes():
    from concurrent.futures import ThreadPoolExecutor

    history = simple(saves=4, shape=(1500, 1000))
    merging = history.merger(history.segments[1:])
    jobs = merging.jobs()
    assert len(jobs) > 2
    with ThreadPoolExecutor(4) as pool:
        made = [chunk for chunks in pool.map(lambda job: job(), jobs) for chunk in chunks]
    merging.prove()
    one_by_one = history.shortcut(history.segments[1:])
    assert {(c.pool, c.op, c.index): c.data for c in made} == one_by_one.chunks


def test_whoever_leaves_out_a_chunk_cannot_prove_the_merge():
    history = simple(saves=4, shape=(1500, 1000))
    merging = history.merger(history.segments[1:])
    for job in merging.jobs()[1:]:
        job()
    with pytest.raises(CorruptionError, match=r"'w0'.*from the digest of the base"):
        merging.prove()


@pytest.mark.parametrize(
    "made", ["lcstore.edges.sumframes.encode_any", "lcstore.edges.merge.encode_lossless"]
)
def test_a_frame_that_does_not_decode_to_the_sum_is_not_given_out(monkeypatch, made):
    history = simple(e0=lambda i: np.array([7.5 if i else 1.5]))
    module, name = made.rsplit(".", 1)
    right = getattr(importlib.import_module(module), name)

    def wrong(given):
        values = given.whole.copy() if isinstance(given, Pieces) else given.copy()
        values[values.size // 2 if values.size > 16 else 0] += 1
        return right(Pieces.of(values) if isinstance(given, Pieces) else values)

    monkeypatch.setattr(made, wrong)
    with pytest.raises(CorruptionError, match=r"frame made of chunk 0 of pool '(weights|plain)-float"):
        history.shortcut(history.segments[1:])


@pytest.mark.parametrize("at", ["base", "target"])
def test_digests_of_both_ends_are_proved(at):
    history = simple()
    history.segments[0 if at == "base" else -1].edge.columns.digest[1] += np.uint64(1)
    with pytest.raises(CorruptionError, match="'w1'"):
        history.shortcut(history.segments[1:])


def test_an_anchors_value_must_have_the_digest_committed():
    history = simple()
    history.segments[-1].edge.columns.digest[0] ^= np.uint64(2)
    with pytest.raises(CorruptionError, match=r"value of tensor \('w0',\) does not have the digest"):
        history.shortcut(history.segments)


def test_what_is_kept_must_be_as_the_base_has_it():
    history = simple(e0=lambda i: np.array([3]))
    history.segments[0].edge.columns.digest[2] += np.uint64(1)
    with pytest.raises(CorruptionError, match="'e0'"):
        history.shortcut(history.segments[1:])


def test_from_the_root_everything_must_be_set():
    history = simple()
    history.segments[0].base = 0
    path = history.segments[1:]
    path[0].base = ROOT
    with pytest.raises(CorruptionError, match="nothing on the path sets"):
        history.shortcut(path)


def test_a_base_that_lacks_the_tensor_is_refused():
    history = simple()
    history.segments[0].edge = History().save({"w1": np.ones((64, 64), np.float32)}).edge
    with pytest.raises(CorruptionError, match=r"nothing on the path sets tensor \('w0',\)"):
        history.shortcut(history.segments[1:])


def test_a_tensor_that_an_edge_between_lacks_does_not_come_from_before_it():
    rng, history = np.random.default_rng(0), History()
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    for state in ({"w0": a, "w1": b}, {"w0": a + 1}, {"w0": a, "w1": b}):
        history.save(state)
    history.segments[-1].edge.columns.op[1] = ADD  # as no writer says of a tensor that came back
    for compose in (history.values, history.shortcut):
        with pytest.raises(CorruptionError, match=r"nothing on the path sets tensor \('w1',\)"):
            compose(history.segments if compose == history.values else history.segments[1:])


def test_own_is_for_shortcuts_alone():
    columns = Columns.empty(2)
    columns.op[1] = OWN
    with pytest.raises(CorruptionError, match="operation"):
        Columns.from_bytes(columns.to_bytes(), 2, key="node")
    assert Columns.from_bytes(columns.to_bytes(), 2, key="edge", shortcut=True).op.tolist() == [KEEP, OWN]
    columns.op[1] = OWN + 1
    with pytest.raises(CorruptionError, match="operation"):
        Columns.from_bytes(columns.to_bytes(), 2, key="edge", shortcut=True)


@pytest.mark.parametrize("own", ["none", "keeps"])
def test_a_shortcut_needs_an_own_edge_that_sets(own):
    history = simple(e0=lambda i: np.array([i]))
    anchor = history.shortcut(history.segments)
    wrong = None
    if own == "keeps":
        columns = Columns.from_bytes(history.segments[-1].edge.columns.to_bytes(), 3, key="")
        columns.op[2] = KEEP
        wrong = edge_of(anchor.edge.layout, columns, {})
    anchor.edge = edge_of(anchor.edge.layout, anchor.edge.columns, anchor.chunks, wrong)
    with pytest.raises(CorruptionError, match=r"\('e0',\).*own edge that does not set it"):
        history.values([anchor])


@pytest.mark.parametrize("kind", ["narrow", "wide", "anchor", "bfloat16", "float64", "exact"])
def test_a_job_stays_within_its_bytes(kind):
    rng, history = np.random.default_rng(0), History()
    dtype = histories.DTYPES[{"bfloat16": 2, "float64": 4}.get(kind, 0)]
    values = rng.standard_normal((4 << 20) // 1024 * 4 * 1024).astype(np.float32).reshape(-1, 1024)
    scales = {"wide": (1e-6, 1e-1), "exact": (1, 1)}.get(kind, (1e-4, 1e-4))
    name = "e0" if kind == "exact" else "w0"
    for scale in (0, *scales):
        values = values + rng.standard_normal(values.shape).astype(np.float32) * np.float32(scale)
        history.save({name: values.astype(dtype), "w1": np.ones((ALIGN, 2), np.float32)})
    if kind == "exact":
        history.save({name: values.astype(dtype), "w1": np.ones((ALIGN, 2), np.float32)})
    path = history.segments if kind == "anchor" else history.segments[1:]
    for at, segment in enumerate(path):  # bytes that are fetched are the job's
        edge = segment.edge
        fetch = lambda *name, get=edge.fetch: (data := get(*name)) and bytes(bytearray(data))  # noqa: E731
        path[at] = Segment(segment.base, segment.target, replace(edge, fetch=fetch), segment.chunks)
    merging = history.merger(path)
    bound = bytes_per_job(history.segments[-1].edge.layout)
    jobs = merging.jobs()
    jobs[1]()  # compiled
    tracemalloc.start()
    try:
        made = jobs[0]()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made
    assert peak < bound, f"{peak / (bound - (16 << 20)) * 6:.2f} chunks"
