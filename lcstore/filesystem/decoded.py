"""Ranges of the tensors of one state, from the chunks in which they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_from_name
from lcstore.errors import LcstoreError
from lcstore.filesystem.chunkcache import ChunkCache
from lcstore.jobs.jobs import default_threads, run_all
from lcstore.layout.shards import Box
from lcstore.limits import check_unstored, zeros
from lcstore.read.feeder import Ask, Feeder
from lcstore.read.kept import exact_chunk, exact_fetch
from lcstore.read.resolved import Resolved
from lcstore.read.snapshot import Snapshot

#: However little is held, not each chunk is asked for by itself.
_LEAST_AT_ONCE: Final = 1 << 20


class Where(NamedTuple):
    """A chunk of a state, and which of its values: the exact ones, or those of the track."""

    node: str
    pool: str
    chunk: int
    exact: bool


class Span(NamedTuple):
    """Elements ``low`` to ``high`` of a tensor, by its place among `Layout.wholes`."""

    whole: int
    low: int
    high: int


class Decoded:
    """The values of one state, chunk by chunk. Thread-safe. The cache holds those of other states, too."""

    def __init__(self, snapshot: Snapshot, cache: ChunkCache[Where]) -> None:
        self.snapshot = snapshot
        self.node = snapshot.using(lambda state: state.node)
        self._cache = cache

    @property
    def most_at_once(self) -> int:
        """Bytes that can be asked for at once such that all of it can be held."""
        return max(self._cache.most // 2, _LEAST_AT_ONCE)

    def values(self, span: Span) -> list[Array]:
        """Return elements of a tensor: flat arrays one after another, which are not to be written to."""
        layout = self.node.layout
        places = layout.shards[span.whole]
        try:
            if len(places) == 1:
                return [*self._pieces(places[0], span.low, span.high)]
            boxes = boxes_of(layout.wholes[span.whole].shape, span.low, span.high)
            return [self._region(span.whole, box, self._joined) for box in boxes]
        except LcstoreError:
            # A chunk is decoded for all that lies in it. What is asked for may be well.
            return [*self._alone(span)]

    def fetch(self, spans: Iterable[Span], ahead: Iterable[Span] = ()) -> None:
        """Decode what some spans need and is not held, side by side; what cannot be read is left.

        Parameters
        ----------
        spans
            What is needed.
        ahead
            What will be needed next. Of this, so much is decoded that all threads have something to do, if
            anything has to be decoded at all.
        """
        wanted = dict.fromkeys(where for span in spans for where in self._places(span))
        if not any(map(self._cache.lacks, wanted)):
            return
        room = self.most_at_once - sum(map(self._nbytes, wanted))
        for where in (where for span in ahead for where in self._places(span)):
            if where in wanted:
                continue
            room -= self._nbytes(where)
            if room < 0 or len(wanted) >= default_threads():
                break
            wanted[where] = None
        try:
            self._take([*wanted])
        except LcstoreError:
            return  # `values` finds out of what, and says so

    def _places(self, span: Span) -> Iterator[Where]:
        """Yield the chunks that a span needs: of a tensor of shards those of all of them that it touches."""
        layout, node = self.node.layout, self.node.name.node
        whole = layout.wholes[span.whole]
        row = whole.size // whole.shape[0] if whole.shape and whole.size else 1
        for place in layout.shards[span.whole]:
            spec = layout.tensors[place]
            low, high = span.low, span.high
            if len(layout.shards[span.whole]) > 1:
                (first, behind), inner = spec.box[0], spec.size // max(1, spec.shape[0])
                low = (min(max(low // row, first), behind) - first) * inner
                high = (min(max(-(-high // row), first), behind) - first) * inner
            for chunk in layout.maps[spec.pool].chunks_of([place], (low, high)):
                yield Where(node, spec.pool, chunk, self.node.keeps_exact(place))

    def _nbytes(self, where: Where) -> int:
        low, high = self.node.layout.maps[where.pool].bounds(where.chunk)
        return (high - low) * dtype_from_name(self.node.layout.pools[where.pool].dtype).itemsize

    def _take(self, wanted: Sequence[Where]) -> dict[Where, Array]:
        def make(lacking: Sequence[Where]) -> list[Array]:
            return self.snapshot.using(partial(decode, wanted=lacking))

        return self._cache.take(wanted, make)

    def _pieces(self, place: int, low: int, high: int) -> Iterator[Array]:
        """Yield elements of what is stored of one tensor, from chunk after chunk."""
        spec, exact = self.node.layout.tensors[place], self.node.keeps_exact(place)
        lies = self.node.layout.maps[spec.pool]
        for chunk in lies.chunks_of([place], (low, high)):
            where = Where(self.node.name.node, spec.pool, chunk, exact)
            first, behind = lies.bounds(chunk)
            values = self._take([where])[where]
            yield values[max(spec.offset + low - first, 0) : min(spec.offset + high, behind) - first]

    def _joined(self, place: int, low: int, high: int) -> Array:
        return np.concatenate([*self._pieces(place, low, high)])

    def _region(self, whole: int, box: Box, window: Callable[[int, int, int], Array] | None = None) -> Array:
        return self.snapshot.using(lambda state: state.region(whole, box, window)).reshape(-1)

    def _alone(self, span: Span) -> Iterator[Array]:
        """Yield elements of one tensor by itself: over another path, if need be."""
        shape = self.node.layout.wholes[span.whole].shape
        if not shape:
            yield self.snapshot.using(lambda state: state.values([span.whole])[span.whole])
        for box in boxes_of(shape, span.low, span.high) if shape else ():
            yield self._region(span.whole, box)


def decode(state: Resolved, wanted: Sequence[Where]) -> list[Array]:
    """Return the values of some chunks of a state; where nothing lies, they mean nothing.

    Raises
    ------
    CorruptionError
        Something that lies in one of them is not what was committed.
    """
    node, reader = state.node, state.reader
    lie = [node.layout.maps[where.pool].pieces(where.chunk) for where in wanted]
    pieces = [p.where(node.exactly[p.tensor] == w.exact) for w, p in zip(wanted, lie, strict=True)]
    feeder = Feeder(reader.requests)
    fetch = exact_fetch(reader, node)
    fed = feeder.fed(fetch)
    tracked = {t for w, p in zip(wanted, pieces, strict=True) if not w.exact for t in p.tensor.tolist()}
    out = []
    for where in wanted:
        low, high = node.layout.maps[where.pool].bounds(where.chunk)
        out.append(zeros(high - low, dtype_from_name(node.layout.pools[where.pool].dtype)))
    with node.named():
        node.check_kept(tracked)
        check_unstored(sum(a.nbytes for w, a in zip(wanted, out, strict=True) if w.exact), fetch.stored)
        composer = state.composer(sorted(tracked), of=feeder.edge)
        composer.check()

        def fill(where: Where, values: Array) -> None:
            if where.exact:
                found = exact_chunk(node.layout.maps[where.pool], where.chunk, fed)
                if found is not None:
                    values[:] = found
                return
            some = pieces[wanted.index(where)]
            track = composer.chunk(where.pool, where.chunk, some)
            for piece in some:
                here = slice(piece.at, piece.at + piece.size)
                values[here] = composer.rounded(piece.tensor, track[here])

        def asks() -> Iterator[Ask]:
            for where, some in zip(wanted, pieces, strict=True):
                if where.exact:
                    yield Ask(fed, where.pool, "exact", where.chunk)
                for edge, array in () if where.exact else composer.needs(some):
                    yield Ask(edge.fetch, where.pool, array, where.chunk)

        with feeder.feeding(asks()):
            jobs = [partial(fill, where, values) for where, values in zip(wanted, out, strict=True)]
            run_all(reader.executor, jobs)
    return out


def boxes_of(shape: Sequence[int], low: int, high: int) -> Iterator[Box]:
    """Yield boxes that together are elements ``low`` to ``high`` of a tensor, in their order."""
    if low >= high:
        return
    if len(shape) == 1:
        yield ((low, high),)
        return
    inner = shape[1:]
    row = int(np.prod(inner))
    first, behind = -(-low // row), high // row
    if first > behind:  # within one row
        inside = boxes_of(inner, low - behind * row, high - behind * row)
        yield from (((behind, behind + 1), *box) for box in inside)
        return
    if low < first * row:
        start = (first - 1) * row
        yield from (((first - 1, first), *box) for box in boxes_of(inner, low - start, row))
    if first < behind:
        yield ((first, behind), *((0, size) for size in inner))
    yield from (((behind, behind + 1), *box) for box in boxes_of(inner, 0, high - behind * row))
