"""The exact values that a node keeps besides its track."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.edges.frames import values_of_frame
from lcstore.errors import LcstoreError
from lcstore.read.fetch import ChunkFetch
from lcstore.read.node import Node
from lcstore.read.reader import Reader
from lcstore.state.poolmap import PoolMap
from lcstore.storage.jobs import run_all


def exact_values(
    reader: Reader, node: Node, wanted: Sequence[int], window: tuple[int, int] | None = None
) -> dict[int, Array]:
    """Return the exact flat values of what is stored; with a window of one, what is outside means nothing."""
    fetch = exact_fetch(reader, node)
    specs = node.layout.tensors
    out = {t: np.zeros(specs[t].size, dtype_from_name(specs[t].dtype)) for t in wanted}
    chunks = [
        (tensors, chunk)
        for tensors, chunk in exact_chunks(node, wanted)
        if window is None or tensors.holds(chunk, wanted[0], window)
    ]
    run_all(reader.executor, [partial(_fill, tensors, chunk, fetch, out) for tensors, chunk in chunks])
    return out


def exact_fetch(reader: Reader, node: Node) -> ChunkFetch:
    """Return what gets the chunks of a node's exact value."""
    objects = node.record.exact.objects if node.record.exact is not None else ()
    return ChunkFetch(reader.backend, node.record.edge, objects)


def exact_chunks(node: Node, wanted: Sequence[int]) -> list[tuple[PoolMap, int]]:
    """Return the chunks, each with its pool, that hold the exact values of tensors."""
    found = []
    for name, tensors in node.layout.maps.items():
        mine = {t for t in wanted if node.layout.tensors[t].pool == name}
        found += [(tensors, chunk) for chunk in tensors.chunks_of(mine)]
    return found


def _fill(tensors: PoolMap, chunk: int, fetch: ChunkFetch, out: dict[int, Array]) -> None:
    pool = tensors.pool
    data = fetch(pool.name, "exact", chunk)
    if data is None:
        return
    low, high = tensors.bounds(chunk)
    try:
        values = values_of_frame(data, high - low, dtype_from_name(pool.dtype))
    except LcstoreError as error:
        error.key = error.key or fetch.locate(pool.name, "exact", chunk)
        raise
    for piece in tensors.pieces(chunk):
        if piece.tensor in out:
            to = slice(piece.first, piece.first + piece.size)
            out[piece.tensor][to] = values[piece.at : piece.at + piece.size]
