"""The exact values that a node keeps besides its track."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.edges.frames import values_of_frame
from lcstore.errors import LcstoreError
from lcstore.layout.poolmap import PoolMap
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
    pool = tensors.pool
    data = fetch(pool.name, "exact", chunk)
    if data is None:
        return None
    low, high = tensors.bounds(chunk)
    try:
        return values_of_frame(data, high - low, dtype_from_name(pool.dtype))
    except LcstoreError as error:
        error.key = error.key or fetch.inner.locate(pool.name, "exact", chunk)
        raise


def _fill(tensors: PoolMap, chunk: int, fetch: Fed, out: dict[int, Array], begins: dict[int, int]) -> None:
    values = exact_chunk(tensors, chunk, fetch)
    if values is None:
        return
    for piece in tensors.pieces(chunk, out.keys()):
        begin = begins[piece.tensor]
        first = max(piece.first, begin)
        behind = min(piece.first + piece.size, begin + out[piece.tensor].size)
        if first < behind:
            at = piece.at + first - piece.first
            out[piece.tensor][first - begin : behind - begin] = values[at : at + behind - first]
