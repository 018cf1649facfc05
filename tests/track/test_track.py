"""The track: it moves by what readers get, comes back when a draft is rolled back, and never runs away."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lcstore
from lcstore.dtypes import dtype_name
from lcstore.edges.columns import ADD, COLUMNS, EXACT, KEEP, SET, Columns, joined
from lcstore.edges.compose import Composer
from lcstore.edges.edge import Edge
from lcstore.layout.layout import Layout, make_layout
from lcstore.state.tree import flatten
from lcstore.storage.memory import MemoryBackend
from lcstore.track.policy import PRESETS, Policy
from lcstore.track.track import Track

BALANCED = PRESETS["balanced"]


def layout_of(arrays: dict[str, np.ndarray], roles: dict[str, str], parent: Layout | None = None) -> Layout:
    flat = flatten(arrays)
    entries = [
        (
            path,
            host.array.shape,
            dtype_name(host.array.dtype),
            roles.get(str(path[0]), "weights"),
            host.framework,
        )
        for path, host in flat.tensors
    ]
    return make_layout(flat.structure, entries, parent)


class Saver:
    """Runs drafts and keeps the edges, as a store would."""

    def __init__(self, policy: Policy = BALANCED, roles: dict[str, str] | None = None) -> None:
        self.track = Track()
        self.policy = policy
        self.roles = roles or {}
        self.edges: list[Edge] = []
        self.sizes: list[int] = []

    def draft(self, arrays: dict[str, np.ndarray], *, anchor: bool = False, reset=frozenset(), exact=False):
        layout = layout_of(arrays, self.roles, self.track.layout)
        flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays.values()]
        anchor = anchor or not self.edges
        return self.track.draft(layout, flat, self.policy, anchor=anchor, reset=reset, exact=exact)

    def save(self, arrays: dict[str, np.ndarray], *, anchor: bool = False, exact: bool = False):
        reset: set = set()
        while True:
            draft = self.draft(arrays, anchor=anchor, reset=reset, exact=exact)
            chunks = [] if draft.off_grid else [job() for job in draft.jobs]
            if not draft.off_grid:
                break
            draft.roll_back()
            reset |= {draft.layout.tensors[t].name for t in draft.off_grid}
        stored = {(c.pool, c.op, c.index): c.data for c in chunks if c is not None}
        draft.commit()
        edge = Edge(
            draft.layout, draft.columns, lambda p, o, c: stored.get((p, o, c)), lambda p, o, c: f"{p}.{o}/{c}"
        )
        self.edges = [edge] if anchor or not self.edges else [*self.edges, edge]
        self.sizes.append(sum(map(len, stored.values())))
        return draft

    def restore(self) -> list[np.ndarray]:
        layout = self.track.layout
        everything = range(len(layout.tensors))
        composer = Composer(self.edges, layout, self.track.columns, everything)
        for job in composer.jobs():
            job()
        return [composer.values(t).reshape(layout.tensors[t].shape) for t in everything]


def walk(rng, shape, dtype, scale=1e-3):
    value = rng.standard_normal(shape) * 0.1
    while True:
        yield value.astype(dtype)
        value = value + rng.standard_normal(shape) * scale


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_the_track_follows_in_every_dtype(dtype):
    rng = np.random.default_rng(0)
    saver, states = Saver(), walk(rng, (100, 70), dtype, 4e-3)
    for _ in range(12):
        state = next(states)
        draft = saver.save({"w": state})
    assert list(draft.columns.op) == [ADD]
    (back,) = saver.restore()
    assert back.dtype == state.dtype
    gap = np.linalg.norm(back.astype(np.float64) - state.astype(np.float64))
    assert gap < 2 * np.sqrt(state.size) * 4e-3
    assert saver.sizes[-1] * 10 < state.size * 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_grid_values_are_rounded_once(dtype):
    from fractions import Fraction

    from lcstore.edges import grid

    rng = np.random.default_rng(1)
    name = dtype_name(np.dtype(dtype))
    bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[name]
    integers = rng.integers(-(1 << 29), 1 << 29, 500).astype(grid.track_dtype(name))
    integers[:40] = (1 << 28) + np.arange(40)  # close to ties
    out = grid.empty_values(integers.size, name)
    grid.from_grid(integers, -30, name, out)
    for n, value in zip(integers.tolist(), out.astype(np.float64).tolist(), strict=True):
        exact = Fraction(n, 1 << 30)
        if name == "float16" and abs(exact) < Fraction(1, 1 << 13):
            continue  # subnormal halves have fewer bits
        unit = Fraction(2) ** (max(abs(n).bit_length(), 1) - 30 - bits)
        assert abs(Fraction(value) - exact) <= unit / 2


def test_rollback_is_exact():
    rng = np.random.default_rng(2)
    states = [walk(rng, shape, np.float32) for shape in ((300, 40), (50, 50), (7,))]
    saver = Saver(roles={"c": "plain"})

    def following():
        return dict(zip("abc", (next(s) for s in states), strict=True))

    for _ in range(3):
        saver.save(following())
    before = {name: pool.copy() for name, pool in saver.track.pools.items()}
    for kwargs in ({}, {"exact": True}, {"reset": {("a",)}}):
        draft = saver.draft(following(), **kwargs)
        for job in draft.jobs:
            job()
        assert any((before[n] != p).any() for n, p in saver.track.pools.items())
        draft.roll_back()
        assert all((before[n] == p).all() for n, p in saver.track.pools.items())
    last = following()
    saver.save(last)
    np.testing.assert_allclose(saver.restore()[0], last["a"], atol=0.01)
    np.testing.assert_array_equal(saver.restore()[2], last["c"])


def test_a_partly_run_draft_rolls_back_too():
    rng = np.random.default_rng(3)
    saver, states = Saver(), walk(rng, (2048, 1024), np.float32)
    saver.save({"w": next(states)})
    saver.save({"w": next(states)})
    before = saver.track.pools["weights-float32"].copy()
    draft = saver.draft({"w": next(states)})
    assert len(draft.jobs) > 1
    draft.jobs[0]()
    draft.roll_back()
    assert (saver.track.pools["weights-float32"] == before).all()


def test_a_tensor_that_outgrows_its_grid_is_set_anew():
    rng = np.random.default_rng(4)
    saver = Saver()
    a, b = (rng.standard_normal((80, 80)).astype(np.float32) for _ in range(2))
    saver.save({"a": a, "b": b})
    saver.save({"a": a + 0.01, "b": b})
    draft = saver.save({"a": a * 100, "b": b + 0.01})
    assert list(draft.columns.op) == [EXACT, ADD]
    draft = saver.save({"a": a * 101, "b": b + 0.02})
    assert list(draft.columns.op) == [ADD, ADD]
    back = saver.restore()
    assert np.linalg.norm(back[0] - a * 101) < 3 * np.linalg.norm(a)
    assert np.linalg.norm(back[1] - b - 0.02) < 3 * 0.01 * 80


@pytest.mark.parametrize("largest", [3500, 32_000])
def test_finite_float16_stays_finite_however_it_grows(largest):
    """A grid had room for four times what float16 can hold: what was off by a little came back infinite."""
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((64, 64)) * largest / 4).clip(-largest, largest).astype(np.float16)
    with lcstore.open(MemoryBackend.fresh(), policy=Policy(1.0, row_error=None)) as store:
        for step in range(24):
            store.save(step, {"model": {"weight": weights}})
            assert np.isfinite(store.restore(step)["model"]["weight"]).all()
            grown = weights.astype(np.float64) * 1.1 + rng.standard_normal(weights.shape) * largest / 10
            weights = grown.clip(-65504, 65504).astype(np.float16)


def test_growth_that_the_sample_misses_is_met_while_coding():
    rng = np.random.default_rng(5)
    saver = Saver()
    a = rng.standard_normal((300, 300)).astype(np.float32)
    saver.save({"a": a})
    b = a.copy()
    b.flat[77_777] = 1e6
    draft = saver.save({"a": b})
    assert list(draft.columns.op) == [EXACT]
    assert saver.restore()[0].flat[77_777] == np.float32(1e6)


def test_an_outlier_is_escaped_and_does_not_starve_the_rest():
    rng = np.random.default_rng(6)
    saver = Saver()
    a = rng.standard_normal((300, 300)).astype(np.float32)
    noise = rng.standard_normal((4, 300, 300)).astype(np.float32) * 1e-4
    saver.save({"a": a})
    saver.save({"a": a + noise[0]})
    b = a + noise[0] + noise[1]
    b.flat[5] += 1.0
    saver.save({"a": b})
    (back,) = saver.restore()
    assert abs(back.flat[5] - b.flat[5]) < 1e-2
    assert np.linalg.norm((back - b).flat[6:]) < 2 * np.linalg.norm(noise[1])


def test_zeros_begin_without_a_grid():
    saver = Saver()
    zero = np.zeros((64, 64), np.float32)
    draft = saver.save({"a": zero})
    assert list(draft.columns.op) == [SET]
    assert saver.sizes == [0]
    draft = saver.save({"a": zero})
    assert saver.sizes == [0, 0]
    value = np.full((64, 64), 0.5, np.float32)
    assert list(saver.save({"a": value}).columns.op) == [EXACT]
    np.testing.assert_array_equal(saver.restore()[0], value)


def test_unchanged_exact_tensors_cost_nothing():
    saver = Saver(roles={"e": "plain"})
    e = np.arange(5000)
    saver.save({"e": e})
    draft = saver.save({"e": e.copy()})
    assert list(draft.columns.op) == [KEEP]
    assert saver.sizes[1] == 0
    np.testing.assert_array_equal(saver.restore()[0], e)


def test_an_unchanged_state_costs_about_nothing_and_its_residual_comes_in():
    rng = np.random.default_rng(7)
    saver, states = Saver(), walk(rng, (256, 256), np.float32)
    for _ in range(4):
        last = next(states)
        saver.save({"w": last})
    gaps = []
    for _ in range(48):
        saver.save({"w": last})
        gaps.append(np.linalg.norm(saver.restore()[0] - last))
    assert gaps[-1] < gaps[0] / 1000
    assert max(saver.sizes[4:]) * 8 < last.size
    assert saver.sizes[-1] == 0


def errors_of(saver, states, saves, first):
    """Return the errors of saves from the `first` on."""
    errors = []
    for i in range(saves):
        draft = saver.draft({"w": next(states)})
        for job in draft.jobs:
            job()
        if i >= first:
            errors.append(draft.tracking()[0])
        draft.commit()
        saver.edges.append(None)
    return errors


def test_error_does_not_grow():
    rng = np.random.default_rng(8)
    errors = errors_of(Saver(), walk(rng, (128, 128), np.float32), 120, 2)
    assert np.mean(errors[-20:]) < 1.15 * np.mean(errors[10:30])
    assert max(errors[5:]) < 1.6


@pytest.mark.parametrize(
    ("preset", "low", "high"), [("high", 0.2, 0.55), ("balanced", 0.7, 1.45), ("small", 1.4, 2.9)]
)
def test_presets_keep_their_error(preset, low, high):
    rng = np.random.default_rng(9)
    errors = errors_of(Saver(PRESETS[preset]), walk(rng, (200, 200), np.float32), 30, 9)
    assert low < np.mean(errors) < high


def test_update_scale_falls_at_once_and_rises_slowly():
    from lcstore.track.stepsizes import RISE, choose_step_size, follow

    assert follow(1.0, 0.01) == 0.01
    assert follow(1.0, 100.0) == RISE
    assert follow(0.0, 3.0) == 3.0
    assert follow(1.0, 0.0) == 1.0
    kept = choose_step_size(1.0, 1.0, -20, None, 26).scale
    for factor in (0.9, 1.0, 1.1):  # hysteresis: the step stays
        assert choose_step_size(factor, 1.0, -20, kept, 26).scale == kept
    assert choose_step_size(8.0, 1.0, -20, kept, 26).scale == kept + 3
    assert choose_step_size(1e9, 1.0, -20, kept, 26).scale == 26
    assert choose_step_size(1e-30, 1.0, -20, kept, 26).scale == 0


def test_an_update_scale_that_fell_for_a_save_or_two_is_at_once_what_it_was():
    from lcstore.track.known import Known
    from lcstore.track.stepsizes import RISE

    def followed(known, scale, *moves):
        for moved in moves:
            scale, known = known.follow(scale, moved, rows=False)
            yield round(scale, 6)

    new = Known(np.zeros(4))
    assert list(followed(new, 0.01, 0.02, 1.0, 5.0, 50.0)) == [0.02, 1.0, 5.0, 5.0 * RISE]
    old = new._replace(before=0.0, left=0)
    assert list(followed(old, 1.0, 0.02, 1.0, 3.0)) == [0.02, 1.0, RISE]
    assert list(followed(old, 1.0, 0.02, 0.01, 4.0)) == [0.02, 0.01, 1.0]
    # What lasts is no pair of saves that are close together.
    assert list(followed(old, 1.0, 0.02, 0.02, 0.02, 0.02, 1.0)) == [0.02] * 4 + [0.02 * RISE]


@pytest.mark.parametrize("resumed", [False, True])
def test_after_two_saves_close_together_deltas_are_as_before(resumed):
    rng, backend = np.random.default_rng(0), MemoryBackend.fresh()
    weight, sizes = rng.standard_normal((256, 256)).astype(np.float32), []
    store = lcstore.open(backend, threads=1)
    for step, moved in enumerate([1e-3] * 9 + [2e-5] + [1e-3] * 3):
        weight = weight + np.float32(moved) * rng.standard_normal(weight.shape).astype(np.float32)
        if resumed and step == 9:
            store = lcstore.open(backend, threads=1)
            store.resume()
        sizes.append(store.save(step, {"model": {"weight": weight}}).bytes_stored)
    assert max(sizes[10:]) < 1.1 * sizes[8]


def test_a_lossless_policy_keeps_every_bit():
    from lcstore.write.entries import layout_entries

    flat = flatten({"model": {"a.weight": np.ones((64, 64), np.float32)}})
    (entry,) = layout_entries(flat, PRESETS["lossless"], set())
    assert entry.role == "plain"


def test_rules_go_before_names():
    policy = Policy(rules={"ema/**": "plain", "x/*": "weights"})
    assert policy.role(("ema", "w"), "weights") == "plain"
    assert policy.role(("x", "w"), "plain") == "weights"
    bad = [{"error": 100.0}, {"first_moment": 0.29}, {"second_moment": 0.05}, {"second_moment": 16}]
    for kwargs in (*bad, {"second_moment": 0}, {"second_moment": float("nan")}, {"rules": {"a": "lossy"}}):
        with pytest.raises(ValueError, match=r"policy|rule"):
            Policy(**kwargs)


@given(st.data())
def test_columns_round_trip(data):
    count = data.draw(st.integers(0, 20))
    columns = Columns.empty(count)
    columns.op[:] = data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    columns.digest[:] = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count))
    columns.moved[:] = data.draw(st.lists(st.sampled_from([0, 0.5]), min_size=count, max_size=count))
    stored = columns.to_bytes()
    assert ("moved" in stored) == columns.moved.any()
    at = data.draw(st.integers(0, count))
    parts = [columns.rows(0, at).to_bytes(), columns.rows(at, count).to_bytes()]
    assert joined(parts) == stored
    back = Columns.from_bytes(stored, count, key="k")
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(columns, name), getattr(back, name))


def test_hostile_columns():
    from lcstore import CorruptionError

    good = Columns.empty(3).to_bytes()
    for bad in (
        {},
        {**good, "op": b"\x00"},
        {**good, "op": b"\x09\x00\x00"},
        {**good, "more": b""},
        {**good, "moved": b"\x00"},
        {name: column for name, column in good.items() if name != "scale"},
        {**good, "grid": np.full(3, 5000, "<i2").tobytes()},
    ):
        with pytest.raises(CorruptionError):
            Columns.from_bytes(bad, 3, key="k")


def test_a_wrong_digest_is_noticed():
    from lcstore import CorruptionError

    rng = np.random.default_rng(10)
    saver, states = Saver(), walk(rng, (64, 64), np.float32)
    saver.save({"w": next(states)})
    saver.save({"w": next(states)})
    saver.track.columns.digest[0] += 1
    with pytest.raises(CorruptionError, match="digest"):
        saver.restore()
