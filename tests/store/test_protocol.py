"""Saving, compacting, collecting, pinning and reading beside each other, in every order that can matter.

Each scene is a store of a few states and a few actors with the real code. One storage operation happens at a
time; all orders of them that can end differently are run, or (where they are too many) as many as there is
time for, and then random ones. After each: no acknowledged state that is not let go of is lost, nobody got
wrong bytes, and collecting goes on.
"""

from __future__ import annotations

import pytest
from kit import Exploration, explore, replay
from kit.actors import Stage, alone, deterministic
from meetings import (
    Meeting,
    at_work,
    collecting,
    compacting,
    pinning,
    reading,
    retiring,
    saving,
    start,
    unretiring,
)

from lcstore import ConflictError, CorruptionError, NotFoundError
from lcstore.write.written import Written

pytestmark = [pytest.mark.once, pytest.mark.unprotected]

TOO_LATE = (NotFoundError, CorruptionError)


def fresh_writer() -> Meeting:
    """A writer that begins a run of its own, whose objects a collector takes for those of a dead one."""
    return Meeting(start(2), {"writer": saving(), "collector": collecting()})


def resumed_writer() -> Meeting:
    """A writer that goes on from a state that is retired and collected."""
    begun = start(2, fork=True)
    leaf = begun.nodes[1]
    return Meeting(
        begun,
        {"writer": saving(leaf), "collector": collecting(retire=leaf)},
        let_go=frozenset([leaf]),
        excused={"writer": TOO_LATE, "collector": (CorruptionError,)},
    )


def late_writer() -> Meeting:
    """A writer that goes on from a state while what that stands on is made needless and collected."""
    begun = start(3, (1,), compacted=True)
    return Meeting(begun, {"writer": saving(begun.nodes[2]), "collector": collecting()})


def compactor() -> Meeting:
    """A compactor makes states needless that a collector takes."""
    return Meeting(start(4, (1, 2)), {"compactor": compacting, "collector": collecting(2)})


def collectors() -> Meeting:
    """Two collectors, one of which retires something more."""
    begun = start(4, (1,), compacted=True)
    return Meeting(
        begun,
        {"one": collecting(), "two": collecting(retire=begun.nodes[2])},
        let_go=frozenset([begun.nodes[2]]),
    )


def collectors_and_compactor() -> Meeting:
    """Two collectors that see different ways to one state, as a compactor is at work."""
    return Meeting(start(4, (1, 2)), {"compactor": compacting, "one": collecting(), "two": collecting()})


def all_three() -> Meeting:
    """A writer that goes on from a state that is let go of, a compactor and a collector."""
    begun = start(4, (2,), fork=True)
    leaf = begun.nodes[1]
    return Meeting(
        begun,
        {"writer": saving(leaf), "compactor": compacting, "collector": collecting(retire=leaf)},
        let_go=frozenset([leaf]),
        excused={"writer": TOO_LATE, "collector": (CorruptionError,)},
    )


def pinner() -> Meeting:
    """A state is pinned while it is retired and collected."""
    begun = start(2, fork=True)
    leaf = begun.nodes[1]
    return Meeting(
        begun,
        {"pinner": pinning(leaf), "collector": collecting(retire=leaf)},
        let_go=frozenset([leaf]),
        excused={"pinner": (ConflictError, *TOO_LATE)},
    )


def late_pinner() -> Meeting:
    """A state is pinned after it was retired, while it is collected."""
    begun = start(3, (1,), fork=True, compacted=True)
    return Meeting(
        begun,
        {"pinner": pinning(begun.nodes[1]), "collector": collecting()},
        excused={"pinner": (ConflictError, *TOO_LATE)},
    )


def two_pinners() -> Meeting:
    """Two set one pin on a state that was retired, while it is collected: one may come too late."""
    begun = start(3, (1,), fork=True, compacted=True)
    return Meeting(
        begun,
        {
            "pinner_1": pinning(begun.nodes[1]),
            "pinner_2": pinning(begun.nodes[1]),
            "collector": collecting(),
        },
        excused=dict.fromkeys(("pinner_1", "pinner_2"), (ConflictError, *TOO_LATE)),
    )


def unretirer() -> Meeting:
    """All that was let go of is brought back while it is collected."""
    begun = start(4, (1, 2), fork=True, compacted=True)
    return Meeting(
        begun,
        {"unretirer": unretiring, "collector": collecting()},
        excused={"unretirer": TOO_LATE},
    )


def unretirers_and_a_pinner() -> Meeting:
    """Two bring the same back, and one pins it, while it is collected."""
    begun = start(3, (1,), fork=True, compacted=True)
    return Meeting(
        begun,
        {
            "unretirer_1": unretiring,
            "unretirer_2": unretiring,
            "pinner": pinning(begun.nodes[1]),
            "collector": collecting(),
        },
        excused={"unretirer_1": TOO_LATE, "unretirer_2": TOO_LATE, "pinner": (ConflictError, *TOO_LATE)},
    )


def letting_go_again() -> Meeting:
    """What was brought back is let go of again while a collector is at work."""
    begun = start(3, (1,), fork=True, compacted=True, back=True)
    leaf = begun.nodes[1]
    return Meeting(begun, {"retirer": retiring(leaf), "collector": collecting(2)}, let_go=frozenset([leaf]))


def letting_go_again_of_what_is_unretired() -> Meeting:
    """One lets go of what was brought back, another brings it back once more, and it is collected."""
    begun = start(3, (1,), fork=True, compacted=True, back=True)
    leaf = begun.nodes[1]
    return Meeting(
        begun,
        {"retirer": retiring(leaf), "unretirer": unretiring, "collector": collecting()},
        let_go=frozenset([leaf]),
        excused={"unretirer": TOO_LATE},
    )


def writer_upon_what_is_let_go_of_again() -> Meeting:
    """A writer goes on from a state that was brought back, which is let go of again and collected."""
    begun = start(3, (1,), fork=True, back=True)
    leaf = begun.nodes[1]
    return Meeting(
        begun,
        {"writer": saving(leaf), "retirer": retiring(leaf), "collector": collecting()},
        let_go=frozenset([leaf]),
        excused={"writer": TOO_LATE},
    )


def reader() -> Meeting:
    """A reader of a state that stays, and of one that is let go of, while a collector takes its way away."""
    begun = start(4, (1, 2), compacted=True)
    return Meeting(begun, {"reader": reading(begun.nodes[3], begun.nodes[0]), "collector": collecting()})


def late_reader() -> Meeting:
    """A reader of a state that is collected."""
    begun = start(3, (1,), compacted=True)
    return Meeting(
        begun,
        {"reader": reading(begun.nodes[1]), "collector": collecting()},
        excused={"reader": TOO_LATE},
    )


MEETINGS = {
    made.__name__: made
    for made in (
        fresh_writer,
        resumed_writer,
        late_writer,
        compactor,
        collectors,
        collectors_and_compactor,
        all_three,
        pinner,
        late_pinner,
        two_pinners,
        unretirer,
        unretirers_and_a_pinner,
        letting_go_again,
        letting_go_again_of_what_is_unretired,
        writer_upon_what_is_let_go_of_again,
        reader,
        late_reader,
    )
}


def meet(name: str, limit: int | None, samples: int) -> Exploration:
    return explore(MEETINGS[name]().scene, limit, samples=samples)


@pytest.mark.parametrize("name", MEETINGS)
def test_nothing_is_lost_in_some_orders(name):
    found = meet(name, 40, 40)
    assert found.complete or found.schedules + found.cut_short + found.sampled == 80


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MEETINGS)
def test_nothing_is_lost_in_any_order(name):
    found = meet(name, 4_000, 1_000)
    assert found.complete or found.sampled == 1_000


@pytest.fixture
def bare(monkeypatch):
    monkeypatch.setattr(Written, "put_metadata", lambda *_: None)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    "names", [("writer", "compactor"), ("writer", "collector"), ("compactor", "collector")]
)
def test_nothing_is_lost_in_any_order_of_two(names):
    assert explore(at_work(*names)).complete


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("bare")
def test_nothing_is_lost_in_any_order_of_a_writer_a_compactor_and_a_collector():
    """Some hundred thousand orders: those that differ late, and then random ones."""
    found = explore(at_work("writer", "compactor", "collector"), 6_000, samples=2_000)
    assert found.complete or found.sampled == 2_000


def test_a_compactor_whose_new_edge_is_taken_between_its_listings_skips_it(bare):
    """Edge listed, its record deleted, its condemnation deleted, condemnations listed: it is no damage."""
    order = "writer*9 compactor*17 collector*18 compactor*4 collector*13 compactor*5 collector*2 compactor"
    replay(at_work("writer", "compactor", "collector"), order)


def test_a_compactor_meets_a_state_whose_object_is_taken_before_its_record_is_there(bare):
    """The writer lets go of that state a moment later: until then an object is missing, and that is said."""
    order = "writer*3 collector*30 writer*2 compactor*35"
    replay(at_work("writer", "compactor", "collector"), order)


#: What comes next of an actor that sets a pin, and that looks whether it is too late; and of a collector.
SETS, LOOKS_AGAIN = ("put", "names/pin"), ("list", "")
CONDEMNS, DELETES = ("put", "condemned/"), ("delete", "data/")
#: An actor has found the state, and in the look before its pin all but the names that there are.
LOOKS = [("pinner_2", ("list", folder)) for folder in ("names", "retired", "names")]


@pytest.mark.parametrize(
    ("turns", "too_late"),
    [
        (
            # One finds the pin of the other, which came too late and is about to go.
            [*LOOKS, ("pinner_1", SETS), ("collector", DELETES), ("pinner_1", LOOKS_AGAIN)],
            {"pinner_1", "pinner_2"},
        ),
        # One came in time, and the other finds that it did not.
        (
            [("collector", CONDEMNS), ("pinner_2", SETS), ("pinner_1", None), ("collector", None)],
            {"pinner_2"},
        ),
    ],
)
def test_who_was_told_of_a_pin_finds_it_there_whoever_else_sets_it(turns, too_late):
    """Each goes on until what comes next is the operation that is named, or to its end."""
    left = [*turns, ("pinner_2", None)]

    def is_done(pending):
        actor, until = left[0]
        step = pending.get(actor)
        return step is None or (until is not None and step.name == until[0] and step.key.startswith(until[1]))

    def choose(pending):
        while left and is_done(pending):
            del left[0]
        return left[0][0] if left else next(iter(pending))

    with deterministic(), alone():
        scene = two_pinners().scene()
        stage = Stage(scene.backend, choose)
        stage.run(scene.actors)
        scene.check(stage.outcomes)
    assert {name for name, outcome in stage.outcomes.items() if outcome.error is not None} == too_late
