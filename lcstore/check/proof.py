"""Proving edges one chunk at a time: each frame decodes, and each edge leads from digest to digest.

Digests are linear: what an edge adds to a tensor has as its digest that of the target less that of the base.
So where every edge is proved alone, every path to a node composes to the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.errors import CorruptionError
from lcstore.format import keys
from lcstore.graph.names import ROOT
from lcstore.index.links import OP_OF, PASSES, SETS, LayoutView, Link, pick
from lcstore.track import grid
from lcstore.track.columns import ADD, EXACT, KEEP, OWN
from lcstore.track.compose import composed_dtype
from lcstore.track.digests import digest_integers, digest_values
from lcstore.track.frames import apply_delta, values_of_frame
from lcstore.track.poolmap import Piece


def decode(view: LayoutView, pool: str, array: keys.Op, chunk: int, data: bytes) -> Array:
    """Decode a chunk completely: integers of the grid, or values.

    Raises
    ------
    CorruptionError
        It is no frame of such a chunk.
    """
    spec, lies = view.layout.pools[pool], view.maps[pool]
    low, high = lies.bounds(chunk)
    if array in keys.INTEGERS:
        out = np.zeros(high - low, composed_dtype(spec))
        apply_delta(data, out)
        return out
    return values_of_frame(data, high - low, dtype_from_name(spec.dtype))


class Sums:
    """Digests of what an edge holds of each tensor, while its chunks are decoded. Thread-safe.

    Parameters
    ----------
    link
        The edge.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.found = np.zeros(link.columns.op.size, np.uint64)
        self._lock = Lock()

    def take(self, pool: str, array: keys.Op, chunk: int, values: Array) -> None:
        """Add a decoded chunk.

        Raises
        ------
        CorruptionError
            A value does not fit its grid.
        """
        ops = self.link.columns.op
        wanted = np.isin(ops, PASSES) if array == "add" else ops == OP_OF[array]
        for piece in self.link.view.maps[pool].pieces(chunk):
            if not wanted[piece.tensor]:
                continue
            total = np.zeros(1, np.uint64)
            self._digest(piece, values[piece.at : piece.at + piece.size], total)
            with self._lock:
                self.found[piece.tensor : piece.tensor + 1] += total

    def _digest(self, piece: Piece, values: Array, total: Array) -> None:
        spec = self.link.view.layout.tensors[piece.tensor]
        if spec.role != "weights":
            digest_values(spec, values, piece.first, total)
            return
        if self.link.columns.op[piece.tensor] == EXACT:
            integers = np.zeros(values.size, grid.track_dtype(spec.dtype))
            if not grid.to_grid(values, int(self.link.columns.grid[piece.tensor]), integers, spec.dtype):
                raise CorruptionError(f"tensor {spec.name!r} does not fit its grid")
            values = integers
        digest_integers(spec, values, piece.first, total)


class Proof(NamedTuple):
    """What the digests of an edge come to.

    Attributes
    ----------
    wrong
        ``bool``, per tensor: the edge does not lead to the value committed.
    why
        What is wrong with the first of them.
    """

    wrong: Array
    why: str


def prove(sums: Sums, known: Array, own: Mapping[str, Link]) -> Proof | None:
    """Return what is wrong with an edge all of whose chunks were decoded; None if nothing is.

    Parameters
    ----------
    known
        ``bool``, per tensor: all its chunks could be looked at.
    own
        The edges that nodes were saved with: an edge whose base is not there any more cannot be used, and of
        it only what it sets is proved.
    """
    link, ops = sums.link, sums.link.columns.op
    weights = link.view.weights
    passes, wanted = np.isin(ops, PASSES), link.columns.digest.copy()
    wrong = np.isin(ops, SETS) & (sums.found != wanted)
    wrong |= (ops == ADD) & ~weights
    base = own.get(link.base)
    if base is not None:
        places = link.view.places(base.view)
        wanted -= pick(base.columns.digest, places)
        moved = (sums.found != wanted) | (places < 0) | ((ops == KEEP) & (wanted != 0))
        moved |= weights & (link.columns.grid != pick(base.columns.grid, places))
        wrong |= passes & moved
    elif link.base == ROOT:
        wrong |= passes
    wrong &= known & (ops != OWN)
    if not wrong.any():
        return None
    tensor = int(np.flatnonzero(wrong)[0])
    path = link.view.layout.tensors[tensor].name
    if passes[tensor]:
        return Proof(wrong, f"it does not lead tensor {path!r} from the digest of its base to that committed")
    return Proof(wrong, f"the value that it sets tensor {path!r} to does not have the digest committed")
