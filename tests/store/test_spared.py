"""What was let go of a short time ago is left by maintenance, so that it can be brought back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from damaged import state
from kit.looks import values
from meetings import opened
from states import same

from lcstore.errors import FallbackWarning
from lcstore.format import keys
from lcstore.format.marks import RetiredRecord
from lcstore.storage.memory import MemoryBackend

pytestmark = pytest.mark.once

DAY = 86_400
EIGHTH = DAY / 8


def run_of(saves: int = 8, *, grace: int = DAY, **how: bool) -> MemoryBackend:
    backend = MemoryBackend.fresh()
    with opened(backend, grace=grace) as store:
        for step in range(saves):
            store.save(step, state(step), **how)
    return backend


def went(backend: MemoryBackend, seconds: float, *steps: int) -> None:
    """Have states be let go of so many seconds ago."""
    created = datetime.now(UTC) - timedelta(seconds=seconds)
    with opened(backend, "r") as store:
        for step in steps:
            said = f"{created.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"
            record = RetiredRecord(store.info(step).node, "a rule", said)
            backend.put(record.key(), record.to_bytes())


def test_a_second_night_soon_after_the_first_leaves_what_that_let_go_of():
    """Two at once, or a night by hand: both told that all can be brought back, and nothing could."""
    backend = run_of()
    before = values(backend)
    with opened(backend, "r+") as store:
        assert store.maintain("latest:1").retained.states_let_go == 7
        assert store.maintain("latest:1", dry_run=True).collected.condemned_states == 0
        second = store.maintain("latest:1")
        assert second.ok
        assert second.collected.condemned_states == 0
        assert (second.collected.retired_states, second.collected.spared_states) == (7, 7)
        assert store.collect(dry_run=True).spared_states == 0
        back = store.unretire(since="12h")
        assert len(back.brought_back) == 7
        assert not back.too_late
    assert same(values(backend), before)


@pytest.mark.parametrize("rule", ["latest:1", "latest:3 | every:4", "every:5"])
def test_a_second_night_soon_after_the_first_has_nothing_to_write(rule):
    """It condemned what the first had merged, as spared states made that needless, and merged it anew."""
    backend = run_of(20)
    with opened(backend, "r+") as store:
        assert store.maintain(rule).compacted.added
        nights = [store.maintain(rule) for _ in range(3)]
        assert [night.compacted.added for night in nights] == [0, 0, 0]
        assert [night.collected.condemned for night in nights[1:]] == [0, 0]


@pytest.mark.parametrize(
    ("ago", "spared"),
    [(0.9 * EIGHTH, True), (1.1 * EIGHTH, False), (-600, True), (-7 * EIGHTH, True), (-9 * EIGHTH, False)],
)
def test_it_is_left_for_an_eighth_of_the_grace(ago, spared):
    backend = run_of()
    with opened(backend, "r+") as store:
        store.compact()
    went(backend, ago, *range(7))
    with opened(backend, "r+") as store:
        store.compact()
        assert (store.collect(dry_run=True).condemned_states, store.collect(dry_run=True).kept_states) == (
            7,
            1,
        )
        shown = store.collect(spare_recent=True, dry_run=True)
        assert (shown.condemned_states, shown.kept_states) == (0 if spared else 7, 1)
        assert store.maintain("latest:1").collected.condemned_states == shown.condemned_states
        assert len(store.unretire().brought_back) == (7 if spared else 0)


def test_what_a_collection_by_itself_condemned_goes_as_it_said():
    backend = run_of()
    with opened(backend, "r+") as store:
        store.retain("latest:1")
        store.compact()
        first = store.collect()
        assert first.condemned_states == 7
        night = store.maintain("latest:1")
        assert night.ok
        assert night.collected.waiting >= first.waiting
        assert len(store.unretire().too_late) == 7


def test_what_is_deleted_already_is_passed_over(monkeypatch):
    """Its retirement stays as long as a state names it as its parent."""
    for check in ("check_dead", "check_still"):
        monkeypatch.setattr(f"lcstore.maintain.collect.{check}", lambda *_, **__: None)
    backend = run_of()
    with opened(backend, "r+") as store:
        store.retain("latest:2 | every:4")
        store.compact()
        assert store.collect(grace=0, run_is_dead=True).deleted_states == 4
        assert backend.list(keys.RETIRED)
        report = store.maintain("latest:1")
        assert report.ok, report.wrong


def test_what_it_is_read_over_is_left_with_it():
    backend = run_of(exact=True)
    before = values(backend)
    went(backend, 2 * EIGHTH, 0, 1, 2, 3, 4)
    went(backend, EIGHTH / 2, 5, 6)
    with opened(backend, "r+") as store:
        store.compact()
        assert store.maintain("latest:1").ok
        back = {one.step for one in store.unretire().brought_back}
        assert {5, 6} <= back
        assert all(store.info(step).exact for step in (5, 6))
    after = values(backend)
    assert same({step: after[step] for step in (5, 6, 7)}, {step: before[step] for step in (5, 6, 7)})


def test_what_cannot_be_read_is_not_left_and_stops_no_maintenance():
    backend = run_of()
    went(backend, 0, 2, 3, 4)
    with opened(backend, "r+") as store:
        store.compact()
        (name,) = (one for one in store._index.graph.nodes.values() if one.step == 3)
        edge = store._index.record(name.node).edge.id
    for key in backend.list(keys.edge_folder(edge)):
        backend.delete(key)
    with opened(backend, "r+") as store:
        report = store.maintain("latest:4 | every:2")
        assert report.collected is not None, report.wrong
        assert report.collected.condemned_states == 0
        store.unretire()
        assert store.restore(2)["epoch"] == 2
        with pytest.warns(FallbackWarning, match="another path"):  # backward
            assert store.restore(4)["epoch"] == 4
