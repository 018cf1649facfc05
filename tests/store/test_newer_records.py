"""A record of a later version is no damage, and no state is lost by it: it is not read, and that is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from damaged import grown
from kit.newer import newer_node

import lcstore
from lcstore.check.findings import VerifyReport
from lcstore.check.verify import verify
from lcstore.format import keys
from lcstore.format.fields import record_id
from lcstore.format.records import NodeRecord
from lcstore.storage.memory import MemoryBackend
from lcstore.version import UPGRADE


@pytest.fixture(scope="module")
def whole() -> dict[str, bytes]:
    return grown()


def node_at(objects: dict[str, bytes], step: int) -> str:
    return next(key for key in objects if key.startswith(f"nodes/{step:019d}"))


def look(objects: dict[str, bytes]) -> VerifyReport:
    return verify(MemoryBackend.fresh(objects))


def test_a_record_of_a_later_version_is_unread_and_no_state_is_lost(whole):
    objects, key = newer_node(whole, node_at(whole, 60))
    report = look(objects)
    assert not report.is_sound
    assert (report.lost, report.lost_ranges, report.unread, report.good) == ((), (), 1, 45)
    assert (report.next, [(one.key, one.next) for one in report.findings if one.severity == "error"]) == (
        UPGRADE,
        [(key, UPGRADE)],
    )
    assert "upgrade lcstore" in report.wrong
    assert "lost" not in str(report)
    assert "target" not in report.wrong


def test_states_that_stand_on_one_are_not_lost_either(whole):
    objects, key = newer_node(whole, node_at(whole, 50))
    later, child = keys.parse_node_key(key).node, node_at(whole, 60)
    was = NodeRecord.from_bytes(objects.pop(child), key=child)
    record = replace(was, parent=later, edge=replace(was.edge, base=later))
    data = record.to_bytes()
    report = look(objects | {keys.node_key(record.name(record_id(data))): data})
    assert (report.states, report.lost, report.unread, report.good) == (7, (), 1, 45)


def test_damage_beside_one_is_told_as_ever(whole):
    objects, _ = newer_node(whole, node_at(whole, 60))
    damaged = node_at(whole, 45)
    report = look(objects | {damaged: objects[damaged][:-1]})
    assert (report.lost, report.unread, report.count("error")) == ((45,), 1, 2)
    assert "upgrade" not in report.wrong  # what is damaged is told first
    assert report.next == UPGRADE  # nothing is repaired before


def test_a_night_that_meets_one_says_to_upgrade(whole):
    objects, _ = newer_node(whole, node_at(whole, 60))
    backend = MemoryBackend.fresh(objects)
    with lcstore.open(backend, "r+", threads=1) as store:
        report = store.maintain("latest:2")
    assert set(report.problems) == {"collect", "verify"}
    assert not any("repair" in str(problem) for problem in report.problems.values())
    assert all(isinstance(one, lcstore.UnsupportedFormatError) for one in report.problems.values())
    assert report.next == UPGRADE
    assert backend.snapshot() == objects
