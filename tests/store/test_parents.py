"""A state whose parent is gone: let go of meanwhile, which is no damage, or lost, which is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from meetings import state

import lcstore
from lcstore import CorruptionError
from lcstore.format import keys
from lcstore.records.kinds import EDGE
from lcstore.records.reading import read_listed
from lcstore.storage.memory import MemoryBackend


class Meddled(MemoryBackend):
    """Another handle does something when whoever collects or verifies has listed the last folder."""

    meddle: Callable[[], object] | None = None

    def _list(self, prefix):
        found = super()._list(prefix)
        if prefix in ("names", "") and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle()
        return found


def filled() -> tuple[Meddled, list[str]]:
    """Return a store of four states, of which the third stands beside a way around it."""
    backend = Meddled.fresh()
    with lcstore.open(backend, grace=0) as store:
        nodes = [store.save(step, state(step)).node for step in range(4)]
        store.retire(1)
        store.compact()
    return backend, nodes


def let_go(backend: Meddled, node: str) -> None:
    """Retire a node and collect it, as another process does."""
    with lcstore.open(backend) as other:
        other.retire(node)
        other.compact()
        other.collect()
        assert node not in {found.node for found in other.states(retired=True)}


@pytest.mark.parametrize("look", [lambda store: store.collect(), lambda store: store.verify("decode")])
def test_a_parent_that_is_let_go_of_meanwhile_is_no_damage(look):
    backend, nodes = filled()
    backend.meddle = lambda: let_go(backend, nodes[2])
    with lcstore.open(backend) as store:
        found = look(store)
        assert backend.meddle is None
        assert getattr(found, "ok", True)
        assert store.restore(3)
        assert store.verify("decode").ok


def test_a_parent_of_which_nothing_is_known_stops_the_collector():
    backend, nodes = filled()
    record = next(key for key in backend.list("nodes") if keys.parse_node_key(key).node == nodes[2])
    backend.delete_many([record, keys.copy_key(nodes[2])])
    with lcstore.open(backend) as store:
        assert "parent" in {finding.check for finding in store.verify().findings}
        with pytest.raises(CorruptionError, match=r"its parent, node .* is missing"):
            store.collect()


def test_a_way_that_was_added_and_a_node_collected_meanwhile_are_no_damage():
    """The listing shows neither the edge that leads around what goes, nor that anything was let go of."""
    backend = Meddled.fresh()
    with lcstore.open(backend, grace=0) as store:
        nodes = [store.save(step, state(step)).node for step in range(4)]
    backend.meddle = lambda: let_go(backend, nodes[2])
    with lcstore.open(backend) as store:
        store.collect()
        assert store.restore(3)
    assert backend.meddle is None


def test_a_copy_that_was_stored_after_its_edge_was_collected_is_none():
    backend, _ = filled()
    key = backend.list("edges")[0]
    backend.delete(key)
    with pytest.warns(lcstore.FallbackWarning, match="its second copy was read"):
        record, _ = read_listed(backend, EDGE, key, "it is missing")
    backend.delete_many(backend.list(keys.edge_folder(record.edge.id)))
    with pytest.raises(CorruptionError, match="it is missing"):
        read_listed(backend, EDGE, key, "it is missing")
