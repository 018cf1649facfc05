"""When a further edge from the root is due, so that no damage is far from one.

It is the rule of the writer, who adds them, and of the collector, who leaves them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Self

from lcstore.durability import Durability
from lcstore.graph.refs import EdgeRef
from lcstore.graph.stops import Tree


class Since(NamedTuple):
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
    def along(cls, path: Sequence[EdgeRef]) -> Self:
        """Return what lies on a path from the root."""
        return cls(path[0].nbytes, sum(edge.nbytes for edge in path[1:]), len(path) - 1) if path else cls()

    def then(self, nbytes: int) -> Self:
        """Return what it comes to with one more edge, of so many bytes."""
        return type(self)(self.anchor, self.nbytes + nbytes, self.edges + 1)

    def is_due(self, durability: Durability) -> bool:
        """Return whether a further edge from the root is due here."""
        every = durability.anchor_every
        if every is not None and self.edges >= every:
            return True
        # Infinity times nothing is no number.
        return self.nbytes > durability.anchor_ratio * max(self.anchor, 1)


def due_anchors(tree: Tree, durability: Durability) -> set[int]:
    """Return the edges from the root that are there, that a tree does without, and that are due in it."""
    graph, links, found = tree.branches.graph, tree.branches.links, set[int]()
    anchors: defaultdict[int, list[int]] = defaultdict(list)
    for edge in graph.anchors:
        node = graph.target[edge]
        if tree.needed[node] and graph.base[tree.last[node]] and edge in links[node]:
            anchors[node].append(edge)
    since = {0: Since()}
    for node in tree.branches.nodes if anchors else ():
        if not tree.needed[node]:
            continue
        edge = tree.last[node]
        base, nbytes = graph.base[edge], graph.nbytes[edge]
        here = since[base].then(nbytes) if base else Since(nbytes)
        if node in anchors and here.is_due(durability):
            kept = min(anchors[node], key=lambda edge: (graph.nbytes[edge], graph.rank(edge)))
            found.add(kept)
            here = Since(graph.nbytes[kept])
        since[node] = here
    return found
