"""Restoring: the records on the cheapest path, the chunks that are needed, and the values they compose to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.errors import CorruptionError, LcstoreError, NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, ObjectRef, PartBody
from lcstore.format.records import NodeRecord
from lcstore.format.strictjson import loads
from lcstore.graph.names import EdgeRef, NodeName
from lcstore.index.catalog import Catalog
from lcstore.index.parts import fetch_object
from lcstore.limits import MAX_LEAVES_BYTES
from lcstore.state.join import leaf_places
from lcstore.state.layout import Layout
from lcstore.state.leaves import decode_leaf
from lcstore.state.names import format_name
from lcstore.state.poolmap import PoolMap
from lcstore.state.qualified import stem_of
from lcstore.state.shards import Box, overlap, within
from lcstore.state.tree import structure_names
from lcstore.storage.backend import Backend
from lcstore.storage.jobs import run_all
from lcstore.track.algebra import ArrayName, sets
from lcstore.track.columns import EXACT, Columns
from lcstore.track.compose import Composer
from lcstore.track.edge import Edge
from lcstore.track.frames import values_of_frame
from lcstore.track.track import pool_dtype


@dataclass(frozen=True)
class Node:
    """A node with its record and layout read."""

    name: NodeName
    key: str
    record: NodeRecord
    layout: Layout
    columns: Columns
    #: Whether the exact value, where it was saved, is not let go.
    exact: bool = True
    #: Pools that are let go.
    stripped: frozenset[str] = frozenset()

    def has_let_go(self, tensor: int) -> bool:
        """Return whether a tensor of the layout was let go."""
        return stem_of(self.layout.tensors[tensor].pool) in self.stripped

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the node in errors that name no object or step yet."""
        try:
            yield
        except LcstoreError as error:
            error.key = error.key or self.key
            error.step = self.record.step if error.step is None else error.step
            raise


class Reader:
    """Reads nodes. Thread-safe.

    Parameters
    ----------
    backend, catalog, executor
        Where from; what is there; threads to read and decode with.
    """

    def __init__(self, backend: Backend, catalog: Catalog, executor: Executor) -> None:
        self.backend = backend
        self.catalog = catalog
        self.executor = executor

    def node(self, name: NodeName) -> Node:
        """Read a node's record and layout."""
        record = self.catalog.record(name.node)
        key = keys.node_key(name)
        layout = self.catalog.layout(record.layout)
        columns = Columns.from_bytes(record.edge.columns, len(layout.tensors), key=key)
        marks = self.catalog.marks
        exact = name.node not in marks.inexact
        return Node(name, key, record, layout, columns, exact, marks.stripped.get(name.node, frozenset()))

    def leaves(self, node: Node) -> list[object]:
        """Return the plain values of a node."""
        found = [self._stored_leaves(node, part) for part in node.record.edge.parts]
        if not node.layout.parts:
            return found[0]
        for part, values in zip(node.layout.parts, found, strict=True):
            if len(values) != len(structure_names(part.layout.structure)[1]):
                raise CorruptionError(f"part {part.name} has more or fewer plain values than its layout")
        # Several parts may have one value: it was seen to be the same when they were committed.
        return [found[number][place] for (number, place), *_ in leaf_places(node.layout)]

    def _stored_leaves(self, node: Node, part: PartBody) -> list[object]:
        ref = part.leaves_object
        stored: object = part.leaves
        if ref is not None:
            stored = loads(fetch_object(self.backend, ref), key=ref.key, max_bytes=MAX_LEAVES_BYTES)
        if not isinstance(stored, list):
            raise CorruptionError("a node has no plain values", key=node.key)
        try:
            return [decode_leaf(value) for value in stored]
        except LcstoreError as error:
            error.key = error.key or (node.key if ref is None else ref.key)
            raise

    def values(self, node: Node, wanted: Sequence[int]) -> dict[int, Array]:
        """Return flat values of tensors by their place among `Layout.wholes`: the exact ones while kept."""
        return node.layout.put_together(self.stored(node, node.layout.stored(wanted)), wanted)

    def stored(self, node: Node, wanted: Iterable[int]) -> dict[int, Array]:
        """Return flat values of what is stored, by place among `Layout.tensors`; as `values` does."""
        exact, tracked = self._divide(node, wanted)
        with node.named():
            self._check_kept(node, (*exact, *tracked))
            out = self._exact_values(node, exact)
            if tracked:
                composer = self.compose(node, tracked)
                out |= dict(zip(tracked, self.executor.map(composer.values, tracked), strict=True))
        return out

    def region(self, node: Node, whole: int, box: Box) -> Array:
        """Return the elements of one tensor in a box, decoding little else: of each shard some rows."""
        spec = node.layout.wholes[whole]
        out = np.empty([high - low for low, high in box], dtype_from_name(spec.dtype))
        for tensor in node.layout.shards[whole]:
            shard = node.layout.tensors[tensor]
            both = overlap(shard.box, box)
            if both is not None:
                inside, into = within(both, shard.box), within(both, box)
                row = math.prod(shard.shape[1:])
                flat = self._window(node, tensor, inside[0].start * row, inside[0].stop * row)
                out[into] = flat.reshape(-1, *shard.shape[1:])[:, *inside[1:]]
        return out

    def _window(self, node: Node, tensor: int, low: int, high: int) -> Array:
        with node.named():
            self._check_kept(node, [tensor])
            if self.keeps_exact(node, tensor):
                return self._exact_values(node, [tensor], (low, high))[tensor][low:high]
            return self.compose(node, [tensor], window=(low, high)).values(tensor)

    def rebuild(self, node: Node) -> tuple[dict[str, Array], dict[int, Array]]:
        """Return the track of a node, proved, by pool; and the flat values of what is stored, as `stored`."""
        everything = range(len(node.layout.tensors))
        exact, tracked = self._divide(node, everything)
        with node.named():
            self._check_kept(node, everything)
            composer = self.compose(node, everything)
            values = dict(zip(tracked, self.executor.map(composer.values, tracked), strict=True))
            list(self.executor.map(composer.prove, exact))
            values |= self._exact_values(node, exact)
        pools = {
            name: composer.pools.get(name, np.zeros(pool.size, dtype))
            for name, pool in node.layout.pools.items()
            if (dtype := pool_dtype(pool)) is not None
        }
        return pools, values

    @staticmethod
    def _check_kept(node: Node, wanted: Iterable[int]) -> None:
        """Refuse tensors that were let go: part of a state is never given for the whole."""
        gone = [t for t in wanted if node.has_let_go(t)] if node.stripped else ()
        if gone:
            path = format_name(node.layout.tensors[gone[0]].name)
            raise NotFoundError(
                f"{len(gone)} tensors of this state were let go, {path!r} among them: "
                "restore the rest with keys=, say keys='model/**'"
            )

    def compose(
        self, node: Node, wanted: Sequence[int], *, window: tuple[int, int] | None = None
    ) -> Composer:
        """Compose the track of tensors along the cheapest path."""
        composer = Composer(self._edges(node, wanted), node.layout, node.columns, wanted, window=window)
        run_all(self.executor, composer.jobs())
        return composer

    def _edges(self, node: Node, wanted: Sequence[int]) -> list[Edge]:
        own = self._edge(node)
        if sets(node.columns.op[list(wanted)]).all():
            return [own]  # the node's own edge sets all of them: nothing before it matters
        return self.edges(self.catalog.path(node.name.node))

    def edges(self, path: Sequence[EdgeRef]) -> list[Edge]:
        """Return the edges of a path, their records read and checked."""
        self.catalog.records([ref.target for ref in path], self.executor)
        list(self.executor.map(self.catalog.edge, [ref.edge for ref in path if ref.edge is not None]))
        return [self._of_path(ref) for ref in path]

    def _of_path(self, ref: EdgeRef) -> Edge:
        node = self.node(self.catalog.name(ref.target))
        own = self._edge(node)
        if ref.edge is None:
            return own
        record = self.catalog.edge(ref.edge)
        key = keys.edge_key(record.name)
        columns = Columns.from_bytes(record.edge.columns, len(node.layout.tensors), key=key, shortcut=True)
        fetch = _Fetch(self.backend, record.edge)
        return Edge(node.layout, columns, fetch, fetch.locate, own)

    def _edge(self, node: Node) -> Edge:
        fetch = _Fetch(self.backend, node.record.edge)
        return Edge(node.layout, node.columns, fetch, fetch.locate)

    @staticmethod
    def _divide(node: Node, wanted: Iterable[int]) -> tuple[list[int], list[int]]:
        """Divide tensors into those whose exact value the node keeps, and the rest."""
        exact: list[int] = []
        tracked: list[int] = []
        for tensor in wanted:
            (exact if Reader.keeps_exact(node, tensor) else tracked).append(tensor)
        return exact, tracked

    @staticmethod
    def keeps_exact(node: Node, tensor: int) -> bool:
        """Say whether a node keeps the exact value of a lossy tensor."""
        lossy = node.layout.tensors[tensor].role != "plain" and node.exact
        return lossy and (bool(node.columns.op[tensor] == EXACT) or node.record.exact is not None)

    def _exact_values(
        self, node: Node, wanted: Sequence[int], window: tuple[int, int] | None = None
    ) -> dict[int, Array]:
        """Return the exact values of tensors; with a window of one, what is outside means nothing."""
        exact = node.record.exact.objects if node.record.exact is not None else ()
        fetch = _Fetch(self.backend, node.record.edge, exact)
        out = {
            t: np.zeros(node.layout.tensors[t].size, dtype_from_name(node.layout.tensors[t].dtype))
            for t in wanted
        }
        jobs = []
        for name, tensors in node.layout.maps.items():
            mine = {t for t in wanted if node.layout.tensors[t].pool == name}
            for chunk in tensors.chunks_of(mine):
                if window is None or tensors.holds(chunk, wanted[0], window):
                    jobs.append(partial(_exact_chunk, tensors, chunk, fetch, out))
        run_all(self.executor, jobs)
        return out


def _exact_chunk(tensors: PoolMap, chunk: int, fetch: _Fetch, out: dict[int, Array]) -> None:
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
            out[piece.tensor][piece.first : piece.first + piece.size] = values[
                piece.at : piece.at + piece.size
            ]


class _Fetch:
    """Gets chunks of one edge, checked; a chunk that no record lists is zero."""

    def __init__(self, backend: Backend, edge: EdgeBody, more: Sequence[ObjectRef] = ()) -> None:
        self.backend = backend
        self.edge = edge.id
        self.refs = {ref.key: ref for ref in (*edge.objects, *more)}

    def locate(self, pool: str, op: ArrayName, chunk: int) -> str:
        """Return the key of a chunk."""
        return keys.chunk_key(self.edge, pool, op, chunk)

    def __call__(self, pool: str, op: ArrayName, chunk: int) -> bytes | None:
        ref = self.refs.get(self.locate(pool, op, chunk))
        return None if ref is None else fetch_object(self.backend, ref)


def box_window(shape: tuple[int, ...], sel: Any) -> tuple[Box, Any] | None:
    """Return the indices that `sel` is within, and what is left to select of those.

    None where the selection has to be made on the whole tensor.
    """
    leading = sel if isinstance(sel, tuple) else (sel,)
    box, rest = [], []
    for size, one in zip(shape, leading, strict=False):
        bounds = _bounds(size, one)
        if bounds is None:
            break
        box.append(bounds[0])
        rest.append(bounds[1])
    if not box or 0 in shape:
        return None
    others = tuple((0, size) for size in shape[len(box) :])
    return (*box, *others), (*rest, *leading[len(box) :])


def _bounds(size: int, one: Any) -> tuple[tuple[int, int], Any] | None:
    """Return the indices that an integer or a rising slice is within, and what is left of it."""
    if isinstance(one, bool | np.bool_) or not isinstance(one, slice | int | np.integer):
        return None
    if not isinstance(one, slice):
        at = int(one) + (size if one < 0 else 0)
        return ((at, at + 1), 0) if 0 <= at < size else None
    start, stop, step = one.indices(size)
    return ((start, stop), slice(None, None, step)) if step > 0 and stop > start else None
