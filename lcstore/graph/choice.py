"""Which edges are needed: the arrangement, and more for the newest nodes of runs, which are read most."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final, NamedTuple

from lcstore.graph.arrange import Arrangement
from lcstore.graph.lineage import Lineage, Link, unmade
from lcstore.graph.names import EDGE_COST, ROOT, EdgeRef

#: The newest node of a run reads at most so many times the bytes of an anchor and one delta.
NEWEST_READS: Final = 1.3
#: The latest node of all, which is what is mostly restored. Decoding merged edges takes about three times as
#: long a byte as an anchor does, so this keeps the time below 1.3 times.
LATEST_READS: Final = 1.1
#: The size of a delta that is only planned is counted as so much more where that hangs on it. It is estimated
#: from other deltas, which were so themselves: twice an error of 8 %.
MARGIN: Final = 1.2
#: An anchor is not made unless it is expected to be so much lighter than what is there.
ANCHOR_MARGIN: Final = 1.03
#: Edges for a newest node are needed from so much of the limit on: those made when the limit seemed to be
#: passed are not let go because another came out a little smaller.
LEEWAY: Final = 0.8
#: How many nodes above a run's newest are tried as bases of a merge to it, before an anchor is.
TRIES: Final = 256


class Reading(NamedTuple):
    """What a restore reads, and over which edge last; ordered as `Graph.path` prefers them.

    Attributes
    ----------
    most
        The bytes that it may turn out to read, given that some of the edges are only planned.
    """

    cost: int
    edges: int
    nbytes: int
    most: float
    link: Link


_NOTHING: Final = Reading(0, 0, 0, 0.0, Link(0, 0, EdgeRef(ROOT, ROOT, None, 0)))


def go_on(base: Reading, link: Link) -> Reading:
    """Return what is read for a way that goes on over `link`."""
    nbytes = link.nbytes
    most = base.most + (nbytes * MARGIN if link.is_unmade and link.base else nbytes)
    return Reading(base.cost + nbytes + EDGE_COST, base.edges + 1, base.nbytes + nbytes, most, link)


def readings_of(links: Iterable[tuple[int, Iterable[Link]]]) -> dict[int, Reading]:
    """Return the cheapest reading of every place, given the edges to each, in rising order of places."""
    readings = {0: _NOTHING}
    for place, edges in links:
        found = [go_on(readings[link.base], link) for link in edges if link.base in readings]
        if found:
            readings[place] = min(found, key=lambda r: (r.cost, r.edges, r.link.edge.rank))
    return readings


class Choice:
    """The needed edges, by places of a lineage.

    The newest node of each run that nothing else stands on, and the latest node of all, are to read at
    most `NEWEST_READS` times an anchor and a delta. Where the tree reads more, other edges that are there are
    needed too; where those do not do, and new edges may be made, the smallest one that does. The edge of the
    tree is needed all the same: it is small, and will do when the node is no longer the newest.

    Parameters
    ----------
    line, kept, planning
        As for `Arrangement`.

    Attributes
    ----------
    arrangement
        The tree.
    links
        By place, in rising order: the edges to it that are needed, made or not.
    pressing
        Those of them that are not made and that a newest node needs.
    """

    def __init__(self, line: Lineage, kept: set[int], *, planning: bool) -> None:
        self.line = line
        self._latest = max(kept, key=line.order, default=0)
        self.arrangement = Arrangement(line, kept, planning=planning)
        self.pressing: set[Link] = set()
        self._tree = {
            place: way.link or unmade(line, way.base, place, way.nbytes)
            for place, way in sorted(self.arrangement.ways.items())
            if place
        }
        self.links = {place: {link} for place, link in self._tree.items()}
        tips = [tip for tip in self._tips(kept) if self._over_tree(tip).most > LEEWAY * self._limit(tip)]
        if tips:
            self._readings = self._all_readings()
            self._lighter = self._lighter_above()
        for tip in tips:
            self._lighten(tip, planning)

    def unmade(self) -> set[Link]:
        """Return the needed edges that have to be made."""
        return {link for links in self.links.values() for link in links if link.is_unmade}

    def readings(self) -> dict[int, Reading]:
        """Return what a reader of the needed edges reads."""
        return readings_of(self.links.items())

    def _tips(self, kept: set[int]) -> list[int]:
        newest: dict[str, int] = {}
        latest = 0
        for place in sorted(kept & self._tree.keys(), key=self.line.order):
            node = self.line.nodes[place]
            newest[node.run_id if node else ""] = latest = place
        bases = {link.base for link in self._tree.values()}
        return sorted(place for place in newest.values() if place not in bases or place == latest)

    def _limit(self, tip: int) -> float:
        node = self.line.nodes[tip]
        delta = node.nbytes if node is not None and node.base != ROOT else 0
        reads = LATEST_READS if tip == self._latest else NEWEST_READS
        return reads * (self.line.anchor[tip] + delta)

    def _over_tree(self, place: int) -> Reading:
        links = []
        while place:
            links.append(self._tree[place])
            place = self._tree[place].base
        return reduce(go_on, reversed(links), _NOTHING)

    def _all_readings(self) -> dict[int, Reading]:
        """Return the cheapest readings of needed nodes that take no more edges than the tree does.

        So whichever of the edges on them are needed in the end, no restore gets longer than the tree.
        """
        readings = {0: _NOTHING}
        for place, tree in self._tree.items():
            best = go_on(readings[tree.base], tree)
            depth = self.arrangement.ways[place].depth
            for link in self.line.links[place]:
                if link is not tree and link.base in readings:
                    other = go_on(readings[link.base], link)
                    if other.edges <= depth and other[:2] < best[:2]:
                        best = other
            readings[place] = best
        return readings

    def _lighter_above(self) -> dict[int, int]:
        """Return for needed nodes the nearest on their line that fewer bytes are read for."""
        lighter = {0: 0}
        for place in self._tree:
            above = self.arrangement.needed_above(place)
            while above and self._readings[above].nbytes >= self._readings[place].nbytes:
                above = lighter[above]
            lighter[place] = above
        return lighter

    def _lighten(self, tip: int, planning: bool) -> None:
        at = tip
        if planning and tip not in self.line.partial and self._readings[tip].most > self._limit(tip):
            base = self._merge_base(tip)
            if base is not None:
                link = unmade(self.line, base, tip, self.line.merged(base, tip))
                self.links[tip].add(link)
                self.pressing.add(link)
                at = base
        while at:
            link = self._readings[at].link
            self.links[at].add(link)
            at = link.base

    def _merge_base(self, tip: int) -> int | None:
        """Return the nearest place from which a merge to the tip is light enough, or the root where that is
        lighter than what is there; None if there is none.
        """
        limit, now, depth = self._limit(tip), self._readings[tip], self.arrangement.ways[tip].depth
        there = {link.base for link in self.line.links[tip]}
        base = self.arrangement.needed_above(tip)
        for _ in range(TRIES):
            nbytes, reading = self.line.merged(base, tip), self._readings[base]
            light = reading.most + MARGIN * nbytes <= limit and reading.edges < depth
            if base == 0 or (light and base not in there and reading.cost + nbytes + EDGE_COST < now.cost):
                break
            base = self._lighter[base]
        else:
            base = 0
        if base == 0 and ANCHOR_MARGIN * self.line.merged(0, tip) + EDGE_COST >= now.cost:
            return None
        return None if base in there else base
