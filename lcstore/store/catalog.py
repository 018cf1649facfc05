"""What a store holds, from its listings: the graph, and the records and plans behind names when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import Executor
from threading import RLock

from lcstore.errors import CorruptionError, InvalidInputError, NotFoundError
from lcstore.graph.graph import Graph
from lcstore.graph.names import EdgeRef, NodeName
from lcstore.limits import MAX_PLAN_BYTES, MAX_RECORD_BYTES
from lcstore.state.plan import Plan
from lcstore.store import keys
from lcstore.store.backend import Backend, read_capped
from lcstore.store.marks import TagRecord, read_tag
from lcstore.store.records import NodeRecord, read_node
from lcstore.store.strictjson import loads


class Catalog:
    """The names in a store, and what they stand for. Thread-safe.

    Listings are taken anew by `refresh`; records and plans never change, and are kept.
    """

    #: Records kept in memory; they are a few kilobytes each.
    KEPT = 4096

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.graph = Graph()
        self._keys: set[str] = set()
        self._records: dict[str, NodeRecord] = {}
        self._plans: dict[str, Plan] = {}
        self._lock = RLock()

    def refresh(self, *, edges: bool = False) -> Graph:
        """List the nodes anew, with `edges` also the edges that maintenance added; return the graph."""
        with self._lock:
            before = set(self._keys)
        found = set(self.backend.list(keys.NODES))
        found |= (
            set(self.backend.list(keys.EDGES)) if edges else {k for k in before if k.startswith(keys.EDGES)}
        )
        with self._lock:
            # What another thread added while this one listed is there, though this listing may not show it.
            gone = self._keys & (before - found)
            wanted = (self._keys - gone) | found
            graph, known = (Graph(), set()) if gone else (self.graph, self._keys)
            for key in wanted - known:
                if key.startswith(keys.NODES):
                    graph.add(keys.parse_node_key(key))
                else:
                    graph.add_edge(keys.parse_edge_key(key))
            self.graph, self._keys = graph, wanted
            return graph

    def add(self, name: NodeName, record: NodeRecord) -> None:
        """Take in a node that was just committed here."""
        with self._lock:
            self._keys.add(keys.node_key(name))
            self.graph.add(name)
            self._keep(name.node, record)

    def _keep(self, node: str, record: NodeRecord) -> None:
        if len(self._records) >= self.KEPT:
            self._records.pop(next(iter(self._records)))
        self._records[node] = record

    def resolve(self, at: int | str | None, run: int | str | None = None) -> NodeName:
        """Return the node that a user means.

        Parameters
        ----------
        at
            A step (its newest revision), ``"latest"`` or None, a tag, or a node's id.
        run
            Only nodes of this run, for the latest.

        Raises
        ------
        NotFoundError
            There is no such node; the message says which steps there are.
        """
        with self._lock:
            if at is None or at == "latest":
                found = self.graph.latest(run)
            elif isinstance(at, int):
                found = self.graph.at_step(at)
            elif isinstance(at, str):
                found = self.graph.nodes.get(at) or self._tagged(at)
            else:
                raise InvalidInputError(
                    f"a state is named by step, 'latest', tag or node id, not {at!r:.100}"
                )
        if found is None:
            what = "no state" if at in (None, "latest") else f"no state {at!r:.100}"
            if isinstance(at, str) and at.isdigit():
                what += " (a step is an integer, not a text)"
            raise NotFoundError(f"there is {what} in {self.backend.url}; {self._holds()}")
        return found

    def name(self, node: str) -> NodeName:
        """Return the name of a node that was in the graph; `NotFoundError` if it was collected since."""
        with self._lock:
            found = self.graph.nodes.get(node)
        if found is None:
            raise NotFoundError(f"node {node} is not there any more; {self._holds()}")
        return found

    def path(self, node: str) -> list[EdgeRef]:
        """Return the edges from the root to a node that are the fewest bytes to read."""
        with self._lock:
            return self.graph.path(node)

    def _holds(self) -> str:
        steps = self.graph.steps()
        if not steps:
            return "it holds none"
        return f"it holds {len(steps)} steps from {steps[0]} to {steps[-1]}: `lcstore ls {self.backend.url}`"

    def _tagged(self, tag: str) -> NodeName | None:
        """Return the latest node that bears a tag."""
        names = [name for name in self.tags() if name.name == tag and name.node in self.graph.nodes]
        nodes = {name.node for name in names if name.node is not None}
        for node in nodes:  # the record, not its name, is what is believed
            self._read_tag(max((n for n in names if n.node == node), key=lambda n: (n.seq, n.record)))
        return max((self.graph.nodes[node] for node in nodes), key=lambda n: n.order, default=None)

    def _read_tag(self, name: keys.TagName) -> TagRecord:
        key = keys.tag_key(name)
        return read_tag(key, read_capped(self.backend, key, MAX_RECORD_BYTES))

    def tags(self) -> list[keys.TagName]:
        """List the tags set on nodes."""
        return [n for n in map(keys.parse_tag_key, self.backend.list(keys.NAMES)) if n.kind == "tag"]

    def record(self, node: str) -> NodeRecord:
        """Return the record of a node in the graph, read and checked.

        Raises
        ------
        CorruptionError
            It is missing although it was listed, or is not what its name promises.
        """
        with self._lock:
            kept = self._records.get(node)
        if kept is not None:
            return kept
        key = keys.node_key(self.name(node))
        try:
            data = read_capped(self.backend, key, MAX_RECORD_BYTES)
        except NotFoundError as error:
            raise CorruptionError("a record that was listed is missing", key=key) from error
        record = read_node(key, data)
        with self._lock:
            self._keep(node, record)
        return record

    def records(self, nodes: Iterable[str], executor: Executor) -> list[NodeRecord]:
        """Return the records of several nodes, read side by side."""
        return list(executor.map(self.record, nodes))

    def plan(self, digest: str) -> Plan:
        """Return a plan, read and checked against its digest."""
        with self._lock:
            kept = self._plans.get(digest)
        if kept is not None:
            return kept
        key = keys.plan_key(digest)
        try:
            data = read_capped(self.backend, key, MAX_PLAN_BYTES)
        except NotFoundError as error:
            raise CorruptionError("a plan that a record needs is missing", key=key) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise CorruptionError("the plan is not the one that its name promises", key=key)
        try:
            plan = Plan.from_json(loads(data, key=key, max_bytes=MAX_PLAN_BYTES))
        except CorruptionError as error:
            error.key = error.key or key
            raise
        with self._lock:
            return self._plans.setdefault(digest, plan)
