"""Nodes and edges from their records: what everything that reads begins with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Self

from lcstore.edges.columns import Columns
from lcstore.edges.edge import Edge
from lcstore.errors import ClosedError, CorruptionError, LcstoreError, NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import PartBody
from lcstore.format.strictjson import loads
from lcstore.graph.graph import Graph
from lcstore.graph.refs import EdgeRef, NodeName
from lcstore.index.index import Index
from lcstore.jobs.jobs import shared_requests, shared_workers
from lcstore.layout.join import leaf_places
from lcstore.limits import MAX_LEAVES_BYTES
from lcstore.read.fetch import ChunkFetch
from lcstore.read.node import Node
from lcstore.records.stored import fetch_copied
from lcstore.state.leaves import decode_leaf
from lcstore.state.tree import structure_names
from lcstore.storage.backend import Backend


class Reader:
    """Reads nodes and edges. Thread-safe.

    Parameters
    ----------
    index
        What is there, and where.
    executor, requests
        Threads to decode with, and threads that wait for the target.
    """

    def __init__(self, index: Index, executor: Executor, requests: Executor) -> None:
        self.index = index
        self.backend = index.backend
        self.executor = executor
        self.requests = requests
        self.process = os.getpid()
        self.closed = False
        #: Whether it was told that a series of states is of several lines of training.
        self.told_of_lines = False

    @classmethod
    def alone(cls, backend: Backend, known: Sequence[str] = ()) -> Self:
        """Return a reader that knows the records with these keys, without a listing."""
        requests = shared_requests()
        index = Index(backend, requests)
        index.know(known)
        return cls(index, shared_workers(), requests)

    @property
    def url(self) -> str:
        """Where the store is."""
        return self.backend.url

    def check_open(self) -> None:
        """Refuse to go on, with `ClosedError`, once closed, or in a process that was forked off."""
        self.check_not_closed()
        if os.getpid() != self.process:
            raise ClosedError(f"this handle of {self.url} is another process's: open the store in this one")

    def check_not_closed(self) -> None:
        """Refuse to go on, with `ClosedError`, once closed."""
        if self.closed:
            raise ClosedError(f"this handle of {self.url} is closed: open the store again")

    def listed(self) -> Graph:
        """List what is there anew."""
        self.check_open()
        return self.index.refresh(full=True)

    def node(self, name: NodeName) -> Node:
        """Read a node's record and layout."""
        record = self.index.record(name.node)
        key = keys.node_key(name)
        layout = self.index.layout(record.layout)
        columns = Columns.from_bytes(record.edge.columns, len(layout.tensors), key=key)
        marks = self.index.marks
        exact = name.node not in marks.inexact
        return Node(name, key, record, layout, columns, exact, marks.stripped.get(name.node, frozenset()))

    def leaves(self, node: Node) -> list[object]:
        """Return the plain values of a node."""
        found = [self._stored_leaves(node, part) for part in node.record.edge.parts]
        if not node.layout.parts:
            if len(found[0]) != len(node.leaf_places):
                raise CorruptionError(
                    f"{len(found[0])} plain values are stored, and its layout has {len(node.leaf_places)}: "
                    "run `lcstore verify`",
                    key=node.key,
                    step=node.record.step,
                )
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
            stored = loads(fetch_copied(self.backend, ref), key=ref.key, max_bytes=MAX_LEAVES_BYTES)
        if not isinstance(stored, list):
            raise CorruptionError("a node has no plain values", key=node.key)
        try:
            return [decode_leaf(value) for value in stored]
        except LcstoreError as error:
            error.key = error.key or (node.key if ref is None else ref.key)
            raise

    def edges(self, path: Sequence[EdgeRef]) -> list[Edge]:
        """Return the edges of a path, their records read side by side and checked.

        Those that it leads over backward are turned.

        Raises
        ------
        CorruptionError
            A record is damaged, or was collected.
        """
        try:
            self.index.records([ref.target for ref in path], self.requests)
            list(self.requests.map(self.index.edge, [ref.edge for ref in path if ref.edge is not None]))
            return [replace(self._edge(ref), back=ref.backward) for ref in path]
        except NotFoundError as error:
            raise CorruptionError(f"what a path leads over is gone: {error.message}") from error

    def own_edge(self, node: Node) -> Edge:
        """Return the edge that a node was saved with."""
        fetch = ChunkFetch(self.backend, node.record.edge)
        return Edge(node.layout, node.columns, fetch, fetch.locate)

    def _edge(self, ref: EdgeRef) -> Edge:
        node = self.node(self.index.name(ref.target))
        own = self.own_edge(node)
        if ref.edge is None:
            return own
        record = self.index.edge(ref.edge)
        key = keys.edge_key(record.name)
        columns = Columns.from_bytes(record.edge.columns, len(node.layout.tensors), key=key, shortcut=True)
        fetch = ChunkFetch(self.backend, record.edge)
        return Edge(node.layout, columns, fetch, fetch.locate, own)
