"""The explorer runs every order that can matter, once; what it finds can be run again."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import Scene, ScheduleError, Step, explore, replay
from kit.actors import Stage
from kit.races import Search, commute, lengthen, shorten

from lcstore.errors import NotFoundError
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash, FaultBackend

pytestmark = pytest.mark.once

KEYS = ["a/x", "a/y", "b/x"]
OPERATIONS = [
    *((name, key) for name in ("put", "delete", "get") for key in KEYS),
    *(("list", prefix) for prefix in ("", "a", "b", "a/x")),
]
programs = st.lists(st.lists(st.sampled_from(OPERATIONS), max_size=3), min_size=2, max_size=3)


def outcome(program, order):
    """What all see, and what is left, when actors move in this order."""
    there, seen = {}, [[] for _ in program]
    left = [iter(operations) for operations in program]
    for actor in order:
        name, key = next(left[actor])
        if name == "put":
            there[key] = actor
        elif name == "delete":
            there.pop(key, None)
        elif name == "get":
            seen[actor].append(there.get(key))
        else:
            seen[actor].append(sorted(k for k in there if not key or k.startswith(f"{key}/")))
    return repr((sorted(there.items()), seen))


def all_orders(program):
    actors = [actor for actor, operations in enumerate(program) for _ in operations]
    return set(itertools.permutations(actors))


def searched(program, commutes=commute):
    """The orders that the search goes through."""
    search = Search(commutes)
    while True:
        order, done = [], [0] * len(program)
        while True:
            pending = {
                str(actor): Step(str(actor), *operations[done[actor]], data=actor)
                for actor, operations in enumerate(program)
                if done[actor] < len(operations)
            }
            if not pending:
                yield order
                break
            chosen = search.choose(pending)
            if chosen is None:
                break
            order.append(int(chosen))
            done[int(chosen)] += 1
        search.learn()
        if not search.advance():
            return


@given(programs)
def test_the_search_misses_no_outcome(program):
    orders = list(searched(program))
    every = all_orders(program)
    assert len({tuple(order) for order in orders}) == len(orders) <= len(every)
    assert {outcome(program, order) for order in orders} == {outcome(program, order) for order in every}


@given(programs)
def test_without_commuting_the_search_is_every_order(program):
    orders = {tuple(order) for order in searched(program, lambda a, b: False)}
    assert orders == all_orders(program)


@given(programs)
def test_no_two_orders_differ_in_commuting_operations_alone(program):
    def form(order):
        """The order of each two operations that do not commute: the same for orders of one class."""
        done, steps = [0] * len(program), []
        for actor in order:
            steps.append((actor, done[actor], Step(str(actor), *program[actor][done[actor]], data=actor)))
            done[actor] += 1
        return frozenset(
            (one[:2], two[:2]) for one, two in itertools.combinations(steps, 2) if not commute(one[2], two[2])
        )

    forms = [form(order) for order in searched(program)]
    assert len(set(forms)) == len(forms)


def test_what_commutes():
    def step(name, key, data=0):
        return Step("x", name, key, data)

    put = step("put", "a/b/c", 1)
    assert commute(put, step("put", "a/b/d", 2))
    assert commute(put, step("put", "a/b/c", 1))
    assert commute(put, step("list", "a/x"))
    assert commute(put, step("list", "a/b/c"))
    assert commute(put, step("get", "a/b"))
    assert commute(step("delete", "a"), step("delete", "a"))
    assert commute(step("list", ""), step("get", "a"))
    for other in [
        step("put", "a/b/c", 2), step("delete", "a/b/c"), step("get", "a/b/c"), step("size", "a/b/c"),
        step("created", "a/b/c"), step("list", "a/b"), step("list", "a"), step("list", ""),
    ]:  # fmt: skip
        assert not commute(put, other)
        assert not commute(other, put)


@given(st.lists(st.sampled_from(["a", "writer-1", "r"])))
def test_schedules_as_text(schedule):
    assert lengthen(shorten(schedule)) == schedule


def counters(times, safe=False):
    """Two actors that count in one object, reading and writing."""

    def make():
        backend = MemoryBackend.fresh({"n": b"0"})

        def play(actor):
            for _ in range(times):
                if safe:
                    actor.put(f"counts/{actor.name}-{len(actor.list('counts'))}", b"")
                else:
                    actor.put("n", str(int(actor.get("n")) + 1).encode())

        def check(outcomes):
            assert set(outcomes) == {"a", "b"}
            count = len(backend.list("counts")) if safe else int(backend.get("n"))
            assert count == 2 * times

        return Scene(backend, {"a": play, "b": play}, check)

    return make


def test_a_lost_update_is_found_and_can_be_replayed():
    with pytest.raises(ScheduleError) as caught:
        explore(counters(1))
    schedule = caught.value.schedule
    assert "a: get 'n'" in str(caught.value)
    assert sorted(lengthen(schedule)) == ["a", "a", "b", "b"]
    with pytest.raises(ScheduleError) as again:
        replay(counters(1), schedule)
    assert str(again.value) == str(caught.value)
    replay(counters(1), "a*2 b*2")
    replay(counters(1), ["a"])
    with pytest.raises(ScheduleError, match="has ended"):
        replay(counters(1), "a*3")


def test_what_is_right_is_explored_to_the_end():
    found = explore(counters(2, safe=True))
    assert found.complete
    assert (found.sampled, found.operations) == (0, 8)
    assert 6 < found.schedules < 70


def test_a_limit_leaves_the_rest_to_chance():
    found = explore(counters(3, safe=True), limit=5, samples=7)
    assert (found.schedules + found.cut_short, found.sampled, found.complete) == (5, 7, False)
    with pytest.raises(ScheduleError):
        explore(counters(1), limit=0, samples=50)


def test_actors_hear_what_was_said_before():
    heard = set()

    def make():
        def speak(actor):
            actor.say("one")
            actor.say("two")

        def listen(actor):
            return tuple(actor.heard())

        return Scene(
            MemoryBackend.fresh(), {"s": speak, "l": listen}, lambda outcomes: heard.add(outcomes["l"].value)
        )

    assert explore(make).schedules == 3
    assert heard == {(), ("one",), ("one", "two")}


def test_faults_of_one_actor_and_errors_are_outcomes():
    def make():
        backend = MemoryBackend.fresh({"a": b""})

        def dies(actor):
            FaultBackend(actor, {1: "crash_after"}).delete_many(["x", "a", "y"])

        def reads(actor):
            return actor.get("a")

        def check(outcomes):
            assert isinstance(outcomes["dies"].error, Crash)
            assert outcomes["reads"].value == b"" or isinstance(outcomes["reads"].error, NotFoundError)
            assert backend.list("") == []

        return Scene(backend, {"dies": dies, "reads": reads}, check)

    assert explore(make).schedules == 2


def test_other_errors_are_findings():
    def make():
        def broken(actor):
            actor.list("")
            raise KeyError("oops")

        return Scene(MemoryBackend.fresh(), {"good": lambda actor: actor.list(""), "bad": broken}, print)

    with pytest.raises(ScheduleError, match="oops"):
        explore(make)


def test_an_actor_that_does_as_it_likes_is_found_out():
    calls = itertools.count()

    def make():
        def moody(actor):
            actor.put(f"n/{next(calls)}", b"")

        return Scene(MemoryBackend.fresh(), {"a": moody, "b": lambda actor: actor.list("n")}, lambda _: None)

    with pytest.raises(ScheduleError, match="now, after the same schedule"):
        explore(make)


def test_work_given_to_a_pool_is_the_actors_own():
    names = set()

    def make():
        def pools(actor):
            with ThreadPoolExecutor(4) as pool:
                return list(pool.map(actor.get, ["a", "b"]))

        def check(outcomes):
            names.update(thread.name for thread in threading.enumerate())
            assert outcomes["p"].value in ([b"", b""], [b"1", b""], [b"1", b"1"], [b"", b"1"])

        def write(actor):
            actor.put("a", b"1")
            actor.put("b", b"1")

        return Scene(MemoryBackend.fresh({"a": b"", "b": b""}), {"p": pools, "w": write}, check)

    assert explore(make).schedules == 4
    assert not any(name.startswith("ThreadPool") for name in names)


def test_threads_of_an_actors_own_making_are_refused():
    def make():
        def forks(actor):
            def look():
                with contextlib.suppress(BaseException):
                    actor.get("a")

            thread = threading.Thread(target=look)
            thread.start()
            thread.join()

        return Scene(MemoryBackend.fresh(), {"f": forks}, lambda _: None)

    with pytest.raises(ScheduleError, match="several threads"):
        explore(make)


class Hesitant:
    """A lock whose owner, having released it, is the last to go on."""

    def __init__(self, inner):
        self.inner = inner
        self.acquire = inner.acquire

    def release(self):
        self.inner.release()
        time.sleep(0.02)


def test_the_last_actor_to_come_waits_for_its_turn_too():
    stage = Stage(MemoryBackend.fresh(), lambda pending: next(iter(pending)))
    stage._main = Hesitant(stage._main)
    seen = {}
    stage.run(
        {
            "first": lambda actor: [actor.put("a", b"1"), time.sleep(0.1), actor.put("b", b"2")],
            "last": lambda actor: seen.update({key: actor.get(key) for key in ("a", "b")}),
        }
    )
    assert [step.actor for step in stage.trace] == ["first", "first", "last", "last"]
    assert seen == {"a": b"1", "b": b"2"}
