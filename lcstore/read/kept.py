"""The exact values that a node keeps besides its track."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_from_name
from lcstore.edges.blocks import blocks, reader
from lcstore.errors import LcstoreError
from lcstore.frames.decode import Room
from lcstore.jobs.jobs import run_all
from lcstore.layout.poolmap import Piece, PieceColumns, PoolMap
from lcstore.limits import check_unstored, zeros
from lcstore.read.feeder import Ask, Fed, Feeder
from lcstore.read.fetch import ChunkFetch
from lcstore.read.node import Node
from lcstore.read.reader import Reader


def exact_values(
    reader: Reader, node: Node, wanted: Sequence[int], window: tuple[int, int] | None = None
) -> dict[int, Array]:
    """Return the exact flat values of what is stored; of one tensor, those of a window where one is given."""
    fetch, specs = exact_fetch(reader, node), node.layout.tensors
    ends = {t: window or (0, specs[t].size) for t in wanted}
    sizes = ((high - low) * specs[t].itemsize for t, (low, high) in ends.items())
    check_unstored(sum(sizes), fetch.stored)
    out = {t: zeros(high - low, dtype_from_name(specs[t].dtype)) for t, (low, high) in ends.items()}
    lie = [*exact_places(node, wanted, window)]
    chunks = [
        (tensors, chunk, tensors.cut(chunk, some))
        for tensors, some in lie
        for chunk in tensors.chunks_with(some)
    ]
    feeder = Feeder(reader.requests)
    fed = feeder.fed(fetch)
    with feeder.feeding(Ask(fed, tensors.pool.name, "exact", chunk) for tensors, chunk, _ in chunks):
        jobs = [
            partial(_fill, tensors, chunk, fed, pieces, out, 0 if window is None else window[0])
            for tensors, chunk, pieces in chunks
        ]
        run_all(reader.executor, jobs)
    return out


def exact_fetch(reader: Reader, node: Node) -> ChunkFetch:
    """Return what gets the chunks of a node's exact value."""
    objects = node.record.exact.objects if node.record.exact is not None else ()
    return ChunkFetch(reader.backend, node.record.edge, objects)


def exact_places(
    node: Node, wanted: Sequence[int], window: tuple[int, int] | None = None
) -> Iterator[tuple[PoolMap, PieceColumns]]:
    """Yield where exact values of tensors lie, or of a window of one: a pool, and pieces of it."""
    tensors, pools = np.array(wanted, np.int64), [*node.layout.maps.values()]
    within = node.layout.places.pool[tensors]
    for number in np.unique(within).tolist():
        some = pools[number].some(tensors[within == number])
        if window is not None:
            some = some.within(*(int(some.at[0]) + at for at in window)) if len(some) else some
        yield pools[number], some


def exact_chunk(tensors: PoolMap, chunk: int, fetch: Fed) -> Array | None:
    """Return the exact values of a chunk of a pool; None where they are all zero."""
    low, high = tensors.bounds(chunk)
    out = zeros(high - low, dtype_from_name(tensors.pool.dtype))
    stored = _fill(tensors, chunk, fetch, PieceColumns.of([Piece(0, 0, 0, out.size)]), {0: out}, 0)
    return out if stored else None


def _fill(
    tensors: PoolMap, chunk: int, fetch: Fed, pieces: PieceColumns, out: Mapping[int, Array], begin: int
) -> bool:
    """Decode the pieces of a chunk to their tensors, of which `out` has the elements from `begin` on.

    Return whether any of the chunk is stored, and not zero.
    """
    pool = tensors.pool
    data = fetch(pool.name, "exact", chunk)
    if data is None:
        return False
    (low, high), room, dtype = tensors.bounds(chunk), Room(), dtype_from_name(pool.dtype)
    try:
        read = reader(data, high - low, dtype, room)
        for first, behind in blocks(*pieces.span, high - low):
            here = pieces.within(first, behind)
            if len(here) == 1 and here.size[0] == behind - first:
                ((tensor, place, _, size),) = here
                read(first, out[tensor][place - begin : place - begin + size])
                continue
            values = room.values(behind - first, dtype)
            if len(here):
                read(first, values)
            for tensor, place, at, size in here:
                out[tensor][place - begin : place - begin + size] = values[at - first : at - first + size]
    except LcstoreError as error:
        error.key = error.key or fetch.inner.locate(pool.name, "exact", chunk)
        raise
    return True
