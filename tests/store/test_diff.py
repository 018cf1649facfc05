"""What differs between two states, against plain numpy; and which step was the best."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from conftest import Run
from hypothesis import given
from hypothesis import strategies as st

import lcstore
from lcstore import InvalidInputError, NotFoundError
from lcstore.state.tree import MISSING
from lcstore.storage.memory import MemoryBackend
from lcstore.track.policy import PRESETS, settled
from lcstore.walks import compare as diffs


def opened(*states: dict) -> lcstore.Store:
    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    for step, state in enumerate(states):
        store.save(step, state)
    return store


def test_the_numbers_are_those_of_numpy(monkeypatch):
    monkeypatch.setattr(diffs, "_CHUNK", 1000)
    store, run = lcstore.open(MemoryBackend.fresh()), Run()
    for step in range(5):
        store.save(step, run.step())
    found = store.diff(1, 4)
    a, b = store.restore(1), store.restore(4)
    total, whole, count = 0.0, 0.0, 0
    for path, x in [*a["model"].items()]:
        y, one = b["model"][path], found[f"model/{path}"]
        change = y.astype(np.float64) - x.astype(np.float64)
        assert one.status == "changed"
        assert one.norm == pytest.approx(np.linalg.norm(change))
        assert one.scale == pytest.approx(np.linalg.norm(x.astype(np.float64)))
        assert one.growth == pytest.approx(np.linalg.norm(y.astype(np.float64)) / one.scale)
        assert one.relative == pytest.approx(one.norm / one.scale)
        assert one.changed == np.mean(x != y)
        assert one.largest == np.abs(change).max()
        assert one.size == x.size
        total, whole, count = total + one.norm**2, whole + one.scale**2, count + one.size
    part = store.diff(1, 4, "model/**").total
    assert part.norm == pytest.approx(math.sqrt(total))
    assert part.relative == pytest.approx(math.sqrt(total / whole))
    norms = [np.linalg.norm(b["model"][path].astype(np.float64)) for path in a["model"]]
    assert part.growth == pytest.approx(math.hypot(*norms) / math.sqrt(whole))
    assert part.size == count
    assert found.values == {"epoch": (2, 5)}
    assert {one.path for one in found} == set(store.paths(1))


VALUES = st.sampled_from([0.0, -0.0, 1.0, -2.5, 100.0, math.inf, -math.inf, math.nan])
DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "complex64", "complex128", "int8", "bool"]


@given(st.lists(st.tuples(VALUES, VALUES), max_size=9), st.sampled_from(DTYPES))
def test_any_values(pairs, dtype):
    with np.errstate(invalid="ignore"):
        x, y = (np.array([pair[i] for pair in pairs]).astype(dtype) for i in (0, 1))
    found = opened({"x": x}, {"x": y}).diff(0, 1)["x"]
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    width = x.dtype.itemsize
    bits = [[array.tobytes()[i : i + width] for i in range(0, array.nbytes, width)] for array in (x, y)]
    differ = np.array([one != other for one, other in zip(*bits, strict=True)], bool)
    with np.errstate(all="ignore"):
        change = np.abs(y.astype(wide)[differ] - x.astype(wide)[differ])
        norm = math.sqrt(np.sum(change**2))
        sizes = (np.abs(side.astype(wide)) for side in (x, y))
        scale, after = (math.sqrt(np.sum(size[np.isfinite(size)] ** 2)) for size in sizes)
    assert found.changed == (differ.mean() if pairs else 0)
    assert found.status == ("changed" if differ.any() else "same")
    assert found.norm == pytest.approx(norm, nan_ok=True)
    assert found.largest == pytest.approx(change.max(initial=0), nan_ok=True)
    assert found.scale == pytest.approx(scale, nan_ok=True)
    if norm == 0:
        assert found.relative == 0
    elif scale == 0 and not math.isnan(norm):
        assert found.relative == math.inf
    grown = after / scale if scale else math.inf if after else 1.0
    grown = 1.0 if norm == 0 else grown if math.isfinite(norm) else math.nan
    assert found.growth == pytest.approx(grown, nan_ok=True)


def test_a_mask_of_infinities_hides_no_change():
    mask, weight = np.where(np.tri(8), 0, -np.inf).astype(np.float32), np.ones((8, 8), np.float32)
    found = opened({"mask": mask, "w": weight}, {"mask": mask, "w": 2 * weight}).diff(0, 1)
    assert (found["mask"].status, found["mask"].relative) == ("same", 0)
    assert (found.total.relative, found.total.scale, found.total.norm) == (1, 8, 8)
    assert (found["mask"].growth, found["w"].growth, found.total.growth) == (1, 2, 2)


def test_which_of_two_states_has_the_larger_weights():
    x, zeros = np.ones(64, np.float32), np.zeros(4, np.float32)
    one = {"w": x, "sign": x, "b": zeros, "z": zeros, "nan": x}
    other = {"w": x * 1.25, "sign": -x, "b": zeros + 1, "z": -zeros, "nan": x * np.nan}
    found = opened(one, other).diff(0, 1)
    grown = {one.path: one.growth for one in found}
    assert math.isnan(grown.pop("nan"))
    assert grown == {"w": 1.25, "sign": 1, "b": math.inf, "z": 1}
    table = str(found).splitlines()
    assert table[1].split() == ["tensor", "relative", "error", "growth", "norm", "changed", "largest"]
    assert next(row.split()[:4] for row in table if row.startswith("w ")) == ["w", "0.25", "0", "1.25"]


def test_what_is_not_on_both_sides_alike():
    ones = np.ones(4, np.float32)
    store = opened(
        {"a": ones, "b": ones, "c": ones, "same": ones, "gone": ones, "lr": 1.0, "was": None},
        {"a": ones.astype(np.float64) * 2, "b": np.ones((2, 2), np.float32), "c": 3, "same": ones,
         "new": ones, "lr": 1, "is": math.nan},
    )  # fmt: skip
    found = store.diff(0, 1)
    status = {one.path: one.status for one in found}
    assert status == {"a": "retyped", "b": "reshaped", "same": "same", "new": "added", "c": "removed",
                      "gone": "removed"}  # fmt: skip
    assert (found["a"].norm, found["a"].before.dtype, found["a"].after.dtype) == (2, "float32", "float64")
    assert found["b"].size == 0
    assert math.isnan(found["b"].norm)
    assert math.isnan(found["b"].growth)
    assert found["a"].growth == 2
    assert (found["new"].before, found["gone"].after) == (None, None)
    assert found.total.size == 8
    assert found.values["lr"] == (1.0, 1)
    assert found.values["was"] == (None, MISSING)
    assert set(found.values) == {"lr", "was", "is", "c"}
    assert [one.path for one in found.sorted()] == ["b", "c", "gone", "new", "a", "same"]
    with pytest.raises(KeyError):
        found["nothing"]
    text = str(found)
    for word in ("reshaped", "added", "removed", "retyped", "100.00%", "lr: 1.0 to 1"):
        assert word in text
    assert "\nsame " not in text  # what did not change is counted, not listed
    assert text.endswith("Same in both: 1 of 6 tensors.")


def test_random_state_does_not_drown_the_weights():
    x, rng = np.ones(4, np.float32), np.arange(4000, dtype=np.uint32)
    store = opened({"x": x, "rng": rng, "n": 1}, {"x": 2 * x, "rng": rng[::-1].copy(), "n": 2})
    found = store.diff(0, 1)
    assert (found.total.norm, found.total.relative, found.total.size) == (2, 1, 4)
    assert found["rng"].norm > 1000
    assert store.diff(0, 1, "rng").total.norm == found["rng"].norm
    assert [one.path for one in found.sorted("norm")] == ["x", "rng"]
    assert repr(found) == str(found)


def test_steps_of_an_optimizer_do_not_drown_the_weights():
    def state(moved: float, step: float) -> dict:
        moments = {"step": np.float32(step), "exp_avg": np.full(4, moved, np.float32)}
        return {"model": {"w": np.full(4, moved, np.float32)}, "optim": {"state": {0: moments}}}

    store = opened(state(1, 0), state(2, 1000))
    assert store.diff(0, 1).total.norm == pytest.approx(8**0.5)
    assert store.diff(0, 1, "optim/state/#0/step").total.norm == 1000


def test_a_moment_that_died_stands_before_moments_that_move_at_random():
    def state(died: bool) -> dict:
        rng = np.random.default_rng(int(died))
        moments = {
            place: {
                "step": np.float32(1000.0 + died),
                "exp_avg": rng.normal(size=(8, 8)).astype(np.float32),
                "exp_avg_sq": np.full((8, 8), 1e-8 if died and place == 2 else 1.0, np.float32),
            }
            for place in range(4)
        }
        return {"model": {"w": np.full(8, 1.0 + 0.001 * died)}, "optim": {"state": moments}}

    found = opened(state(False), state(True)).diff(0, 1)
    died = "optim/state/#2/exp_avg_sq"
    assert [one.path for one in found.sorted()[:2]] == ["model/w", died]
    assert found[died].relative < min(found[f"optim/state/#{place}/exp_avg"].relative for place in range(4))
    assert [one.path for one in found.sorted("growth")[:2]] == ["model/w", died]
    assert {one.path.rpartition("/")[2] for one in found.sorted("norm")[-4:]} == {"step"}


def test_sorting():
    one = np.ones(4, np.float32)
    store = opened({"x": one, "y": 100 * one, "z": one, "n": one}, {"x": 2 * one, "y": 110 * one, "z": one,
                                                                  "n": one * np.nan})  # fmt: skip
    found = store.diff(0, 1)
    assert [d.path for d in found.sorted()] == ["n", "x", "y", "z"]
    assert [d.path for d in found.sorted("norm")] == ["n", "y", "x", "z"]
    assert [d.path for d in found.sorted("path")] == ["n", "x", "y", "z"]
    assert [d.path for d in found.sorted("growth")] == ["n", "x", "y", "z"]


def test_nothing_differs():
    store = opened({"x": np.array([np.nan, 1]), "k": math.nan})
    found = store.diff(0)
    assert not found
    assert (found.total.status, found.total.norm, found.total.changed) == ("same", 0, 0)
    assert (found["x"].growth, found.total.growth) == (1, 1)
    assert found.total.error == 0
    assert not store.diff(0, 0, "k").tensors
    assert store.diff(0, 0, "k").total.relative == 0
    with pytest.raises(NotFoundError, match=r"nothing that matches 'nothing/\*\*'; it has 'x', 'k'"):
        store.diff(0, 0, "nothing/**")
    with pytest.raises(NotFoundError):
        store.diff(0, 7)


def test_the_error_of_a_change_is_what_the_saves_left_out():
    rng, truth = np.random.default_rng(0), {}
    weights = {"a.weight": np.zeros((64, 64), np.float32), "b.weight": np.zeros((32, 64), np.float32)}
    policy = lcstore.Policy(rules={"**/b.weight": {"error": 0.35}})
    store = lcstore.open(MemoryBackend.fresh(), policy=policy)
    for step in range(40):
        for name, rate in (("a.weight", 1e-2), ("b.weight", 1e-3)):
            weights[name] = weights[name] + rate * rng.standard_normal(weights[name].shape).astype(np.float32)
        moments = {"state": {0: {"exp_avg": weights["a.weight"]}}}
        store.save(step, {"model": weights, "optim": moments, "count": np.arange(step, step + 3)})
        truth[step] = dict(weights)
    store.save(40, {"model": weights, "optim": moments, "count": np.arange(3)}, exact=True)
    truth[40] = weights
    for first, second in ((20, 21), (10, 30), (30, 40), (0, 40)):
        found = store.diff(first, second)
        for name in weights:
            given = store.read(second, f"model/{name}") - store.read(first, f"model/{name}")
            left = np.linalg.norm(given - (truth[second][name] - truth[first][name]))
            one = found[f"model/{name}"]
            # What neighbours left out is partly the same.
            assert (0.7 if second == first + 1 else 0.8) * one.error < left < 1.2 * one.error or left == 0
            assert one.is_mostly_error == (name == "a.weight" and second == first + 1)
        assert math.isnan(found["optim/state/#0/exp_avg"].error)
        assert found["count"].error == 0
    assert "mostly error" in str(store.diff(20, 21, "model"))
    assert store.diff(0, 40, "model").total.error == 0  # both keep every bit
    assert store.diff(20, 20, "model").total.error == 0  # and this is one state


@pytest.mark.parametrize("given", [False, True])
def test_the_error_of_rows_that_are_touched_one_by_one(given):
    rng, truth = np.random.default_rng(0), {}
    table, store = rng.standard_normal((1500, 16), np.float32), lcstore.open(MemoryBackend.fresh())
    for step in range(50):
        rows = np.sort(rng.choice(1500, 100, replace=False))
        table = table.copy()
        table[rows] += 1e-2 * rng.standard_normal((100, 16)).astype(np.float32)
        store.save(step, {"embed.weight": table}, touched={"embed.weight": rows} if given else None)
        truth[step] = table
    found, change = store.diff(10, 45)["embed.weight"], truth[45] - truth[10]
    left = np.linalg.norm(store.read(45, "embed.weight") - store.read(10, "embed.weight") - change)
    assert 0.7 * found.error < left < 1.3 * found.error
    assert not found.is_mostly_error
    # And each further update is one of those that it usually makes.
    table = table.copy()
    table[:100] += 1e-2 * rng.standard_normal((100, 16)).astype(np.float32)
    assert store.moved({"embed.weight": table}) == pytest.approx(1, rel=0.2)


def test_the_error_of_what_has_long_been_at_rest_is_that_of_its_grid():
    rng, store = np.random.default_rng(0), lcstore.open(MemoryBackend.fresh())
    weights = {name: rng.standard_normal((64, 64), np.float32) for name in ("dies.weight", "lives.weight")}
    for step in range(70):
        for name in weights if step < 5 else ["lives.weight"]:
            weights[name] = weights[name] + 1e-3 * rng.standard_normal((64, 64)).astype(np.float32)
        store.save(step, dict(weights))
    found = store.diff(68, 69)
    assert found["dies.weight"].status == "same"
    assert found["dies.weight"].error < 1e-5
    assert found["lives.weight"].error == pytest.approx(2**0.5 * 64e-3, rel=0.2)


def test_a_large_tensor_at_rest_can_be_compared():
    rng, store = np.random.default_rng(0), lcstore.open(MemoryBackend.fresh())
    large, other = 1e250 * rng.standard_normal((32, 32)), rng.standard_normal((32, 32))
    for step in range(130):  # a grid of float64 is fine, and reached late
        if step < 4:
            large = large + 1e247 * rng.standard_normal((32, 32))
        other = other + 1e-3 * rng.standard_normal((32, 32))
        store.save(step, {"large.weight": large, "other.weight": other})
    found = store.diff(128, 129)
    assert found["large.weight"].status == "same"
    assert found["other.weight"].error == pytest.approx(2**0.5 * 32e-3, rel=0.2)


def test_what_comes_and_goes_within_its_error_is_not_silently_the_same():
    rng, policy = np.random.default_rng(0), settled(PRESETS["balanced"])
    store = lcstore.open(MemoryBackend.fresh(), policy=policy)
    moves, comes = 0.1 * rng.standard_normal((2, 64, 64)).astype(np.float32)
    true, frozen = {}, comes.copy()
    for step in range(60):
        frozen += np.float32(1e-3 * (step < 12)) * moves
        moves = moves + np.float32(1e-3) * rng.standard_normal((64, 64), np.float32)
        true[step] = comes + np.float32(0.01 * (-1) ** step) * np.sign(comes)
        store.save(step, {"moves.weight": moves, "comes.weight": true[step], "frozen.weight": frozen})
    found = store.diff(56, 59)
    one = found["comes.weight"]
    assert (one.status, one.may_differ) == ("same", True)
    assert one.error == pytest.approx(np.linalg.norm(true[59] - true[56]), rel=0.3)
    assert not found["moves.weight"].may_differ
    assert not found["frozen.weight"].may_differ
    same, unsure = str(found).splitlines()[-2:]
    assert same == "Same in both: 2 of 3 tensors."
    assert unsure.startswith("1 of these may truly differ, by the errors of both saves: comes.weight ")
    assert f"about {one.error / one.scale:.2g} of its norm" in unsure
    assert "may truly differ" not in str(store.diff(56, 56))


def test_another_store():
    x = np.arange(6.0)
    a, b = opened({"x": x}), opened({"x": x}, {"x": x + 1})
    assert not a.diff(0, 0, other=b)
    found = a.diff(0, other=b)
    assert found["x"].largest == 1
    assert (found.a.url, found.b.url, found.b.step) == (a.url, b.url, 1)


def test_from_one_state_it_goes_on_to_the_other(monkeypatch):
    store, run = lcstore.open(MemoryBackend.fresh()), Run()
    for step in range(30):
        store.save(step, run.step())
    made = []
    walker = lcstore.walks.compare.Walker
    monkeypatch.setattr("lcstore.walks.compare.Walker", lambda reader: made.append(walker(reader)) or made[0])
    assert store.diff(28, 25)
    assert made[0].edges_applied == 29 + 3


def test_the_best_step():
    store = lcstore.open(MemoryBackend.fresh())
    x = {"x": np.zeros(3)}
    with pytest.raises(NotFoundError, match="or any"):
        store.best_step("loss")
    values = [(0, 3.0), (10, math.nan), (20, 1.0), (30, 1.0), (40, 5.0), (50, math.inf), (55, -math.inf)]
    for step, loss in values:
        store.save(step, x, metrics={"loss": loss, "nan": math.nan} | ({"acc": 0.5} if step == 20 else {}))
    store.save(60, x)
    assert store.best_step("loss") == 30
    assert store.best_step("loss", "max") == 40
    assert store.best_step("acc", "min") == store.best_step("acc", mode="max") == 20
    assert (store.best_step("acc:max"), store.best_step("loss:min")) == (20, 30)
    for ask in (lambda: store.best_step("acc"), lambda: store.info("best:acc")):
        with pytest.raises(lcstore.InvalidInputError, match="best:acc:max"):
            ask()
    store.save(0, x, metrics={"loss": 1.0})  # the later commit, though an earlier step
    assert store.best_step("loss") == 0
    store.save(0, x, metrics={"loss": 9.0})  # the step names this one from now on
    with pytest.warns(lcstore.StepWarning, match="step 0 was saved more than once"):
        assert store.best_step("loss") == 0
    best = store.info("best:loss")
    assert (best.step, best.metrics["loss"]) == (0, 1.0)
    assert store.retain("best:1:loss", dry_run=True).kept_by.keys() >= {best.node}
    store.retire(best.node)
    assert store.best_step("loss") == 30
    store.retire(30)
    assert store.best_step("loss") == 20
    with pytest.raises(NotFoundError, match="'acc', 'loss', 'nan'"):
        store.best_step("los")
    with pytest.raises(NotFoundError, match="is NaN or infinite at every step"):
        store.best_step("nan")
    with pytest.raises(InvalidInputError):
        store.best_step("loss", "least")
    for ask in (lambda: store.best_step("loss", run=7), lambda: store.info("best:loss", run=7)):
        with pytest.raises(NotFoundError, match="there is no run 7"):
            ask()
    store.save(70, x, metrics={"val": math.nan})
    store.save(70, x, metrics={"val": -math.inf})
    with pytest.raises(
        NotFoundError, match=r"'val' is NaN or infinite at every step; there are '(?!.*'val')"
    ):
        store.best_step("val")
    with lcstore.open(store.backend) as other:
        other.save(80, x, metrics={"val": math.nan})
        with pytest.raises(NotFoundError, match=r"'val' is NaN or infinite at every step of run 2$"):
            other.best_step("val", run=2)


def test_what_optimizers_keep_comes_last_and_forks_are_told_apart():
    with lcstore.open(MemoryBackend.fresh(), policy="lossless") as store:
        ones = np.ones((8, 8), np.float32)
        for step in range(2):
            model, average = {"w.weight": ones * (1 + step / 100)}, {"w": ones * (step + 1)}
            kept = {"state": {0: {"exp_avg": ones * (100 * step + 1)}}}
            store.save(step, {"model": model, "optim": kept, "ema": average})
        store.rewind(0)
        other = store.save(1, {"model": {"w.weight": ones}, "optim": {"state": {}}, "ema": {"w": ones}})
        first = next(one for one in store.states() if one.step == 1 and one.node != other.node)
        ranked = [one.path for one in store.diff(0, first.node).sorted()]
        assert ranked == ["ema/w", "model/w.weight", "optim/state/#0/exp_avg"]
        said = str(store.diff(first.node, other.node)).splitlines()[0]
        assert first.node[:8] in said
        assert other.node[:8] in said


def test_moments_that_are_numbered_are_told_with_their_parameters():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    with lcstore.open(MemoryBackend.fresh(), policy="lossless") as store:
        for step in range(2):
            model(torch.full((1, 4), step + 1.0)).sum().backward()
            optimizer.step()
            store.save(step, {"model": model, "optim": optimizer})
        found = store.diff(0, 1)
    assert found["optim/state/#0/exp_avg"].parameter == "model/weight"
    assert found["optim/state/#1/exp_avg_sq"].parameter == "model/bias"
    assert found["model/weight"].parameter is None
    row = next(line for line in str(found).splitlines() if line.startswith("optim/state/#1/exp_avg_sq"))
    assert row.endswith("of model/bias")


@pytest.mark.parametrize("policy", ["balanced", "small"])
@pytest.mark.parametrize("lasts", [True, False])
def test_the_error_of_saves_after_a_jump_is_told(policy, lasts):
    rng, true = np.random.default_rng(7), []
    names = ["fc.weight", "head.weight"]
    with lcstore.open(MemoryBackend.fresh(), policy=policy, threads=1) as store:
        weights = {name: rng.standard_normal((256, 64), np.float32) for name in names}
        for step in range(26):
            size = 1e-2 if step == 20 or (step > 20 and lasts) else 1e-3
            for name in names:
                weights[name] = weights[name] + np.float32(size) * rng.standard_normal((256, 64), np.float32)
            true.append(weights.copy())
            store.save(step, {"model": weights})
        moved = store.moved({"model": weights | {names[0]: weights[names[0]] + np.float32(1e-3)}})
        assert moved > 0.1  # by the update scale, which a single jump hardly moves
        for a, b in ((18, 19), (19, 20), (20, 21), (21, 22), (18, 25)):
            found = store.diff(a, b)
            for name in names:
                off = [store.read(step, f"model/{name}") - true[step][name] for step in (a, b)]
                wanted = math.hypot(*map(np.linalg.norm, off))
                assert found[f"model/{name}"].error == pytest.approx(wanted, rel=0.3), (a, b, name)
