"""A wrong rule is made up for: what it let go of comes back, until another rule lets go of it anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from damaged import state
from kit.looks import steps
from meetings import opened
from states import same

import lcstore
from lcstore import ConflictError, InvalidInputError, NotFoundError
from lcstore.format import keys
from lcstore.format.marks import RetiredRecord, TagRecord
from lcstore.storage.memory import MemoryBackend
from lcstore.terminal.collection import later
from lcstore.testing import FaultBackend
from lcstore.write.naming import hide_again

pytestmark = pytest.mark.once


def run_of(saves: int = 8) -> MemoryBackend:
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        for step in range(saves):
            store.save(step, state(step))
    return backend


def test_the_right_rule_lets_go_of_what_it_should_and_leaves_no_pin_behind():
    backend = run_of()
    with opened(backend) as store:
        saved = {step: store.restore(step) for step in store.steps()}
        store.retain("latest:1")
        assert store.steps() == [7]
        shown = store.unretire(dry_run=True)
        assert [one.step for one in shown.brought_back] == [*range(7)]
        assert store.steps() == [7]
        done = store.unretire()
        assert done.brought_back == shown.brought_back
        assert done.ok
        assert not done.notes
    with opened(backend) as store:
        assert store.steps() == [*range(8)]
        assert all(same(store.restore(step), saved[step]) for step in saved)
        assert [one.step for one in store.states() if one.brought_back] == [*range(7)]
        assert not any(one.pinned_by for one in store.states())
        report = store.retain("latest:3 | every:4")
        assert report.kept == (0, 4, 5, 6, 7)
        assert not any("pinned" in why for why in report.kept_by.values())
        assert [one.step for one in store.states() if one.brought_back] == [0, 4, 5, 6]
        store.compact()
        store.collect(grace=0)
        store.collect(grace=0)
        assert [one.step for one in store.states(retired=True)] == [0, 4, 5, 6, 7]
        assert store.unretire().brought_back == ()
        store.retain("latest:1")
        assert store.steps() == [7]
        assert [one.step for one in store.unretire().brought_back] == [0, 4, 5, 6]  # and so on
        assert store.steps() == [0, 4, 5, 6, 7]


def test_one_state_comes_back_by_its_step_and_another_by_its_node():
    backend = run_of()
    with opened(backend) as store:
        nodes = {one.step: one.node for one in store.states()}
        store.retain("latest:1")
        assert [one.node for one in store.unretire(3).brought_back] == [nodes[3]]
        assert [one.step for one in store.unretire(nodes[5]).brought_back] == [5]
        assert store.steps() == [3, 5, 7]
        again = store.unretire(3)
        assert (again.brought_back, again.notes) == ((), ("step 3 is not retired",))
        with pytest.raises(NotFoundError):
            store.unretire(99)
        with pytest.raises(InvalidInputError, match="since"):
            store.unretire(3, since=10)


def test_of_a_step_that_two_runs_saved_the_retired_state_comes_back():
    backend = run_of(4)
    with opened(backend) as store:
        store.resume(2)
        store.save(1, state(50))
        first = next(one.node for one in store.states() if one.step == 1 and one.run == 1)
        store.retire(first)
        assert [one.node for one in store.unretire(1).brought_back] == [first]
        assert store.steps().count(1) == 1
        assert [one.run for one in store.states() if one.step == 1] == [1, 2]


@pytest.mark.parametrize("how", ["by step", "by run", "by rule"])
def test_whatever_lets_go_of_it_again_takes_its_pin_away(how):
    backend = run_of(4)
    with opened(backend) as store:
        store.retain("latest:1")
        store.unretire()
        with opened(backend) as other:
            other.save(10, state(10))
        if how == "by step":
            store.retire(1, "again")
        elif how == "by run":
            store.retire_run(1, "again", run_is_dead=True)
        else:
            store.retain("latest:1")
        assert 1 not in store.steps()
        assert not any(one.brought_back for one in store.states(retired=True) if one.retired)
        (back,) = store.unretire(1).brought_back
        assert back.reason.startswith("not kept by " if how == "by rule" else "again")
        assert 1 in store.steps()


def test_a_pin_of_a_person_is_held_beside_it():
    backend = run_of()
    with opened(backend) as store:
        store.retain("latest:1")
        store.unretire()
        store.pin(2, by="alice")
        store.pin(3, by="alice")
        assert [one.step for one in store.states() if one.pinned_by == ("alice",)] == [2, 3]
        assert store.unpin(3, by="alice") == 1
        assert 3 in store.steps()
        with pytest.raises(InvalidInputError, match="pinned"):
            store.retire(2)
        report = store.retain("latest:1")
        assert report.kept == (2, 7)
        assert [why for why in report.kept_by.values() if "pinned" in why] == [("pinned",)]
        assert store.unpin(2, by="alice") == 1
        assert 2 in store.steps()  # it was brought back besides
        store.retain("latest:1")
        assert store.steps() == [7]


def test_unpin_without_a_name_hides_it_again():
    backend = run_of()
    with opened(backend) as store:
        store.retain("latest:1")
        store.unretire(2)
        store.pin(2, by="alice")
        assert store.unpin(2) == 2
        assert store.steps() == [7]


def test_what_a_collect_has_begun_to_take_stays_away():
    backend = MemoryBackend.fresh()
    with opened(backend, grace=1000) as store:
        for step in range(8):
            store.save(step, state(step))
        store.retain("latest:2 | every:3")
        store.compact()
        store.collect()
        store.retain("latest:1")
        shown, names = store.unretire(dry_run=True), backend.list(keys.NAMES)
        assert [one.step for one in shown.brought_back] == [0, 3, 6]
        done = store.unretire()
        assert done.brought_back == shown.brought_back
        assert done.too_late == shown.too_late
        assert [one.step for one in done.too_late] == [1, 2, 4, 5]
        assert done.ok
        assert not store.unretire(since="1h").ok
        assert len(backend.list(keys.NAMES)) == len(names) + 3  # no pin is left on what is going
        assert store.steps() == [0, 3, 6, 7]
        for dry_run in (True, False):
            with pytest.raises(ConflictError, match="too late"):
                store.unretire(1, dry_run=dry_run)


def retired_at(backend: MemoryBackend, node: str, reason: str, hours: float) -> None:
    """Store a retirement as if that had been so many hours ago."""
    created = f"{(datetime.now(UTC) - timedelta(hours=hours)).isoformat().removesuffix('+00:00')}Z"
    record = RetiredRecord(node, reason, created)
    backend.put(record.key(), record.to_bytes())


def test_since_tells_a_night_from_those_before():
    backend = run_of()
    with opened(backend) as store:
        nodes = {one.step: one.node for one in store.states()}
        for step in (0, 1):
            retired_at(backend, nodes[step], "old", 30)
        for step in (1, 2):
            retired_at(backend, nodes[step], "new", 2)
        assert [(one.step, one.reason) for one in store.unretire(dry_run=True).brought_back] == [
            (0, "old"), (1, "new"), (2, "new"),
        ]  # fmt: skip
        assert [one.step for one in store.unretire(since="12h", dry_run=True).brought_back] == [1, 2]
        assert store.unretire(since=3600).brought_back == ()
        assert [one.step for one in store.unretire(since="12h").brought_back] == [1, 2]
        assert store.steps() == [*range(1, 8)]
        with pytest.raises(InvalidInputError):
            store.unretire(since="a while")


@pytest.mark.parametrize("reason", ["damaged: an object is missing", "not acknowledged: what it needs went"])
def test_what_was_damaged_or_never_acknowledged_comes_back_by_name_alone(reason):
    backend = run_of()
    with opened(backend) as store:
        nodes = {one.step: one.node for one in store.states()}
        retired_at(backend, nodes[3], reason, 1)
        retired_at(backend, nodes[3], "not kept by LatestN(1)", 0)
        store.retire(4)
        found = store.unretire()
        assert [one.step for one in found.brought_back] == [4]
        assert len(found.notes) == 1
        assert "1 state" in found.notes[0]
        assert 3 not in store.steps()
        assert [one.step for one in store.unretire(3).brought_back] == [3]


def test_what_a_repair_let_go_of_stays_away():
    backend = run_of()
    with opened(backend) as store:
        broken = store.info(3).node
        edge = store._index.record(broken).edge
        for ref in edge.objects:
            backend.delete(ref.key)
    with opened(backend) as store:
        store.repair(dry_run=False)
        gone = {*range(8)} - {*store.steps()}
        assert 3 in gone
        store.retire(1)
        assert [one.step for one in store.unretire().brought_back] == [1]
        assert {*range(8)} - {*store.steps()} == gone


def test_a_retirement_that_cannot_be_read_leaves_its_state_away():
    backend = run_of()
    with opened(backend) as store:
        store.retain("latest:6")
        key = min(backend.list(keys.RETIRED))
        data = bytearray(backend.get(key))
        data[10] ^= 1
        backend.delete(key)
        backend.put(key, bytes(data))
        found = store.unretire()
        assert len(found.brought_back) == 1
        assert "cannot be read" in found.notes[0]


def test_parts_that_went_by_themselves_are_told_of():
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        for step in range(6):
            store.save(step, state(step), exact=step == 2)
        store.retain("latest:9 | exact-only:latest:1")
        store.retain("latest:1")
        found = store.unretire()
        assert len(found.brought_back) == 5
        assert found.notes[0].startswith("in part: ")


def test_a_night_takes_few_requests_for_each_state():
    def asked(saves: int) -> int:
        backend = FaultBackend(run_of(saves))
        with opened(backend) as store:
            store.retain("latest:1")
            before = len(backend.log)
            assert len(store.unretire().brought_back) == saves - 1
            return len(backend.log) - before

    assert asked(30) - asked(10) <= 20 * 2  # a retirement that is read, a pin that is stored


def test_a_copy_that_keeps_what_a_rule_of_the_source_lets_go_of_keeps_what_was_brought_back():
    source, target = run_of(), MemoryBackend.fresh()
    with opened(source) as store:
        store.retain("latest:1")
        store.unretire()
        lcstore.copy(source, target)
        assert steps(target) == [*range(8)]
        store.retain("latest:2")
    for _ in range(2):
        lcstore.copy(source, target)
        assert steps(target) == [*range(8)]
    with opened(target) as store:
        store.retain("latest:2")
    assert steps(target) == [6, 7]


def test_a_rule_that_is_behind_the_times_takes_no_pin_away_that_was_set_since():
    """It decided about a state that another let go of, and that was brought back once more."""
    backend = run_of()
    with opened(backend) as store:
        store.retain("latest:1")
        store.unretire()
        with opened(backend) as slow:
            slow._index.refresh(full=True)
            before = slow._index.named
            store.retain("latest:1")
            store.unretire()
            hide_again(backend, before, store.info(3).node)
        assert 3 in store.steps()


def test_a_collect_says_beforehand_how_many_states_it_takes_the_way_back_from():
    with opened(MemoryBackend.fresh(), grace=3600) as store:
        for step in range(8):
            store.save(step, state(step))
        assert store.collect(dry_run=True).condemned_states == 0
        store.retain("latest:3")
        store.compact()
        report = store.collect(dry_run=True)
        assert report.condemned_states == 5
        assert "`lcstore unretire` can bring back 5 states of that, and none later" in " ".join(later(report))
        assert store.collect().condemned_states == 5
        assert store.collect(dry_run=True).condemned_states == 0
        assert len(store.unretire().too_late) == 5


def test_the_name_of_the_holder_is_as_the_format_says():
    backend = run_of(3)
    with opened(backend) as store:
        store.retire(1)
        node = store.unretire(1).brought_back[0].node
    (key,) = backend.list(keys.NAMES)
    record = TagRecord.from_bytes(backend.get(key), key=key)
    assert (record.kind, record.name, record.node) == ("pin", f"{node} until retired again", node)
