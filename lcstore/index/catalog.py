"""What a store holds, from its listings: the graph, and the records and layouts behind names."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from threading import RLock
from typing import Final, TypeVar

from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError, NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import split_layouts
from lcstore.format.hashing import hash_of
from lcstore.format.marks import read_tag
from lcstore.format.records import EdgeRecord, NodeRecord, StoreRecord
from lcstore.format.strictjson import loads
from lcstore.graph.graph import Graph
from lcstore.graph.names import EdgeRef, NodeName
from lcstore.index.marked import Marks, bearers, marks_of, tags_by_node
from lcstore.index.parts import edge_reader, node_reader
from lcstore.limits import MAX_LAYOUT_BYTES, MAX_RECORD_BYTES
from lcstore.state.join import join
from lcstore.state.layout import Layout
from lcstore.storage.backend import Backend, read_capped

#: Folders whose names are read by whoever wants more than the latest node.
_FULL: Final = (keys.NODES, keys.EDGES, keys.RETIRED, keys.NAMES, keys.CONDEMNED)

_MAX_STORE_RECORD: Final = 1 << 16

#: Tags that a message names.
_TAGS_SHOWN: Final = 5

T = TypeVar("T")


class Catalog:
    """The names in a store, and what they stand for. Thread-safe.

    Listings are taken anew by `refresh`; records and layouts never change, and are kept.

    Attributes
    ----------
    graph
        The nodes and edges. What is retired is hidden in it.
    marks
        What is retired, pinned and condemned, as of the last full listing.
    named
        The names of tags and pins, as of the last full listing.
    """

    #: Records kept in memory; they are a few kilobytes each.
    KEPT = 4096

    def __init__(self, backend: Backend, executor: Executor | None = None) -> None:
        self.backend = backend
        self.executor = executor
        self.graph = Graph()
        self.marks = Marks()
        self.named: tuple[keys.TagName, ...] = ()
        self._keys: set[str] = set()
        self._records: dict[str, NodeRecord] = {}
        self._edges: dict[str, EdgeRecord] = {}
        self._layouts: dict[str, Layout] = {}
        self._damaged: set[EdgeRef] = set()
        self._lock = RLock()

    def refresh(self, *, full: bool = False) -> Graph:
        """List the nodes anew, with `full` also edges, retirements, tags and condemnations.

        The listings are taken side by side.
        """
        with self._lock:
            before = set(self._keys)
        folders = _FULL if full else (keys.NODES,)
        listings: Iterable[list[str]] = map(self.backend.list, folders)
        if full and self.executor is not None:
            listings = self.executor.map(self.backend.list, folders)
        listed = dict(zip(folders, listings, strict=True))
        links = set(listed[keys.NODES])
        links |= set(listed[keys.EDGES]) if full else {k for k in before if k.startswith(keys.EDGES)}
        with self._lock:
            # What another thread added while this one listed is there, though this listing may not show it.
            gone = self._keys & (before - links)
            wanted = (self._keys - gone) | links
            graph, known = (Graph(), set()) if gone else (self.graph, self._keys)
            for key in sorted(wanted - known):  # or ties would be broken by chance
                if key.startswith(keys.NODES):
                    graph.add(keys.parse_node_key(key))
                else:
                    graph.add_edge(keys.parse_edge_key(key))
            if full:
                self._mark(graph, listed)
            if self.marks.outdated(graph, self._damaged):
                graph = Graph(graph.nodes.values(), graph.edges.values())
            self.marks.mark(graph)
            self._avoid(graph, self._damaged)
            self.graph, self._keys = graph, wanted
            return graph

    def _mark(self, graph: Graph, listed: dict[str, list[str]]) -> None:
        self.named = tuple(map(keys.parse_tag_key, listed[keys.NAMES]))
        pins = bearers(self.named, "pin", graph.nodes)
        self.marks = marks_of(
            map(keys.parse_retired_key, listed[keys.RETIRED]),
            {name.node for names in pins.values() for name in names if name.node is not None},
            map(keys.parse_condemned_key, listed[keys.CONDEMNED]),
        )

    def add(self, name: NodeName, record: NodeRecord) -> None:
        """Take in a node that was just committed here."""
        with self._lock:
            self._keys.add(keys.node_key(name))
            self.graph.add(name)
            self._keep(name.node, record)

    def add_edge(self, record: EdgeRecord) -> None:
        """Take in an edge that was just added here."""
        with self._lock:
            self._keys.add(keys.edge_key(record.name))
            self.graph.add_edge(record.name)

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
            raise NotFoundError(
                f"there is {what} in {self.backend.url}; {self._retired(at)}{self._holds(at)}"
            )
        return found

    def _retired(self, at: object) -> str:
        """Say what may still be had of a step that was retired."""
        nodes = [n.node for n in self.graph.nodes.values() if n.step == at and n.node in self.graph.hidden]
        if not nodes:
            return ""
        return f"it was retired, and until it is collected its id still finds it: {nodes[-1]}; "

    def name(self, node: str) -> NodeName:
        """Return the name of a node that was in the graph; `NotFoundError` if it was collected since."""
        with self._lock:
            found = self.graph.nodes.get(node)
        if found is None:
            raise NotFoundError(f"node {node} is not there any more; {self._holds()}")
        return found

    def situation(self, node: str) -> object:
        """Return what decides how a node is read; where that changes, reading may go better than before."""
        with self._lock:
            try:
                path = tuple(self.graph.path(node))
            except LcstoreError as error:
                return str(error)
            return path, node in self.marks.inexact, self.marks.stripped.get(node)

    def news(self, ask: Callable[[], T], before: T) -> bool:
        """List everything anew; say whether what is asked of it is not what it was before.

        Twice, if need be. What a collector deletes is condemned first and its record goes before the
        condemnation does: so where the first listing came too late for the one, the second has not the other.
        """
        for _ in range(2):
            self.refresh(full=True)
            if ask() != before:
                return True
        return False

    def avoid_damage(self, node: str, key: str | None) -> bool:
        """Have paths avoid the edge on a node's path that a damaged object is of; say whether one does."""
        damaged = None if key is None else keys.edge_of(key)
        if damaged is None:
            return False
        with self._lock:
            try:
                path = self.graph.path(node)
                found = {ref for ref in path if self._edge_id(ref) == damaged} - self._damaged
                graph = Graph(self.graph.nodes.values(), self.graph.edges.values())
                self.marks.mark(graph)
                self._avoid(graph, self._damaged | found)
                if not found or graph.path(node) == path:
                    return False
            except LcstoreError:
                return False
            self._damaged |= found
            self.graph = graph
            return True

    def _edge_id(self, ref: EdgeRef) -> str | None:
        try:
            return ref.edge or self.record(ref.target).edge.id
        except LcstoreError:
            return None

    @staticmethod
    def _avoid(graph: Graph, edges: Iterable[EdgeRef]) -> None:
        for ref in edges:
            graph.condemn(node=ref.target if ref.edge is None else None, edge=ref.edge)

    def is_going(self, node: str) -> bool:
        """Say whether what a retired node may need is condemned; rather too often than too rarely."""
        with self._lock:
            try:
                path = self.graph.path(node)
            except LcstoreError:
                return True
            nodes, edges = {node, *(ref.target for ref in path)}, {ref.edge for ref in path}
            for name in self.marks.condemned:
                if name.scope == keys.EXACT_VALUE:
                    # Its own value that is no track: nobody else's is needed.
                    if name.node == node and node not in self.marks.inexact:
                        return True
                elif name.node in nodes or (name.node is None and name.edge in edges):
                    return True
            return False

    def path(self, node: str) -> list[EdgeRef]:
        """Return the edges from the root to a node that are the cheapest to read."""
        with self._lock:
            return self.graph.path(node)

    def _holds(self, at: object = None) -> str:
        """Say what there is, and of that what is nearest to a step, or the tags, that may have been meant."""
        steps = self.graph.steps()
        if not steps:
            return "it holds none"
        near = ""
        if isinstance(at, int):
            place = bisect(steps, at)
            near = f" (nearest: {', '.join(map(str, steps[max(place - 1, 0) : place + 1]))})"
        elif isinstance(at, str) and (tags := sorted(self.tagged())):
            near = f" and the tags {', '.join(map(repr, tags[:_TAGS_SHOWN]))}"
            near += ", ..." if len(tags) > _TAGS_SHOWN else ""
        count = f"{len(steps)} step{'s' if len(steps) > 1 else ''} from {steps[0]} to {steps[-1]}"
        return f"it holds {count}{near}: `lcstore ls {self.backend.url}`"

    def _tagged(self, tag: str) -> NodeName | None:
        """Return the node on which a tag was set last."""
        graph = self.graph
        named = tuple(map(keys.parse_tag_key, self.backend.list(keys.NAMES)))
        for name in reversed(bearers(named, "tag", graph.nodes).get(tag, ())):
            if name.node is not None and name.node not in graph.hidden:
                key = keys.tag_key(name)  # the record, not its name, is what is believed
                read_tag(key, read_capped(self.backend, key, MAX_RECORD_BYTES))
                return graph.nodes[name.node]
        return None

    def tags(self) -> dict[str, set[str]]:
        """Return the tags of each node, as of the last full listing."""
        return tags_by_node(self.named, self.graph.nodes)

    def tagged(self) -> dict[str, str]:
        """Return the node that each tag finds, as of the last full listing."""
        found = {}
        for tag, names in bearers(self.named, "tag", self.graph.nodes).items():
            shown = [
                name.node for name in names if name.node is not None and name.node not in self.graph.hidden
            ]
            if shown:
                found[tag] = shown[-1]
        return found

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
        record = node_reader(self.backend)(key, data)
        with self._lock:
            self._keep(node, record)
        return record

    def edge(self, edge: str) -> EdgeRecord:
        """Return the record of an edge that maintenance added, read and checked; errors as for `record`."""
        with self._lock:
            kept, name = self._edges.get(edge), self.graph.edges.get(edge)
        if kept is not None:
            return kept
        if name is None:
            raise CorruptionError(f"edge {edge} is not there any more")
        key = keys.edge_key(name)
        try:
            data = read_capped(self.backend, key, MAX_RECORD_BYTES)
        except NotFoundError as error:
            raise CorruptionError("a record that was listed is missing", key=key) from error
        record = edge_reader(self.backend)(key, data)
        with self._lock:
            if len(self._edges) >= self.KEPT:
                self._edges.pop(next(iter(self._edges)))
            self._edges[edge] = record
        return record

    def records(self, nodes: Iterable[str], executor: Executor) -> list[NodeRecord]:
        """Return the records of several nodes, read side by side."""
        return list(executor.map(self.record, nodes))

    def layout(self, layout: str) -> Layout:
        """Return the layout of a record, joined of those of its parts; each is checked against its hash."""
        with self._lock:
            kept = self._layouts.get(layout)
        if kept is not None:
            return kept
        parts = split_layouts(layout)
        try:
            found = join([(part, self._stored_layout(digest)) for part, digest in parts])
        except CorruptionError as error:
            error.key = error.key or keys.layout_key(parts[0][1])
            raise
        with self._lock:
            return self._layouts.setdefault(layout, found)

    def _stored_layout(self, digest: str) -> Layout:
        key = keys.layout_key(digest)
        try:
            data = read_capped(self.backend, key, MAX_LAYOUT_BYTES)
        except NotFoundError as error:
            raise CorruptionError("a layout that a record needs is missing", key=key) from error
        if hash_of(data) != digest:
            raise CorruptionError("the layout is not the one that its name promises", key=key)
        try:
            return Layout.from_json(loads(data, key=key, max_bytes=MAX_LAYOUT_BYTES))
        except CorruptionError as error:
            error.key = error.key or key
            raise


def read_store_record(backend: Backend) -> StoreRecord:
    """Return ``lcstore.json``; `NotFoundError` where there is no store."""
    try:
        return StoreRecord.from_bytes(read_capped(backend, keys.STORE_KEY, _MAX_STORE_RECORD))
    except NotFoundError as error:
        raise NotFoundError(f"there is no store at {backend.url}", key=keys.STORE_KEY) from error
