"""Laws of retention: what is decided once is not regretted, whatever comes after."""

from __future__ import annotations

import dataclasses
import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from retained import choosers, exact_histories, histories, keeps, rules, saves, steps_of, united

from lcstore.errors import InvalidInputError
from lcstore.retention.candidates import Candidate, in_order, tips
from lcstore.retention.choice import decide
from lcstore.retention.keep import EveryNSeconds, EveryNSteps, LatestN
from lcstore.retention.spaced import LogSpaced

pytestmark = pytest.mark.once


def decision_of(rule, candidates):
    try:
        return decide(rule, candidates)
    except InvalidInputError:  # it names no state
        assume(False)


@given(rules, histories())
def test_every_state_is_kept_or_retired_with_a_reason_and_safety_holds(rule, candidates):
    decision = decision_of(rule, candidates)
    nodes = {item.node for item in candidates}
    assert decision.kept | set(decision.retired) == nodes
    assert not decision.kept & set(decision.retired)
    assert {item.node for item in candidates if item.pinned} <= decision.kept
    latest = {(item.run, item.run_id): item.node for item in sorted(candidates, key=lambda item: item.order)}
    assert set(latest.values()) <= decision.kept
    assert not set(latest.values()) & set(decision.stripped)
    untouched = {item.node for item in candidates if item.pinned}
    assert not untouched & (set(decision.stripped) | set(decision.exact_let_go))
    assert set(decision.stripped) | set(decision.exact_let_go) <= decision.kept
    assert set(decision.kept_by) == decision.kept


@given(rules, histories(), st.randoms())
def test_the_order_in_which_candidates_are_listed_is_nothing(rule, candidates, rng):
    decision = decision_of(rule, candidates)
    rng.shuffle(candidates)
    assert decide(rule, candidates) == decision


@given(rules, histories())
def test_deciding_again_lets_nothing_more_go(rule, candidates):
    first = decision_of(rule, candidates)
    survivors = [item for item in candidates if item.node in first.kept]
    again = decide(rule, survivors)
    assert again.kept == first.kept
    assert set(again.exact_let_go) <= set(first.exact_let_go)
    assert all(set(globs) <= set(first.stripped.get(node, ())) for node, globs in again.stripped.items())


@given(rules, exact_histories, st.data())
def test_going_on_after_an_interruption_lets_nothing_more_go(rule, candidates, data):
    """Exact values are let go of before states; either may have been left off anywhere."""
    first = decision_of(rule, candidates)
    gone = {node for node in sorted(first.exact_let_go) if data.draw(st.booleans())}
    if gone == set(first.exact_let_go):
        retired = {node for node in sorted(first.retired) if data.draw(st.booleans())}
        candidates = [item for item in candidates if item.node not in retired]
    left = [
        dataclasses.replace(item, exact=False, exact_bytes=0) if item.node in gone else item
        for item in candidates
    ]
    again = decision_of(rule, left)
    assert first.kept <= again.kept
    assert set(again.exact_let_go) & first.kept <= set(first.exact_let_go) - gone


@given(united(keeps), united(keeps), histories())
def test_a_union_keeps_what_its_parts_keep(a, b, candidates):
    assume(candidates)
    both = decision_of(a | b, candidates).kept
    assert both == decide(b | a, candidates).kept
    parts = frozenset().union(*(part.named(in_order(candidates)) for part in (a | b).parts))
    always = {item.node for item in candidates if item.pinned} | tips(in_order(candidates))
    assert both == parts | always


@given(keeps, exact_histories, st.data())
def test_what_is_named_stays_named_when_others_go(rule, candidates, data):
    named = rule.named(in_order(candidates)) if candidates else set()
    rest = [item for item in candidates if data.draw(st.booleans())]
    if rest:
        assert named & {item.node for item in rest} <= rule.named(in_order(rest))


@given(choosers, histories())
def test_thinning_as_it_goes_names_what_thinning_the_whole_history_names(rule, candidates):
    survivors = []
    for at, new in enumerate(candidates):
        seen = in_order(candidates[: at + 1])
        survivors = in_order([*survivors, new])
        named = rule.named(survivors)
        assert named == rule.named(seen)
        survivors = [item for item in survivors if item.node in named | tips(seen)]


@given(united(choosers), histories(), st.data())
def test_what_training_can_go_back_to_stays_until_it_did(rule, candidates, data):
    """Night by night as in one that comes last, and always one for a run that is not finite."""
    finite, survivors = dict[str, str](), list[Candidate]()
    for at, new in enumerate(candidates):
        if data.draw(st.booleans()):
            finite[new.run_id] = new.node
        else:
            new = candidates[at] = dataclasses.replace(new, finite_before=finite.get(new.run_id))
        survivors = [*survivors, new]
        decision = decision_of(rule | LatestN(1), survivors)
        assert decision.kept == decide(rule | LatestN(1), candidates[: at + 1]).kept
        survivors = [item for item in survivors if item.node in decision.kept]
        assert {new.finite_before} - {None} <= decision.kept


@given(
    st.builds(EveryNSteps, st.integers(1, 30), st.integers(0, 30)),
    st.lists(st.integers(0, 200), min_size=1, unique=True).map(sorted),
)
def test_every_n_steps_never_drops_what_it_kept(rule, steps):
    items = saves(*steps)
    for size in range(1, len(items)):
        assert rule.named(items[:size]) <= rule.named(items[: size + 1])


@given(
    st.builds(EveryNSeconds, st.floats(0.1, 100)),
    st.lists(st.floats(-1000, 1000), min_size=1),
)
def test_every_n_seconds_never_drops_what_it_kept_whatever_the_clock_does(rule, times):
    pairs = zip(saves(*range(len(times))), times, strict=True)
    items = [dataclasses.replace(item, created=time) for item, time in pairs]
    for size in range(1, len(items)):
        assert rule.named(items[:size]) <= rule.named(items[: size + 1])


step_lists = st.lists(st.integers(1, 40), min_size=1, max_size=200).map(
    lambda gaps: [*itertools.accumulate(gaps)]
)


def check_every_age(base, steps):
    items = saves(*steps)
    kept = steps_of(LogSpaced(base).named(items), items)
    for step in steps:
        age = steps[-1] - step
        assert any(age <= steps[-1] - survivor <= Fraction(base) * age for survivor in kept)
    return kept


@given(st.floats(1.05, 8), step_lists)
def test_log_spaced_has_a_survivor_for_every_age(base, steps):
    assert check_every_age(base, steps)[0] == steps[0]


def test_log_spaced_with_the_largest_steps():
    steps = [0, 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 2, (1 << 63) - 1]
    assert check_every_age(1.0000001, steps) == [0, *steps[2:]]
    assert check_every_age(1e200, steps) == [0, *steps[3:]]


@pytest.mark.parametrize(("base", "per_doubling"), [(2.0, 3), (1.5, 5), (4.0, 2)])
def test_log_spaced_survivors_grow_with_the_logarithm(base, per_doubling):
    rng = random.Random(7)
    for size in (10, 100, 1000, 20_000):
        steps = sorted(rng.sample(range(10 * size), size))
        items = [item for step in steps for item in saves(step, first=step)]
        assert len(LogSpaced(base).named(items)) <= per_doubling * (10 * size).bit_length()
