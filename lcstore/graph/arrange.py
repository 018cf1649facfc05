"""Which edge every kept node is to be restored over: a tree of bounded depth that stores and writes little.

Depth is bounded by levels. A node's level is drawn from its id, one in `FAN` nodes being a level higher than
the rest, so it never changes whatever else comes or goes. The higher the level, the nearer the root a node
has to stand; nodes of level 0 may stand as deep as the bound allows. As log2(n) + 2 is far deeper than the
levels need, level 0 makes long runs, each node of which stands on the one before it, mostly over the edge
that it was saved with. Where a run gets too deep, an edge back to where the levels are begins another.
"""

from __future__ import annotations

import hashlib
from collections import Counter
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
#: How often the tree is made again without the forks that turned out to be of no use.
PASSES: Final = 6


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
        Bytes that it stores beyond what is needed already, and `WRITTEN` for each that it writes.
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
    ends
        By place: the next kept or parting place of each line from it to kept ones; none for the last.
    freed
        Bytes of existing edges that a new edge to the place makes needless.
    """

    def __init__(self, line: Lineage, kept: set[int], *, planning: bool) -> None:
        self.line = line
        self.kept = kept
        self.planning = planning
        self.bound = Bound.of(len(kept))
        self.ends = _ends(line, kept)
        self._forks = {place for place, ends in self.ends.items() if len(ends) > 1 and place not in kept}
        for _ in range(PASSES):
            self._pass()
            lone = self._lone_forks()
            if not lone:
                break
            self._forks -= lone

    def _pass(self) -> None:
        count = len(self.line.nodes)
        self.ways: dict[int, Way] = {0: Way(0.0, 0, 0, 0, None)}
        self.freed: dict[int, float] = {}
        self._kept_forks: set[int] = set()
        self._spare: dict[int, Way] = {}  # ways to nodes that nothing needs yet
        self._top = [0] * count  # the nearest needed node on the line, itself included
        self._above = [0] * count  # of a needed node: the nearest on the line that stands less deep
        for place in range(1, count):
            self._visit(place)
        self._drop_unused()

    def _lone_forks(self) -> set[int]:
        """Return the forks that were to serve several lines, and serve only one as it turned out."""
        users = Counter(way.base for place, way in self.ways.items() if place)
        return {fork for fork in self._kept_forks if users[fork] < 2}

    def needed_above(self, place: int) -> int:
        """Return the nearest node on the line above a place that is needed, or the root."""
        above = self._top[self.line.parent[place]]
        while above not in self.ways:
            above = self._top[self.line.parent[above]]
        return above

    def _visit(self, place: int) -> None:
        self._top[place] = self._top[self.line.parent[place]]
        if place in self.kept:
            way = self._choose(place)
            if way is not None:
                self._need(place, way)
            return
        if place in self._forks and self._keep_fork(place):
            return
        way = self._existing(place, None)
        if way is not None:
            self._spare[place] = way

    def _keep_fork(self, fork: int) -> bool:
        """Need a retired node where lines part, if that costs less than merges past it."""
        room = self.bound.deepest - 1  # others are to stand on it
        way = self._existing(fork, room)
        if self.planning and self.line.sound[fork] and fork not in self.line.partial:
            new = self._new(fork, room, min(self.bound.reach(0), room))
            if way is None or new.load < way.load:
                way = new
        if way is None or not self._pays(fork, way):
            return False
        self._need(fork, way)
        self._kept_forks.add(fork)
        return True

    def _pays(self, fork: int, way: Way) -> bool:
        """Say whether a retired node where lines part costs less than merges past it."""
        above = self.needed_above(fork)
        over = sum(self._hop(fork, end) for end in self.ends[fork])
        past = sum(self._hop(above, end) for end in self.ends[fork])
        return way.load + over < past

    def _hop(self, base: int, end: int) -> float:
        """Return about what it takes to get to the next kept node on a line."""
        for link in self.line.links[end]:
            if link.base == base:
                return self.line.weight(end, link)
        merged = (1 + WRITTEN) * self.line.merged(base, end)
        return merged if base == 0 else min(merged, self.line.total[end] - self.line.total[base])

    def _drop_unused(self) -> None:
        """Forget forks that nothing came to stand on."""
        used = {*self.kept, 0}
        for place in sorted(self.ways, reverse=True):
            if place in used:
                used.add(self.ways[place].base)
            else:
                del self.ways[place]

    def _level(self, place: int) -> int:
        return self.bound.level(self.line.name(place))

    def _choose(self, place: int) -> Way | None:
        level = self._level(place)
        room, reach = self.bound.room(level), self.bound.reach(level)
        way = self._existing(place, room)
        if not self.planning or place in self.line.partial:
            return way or self._existing(place, None)
        if way is None:
            return self._new(place, room, reach)
        if way.base not in self.ways:
            # It goes over retired nodes that nothing else needs: a merge past them may be worth its bytes.
            new = self._new(place, room, reach)
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

    def _new(self, place: int, room: int, reach: int) -> Way:
        """Return the way of least load over an edge to be made.

        It goes on from a run that has room; where there is none it leads to depth `reach` at most.
        """
        deepest = room if self.ways[self._top[self.line.parent[place]]].depth < room else reach
        anchor = self.line.merged(0, place)
        best = Way((1 + WRITTEN) * anchor, 1, 0, anchor, None)
        for base in self._bases(place, deepest):
            way = self._way(base)
            if way is None or way.depth >= deepest:
                continue
            nbytes = self.line.merged(base, place)
            new = Way(self._load(base) + (1 + WRITTEN) * nbytes, way.depth + 1, base, nbytes, None)
            if new[:2] < best[:2]:
                best = new
        old = self._existing(place, None)
        self.freed[place] = old.load - self._load(best.base) if old else 0.0
        return best

    def _bases(self, place: int, deepest: int) -> list[int]:
        """Return the nodes on the line that a new edge might come from.

        Those are the nearest needed one that is not too deep, the first, and the retired ones right above.
        A merge from where an edge comes from already would be that edge again, whatever its estimate.
        """
        there = {link.base for link in self.line.links[place]}
        near = self._top[self.line.parent[place]]
        while self.ways[near].depth >= deepest:
            near = self._above[near]
        bases = [base for base in (near, self.line.first[place]) if base not in (0, place)]
        above = self.line.parent[place]
        for _ in range(LOOK_BACK):
            if above in self.ways:
                break
            bases.append(above)
            above = self.line.parent[above]
        return [base for base in bases if base not in there]

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


def _ends(line: Lineage, kept: set[int]) -> dict[int, list[int]]:
    """Return for every place above kept ones: where each line from it first comes to a kept one, or parts."""
    ends: dict[int, list[int]] = {}
    for place in range(len(line.nodes) - 1, 0, -1):
        found = ends.get(place, [])
        if place in kept or len(found) > 1:
            ends.setdefault(line.parent[place], []).append(place)
        elif found:
            ends.setdefault(line.parent[place], []).append(found[0])
    return ends
