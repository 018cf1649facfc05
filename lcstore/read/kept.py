"""The exact values that a node keeps besides its track."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lcstore.arrays import Array
from lcstore.codec.decode import Room
from lcstore.codec.dtypes import dtype_from_name
from lcstore.edges.blocks import blocks, reader
from lcstore.edges.path import span_of
from lcstore.errors import LcstoreError
from lcstore.layout.poolmap import Piece, PoolMap, within
from lcstore.limits import check_unstored, zeros
from lcstore.read.feeder import Ask, Fed, Feeder
from lcstore.read.fetch import ChunkFetch
from lcstore.read.node import Node
from lcstore.read.reader import Reader
from lcstore.storage.jobs import run_all


def exact_values(
    reader: Reader, node: Node, wanted: Sequence[int], window: tuple[int, int] | None = None
) -> dict[int, Array]:
    """Return the exact flat values of what is stored; of one tensor, those of a window where one is given."""
    fetch = exact_fetch(reader, node)
    specs = node.layout.tensors
    ends = {t: window or (0, specs[t].size) for t in wanted}
    sizes = {t: (high - low) * dtype_from_name(specs[t].dtype).itemsize for t, (low, high) in ends.items()}
    check_unstored(sum(sizes.values()), fetch.stored)
    out = {t: zeros(high - low, dtype_from_name(specs[t].dtype)) for t, (low, high) in ends.items()}
    chunks = exact_chunks(node, wanted, window)
    begins = {t: low for t, (low, _) in ends.items()}
    feeder = Feeder(reader.requests)
    fed = feeder.fed(fetch)
    with feeder.feeding(Ask(fed, tensors.pool.name, "exact", chunk) for tensors, chunk in chunks):
        jobs = [partial(_fill, tensors, chunk, fed, out, begins) for tensors, chunk in chunks]
        run_all(reader.executor, jobs)
    return out


def exact_fetch(reader: Reader, node: Node) -> ChunkFetch:
    """Return what gets the chunks of a node's exact value."""
    objects = node.record.exact.objects if node.record.exact is not None else ()
    return ChunkFetch(reader.backend, node.record.edge, objects)


def exact_chunks(
    node: Node, wanted: Sequence[int], window: tuple[int, int] | None = None
) -> list[tuple[PoolMap, int]]:
    """Return the chunks, each with its pool, that hold the exact values of tensors, or of a window of one."""
    found = []
    for name, tensors in node.layout.maps.items():
        mine = {t for t in wanted if node.layout.tensors[t].pool == name}
        found += [(tensors, chunk) for chunk in tensors.chunks_of(mine, window)]
    return found


def exact_chunk(tensors: PoolMap, chunk: int, fetch: Fed) -> Array | None:
    """Return the exact values of a chunk of a pool; None where they are all zero."""
    low, high = tensors.bounds(chunk)
    out = zeros(high - low, dtype_from_name(tensors.pool.dtype))
    whole = Piece(0, 0, 0, out.size)
    stored = _read(tensors, chunk, fetch, [whole], lambda piece: out[piece.at : piece.at + piece.size])
    return out if stored else None


def _fill(tensors: PoolMap, chunk: int, fetch: Fed, out: dict[int, Array], begins: dict[int, int]) -> None:
    def place(piece: Piece) -> Array:
        first = piece.first - begins[piece.tensor]
        return out[piece.tensor][first : first + piece.size]

    pieces = []
    for piece in tensors.pieces(chunk, out.keys()):
        begin = begins[piece.tensor]
        low = max(piece.first, begin)
        high = min(piece.first + piece.size, begin + out[piece.tensor].size)
        if low < high:
            pieces.append(Piece(piece.tensor, low, piece.at + low - piece.first, high - low))
    _read(tensors, chunk, fetch, pieces, place)


def _read(
    tensors: PoolMap, chunk: int, fetch: Fed, pieces: Sequence[Piece], place: Callable[[Piece], Array]
) -> bool:
    """Decode the pieces of a chunk to their places; return whether any of it is stored, and not zero."""
    pool = tensors.pool
    data = fetch(pool.name, "exact", chunk)
    if data is None or not pieces:
        return data is not None
    (low, high), room, dtype = tensors.bounds(chunk), Room(), dtype_from_name(pool.dtype)
    try:
        read = reader(data, high - low, dtype, room)
        for begin, end in blocks(*span_of(pieces), high - low):
            here = [*within(pieces, begin, end)]
            if here and here[0].size == end - begin:
                read(begin, place(here[0]))
                continue
            values = room.values(end - begin, dtype)
            if here:
                read(begin, values)
            for piece in here:
                place(piece)[:] = values[piece.at - begin : piece.at - begin + piece.size]
    except LcstoreError as error:
        error.key = error.key or fetch.inner.locate(pool.name, "exact", chunk)
        raise
    return True
