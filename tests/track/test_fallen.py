"""Weights that explode and come back: their grid is chosen anew, once, and errors are what was asked for."""

from itertools import pairwise

import numpy as np
import pytest

import lcstore
from lcstore.dtypes import dtype_from_name
from lcstore.edges import grid
from lcstore.edges.columns import EXACT
from lcstore.report.gather import gather
from lcstore.storage.memory import MemoryBackend

NAME = "model/fc.weight"


def walk(count: int, seed: int = 1):
    """Yield weights that move by 1e-3 from save to save."""
    rng = np.random.default_rng(seed)
    weight = 0.1 * rng.standard_normal((64, 128), dtype=np.float32)
    for _ in range(count):
        weight = weight + np.float32(1e-3) * rng.standard_normal(weight.shape, dtype=np.float32)
        yield weight


def saved(store, states, first=0) -> list[float]:
    """Save states one after another; return how far each came back off, in moves of 1e-3."""
    errors = []
    for step, weight in enumerate(states, first):
        store.save(step, {"model": {"fc.weight": weight}})
        off = store.read(step, NAME).astype(np.float64) - weight
        errors.append(float(np.sqrt(np.mean(off**2))) / 1e-3)
    return errors


def is_set(store, step: int) -> bool:
    """Return whether a save stored the weights exactly."""
    node = store._reader.node(store._index.refresh(full=True).at_step(step))
    return node.columns.op.tolist() == [EXACT]


@pytest.mark.parametrize(("policy", "most"), [("high", 0.5), ("balanced", 1.4)])
@pytest.mark.parametrize("factor", [1e3, 1e6, 1e8, 1e12])
def test_weights_that_explode_and_come_back_are_as_near_as_before(factor, policy, most):
    states = list(walk(25))
    for step in (8, 9, 10):
        states[step] = states[step] * np.float32(factor)
    with lcstore.open(MemoryBackend.fresh(), policy=policy) as store:
        errors = saved(store, states)
    assert max(errors[11:]) < most
    assert errors[11] < 1e-3 or factor < 1e6  # set exactly


@pytest.mark.parametrize("policy", ["high", "balanced", "small"])
@pytest.mark.parametrize("saves", [1, 3])
@pytest.mark.parametrize("factor", [10, 16, 128, 1e3, 1e5])
def test_the_first_state_after_an_explosion_is_not_off_by_a_part_of_the_way_back(factor, saves, policy):
    """It came back as noise of many times its size, off by what was asked for of the way from there."""
    rng, states = np.random.default_rng(0), list(walk(14))
    for step in range(8, 8 + saves):
        noise = 0.1 * factor * rng.standard_normal(states[0].shape)
        states[step] = states[step] + noise.astype(np.float32)
    with lcstore.open(MemoryBackend.fresh(), policy=policy) as store:
        errors = saved(store, states)
    assert max(errors[8 + saves :]) < 8  # weights are 100 moves large


@pytest.mark.parametrize("saves", [1, 3])
def test_rows_of_a_table_that_explode_and_come_back_are_not_off_by_the_way_back(saves):
    rng = np.random.default_rng(1)
    table = 0.02 * rng.standard_normal((4000, 16), dtype=np.float32)
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step in range(9):
            rows = rng.integers(0, 4000, 40)
            table = table.copy()
            table[rows] += np.float32(1e-3) * rng.standard_normal((40, 16), dtype=np.float32)
            store.save(step, {"model": {"emb.weight": table}})
        for again in range(saves):
            huge = table.copy()
            huge[rows] = 2 * rng.standard_normal((40, 16), dtype=np.float32)
            store.save(10 + again, {"model": {"emb.weight": huge}})
        store.save(20, {"model": {"emb.weight": table}})
        off = np.linalg.norm(store.read(20, "model/emb.weight") - table, axis=1)
    assert (off / np.linalg.norm(table, axis=1)).max() < 0.1


@pytest.mark.parametrize("value", [1e5, 1e7, 1e9])
def test_one_element_that_is_huge_for_one_save_leaves_nothing_behind(value):
    states = list(walk(20))
    states[8] = states[8].copy()
    states[8][3, 4] = value
    with lcstore.open(MemoryBackend.fresh()) as store:
        assert max(saved(store, states)[9:]) < 1.4


def test_weights_that_come_back_and_rest_come_in():
    first, *_ = walk(1)
    states = [first, first * np.float32(1e9), first, first, first]
    with lcstore.open(MemoryBackend.fresh()) as store:
        assert saved(store, states)[-1] < 1e-3


def test_a_handle_that_resumes_what_was_saved_on_a_coarse_grid_mends_it(monkeypatch):
    states = list(walk(20))
    states[5] = states[5] * np.float32(1e8)
    backend = MemoryBackend.fresh()
    with monkeypatch.context() as before, lcstore.open(backend) as store:
        before.setattr("lcstore.track.decide.has_fallen", lambda *_: False)
        before.setattr("lcstore.track.decide.is_replaced", lambda *_: False)
        assert saved(store, states[:12])[-1] > 50  # zeros
    with lcstore.open(backend) as store:
        store.resume()
        store.save(12, {"model": {"fc.weight": states[12]}})
        store.save(13, {"model": {"fc.weight": states[13]}})
        off = store.read(13, NAME) - states[13]
        assert np.sqrt(np.mean(off**2)) < 1.4e-3


def test_all_elements_are_looked_at_only_where_the_sample_has_none_that_is_large(monkeypatch):
    first, *_ = walk(1)
    looked: list[int] = []
    largest = grid.largest
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, {"model": {"fc.weight": first}})
        monkeypatch.setattr(grid, "largest", lambda flat: looked.append(flat.size) or largest(flat))
        for step in (1, 2, 3):  # at rest
            store.save(step, {"model": {"fc.weight": first}})
        assert not looked
        store.save(4, {"model": {"fc.weight": first * np.float32(1e-6)}})
    assert looked


def test_scales_next_to_the_largest_float_are_compared():
    huge = np.full((64, 128), 3e38, np.float64)
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step in range(4):
            store.save(step, {"model": {"fc.weight": huge * (1 - step / 4)}})
            assert np.isfinite(store.read(step, NAME)).all()


@pytest.mark.parametrize("kind", ["outlier", "zero", "decays"])
def test_weights_that_did_not_explode_are_not_stored_whole(kind):
    """An outlier stays, a layer is set to zero, or is halved with each save."""
    whole = 0
    with lcstore.open(MemoryBackend.fresh(), durability="none") as store:
        for step, weight in enumerate(walk(12)):
            given = weight.copy()
            if kind == "outlier":
                given[0, 0] = 1e4
            elif kind == "zero" and step > 5:
                given[:] = 0
            elif kind == "decays":
                given *= np.float32(0.5**step)
            info = store.save(step, {"model": {"fc.weight": given}})
            whole += info.bytes_stored > 0.5 * info.bytes_raw
    assert whole == 1  # the first save: an anchor


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_how_far_weights_moved_is_told_where_they_are_set_anew(odd):
    first, *_ = walk(1)
    infinite = first.copy()
    infinite[5] = odd
    drawn = 20 * np.random.default_rng(2).standard_normal(first.shape, dtype=np.float32)
    states = [first, first + np.float32(1e-3), drawn, infinite, drawn, drawn]
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step, weight in enumerate(states):
            store.save(step, {"model": {"fc.weight": weight}})
        facts = gather(store).tensors.tensors[0]
    scale = 2.0 ** (np.ceil(np.log2(np.abs(first).max())))
    far = float(np.sqrt(np.mean((drawn - states[1]) ** 2.0))) / scale
    assert facts.movement[2] == pytest.approx(far, rel=0.1)
    # From what is no number nothing can be said to have moved.
    assert facts.movement[:1] + facts.movement[3:5] == (None,) * 3


@pytest.mark.parametrize("policy", ["small", "balanced", "high"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("part", [0.5, 0.98])
def test_weights_that_are_pruned_are_zero_for_readers_and_stay_so(policy, dtype, part):
    """A mask that is made of what comes back is the mask. It costs one exact save."""
    states = list(walk(24))
    kept = np.random.default_rng(0).random(states[0].shape) >= part
    with lcstore.open(MemoryBackend.fresh(), policy=policy, durability="none") as store:
        for step, weight in enumerate(states):
            weight = weight if step < 9 else weight * kept
            weight = weight.astype(dtype_from_name(dtype))
            store.save(step, {"model": {"fc.weight": weight}})
            back = store.read(step, NAME)
            if step >= 9:
                assert not back[~kept].any()
                assert (back[kept] != 0).mean() > 0.99
        assert [step for step in range(24) if is_set(store, step)] == [0, 9]
        store.compact()
        assert not store.read(22, NAME)[~kept].any()


@pytest.mark.parametrize(("policy", "most"), [("small", 2.5), ("balanced", 1.4), ("high", 9.0)])
@pytest.mark.parametrize("part", [0.9, 1.0])
def test_weights_that_are_zero_in_one_save_come_back_as_near_as_before(policy, most, part):
    """The way back is no movement of training: nothing is to be off by a part of it, be it once."""
    states = list(walk(12))
    gone = np.random.default_rng(0).random(states[0].shape) < part
    states[6] = states[6] * ~gone
    with lcstore.open(MemoryBackend.fresh(), policy=policy, durability="none") as store:
        errors = saved(store, states)
    assert max(errors) < most


def test_weights_that_are_pruned_step_by_step_are_exact_now_and_then():
    states, off = list(walk(60)), []
    order = np.random.default_rng(0).permutation(states[0].size).reshape(states[0].shape)
    with lcstore.open(MemoryBackend.fresh(), durability="none") as store:
        for step, weight in enumerate(states):
            zero = order < 0.015 * step * order.size
            store.save(step, {"model": {"fc.weight": weight * ~zero}})
            off.append(store.read(step, NAME)[zero].astype(bool).sum() / order.size)
        anew = [step for step in range(60) if is_set(store, step)]
    assert anew[0] == 0
    assert anew[1] == next(step for step in range(60) if 0.015 * step > 1 / 16)
    assert [after - before for before, after in pairwise(anew[1:])] == [8, 16]
    assert max(off) < 0.015 * 33


def test_weights_of_which_others_are_zero_in_each_save_take_little_more():
    """As in training that prunes and grows again all the time."""
    sizes = []
    for pruned in (False, True):
        rng = np.random.default_rng(3)
        with lcstore.open(MemoryBackend.fresh(), durability="none") as store:
            for step, weight in enumerate(walk(100)):
                mask = rng.random(weight.shape) < 0.5 if pruned else 1
                store.save(step, {"model": {"fc.weight": weight * mask}})
            anew = [step for step in range(100) if is_set(store, step)]
        sizes.append(anew)
    assert sizes == [[0], [0, 1, 9, 25, 57]]


@pytest.mark.parametrize("policy", ["high", "balanced", "small"])
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("kind", ["reordered", "drawn anew", "other sign"])
def test_weights_that_were_replaced_are_no_mix_of_the_old_and_the_new(kind, resumed, policy):
    """A table whose rows got another order was off by 1.4 times its size for a save."""
    states, rng, backend = list(walk(8)), np.random.default_rng(2), MemoryBackend.fresh()
    order = rng.permutation(64)
    new = {
        "reordered": lambda weight: weight[order],
        "drawn anew": lambda weight: 0.1 * rng.standard_normal(weight.shape, dtype=np.float32),
        "other sign": np.negative,
    }[kind]
    replaced = new(states[4])
    states[4:] = [replaced + (weight - states[4]) for weight in states[4:]]
    with lcstore.open(backend, policy=policy) as store:
        errors = saved(store, states[:4])
        errors += [] if resumed else saved(store, states[4:], first=4)
    if resumed:
        with lcstore.open(backend, policy=policy) as store:
            store.resume()
            errors += saved(store, states[4:], first=4)
    with lcstore.open(backend, "r") as store:
        assert [is_set(store, step) for step in range(8)] == [step in (0, 4) for step in range(8)]
    assert errors[4] < 1e-3
    assert max(errors[5:]) < 5


@pytest.mark.parametrize("policy", ["high", "balanced", "small"])
@pytest.mark.parametrize("size", [0.1, 0.25, 0.3, 0.5, 0.66, 1.5, 2, 4, 7, 10])
def test_weights_that_are_drawn_anew_at_another_size_are_set(size, policy):
    """They were off by up to three times their size in the first save of a handle."""
    states, backend = list(walk(5)), MemoryBackend.fresh()
    drawn = np.random.default_rng(2).normal(scale=0.1 * size, size=states[0].shape).astype(np.float32)
    with lcstore.open(backend, policy=policy) as store:
        saved(store, states[:4])
    with lcstore.open(backend, policy=policy) as store:
        store.resume()
        assert saved(store, [drawn], first=4)[0] < 1e-3
        assert is_set(store, 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("policy", ["high", "balanced", "small"])
@pytest.mark.parametrize("part", [0.1, 0.4, 0.6, 0.9, 1.0])
def test_rows_that_change_places_come_back_as_those_that_they_are(part, policy, dtype):
    """Each was off by once to twice its size. Few of them do not have the whole table set."""
    rng, backend = np.random.default_rng(4), MemoryBackend.fresh()
    table = rng.standard_normal((4000, 16), dtype=np.float32).astype(dtype_from_name(dtype))
    with lcstore.open(backend, policy=policy, durability="none") as store:
        for step in range(3):
            store.save(step, {"model": {"emb.weight": table}})
            table = table.copy()
            table[rng.integers(0, 4000, 40)] += np.float32(0.01)
    with lcstore.open(backend, policy=policy, durability="none") as store:
        table = np.array(store.resume()["model"]["emb.weight"])
        rows = rng.choice(4000, int(part * 4000), replace=False)
        table[rows] = table[rng.permutation(rows)]
        info = store.save(3, {"model": {"emb.weight": table}})
        off = store.read(3, "model/emb.weight").astype(np.float64) - table
        assert is_set(store, 3) == (part > 0.5)
    off = np.linalg.norm(off, axis=1) / np.linalg.norm(table.astype(np.float64), axis=1)
    assert off.max() < 0.25
    assert part > 0.5 or info.bytes_stored < 0.2 * info.bytes_raw


@pytest.mark.parametrize("way", ["in noise", "turning", "decays", "to zero"])
def test_weights_that_training_takes_far_from_where_they_were_take_deltas(way):
    """All that was there is left, or its direction is."""
    first, *_ = walk(1)
    noise = 0.3 * np.random.default_rng(5).standard_normal(first.shape, dtype=np.float32)
    turned = np.float32(0.36) * first + np.float32(0.31) * noise
    after = {"in noise": first + noise, "turning": turned, "decays": first / 3, "to zero": 0 * first}[way]
    with lcstore.open(MemoryBackend.fresh()) as store:
        saved(store, [first, after])
        assert is_set(store, 1) == (way == "to zero")  # pruned


def test_weights_that_grow_from_zero_take_deltas():
    zero = np.zeros((64, 128), np.float32)
    grown = [zero, *(weight * np.float32(at) for at, weight in enumerate(walk(5), 1))]
    with lcstore.open(MemoryBackend.fresh()) as store:
        saved(store, grown)
        assert [is_set(store, step) for step in range(2, 6)] == [False] * 4
