"""Candidates and rules for the tests of retention."""

from __future__ import annotations

from hypothesis import strategies as st

from lcstore.retention.candidates import Candidate
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
from lcstore.retention.spaced import LogSpaced


def saves(*steps, run=1, run_id="a", first=0, **more):
    """Return one run's commits of these steps; the node of step 7 of run 1 is ``1.7``, again ``1.7'``."""
    found: list[Candidate] = []
    for place, step in enumerate(steps):
        name = f"{run}.{step}"
        while any(item.node == name for item in found):
            name += "'"
        found.append(Candidate(name, step, run, run_id, first + place, created=float(place), **more))
    return found


def steps_of(nodes, candidates):
    return sorted(item.step for item in candidates if item.node in nodes)


METRICS = ("loss", "acc")
TAGS = ("gold", "v1", "v2")

values = st.sampled_from([0.0, 1.0, 2.0, -1.0, float("nan"), float("inf"), float("-inf")])
facts = st.tuples(
    st.integers(0, 60),  # step
    st.integers(1, 3),  # run
    st.sampled_from("ab"),  # run_id
    st.floats(-100, 100),  # created
    st.dictionaries(st.sampled_from(METRICS), values),
    st.frozensets(st.sampled_from(TAGS), max_size=2),
    st.integers(0, 9).map(lambda x: x == 0),  # pinned
    st.integers(0, 100),  # nbytes
    st.none() | st.integers(0, 100),  # anchor_bytes
)


@st.composite
def histories(draw, max_size=30, largest_exact=0):
    """Return candidates in an order of arrival that is not always that of their commits."""
    rows = draw(st.lists(facts, max_size=max_size))
    return [
        Candidate(f"n{i}", step, run, run_id, i, *more, exact_bytes=draw(st.integers(0, largest_exact)))
        for i, (step, run, run_id, *more) in enumerate(rows)
    ]


#: Histories in which some states have exact values that take more than their edges.
exact_histories = histories(largest_exact=200)


counts = st.integers(1, 8)
words = st.sampled_from(METRICS) | st.text(min_size=1, max_size=8)
choosers_of_all = st.one_of(
    st.builds(LatestN, counts),
    st.builds(EveryNSteps, st.integers(1, 20), st.integers(0, 20)),
    st.builds(
        EveryNSeconds,
        st.floats(0.5, 50) | st.sampled_from(["2s", "1min", "6h", "1d", "2w"]),
        st.none() | counts,
    ),
    st.builds(BestN, counts, st.sampled_from(METRICS), st.sampled_from(["min", "max"])),
    st.builds(LogSpaced, st.floats(1.01, 10)),
    st.just(Pinned()),
    st.builds(Tagged, st.sampled_from(["v*", "gold", "*"])),
    st.just(Tagged()),
)
keeps_of_all = choosers_of_all | st.builds(
    Budget, st.integers(1, 500) | st.sampled_from(["1kB", "2KiB", "10GB"])
)


def united(parts):
    def unite(found):
        whole = found[0]
        for part in found[1:]:
            whole |= part
        return whole

    return st.lists(parts, min_size=1, max_size=4).map(unite)


#: Rules whose choice in each group is the first or the best: what they let go they never want again.
choosers = choosers_of_all | st.builds(EachRun, united(choosers_of_all))
keeps = keeps_of_all | st.builds(EachRun, united(keeps_of_all))

modifiers = st.builds(Strip, st.sampled_from(["optim/**", "a|b/*", "x"]), united(keeps)) | st.builds(
    ExactOnly, united(keeps)
)
rules = united(keeps | modifiers)
