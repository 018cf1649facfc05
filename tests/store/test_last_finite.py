"""Where training diverged, a rule leaves a state that it can go back to."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from crash_histories import opened
from states import same

import lcstore
from lcstore.storage.memory import MemoryBackend

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore::lcstore.NotFiniteWarning")]

LAST = "last before values that are not finite"


def state(step: int, *, bad: bool = False, rows: int = 16) -> dict[str, object]:
    weight = np.random.default_rng(0).standard_normal((rows, 64)).astype(np.float32)
    weight += np.float32(1e-3) * step
    weight[3, 5] = np.nan if bad else 1
    return {"model": {"fc.weight": weight}, "optim": {"state": {"fc.weight": {"exp_avg": weight * 0.1}}}}


def diverged(at: int = 6, saves: int = 12, **how: object) -> MemoryBackend:
    """Return a run of which each state is not finite from a step on."""
    backend = MemoryBackend.fresh()
    with opened(backend, **how) as store:
        for step in range(saves):
            store.save(step, state(step, bad=step >= at))
    return backend


@pytest.mark.parametrize("nights", [1, 12])
def test_the_last_finite_state_stays_and_training_goes_back_to_it(nights):
    backend = MemoryBackend.fresh()
    for step in range(12):
        with opened(backend) as store:
            if step:
                store.resume()  # each process goes on with the run of the one before
            store.save(step, state(step, bad=step >= 6))
            if step >= 12 - nights:
                store.retain("latest:3")
    with opened(backend, "r+") as store:
        assert store.steps() == [5, 9, 10, 11]
        assert same(store.rewind(5), store.restore(5))


@pytest.mark.filterwarnings("default::lcstore.NotFiniteWarning")
def test_who_goes_on_from_it_is_told():
    """A job that started again trained on for the night, and its next save was the first to say so."""
    backend = diverged()
    with opened(backend) as store:
        with pytest.warns(
            lcstore.NotFiniteWarning, match=r"goes on from step 11, of which 1 tensor .* is not"
        ):
            store.resume()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.rewind(5)


def test_it_is_said_once_and_a_dry_run_says_it_too():
    with opened(diverged(), "r+") as store:
        shown = store.retain("latest:3", dry_run=True)
        done = store.retain("latest:3")
        again = store.retain("latest:3")
    for report in (shown, done, again):
        assert report.kept == (5, 9, 10, 11)
        assert next(iter(report.kept_by.values())) == (LAST,)
        (note,) = report.notes
        assert "step 5 stays" in note
    assert (shown.states_let_go, done.states_let_go, again.states_let_go) == (8, 8, 0)


@pytest.mark.parametrize("grace", [0, 86_400])
def test_maintenance_leaves_it_whole_night_by_night(grace):
    backend = diverged(grace=grace)
    with opened(backend, "r+") as store:
        before = store.restore(5)
        for _ in range(3):
            report = store.maintain("latest:3 | strip:optim/**:latest:1")
            assert report.ok
            assert "step 5 stays" in " ".join(report.retained.notes)
        assert same(store.restore(5), before)  # with its optimizer, so that training can go on


def test_a_finite_state_that_the_rule_keeps_is_not_spoken_of():
    with opened(diverged(at=11), "r+") as store:
        report = store.retain("latest:3")
        assert report.kept == (9, 10, 11)
        assert report.notes == ()


def test_it_goes_once_training_went_back():
    with opened(diverged(), "r+") as store:
        store.retain("latest:3")
        store.save(6, store.rewind(5))
        store.save(7, state(7))
        assert store.retain("latest:1").kept == (7,)


def test_it_goes_once_training_is_finite_again():
    backend = diverged()
    with opened(backend) as store:
        store.resume()
        for step in range(12, 15):
            store.save(step, state(step))
        assert store.retain("latest:1").kept == (14,)


def test_each_line_keeps_its_own():
    """A run that was forked before the other diverged is none that this one came from."""
    backend = diverged()
    with opened(backend) as store:
        store.resume(2)
        for step in range(20, 24):
            store.save(step, state(step, bad=step >= 22))
        report = store.retain("latest:1")
    assert report.kept == (5, 11, 21, 23)
    assert len(report.notes) == 2


@pytest.mark.parametrize("policy", ["balanced", "lossless"])
def test_what_is_known_is_how_many_tensors_are_not_finite(policy):
    with opened(diverged(at=2, saves=6, policy=policy), "r") as store:
        numbers = [record.stats.get("not_finite") for record in records(store)]
    assert numbers == [None, None, 1, 1, 1, 1]


def test_what_no_grid_holds_is_finite_all_the_same():
    backend = MemoryBackend.fresh()
    with opened(backend) as store:
        for step, scale in enumerate([1, 3e38, 3e38, 1, 1]):
            store.save(step, {"model": {"fc.weight": np.full((16, 64), scale, np.float32)}})
    with opened(backend, "r+") as store:
        assert not any("not_finite" in record.stats for record in records(store))
        assert store.retain("latest:1").kept == (4,)


def test_where_none_was_ever_finite_nothing_is_said():
    with opened(diverged(at=0), "r+") as store:
        report = store.retain("latest:1")
    assert (report.kept, report.notes) == ((11,), ())


def test_it_is_still_named_and_by_itself_let_go_of():
    with opened(diverged(), "r+") as store:
        store.retain("latest:3")
        store.retire(5, reason="not wanted")
        assert store.steps() == [9, 10, 11]


def records(store: lcstore.Store):
    index = store._index
    index.refresh(full=True)
    return [index.shown()[name.node] for name in sorted(index.graph.shown(), key=lambda name: name.step)]


def with_moments(step: int, *, bad: bool) -> dict:
    rng = np.random.default_rng(step)
    moments = {name: rng.random((64, 64), np.float32) for name in ("exp_avg", "exp_avg_sq")}
    if bad:
        moments["exp_avg"][3, 5:7] = np.nan
        moments["exp_avg_sq"][0, 0] = np.inf
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    return {"model": {"fc.weight": weight}, "optim": {"state": {0: moments}}}


def test_moments_that_are_not_finite_are_told_of_once_and_recorded():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.save(0, with_moments(0, bad=False))
        with pytest.warns(lcstore.NotFiniteWarning) as told:
            store.save(1, with_moments(1, bad=True))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.save(2, with_moments(2, bad=True))
        said = str(told[0].message)
        assert "step 1: values of 'optim/state/#0/exp_avg', 'optim/state/#0/exp_avg_sq' are not" in said
        assert "2, 1 of them" in said
        worse = with_moments(3, bad=True)
        worse["model"]["fc.weight"][0] = np.nan
        with pytest.warns(lcstore.NotFiniteWarning, match="step 3: values of 'model/fc.weight', 'optim"):
            store.save(3, worse)
        found = [(info.not_finite, info.moments_not_finite) for info in map(store.info, range(4))]
        assert found == [(0, 0), (0, 2), (0, 2), (1, 2)]
        assert store.retain("latest:1").kept == (2, 3)  # what is about weights goes by these alone
