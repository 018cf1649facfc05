"""What an earlier copy of a store has that the source has not any more, and decides by itself."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Self

from lcstore.format import keys
from lcstore.format.marks import CondemnedRecord, RetiredRecord
from lcstore.index.gone import DAMAGED
from lcstore.index.listing import RECORDS, Listing
from lcstore.storage.backend import Backend, exists


@dataclass
class Earlier:
    """What was in the target before a copy began.

    A repair of the source says of states that they are lost, and of objects that they are not to be used. An
    earlier copy has them whole: there neither is said, or the next collect would delete what it was kept for.

    Attributes
    ----------
    nodes, edges
        Ids: of states, and of edges that are no state's own. None where the target was no store yet.
    kept
        The states that were let go of in the source as damaged, as a whole or in part, and stay.
    """

    nodes: frozenset[str] = frozenset()
    edges: frozenset[str] = frozenset()
    kept: set[str] = field(default_factory=set)

    @classmethod
    def look(cls, target: Backend) -> Self:
        """Look at what a target has, before anything is copied to it."""
        if not exists(target, keys.STORE_KEY):
            return cls()
        listing = Listing.take(target, RECORDS)
        return cls(
            frozenset(name.node for name in listing.nodes),
            frozenset(keys.parse_edge_key(key).edge for key in listing.below(keys.EDGES)),
        )

    def decides(self, mark: object) -> bool:
        """Return whether a mark of the source is left out, as the target has what it is about from before."""
        if isinstance(mark, CondemnedRecord):
            return mark.edge in self.edges if mark.node is None else mark.node in self.nodes
        if isinstance(mark, RetiredRecord) and mark.node in self.nodes and mark.reason.startswith(DAMAGED):
            self.kept.add(mark.node)
            return True
        return False


def past(nodes: Iterable[str], there: Set[str], others: Set[str]) -> set[str]:
    """Return which of the other records that are there an earlier copy brought from the source.

    They are states of runs that the source has; where the two share a state also of runs that it had, as
    their numbers tell; and edges to states. A copy that went on by itself has a run of its own, with the next
    number.
    """
    known = {key: keys.parse_node_key(key) for key in nodes}
    runs = {name.run_id for name in known.values()}
    numbers = set[int]() if there.isdisjoint(known) else {name.run for name in known.values()}
    had = {*range(1, max(numbers, default=0))} - numbers
    found = {key: keys.parse_node_key(key) for key in others if key.startswith(f"{keys.NODES}/")}
    states = {key for key, name in found.items() if name.run_id in runs or name.run in had}
    ids = {name.node for name in known.values()} | {found[key].node for key in states}
    edges = {key: keys.parse_edge_key(key) for key in others if key.startswith(f"{keys.EDGES}/")}
    return states | {key for key, edge in edges.items() if edge.target in ids}
