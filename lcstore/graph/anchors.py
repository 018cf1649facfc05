"""When a further edge from the root is due, so that no damage is far from one.

It is the rule of the writer, who adds them, and of the collector, who leaves them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from lcstore.durability import Durability
from lcstore.graph.refs import ROOT, EdgeRef
from lcstore.graph.stops import Tree


@dataclass(frozen=True)
class Since:
    """What lies between the last edge from the root and a node.

    Attributes
    ----------
    anchor, nbytes, edges
        Bytes of that edge; bytes and number of the edges since.
    """

    anchor: int = 0
    nbytes: int = 0
    edges: int = 0

    @classmethod
    def along(cls, path: Iterable[EdgeRef]) -> Self:
        """Return what lies on a path from the root."""
        found = cls()
        for edge in path:
            found = found.then(edge)
        return found

    def then(self, edge: EdgeRef) -> Self:
        """Return what it comes to with one more edge."""
        if edge.base == ROOT:
            return type(self)(edge.nbytes)
        return type(self)(self.anchor, self.nbytes + edge.nbytes, self.edges + 1)

    def is_due(self, durability: Durability) -> bool:
        """Return whether a further edge from the root is due here."""
        every = durability.anchor_every
        if every is not None and self.edges >= every:
            return True
        # Infinity times nothing is no number.
        return self.nbytes > durability.anchor_ratio * max(self.anchor, 1)


def due_anchors(tree: Tree, durability: Durability) -> set[EdgeRef]:
    """Return the edges from the root that are there, that a tree does without, and that are due in it."""
    found = set[EdgeRef]()
    since = {ROOT: Since()}
    for node in tree.branches.nodes:
        edge = tree.stands[node].edge if node in tree.needed else None
        if edge is None:
            continue
        here = since[edge.base].then(edge)
        anchors = [link for link in tree.branches.links[node] if link.base == ROOT and not link.is_planned]
        if anchors and edge.base != ROOT and here.is_due(durability):
            kept = min(anchors, key=lambda link: (link.nbytes, link.rank))
            found.add(kept)
            here = Since(kept.nbytes)
        since[node] = here
    return found
