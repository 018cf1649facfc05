"""The branch of every node: edges from the root to it, one after another, along which edges are merged.

Planning goes through the nodes in an order in which every edge that counts leads from an earlier node to a
later one. Names are hints and may form circles; an edge that would close one leads backward, and does not
count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lcstore.graph.graph import Graph
from lcstore.graph.paths import Links
from lcstore.graph.refs import PLANNED, ROOT, EdgeRef
from lcstore.graph.sizes import Sizes

_SPREAD_UNIT: Final = 1 << 64


class Place(NamedTuple):
    """Where a node is on its branch.

    Attributes
    ----------
    parent
        The node before it: the base of its own edge; where that edge is gone, the nearest base of another.
    length
        Edges of the branch.
    spread
        Sum of the spreads of its edges, the anchor left out; see `Sizes`. It is an integer, in parts of
        `_SPREAD_UNIT`: one great edge must not swallow the small ones.
    anchor
        About the bytes of an anchor to the node: of that one, or of the largest edge since. Weights may have
        come late, and an anchor that seems to cost nothing would be made again and again.
    sound
        Whether edges that are not condemned lead to it from the root.
    """

    parent: str
    length: int
    spread: int
    anchor: int
    sound: bool


class Branches:
    """The branches of a graph.

    Parameters
    ----------
    graph
        Names the nodes, and the edges that are condemned.
    edges
        Those that are looked at.
    sizes
        Estimates merged edges.

    Attributes
    ----------
    nodes
        The nodes that `edges` lead to from the root, each behind all that it can be merged from.
    places
        The place of each, and of the root.
    links
        By node: the edges to it that count and are not condemned.
    """

    def __init__(self, graph: Graph, edges: Iterable[EdgeRef], sizes: Sizes) -> None:
        self.sizes = sizes
        self.names = graph.nodes
        self.places: dict[str, Place] = {ROOT: Place(ROOT, 0, 0, 0, True)}
        self.links: dict[str, list[EdgeRef]] = {ROOT: []}
        incoming: defaultdict[str, list[EdgeRef]] = defaultdict(list)
        for edge in sorted(edges, key=lambda edge: edge.rank):
            incoming[edge.target].append(edge)
        left = _in_order(sorted(incoming, key=lambda node: self.names[node].order), incoming)
        count = -1
        while count != len(self.places):
            # Once, unless circles are in the way.
            count = len(self.places)
            for node in left:
                self._place(node, incoming[node], graph.is_condemned)
            left = [node for node in left if node not in self.places]
        self.nodes = [node for node in self.places if node != ROOT]

    def _place(self, node: str, incoming: list[EdgeRef], is_condemned: Callable[[EdgeRef], bool]) -> None:
        """Put a node on a branch if anything leads to it, and note the edges that count."""
        known = [edge for edge in incoming if edge.base in self.places]
        if not known:
            return
        here = [edge for edge in known if not is_condemned(edge)]
        sound = [edge for edge in here if self.places[edge.base].sound]
        links = self.links[node] = sound or here
        edge = max(
            links or known,
            key=lambda edge: (edge.edge is None, self.places[edge.base].length, -edge.nbytes),
        )
        base = self.places[edge.base]
        spread, anchor = 0, edge.nbytes
        if edge.base != ROOT:
            spread = base.spread + int(self.sizes.spread(edge.nbytes) * _SPREAD_UNIT)
            anchor = max(base.anchor, edge.nbytes)
        self.places[node] = Place(edge.base, base.length + 1, spread, anchor, bool(sound))

    def span(self, base: str, node: str) -> int:
        """Return how many edges of the branch an edge from `base` to `node` merges."""
        return self.places[node].length - self.places[base].length

    def merged(self, base: str, node: str) -> int:
        """Return about how many bytes an edge from `base`, above `node` or the root, to `node` will have."""
        place = self.places[node]
        if base == ROOT:
            return max(place.anchor, self.sizes.anchor)
        spread = (place.spread - self.places[base].spread) / _SPREAD_UNIT
        return min(self.sizes.nbytes(spread), place.anchor)

    def planned(self, base: str, node: str) -> EdgeRef:
        """Return such an edge."""
        return EdgeRef(base, node, PLANNED, self.merged(base, node))

    def weight(self, edge: EdgeRef) -> int:
        """Return the bytes that an edge counts as when edges are compared.

        No more than a merge was expected to have: what came out larger would be made again and again.
        """
        if edge.base in (ROOT, self.places[edge.target].parent):
            return edge.nbytes
        return min(edge.nbytes, self.merged(edge.base, edge.target) or edge.nbytes)


def _in_order(nodes: Iterable[str], incoming: Links) -> list[str]:
    """Return the nodes, each behind all that leads to it where no circle is in the way."""
    seen, done = {ROOT}, {ROOT: None}
    for start in nodes:
        stack = [start]
        while stack:
            node = stack[-1]
            if node not in seen:
                seen.add(node)
                stack.extend(edge.base for edge in incoming.get(node, ()) if edge.base not in seen)
            else:
                done[stack.pop()] = None
    return [node for node in done if node != ROOT]
