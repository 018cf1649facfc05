"""Sizes and errors of rows, and parts on steps of their own, against their twins."""

from __future__ import annotations

import numpy as np
import twins
from hypothesis import given
from hypothesis import strategies as st
from test_kernels_grid import KINDS, SPECIAL, a_state

from lcstore.kernels import rows
from lcstore.kernels.advance import advance


@given(
    seed=st.integers(0, 1 << 30),
    dtype=st.sampled_from([np.float32, np.float64]),
    ahead=st.booleans(),
    special=st.sampled_from([None, np.nan, np.inf]),
)
def test_sizes_are_noted_as_by_their_twin(seed, dtype, ahead, special):
    rng = np.random.default_rng(seed)
    means = np.square(rng.standard_normal(50) * 10.0 ** rng.integers(-3, 4, 50)).astype(dtype)
    means[rng.integers(0, 50)] = 0 if special is None else special
    size = np.where(rng.random(50) < 0.3, np.nan, 10.0 ** rng.integers(-3, 4, 50)).astype(np.float32)
    size[rng.integers(0, 50)] = 0
    found, least = size.copy(), np.full(50, -1, np.float32)
    gone = rows.note_sizes(means, dtype(8), 0.5, ahead, found, least)
    wanted = twins.note_sizes(means, 8, 0.5, ahead, size)
    np.testing.assert_array_equal(found, wanted[0])
    np.testing.assert_array_equal(least, wanted[1])
    assert gone == wanted[2]


@given(
    seed=st.integers(0, 1 << 30),
    kind=st.sampled_from(KINDS),
    width=st.sampled_from([1, 5, 64]),
    every=st.sampled_from([1, 3]),
)
def test_errors_of_rows_are_those_of_their_twin(seed, kind, width, every):
    rng = np.random.default_rng(seed)
    state, track = a_state(rng, 20 * width, kind, 5.0, 1, None)
    state[:width] = 0
    chosen, out = rng.integers(0, 20, 9), np.zeros(9)
    chosen[0] = 0
    assert rows.misses(state, track, width, chosen, every, 0.5, out) == 0
    np.testing.assert_allclose(out, twins.misses(state, track, width, chosen, every, 0.5), rtol=1e-12)


@given(
    seed=st.integers(0, 1 << 30),
    size=st.sampled_from([0, 1, 1025, 4000]),
    kind=st.sampled_from(KINDS),
    spread=st.sampled_from([0.6, 40.0, 5e4]),
    outliers=st.sampled_from([0, 5]),
    special=st.sampled_from([None, None, *SPECIAL]),
    room=st.sampled_from([0, 40, 1024, 2100, 5000]),
    cuts=st.lists(st.integers(0, 4000), max_size=12),
    sizes=st.integers(1, 5),
)
def test_parts_are_coded_as_if_each_were_alone_and_the_rest_is_left(
    seed, size, kind, spread, outliers, special, room, cuts, sizes
):
    rng = np.random.default_rng(seed)
    state, track = a_state(rng, size, kind, spread, outliers, special)
    cuts = sorted({min(cut, size) for cut in cuts})
    ranges = np.array(cuts[: len(cuts) // 2 * 2], np.int64).reshape(-1, 2)
    cut = np.column_stack((ranges, rng.integers(0, sizes, len(ranges))))
    limit, real = float(1 << kind[2]), kind[0]
    units = np.array([twins.step_size_of(int(s)) for s in rng.integers(0, 12, sizes)], np.int64)
    steps = units, (1 / units).astype(real), np.full(sizes, 0.4, real)
    moved, levels = track.copy(), np.zeros(size, np.int8)
    escapes, out = np.zeros(room, np.int64), np.zeros(1, np.uint64)
    result = advance(cut, *steps, state, moved, levels, escapes, 0, real(1), real(limit), 77, out)
    wanted = twins.advance_parts(cut.tolist(), units.tolist(), state, track, room, real(1), limit, 0.4, 77)
    assert result == wanted[0]
    np.testing.assert_array_equal(moved, wanted[1])
    np.testing.assert_array_equal(levels, wanted[2])
    assert int(out[0]) == wanted[4]
    outside = np.ones(size, bool)
    for low, high in ranges:
        outside[low:high] = False
    assert not levels[outside].any()
    if result >= 0:
        assert escapes[:result].tolist() == wanted[3]


def test_short_and_long_parts_come_to_the_same():
    rng = np.random.default_rng(0)
    state, track = a_state(rng, 4096, KINDS[0], 300.0, 9, None)
    found = []
    for length in (32, 4096):
        starts = np.arange(0, 4096, length)
        cut = np.stack((starts, starts + length, np.zeros_like(starts)), axis=1)
        moved, levels = track.copy(), np.zeros(4096, np.int8)
        escapes, out = np.zeros(9000, np.int64), np.zeros(1, np.uint64)
        one = np.float32(1)
        steps = np.array([4]), np.array([one / 4]), np.array([one / 2])
        advance(cut, *steps, state, moved, levels, escapes, 0, one, np.float32(2.0**28), 0, out)
        found.append((moved.tobytes(), levels.tobytes(), int(out[0])))
    assert found[0] == found[1]
