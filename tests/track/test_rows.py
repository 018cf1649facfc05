"""No row is ruined: every row's relative error is bounded, however far rows differ in scale."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from edge_histories import History, same_bits
from hypothesis import given
from hypothesis import strategies as st
from states import tracked
from test_rate import Follower, walk

import lcstore
from lcstore.edges import sumframes as sums
from lcstore.errors import InvalidInputError
from lcstore.frames.frame import parse_frame
from lcstore.state.tree import flatten
from lcstore.storage.memory import MemoryBackend
from lcstore.track import smallrows as rows
from lcstore.track.policy import PRESETS, Policy
from lcstore.track.smallrows import TURNS
from lcstore.track.steptable import block_of


def at_any_price(policy):
    """A policy that says what its rows may be off by: it holds, whatever it costs."""
    return replace(policy, row_error=policy.row_error_of(("w",), policy.error))


BALANCED = at_any_price(PRESETS["balanced"])


def off_by(left: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The relative error of each row; 0 where there is nothing, and nothing is off."""
    count = len(value) if value.size > len(value) else 1
    left, value = (a.astype(np.float64).reshape(count, -1) for a in (left, value))
    errors, sizes = np.linalg.norm(left, axis=1), np.linalg.norm(value, axis=1)
    return np.divide(errors, sizes, out=np.where(errors > 0, np.inf, 0.0), where=sizes > 0)


def table(rng, count=2000, width=16, decades=4, share=0.1, dtype=np.float32):
    """Rows that differ 10**(decades - 1) times in scale, in any order; each is another after some time."""
    scale = 10.0 ** -rng.integers(0, decades, count)[:, None]
    value = rng.standard_normal((count, width)) * scale
    while True:
        yield value.astype(dtype)
        value = value * np.sqrt(1 - share**2) + rng.standard_normal(value.shape) * scale * share


def worst_of(policy, states, saves, dtype=np.float64):
    """Save states; give the largest error of a row in any save but the first, and the bytes per save."""
    follower, found, nbytes = Follower(policy), 0.0, 0
    for save in range(saves):
        now = next(states)
        follower.save({"w": now})
        if save:
            found = max(found, off_by(follower.left("w", now).astype(dtype), now).max())
            nbytes += follower.size
    return found, nbytes / (saves - 1)


@pytest.mark.parametrize("preset", ["high", "balanced", "small"])
@pytest.mark.parametrize("split", [1 << 20, 1 << 12])
def test_rows_a_thousand_times_smaller_than_their_neighbours_are_kept(preset, split, monkeypatch):
    monkeypatch.setattr(rows, "SPLIT", split)
    policy = at_any_price(PRESETS[preset])
    worst, _ = worst_of(policy, table(np.random.default_rng(1)), 110)
    assert worst <= policy.row_error_of(("w",), policy.error)
    unbounded, _ = worst_of(replace(policy, row_error=None), table(np.random.default_rng(1)), 110)
    assert unbounded > 2


@pytest.mark.parametrize(
    ("dtype", "width"),
    [(np.float32, 2), (np.float32, 7), (np.float32, 96), (np.float32, 700), (np.float64, 16),
     (ml_dtypes.bfloat16, 16), (np.float16, 16)],
)  # fmt: skip
def test_rows_of_any_width_and_dtype_are_kept(dtype, width):
    states = table(np.random.default_rng(2), 1200 if width < 100 else 200, width, 3, dtype=dtype)
    worst, _ = worst_of(Policy(row_error=0.3), states, 30)
    assert worst <= 0.3


@given(
    seed=st.integers(0, 1 << 30),
    width=st.sampled_from([3, 16, 31, 64, 100, 1500]),
    bound=st.sampled_from([0.05, 0.25, 0.5, 1.0]),
    error=st.sampled_from([0.7, 1.0, 2.0, 8.0]),
    octaves=st.integers(0, 16),
)
def test_whatever_rows_do_their_error_is_bounded_once_they_are_looked_at(seed, width, bound, error, octaves):
    rng = np.random.default_rng(seed)
    count = 300
    follower = Follower(Policy(error=error, row_error=bound))
    for _ in range(2):  # with the first delta all rows are looked at
        value = rng.standard_normal((count, width)) * 2.0 ** -rng.uniform(0, octaves, count)[:, None]
        value[rng.random(count) < 0.05] = 0
        value = value.astype(np.float32)
        follower.save({"w": value})
    kept = np.sqrt(np.square(value, dtype=np.float64).mean(axis=1)) > 0
    assert off_by(follower.left("w", value), value)[kept].max() <= bound


def test_rows_of_zeros_need_nothing_and_rows_that_come_to_nothing_are_nothing():
    rng = np.random.default_rng(3)
    follower, value = Follower(BALANCED), rng.standard_normal((500, 16)).astype(np.float32)
    value[::10] = 0
    for save in range(40):
        value = value + (value != 0) * rng.standard_normal(value.shape).astype(np.float32) * np.float32(0.1)
        if save == 20:
            value[5::10] = 0
        follower.save({"w": value})
        left = follower.left("w", value)
        assert not left[::10].any()
        if save >= 20 + TURNS:
            assert not left[5::10].any()
            assert not follower.track.held.known[("w",)].norms.least.min() < 0.01


def test_a_row_that_shrinks_at_once_is_kept_again_once_its_turn_has_come():
    rng = np.random.default_rng(4)
    follower, value = Follower(BALANCED), rng.standard_normal((500, 16))
    scale, off = np.ones((500, 1)), []
    for save in range(60):
        if save == 20:
            scale[::25] = 1e-3
            value[::25] *= 1e-3
        value = value + rng.standard_normal(value.shape) * scale * 0.02
        now = value.astype(np.float32)
        follower.save({"w": now})
        off.append(off_by(follower.left("w", now), now).max())
    assert max(off[1:20]) <= 0.5
    assert max(off[20:]) > 0.5
    assert max(off[20 + TURNS :]) <= 0.5


def test_all_rows_are_looked_at_again_behind_an_anchor():
    rng, follower, size = np.random.default_rng(16), Follower(BALANCED), np.ones((500, 1))

    def state():
        value = size * (1 + 0.1 * rng.standard_normal((500, 16)))
        value[0, 0] = 5  # the grid stays
        return value.astype(np.float32)

    for _ in range(TURNS + 2):
        follower.save({"w": state()})
    size[1::25] = 1e-3
    track = follower.track
    unit = track.columns.grid[0]
    anchor = track.draft(track.layout, [state().reshape(-1)], BALANCED, anchor=True)
    for job in list(anchor.jobs):
        job()
    anchor.commit()
    assert track.columns.grid[0] == unit
    for _ in range(TURNS):
        size[1::25] *= 1.5
        now = state()
        follower.save({"w": now})
        assert off_by(follower.left("w", now), now).max() <= 0.5


def test_rows_that_shrink_steadily_are_kept_all_the_time():
    rng = np.random.default_rng(5)
    follower, shape, size = Follower(BALANCED), rng.standard_normal((500, 16)), np.ones((500, 1))
    for save in range(100):
        size[::25] *= 0.93  # 1,000 times in 95 saves
        shape = shape * 0.995 + rng.standard_normal(shape.shape) * 0.1
        now = (shape * size).astype(np.float32)
        follower.save({"w": now})
        if save:
            assert off_by(follower.left("w", now), now).max() <= 0.5


@pytest.mark.parametrize("shape", [(3000,), (3000, 1), (1, 3000)])
def test_a_tensor_of_one_dimension_and_a_column_are_one_row(shape):
    def states(rng):
        value = rng.standard_normal(3000)
        while True:
            yield value.astype(np.float32).reshape(shape)
            value = value * 0.6 + rng.standard_normal(3000) * 0.8

    free, _ = worst_of(Policy(error=1.0, row_error=None), states(np.random.default_rng(6)), 20)
    worst, _ = worst_of(Policy(error=1.0, row_error=0.25), states(np.random.default_rng(6)), 20)
    assert worst <= 0.25 < free


@pytest.mark.parametrize("preset", ["high", "balanced", "small"])
def test_ordinary_weights_pay_nothing(preset):
    policy = PRESETS[preset]
    bounded = worst_of(policy, walk(np.random.default_rng(7), (300, 256)), 20)
    assert bounded == worst_of(
        replace(policy, row_error=None), walk(np.random.default_rng(7), (300, 256)), 20
    )


def test_few_small_rows_cost_little_more_than_themselves():
    def states(small):
        rng = np.random.default_rng(8)
        scale = np.where(rng.random(4000) < small, 1e-3, 1.0)[:, None]
        value = rng.standard_normal((4000, 16)) * scale
        while True:
            yield value.astype(np.float32)
            value = value * 0.995 + rng.standard_normal(value.shape) * scale * 0.1

    _, none = worst_of(BALANCED, states(0.0), 20)
    worst, few = worst_of(PRESETS["balanced"], states(0.01), 20)
    assert worst <= 0.5
    assert few <= 1.3 * none


def seldom_touched(rng, count=20_000, width=16):
    """Rows of an embedding: few are touched with each save, the same ones often, and these grow large."""
    odds = 1 / np.arange(1, count + 1)
    value = rng.uniform(-1, 1, (count, width)) * 0.002
    value[0] = 2  # the grid stays
    while True:
        yield value.astype(np.float32)
        found, times = np.unique(rng.choice(count, count // 4, p=odds / odds.sum()), return_counts=True)
        value[found] += rng.standard_normal((found.size, width)) * 0.003 * np.sqrt(times)[:, None]


@pytest.mark.parametrize("preset", ["high", "balanced", "small"])
@pytest.mark.parametrize("states", [table, seldom_touched])
def test_a_bound_that_nobody_gave_costs_little(states, preset):
    policy = PRESETS[preset]
    _, none = worst_of(replace(policy, row_error=None), states(np.random.default_rng(9)), 20)
    _, auto = worst_of(policy, states(np.random.default_rng(9)), 20)
    worst, given = worst_of(at_any_price(policy), states(np.random.default_rng(9)), 20)
    assert none <= auto <= 1.3 * none
    assert given > 1.3 * none
    assert worst <= policy.row_error_of(("w",), policy.error)


def test_a_bound_that_nobody_gave_is_doubled_before_it_is_dropped_and_comes_back():
    rng = np.random.default_rng(10)
    policy, value = Policy(error=1.0), rng.standard_normal((4000, 16))
    value *= 2.0 ** -rng.integers(0, 5, 4000)[:, None]
    follower, found = Follower(policy), []
    for save in range(40):
        follower.save({"w": value.astype(np.float32)})
        found.append(follower.track.held.known[("w",)].doubled)
        moves = 0.2 if save < 20 else 0.002  # then rows are far from what they may be off by
        value = value + rng.standard_normal(value.shape) * moves
    assert max(found[5:20]) > 0
    assert found[-1] == 0


def test_a_rule_that_bounds_rows_holds_whatever_it_costs():
    policy = replace(PRESETS["small"], rules={"w": {"row_error": 0.5}})
    worst, _ = worst_of(policy, seldom_touched(np.random.default_rng(11)), 12)
    assert worst <= 0.5
    assert policy.gives_row_error(("w",))
    assert not policy.gives_row_error(("v",))


def test_rows_lie_in_few_blocks_of_others():
    for width in (*range(1, 5000, 7), 16, 32, 64, 384, 768, 1024, 4096, 50_304):
        block = block_of(width)
        assert block in {32, 64, 128, 256, 512, 1024}
        assert width <= 128 or block <= width / 4 or width % block == 0


def test_a_draft_of_steps_by_row_can_be_taken_back():
    states = table(np.random.default_rng(9))
    follower = Follower(BALANCED)
    for _ in range(5):
        follower.save({"w": next(states)})
    track = follower.track
    before = {name: pool.copy() for name, pool in track.pools.items()}
    flat = [host.array.reshape(-1) for _, host in flatten({"w": next(states)}).tensors]
    draft = track.draft(track.layout, flat, BALANCED, anchor=False)
    assert draft.coder.decided.tables[0].block < 1024
    assert all(parse_frame(job().data).block < 10 for job in list(draft.jobs))
    assert any((track.pools[name] != before[name]).any() for name in before)
    draft.roll_back()
    assert all((track.pools[name] == before[name]).all() for name in before)


def test_a_value_that_leaves_the_grid_undoes_the_steps_by_row_before_it():
    states = table(np.random.default_rng(10), 4000)
    follower = Follower(BALANCED)
    for _ in range(5):
        follower.save({"w": next(states)})
    track, value = follower.track, next(states)
    value[-1, -1] = np.inf
    before = {name: pool.copy() for name, pool in track.pools.items()}
    draft = track.draft(track.layout, [value.reshape(-1)], BALANCED, anchor=False)
    assert draft.coder.decided.tables[0].block < 1024
    assert [job() for job in list(draft.jobs)] == [None]
    assert draft.off_grid == {0}
    assert all((track.pools[name] == before[name]).all() for name in before)
    draft.roll_back()


def test_edges_of_blocks_of_unlike_size_merge_to_the_same_bits():
    rng = np.random.default_rng(11)
    small, plain = table(rng), walk(rng, (64, 48))
    history = History(BALANCED)
    for save in range(8):
        # From the fourth save on every row is alike, and blocks are of the usual size again.
        now = next(small) if save < 4 else rng.standard_normal((2000, 16)).astype(np.float32)
        history.save({"w0": now, "w1": next(plain)})
    blocks = {parse_frame(data).block for s in history.segments[1:] for data in s.chunks.values()}
    assert len(blocks) > 1
    for low, high in ((1, 8), (1, 4), (3, 7), (0, 8)):
        short = history.shortcut(history.segments[low:high])
        path = [*history.segments[:low], short]
        assert same_bits(history.values(path), history.values(history.segments[:high]))


def test_a_sum_keeps_the_steps_of_blocks_where_it_pays(monkeypatch):
    states, history = table(np.random.default_rng(12)), History(BALANCED)
    for _ in range(8):
        history.save({"w0": next(states)})
    sizes = []
    for pays in (sums._pays, lambda *_: False):
        monkeypatch.setattr(sums, "_pays", pays)
        short = history.shortcut(history.segments[1:])
        sizes.append(sum(map(len, short.chunks.values())))
        assert same_bits(history.values([history.segments[0], short]), history.values(history.segments))
    assert sizes[0] <= 0.8 * sizes[1]


def test_a_store_tells_the_worst_row_and_keeps_the_bound_when_resumed_compacted_and_touched():
    backend, states, rng = MemoryBackend.fresh(), table(np.random.default_rng(13), 250), None
    path = "model/table.weight"

    def state(value):
        return {"model": {"table.weight": value, "other.weight": np.ones((40, 40), np.float32)}}

    def worst(value, held):
        return off_by(
            value - np.frombuffer(tracked(held)[path], np.float32).reshape(value.shape), value
        ).max()

    with lcstore.open(backend, policy=BALANCED) as store:
        assert store.save(0, state(next(states))).row_error is None
        for step in range(1, 12):
            value = next(states)
            info = store.save(step, state(value))
            assert info.row_error == pytest.approx(worst(value, store), rel=1e-5)
            assert info.row_error_at == path
            assert store.info(step).row_error == info.row_error <= 0.5
    with lcstore.open(backend, policy=BALANCED) as store:
        store.resume(11)
        for step in range(12, 20):
            value = next(states)
            assert store.save(step, state(value)).row_error <= 0.5
            assert worst(value, store) <= 0.5
        rng = np.random.default_rng(14)
        for step in range(20, 40):
            chosen = rng.choice(250, 30, replace=False)
            value = value.copy()
            value[chosen] = next(states)[chosen]
            store.save(step, state(value), touched={path: chosen})
            assert worst(value, store) <= 0.5
        before = [store.restore(step)["model"]["table.weight"].tobytes() for step in range(40)]
        assert store.compact().planned
        assert before == [store.restore(step)["model"]["table.weight"].tobytes() for step in range(40)]
        store.policy = replace(store.policy, row_error=None)
        assert store.save(40, state(next(states))).row_error is None


def test_a_row_that_shrinks_to_next_to_nothing_has_an_error_that_is_a_number():
    rng, backend = np.random.default_rng(17), MemoryBackend.fresh()
    value = rng.standard_normal((60, 8))
    with lcstore.open(backend, policy=BALANCED) as store:
        for step in range(4):
            value += 0.05 * rng.standard_normal(value.shape)
            store.save(step, {"model": {"a.weight": value}})
        value[7], value[7, 0] = 0, 1e-157  # whose square, in grid units, is hardly above zero
        found = [store.save(step, {"model": {"a.weight": value}}).row_error for step in range(4, 12)]
    assert 1e100 < max(filter(None, found)) < np.inf
    with lcstore.open(backend, policy=BALANCED) as store:
        assert store.info(4).row_error == found[0]


def test_rules_give_paths_their_own_bound():
    policy = Policy(
        row_error=None,
        rules={
            "fine*": {"row_error": 0.1},
            "f*": {"error": 0.5},
            "kept": "weights",
            "k*": {"row_error": 0.2},
        },
    )
    assert policy.row_error_of(("fine",), 0.5) == 0.1
    assert policy.error_of(("fine",)) == 0.5
    assert policy.row_error_of(("free",), 0.5) is None
    assert policy.row_error_of(("kept",), 1) is None
    assert policy.row_error_of(("keep",), 1) == 0.2
    follower, states = Follower(policy), [table(np.random.default_rng(15), 400) for _ in range(2)]
    for _ in range(40):
        now = {name: next(one) for name, one in zip(("fine", "other"), states, strict=True)}
        follower.save(now)
    assert off_by(follower.left("fine", now["fine"]), now["fine"]).max() <= 0.1
    assert off_by(follower.left("other", now["other"]), now["other"]).max() > 0.5


@pytest.mark.parametrize(
    ("error", "bound"), [(0.1, 0.25), (0.35, 0.25), (1.0, 0.5), (1.5, 0.75), (2.0, 1), (8, 1)]
)
def test_a_bound_that_nobody_gives_goes_by_the_error(error, bound):
    assert Policy(error=error).row_error_of(("w",), error) == bound
    ruled = Policy(rules={"w": {"error": error, "row_error": bound}})
    follower, states = Follower(ruled), table(np.random.default_rng(16), 400)
    for _ in range(30):
        now = next(states)
        follower.save({"w": now})
    assert 0.5 * bound <= off_by(follower.left("w", now), now).max() <= bound


@pytest.mark.parametrize("wrong", [0, -1, 9, True, "0.5", float("nan")])
def test_a_bound_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidInputError, match="row_error"):
        Policy(row_error=wrong)
    with pytest.raises(InvalidInputError, match="row_error"):
        Policy(rules={"a": {"row_error": wrong}})
