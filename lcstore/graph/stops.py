"""Which edge every kept node is to be restored over: a tree of bounded depth that stores and writes little.

The rule in full is in ``docs/compaction.md``. The *stops* of the tree are the kept nodes, and retired nodes
where branches to kept ones part. Each stop stands on another one, or on the root, over one edge:

- An edge that is there is taken if it is not too deep. How deep a stop may stand is told by its *level*,
  which is drawn from its id, so it never changes whatever else comes or goes.
- Otherwise an edge is planned: from the nearest stop above it where a stop may go on from, an anchor if that
  is no larger.
- Retired nodes between two stops stay while one edge past them would not save enough.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias

from lcstore.graph.branches import Branches

#: One node in so many is a level higher. A power of two.
FAN: Final = 32
#: What an edge that is written counts for each byte. So one that only saves space frees 1.5 times its size,
#: and all such edges together write at most twice what was saved.
WRITTEN: Final = 1.5
#: How often the tree is made again without the forks that turned out to serve one branch only.
PASSES: Final = 4


@dataclass(frozen=True)
class Bound:
    """How deep stops may stand, by their level.

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

    def level(self, drawn: int) -> int:
        """Return the level of a node of which so many bits are zero; see `Numbered.drawn`."""
        return min(drawn // (FAN.bit_length() - 1), self.levels)

    def begin(self, level: int) -> int:
        """Return the greatest depth of a node of that level that begins another run; at least 2."""
        return 2 + self.levels - level

    def room(self, level: int) -> int:
        """Return the greatest depth at which a node of that level may stand."""
        return self.deepest if level == 0 else self.begin(level)

    def rooms(self) -> list[int]:
        """Return that depth by how many bits of a node are zero."""
        return [self.room(self.level(drawn)) for drawn in range(64)]


#: How a node may be restored. First the bytes that are stored for it beyond what is needed already; each that
#: is to be written counts `WRITTEN`. Then edges from the root; where the last edge comes from; and that edge,
#: 0 where it is to be planned.
Stand: TypeAlias = tuple[float, int, int, int]


class Tree:
    """The tree. What is known of each node is in a column, by its number.

    Parameters
    ----------
    branches
        Where nodes come from.
    kept
        The nodes to be restored.
    partial
        Nodes to which no edge can be made, as part of them is gone.
    planning
        Whether edges may be planned. If so the bound holds for every kept node that is not partial. If not,
        nodes that it cannot hold for are restored as they can be; those that only condemned edges lead to are
        left out.

    Attributes
    ----------
    load, depth, last
        How each node is restored: see `Stand`. The depth is -1 where no edges lead that are there or planned.
    needed
        Whether a node is a stop, or a retired node that stops are restored over.
    used
        How many needed nodes stand on a node.
    above
        Of stops: the next one above it on its branch, or the root.
    frees
        By stop that was given a planned edge: bytes of others that this makes needless.
    """

    def __init__(
        self, branches: Branches, kept: AbstractSet[int], partial: AbstractSet[int], *, planning: bool
    ) -> None:
        self.branches = branches
        self.kept = kept
        self.partial = partial
        self.planning = planning
        self._bound = Bound.of(len(kept))
        self._rooms = list(map(self._bound.rooms().__getitem__, branches.graph.drawn))
        self._base, self._parent, self._links = branches.graph.base, branches.parent, branches.links
        self._forks = _forks(branches, kept)
        for _ in range(PASSES):
            self._grow()
            lone = {fork for fork in self._forks if self.used[fork] < 2}
            if not lone:
                break
            self._forks -= lone

    def _grow(self) -> None:
        """Make the tree."""
        count = len(self._links)
        self.load, self.depth, self.last = [0.0] * count, [-1] * count, [0] * count
        self.needed = bytearray(count)
        self.depth[0], self.needed[0] = 0, True
        self.above = [0] * count
        self.frees: dict[int, float] = {}
        self._near = [0] * count  # the nearest stop on the branch, itself included
        self._shallower = [0] * count  # of stops: the nearest above it that stands less deep
        for node in self.branches.nodes:
            self._visit(node)
        self.used = [0] * count
        # From below: what nothing came to stand on is forgotten.
        for node in reversed(self.branches.nodes):
            if self.needed[node] and (self.used[node] or node in self.kept):
                self.used[self._base[self.last[node]]] += 1
            else:
                self.needed[node] = False

    def edges(self) -> set[int]:
        """Return the edges of the tree."""
        return {edge for edge, needed in zip(self.last, self.needed, strict=True) if needed} - {0}

    def _visit(self, node: int) -> None:
        near = self._near[node] = self._near[self._parent[node]]
        stop = node in self.kept or node in self._forks
        stand = self._choose(node) if stop else self._existing(node)
        if stand is None:
            return
        self.load[node], depth, base, edge = stand
        self.depth[node], self.last[node] = depth, edge or self.branches.planned(base, node)
        if stop:
            self._need(node)
            self.above[node] = near
            self._near[node] = node
            while self.depth[near] >= depth:
                near = self._shallower[near]
            self._shallower[node] = near

    def _choose(self, node: int) -> Stand | None:
        """Return how a stop is restored."""
        kept = node in self.kept
        # Others are to stand on a fork.
        room = self._rooms[node] if kept else self._bound.deepest - 1
        found = self._existing(node, room)
        if not self.planning or node in self.partial:
            return found or (self._existing(node) if kept else None)
        if found is None or self._may_do_better(node, found[2]):
            new = self._new(node, room)
            if found is None or new[0] < found[0]:
                old = found or self._existing(node)
                self.frees[node] = old[0] if old is not None else 0.0
                return new
        return found

    def _may_do_better(self, node: int, base: int) -> bool:
        """Return whether an edge to be made may be worth more than what is there from `base`.

        A writer's anchors lie beside the line of its deltas: a merge that is smaller keeps the line whole.
        """
        return not self.needed[base] or (not base and self._parent[node] != 0)

    def _existing(self, node: int, room: float = math.inf) -> Stand | None:
        """Return the cheapest stand over an edge that is there, of those that are no deeper than `room`."""
        best = None
        for edge in self._links[node]:
            base = self._base[edge]
            depth = self.depth[base] + 1
            if 0 < depth <= room:
                load = self.branches.weight(edge) + (0.0 if self.needed[base] else self.load[base])
                if best is None or (load, depth) < best[:2]:
                    best = load, depth, base, edge
        return best

    def _new(self, node: int, room: int) -> Stand:
        """Return the cheapest stand over an edge to be made.

        It goes on from the stop above if that has room; otherwise it begins another run.
        """
        anchor = WRITTEN * self.branches.merged(0, node), 1, 0, 0
        base = self._near[node]
        level = self._bound.level(self.branches.graph.drawn[node]) if node in self.kept else 0
        deepest = room if self.depth[base] < room else self._bound.begin(level)
        while self.depth[base] >= deepest:
            base = self._shallower[base]
        # A merge from where an edge comes from already would be that edge again, whatever its estimate.
        if not base or any(self._base[edge] == base for edge in self._links[node]):
            return anchor
        merge = WRITTEN * self.branches.merged(base, node), self.depth[base] + 1, base, 0
        return min(anchor, merge, key=lambda stand: stand[:2])

    def _need(self, node: int) -> None:
        """Have a node be needed, and all that it is restored over."""
        while not self.needed[node]:
            self.needed[node] = True
            node = self._base[self.last[node]]


def _forks(branches: Branches, kept: AbstractSet[int]) -> set[int]:
    """Return the nodes that are not kept where branches to kept ones part."""
    below = [0] * len(branches.links)  # branches to kept nodes
    forks = set()
    for node in reversed(branches.nodes):
        if node not in kept:
            if not below[node]:
                continue
            if below[node] > 1 and branches.sound[node]:
                forks.add(node)
        below[branches.parent[node]] += 1
    return forks
