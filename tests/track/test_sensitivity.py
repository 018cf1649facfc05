"""Errors divided by second moments: which moment is whose, what is kept on the whole, and what bounds it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lcstore
from lcstore.edges.columns import ADD
from lcstore.errors import InvalidInputError
from lcstore.layout.layout import Layout, make_layout
from lcstore.state.names import format_name
from lcstore.state.tree import flatten
from lcstore.storage.memory import MemoryBackend
from lcstore.track import stepsizes
from lcstore.track.budget import Budget
from lcstore.track.policy import PRESETS, Policy
from lcstore.track.sensitivity import LEAST, MOST, Sensitivity, divide, moments_of
from lcstore.write.entries import layout_entries

WEIGHTED = Policy(weighted=True)
SHAPES = {"embed.weight": (8, 6), "one.weight": (6, 6), "two.weight": (6, 6), "head.weight": (8, 6)}


def filled(shape, value=1.0):
    return np.full(shape, value, np.float32)


def planned(state, policy=WEIGHTED) -> tuple[Layout, list[np.ndarray]]:
    flat = flatten(state)
    layout = make_layout(flat.structure, layout_entries(flat, policy, set()), notes=flat.notes)
    return layout, [np.ascontiguousarray(host.array).reshape(-1) for _, host in flat.tensors]


def owners(state, policy=WEIGHTED) -> dict[str, str]:
    layout, _ = planned(state, policy)
    paths = [format_name(spec.name) for spec in layout.tensors]
    return {paths[weights]: paths[moment] for weights, moment in moments_of(layout).items()}


def model():
    return {name: filled(shape) for name, shape in SHAPES.items()}


def numbered(shapes, numbers=None):
    numbers = range(len(shapes)) if numbers is None else numbers
    slots = {
        n: {"step": 1, "exp_avg": filled(s), "exp_avg_sq": filled(s)}
        for n, s in zip(numbers, shapes, strict=True)
    }
    return {"state": slots, "param_groups": [{"lr": 0.1, "params": list(numbers)}]}


def test_numbered_moments_go_by_shape_and_order():
    found = owners({"model": model(), "optim": numbered(list(SHAPES.values()))})
    assert found == {f"model/{name}": f"optim/state/#{n}/exp_avg_sq" for n, name in enumerate(SHAPES)}


def test_numbers_count_not_the_order_in_which_they_are_stored():
    found = owners({"model": model(), "optim": numbered([*SHAPES.values()][::-1], [3, 2, 1, 0])})
    assert found["model/one.weight"] == "optim/state/#1/exp_avg_sq"
    assert found["model/two.weight"] == "optim/state/#2/exp_avg_sq"


def test_a_state_that_is_one_tensor_has_no_moments():
    assert owners(filled((6, 6)), replace(WEIGHTED, rules={"**": "weights"})) == {}


def test_where_one_is_missing_its_shape_is_left_out():
    found = owners({"model": model(), "optim": numbered([(8, 6), (6, 6), (6, 6)])})
    assert set(found) == {"model/one.weight", "model/two.weight"}


def test_an_average_of_the_weights_shares_their_moments():
    state = {"model": model(), "ema": model(), "optim": numbered(list(SHAPES.values()))}
    found = owners(state)
    assert found["ema/two.weight"] == found["model/two.weight"] == "optim/state/#2/exp_avg_sq"


def test_two_optimizers_of_the_same_shapes_are_nobodys():
    state = {"gen": {"model": model()}, "disc": {"model": model()}}
    state |= {"g_optim": numbered(list(SHAPES.values())), "d_optim": numbered(list(SHAPES.values()))}
    assert owners(state) == {}


def test_two_optimizers_of_different_shapes_are_told_apart():
    state = {"gen": {"w1.weight": filled((4, 5))}, "disc": {"w1.weight": filled((5, 4))}}
    state |= {"g_optim": numbered([(4, 5)]), "d_optim": numbered([(5, 4)])}
    assert owners(state) == {
        "gen/w1.weight": "g_optim/state/#0/exp_avg_sq",
        "disc/w1.weight": "d_optim/state/#0/exp_avg_sq",
    }


def test_named_moments_go_by_name_whatever_the_order():
    slots = {name: {"exp_avg": filled(s), "exp_avg_sq": filled(s)} for name, s in [*SHAPES.items()][::-1]}
    found = owners({"model": model(), "optim": {"state": slots}})
    assert found == {f"model/{name}": f"optim/state/{name}/exp_avg_sq" for name in SHAPES}


@pytest.mark.parametrize("wrapped", ["", "module.", "_orig_mod."])
@pytest.mark.parametrize("flat", [True, False])
def test_names_of_distributed_checkpoints(wrapped, flat):
    names = [f"{wrapped}{name}" for name in SHAPES]
    fields = {f"{name}/exp_avg_sq": filled(s) for name, s in zip(names, SHAPES.values(), strict=True)}
    if flat:
        state = {f"state.{field.replace('/', '.')}": value for field, value in fields.items()}
    else:
        state = {"state": {field.partition("/")[0]: {"exp_avg_sq": v} for field, v in fields.items()}}
    moment = "optim/state.{}.exp_avg_sq" if flat else "optim/state/{}/exp_avg_sq"
    wanted = {f"model/{name}": moment.format(f"{wrapped}{name}") for name in SHAPES}
    assert owners({"model": model(), "optim": state}) == wanted


def test_numbers_that_are_noted_go_by_what_the_optimizer_updates():
    torch = pytest.importorskip("torch")
    first, second = (torch.nn.Linear(6, 6, bias=False) for _ in range(2))
    optimizer = torch.optim.Adam([second.weight, first.weight])
    (first(torch.ones(1, 6)) + second(torch.ones(1, 6))).sum().backward()
    optimizer.step()
    found = owners({"first": first, "second": second, "optim": optimizer})
    moments = {name: f"optim/state/#{n}/exp_avg_sq" for n, name in enumerate(("second", "first"))}
    assert found == {f"{name}/weight": moment for name, moment in moments.items()}


def test_optax_keeps_the_parameters_path_behind_the_field():
    def layers():
        return {layer: {"kernel": filled((6, 6)), "bias": filled((6,))} for layer in ("a", "b", "c")}

    state = {"params": layers(), "opt_state": [{"count": 3, "mu": layers(), "nu": layers()}, {}]}
    assert owners(state) == {f"params/{x}/kernel": f"opt_state/#0/nu/{x}/kernel" for x in "abc"}


def test_nested_names_with_the_field_at_the_end_are_told_apart_by_more_parts():
    params = {layer: {"kernel": filled((6, 6))} for layer in ("a", "b")}
    slots = {layer: {"kernel": {"exp_avg_sq": filled((6, 6))}} for layer in ("b", "a")}
    state = {"params": params, "optim": slots}
    assert owners(state) == {f"params/{x}/kernel": f"optim/{x}/kernel/exp_avg_sq" for x in "ab"}


def test_moments_that_are_kept_exactly_count_too():
    state = {"model": model(), "optim": numbered(list(SHAPES.values()))}
    assert len(owners(state, replace(WEIGHTED, second_moment=None))) == len(SHAPES)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-15, 1e6)), min_size=1, max_size=30))
def test_the_weighted_sum_of_squares_is_kept_within_bounds(tensors):
    sizes, metric = (np.array(column, float) for column in zip(*tensors, strict=True))
    factors = divide(sizes, metric)
    assert (factors >= LEAST).all()
    assert (factors <= MOST).all()
    weights = sizes * metric
    assert (weights * factors**2).sum() == pytest.approx(weights.sum(), rel=1e-6)
    order = np.argsort(metric)
    assert (np.diff(factors[order]) <= 1e-9).all()  # the more sensitive, the less error
    inside = (factors > LEAST * 1.001) & (factors < MOST * 0.999)
    slopes = factors[inside] ** 2 * metric[inside]
    assert slopes.size == 0 or slopes.max() == pytest.approx(slopes.min(), rel=1e-6)


def sensitive(rng, saves, first=1e-6, second=1e-12, moments=True):
    """Two tensors that move alike, the first with the larger second moment."""
    values = [rng.standard_normal((64, 64)) for _ in range(2)]
    for _ in range(saves):
        values = [value + 1e-3 * rng.standard_normal(value.shape) for value in values]
        named = {name: v.astype(np.float32) for name, v in zip(("a.weight", "b.weight"), values, strict=True)}
        slots = {n: {"exp_avg_sq": filled((64, 64), v)} for n, v in enumerate((first, second))}
        yield {"model": named} | ({"optim": {"state": slots}} if moments else {})


def left(policy, **given):
    """Tracking error of both tensors at the end, and the bytes of the last delta."""
    with lcstore.open(MemoryBackend.fresh(), policy=policy, threads=1) as store:
        states = list(sensitive(np.random.default_rng(1), 20, **given))
        for step, state in enumerate(states):
            info = store.save(step, state)
        held = store.restore()["model"]
    off = [np.std(held[name] - states[-1]["model"][name]) / 1e-3 for name in held]
    return off, info.bytes_stored


def test_sensitive_tensors_come_back_nearer_and_others_further():
    (plain_a, plain_b), _ = left(Policy())
    (a, b), _ = left(WEIGHTED, second=1e-6 / 16)
    assert [plain_a, plain_b] == pytest.approx([1.0, 1.0], rel=0.15)
    assert [a, b] == pytest.approx([0.79, 1.58], rel=0.15)  # a**2 + b**2 / 4 is 1 + 1 / 4, and b is 2 * a


def test_without_moments_nothing_changes():
    assert left(WEIGHTED, moments=False) == left(Policy(), moments=False)


@pytest.mark.parametrize("second", [0.0, np.nan, np.inf])
def test_moments_that_say_nothing_leave_the_error_as_it_is(second):
    off, _ = left(WEIGHTED, second=second)
    assert off == pytest.approx([1.0, 1.0], rel=0.15)


def test_rules_that_give_an_error_hold():
    state = next(sensitive(np.random.default_rng(1), 1))
    policy = replace(WEIGHTED, rules={"**/a.weight": {"error": 0.5}})
    layout, arrays = planned(state, policy)
    shares = Sensitivity().shares(layout, arrays, policy)
    assert shares == {layout.index["model", "b.weight"]: pytest.approx(1.0)}
    assert Sensitivity().shares(layout, arrays, PRESETS["balanced"]) == {}
    assert Sensitivity().shares(layout, arrays, Policy(error=None, weighted=True)) == {}


def test_a_resumed_handle_goes_on_with_its_budget():
    backend, states = MemoryBackend.fresh(), list(sensitive(np.random.default_rng(1), 40))
    policy = Policy(weighted=True, bytes_per_save=2500)
    with lcstore.open(backend, policy=policy, threads=1) as store:
        for step, state in enumerate(states[:30]):
            store.save(step, state)
        before = store._writer.track.held.budget.factor
    with lcstore.open(backend, policy=policy, threads=1) as store:
        store.resume()
        store.save(30, states[30])
        # It is told from step sizes, of which there are four to the octave, and which are kept for long.
        assert store._writer.track.held.budget.factor == pytest.approx(before, rel=0.25)


@pytest.mark.parametrize(("told", "factor"), [(8.4, 8 / 0.35), (7.0, 7 / 0.35), (0.01, 0.05 / 0.35)])
def test_a_resumed_handle_goes_on_at_the_bound_of_errors(told, factor, monkeypatch):
    """Errors a rounding past it were left out, and with all of them there saves began as without a budget."""
    monkeypatch.setattr(stepsizes, "error_at", lambda *given: told)
    columns = SimpleNamespace(op=np.array([ADD]), scale=np.ones(1), shift=np.zeros(1), grid=np.zeros(1))
    assert Budget().begun({0: 0.35}, columns).factor == pytest.approx(factor)


def test_weighted_is_true_or_false():
    with pytest.raises(InvalidInputError, match="weighted"):
        Policy(weighted=1)
