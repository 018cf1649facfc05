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

import hashlib
from collections import Counter, defaultdict
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from lcstore.graph.branches import Branches
from lcstore.graph.refs import ROOT, EdgeRef

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

    def level(self, node: str) -> int:
        """Return the level of a node."""
        drawn = int.from_bytes(hashlib.blake2b(node.encode(), digest_size=8).digest(), "big") | 1 << 63
        return min(((drawn & -drawn).bit_length() - 1) // (FAN.bit_length() - 1), self.levels)

    def begin(self, level: int) -> int:
        """Return the greatest depth of a node of that level that begins another run; at least 2."""
        return 2 + self.levels - level

    def room(self, level: int) -> int:
        """Return the greatest depth at which a node of that level may stand."""
        return self.deepest if level == 0 else self.begin(level)


class Stand(NamedTuple):
    """How a node is restored.

    Attributes
    ----------
    load
        Bytes that are stored for it beyond what is needed already; one to be written counts `WRITTEN`.
    depth
        Edges from the root.
    edge
        The last edge; None for the root itself.
    """

    load: float
    depth: int
    edge: EdgeRef | None


class Tree:
    """The tree.

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
    stands
        How each node is restored that edges which are there or planned lead to.
    needed
        The stops, and the retired nodes that they are restored over.
    above
        By stop: the next one above it on its branch, or the root.
    frees
        By stop that was given a planned edge: bytes of others that this makes needless.
    """

    def __init__(
        self, branches: Branches, kept: AbstractSet[str], partial: AbstractSet[str], *, planning: bool
    ) -> None:
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

    def _grow(self) -> Counter[str]:
        """Make the tree; return how many stand on each node."""
        self.stands: dict[str, Stand] = {ROOT: Stand(0.0, 0, None)}
        self.needed = {ROOT}
        self.above: dict[str, str] = {}
        self.frees: dict[str, float] = {}
        self._near = {ROOT: ROOT}  # the nearest stop on the branch, itself included
        self._shallower: dict[str, str] = {}  # by stop: the nearest above it that stands less deep
        for node in self.branches.nodes:
            self._visit(node)
        used = Counter(edge.base for edge in self.edges())
        for node in reversed(self.branches.nodes):
            # What nothing came to stand on is forgotten.
            if node in self.needed and node not in self.kept and not used[node]:
                self.needed.discard(node)
                used.subtract([edge.base] if (edge := self.stands[node].edge) is not None else [])
        return used

    def edges(self) -> set[EdgeRef]:
        """Return the edges of the tree."""
        return {edge for node in self.needed if (edge := self.stands[node].edge) is not None}

    def _visit(self, node: str) -> None:
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
            self._near[node], self._shallower[node] = node, near

    def _choose(self, node: str) -> Stand | None:
        """Return how a stop is restored."""
        level = self.bound.level(node) if node in self.kept else 0
        # Others are to stand on a fork.
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

    def _may_do_better(self, node: str, found: Stand) -> bool:
        """Return whether an edge to be made may be worth more than what is there.

        A writer's anchors lie beside the line of its deltas: a merge that is smaller keeps the line whole.
        """
        edge = found.edge
        assert edge is not None
        return edge.base not in self.needed or (
            edge.base == ROOT and self.branches.places[node].parent != ROOT
        )

    def _existing(self, node: str, room: int | None = None) -> Stand | None:
        """Return the cheapest stand over an edge that is there, of those that are no deeper than `room`."""
        best = None
        for edge in self.branches.links[node]:
            base = self.stands.get(edge.base)
            if base is None or (room is not None and base.depth >= room):
                continue
            load = self.branches.weight(edge) + (0.0 if edge.base in self.needed else base.load)
            if best is None or (load, base.depth + 1) < best[:2]:
                best = Stand(load, base.depth + 1, edge)
        return best

    def _new(self, node: str, room: int, begin: int) -> Stand:
        """Return the cheapest stand over an edge to be made.

        It goes on from the stop above if that has room; otherwise it begins another run.
        """
        anchor = self.branches.planned(ROOT, node)
        best = Stand(WRITTEN * anchor.nbytes, 1, anchor)
        base = self._near[node]
        deepest = room if self.stands[base].depth < room else begin
        while self.stands[base].depth >= deepest:
            base = self._shallower[base]
        # A merge from where an edge comes from already would be that edge again, whatever its estimate.
        if base != ROOT and all(edge.base != base for edge in self.branches.links[node]):
            edge = self.branches.planned(base, node)
            merge = Stand(WRITTEN * edge.nbytes, self.stands[base].depth + 1, edge)
            best = min(best, merge, key=lambda stand: stand[:2])
        return best

    def _need(self, node: str) -> None:
        """Have a node be needed, and all that it is restored over."""
        while node not in self.needed:
            self.needed.add(node)
            edge = self.stands[node].edge
            node = edge.base if edge is not None else ROOT


def _forks(branches: Branches, kept: AbstractSet[str]) -> set[str]:
    """Return the nodes that are not kept where branches to kept ones part."""
    below: defaultdict[str, int] = defaultdict(int)  # branches to kept nodes
    forks = set()
    for node in reversed(branches.nodes):
        place = branches.places[node]
        if node not in kept and below[node] > 1 and place.sound:
            forks.add(node)
        if node in kept or below[node]:
            below[place.parent] += 1
    return forks
