"""Every node gives the same bits over every path, whatever compactions and collections have run."""

from __future__ import annotations

import pytest
from story import CHUNK, Story

from lcstore.graph import choice, graph, lineage, routes, ways
from lcstore.graph import plan as planning
from lcstore.state import plan as plans

#: One that hides the bytes of such small states, as it does for small edges anywhere; and one that does not.
EDGE_COSTS = (1 << 18, 200)


@pytest.fixture(params=EDGE_COSTS)
def edge_cost(request, monkeypatch):
    for module in (choice, graph, lineage, planning, routes, ways):
        if hasattr(module, "EDGE_COST"):
            monkeypatch.setattr(module, "EDGE_COST", request.param)
    monkeypatch.setattr(plans, "chunk_elements", lambda size, dtype: CHUNK)


def tell(seed: int, turns: int) -> None:
    story = Story(seed)
    story.go_on(turns)
    story.check(paths=8)
    for _ in range(2):
        story.store.compact()
        assert story.check() > 0
        story.store.collect()
        assert story.check() >= len(story.kept)
    assert story.store.collect().deleted_objects == 0
    with story.store:
        report = story.store.verify(level="checksum")
        assert report.ok, report


@pytest.mark.usefixtures("edge_cost")
@pytest.mark.parametrize("seed", range(10))
def test_any_history_keeps_its_bits(seed):
    tell(seed, 40)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("edge_cost")
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_long_histories_keep_their_bits(seed):
    tell(seed, 300)
