"""Lossy only where it is known to be safe: everything else comes back bit for bit, whatever it holds."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from states import leaves, same

import lcstore
from lcstore import Policy
from lcstore.format import keys
from lcstore.graph.lines import line_to
from lcstore.state.tree import flatten
from lcstore.storage.memory import MemoryBackend
from lcstore.track.policy import PRESETS
from lcstore.write.entries import SMALL_SHARE, layout_entries


def roles_of(state, policy=PRESETS["balanced"]):
    return {entry.name[-1]: entry.role for entry in layout_entries(flatten(state), policy, set())}


def test_what_is_not_recognised_is_exact():
    big = np.ones((200, 300), np.float32)
    state = {
        "model": {
            "layer.weight": big,
            "layer.bias": big[0],
            "bn.running_mean": big,
            "bn.running_var": big,
            "bn.num_batches_tracked": np.array(3),
            "attn.mask": big,
            "quant.scales": big,
            "embed.weight": big.astype(np.int64),
            "pos_ids": big,
        },
        "something": {"unknown": big},
    }
    roles = roles_of(state)
    assert {name for name, role in roles.items() if role != "plain"} == {"layer.weight"}


def test_small_tensors_are_exact_while_they_are_few():
    big = np.ones((2000, 500), np.float32)
    small = np.ones((4, 8), np.float32)
    few = {"model": {"a.weight": big, **{f"s{i}.weight": small for i in range(3)}}}
    assert roles_of(few)["s0.weight"] == "plain"
    many = {"model": {"a.weight": big, **{f"s{i}.weight": small for i in range(1000)}}}
    roles = roles_of(many)
    exact = sum(role == "plain" for role in roles.values())
    assert 0 < exact < 1000
    assert exact * small.nbytes <= SMALL_SHARE * 0.11 * (big.size + 1000 * small.size)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("negative", [1, 2])
def test_zeros_keep_their_sign_in_an_anchor(dtype, negative):
    zeros = np.zeros((64, 64), dtype)
    zeros.reshape(-1)[::negative] = -0.0
    rng = np.random.default_rng(0)
    with lcstore.open(MemoryBackend.fresh()) as store:
        other = rng.standard_normal((64, 64)).astype(dtype)
        assert store.save(0, {"a.weight": zeros, "b.weight": other}).exact
        assert store.restore(0)["a.weight"].tobytes() == zeros.tobytes()
        moved = rng.standard_normal((64, 64)).astype(dtype)
        for step in range(1, 4):
            store.save(step, {"a.weight": moved, "b.weight": other})
            there = store.restore()["a.weight"]
            assert np.abs(there.astype(float) - moved.astype(float)).max() < 1e-6
        store.compact()
        assert store.restore(0)["a.weight"].tobytes() == zeros.tobytes()
        assert store.verify("restore").ok


def test_of_one_dimension_moments_alone_come_back_changed():
    """Biases, gains and their averages are exact; so are short moments, and groups that are not known."""
    rng = np.random.default_rng(0)
    w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((400, 300), 300))
    group = {"step": np.float32(3), "exp_avg": -b, "exp_avg_sq": b * b}
    short = {"exp_avg": -b[:8], "exp_avg_sq": b[:8] ** 2}
    kept = {0: {"exp_avg": -w, "exp_avg_sq": w * w}, 1: group, 2: {"ax": -b}, 3: short, 4: {"sum": b * b}}
    kept[5] = {"square_avg": b * b, "grad_avg": -b}
    state = {"model": {"fc.weight": w, "fc.bias": b, "norm.weight": 2 * b}, "optim": {"state": kept}}
    for policy in ("high", "balanced", "small"):
        store = lcstore.open(MemoryBackend.fresh(), policy=policy)
        for step in range(2):
            store.save(step, state)
        before, after = leaves(state), leaves(store.restore())
        changed = {name for name in before if before[name].tobytes() != after[name].tobytes()}
        moments = {f"optim/state/#{n}/{name}" for n in (0, 1) for name in ("exp_avg", "exp_avg_sq")}
        assert changed - {"model/fc.weight"} == {*moments, "optim/state/#4/sum"}
        octaves = np.log2(after["optim/state/#1/exp_avg_sq"] / before["optim/state/#1/exp_avg_sq"])
        assert np.abs(octaves).max() < 1.5 * PRESETS[policy].second_moment + 0.15
    store = lcstore.open(MemoryBackend.fresh(), policy={"optim/state/#1/*": "plain"})
    store.save(0, state)
    after = leaves(store.restore())
    assert all(after[name].tobytes() == before[name].tobytes() for name in before if "/#1/" in name)


def test_small_tensors_are_exact_before_moments_of_one_dimension_are():
    big, small, vector = (np.ones(shape, np.float32) for shape in ((2000, 500), (8, 24), 48))
    kept = {"exp_avg": small.copy(), "exp_avg_sq": small.copy()}
    vectors = {"exp_avg": vector.copy(), "exp_avg_sq": vector.copy()}
    state = {"model": {"a.weight": big}, "optim": {"state": {0: vectors}}}

    def roles(state):
        entries = layout_entries(flatten(state), PRESETS["balanced"], set())
        return {"/".join(map(str, entry.name[2:])): entry.role for entry in entries[1:]}

    assert set(roles(state).values()) == {"plain"}
    state["optim"]["state"][1] = kept
    assert roles(state) == {
        "0/exp_avg": "first_moment",
        "0/exp_avg_sq": "second_moment",
        "1/exp_avg": "plain",
        "1/exp_avg_sq": "plain",
    }


def test_a_run_goes_on_from_a_store_in_which_moments_of_one_dimension_are_plain():
    rng, backend = np.random.default_rng(0), MemoryBackend.fresh()
    w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((200, 300), 300))

    def state(step):
        kept = {0: {"exp_avg": w * step, "exp_avg_sq": w * w}, 1: {"exp_avg": b * step, "exp_avg_sq": b * b}}
        return {"model": {"fc.weight": w + step / 100, "fc.bias": b + step}, "optim": {"state": kept}}

    store = lcstore.open(backend, policy={"optim/state/#1/*": "plain"})
    for step in range(1, 4):
        store.save(step, state(step))
    before = leaves(store.restore(3))
    store = lcstore.open(backend, policy="balanced")
    assert same(store.resume(), store.restore(3))
    assert [store.save(step, state(step)).kind for step in range(4, 7)] == ["delta"] * 3
    moments = {f"optim/state/#1/{name}": name for name in ("exp_avg", "exp_avg_sq")}
    assert [store.paths(3)[path][2] for path in moments] == ["plain"] * 2
    assert [store.paths(6)[path][2] for path in moments] == ["first_moment", "second_moment"]
    after = leaves(store.restore(6))
    store.compact()
    assert store.verify("restore").ok
    assert all(value.tobytes() == before[name].tobytes() for name, value in leaves(store.restore(3)).items())
    assert all(value.tobytes() == after[name].tobytes() for name, value in leaves(store.restore(6)).items())
    assert after["model/fc.bias"].tobytes() == (b + 6).tobytes()


def test_a_policy_widens_and_narrows():
    big = np.ones((200, 300), np.float32)
    state = {"model": {"layer.weight": big, "table": big.copy()}}
    assert roles_of(state, Policy(rules={"model/layer.weight": "plain"}))["layer.weight"] == "plain"
    assert roles_of(state, Policy(rules={"model/table": "weights"}))["table"] == "weights"


def test_numbers_that_no_grid_holds_make_a_tensor_exact_until_they_are_gone_for_some_saves(run):
    backend = MemoryBackend.fresh()
    store = lcstore.open(backend)
    for step in range(3):
        store.save(step, run.step())
    for step, poison in enumerate([np.nan, None, np.inf, 3e38, *[None] * 10], start=3):
        state = run.step()
        if poison is not None:
            state["model"]["fc1.weight"] = state["model"]["fc1.weight"].copy()
            state["model"]["fc1.weight"][5, 7] = poison
        info = store.save(step, state)
        assert info.kind == "delta"
        back = store.restore(step)
        assert store.paths(step)["model/fc1.weight"][2] == ("plain" if step < 8 else "weights")
        assert same(back["model"]["fc1.weight"], state["model"]["fc1.weight"]) or step >= 8
        for name in ("fc1.weight", "embed.weight"):
            np.testing.assert_allclose(back["model"][name], state["model"][name], atol=0.02)
    state["model"]["fc1.weight"] = np.full_like(state["model"]["fc1.weight"], np.nan)
    store.save(20, state)
    other = lcstore.open(backend)
    other.resume()
    other.save(21, run.step())
    assert store.paths(21)["model/fc1.weight"][2] == "weights"


def test_moments_that_are_not_finite_or_negative_are_exact(run):
    store = lcstore.open(MemoryBackend.fresh())
    state = run.step()
    state["optim"]["state"][0]["exp_avg"][0, 0] = np.nan
    state["optim"]["state"][0]["exp_avg_sq"][0, 0] = -1.0
    store.save(0, state)
    back = leaves(store.restore(0))
    for name in ("exp_avg", "exp_avg_sq"):
        path = f"optim/state/#0/{name}"
        assert back[path].tobytes() == leaves(state)[path].tobytes()


@pytest.mark.parametrize("policy", ["high", "balanced", "small"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.float16])
def test_a_second_moment_is_never_zero_where_it_was_not(run, policy, dtype):
    store = lcstore.open(MemoryBackend.fresh(), policy=policy)
    state = run.step()
    moments = state["optim"]["state"]
    least = -7 if dtype == np.float16 else -44
    logs = np.random.default_rng(0).uniform(least, 3, moments[0]["exp_avg_sq"].shape)
    v = moments[0]["exp_avg_sq"] = (10.0**logs).astype(dtype)
    v[3], v[:, 5] = 0, 0
    moments[1]["exp_avg_sq"] = moments[1]["exp_avg_sq"].astype(dtype)
    store.save(0, state)
    restored = store.restore(0)["optim"]["state"]
    back = restored[0]["exp_avg_sq"]
    assert back.dtype == v.dtype
    np.testing.assert_array_equal(back == 0, v == 0)
    normal = v.astype(np.float64) > (1e-4 if dtype == np.float16 else 1e-36)
    octaves = np.log2(back[normal].astype(np.float64) / v[normal].astype(np.float64))
    step = max(PRESETS[policy].second_moment, 1 / 16)
    assert -octaves.min() < 0.6 * step + 0.15
    assert octaves.max() < min(1.5 * step, 6) + 0.15
    for index in (1, 2):
        assert restored[index]["exp_avg_sq"].dtype == moments[index]["exp_avg_sq"].dtype
        np.testing.assert_array_equal(restored[index]["exp_avg_sq"] == 0, moments[index]["exp_avg_sq"] == 0)


@pytest.mark.parametrize("policy", ["high", "balanced", "small"])
@pytest.mark.parametrize(
    ("others", "field"),
    [
        (["square_avg"], "acc_delta"),
        (["prev"], "step_size"),
        (["exp_avg"], "exp_inf"),
        ([], "sum"),
        (["exp_avg", "exp_avg_sq"], "max_exp_avg_sq"),
    ],
)
def test_what_never_forgets_or_is_no_divisor_comes_back_neither_too_large_nor_too_small(
    policy, others, field
):
    """Adadelta multiplies with one, Rprop's is the step itself, Adagrad's and AMSGrad's never fall."""
    store = lcstore.open(MemoryBackend.fresh(), policy=policy)
    v = (10.0 ** np.random.default_rng(0).uniform(-24, 3, (90, 70))).astype(np.float32)
    kept = {name: np.ones_like(v) for name in others} | {field: v}
    store.save(0, {"optim": {"state": {0: kept}, "param_groups": []}})
    assert store.paths()[f"optim/state/#0/{field}"][2] == "second_moment"
    back = store.restore(0)["optim"]["state"][0][field]
    octaves = np.abs(np.log2(back.astype(np.float64) / v.astype(np.float64)))
    assert octaves.max() < 0.6 * min(PRESETS[policy].second_moment / 2, 2) + 0.15


arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.float16]),
    hnp.array_shapes(min_dims=2, max_dims=3, max_side=12),
    elements=st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e-3, 6e4, 6e-8, np.inf, -np.inf, np.nan]),
)


@given(st.lists(arrays, min_size=1, max_size=4))
def test_any_values_as_weights(values):
    """Under the lossless policy bits are kept; under any policy an anchor keeps them."""
    for policy in ("lossless", "balanced"):
        store = lcstore.open(MemoryBackend.fresh(), policy=policy, threads=1)
        for step, value in enumerate(values):
            store.save(step, {"model": {"a.weight": value}})
            back = store.restore(step)["model"]["a.weight"]
            if policy == "lossless":
                assert back.tobytes() == value.tobytes()
            elif step == 0 or value.shape != values[step - 1].shape or value.dtype != values[step - 1].dtype:
                np.testing.assert_array_equal(back, value)


@pytest.mark.parametrize("exact", [False, True])
@given(data=st.data())
def test_exact_leaves_and_tensors_of_any_kind(exact, data):
    state = {
        "ints": data.draw(hnp.arrays(np.int64, st.integers(0, 50))),
        "bools": data.draw(hnp.arrays(np.bool_, (3, 4))),
        "floats": data.draw(hnp.arrays(np.float64, st.integers(0, 30))),
        "value": data.draw(
            st.one_of(st.floats(), st.integers(), st.text(), st.binary(), st.none(), st.booleans())
        ),
    }
    store = lcstore.open(MemoryBackend.fresh(), threads=1)
    for step in range(2):
        store.save(step, state, exact=exact)
        back = store.restore(step)
        for name in ("ints", "bools", "floats"):
            assert back[name].tobytes() == state[name].tobytes()
        assert back["value"] == state["value"] or state["value"] != state["value"]


@pytest.mark.parametrize("path_is_gone", [False, True])
@pytest.mark.parametrize("has_values", [False, True])
def test_a_run_goes_on_from_an_exact_value_of_which_the_delta_is_damaged(run, path_is_gone, has_values):
    """As a preempted job leaves it: its last state has every bit, whatever became of the track."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        for step in range(4):
            store.save(step, state := run.step(), exact=step == 3)
        folder = keys.edge_folder(store._index.record(store.info(3 - path_is_gone).node).edge.id)
        for key in backend.list(folder):
            if "weights" in key and "/c." in key and ".exact" not in key:
                backend.delete(key)
    with lcstore.open(backend) as again:
        go_on = again.go_on_from if has_values else again.resume
        with pytest.warns(lcstore.FallbackWarning, match="the next save sets everything anew"):
            back = go_on()
        assert has_values or same(back, state)
        assert again.step == 3
        assert [again.save(step, run.step()).kind for step in (4, 5)] == ["anchor", "delta"]
    with lcstore.open(backend, "r") as reader:
        assert reader.restore()["model"].keys() == state["model"].keys()
        assert same(reader.restore(3), state)
        line = line_to(reader._index.graph, reader.info().node)
        assert [name.step for name in line] == [0, 1, 2, 3, 4, 5]
    with lcstore.open(backend) as again:  # a run that goes on from before has what followed let go of
        again.rewind(0)
        again.save(10, run.step())
        again.retain("latest:1")
        assert {4, 5}.isdisjoint(again.steps())
