"""The search on runs whose loss is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tune import tuned_runs
from tune.tuned_runs import Bowl, states

import lcstore
from lcstore.errors import InvalidInputError, LimitError
from lcstore.state.tree import flatten
from lcstore.track.policy import settled
from lcstore.tune import Saved, Tuned, Tuner, loops, tune
from lcstore.tune.loops import part_of, run_loop
from lcstore.tune.probe import Probe
from lcstore.tune.result import Cost
from lcstore.tune.search import tunable


@pytest.fixture(scope="module")
def run() -> list[dict]:
    return states()


@pytest.fixture(scope="module")
def bowl(run) -> Bowl:
    return Bowl(run[-1], off=1e-3)


@pytest.fixture(scope="module")
def found(run, bowl) -> Tuned:
    bowl.calls = 0
    return tune(run, bowl)


def test_fewer_bytes_at_the_same_expected_loss(found, bowl):
    assert found.gain >= 1.3
    assert found.tuned.cost.charged <= found.tolerance == found.preset.cost.charged
    assert found.evaluations == bowl.calls <= 40


def test_steep_tensors_are_kept_finer(found):
    errors = {one.globs[0]: one.error for one in found.settings}
    ordered = [errors[f"model/{name}"] for name in tuned_runs.CURVATURE]
    assert ordered == sorted(ordered)
    assert ordered[0] < 0.9
    assert ordered[-1] == 2.0
    assert found.tuned.weighted_error < found.tuned.error


def test_what_it_says_of_a_policy_is_what_a_store_gives(found, run, bowl):
    paths = tunable(flatten(run[-1]), found.policy)
    loop = run_loop(found.policy, run, len(run), part_of(paths))
    assert loop.nbytes == found.tuned.bytes_per_save
    probe = Probe(bowl, run[-1], 3)
    cost = probe.cost(probe.errors_of({path: loop.restored()[path] for path in paths}))
    assert cost == found.tuned.cost


def test_the_even_part_is_the_curvature_and_the_odd_one_the_slope(run):
    bowl = Bowl(run[-1], off=1e-2)
    probe = Probe(bowl, run[-1], 3)
    shift = np.full(tuned_runs.SHAPE, 1e-3)
    cost = probe.cost({("model", "first.weight"): shift})
    assert cost.even == pytest.approx(30 * 1e-6 * 1e3, rel=1e-3)
    assert cost.odd == pytest.approx(-2 * 30 * 1e-3 * 1e-2 * 1e3, rel=1e-3)
    assert cost.charged == cost.even
    assert Cost(1.0, 2.0).charged == Cost(1.0, 2.0).increase == 3.0
    with pytest.raises(LimitError):
        probe.cost({})


def test_a_tolerance_of_the_user(run):
    bowl = Bowl(run[-1])
    tight = tune(run, bowl, tolerance=0.05 * Probe(bowl, run[0], 1).exact)
    assert tight.tuned.cost.charged <= tight.tolerance
    wide = tune(run, bowl, tolerance=1e6, most_error=4)
    assert {one.error for one in wide.settings} == {4.0}
    with pytest.raises(InvalidInputError, match="no policy that was tried"):
        tune(run, bowl, tolerance=1e-12)


def test_where_all_are_alike_nothing_is_lost(run):
    def loss(state):
        parts = [np.square(state["model"][n] - run[-1]["model"][n]).mean() for n in tuned_runs.CURVATURE]
        return float(sum(parts))

    found = tune(run, loss)
    assert found.tuned.bytes_per_save <= found.preset.bytes_per_save
    assert found.tuned.cost.charged <= found.tolerance


def test_few_evaluations_make_few_groups(run, bowl):
    found = tune(run, bowl, evaluations=13)
    assert found.evaluations <= 13
    assert len(found.settings) == 2
    assert found.tuned.cost.charged <= found.tolerance


def test_roles_and_other_settings_of_the_preset_stay(run, bowl):
    rules = {"model/head.weight": "plain", "model/**": {"row_error": 0.3}}
    like = replace(lcstore.Policy(name="mine", row_error=None), first_moment=4.0, rules=rules)
    found = tune(run, bowl, like=like)
    assert found.policy.row_error is None
    assert found.policy.row_error_of(("model", "anything"), 1.0) == 0.3
    assert found.policy.first_moment == 4.0
    assert found.policy.name == "tuned-mine"
    assert next(iter(found.policy.rules.items())) == ("model/head.weight", "plain")
    assert all("head" not in glob for one in found.settings for glob in one.globs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"like": "lossless"}, "nothing to tune"),
        ({"evaluations": 12}, "13 is the least"),
        ({"tolerance": 0.0}, "more than 0"),
        ({"most_error": 9.0}, "at most 8"),
        ({"groups": ["nothing/*"]}, "nothing"),
    ],
)
def test_settings_that_make_no_sense(run, bowl, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        tune(run, bowl, **settings)


def test_runs_and_losses_that_make_no_sense(run, bowl):
    with pytest.raises(InvalidInputError, match="4 states"):
        tune(run[:3], bowl)
    with pytest.raises(InvalidInputError, match="no tensors of weights"):
        tune([{"step": i} for i in range(5)], bowl)
    with pytest.raises(InvalidInputError, match="finite"):
        tune(run, lambda state: float("nan"))
    with pytest.raises(
        InvalidInputError, match=r"returned array\(\[0., 0.\]\), a ndarray: it has to be one number"
    ):
        tune(run, lambda state: np.zeros(2))
    with pytest.raises(InvalidInputError, match="returned None, a NoneType"):
        tune(run, lambda state: None)
    with pytest.raises(InvalidInputError, match="depend on the state"):
        tune(run, lambda state: 1.0)


def test_an_iterator_and_a_store_do_as_well(run, bowl, found, tmp_path):
    assert tune(iter(run), bowl).policy == found.policy
    with lcstore.open(tmp_path / "run", policy="lossless") as store:
        for step, state in enumerate(run):
            store.save(10 * step, state)
    saved = Saved(tmp_path / "run")
    assert len(saved) == len(run)
    assert tune(saved, bowl).policy == found.policy
    assert [state["step"] for state in Saved(tmp_path / "run", [20, 10])] == [1, 2]
    with pytest.raises(lcstore.NotFoundError, match="no step 15"):
        Saved(tmp_path / "run", [10, 15])


@pytest.mark.parametrize(("policy", "told"), [("lossless", False), ("high", False), ("balanced", True)])
def test_states_that_were_saved_coarsely_are_told_of(run, tmp_path, policy, told, caplog):
    with lcstore.open(tmp_path / "run", policy=policy) as store:
        for step, state in enumerate(run[:5]):
            store.save(step, state)
    Saved(tmp_path / "run")
    assert ("states were saved under balanced, and are taken for exact" in caplog.text) == told


def test_the_policy_file_opens_a_store_that_keeps_to_it(found, run, tmp_path):
    found.save(tmp_path / "tuned.json")
    with lcstore.open(tmp_path / "run", policy=str(tmp_path / "tuned.json")) as store:
        assert store.policy == found.policy
        store.policy = settled(store.policy)  # the run is short
        for step, state in enumerate(run):
            store.save(step, state)
        restored = store.restore()
    off = {
        n: np.sqrt(np.mean((restored["model"][n] - run[-1]["model"][n]) ** 2)) for n in tuned_runs.CURVATURE
    }
    assert off["first.weight"] < off["head.weight"] / 2


def test_the_curve_falls_and_lies_below_that_of_one_error_for_all(found):
    assert len(found.curve) > 5
    assert any(one.bytes_per_save > found.preset.bytes_per_save for one in found.curve)
    points = sorted((one.bytes_per_save, one.increase) for one in found.curve)
    assert [increase for _, increase in points] == sorted((increase for _, increase in points), reverse=True)
    nbytes, increases = zip(*points, strict=True)
    for one in found.uniform:
        if nbytes[0] <= one.bytes_per_save <= nbytes[-1]:
            assert np.interp(one.bytes_per_save, nbytes, increases) <= one.increase * 1.05


def test_large_states_are_sampled_by_rows(run, bowl, found, monkeypatch):
    monkeypatch.setattr(loops, "SAMPLED", 2 * tuned_runs.SHAPE[0] * tuned_runs.SHAPE[1])  # every other row
    rows = tune(run, bowl)
    assert rows.tuned.cost.charged <= rows.tolerance
    assert rows.gain == pytest.approx(found.gain, rel=0.2)


def test_what_is_frozen_takes_no_part(bowl):
    run = states()
    for state in run:
        state["model"]["head.weight"] = run[0]["model"]["head.weight"]
    found = tune(run, Bowl(run[-1], off=1e-3))
    assert found.gain > 1
    assert found.tuned.cost.charged <= found.tolerance


def test_a_tuner_beside_a_run(bowl):
    run = states(14, seed=3)
    tuner = Tuner(Bowl(run[-1], off=1e-3), window=5, every=8, evaluations=20)
    assert tuner.policy().name == "balanced"
    fresh = []
    with lcstore.open("memory://tuner-beside-a-run") as store:
        for step, state in enumerate(run):
            if tuner.observe(state):
                fresh.append(step)
                store.policy = tuner.policy()
            store.save(step, state)
        assert store.policy == tuner.policy() != lcstore.Policy()
        restored = store.restore()
    assert fresh == [4, 12]
    assert tuner.found is not None
    assert tuner.found.gain > 1
    assert np.abs(restored["model"]["first.weight"] - run[-1]["model"]["first.weight"]).max() < 5e-3
    with pytest.raises(InvalidInputError, match="window"):
        Tuner(bowl, window=2)


def test_torch_states_come_to_the_loss_as_torch(run):
    torch = pytest.importorskip("torch")
    as_torch = [
        {"model": {n: torch.from_numpy(a.copy()) for n, a in s["model"].items()}, "step": s["step"]}
        for s in run
    ]
    centre = as_torch[-1]["model"]
    seen = set()

    def loss(state):
        seen.add(type(state["model"]["first.weight"]))
        return float(
            sum(c * ((state["model"][n] - centre[n]) ** 2).mean() for n, c in tuned_runs.CURVATURE.items())
        )

    assert tune(as_torch, loss, evaluations=20).gain > 1
    assert seen == {torch.Tensor}
