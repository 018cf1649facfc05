"""Which further edges the newest nodes of runs need, which are read most."""

from __future__ import annotations

from typing import Final, NamedTuple

from lcstore.graph.refs import EDGE_COST
from lcstore.graph.stops import Tree

#: The newest node of a run reads at most so many times the bytes of an anchor and one delta.
NEWEST_READS: Final = 1.3
#: The latest node of all, which is what is mostly restored. Decoding merged edges takes about three times as
#: long a byte as an anchor does, so this keeps the time below 1.3 times.
LATEST_READS: Final = 1.1
#: None of these needs another edge to read fewer bytes than this: that takes some hundredths of a
#: second, and an anchor for each run of a small model would be most of what is stored.
FREE_READS: Final = 1 << 22
#: The size of a merge that is only planned is counted as so much more where that hangs on it. It is estimated
#: from other merges, which were so themselves: twice an error of 8 %.
MARGIN: Final = 1.2
#: An anchor is not made unless it is expected to be so much lighter than what is there.
ANCHOR_MARGIN: Final = 1.03
#: Edges for a newest node are needed from so much of the limit on: those made when the limit seemed to be
#: passed are not let go because another came out a little smaller.
LEEWAY: Final = 0.8
#: How many stops above a run's newest node are tried as bases of a merge to it, before an anchor is.
TRIES: Final = 256


class _Paths(NamedTuple):
    """A path to every node: what it costs, its number of edges, and its last edge."""

    cost: list[int]
    edges: list[int]
    last: list[int]

    def nbytes(self, node: int) -> int:
        """Return the bytes to be read."""
        return self.cost[node] - EDGE_COST * self.edges[node]


def edges_for_newest(tree: Tree) -> set[int]:
    """Return the edges that are needed besides a tree, those to be planned among them.

    The newest node of each run that nothing else stands on reads at most `NEWEST_READS` times an anchor and a
    delta; the latest of all, `LATEST_READS` times. Where the tree reads more, other edges that are there are
    needed too. Where those do not do, an edge is planned: from the nearest stop that does, or an anchor. The
    edge of the tree is needed all the same: it is small, and will do when another node is newest.
    """
    found, base = set[int](), tree.branches.graph.base
    over, light = _paths(tree)
    for tip, limit in _limits(tree).items():
        if over.nbytes(tip) <= LEEWAY * limit:
            continue
        at = tip
        if tree.planning and tip not in tree.partial and light.nbytes(tip) > limit:
            edge = _lighter(tree, tip, light, limit)
            if edge is not None:
                found.add(edge)
                at = base[edge]
        while at:
            found.add(light.last[at])
            at = base[light.last[at]]
    return found


def _limits(tree: Tree) -> dict[int, float]:
    """Return how many bytes the newest nodes of runs may read."""
    graph, newest, latest = tree.branches.graph, dict[str, int](), 0
    for node in sorted(tree.kept):
        if tree.needed[node]:
            newest[graph.run_ids[node]] = latest = node
    limits = {}
    for node in newest.values():
        if node == latest or not tree.used[node]:
            delta = graph.nbytes[node] if graph.base[node] else 0
            reads = LATEST_READS if node == latest else NEWEST_READS
            limits[node] = max(FREE_READS, reads * (tree.branches.anchor[node] + delta))
    return limits


def _costs(tree: Tree) -> list[int]:
    """Return what it costs to go over each edge, with as many bytes as it may turn out to have."""
    graph = tree.branches.graph
    costs = [nbytes + EDGE_COST for nbytes in graph.nbytes]
    for edge in graph.all_planned:
        if graph.base[edge]:
            costs[edge] = int(MARGIN * graph.nbytes[edge]) + EDGE_COST
    return costs


def _paths(tree: Tree) -> tuple[_Paths, _Paths]:
    """Return the paths of needed nodes over the tree, and the lightest that take no more edges than those.

    So whichever of the edges on them are needed in the end, no restore gets longer than the tree.
    """
    bases, costs, count = tree.branches.graph.base, _costs(tree), len(tree.last)
    over, light = (_Paths([0] * count, [0] * count, [0] * count) for _ in range(2))
    for node in tree.branches.nodes:
        edge = tree.last[node]
        if not tree.needed[node]:
            continue
        base, cost = bases[edge], costs[edge]
        over.cost[node], over.edges[node] = over.cost[base] + cost, over.edges[base] + 1
        least, last = (light.cost[base] + cost, light.edges[base] + 1), edge
        links = tree.branches.links[node]
        for other in links if links != (edge,) else ():
            base = bases[other]
            if not base or light.last[base]:
                new = light.cost[base] + costs[other], light.edges[base] + 1
                if new < least and new[1] <= over.edges[node]:
                    least, last = new, other
        light.cost[node], light.edges[node], light.last[node] = *least, last
    return over, light


def _lighter(tree: Tree, tip: int, light: _Paths, limit: float) -> int | None:
    """Return an edge to be made from the nearest stop that makes the tip light enough.

    An anchor if there is none; None if even that would be no lighter than what is there.
    """
    branches = tree.branches
    there = {branches.graph.base[edge] for edge in branches.links[tip]}
    base = tree.above[tip]
    for _ in range(TRIES):
        if not base:
            break
        nbytes = light.nbytes(base) + int(MARGIN * branches.merged(base, tip))
        if nbytes <= limit and light.edges[base] < tree.depth[tip] and base not in there:
            return branches.planned(base, tip)
        base = tree.above[base]
    anchor = branches.merged(0, tip)
    if 0 in there or ANCHOR_MARGIN * anchor + EDGE_COST >= light.cost[tip]:
        return None
    return branches.planned(0, tip)
