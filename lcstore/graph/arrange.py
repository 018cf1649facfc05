"""Which edge every kept node is to be restored over: a tree of bounded depth that stores and writes little.

Depth is bounded by levels. A node's level is drawn from its id, one in `FAN` nodes being a level higher than
the rest, so it never changes whatever else comes or goes. The higher the level, the nearer the root a node
has to stand; nodes of level 0 may stand as deep as the bound allows. As log2(n) + 2 is far deeper than the
levels need, level 0 makes long runs, each node of which stands on the one before it, mostly over the edge
that it was saved with. Where a run gets too deep, an edge back to where the levels are begins another.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from lcstore.graph.lineage import Lineage, Link

#: One node in so many is a level higher. A power of two.
FAN: Final = 32
#: What a byte written counts beside a byte stored. So a merge that only saves space frees 1.5 times what it
#: writes, and all such merges together write at most twice what was saved.
WRITTEN: Final = 0.5
#: How many retired nodes above a node are looked at as bases of a new edge to it.
LOOK_BACK: Final = 64


@dataclass(frozen=True)
class Bound:
    """How deep nodes may stand, by their level.

    Attributes
    ----------
    deepest
        The most edges of any restore: log2(n) + 2, rounded down, for n kept nodes.
    levels
        The highest level.
    """

    deepest: int
    levels: int

    @classmethod
    def of(cls, kept: int) -> Bound:
        """Return the bound for a number of kept nodes."""
        doublings = max(kept, 1).bit_length() - 1
        return cls(doublings + 2, doublings // (FAN.bit_length() - 1))

    def level(self, node: str) -> int:
        """Return the level of a node."""
        drawn = int.from_bytes(hashlib.blake2b(node.encode(), digest_size=8).digest(), "big") | 1 << 63
        return min(((drawn & -drawn).bit_length() - 1) // (FAN.bit_length() - 1), self.levels)

    def reach(self, level: int) -> int:
        """Return the depth at which nodes of that level, and new runs, have their place; at least 2."""
        return 2 + self.levels - level

    def room(self, level: int) -> int:
        """Return the greatest depth at which a node of that level may stand."""
        return self.deepest if level == 0 else self.reach(level)


class Way(NamedTuple):
    """A way to a node: from which place, over which edge (None where it has to be made).

    Attributes
    ----------
    load
        Bytes that it stores beyond what is needed already, and `WRITTEN` for each that it writes. At a node
        that several lines share, each line's part.
    depth
        Edges from the root.
    nbytes
        Bytes of the edge.
    """

    load: float
    depth: int
    base: int
    nbytes: int
    link: Link | None


class Arrangement:
    """The tree, by places of a lineage.

    Parameters
    ----------
    line
        Where nodes come from.
    kept
        The places to be restored.
    planning
        Whether new edges may be made. If so the bound holds for every kept node. If not, nodes that it
        cannot hold for are restored as they can be; those that only condemned edges lead to are left out.

    Attributes
    ----------
    ways
        By place: how the node is restored, for the kept nodes and the others that they need.
    freed
        Bytes of existing edges that a new edge to the place makes needless.
    """

    def __init__(self, line: Lineage, kept: set[int], *, planning: bool) -> None:
        self.line = line
        self.kept = kept
        self.planning = planning
        self.bound = Bound.of(len(kept))
        count = len(line.nodes)
        self.branches = _branches(line, kept)
        self.ways: dict[int, Way] = {0: Way(0.0, 0, 0, 0, None)}
        self.freed: dict[int, float] = {}
        self._spare: dict[int, Way] = {}  # ways to nodes that nothing needs yet
        self._top = [0] * count  # the nearest needed node on the line, itself included
        self._above = [0] * count  # of a needed node: the nearest on the line that stands less deep
        for place in range(1, count):
            self._visit(place)

    def needed_above(self, place: int) -> int:
        """Return the nearest node on the line above a place that is needed, or the root."""
        return self._top[self.line.parent[place]]

    def _visit(self, place: int) -> None:
        self._top[place] = self._top[self.line.parent[place]]
        if place in self.kept:
            way = self._choose(place)
            if way is not None:
                self._need(place, way)
            return
        way = self._existing(place, None)
        if self.branches[place] > 1 and self.planning and self.line.sound[place]:
            new = self._new(place, self._level(place))
            if way is None or new.load < way.load:
                way = new
        if way is not None:
            self._spare[place] = way._replace(load=way.load / max(self.branches[place], 1))

    def _level(self, place: int) -> int:
        return self.bound.level(self.line.name(place))

    def _choose(self, place: int) -> Way | None:
        level = self._level(place)
        way = self._existing(place, self.bound.room(level))
        if not self.planning:
            return way or self._existing(place, None)
        if way is None:
            return self._new(place, level)
        if way.base not in self.ways:
            # It goes over retired nodes that nothing else needs: a merge past them may be worth its bytes.
            new = self._new(place, level)
            if new.load < way.load:
                return new
        return way

    def _existing(self, place: int, room: int | None) -> Way | None:
        """Return the way of least load over one of the edges that are there."""
        best = None
        for link in self.line.links[place]:
            base = self._way(link.base)
            if base is None or (room is not None and base.depth >= room):
                continue
            weight = self.line.weight(place, link)
            way = Way(self._load(link.base) + weight, base.depth + 1, link.base, link.nbytes, link)
            if best is None or way[:2] < best[:2]:
                best = way
        return best

    def _way(self, place: int) -> Way | None:
        return self.ways.get(place) or self._spare.get(place)

    def _load(self, place: int) -> float:
        return 0.0 if place in self.ways else self._spare[place].load

    def _new(self, place: int, level: int) -> Way:
        """Return the way of least load over an edge to be made."""
        reach = self.bound.reach(level)
        line = self.line
        bases = [0]
        near = self._top[line.parent[place]]
        if self.ways[near].depth < self.bound.room(level):
            reach = self.bound.room(level)
        while self.ways[near].depth >= reach:
            near = self._above[near]
        bases.append(near)
        if line.first[place] != place:
            bases.append(line.first[place])
        over = line.parent[place]
        for _ in range(LOOK_BACK):
            if over in self.ways:
                break
            bases.append(over)
            over = line.parent[over]
        best = None
        for base in bases:
            way = self._way(base)
            if way is None or way.depth >= reach:
                continue
            nbytes = line.merged(base, place)
            new = Way(self._load(base) + (1 + WRITTEN) * nbytes, way.depth + 1, base, nbytes, None)
            if best is None or new[:2] < best[:2]:
                best = new
        assert best is not None, "the root is always a base"
        old = self._existing(place, None)
        self.freed[place] = old.load - self._load(best.base) if old else 0.0
        return best

    def _need(self, place: int, way: Way) -> None:
        """Settle the way to a node, and to what it stands on."""
        settle = [(place, way)]
        while settle[-1][1].base not in self.ways:
            base = settle[-1][1].base
            settle.append((base, self._spare[base]))
        for node, chosen in reversed(settle):
            self.ways[node] = chosen
            above = self._top[self.line.parent[node]]
            while self.ways[above].depth >= chosen.depth:
                above = self._above[above]
            self._top[node] = node
            self._above[node] = above


def _branches(line: Lineage, kept: set[int]) -> list[int]:
    """Return for every place how many of the lines that go on from it lead to kept nodes."""
    branches = [0] * len(line.nodes)
    for place in range(len(line.nodes) - 1, 0, -1):
        if branches[place] or place in kept:
            branches[line.parent[place]] += 1
    return branches
