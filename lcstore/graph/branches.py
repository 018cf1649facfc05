"""The branch of every node: edges from the root to it, one after another, along which edges are merged.

Planning goes through the nodes in an order in which every edge that counts leads from an earlier node to a
later one. Names are hints and may form circles; an edge that would close one leads backward, and does not
count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lcstore.graph.numbered import SPREAD_UNIT, Numbered


class Branches:
    """The branches of a graph. What is known of each node is in a column, by its number.

    Parameters
    ----------
    graph
        Names the nodes and edges.
    edges
        Those that are looked at.

    Attributes
    ----------
    nodes
        The nodes that `edges` lead to from the root, each behind all that it can be merged from.
    placed
        Whether a node is one of these, or the root.
    links
        The edges to it that count and are not condemned.
    parent
        The node before it: the base of its own edge; where that edge is gone, the nearest base of another.
    length
        Edges of the branch.
    spread
        Sum of the spreads of its edges, the anchor left out; see `Sizes`.
    anchor
        About the bytes of an anchor to the node: of that one, or of the largest edge since. Weights may have
        come late, and an anchor that seems to cost nothing would be made again and again.
    sound
        Whether edges that are not condemned lead to it from the root.
    """

    def __init__(self, graph: Numbered, edges: Iterable[int]) -> None:
        self.graph = graph
        count = len(graph.ids)
        self.nodes: list[int] = []
        self.links: list[tuple[int, ...]] = [()] * count
        self.parent, self.length, self.spread, self.anchor = ([0] * count for _ in range(4))
        self.placed, self.sound = bytearray(count), bytearray(count)
        self.placed[0] = self.sound[0] = True
        incoming = graph.incoming(edges)
        left, before = _in_order(incoming, graph.base), -1
        while len(self.nodes) != before:
            # Once, unless circles are in the way.
            before = len(self.nodes)
            left = [node for node in left if not self._place(node, incoming[node])]

    def _place(self, node: int, incoming: tuple[int, ...]) -> bool:
        """Put a node on a branch if anything leads to it, and note the edges that count."""
        bases, sound, condemned = self.graph.base, self.sound, self.graph.condemned
        known = incoming
        if len(known) > 1 or not self.placed[bases[known[0]]]:
            known = tuple([edge for edge in known if self.placed[bases[edge]]])
            if not known:
                return False
        links = known
        if len(known) > 1 or condemned[known[0]]:
            here = tuple([edge for edge in known if not condemned[edge]])
            links = tuple([edge for edge in here if sound[bases[edge]]]) or here
        edge = (links or known)[0]
        if len(links or known) > 1:
            edge = max(
                links or known,
                key=lambda edge: (edge == node, self.length[bases[edge]], -self.graph.nbytes[edge]),
            )
        base, anchor = bases[edge], self.graph.nbytes[edge]
        if base:
            self.spread[node] = self.spread[base] + self.graph.spread[edge]
            anchor = max(self.anchor[base], anchor)
        self.links[node], self.anchor[node] = links, anchor
        self.parent[node], self.length[node] = base, self.length[base] + 1
        self.placed[node] = True
        sound[node] = bool(links) and sound[bases[links[0]]]
        self.nodes.append(node)
        return True

    def span(self, base: int, node: int) -> int:
        """Return how many edges of the branch an edge from `base` to `node` merges."""
        return self.length[node] - self.length[base]

    def merged(self, base: int, node: int) -> int:
        """Return about how many bytes an edge from `base`, above `node` or the root, to `node` will have."""
        if not base:
            return max(self.anchor[node], self.graph.sizes.anchor)
        spread = (self.spread[node] - self.spread[base]) / SPREAD_UNIT
        return min(self.graph.sizes.nbytes(spread), self.anchor[node])

    def planned(self, base: int, node: int) -> int:
        """Return such an edge."""
        return self.graph.planned(base, node, self.merged(base, node))

    def add(self, edge: int) -> None:
        """Have an edge be there."""
        self.links[self.graph.target[edge]] += (edge,)

    def drop(self, edge: int) -> None:
        """Have an edge be there no longer."""
        target = self.graph.target[edge]
        self.links[target] = tuple(other for other in self.links[target] if other != edge)

    def weight(self, edge: int) -> int:
        """Return the bytes that an edge counts as when edges are compared.

        No more than a merge was expected to have: what came out larger would be made again and again.
        """
        base, target, nbytes = self.graph.base[edge], self.graph.target[edge], self.graph.nbytes[edge]
        if not base or base == self.parent[target]:
            return nbytes
        return min(nbytes, self.merged(base, target) or nbytes)


def _in_order(incoming: Sequence[tuple[int, ...]], bases: Sequence[int]) -> list[int]:
    """Return the nodes that edges lead to, each behind all that leads to it where no circle is in the way."""
    seen, done = bytearray(len(incoming)), dict[int, None]()
    seen[0] = True
    for start, edges in enumerate(incoming):
        stack = [start] if edges and not seen[start] else []
        while stack:
            node = stack[-1]
            if seen[node]:
                done[stack.pop()] = None
            else:
                seen[node] = True
                stack.extend([base for edge in incoming[node] if not seen[base := bases[edge]]])
    return [node for node in done if incoming[node]]
