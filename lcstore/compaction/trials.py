"""How large merged edges come out: of some that are planned a few chunks are merged, and not stored.

A plan tells sizes from those of single saves, as if the weights moved in a new direction each time and on one
step size. Where they keep going one way, where the learning rate falls, and where rows have step sizes of
their own, a sum takes more bits. Only merging shows how many.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from lcstore.compaction.making import asks
from lcstore.edges.edge import Edge
from lcstore.edges.merge import Merger
from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.graph.graph import Graph
from lcstore.graph.plan import Shortcut
from lcstore.graph.refs import ROOT
from lcstore.graph.sizes import Sizes
from lcstore.layout.poolmap import PieceColumns
from lcstore.read.feeder import Fed, Feeder

#: Chunks that are read of a pool at most, of like ones; saves that are merged at most; by how much fewer, to
#: see what those take.
_READS: Final = 96
_LONGEST: Final = 32
_FEWEST: Final = 2
_PART: Final = 4
#: Pools of which a chunk is merged: sums of weights grow with what they are of, those of bit patterns hardly.
_POOLS: Final = 3
#: Where chunks are unlike: at which parts of their bytes those lie that are merged.
_UNLIKE: Final = (1 / 6, 1 / 2, 5 / 6)
#: The most that the bytes of a merged edge are taken to grow by with its span, as a power of that.
_STEEPEST: Final = 0.5
#: Logarithms of spans are so far apart that two of them tell a slope.
_APART: Final = 0.2

#: Returns what merges a planned edge, and what feeds it.
MergerOf: TypeAlias = Callable[[Shortcut], tuple[Merger, Feeder]]
_Chunk: TypeAlias = tuple[str, int, PieceColumns]


class _Trial(NamedTuple):
    """How many bytes an edge takes for each that was planned, going by some chunks; and what it spans."""

    span: int
    factor: float


def measured_sizes(
    planned: Sequence[Shortcut], graph: Graph, sizes: Sizes, merger_of: MergerOf, executor: Executor
) -> Callable[[Shortcut], int]:
    """Return what tells the bytes of a planned edge, going by merges of some chunks.

    Where nothing can be merged it is the bytes that were planned.

    Parameters
    ----------
    planned
        The edges of a plan.
    graph, sizes
        What was planned for, and by.
    merger_of
        Returns what merges an edge.
    executor
        Threads to merge with.
    """
    wanted = _chosen([shortcut for shortcut in planned if shortcut.base != ROOT], graph)
    found = executor.map(lambda shortcut: _tried(shortcut, sizes, merger_of), wanted)
    level, slope = _fitted([trial for trial in found if trial is not None])

    def nbytes(shortcut: Shortcut) -> int:
        if shortcut.base == ROOT:
            return shortcut.nbytes
        return round(shortcut.nbytes * math.exp(level + slope * math.log(shortcut.span)))

    return nbytes


def _chosen(merges: Sequence[Shortcut], graph: Graph) -> list[Shortcut]:
    """Return what is merged to try: the ends of merges spread over the plan, and of one also a part."""
    spans = [min(_LONGEST, shortcut.span) for shortcut in merges]
    if not spans:
        return []
    many = max(1, min(len(merges), round(_READS * len(spans) / (sum(spans) + _LONGEST / _PART))))
    chosen: list[Shortcut] = []
    left = _READS
    for place in np.unique(np.linspace(len(merges) - 1, 0, many).round().astype(int)).tolist()[::-1]:
        for span in (spans[place],) if chosen else (spans[place], spans[place] // _PART):
            if _FEWEST <= span <= left:
                chosen.append(_last_of(merges[place], span, graph))
                left -= span
    return chosen


def _last_of(shortcut: Shortcut, span: int, graph: Graph) -> Shortcut:
    """Return a merge of the last saves of a merge; how large it will be is not told."""
    base, length = shortcut.target, 0
    while length < span and base in graph.nodes and graph.nodes[base].base != ROOT:
        base, length = graph.nodes[base].base, length + 1
    return Shortcut(base, shortcut.target, 0, length)


def _tried(shortcut: Shortcut, sizes: Sizes, merger_of: MergerOf) -> _Trial | None:
    """Merge some chunks of the largest pools added to; None where that fails, or tells nothing.

    What is planned is taken from what the edges add to these pools: the target's own edge may set others.
    """
    if shortcut.span < _FEWEST:
        return None
    merged = read = 0.0
    try:
        merger, feeder = merger_of(shortcut)
        of: dict[str, list[int]] = {}
        for at in np.flatnonzero(merger.path.added).tolist():
            of.setdefault(merger.layout.tensors[at].pool, []).append(at)
        each = [_added(edge, of) for edge in merger.path.edges]
        added = sum(each, Counter())
        pools = Counter({pool: sum(n for (at, _), n in added.items() if at == pool) for pool in of})
        tried = []
        for pool, _ in pools.most_common(_POOLS):
            chunks = [one for one in merger.path.chunks(of[pool]) if (pool, one[1]) in added]
            tried += _spread(chunks, [added[pool, number] for _, number, _ in chunks])
        once = {(pool, number): pieces for pool, number, pieces in tried}
        with feeder.feeding(asks(merger, [(*chunk, pieces) for chunk, pieces in once.items()])):
            found = {
                chunk: sum(len(part.data) for part in merger.merge(*chunk, pieces))
                for chunk, pieces in once.items()
            }
        for pool, number, _ in tried:
            merged += found[pool, number] * pools[pool] / added[pool, number]
            read += pools[pool]
    except LcstoreError:
        return None
    planned = sizes.nbytes(sum(sizes.spread(nbytes) for one in each if (nbytes := sum(one.values()))))
    if not merged or not planned:
        return None
    return _Trial(shortcut.span, merged * sum(pools.values()) / read / planned)


def _spread(chunks: Sequence[_Chunk], nbytes: Sequence[int]) -> list[_Chunk]:
    """Return the chunks that are merged of a pool, each for as many of its bytes as any other.

    One tells enough where chunks are alike. Of tables in which few rows change, some chunks change in many
    rows, whose sums hardly grow, and others in few: so there are more, and one may be among them repeatedly.
    """
    if not chunks:
        return []
    parts = _UNLIKE if max(nbytes) > 2 * float(np.quantile(nbytes, 0.25)) else (0.5,)
    ends = np.cumsum(nbytes)
    return [chunks[at] for at in np.searchsorted(ends, ends[-1] * np.array(parts), side="right").tolist()]


def _added(edge: Edge, pools: Collection[str]) -> Counter[tuple[str, int]]:
    """Return the bytes that an edge adds to each chunk of some pools."""
    assert isinstance(edge.fetch, Fed)
    found = Counter[tuple[str, int]]()
    for key, ref in edge.fetch.inner.refs.items():
        name = keys.parse_data_key(key)
        if name.op == "add" and name.pool is not None and name.pool in pools and name.chunk is not None:
            found[name.pool, name.chunk] += ref.nbytes
    return found


def _fitted(trials: Sequence[_Trial]) -> tuple[float, float]:
    """Return level and slope of a line of medians (Theil and Sen) through logarithms of factors and spans."""
    if not trials:
        return 0.0, 0.0
    spans = np.log([trial.span for trial in trials])
    factors = np.log([trial.factor for trial in trials])
    one, other = np.triu_indices(len(trials), 1)
    apart = np.abs(spans[other] - spans[one]) > _APART
    slopes = (factors[other] - factors[one])[apart] / (spans[other] - spans[one])[apart]
    slope = min(_STEEPEST, max(0.0, float(np.median(slopes)))) if slopes.size else 0.0
    return float(np.median(factors - slope * spans)), slope
