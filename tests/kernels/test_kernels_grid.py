"""The grid pass against its twin, and its laws: what moved can be taken back, and additions wrap."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lcstore.compiling.status import RANGE
from lcstore.edges.grid import largest
from lcstore.kernels import advance as fused
from lcstore.kernels import grid

KINDS = [(np.float32, np.int32, 28), (np.float64, np.int64, 58)]
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 1e-45, 5e-324, 3e38]


def a_state(rng, size, kind, spread, outliers, special):
    """Values near a track, of which a few are far and a few are strange."""
    float_type, int_type, top = kind
    track = rng.integers(-(1 << (top - 1)), 1 << (top - 1), size).astype(int_type)
    state = (track + np.rint(rng.normal(0, spread, size))).astype(float_type)
    if outliers and size:
        state[rng.integers(0, size, outliers)] = float_type(1 << (top - 1))
    if special is not None and size:
        state[rng.integers(0, size)] = special
    return state, track


def run_advance(state, track, room, scale, zone, start, inverse=1.0, limit=None, escaped=0):
    track, levels = track.copy(), np.zeros(state.size, np.int8)
    escapes, out = np.zeros(room, np.int64), np.zeros(1, np.uint64)
    kind = state.dtype.type
    step = twins.step_size_of(scale)
    parts = np.array([[0, state.size, 0]])
    steps = np.array([step]), np.array([1 / step], kind), np.array([1 - zone], kind)
    result = fused.advance(
        parts, *steps, state, track, levels, escapes, escaped, kind(inverse), kind(limit), start, out
    )
    return result, track, levels, escapes, out


@given(
    seed=st.integers(0, 1 << 30),
    size=st.sampled_from([0, 1, 2, 1023, 1024, 1025, 2500]),
    kind=st.sampled_from(KINDS),
    spread=st.sampled_from([0.0, 0.6, 40.0, 5e4]),
    outliers=st.sampled_from([0, 0, 1, 5]),
    special=st.sampled_from([None, None, *SPECIAL]),
    scale=st.builds(lambda shift, odd: shift + 64 * odd, st.integers(0, 12), st.integers(0, 3)),
    zone=st.floats(0.5, 1),
    room=st.sampled_from([0, 1, 1024, 5000]),
    start=st.sampled_from([0, 5, 1 << 33]),
)
def test_advance_is_its_twin(seed, size, kind, spread, outliers, special, scale, zone, room, start):
    state, track = a_state(np.random.default_rng(seed), size, kind, spread, outliers, special)
    limit = float(1 << kind[2])
    result, moved, levels, escapes, out = run_advance(state, track, room, scale, zone, start, limit=limit)
    step = twins.step_size_of(scale)
    wanted = twins.advance(state, track, room, 0, kind[0](1), limit, step, 1 / step, 1 - zone, start)
    assert result == wanted[0]
    np.testing.assert_array_equal(moved, wanted[1])
    np.testing.assert_array_equal(levels, wanted[2])
    if result >= 0:
        assert escapes[:result].tolist() == wanted[3]
    assert int(out[0]) == wanted[4]


@given(
    seed=st.integers(0, 1 << 30),
    kind=st.sampled_from(KINDS),
    spread=st.sampled_from([0.6, 40.0, 5e4]),
    outliers=st.sampled_from([0, 3]),
    special=st.sampled_from([None, np.nan]),
    scale=st.sampled_from([0, 1, 7, 12, 64, 70, 131, 196]),
)
def test_what_advance_moved_can_be_taken_back(seed, kind, spread, outliers, special, scale):
    state, track = a_state(np.random.default_rng(seed), 3000, kind, spread, outliers, special)
    result, moved, levels, escapes, out = run_advance(
        state, track, 4096, scale, 0.5, 0, limit=float(1 << kind[2])
    )
    far = np.flatnonzero(levels == fused.ESCAPE)
    assert result == RANGE or result == far.size
    plain = levels.copy()
    plain[far] = 0
    scales = np.full(3, scale, np.int16)
    assert (twins.digest(track, 0) + int(out[0])) & twins.MASK64 == twins.digest(moved, 0)
    grid.add_levels(plain, far, escapes[: far.size], scales, 1024, -1, moved)
    np.testing.assert_array_equal(moved, track)


@given(
    st.integers(0, 1 << 30),
    st.integers(0, 3000),
    st.sampled_from([0.5, 0.75, 1.0]),
    st.sampled_from([1, 4, 10, 66, 136, 199]),
)
def test_the_error_left_is_below_the_dead_zone(seed, size, zone, scale):
    state, track = a_state(np.random.default_rng(seed), size, KINDS[1], 300.0, 0, None)
    step = twins.step_size_of(scale)
    _, moved, *_ = run_advance(state, track, size, scale, zone, 0, limit=2.0**58)
    assert np.all(np.abs(state.astype(np.int64) - moved) <= max(zone, 0.5) * step)


def test_a_grid_below_one_uses_the_states_own_precision():
    state = np.array([0.1, -0.3, 0.7], np.float32)
    track = np.zeros(3, np.int32)
    result, moved, *_ = run_advance(state, track, 8, 0, 0.5, 0, inverse=2.0**20, limit=2.0**28)
    assert result == 3
    np.testing.assert_array_equal(moved, np.rint(state * np.float32(2**20)).astype(np.int32))


@given(
    seed=st.integers(0, 1 << 30),
    size=st.sampled_from([0, 1, 31, 32, 33, 100]),
    wide=st.booleans(),
    kind=st.sampled_from([np.int32, np.int64]),
    sign=st.sampled_from([1, -1]),
)
def test_add_levels_is_its_twin_and_wraps(seed, size, wide, kind, sign):
    rng = np.random.default_rng(seed)
    info = np.iinfo(kind)
    track = rng.integers(info.min, info.max, size, kind, endpoint=True)
    levels = (
        rng.integers(-(1 << 61), 1 << 61, size) if wide else rng.integers(-127, 128, size).astype(np.int8)
    )
    scales = rng.integers(0, info.bits - 1, -(-size // 32)).astype(np.int16)
    scales += 64 * rng.integers(0, 4, scales.size).astype(np.int16)
    places = np.sort(rng.permutation(size)[: size // 4])
    escapes = rng.integers(-(1 << 61), 1 << 61, places.size)
    levels[places] = 0
    moved = track.copy()
    assert grid.add_levels(levels, places, escapes, scales, 32, sign, moved) == 0
    np.testing.assert_array_equal(moved, twins.add_levels(levels, places, escapes, scales, 32, sign, track))
    grid.add_levels(levels, places, escapes, scales, 32, -sign, moved)
    np.testing.assert_array_equal(moved, track)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", [None, *SPECIAL])
def test_to_grids_is_its_twin_of_each_piece(kind, special):
    values = np.random.default_rng(4).normal(size=100).astype(kind[0])
    if special is not None:
        with np.errstate(over="ignore"):
            values[57] = special
    track, limit = np.full(100, -7, kind[1]), kind[0](2.0 ** kind[2])
    at, size, inverses = (
        np.array([3, 20, 50, 90]),
        np.array([9, 30, 10, 0]),
        np.array([8, 1, 1 << 20, 2], kind[0]),
    )
    pieces = [*zip(at, size, inverses, strict=True)]
    wanted = [twins.to_grid(values[low : low + n], inverse, limit) for low, n, inverse in pieces]
    done = grid.to_grids(values, at, size, inverses, limit, track)
    assert done == (wanted.index(None) if None in wanted else 4)
    for (low, n, _), rounded in zip(pieces[:done], wanted, strict=False):
        assert track[low : low + n].tolist() == rounded
    assert (track[[2, 12, 19, 60, 99]] == -7).all()


def pieces_of(track, data):
    """Draw pieces of an array, rising, with gaps between: where each begins, and how many it has."""
    cuts = sorted(data.draw(st.lists(st.integers(0, track.size), max_size=8)))
    ends = [*zip(cuts[::2], cuts[1::2], strict=False)]
    return np.array([[low, high - low] for low, high in ends], np.int64).reshape(-1, 2).T.copy()


@given(npst.arrays(st.sampled_from([np.int32, np.int64]), st.integers(0, 50)), st.data())
def test_from_grids_is_its_twin(track, data):
    at, size = pieces_of(track, data)
    scales = np.array([2.0 ** data.draw(st.integers(-160, 60)) for _ in at])
    pieces = [(track[low : low + n], scale) for low, n, scale in zip(at, size, scales, strict=True)]
    for dtype in (np.float32, np.float64):
        out = np.zeros(size.sum(), dtype)
        grid.from_grids(track, at, size, scales, out)
        each = [twins.from_grid(piece, scale, dtype) for piece, scale in pieces]
        np.testing.assert_array_equal(out, np.concatenate([[], *each]).astype(dtype))
    patterns = np.zeros(size.sum(), np.uint16)
    grid.from_grids_bfloat16(track, at, size, scales, patterns)
    each = [twins.bfloat16_bits(piece * scale) for piece, scale in pieces]
    np.testing.assert_array_equal(patterns, np.concatenate([[], *each]).astype(np.uint16))


def test_bfloat16_ties_go_to_even_and_the_largest_overflow():
    track = np.array([0b1_0000_0001 << 8, 0b1_0000_0011 << 8, -(0b1_0000_0001 << 8)], np.int64)
    out, whole = np.zeros(3, np.uint16), (np.array([0]), np.array([3]))
    grid.from_grids_bfloat16(track, *whole, np.array([1.0]), out)
    assert (out & 1).tolist() == [0, 0, 0]
    grid.from_grids_bfloat16(np.full(3, (1 << 31) - 1, np.int64), *whole, np.array([2.0**97]), out)
    assert out.tolist() == [0x7F80] * 3


def test_the_largest_bfloat16_is_found_among_bits():
    values = np.array([0.5, -3.0, 1.0], ml_dtypes.bfloat16)
    assert largest(values) == 3.0
    for special in (np.nan, -np.nan, np.inf, -np.inf):
        values[1] = special
        assert largest(values) == np.inf


@given(
    st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
        lambda t: npst.arrays(t, st.integers(0, 30), elements=st.floats(width=8 * np.dtype(t).itemsize))
    )
)
def test_largest_pattern_is_its_twin_and_that_of_the_largest_magnitude(values):
    patterns = values.view(f"u{values.itemsize}")
    out = np.ones(1, patterns.dtype)
    grid.largest_pattern(patterns, (1 << (8 * values.itemsize - 1)) - 1, out)
    assert out[0] == (np.abs(values).view(patterns.dtype)).max(initial=0)
    assert largest(values) == twins.magnitude(values)


@given(
    seed=st.integers(0, 1 << 30),
    size=st.sampled_from([0, 1, 1024, 1025, 2500]),
    kind=st.sampled_from(KINDS),
    other=st.booleans(),
)
def test_is_at_sees_any_difference(seed, size, kind, other):
    rng = np.random.default_rng(seed)
    track = rng.integers(-(1 << 20), 1 << 20, size).astype(kind[1])
    state = track.astype(kind[0]) / 4
    other = other and size > 0
    if other:
        state[rng.integers(0, size)] += rng.choice([-1, 1, np.nan])
    assert grid.is_at(state, kind[0](4), kind[0](2.0 ** kind[2]), track) is not other


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_nowhere_on_the_grid(kind, value):
    for held in (0, np.iinfo(kind[1]).min, np.iinfo(kind[1]).max):
        state, track = np.full(3, value, kind[0]), np.full(3, held, kind[1])
        assert not grid.is_at(state, kind[0](4), kind[0](2.0 ** kind[2]), track)
