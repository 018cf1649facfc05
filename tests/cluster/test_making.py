"""An edge made where only those records are known that it is made of; and made once, though tried twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.clustered import fill, shortcuts

import lcstore
from lcstore.compaction.making import Made, known_of, make_there
from lcstore.format import markkeys
from lcstore.format.marks import CondemnedRecord
from lcstore.graph.plan import waits
from lcstore.graph.refs import PLANNED, ROOT, EdgeRef
from lcstore.storage.local import LocalBackend


@pytest.fixture
def url(tmp_path: Path) -> Path:
    return fill(tmp_path / "run", count=24, rows=8)


def task(url: Path, place: int) -> Callable[..., Made]:
    """Return what makes a planned edge, given those that it waits for."""
    with lcstore.open(url, "r", threads=1) as store:
        compactor = store._compactor()
        shortcut = compactor.plan().shortcuts[place]
        known, durability = known_of(shortcut, store._index.graph), store.durability

    def run(*made: Made) -> Made:
        return make_there(LocalBackend(url), durability, shortcut, known, frozenset(), made)

    return run


def test_a_second_try_finds_what_the_first_has_made(url):
    make = task(url, 0)
    first = make()
    assert first.name is not None
    assert make() == Made(first.name, first.name.nbytes)
    assert len(shortcuts(url)) == 1


def test_a_second_try_makes_anew_what_a_collector_took_of_the_first(url):
    make, backend = task(url, 0), LocalBackend(url)
    first = make().name
    chunk = next(key for key in backend.list(f"data/{first.edge}") if key.endswith("c.0"))
    backend.delete(chunk)
    second = make().name
    assert second.edge != first.edge
    mark = CondemnedRecord(second.edge, None, markkeys.WHOLE_EDGE, "2026-01-01T00:00:00.000000Z")
    backend.put(mark.key(), mark.to_bytes())
    assert make().name.edge not in (first.edge, second.edge)


def test_an_edge_takes_what_was_made_for_it_elsewhere(url):
    with lcstore.open(url, "r", threads=1) as store:
        shortcuts_planned = store._compactor().plan().shortcuts
    after = waits(shortcuts_planned)
    place = next(place for place, those in enumerate(after) if those)
    made = [task(url, one)(*[task(url, two)() for two in after[one]]) for one in after[place]]
    before = shortcuts(url)
    assert task(url, place)(*made).name is not None
    with lcstore.open(url, "r+", threads=1) as store:
        store.compact()
    assert before.items() <= shortcuts(url).items()


def test_what_waits_for_what():
    from lcstore.graph.plan import Shortcut

    own = EdgeRef("a", "b", None, 1)
    plan = [
        Shortcut("a", "c", 1, 2, (own, EdgeRef("b", "c", None, 1))),
        Shortcut(ROOT, "a", 1, 2, ()),
        Shortcut("a", "d", 1, 3, (EdgeRef("a", "c", PLANNED, 1), EdgeRef("c", "d", "e" * 32, 1))),
    ]
    assert waits(plan) == [(), (0,), (0,)]
