"""Proving edges one chunk at a time: each frame decodes, and each edge leads from digest to digest.

Digests are linear: what an edge adds to a tensor has as its digest that of the target less that of the base.
So where every edge is proved alone, every path to a node composes to the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.edges.algebra import ArrayName, by_array
from lcstore.edges.digests import Digests
from lcstore.edges.edge import composed_dtype, to_track
from lcstore.graph.refs import ROOT
from lcstore.index.links import Link


class Sums:
    """Digests of what an edge holds of each tensor, while its chunks are decoded. Thread-safe."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._digests = Digests(link.layout)

    @property
    def found(self) -> Array:
        """The digests: ``uint64``, per tensor."""
        return self._digests.found

    def take(self, pool: str, array: ArrayName, chunk: int, values: Array) -> None:
        """Add a decoded chunk.

        Raises
        ------
        CorruptionError
            A value does not fit its grid.
        """
        link = self.link
        # Readers add a chunk as a whole: of what is not added to, it has to hold zeros.
        wanted = link.effect.passes if array == "add" else link.effect.holds(array)
        dtype = composed_dtype(link.layout.pools[pool])
        pieces = link.layout.maps[pool].pieces(chunk)
        track = np.empty(values.size, dtype)
        for _, some in by_array(link.columns.op, link.layout.weights, pieces.where(wanted[pieces.tensor])):
            to_track(link.layout, link.columns, some, values, track)
            self._digests.add(some, track)


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
    link, effect = sums.link, sums.link.effect
    base = own.get(link.base)
    wrong = effect.sets & (sums.found != link.columns.digest)
    if base is not None:
        wanted = effect.digests(link.columns.digest, (base.layout, base.columns.digest))
        led = ~effect.unlike(sums.found, wanted)
        led &= ~link.layout.weights | (effect.carry(base.columns.grid, base.layout, 0) == link.columns.grid)
        led &= effect.adds | (wanted == 0)
        led &= effect.carry(np.ones(len(base.layout.tensors), bool), base.layout, False)
        wrong |= effect.passes & ~led
    elif link.base == ROOT:
        wrong |= effect.passes
    wrong |= ~effect.sets & ~effect.passes
    wrong &= known & ~effect.owned
    if not wrong.any():
        return None
    tensor = int(np.flatnonzero(wrong)[0])
    name = link.layout.tensors[tensor].name
    if effect.sets[tensor]:
        return Proof(wrong, f"the value that it sets tensor {name!r} to does not have the digest committed")
    return Proof(wrong, f"it does not lead tensor {name!r} from the digest of its base to that committed")
