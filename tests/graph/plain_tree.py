"""The plain twin of `lcstore.graph.branches`, `stops`: the same, with objects."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import NamedTuple

from lcstore.graph.numbered import SPREAD_UNIT
from lcstore.graph.refs import PLANNED, ROOT, EdgeRef
from lcstore.graph.stops import PASSES, WRITTEN, Bound


class Place(NamedTuple):
    parent: str
    length: int
    spread: int
    anchor: int
    sound: bool


class Branches:
    def __init__(self, graph, edges, sizes):
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
            count = len(self.places)
            for node in left:
                self._place(node, incoming[node], graph.is_condemned)
            left = [node for node in left if node not in self.places]
        self.nodes = [node for node in self.places if node != ROOT]

    def _place(self, node, incoming, is_condemned):
        known = [edge for edge in incoming if edge.base in self.places]
        if not known:
            return
        here = [edge for edge in known if not is_condemned(edge)]
        sound = [edge for edge in here if self.places[edge.base].sound]
        links = self.links[node] = sound or here
        edge = max(
            links or known, key=lambda edge: (edge.edge is None, self.places[edge.base].length, -edge.nbytes)
        )
        base = self.places[edge.base]
        spread, anchor = (0, edge.nbytes)
        if edge.base != ROOT:
            spread = base.spread + int(self.sizes.spread(edge.nbytes) * SPREAD_UNIT)
            anchor = max(base.anchor, edge.nbytes)
        self.places[node] = Place(edge.base, base.length + 1, spread, anchor, bool(sound))

    def span(self, base, node):
        return self.places[node].length - self.places[base].length

    def merged(self, base, node):
        place = self.places[node]
        if base == ROOT:
            return max(place.anchor, self.sizes.anchor)
        spread = (place.spread - self.places[base].spread) / SPREAD_UNIT
        return min(self.sizes.nbytes(spread), place.anchor)

    def planned(self, base, node):
        return EdgeRef(base, node, PLANNED, self.merged(base, node))

    def weight(self, edge):
        if edge.base in (ROOT, self.places[edge.target].parent):
            return edge.nbytes
        return min(edge.nbytes, self.merged(edge.base, edge.target) or edge.nbytes)


def _in_order(nodes, incoming):
    seen, done = ({ROOT}, {ROOT: None})
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


def drawn(node):
    """How many bits that are drawn from the id are zero before the first that is not."""
    bits = int.from_bytes(hashlib.blake2b(node.encode(), digest_size=8).digest(), "big") | 1 << 63
    return (bits & -bits).bit_length() - 1


class Stand(NamedTuple):
    load: float
    depth: int
    edge: EdgeRef | None


class Tree:
    def __init__(self, branches, kept, partial, *, planning):
        self.branches = branches
        self.kept = kept
        self.partial = partial
        self.planning = planning
        self.bound = Bound.of(len(kept))
        self._forks = _forks(branches, kept)
        for _ in range(PASSES):
            used = self._grow()
            lone = {fork for fork in self._forks if used[fork] < 2}
            if not lone:
                break
            self._forks -= lone

    def _grow(self):
        self.stands: dict[str, Stand] = {ROOT: Stand(0.0, 0, None)}
        self.needed = {ROOT}
        self.above: dict[str, str] = {}
        self.frees: dict[str, float] = {}
        self._near = {ROOT: ROOT}
        self._shallower: dict[str, str] = {}
        for node in self.branches.nodes:
            self._visit(node)
        used = Counter(edge.base for edge in self.edges())
        for node in reversed(self.branches.nodes):
            if node in self.needed and node not in self.kept and (not used[node]):
                self.needed.discard(node)
                used.subtract([edge.base] if (edge := self.stands[node].edge) is not None else [])
        return used

    def edges(self):
        return {edge for node in self.needed if (edge := self.stands[node].edge) is not None}

    def _visit(self, node):
        near = self._near[node] = self._near[self.branches.places[node].parent]
        stop = node in self.kept or node in self._forks
        stand = self._choose(node) if stop else self._existing(node)
        if stand is None:
            return
        self.stands[node] = stand
        if stop:
            self._need(node)
            self.above[node] = self._near[node] = near
            while self.stands[near].depth >= stand.depth:
                near = self._shallower[near]
            self._near[node], self._shallower[node] = (node, near)

    def _choose(self, node):
        level = self.bound.level(drawn(node)) if node in self.kept else 0
        room = self.bound.room(level) - (node not in self.kept)
        found = self._existing(node, room)
        if not self.planning or node in self.partial:
            return found or (self._existing(node) if node in self.kept else None)
        if found is None or self._may_do_better(node, found):
            new = self._new(node, room, self.bound.begin(level))
            if found is None or new.load < found.load:
                old = found or self._existing(node)
                self.frees[node] = old.load if old is not None else 0.0
                return new
        return found

    def _may_do_better(self, node, found):
        edge = found.edge
        assert edge is not None
        return edge.base not in self.needed or (
            edge.base == ROOT and self.branches.places[node].parent != ROOT
        )

    def _existing(self, node, room=None):
        best = None
        for edge in self.branches.links[node]:
            base = self.stands.get(edge.base)
            if base is None or (room is not None and base.depth >= room):
                continue
            load = self.branches.weight(edge) + (0.0 if edge.base in self.needed else base.load)
            if best is None or (load, base.depth + 1) < best[:2]:
                best = Stand(load, base.depth + 1, edge)
        return best

    def _new(self, node, room, begin):
        anchor = self.branches.planned(ROOT, node)
        best = Stand(WRITTEN * anchor.nbytes, 1, anchor)
        base = self._near[node]
        deepest = room if self.stands[base].depth < room else begin
        while self.stands[base].depth >= deepest:
            base = self._shallower[base]
        if base != ROOT and all(edge.base != base for edge in self.branches.links[node]):
            edge = self.branches.planned(base, node)
            merge = Stand(WRITTEN * edge.nbytes, self.stands[base].depth + 1, edge)
            best = min(best, merge, key=lambda stand: stand[:2])
        return best

    def _need(self, node):
        while node not in self.needed:
            self.needed.add(node)
            edge = self.stands[node].edge
            node = edge.base if edge is not None else ROOT


def _forks(branches, kept):
    below: defaultdict[str, int] = defaultdict(int)
    forks = set()
    for node in reversed(branches.nodes):
        place = branches.places[node]
        if node not in kept and below[node] > 1 and place.sound:
            forks.add(node)
        if node in kept or below[node]:
            below[place.parent] += 1
    return forks
