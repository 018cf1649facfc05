"""An edge made where only those records are known that it is made of; and made once, though tried twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.clustered import fill, shortcuts

import lcstore
from lcstore import CorruptionError
from lcstore.format import markkeys
from lcstore.format.marks import CondemnedRecord
from lcstore.graph.plan import waits
from lcstore.graph.refs import PLANNED, ROOT, EdgeRef
from lcstore.making import dividing
from lcstore.making.elsewhere import Order, join_parts, known_of, make_there, merge_part
from lcstore.making.maker import Made
from lcstore.storage.local import LocalBackend
from lcstore.write.shortcut import Part


@pytest.fixture
def url(tmp_path: Path) -> Path:
    return fill(tmp_path / "run", count=24, rows=8)


def order_of(url: Path, place: int, edge: str = "", created: str = "") -> Order:
    """Return what a worker has to know to make a planned edge."""
    with lcstore.open(url, "r", threads=1) as store:
        shortcut = store._compactor().plan().shortcuts[place]
        known, durability = known_of(shortcut, store._index.graph), store.durability
    return Order(LocalBackend(url), durability, shortcut, known, frozenset(), edge, created)


def task(url: Path, place: int) -> Callable[..., Made]:
    """Return what makes a planned edge, given those that it waits for."""
    order = order_of(url, place)
    return lambda *made: make_there(order, made)


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


#: Of an edge that is made in parts.
GIVEN = "e" * 32, "2026-01-01T00:00:00.000Z"
PARTS = 3


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A store whose arrays have several chunks."""
    return fill(tmp_path / "run", count=24, rows=1 << 14)


def parts_of(order: Order) -> list[Part | None]:
    return [merge_part(order, number, PARTS, []) for number in range(PARTS)]


def test_an_edge_made_in_parts_is_the_one_made_whole(large):
    whole = Path(shutil.copytree(large, large.with_name("whole")))
    make_there(order_of(whole, 0), [])
    order = order_of(large, 0, *GIVEN)
    parts = parts_of(order)
    assert sum(len(part.chunks) for part in parts) > PARTS
    assert shortcuts(large) == {}, "nothing is committed before all parts are there"
    assert merge_part(order, 0, PARTS, []).chunks == parts[0].chunks, "a second try stores the same"
    made = join_parts(order, parts, [])
    assert made.name.edge == order.edge
    assert shortcuts(large) == shortcuts(whole)
    assert join_parts(order, parts, []) == Made(made.name, made.name.nbytes), "a second try finds it"
    with lcstore.open(large, "r") as store:
        assert store.verify("restore").ok


def test_an_edge_of_which_a_part_is_gone_is_made_whole(large):
    order = order_of(large, 0, *GIVEN)
    parts = parts_of(order)
    order.backend.delete(parts[1].chunks[0][0].key)
    made = join_parts(order, parts, [])
    assert made.name.edge != order.edge
    assert not order.backend.list(f"data/{order.edge}")
    with lcstore.open(large, "r") as store:
        assert store.verify("restore").ok


def test_an_edge_of_which_a_part_failed_is_made_whole(large):
    order = order_of(large, 0, *GIVEN)
    made = join_parts(
        order, [*(merge_part(order, number, PARTS, []) for number in range(PARTS - 1)), None], []
    )
    assert made.name.edge != order.edge
    assert not order.backend.list(f"data/{order.edge}")


def test_what_a_collector_took_for_an_interrupted_save_is_made_whole(large):
    order = order_of(large, 0, *GIVEN)
    parts = parts_of(order)
    mark = CondemnedRecord(order.edge, None, markkeys.WHOLE_EDGE, "2026-01-01T00:00:00.000000Z")
    order.backend.put(mark.key(), mark.to_bytes())
    assert join_parts(order, parts, []).name.edge != order.edge


def test_damage_is_for_who_makes_it_whole(large):
    order = order_of(large, 0, *GIVEN)
    for chunk in [*(large / "data").rglob("weights*/c.0"), *(large / "data").rglob("weights*/p.*")]:
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    parts = parts_of(order)
    assert None in parts
    with pytest.raises(CorruptionError):
        join_parts(order, parts, [])
    assert not order.backend.list(f"data/{order.edge}")


def test_edges_of_long_rows_are_made_in_parts():
    row, leaves = [(), (0,), (1,), (2,)], [()] * 4
    assert dividing.parts_of(row + leaves, 2, 8) == [2] * 4 + [1] * 4
    assert dividing.parts_of(row + leaves, 1, 8) == [1] * 8
    assert dividing.parts_of(row + leaves, 8, 3) == [3] * 4 + [1] * 4
    assert dividing.parts_of(row + [()] * 20, 2, 8) == [1] * 24, "what others fill up stays whole"
    assert dividing.parts_of(row, 2, 1) == [1] * 4
    assert dividing.parts_of([], 2, 8) == []


def test_what_waits_for_what():
    from lcstore.graph.plan import Shortcut

    own = EdgeRef("a", "b", None, 1)
    plan = [
        Shortcut("a", "c", 1, 2, (own, EdgeRef("b", "c", None, 1))),
        Shortcut(ROOT, "a", 1, 2, ()),
        Shortcut("a", "d", 1, 3, (EdgeRef("a", "c", PLANNED, 1), EdgeRef("c", "d", "e" * 32, 1))),
    ]
    assert waits(plan) == [(), (0,), (0,)]
