"""How large merged edges come out: of some that are planned one chunk is merged, and not stored.

A plan tells sizes from those of single saves, as if the weights moved in a new direction each time and on one
step size. Where they keep going one way, where the learning rate falls, and where rows have step sizes of
their own, a sum takes more bits. Only merging shows how many.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from lcstore.edges.edge import Edge
from lcstore.edges.merge import Merger
from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.graph.graph import Graph
from lcstore.graph.plan import Shortcut
from lcstore.graph.refs import ROOT
from lcstore.graph.sizes import Sizes
from lcstore.read.fetch import ChunkFetch

#: Chunks that are read at most; saves that are merged at most; by how much fewer, to see what those take.
_READS: Final = 96
_LONGEST: Final = 32
_FEWEST: Final = 2
_PART: Final = 4
#: The most that the bytes of a merged edge are taken to grow by with its span, as a power of that.
_STEEPEST: Final = 0.5

#: Returns what merges a planned edge.
MergerOf: TypeAlias = Callable[[Shortcut], Merger]


class _Trial(NamedTuple):
    """How many bytes an edge takes for each that was planned, going by one chunk; and what it spans."""

    span: int
    factor: float


def measured_sizes(
    planned: Sequence[Shortcut], graph: Graph, sizes: Sizes, merger_of: MergerOf, executor: Executor
) -> Callable[[Shortcut], int]:
    """Return what tells the bytes of a planned edge, going by merges of one chunk.

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
    wanted = _chosen([shortcut for shortcut in planned if shortcut.base != ROOT], graph, sizes)
    found = executor.map(lambda shortcut: _tried(shortcut, merger_of), wanted)
    level, slope = _fitted([trial for trial in found if trial is not None])

    def nbytes(shortcut: Shortcut) -> int:
        if shortcut.base == ROOT:
            return shortcut.nbytes
        return round(shortcut.nbytes * math.exp(level + slope * math.log(shortcut.span)))

    return nbytes


def _chosen(merges: Sequence[Shortcut], graph: Graph, sizes: Sizes) -> list[Shortcut]:
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
                chosen.append(_last_of(merges[place], span, graph, sizes))
                left -= span
    return chosen


def _last_of(shortcut: Shortcut, span: int, graph: Graph, sizes: Sizes) -> Shortcut:
    """Return what the last saves of a merge would be planned as, merged by themselves."""
    spread, base, length = 0.0, shortcut.target, 0
    while length < span and base in graph.nodes and graph.nodes[base].base != ROOT:
        spread += sizes.spread(graph.nodes[base].nbytes)
        base, length = graph.nodes[base].base, length + 1
    return Shortcut(base, shortcut.target, sizes.nbytes(spread), length)


def _tried(shortcut: Shortcut, merger_of: MergerOf) -> _Trial | None:
    """Merge a chunk of the largest pool added to; None where that cannot be done, or tells nothing."""
    if shortcut.span < _FEWEST:
        return None
    try:
        merger = merger_of(shortcut)
        by_pool = Counter[str]()
        for at in np.flatnonzero(merger.path.added).tolist():
            by_pool[merger.layout.tensors[at].pool] += merger.layout.tensors[at].nbytes
        if not by_pool:
            return None
        largest = max(by_pool, key=lambda name: by_pool[name])
        tensors = [at for at, tensor in enumerate(merger.layout.tensors) if tensor.pool == largest]
        chunks = [*merger.path.chunks(tensors)]
        made = merger.merge(*chunks[len(chunks) // 2])
        merged = sum(len(chunk.data) for chunk in made if chunk.op == "add")
        here, all_told = _bytes_added(merger.path.edges, largest, chunks[len(chunks) // 2][1])
    except LcstoreError:
        return None
    if not merged or not here or not shortcut.nbytes:
        return None
    return _Trial(shortcut.span, merged * all_told / here / shortcut.nbytes)


def _bytes_added(edges: Iterable[Edge], pool: str, chunk: int) -> tuple[int, int]:
    """Return the bytes that edges add to one chunk, and to all."""
    here = all_told = 0
    for edge in edges:
        assert isinstance(edge.fetch, ChunkFetch)
        for key, ref in edge.fetch.refs.items():
            name = keys.parse_data_key(key)
            if name.op == "add" and name.chunk is not None:
                all_told += ref.nbytes
                here += ref.nbytes * ((name.pool, name.chunk) == (pool, chunk))
    return here, all_told


def _fitted(trials: Sequence[_Trial]) -> tuple[float, float]:
    """Return level and slope of the line through the logarithms of factors over those of spans."""
    if not trials:
        return 0.0, 0.0
    spans = np.log([trial.span for trial in trials])
    factors = np.log([trial.factor for trial in trials])
    apart = spans - spans.mean()
    spread = float(apart @ apart)
    slope = 0.0 if spread < 0.1 else min(_STEEPEST, max(0.0, float(apart @ factors) / spread))
    return float(factors.mean() - slope * spans.mean()), slope
