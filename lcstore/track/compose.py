"""Edges along a path, put together: the values of a node, or the track that stands on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.errors import CorruptionError, LcstoreError
from lcstore.kernels.digest import digest
from lcstore.state.plan import Plan, PoolSpec
from lcstore.track import grid
from lcstore.track.columns import ADD, EXACT, KEEP, NO_GRID, SET, SET_GRID, Columns
from lcstore.track.draft import OpName, digest_bits
from lcstore.track.frames import apply_delta, values_of_frame
from lcstore.track.layout import PoolMap, pool_maps

#: Gives the bytes of a chunk of an edge, checked; None where it is not stored (all zero).
Fetch: TypeAlias = Callable[[str, OpName, int], bytes | None]


@dataclass(frozen=True)
class Edge:
    """One edge of a path: what it says of the tensors of its plan, and how to get its chunks."""

    plan: Plan
    columns: Columns
    fetch: Fetch
    #: Names a chunk, for messages.
    locate: Callable[[str, OpName, int], str]

    @contextmanager
    def named(self, pool: str, op: OpName, chunk: int) -> Iterator[None]:
        """Name the chunk in errors about its content."""
        try:
            yield
        except LcstoreError as error:
            error.key = error.key or self.locate(pool, op, chunk)
            raise


@dataclass(frozen=True)
class _Origin:
    """Where the value of a tensor begins: the last edge that sets it, and its index in that edge's plan."""

    edge: int
    tensor: int


class Composer:
    """Composes the edges of one path, chunk by chunk.

    Parameters
    ----------
    edges
        From the root to the node.
    plan, columns
        The node's own.
    wanted
        Tensors of the plan.
    window
        Compose only these elements, first and behind the last, of the one wanted tensor.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        plan: Plan,
        columns: Columns,
        wanted: Iterable[int],
        *,
        window: tuple[int, int] | None = None,
    ) -> None:
        self.edges = edges
        self.plan = plan
        self.columns = columns
        self.window = window
        self.wanted = sorted(wanted)
        self.maps = pool_maps(self.plan)
        self.pools: dict[str, Array] = {}
        self._maps_of = [self.maps if e.plan is self.plan else None for e in edges]
        self.origins = {tensor: self._origin(tensor) for tensor in self.wanted}
        by_pool: dict[str, list[int]] = {}
        for tensor in self.wanted:
            by_pool.setdefault(self.plan.tensors[tensor].pool, []).append(tensor)
        for name in by_pool:
            spec = self.plan.pools[name]
            self.pools[name] = np.zeros(spec.size, composed_dtype(spec))
        self._by_pool = {name: set(tensors) for name, tensors in by_pool.items()}

    def jobs(self) -> list[Callable[[], None]]:
        """List the jobs, one per chunk that holds a wanted tensor; they may run side by side."""
        return [
            partial(self._compose, name, chunk)
            for name, tensors in self._by_pool.items()
            for chunk in self.maps[name].chunks_of(tensors)
            if self._touches(name, chunk)
        ]

    def _touches(self, pool: str, chunk: int) -> bool:
        """Say whether a chunk holds anything of the window."""
        if self.window is None:
            return True
        offset = self.plan.tensors[self.wanted[0]].offset
        low, high = self.maps[pool].bounds(chunk)
        return low < offset + self.window[1] and offset + self.window[0] < high

    def _part(self, pool: str, chunk: int, count: int) -> tuple[int, int]:
        """Return the elements of a chunk of `count` that are needed."""
        if self.window is None:
            return 0, count
        offset = self.plan.tensors[self.wanted[0]].offset - self.maps[pool].bounds(chunk)[0]
        return max(0, min(offset + self.window[0], count)), max(0, min(offset + self.window[1], count))

    def values(self, tensor: int) -> Array:
        """Return the flat track value of a wanted tensor, in its dtype, once the jobs have run.

        Of a window only its elements; their digest cannot be proved then (their objects were checked).

        Raises
        ------
        CorruptionError
            Its digest is not the committed one.
        """
        spec = self.plan.tensors[tensor]
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
        spec = self.plan.tensors[tensor]
        held = self.pools[spec.pool][spec.offset : spec.offset + spec.size]
        total = np.zeros(1, np.uint64)
        if spec.role == "weights":
            digest(held, 0, total)
        else:
            digest_bits(held, 0, total)
        if total[0] != self.columns.digest[tensor]:
            raise CorruptionError(f"the digest of tensor {spec.path!r} is not the one committed")

    def _origin(self, tensor: int) -> _Origin:
        spec = self.plan.tensors[tensor]
        for at in range(len(self.edges) - 1, -1, -1):
            edge = self.edges[at]
            there = tensor if edge.plan is self.plan else edge.plan.index.get(spec.path)
            if there is None:
                break
            op = int(edge.columns.op[there])
            other = edge.plan.tensors[there]
            if (other.pool, other.offset, other.shape) != (spec.pool, spec.offset, spec.shape):
                break
            if op in (SET, EXACT, SET_GRID):
                return _Origin(at, there)
            if op not in (ADD, KEEP) or (op == ADD and spec.role != "weights"):
                break
        raise CorruptionError(f"nothing on the path sets tensor {spec.path!r}")

    def _map(self, edge: int, pool: str) -> PoolMap | None:
        maps = self._maps_of[edge]
        if maps is None:
            maps = self._maps_of[edge] = pool_maps(self.edges[edge].plan)
        return maps.get(pool)

    def _compose(self, pool: str, chunk: int) -> None:
        tensors = [p.tensor for p in self.maps[pool].pieces(chunk) if p.tensor in self._by_pool[pool]]
        origins = {t: self.origins[t] for t in tensors}
        first = min(origin.edge for origin in origins.values())
        target = self.pools[pool][slice(*self.maps[pool].bounds(chunk))]
        for at in range(first, len(self.edges)):
            set_here = {origin.tensor for origin in origins.values() if origin.edge == at}
            if set_here:
                self._set(at, pool, chunk, set_here, target)
            if (
                any(origin.edge < at for origin in origins.values())
                and self.plan.pools[pool].role == "weights"
            ):
                self._add(at, pool, chunk, target)

    def _add(self, at: int, pool: str, chunk: int, target: Array) -> None:
        data = self.edges[at].fetch(pool, "add", chunk)
        if data is None:
            return
        tensors = self._map(at, pool)
        low, high = tensors.bounds(chunk) if tensors is not None else (0, 0)
        with self.edges[at].named(pool, "add", chunk):
            apply_delta(data, target[: high - low], part=self._part(pool, chunk, high - low))

    def _set(self, at: int, pool: str, chunk: int, which: set[int], target: Array) -> None:
        """Set the tensors of an edge's own plan that lie in the chunk."""
        edge, tensors = self.edges[at], self._map(at, pool)
        assert tensors is not None
        low, high = tensors.bounds(chunk)
        pieces = [p for p in tensors.pieces(chunk) if p.tensor in which]
        ops = {int(edge.columns.op[p.tensor]) for p in pieces}
        role = edge.plan.pools[pool].role
        grids = None
        if SET_GRID in ops:
            grids = np.zeros(high - low, target.dtype)
            data = edge.fetch(pool, "set", chunk)
            if data is not None:
                with edge.named(pool, "set", chunk):
                    apply_delta(data, grids, part=self._part(pool, chunk, high - low))
        op: OpName = "exact" if EXACT in ops else "set"
        dtype = dtype_from_name(edge.plan.pools[pool].dtype)
        data = edge.fetch(pool, op, chunk) if EXACT in ops or (SET in ops and role != "weights") else None
        with edge.named(pool, op, chunk):
            values = (
                values_of_frame(data, high - low, dtype) if data is not None else np.zeros(high - low, dtype)
            )
        for piece in pieces:
            here = slice(piece.at, piece.at + piece.size)
            code = int(edge.columns.op[piece.tensor])
            if role != "weights":
                target[here] = values[here]
            elif code == SET_GRID and grids is not None:
                target[here] = grids[here]
            elif code == SET:
                target[here] = 0  # a tensor of weights is set without a value only where it is all zero
            elif not grid.to_grid(
                values[here],
                int(edge.columns.grid[piece.tensor]),
                target[here],
                edge.plan.tensors[piece.tensor].dtype,
            ):
                raise CorruptionError(
                    f"tensor {edge.plan.tensors[piece.tensor].path!r} does not fit its grid"
                )


def composed_dtype(pool: PoolSpec) -> np.dtype:
    """Return what a pool is composed in: the integers of its grid, or the values themselves."""
    return grid.track_dtype(pool.dtype) if pool.role == "weights" else dtype_from_name(pool.dtype)
