"""Edges along a path, put together: the values of a node, or the track that stands on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.errors import CorruptionError
from lcstore.state.layout import Layout, PoolSpec
from lcstore.track import grid
from lcstore.track.columns import NO_GRID, Columns
from lcstore.track.digests import digest_integers, digest_values
from lcstore.track.edge import Edge, Fetch
from lcstore.track.route import Route

__all__ = ["Composer", "Edge", "Fetch", "composed_dtype"]


class Composer:
    """Composes the edges of one path, chunk by chunk.

    Parameters
    ----------
    edges
        From the root to the node.
    layout, columns
        The node's own.
    wanted
        Tensors of the layout.
    window
        Compose only these elements, first and behind the last, of the one wanted tensor.

    Raises
    ------
    CorruptionError
        Nothing on the path sets a wanted tensor.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        layout: Layout,
        columns: Columns,
        wanted: Iterable[int],
        *,
        window: tuple[int, int] | None = None,
    ) -> None:
        self.layout = layout
        self.columns = columns
        self.window = window
        self.wanted = sorted(wanted)
        self.route = Route(edges, layout, self.wanted)
        self.pools: dict[str, Array] = {}
        self._by_pool: dict[str, set[int]] = {}
        for tensor in self.wanted:
            self._by_pool.setdefault(layout.tensors[tensor].pool, set()).add(tensor)
        for name in self._by_pool:
            spec = layout.pools[name]
            self.pools[name] = np.zeros(spec.size, composed_dtype(spec))

    def jobs(self) -> list[Callable[[], None]]:
        """List the jobs, one per chunk that holds a wanted tensor; they may run side by side."""
        return [
            partial(self._compose, name, chunk)
            for name, tensors in self._by_pool.items()
            for chunk in self.route.maps[name].chunks_of(tensors)
            if self._touches(name, chunk)
        ]

    def _touches(self, pool: str, chunk: int) -> bool:
        """Say whether a chunk holds anything of the window."""
        if self.window is None:
            return True
        offset = self.layout.tensors[self.wanted[0]].offset
        low, high = self.route.maps[pool].bounds(chunk)
        return low < offset + self.window[1] and offset + self.window[0] < high

    def _part(self, pool: str, chunk: int) -> tuple[int, int] | None:
        """Return the elements of a chunk that the window needs; None without one."""
        if self.window is None:
            return None
        low, high = self.route.maps[pool].bounds(chunk)
        first, last = (self.layout.tensors[self.wanted[0]].offset - low + end for end in self.window)
        return max(0, min(first, high - low)), max(0, min(last, high - low))

    def _compose(self, pool: str, chunk: int) -> None:
        lies = self.route.maps[pool]
        tensors = [p.tensor for p in lies.pieces(chunk) if p.tensor in self._by_pool[pool]]
        out = self.pools[pool][slice(*lies.bounds(chunk))]
        self.route.compose(pool, chunk, tensors, out, self._part(pool, chunk))

    def values(self, tensor: int) -> Array:
        """Return the flat track value of a wanted tensor, in its dtype, once the jobs have run.

        Of a window only its elements; their digest cannot be proved then (their objects were checked).

        Raises
        ------
        CorruptionError
            Its digest is not the committed one.
        """
        spec = self.layout.tensors[tensor]
        low, high = self.window or (0, spec.size)
        held = self.pools[spec.pool][spec.offset + low : spec.offset + high]
        if self.window is None:
            self.prove(tensor)
        if spec.role != "weights":
            return held.copy()
        out = grid.empty_values(high - low, spec.dtype)
        unit = int(self.columns.grid[tensor])
        grid.from_grid(held, 0 if unit == NO_GRID else unit, spec.dtype, out)
        return out

    def prove(self, tensor: int) -> None:
        """Check the digest of a wanted tensor."""
        spec = self.layout.tensors[tensor]
        held = self.pools[spec.pool][spec.offset : spec.offset + spec.size]
        total = np.zeros(1, np.uint64)
        if spec.role == "weights":
            digest_integers(spec, held, 0, total)
        else:
            digest_values(spec, held, 0, total)
        if total[0] != self.columns.digest[tensor]:
            raise CorruptionError(f"the digest of tensor {spec.name!r} is not the one committed")


def composed_dtype(pool: PoolSpec) -> np.dtype:
    """Return what a pool is composed in: the integers of its grid, or the values themselves."""
    return grid.track_dtype(pool.dtype) if pool.role == "weights" else dtype_from_name(pool.dtype)
