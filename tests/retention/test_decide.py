"""What each retention rule keeps, what a union means, and what is kept whatever a rule says."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from retained import saves, steps_of

import lcstore
from lcstore.errors import InvalidInputError
from lcstore.retention.candidates import Candidate
from lcstore.retention.choice import decide
from lcstore.retention.keep import (
    BestN,
    Budget,
    EachRun,
    EveryNSeconds,
    EveryNSteps,
    LatestN,
    Pinned,
    Tagged,
)
from lcstore.retention.modify import ExactOnly, Strip
from lcstore.retention.parse import parse_retention
from lcstore.retention.spaced import LogSpaced

pytestmark = pytest.mark.once


def kept_steps(rule, candidates):
    return steps_of(decide(rule, candidates).kept, candidates)


def changed(candidates, **by_node):
    return [dataclasses.replace(item, **by_node.get(item.node.replace(".", "_"), {})) for item in candidates]


def with_loss(*values):
    items = saves(*range(len(values)))
    return [
        dataclasses.replace(item, metrics={} if value is None else {"loss": value})
        for item, value in zip(items, values, strict=True)
    ]


def test_latest_counts_commits_not_steps():
    rolled_back = saves(10, 20, 30) + saves(20, 20, run=2, run_id="b", first=3)
    assert decide(LatestN(2), rolled_back).kept == {"2.20", "2.20'", "1.30"}
    assert decide(LatestN(2), rolled_back[::-1]) == decide(LatestN(2), rolled_back)
    assert kept_steps(LatestN(9), saves(1, 2)) == [1, 2]


def test_every_n_steps_where_saves_land_on_the_multiples():
    assert kept_steps(EveryNSteps(100), saves(*range(0, 450, 50))) == [0, 100, 200, 300, 400]
    assert kept_steps(EveryNSteps(100, offset=50), saves(*range(0, 450, 50))) == [50, 150, 250, 350, 400]


def test_every_n_steps_where_saves_miss_the_multiples():
    assert kept_steps(EveryNSteps(20), saves(*range(7, 80, 7))) == [7, 21, 42, 63, 77]
    assert kept_steps(EveryNSteps(1000), saves(900, 5000, 5100, 5200)) == [900, 5000, 5200]


def test_every_n_steps_keeps_the_newest_revision():
    items = saves(10, 20, 30) + saves(10, 15, 25, run=2, run_id="b")
    assert decide(EveryNSteps(10), items).kept == {"2.10", "1.20", "1.30", "2.25"}


def test_every_n_seconds_counts_from_1970():
    day = [datetime(2026, 1, 1, hour, 30, tzinfo=UTC) for hour in (1, 5, 6, 7, 13, 23)]
    items = [Candidate(f"n{i}", i, 1, "a", i, time) for i, time in enumerate(day)]
    assert kept_steps(EveryNSeconds("6h"), items) == [0, 2, 4, 5]
    assert kept_steps(EveryNSeconds(86400), items) == [0, 5]


def test_hourly_for_a_day_and_daily_for_a_month():
    hour = 3600.0
    # Every half hour for 40 days, but nothing was saved on the last day but one.
    hours = [at / 2 for at in range(2 * 24 * 40) if not 38 * 24 <= at / 2 < 39 * 24]
    items = [Candidate(f"n{i}", i, 1, "a", i, at * hour) for i, at in enumerate(hours)]
    kept = decide(parse_retention("every:1h:24 | every:1d:30"), items).kept - {items[-1].node}
    days = [24.0 * day for day in range(40) if day != 38][-30:]
    assert {item.seconds / hour for item in items if item.node in kept} == {
        *range(39 * 24, 40 * 24),
        *days,
    }
    assert kept_steps(EveryNSeconds("6h", 1), items) == [len(items) - 12, len(items) - 1]


def test_a_clock_that_goes_backwards_does_not_make_an_old_interval_a_late_one():
    items = [Candidate(f"n{i}", i, 1, "a", i, float(t)) for i, t in enumerate([100, 205, 150])]
    rule = EveryNSeconds(100, 1)
    assert rule.named(items) == {"n1"}
    assert rule.named(items[1:]) == {"n1"}


def test_a_clock_that_goes_backwards_takes_nothing_back():
    items = [Candidate(f"n{i}", i, 1, "a", i, float(t)) for i, t in enumerate([100, 205, 95, 203, 201])]
    assert kept_steps(EveryNSeconds(100), items) == [0, 1, 2, 4]


def test_best_takes_the_later_of_equals_and_only_finite_values():
    nan, inf = float("nan"), float("inf")
    assert kept_steps(BestN(2, "loss"), with_loss(3.0, 1.0, nan, 1.0, 1.0, None, 9.0, None)) == [3, 4, 7]
    assert kept_steps(BestN(1, "loss", "max"), with_loss(3.0, 9.0, nan, 9, 1.0)) == [3, 4]
    assert kept_steps(BestN(5, "loss"), with_loss(nan, 2.0, None, 1.0, None)) == [1, 3, 4]
    assert kept_steps(BestN(1, "loss"), with_loss(inf, 2.0, -inf, 3.0, 4.0)) == [1, 4]
    assert kept_steps(BestN(2, "loss", "max"), with_loss(inf, 2.0, -inf, 3.0, nan)) == [1, 3, 4]


@pytest.mark.parametrize("rule", [BestN(2, "los"), BestN(1, "los") | Tagged("gold") | ExactOnly(LatestN(1))])
def test_a_metric_that_nobody_has_is_an_error_that_lists_those_there_are(rule):
    with pytest.raises(InvalidInputError, match=r"no state has the metric 'los'.* are: 'loss'"):
        decide(rule, with_loss(1.0, 2.0))


def test_states_that_go_since_they_lack_the_metric_are_told():
    items = with_loss(None, None, 3.0, 1.0, 2.0)
    said = "2 states of those that go lack the metric that BestN(1, 'loss') goes by"
    assert decide(BestN(1, "loss"), items).notes == (said,)
    assert decide(BestN(1, "loss") | LatestN(5), items).notes == ()
    assert decide(BestN(1, "loss"), items[2:]).notes == ()


def test_a_metric_that_is_never_finite_is_an_error():
    with pytest.raises(InvalidInputError, match="NaN or infinite wherever"):
        decide(BestN(2, "loss"), with_loss(float("nan"), None, float("-inf")))


@pytest.mark.parametrize("rule", [Strip("x/**", after=BestN(1, "los")), ExactOnly(BestN(1, "los"))])
def test_a_modifier_without_data_takes_nothing_away(rule):
    with pytest.raises(InvalidInputError, match=r"would spare nothing.*'los'"):
        decide(LatestN(3) | rule, with_loss(1.0, 2.0))


def test_a_metric_still_missing_beside_other_rules_is_a_note():
    decision = decide(LatestN(1) | BestN(2, "loss"), saves(1, 2))
    assert decision.kept == {"1.2"}
    assert decision.notes == ("no state has the metric 'loss'; the metrics there are: none",)


@pytest.mark.parametrize("rule", [LatestN(1) | BestN(3, "los"), BestN(1, "loss") | BestN(1, "3")])
def test_a_metric_of_another_name_takes_nothing_away(rule):
    with pytest.raises(
        InvalidInputError, match=r"^nothing is let go of: no state has the metric '(los|3)'.* are: 'loss'"
    ):
        decide(rule, with_loss(1.0, 2.0))


@pytest.mark.parametrize("rule", [Pinned(), Tagged("gold"), EveryNSteps(10, offset=99), Pinned() | Tagged()])
def test_a_rule_that_names_nothing_does_not_drop_everything(rule):
    with pytest.raises(InvalidInputError, match="names no state to keep"):
        decide(rule, saves(1, 2, 3))


def test_that_a_run_has_no_tags_and_no_pins_is_no_news():
    """It was the note of each night, and hid all others."""
    no_news = Tagged() | Pinned()
    decision = decide(LatestN(1) | no_news | EachRun(no_news) | Tagged("gold"), saves(1, 2, 3))
    assert decision.notes == ("Tagged('gold') names no state",)


def test_tags_and_pins():
    items = changed(
        saves(1, 2, 3, 4, 5),
        **{"1_1": {"tags": {"gold"}}, "1_2": {"tags": {"v1", "x"}}, "1_3": {"pinned": True}},
    )
    assert kept_steps(Tagged("v?"), items) == [2, 3, 5]
    assert kept_steps(Tagged("v?", "gold"), items) == [1, 2, 3, 5]
    assert kept_steps(Tagged(), items) == [1, 2, 3, 5]
    assert kept_steps(Pinned(), items) == [3, 5]
    assert kept_steps(LatestN(1), items) == [3, 5]
    kept_by = decide(EveryNSteps(2) | Tagged(), items).kept_by
    assert kept_by["1.2"] == ("EveryNSteps(2)", "Tagged(): v1, x")
    assert decide(Tagged("v?"), items).kept_by["1.2"] == ("Tagged('v?'): v1",)


def test_budget_counts_one_anchor_and_the_later_edges():
    items = saves(1, 2, 3, 4, nbytes=10, anchor_bytes=100)
    assert kept_steps(Budget(1), items) == [4]
    assert kept_steps(Budget(109), items) == [4]
    assert kept_steps(Budget(110), items) == [3, 4]
    assert kept_steps(Budget(129), items) == [2, 3, 4]
    assert kept_steps(Budget(130), items) == [1, 2, 3, 4]
    unknown = [dataclasses.replace(item, anchor_bytes=None) for item in items]
    unknown[0] = dataclasses.replace(unknown[0], nbytes=50)
    assert kept_steps(Budget(69), unknown) == [3, 4]
    assert kept_steps(Budget(70), unknown) == [2, 3, 4]


def test_budget_counts_the_exact_values_of_the_states_that_have_one():
    items = changed(
        saves(1, 2, 3, 4, nbytes=10, anchor_bytes=100),
        **{"1_2": {"exact_bytes": 1000}, "1_4": {"exact_bytes": 500}},
    )
    assert kept_steps(Budget(609), items) == [4]
    assert kept_steps(Budget(610), items) == [3, 4]
    assert kept_steps(Budget(1619), items) == [3, 4]
    assert kept_steps(Budget(1620), items) == [2, 3, 4]
    assert kept_steps(Budget(1630), items) == [1, 2, 3, 4]


def test_budget_counts_no_exact_value_that_the_same_rule_lets_go_of():
    items = saves(1, 2, 3, 4, nbytes=10, anchor_bytes=100, exact_bytes=1000)
    decision = decide(Budget(1120) | ExactOnly(LatestN(1)), items)
    assert steps_of(decision.kept, items) == [2, 3, 4]
    assert steps_of(decision.exact_let_go, items) == [2, 3]
    pinned = changed(items, **{"1_3": {"pinned": True}})
    assert kept_steps(Budget(1120) | ExactOnly(LatestN(1)), pinned) == [3, 4]


def test_budget_keeps_an_unbroken_row_of_commits():
    items = saves(1, 2, 3, 4, nbytes=10, anchor_bytes=100)
    items[0] = dataclasses.replace(items[0], anchor_bytes=1)
    assert kept_steps(Budget(110), items) == [3, 4]
    assert kept_steps(LatestN(1) | Budget(120), items) == [1, 2, 3, 4]


def test_the_latest_of_every_run_stays_even_where_run_numbers_collide():
    items = saves(1, 2) + saves(7, 8, run_id="b") + saves(3, 4, run=2)
    items = [dataclasses.replace(item, node=f"n{i}") for i, item in enumerate(items)]
    decision = decide(LatestN(1), items)
    assert steps_of(decision.kept, items) == [2, 4, 8]
    assert decision.kept_by["n1"] == ("latest of its run",)
    assert decision.kept_by["n5"] == ("LatestN(1)", "latest of its run")


def forked():
    """Return run 1, and what run 2 saved from its step 20 on."""
    return saves(*range(0, 50, 5)) + saves(*range(25, 50, 5), run=2, run_id="b", first=10)


def test_each_run_keeps_of_every_run_what_its_rules_keep_of_it_alone():
    items = forked()
    assert decide(EveryNSteps(10), items).kept == {"1.0", "1.10", "1.20", "1.45", "2.30", "2.40", "2.45"}
    decision = decide(EachRun(EveryNSteps(10)), items)
    assert decision.kept == {
        "1.0", "1.10", "1.20", "1.30", "1.40", "1.45", "2.25", "2.30", "2.40", "2.45"
    }  # fmt: skip
    assert decision.retired["2.35"] == "not kept by EachRun(EveryNSteps(10))"
    assert decision.kept_by["1.30"] == ("EachRun(EveryNSteps(10))",)


def test_each_run_tells_handles_of_one_number_apart():
    items = saves(1, 2, 3) + [
        dataclasses.replace(item, node=f"b{item.node}", run_id="b") for item in saves(4, 5)
    ]
    assert kept_steps(EachRun(LatestN(2)), items) == [2, 3, 4, 5]


def test_each_run_takes_every_rule_that_keeps_and_says_which_one_did():
    items = changed(forked(), **{"1_5": {"metrics": {"loss": 1.0}}, "2_25": {"metrics": {"loss": 2.0}}})
    decision = decide(EachRun(LatestN(2) | BestN(1, "loss")), items)
    assert decision.kept == {"1.5", "1.40", "1.45", "2.25", "2.40", "2.45"}
    assert decision.kept_by["2.25"] == ("EachRun(BestN(1, 'loss'))",)
    assert decision.notes == (
        "9 states of those that go lack the metric that EachRun(BestN(1, 'loss')) goes by",
    )
    assert decision == decide(EachRun(LatestN(2)) | EachRun(BestN(1, "loss")), items)


def test_each_run_within_the_modifiers():
    decision = decide(Strip("x", after=EachRun(LatestN(2))) | ExactOnly(EachRun(LatestN(1))), forked())
    assert set(decision.stripped) == {item.node for item in forked()} - {"1.40", "1.45", "2.40", "2.45"}
    assert set(decision.exact_let_go) == {item.node for item in forked()} - {"1.45", "2.45"}


@pytest.mark.parametrize("rule", [EachRun(BestN(1, "los")), EachRun(LatestN(3) | BestN(1, "los"))])
def test_each_run_by_a_metric_that_nobody_has_takes_nothing_away(rule):
    with pytest.raises(InvalidInputError, match=r"^nothing is let go of: no state has the metric 'los'"):
        decide(rule, with_loss(1.0, 2.0))
    decision = decide(LatestN(1) | rule, saves(1, 2))
    assert "no state has the metric 'los'; the metrics there are: none" in decision.notes


def test_each_run_said_twice_is_said_once():
    assert EachRun(EachRun(LatestN(1)) | Pinned()) == EachRun(LatestN(1) | Pinned())
    assert EachRun(LatestN(1)) | EachRun(LatestN(1)) == EachRun(LatestN(1))


def test_reasons():
    decision = decide(LatestN(1) | EveryNSteps(10) | ExactOnly(LatestN(1)), saves(0, 5, 10))
    assert decision.retired == {"1.5": "not kept by LatestN(1) or EveryNSteps(10)"}
    assert decision.exact_let_go == {"1.0": "exact value not kept by ExactOnly(LatestN(1))"}


def test_modifiers_alone_keep_every_state():
    decision = decide(Strip("optim/**", after=LatestN(2)) | ExactOnly(LatestN(1)), saves(1, 2, 3, 4))
    assert decision.kept == {"1.1", "1.2", "1.3", "1.4"}
    assert not decision.retired
    assert decision.stripped == {"1.1": ("optim/**",), "1.2": ("optim/**",)}
    assert set(decision.exact_let_go) == {"1.1", "1.2", "1.3"}


def test_strips_add_up_and_exacts_unite():
    rule = LatestN(3) | Strip("a/**", after=LatestN(1)) | Strip("b/**", after=LatestN(2))
    decision = decide(rule | ExactOnly(EveryNSteps(100)) | ExactOnly(LatestN(1)), saves(0, 1, 2, 3, 4))
    assert decision.kept == {"1.2", "1.3", "1.4"}
    assert decision.stripped == {"1.2": ("a/**", "b/**"), "1.3": ("a/**",)}
    assert set(decision.exact_let_go) == {"1.2", "1.3"}


def test_no_exact_leaves_exact_values_alone_and_what_has_none_loses_none():
    assert not decide(LatestN(2), saves(1, 2, 3)).exact_let_go
    assert not decide(LatestN(2) | ExactOnly(LatestN(1)), saves(1, 2, 3, exact=False)).exact_let_go


def test_the_latest_of_a_run_is_never_stripped_and_a_pinned_state_is_never_touched():
    items = saves(1, 2, 3) + saves(4, 5, 6, run=2, run_id="b")
    items = changed(items, **{"1_1": {"pinned": True}})
    decision = decide(Strip("optim/**", after=LatestN(1)) | ExactOnly(LatestN(1)), items)
    assert set(decision.stripped) == {"1.2", "2.4", "2.5"}
    assert set(decision.exact_let_go) == {"1.2", "1.3", "2.4", "2.5"}


def test_where_the_latest_is_not_finite_the_last_before_that_is_stays_and_can_go_on():
    items = saves(1, 2, 3, 4, 5)
    items = changed(items, **{"1_5": {"finite_before": "1.2"}, "1_4": {"finite_before": "1.2"}})
    decision = decide(LatestN(1) | Strip("optim/**", after=LatestN(1)), items)
    assert steps_of(decision.kept, items) == [2, 5]
    assert decision.kept_by["1.2"] == ("last before values that are not finite",)
    assert not decision.stripped
    (note,) = decision.notes
    assert "step 2 stays" in note
    # Another run took the place of that one, or the rule keeps the state anyway.
    assert kept_steps(LatestN(1), [dataclasses.replace(item, superseded=True) for item in items]) == [5]
    assert not decide(LatestN(4), items).notes
    assert not decide(Strip("x", after=LatestN(1)), items).notes


def test_no_candidates():
    assert decide(BestN(1, "loss"), []).kept == frozenset()
    assert decide(LogSpaced() | Strip("x", after=LatestN(1)), []).stripped == {}


def test_a_node_twice_is_an_error():
    with pytest.raises(InvalidInputError, match="twice"):
        decide(LatestN(1), saves(1) + saves(1))


@pytest.mark.parametrize(
    "fields", [{"created": float("nan")}, {"created": datetime(2026, 1, 1)}, {"step": -1}, {"nbytes": -1}]
)
def test_candidates_that_cannot_be(fields):
    with pytest.raises(InvalidInputError):
        dataclasses.replace(saves(1)[0], **fields)


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (LatestN, (0,)), (LatestN, (True,)), (LatestN, (1.0,)), (LatestN, ("3",)), (LatestN, (1 << 63,)),
        (EveryNSteps, (0,)), (EveryNSteps, (5, -1)),
        (EveryNSeconds, (0,)), (EveryNSeconds, (float("nan"),)), (EveryNSeconds, (float("inf"),)),
        (EveryNSeconds, ("6 parsecs",)), (EveryNSeconds, ("h",)),
        (EveryNSeconds, (True,)), (EveryNSeconds, ("0s",)), (EveryNSeconds, (1e-9,)),
        (EveryNSeconds, (None,)), (EveryNSeconds, ("1h", 0)), (EveryNSeconds, ("1h", 2.0)),
        (BestN, (0, "loss")), (BestN, (1, "")), (BestN, (1, None)), (BestN, (1, "loss", "least")),
        (LogSpaced, (1,)), (LogSpaced, (float("nan"),)), (LogSpaced, ("2",)),
        (Budget, (0,)), (Budget, ("10 cats",)), (Budget, ("0.1B",)), (Budget, (1.5,)),
        (Budget, ("99999999PB",)),
        (Tagged, ("",)), (Tagged, (3,)),
        (Strip, ("", LatestN(1))), (Strip, ("x", None)), (Strip, ("x", ExactOnly(LatestN(1)))),
        (Strip, ("x", LatestN(1) | Strip("y", LatestN(1)))),
        (ExactOnly, ("LatestN(1)",)), (ExactOnly, (ExactOnly(LatestN(1)),)),
        (EachRun, (3,)), (EachRun, (LatestN(1) | ExactOnly(LatestN(1)),)),
    ],
)  # fmt: skip
def test_bad_arguments(make, arguments):
    with pytest.raises(InvalidInputError):
        make(*arguments)


def test_a_rule_unites_with_rules_only():
    with pytest.raises(TypeError):
        _ = LatestN(1) | "best:1:loss"


def test_values():
    assert LatestN(3) | LatestN(3) == LatestN(3)
    assert LatestN(1) | (Pinned() | Tagged()) == (LatestN(1) | Pinned()) | Tagged()
    assert EveryNSeconds("6h") == EveryNSeconds(21600.0)
    assert Budget("10GB") == Budget(10**10) != Budget("10GiB")
    assert len({LatestN(1), LatestN(1), LatestN(2), EveryNSteps(1), ExactOnly(LatestN(1)), Tagged("a")}) == 5


def test_a_rule_of_a_users_own_is_refused_where_it_is_written():
    """It was taken and asked by nobody, and the states that it named went."""
    with pytest.raises(InvalidInputError, match=r"EvalSteps would be asked by nobody.*Tagged\('eval-\*'\)"):

        class EvalSteps(lcstore.Retention):
            pass
