"""Which further edges the newest nodes of runs need, which are read most."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lcstore.graph.paths import START, Path
from lcstore.graph.refs import EDGE_COST, ROOT, EdgeRef
from lcstore.graph.stops import Tree

#: The newest node of a run reads at most so many times the bytes of an anchor and one delta.
NEWEST_READS: Final = 1.3
#: The latest node of all, which is what is mostly restored. Decoding merged edges takes about three times as
#: long a byte as an anchor does, so this keeps the time below 1.3 times.
LATEST_READS: Final = 1.1
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


def edges_for_newest(tree: Tree) -> set[EdgeRef]:
    """Return the edges that are needed besides a tree, those to be planned among them.

    The newest node of each run that nothing else stands on reads at most `NEWEST_READS` times an anchor and a
    delta; the latest of all, `LATEST_READS` times. Where the tree reads more, other edges that are there are
    needed too. Where those do not do, an edge is planned: from the nearest stop that does, or an anchor. The
    edge of the tree is needed all the same: it is small, and will do when another node is newest.
    """
    found = set[EdgeRef]()
    over, light = _paths(tree)
    for tip, limit in _limits(tree).items():
        if over[tip].nbytes <= LEEWAY * limit:
            continue
        at = tip
        if tree.planning and tip not in tree.partial and light[tip].nbytes > limit:
            edge = _lighter(tree, tip, light, limit)
            if edge is not None:
                found.add(edge)
                at = edge.base
        while (last := light[at].last) is not None:
            found.add(last)
            at = last.base
    return found


def _limits(tree: Tree) -> dict[str, float]:
    """Return how many bytes the newest nodes of runs may read."""
    names, newest, latest = tree.branches.names, dict[str, str](), ""
    for node in sorted(tree.kept & tree.needed, key=lambda node: names[node].order):
        newest[names[node].run_id] = latest = node
    bases = {edge.base for edge in tree.edges()}
    limits = {}
    for node in newest.values():
        if node == latest or node not in bases:
            delta = names[node].nbytes if names[node].base != ROOT else 0
            reads = LATEST_READS if node == latest else NEWEST_READS
            limits[node] = reads * (tree.branches.places[node].anchor + delta)
    return limits


def _go_on(path: Path, edge: EdgeRef) -> Path:
    """Return the path that goes on over `edge`, with as many bytes as it may turn out to have."""
    if not edge.is_planned or edge.base == ROOT:
        return path.extend(edge)
    return path.extend(replace(edge, nbytes=int(MARGIN * edge.nbytes)))._replace(last=edge)


def _paths(tree: Tree) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the paths of needed nodes over the tree, and the lightest that take no more edges than those.

    So whichever of the edges on them are needed in the end, no restore gets longer than the tree.
    """
    over, light = {ROOT: START}, {ROOT: START}
    for node in tree.branches.nodes:
        edge = tree.stands[node].edge if node in tree.needed else None
        if edge is None:
            continue
        over[node] = _go_on(over[edge.base], edge)
        others = [_go_on(light[edge.base], edge) for edge in tree.branches.links[node] if edge.base in light]
        short = [path for path in others if path.edges <= over[node].edges]
        light[node] = min([_go_on(light[edge.base], edge), *short], key=lambda path: path.weight)
    return over, light


def _lighter(tree: Tree, tip: str, light: dict[str, Path], limit: float) -> EdgeRef | None:
    """Return an edge to be made from the nearest stop that makes the tip light enough.

    An anchor if there is none; None if even that would be no lighter than what is there.
    """
    there = {edge.base for edge in tree.branches.links[tip]}
    base = tree.above[tip]
    for _ in range(TRIES):
        if base == ROOT:
            break
        edge = tree.branches.planned(base, tip)
        path = _go_on(light[base], edge)
        if path.nbytes <= limit and path.edges <= tree.stands[tip].depth and base not in there:
            return edge
        base = tree.above[base]
    anchor = tree.branches.planned(ROOT, tip)
    if ROOT in there or ANCHOR_MARGIN * anchor.nbytes + EDGE_COST >= light[tip].cost:
        return None
    return anchor
