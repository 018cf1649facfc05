"""The plain twin of `lcstore.graph.plan`: the same rules, of nodes and edges that are objects."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from plain_tree import Branches, Tree

from lcstore.durability import NAMED
from lcstore.graph.anchors import Since
from lcstore.graph.newest import ANCHOR_MARGIN, FREE_READS, LATEST_READS, LEEWAY, MARGIN, NEWEST_READS, TRIES
from lcstore.graph.paths import START, cheapest_paths, path_between
from lcstore.graph.plan import ROUNDS, Plan, Shortcut
from lcstore.graph.refs import EDGE_COST, ROOT, EdgeRef
from lcstore.graph.sizes import Sizes


def edges_for_newest(tree):
    found = set[EdgeRef]()
    over, light = _light(tree)
    for tip, limit in _limits(tree).items():
        if over[tip].nbytes <= LEEWAY * limit:
            continue
        at = tip
        if tree.planning and tip not in tree.partial and (light[tip].nbytes > limit):
            edge = _lighter(tree, tip, light, limit)
            if edge is not None:
                found.add(edge)
                at = edge.base
        while (last := light[at].last) is not None:
            found.add(last)
            at = last.base
    return found


def _limits(tree):
    names, newest, latest = (tree.branches.names, dict[str, str](), "")
    for node in sorted(tree.kept & tree.needed, key=lambda node: names[node].order):
        newest[names[node].run_id] = latest = node
    bases = {edge.base for edge in tree.edges()}
    limits = {}
    for node in newest.values():
        if node == latest or node not in bases:
            delta = names[node].nbytes if names[node].base != ROOT else 0
            reads = LATEST_READS if node == latest else NEWEST_READS
            limits[node] = max(FREE_READS, reads * (tree.branches.places[node].anchor + delta))
    return limits


def _go_on(path, edge):
    if not edge.is_planned or edge.base == ROOT:
        return path.extend(edge)
    return path.extend(replace(edge, nbytes=int(MARGIN * edge.nbytes)))._replace(last=edge)


def _light(tree):
    over, light = ({ROOT: START}, {ROOT: START})
    for node in tree.branches.nodes:
        edge = tree.stands[node].edge if node in tree.needed else None
        if edge is None:
            continue
        over[node] = _go_on(over[edge.base], edge)
        others = [_go_on(light[edge.base], edge) for edge in tree.branches.links[node] if edge.base in light]
        short = [path for path in others if path.edges <= over[node].edges]
        light[node] = min([_go_on(light[edge.base], edge), *short], key=lambda path: path.weight)
    return (over, light)


def _lighter(tree, tip, light, limit):
    there = {edge.base for edge in tree.branches.links[tip]}
    base = tree.above[tip]
    for _ in range(TRIES):
        if base == ROOT:
            break
        edge = tree.branches.planned(base, tip)
        path = _go_on(light[base], edge)
        if path.nbytes <= limit and path.edges <= tree.stands[tip].depth and (base not in there):
            return edge
        base = tree.above[base]
    anchor = tree.branches.planned(ROOT, tip)
    if ROOT in there or ANCHOR_MARGIN * anchor.nbytes + EDGE_COST >= light[tip].cost:
        return None
    return anchor


def due_anchors(tree, durability):
    found = set[EdgeRef]()
    since = {ROOT: Since()}
    for node in tree.branches.nodes:
        edge = tree.stands[node].edge if node in tree.needed else None
        if edge is None:
            continue
        here = since[edge.base].then(edge.nbytes) if edge.base != ROOT else Since(edge.nbytes)
        anchors = [link for link in tree.branches.links[node] if link.base == ROOT and (not link.is_planned)]
        if anchors and edge.base != ROOT and here.is_due(durability):
            kept = min(anchors, key=lambda link: (link.nbytes, link.rank))
            found.add(kept)
            here = Since(kept.nbytes)
        since[node] = here
    return found


def plan(graph, kept, elements, *, max_bytes=None, partial=frozenset(), durability=NAMED["none"]):
    sizes = Sizes(elements)
    branches = Branches(graph, graph.refs(), sizes)
    wanted = set(kept) & branches.links.keys() - {ROOT}
    there = {edge for links in branches.links.values() for edge in links}
    frees = _try(branches, wanted, partial)
    if max_bytes is not None:
        for edge in frees.keys() - _affordable(frees, max_bytes):
            branches.links[edge.target].remove(edge)
    made = {edge for edge in _choose(branches, wanted, durability)[0] if edge.is_planned}
    needs = _fixed_point(graph, there | made, wanted, sizes, durability)
    before, after = (_paths(there, branches), _paths(needs, branches))
    newest = max(wanted, key=lambda node: graph.nodes[node].order, default=ROOT)
    return Plan(
        shortcuts=tuple(_shortcuts(graph, branches, made)),
        stored_before=sum(edge.nbytes for edge in there),
        stored_after=sum(edge.nbytes for edge in needs),
        written=sum(edge.nbytes for edge in made),
        edges_before=max((before[node].edges for node in wanted & before.keys()), default=0),
        edges_after=max((after[node].edges for node in wanted & after.keys()), default=0),
        newest_before=before[newest].nbytes if newest in before else 0,
        newest_after=after[newest].nbytes if newest in after else 0,
        stored_besides=_besides(graph, needs, wanted, sizes, durability),
    )


def needed(graph, kept, elements, *, durability=NAMED["none"]):
    sizes, edges = (Sizes(elements), {*graph.refs()})
    found = _fixed_point(graph, edges, kept, sizes, durability)
    while again := _made_again(graph, edges - found, found, kept, sizes):
        found |= again
    return frozenset(found)


def _made_again(graph, needless, left, kept, sizes):
    if all(edge.edge is None for edge in needless):
        return set()
    branches = Branches(graph, left, sizes)
    wanted = set(kept) & branches.links.keys() - {ROOT}
    made = {(edge.base, edge.target) for edge in _try(branches, wanted, frozenset())}
    counted = {edge for links in Branches(graph, needless | left, sizes).links.values() for edge in links}
    again: dict[tuple[str, str], EdgeRef] = {}
    for edge in sorted(needless & counted, key=lambda edge: edge.rank):
        ends = (edge.base, edge.target)
        if ends in made and (ends not in again or edge.nbytes < again[ends].nbytes):
            again[ends] = edge
    return set(again.values())


def _besides(graph, needs, kept, sizes, durability):
    bare = NAMED["none"]
    if durability == bare:
        return 0
    return sum(edge.nbytes for edge in needs - _needed(graph, needs, kept, sizes, bare))


def _fixed_point(graph, edges, kept, sizes, durability):
    before = {*edges}
    found = _needed(graph, before, kept, sizes, durability)
    while found != before:
        before, found = (found, _needed(graph, found, kept, sizes, durability))
    return found


def _needed(graph, edges, kept, sizes, durability):
    branches = Branches(graph, edges, sizes)
    there = set(kept) & graph.nodes.keys()
    wanted = there & branches.links.keys()
    needs, left_out = _choose(branches, wanted, durability)
    needs.update(edge for node in left_out for edge in graph.path(node))
    return needs | edges_above(graph, there - wanted)


def edges_above(graph, nodes):
    """All edges to some nodes and to whatever lies above them, from missing nodes too."""
    above = nodes.union(*(graph.ancestors(node) for node in nodes))
    names = [*graph.nodes.values(), *graph.edges.values()]
    return {name.ref for name in names if name.ref.target in above}


def _choose(branches, kept, durability):
    tree = Tree(branches, kept, frozenset(), planning=False)
    return (tree.edges() | edges_for_newest(tree) | due_anchors(tree, durability), kept - tree.needed)


def _try(branches, kept, partial):
    frees: dict[EdgeRef, float] = {}
    for _ in range(ROUNDS):
        tree = Tree(branches, kept, partial, planning=True)
        merges = {edge for edge in tree.edges() if edge.base != ROOT}
        new = {edge for edge in tree.edges() | edges_for_newest(tree) if edge.is_planned} - frees.keys()
        for edge in sorted(new, key=lambda edge: (edge.target, edge.base)):
            frees[edge] = tree.frees[edge.target] if edge in merges else math.inf
            branches.links[edge.target].append(edge)
        if not new:
            break
    return frees


def _affordable(frees, max_bytes):
    taken = set()
    for edge in sorted(frees, key=lambda edge: (-frees[edge] / max(edge.nbytes, 1), edge.target, edge.base)):
        if edge.nbytes <= max_bytes:
            taken.add(edge)
            max_bytes -= edge.nbytes
    return taken


def _paths(edges, branches):
    outgoing: defaultdict[str, list[EdgeRef]] = defaultdict(list)
    for edge in edges:
        outgoing[edge.base].append(edge)
    return cheapest_paths(outgoing, branches.links)


def _shortcuts(graph, branches, made):
    incoming: defaultdict[str, list[EdgeRef]] = defaultdict(list)
    for edge in graph.refs():
        incoming[edge.target].append(edge)
    for span, edge in sorted(
        ((branches.span(edge.base, edge.target), edge) for edge in made),
        key=lambda item: (item[0], item[1].target, item[1].base),
    ):
        inputs = path_between(
            edge.base, edge.target, incoming.__getitem__, branches.links, graph.is_condemned
        )
        yield Shortcut(edge.base, edge.target, edge.nbytes, span, tuple(inputs or ()))
        incoming[edge.target].append(edge)
