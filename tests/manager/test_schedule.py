"""Schedules save when they say, and what is measured for them is what steps and saves take."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore import FailureRate, InvalidInputError, Overhead, Seconds, Steps
from lcstore.manager import meter
from lcstore.manager.meter import Meter
from lcstore.manager.schedule import Pace, schedule_from


class Loop:
    """A loop on a clock of its own: steps take so long, and longer while a save is under way."""

    def __init__(self, schedule, *, step=0.1, blocked=0.02, under_way=3, slower=0.2):
        self.now = 0.0
        self.meter = Meter(lambda: self.now)
        self.schedule = schedule
        self.step, self.blocked, self.under_way, self.slower = step, blocked, under_way, slower
        self.saved = []
        self.extra = 0.0

    def run(self, steps, every=1, start=0):
        left = 0
        for step in range(start, start + steps, every):
            slower = min(left, every) * self.step * self.slower
            self.now += every * self.step + slower
            self.extra += slower
            left = max(0, left - every)
            self.meter.enter(step, saving=left > 0)
            if self.schedule.is_due(self.meter.pace(step)):
                self.meter.begun(step)
                self.now += self.blocked
                self.extra += self.blocked
                self.saved.append(step)
                left = self.under_way
            self.meter.leave(saving=left > 0)
        return self


def test_steps_are_those_of_the_multiples():
    assert Loop(Steps(10)).run(35).saved == [0, 10, 20, 30]
    assert Loop(Steps(10)).run(35, every=7).saved == [0, 14, 21]
    assert Steps(10).is_due(Pace(41_310, 41_300, 0.0, None, None))
    assert not Steps(10).is_due(Pace(41_309, 41_300, 0.0, None, None))


def test_seconds_are_those_since_the_last_save():
    loop = Loop(Seconds(1.0)).run(60)
    assert loop.saved[0] == 0
    assert all(9 <= b - a <= 11 for a, b in zip(loop.saved, loop.saved[1:], strict=False))
    assert Seconds("2min").is_due(Pace(9, 1, 120.0, None, None))
    assert not Seconds("2min").is_due(Pace(9, 1, 119.0, None, None))


@pytest.mark.parametrize("share", [0.01, 0.035, 0.2])
@pytest.mark.parametrize("slower", [0.0, 0.5])
@pytest.mark.parametrize("every", [1, 5])
def test_an_overhead_is_kept_and_used(share, slower, every):
    loop = Loop(Overhead(share), slower=slower).run(4000, every)
    beside_the_first_two = loop.extra * (1 - 2 / len(loop.saved))
    assert beside_the_first_two / loop.now <= share
    shortest = (loop.blocked + loop.under_way * loop.step * slower) / (share * loop.step)
    assert 4000 / len(loop.saved) <= 1.1 * shortest + every  # it saves as often as it may


def test_a_first_save_that_takes_long_does_not_put_off_the_second():
    """It compiles kernels: a short run kept its first state and nothing else."""
    loop = Loop(Overhead(0.035), blocked=8.0, under_way=0)
    loop.run(1)
    loop.blocked = 0.02
    loop.run(600)
    assert 100 <= loop.saved[1] <= 300  # 8 s are 3.5 % of 2,300 steps
    assert 200 > loop.saved[-1] - loop.saved[-2] >= 5


class Loads(Loop):
    """A loop whose second save loads kernels, as the first of a delta: the loop waits, or its steps do."""

    def __init__(self, schedule, behind):
        self.behind, self.ready = behind, 0
        super().__init__(schedule)

    def takes(self, usual, long, at):
        if len(self.saved) == at and self.behind == (at == 2):
            self.ready = 1
            return long
        return usual

    blocked = property(lambda self: self.takes(0.02, 8.0, 1), lambda self, _: None)
    slower = property(lambda self: self.takes(0.2, 20.0, 2), lambda self, _: None)


@pytest.mark.parametrize("behind", [False, True])
def test_a_save_that_loads_kernels_does_not_put_off_the_next(monkeypatch, behind):
    """The third of a process came two thousand steps later."""
    loop = Loads(Overhead(0.035), behind)
    monkeypatch.setattr(meter, "readied", lambda: loop.ready)
    loop.run(1000)
    assert loop.ready
    assert loop.saved[2] - loop.saved[1] <= 300
    assert 200 > loop.saved[-1] - loop.saved[-2] >= 5


@pytest.mark.parametrize("schedule", [Overhead(0.035), Overhead(0.5), FailureRate("1h")])
def test_a_resumed_loop_saves_soon_and_then_as_one_that_was_not(schedule):
    """Until a save is measured nobody knows what one takes, and one that waits for that never comes."""
    loop = Loop(schedule)
    loop.meter.resumed(1000)
    loop.run(3000, start=1001)
    assert loop.saved[0] == 1002  # one step is measured first
    fresh = Loop(schedule).run(3000)
    assert abs(len(loop.saved) - len(fresh.saved)) <= 3  # of 2 to 3,000


def test_an_overhead_follows_what_saves_take():
    loop = Loop(Overhead(0.035)).run(1000)
    before = loop.saved[-1] - loop.saved[-2]
    loop.blocked *= 5
    loop.saved.clear()
    loop.run(6000)
    assert loop.saved[-1] - loop.saved[-2] > 1.5 * before


@given(st.floats(0.001, 1.0), st.floats(10, 1e6))
def test_no_other_interval_loses_less_to_failures(save, mean):
    def lost(interval):  # Daly (2006), equation 20: time for each second of work, restarts left aside
        return mean * math.expm1((interval + save) / mean) / interval

    chosen = FailureRate(mean).interval(save)
    assert all(lost(chosen) <= 1.001 * lost(chosen * factor) for factor in (0.25, 0.5, 0.8, 1.25, 2, 4))


def test_a_failure_rate_waits_for_what_a_save_takes():
    schedule = FailureRate("1h")
    assert schedule.is_due(Pace(0, None, 0.0, None, None))
    assert not schedule.is_due(Pace(1, 0, 1e9, None, None))
    assert schedule.is_due(Pace(1, 0, 85.0, None, 1.0))
    assert not schedule.is_due(Pace(1, 0, 80.0, None, 1.0))
    assert FailureRate(10).interval(30) == 10


def test_what_is_no_schedule_is_refused():
    assert schedule_from(100) == Steps(100)
    assert schedule_from("10min") == Seconds("10min")
    for wrong in (0, -1, True, "often", "0s", None, 0.5):
        with pytest.raises(InvalidInputError):
            schedule_from(wrong)
    for steps in ("10", " 10 steps", "10step"):
        with pytest.raises(InvalidInputError, match="steps are a number, 10, and a time has a unit, '10s'"):
            schedule_from(steps)
    for kind, value in ((Overhead, 0), (Overhead, 1), (Seconds, -1), (FailureRate, math.inf)):
        with pytest.raises(InvalidInputError):
            kind(value)


def test_asking_twice_for_a_step_measures_it_once():
    now = 0.0
    meter = Meter(lambda: now)
    for step in range(5):
        now += 2.0
        meter.enter(step, saving=False)
        meter.leave(saving=False)
        meter.enter(step, saving=False)
        meter.leave(saving=False)
    assert meter.pace(5).step_seconds == 2.0
    assert meter.pace(5).save_seconds is None


@pytest.mark.parametrize("ahead", [0, 8, 32])
@pytest.mark.parametrize("beside", [0.0, 2.0])
def test_steps_that_wait_to_be_computed_are_no_cost_of_a_save(ahead, beside, monkeypatch):
    """As JAX has them: a loop goes on while so many steps are computed behind it."""
    step, blocked, share = 0.1, 0.3, 0.1
    now = computed = 0.0
    saved, until = [], 0.0

    def wait(*state):
        nonlocal now
        assert state in (("state",), ())
        now = max(now, computed)
        return True

    monkeypatch.setattr("lcstore.manager.meter.wait_for", wait)
    monkeypatch.setattr("lcstore.manager.meter.wait_for_all", wait)
    meter = Meter(lambda: now)
    for number in range(1000):
        now = max(now + 0.001, computed - ahead * step)
        begins = max(now, computed)
        computed = begins + step * (2 if begins < until else 1)  # beside a save they are half as fast
        meter.enter(number, saving=now < until)
        if Overhead(share).is_due(meter.pace(number)):
            meter.begun(number)
            assert meter.ready("state") == "state"
            now += blocked
            until = now + beside
            saved.append(number)
        meter.leave(saving=now < until)
    gaps = [b - a for a, b in itertools.pairwise(saved[5:])]
    wanted = (blocked + beside / 2) / step / share
    assert len(gaps) >= 3
    assert all(0.8 * wanted < gap < 1.2 * wanted for gap in gaps), gaps


def test_what_jax_computes_beside_a_save_is_waited_for_where_it_ends():
    """Whatever the loop calls then, `should_save` or `save`: a state is at hand in neither."""
    jax = pytest.importorskip("jax")
    grow = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, y: jax.numpy.tanh(y @ y), x))
    weight = grow(jax.numpy.ones((200, 200)))
    meter = Meter()
    meter.enter(0, saving=False)
    meter.begun(0)
    meter.ready({"weight": weight})
    meter.leave(saving=True)
    weight = grow(grow(weight))
    meter.enter(1, saving=False)
    assert weight.is_ready()
    meter.leave(saving=False)
