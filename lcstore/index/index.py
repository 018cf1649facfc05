"""What a store holds: the graph, marks and tags of its last listing, and the records behind the names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import NoReturn, TypeVar

from lcstore.errors import CorruptionError, FallbackWarning, LcstoreError, NotFoundError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import split_layouts
from lcstore.format.records import EdgeRecord, NodeRecord
from lcstore.graph.graph import Graph
from lcstore.graph.refs import EdgeRef, NodeName
from lcstore.index.listing import LATEST, READING, Listing, Order
from lcstore.index.marked import Marks, Situation, bearers_of_tags, best_path, situation_of, tags_by_node
from lcstore.index.resolve import absent, begins, check_run, hint_of_others, holds, no_store, resolved
from lcstore.jobs.survey import OnProgress
from lcstore.layout.join import join
from lcstore.layout.layout import Layout
from lcstore.records.kinds import EDGE, LAYOUT, NODE, TAG, is_store
from lcstore.records.reading import Records, read_all, read_listed
from lcstore.storage.backend import Backend
from lcstore.warned import warn

T = TypeVar("T")


class Index:
    """What is in a store, by its names, and the records that they stand for. Thread-safe.

    Listings are taken anew by `refresh`; records and layouts never change, and are kept. A record is read,
    and checked, when it is first asked for: one that cannot be read troubles only whoever needs it.

    Parameters
    ----------
    backend
        Where the store is.
    executor
        Threads that list and read side by side.

    Attributes
    ----------
    graph
        The nodes and edges. What is retired is hidden in it.
    marks
        What is retired, pinned and condemned, as of the last full listing.
    named
        The names of tags and pins, as of the last full listing.
    is_listed
        Whether there was a full listing.
    own_run
        The id of the run that commits here; None before the first commit.
    known
        The records that were read.
    """

    def __init__(self, backend: Backend, executor: Executor | None = None) -> None:
        self.backend = backend
        self.executor = executor
        self.graph = Graph()
        self.marks = Marks()
        self.named: tuple[markkeys.TagName, ...] = ()
        self.is_listed = False
        self.own_run: str | None = None
        self._keys: set[str] = set()
        self.known = Records(backend)
        self._layouts = Records(backend)
        self._damaged: set[EdgeRef] = set()
        self._lock = RLock()

    # Names ----------------------------------------------------------------------------------------------

    def refresh(self, *, full: bool = False) -> Graph:
        """List the nodes anew, with `full` also edges, retirements, tags and condemnations.

        The folders are listed side by side.
        """
        self.look(READING if full else LATEST)
        return self.graph

    def look(self, order: Order) -> Listing:
        """List the folders of an order anew, take in what is there, and return the listing."""
        with self._lock:
            before = set(self._keys)
        listing = Listing.take(self.backend, order, self.executor)
        if listing.doubt is not None:
            warn(
                f"a state of {self.backend.url} may be there and not be seen: {listing.doubt}",
                FallbackWarning,
            )
        full = order is not LATEST
        links = set(listing.by_folder[keys.NODES])
        links |= set(listing.by_folder.get(keys.EDGES, ()))
        links |= set() if full else {key for key in before if key.startswith(keys.EDGES)}
        with self._lock:
            # What another thread added while this one listed is there, though this listing may not show it.
            gone = self._keys & (before - links)
            wanted = (self._keys - gone) | links
            graph, known = (Graph(), set()) if gone else (self.graph, self._keys)
            self._take_in(graph, wanted - known)
            if full:
                self.named, self.marks = listing.named, listing.marks(graph.nodes)
                self.is_listed = True
            if self.marks.outdated(graph, self._damaged):
                graph = Graph(graph.nodes.values(), graph.edges.values())
            self.marks.mark(graph)
            self._avoid(graph, self._damaged)
            self.graph, self._keys = graph, wanted
        return listing

    def know(self, known: Iterable[str]) -> None:
        """Take in the keys of nodes and edges that were listed elsewhere."""
        with self._lock:
            self._take_in(self.graph, set(known) - self._keys)
            self._keys |= set(known)

    @staticmethod
    def _take_in(graph: Graph, found: set[str]) -> None:
        for key in sorted(found):  # or ties would be broken by chance
            try:
                if key.startswith(keys.NODES):
                    graph.add(NODE.parse(key))
                else:
                    graph.add_edge(EDGE.parse(key))
            except CorruptionError as error:
                error.key = error.key or key
                raise

    def add(self, name: NodeName, record: NodeRecord, nbytes: int) -> None:
        """Take in a node that was just committed here, by a record of some bytes."""
        with self._lock:
            key = keys.node_key(name)
            self.known.keep(key, record, nbytes)
            self.graph.add(name)
            self.own_run = name.run_id
            self._keys.add(key)  # last: what it has not is listed again

    def add_edge(self, record: EdgeRecord) -> None:
        """Take in an edge that was just added here."""
        with self._lock:
            self.graph.add_edge(record.name)
            self._keys.add(keys.edge_key(record.name))

    def resolve(self, at: int | str | None, run: int | str | None = None) -> NodeName:
        """Return the node that a user means, as of the last full listing.

        Parameters
        ----------
        at
            A step (its newest revision), ``"latest"`` or None, a tag, or a node's id or its beginning. The
            latest is that of this handle's own run, once it has committed.
        run
            Look only at the nodes of this run number or run id.

        Raises
        ------
        NotFoundError
            There is no such node; the message says which steps there are.
        InvalidInputError
            Several ids begin so.
        CorruptionError
            It is a tag whose record cannot be read.
        """
        with self._lock:
            check_run(self.graph, self.backend.url, run)
            found = resolved(self.graph, at, run, self.own_run)
            tag = None if found is not None else self._bearer(at)
            if found is None and tag is None:
                found = begins(self.graph, self.backend.url, at)
            if found is None and tag is None:
                raise self._absent(at, run)
            name = found if tag is None or tag.node is None else self.graph.nodes[tag.node]
        if tag is not None:
            self.known.get(TAG, markkeys.tag_key(tag))  # the record, not its name, is what is believed
        assert name is not None
        if run is None:
            hint_of_others(self.graph, self.backend.url, at, name)
        return name

    def _absent(self, at: object, run: str | int | None) -> NotFoundError:
        """Return the error that says that there is no such node, or no store at all."""
        if not self.graph.nodes and not is_store(self.backend):
            return no_store(self.backend)
        return absent(self.graph, self.named, self.backend.url, at, run, self.is_going)

    def latest(self, run: int | str | None = None) -> NodeName | None:
        """Return the latest node: of a run, or else of the run that commits here, or else of all."""
        with self._lock:
            return resolved(self.graph, None, run, self.own_run)

    def _bearer(self, at: object) -> markkeys.TagName | None:
        """Return the name of the record that holds of a tag."""
        return bearers_of_tags(self.named, self.graph).get(at) if isinstance(at, str) else None

    def tags(self) -> dict[str, set[str]]:
        """Return the tags of each node, as of the last full listing."""
        return tags_by_node(self.named, self.graph.nodes)

    def tagged(self) -> dict[str, str]:
        """Return the node that each tag finds, as of the last full listing."""
        found = bearers_of_tags(self.named, self.graph)
        return {tag: name.node for tag, name in found.items() if name.node is not None}

    def name(self, node: str) -> NodeName:
        """Return the name of a node that was in the graph; `NotFoundError` if it was collected since."""
        with self._lock:
            found = self.graph.nodes.get(node)
        if found is None:
            said = f"node {node} is not there any more; {holds(self.graph, self.backend.url)}"
            raise NotFoundError(said, missing="state")
        return found

    # Records --------------------------------------------------------------------------------------------

    def record(self, node: str) -> NodeRecord:
        """Return the record of a node in the graph, read and checked.

        Raises
        ------
        NotFoundError
            The node is not in the graph any more.
        CorruptionError
            The record is missing although it was listed, or is not what its name promises.
        """
        return self.known.get(NODE, keys.node_key(self.name(node)))

    def edge(self, edge: str) -> EdgeRecord:
        """Return the record of an edge that maintenance added; errors as for `record`."""
        with self._lock:
            name = self.graph.edges.get(edge)
        if name is None:
            raise CorruptionError(f"edge {edge} is not there any more")
        return self.known.get(EDGE, keys.edge_key(name))

    def records(self, nodes: Iterable[str], executor: Executor) -> list[NodeRecord]:
        """Return the records of several nodes, read side by side."""
        return list(executor.map(self.record, nodes))

    def shown(self, on_progress: OnProgress | None = None) -> dict[str, NodeRecord]:
        """Return the records of all nodes that are not let go of, by node: read anew, whatever is known.

        Raises
        ------
        CorruptionError
            One of them cannot be read. (One that was deleted since it was listed is left out.)
        """
        with self._lock:
            graph = self.graph
            listed = [keys.node_key(name) for node, name in graph.nodes.items() if node not in graph.hidden]
        found: dict[str, NodeRecord] = {}
        lengths: dict[str, int] = {}
        read_all(self.backend, NODE, listed, found.__setitem__, _refuse, on_progress, lengths=lengths)
        for key, record in found.items():
            self.known.offer(key, record, lengths[key])
        return {NODE.parse(key).node: record for key, record in found.items()}

    def layout(self, layout: str) -> Layout:
        """Return the layout of a record, joined of those of its parts; errors as for `record`."""
        return self._layouts.made(layout, partial(self._join, layout))

    def _join(self, layout: str) -> tuple[Layout, int]:
        """Return a joined layout, and the bytes that its parts are stored in; each is checked."""
        missing = "a layout that a record needs is missing"
        stored = [(part, keys.layout_key(digest)) for part, digest in split_layouts(layout)]
        read = [(part, *read_listed(self.backend, LAYOUT, key, missing)) for part, key in stored]
        try:
            return join([(part, found) for part, found, _ in read]), sum(nbytes for _, _, nbytes in read)
        except CorruptionError as error:
            error.key = error.key or stored[0][1]
            raise

    # Paths, and what changes beside them ----------------------------------------------------------------

    def path(self, node: str) -> list[EdgeRef]:
        """Return the edges from the root to a node that are the cheapest to read, all of them forward."""
        with self._lock:
            return self.graph.path(node)

    def is_in_danger(self, node: str) -> bool:
        """Return whether `path` leads over edges that may be gone."""
        with self._lock:
            return self.graph.is_in_danger(node)

    def best_path(self, node: str) -> list[EdgeRef]:
        """Return the path that a node is read over: where condemned edges close `path`, one around them.

        That one may lead past the node and backward to it.
        """
        with self._lock:
            return best_path(self.graph, node)

    def situation(self, node: str) -> Situation:
        """Return what decides how a node is read; where that changes, reading may go better than before."""
        with self._lock:
            return situation_of(self.graph, self.marks, node)

    def news(self, ask: Callable[[], T], before: T) -> bool:
        """List everything anew; return whether what `ask` then returns is not what it was before.

        Twice, if need be. What a collector deletes is condemned first and its record goes before the
        condemnation does: so where the first listing came too late for the one, the second has not the other.
        """
        for _ in range(2):
            self.refresh(full=True)
            if ask() != before:
                return True
        return False

    def avoid_damage(self, node: str, key: str | None) -> bool:
        """Return whether a node has a path without the edge of a damaged object; readers take that then."""
        damaged = None if key is None else keys.edge_of(key)
        if damaged is None:
            return False
        try:
            path = self.best_path(node)
        except LcstoreError:
            return False
        found = {replace(ref, backward=False) for ref in path if self._edge_id(ref) == damaged}
        with self._lock:
            try:
                found -= self._damaged
                graph = Graph(self.graph.nodes.values(), self.graph.edges.values())
                self.marks.mark(graph)
                self._avoid(graph, self._damaged | found)
                if not found or best_path(graph, node) == path:
                    return False
            except LcstoreError:
                return False
            self._damaged |= found
            self.graph = graph
            return True

    def avoid(self, edges: Iterable[EdgeRef]) -> None:
        """Have readers of this handle go over edges only where there is no other path: they are damaged."""
        with self._lock:
            self._damaged |= {*edges}
            self._avoid(self.graph, self._damaged)

    def _edge_id(self, ref: EdgeRef) -> str | None:
        try:
            return ref.edge or self.record(ref.target).edge.id
        except LcstoreError:
            return None

    @staticmethod
    def _avoid(graph: Graph, edges: Iterable[EdgeRef]) -> None:
        for ref in edges:
            graph.avoid(ref)

    def is_going(self, node: str, condemned: Collection[markkeys.CondemnedName] | None = None) -> bool:
        """Return whether what a retired node may need is condemned; rather too often than too rarely.

        By the condemnations of the last full listing, or by those that are given.
        """
        with self._lock:
            try:
                path = self.graph.path(node)
            except LcstoreError:
                return True
            nodes, edges = {node, *(ref.target for ref in path)}, {ref.edge for ref in path}
            for name in self.marks.condemned if condemned is None else condemned:
                if name.scope == markkeys.EXACT_VALUE:
                    # Its own value that is no track: nobody else's is needed.
                    if name.node == node and node not in self.marks.inexact:
                        return True
                elif name.node in nodes or (name.node is None and name.edge in edges):
                    return True
            return False


def _refuse(key: str, error: LcstoreError) -> NoReturn:
    raise error
