"""Verifying while a collector takes away what was listed: that is no damage, and real damage is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from test_readers_beside import Interrupted

import lcstore
from lcstore.check.verify import verify
from lcstore.format import keys, markkeys
from lcstore.format.marks import CondemnedRecord
from lcstore.format.records import NodeRecord, utc_now
from lcstore.storage.memory import MemoryBackend

pytestmark = pytest.mark.once


class CutOff(MemoryBackend):
    """A target of which a process deletes some sorts of things, and is then held up for ever."""

    deletions = 1 << 30

    def delete_many(self, found: Any) -> None:
        self.deletions -= 1
        if self.deletions < 0:
            raise lcstore.StorageError("held up")
        super().delete_many(found)


@cache
def saved() -> dict[str, bytes]:
    """A compacted store of which most states are let go of, and nothing is condemned yet."""
    backend, rng = MemoryBackend.fresh(), np.random.default_rng(0)
    with lcstore.open(backend, threads=1, grace=0, durability="default") as store:
        weight = rng.standard_normal((8, 8)).astype(np.float32)
        for step in range(6):
            weight = weight + rng.standard_normal(weight.shape).astype(np.float32) * np.float32(0.01)
            moments = {"state": {0: {"exp_avg": weight * weight}}}
            store.save(step, {"model": {"weight": weight}, "optim": moments})
        store.compact()
        store.retain("latest:2 | every:3")
    return backend.snapshot()


def collecting(backend: CutOff, deletions: int, keep: str | None) -> None:
    """Collect until some sorts of things were deleted; before that let go of more, and compact."""
    with lcstore.open(backend, "r+", threads=1) as store:
        if keep is not None:
            store.retain(keep)
            store.compact()
        backend.deletions = deletions
        try:
            store.collect()
        except lcstore.StorageError as error:
            assert error.message == "held up"


def every_moment(happens: Callable[[CutOff], None]) -> Iterator[lcstore.VerifyReport]:
    """Verify with something happening before one of its operations, each in turn."""
    objects, at = saved(), 0
    while True:
        backend = CutOff.fresh(objects)
        beside = Interrupted(backend, at, lambda backend=backend: happens(backend))
        report = verify(beside)  # type: ignore[arg-type]
        if beside.count <= at:
            return
        yield report
        at += 1


@pytest.mark.parametrize("keep", [None, "latest:1"])
@pytest.mark.parametrize("deletions", [1, 3, 7])  # copies; up to objects; records, too
def test_what_a_collector_takes_away_meanwhile_is_no_damage(deletions, keep):
    """It is held up half-way, so its records may stay while their copies are gone, or be gone as well."""
    moments = 0
    for report in every_moment(lambda backend: collecting(backend, deletions, keep)):
        assert report.is_sound, (moments, report.wrong)
        moments += 1
    assert moments > 20


def test_copies_of_what_stays_are_missed_beside_a_collector():
    objects = saved()
    last = max(key for key in objects if key.startswith(f"{keys.NODES}/"))
    copy = keys.copy_key(keys.parse_node_key(last).node)
    for at in range(0, 30, 3):
        backend = CutOff.fresh({**objects, copy: b"damaged"})
        beside = Interrupted(backend, at, lambda backend=backend: collecting(backend, 1, None))
        report = verify(beside)  # type: ignore[arg-type]
        assert [one.key for one in report.mendable] == [copy]


def test_a_copy_of_an_edge_to_a_state_in_danger_is_missed_though_the_edge_is_condemned():
    """No collector takes it away: nothing else leads to the state."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, threads=1, grace=0, durability="default") as store:
        for step in range(3):
            store.save(step, {"model": {"weight": np.full((8, 8), step + 1, np.float32)}})
    for key in backend.list(keys.NODES):
        node = keys.parse_node_key(key).node
        edge = NodeRecord.from_bytes(backend.get(key), key=key).edge.id
        mark = CondemnedRecord(edge, node, markkeys.WHOLE_EDGE, utc_now())
        backend.put(mark.key(), mark.to_bytes())
    copy = keys.copy_key(node)
    backend.put(copy, b"damaged")
    assert [one.key for one in verify(backend).mendable] == [copy]
