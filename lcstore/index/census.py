"""Every record of a store, read strictly: what a collector has to know before it lets anything go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from lcstore.errors import CorruptionError, LcstoreError, NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, ObjectRef
from lcstore.format.marks import read_retired, read_tag
from lcstore.format.records import EdgeRecord, NodeRecord
from lcstore.graph.graph import Graph
from lcstore.index.marked import Marks, bearers, marks_of
from lcstore.index.parts import edge_reader, node_reader
from lcstore.state.qualified import stem_of
from lcstore.storage.backend import Backend
from lcstore.storage.survey import OnProgress, ReadRecord, read_records

T = TypeVar("T")

#: An array of an edge, of all its parts: pool and op.
Array: TypeAlias = tuple[str, keys.Op]


@dataclass(frozen=True, slots=True)
class Stored:
    """An edge, as far as a collector cares.

    Attributes
    ----------
    edge, base, target
        Its id, and from where to where it leads.
    own
        Whether it is the edge that the target was saved with.
    layout
        What the layout of the target is known by; "" for a shortcut.
    ops
        What it says of each tensor.
    arrays
        Its objects by array.
    exact
        The objects of the target's exact value, for an own edge.
    """

    edge: str
    base: str
    target: str
    own: bool
    layout: str
    ops: bytes
    arrays: dict[Array, tuple[ObjectRef, ...]]
    exact: tuple[ObjectRef, ...] = ()


@dataclass
class Census:
    """What a store holds at one time.

    Attributes
    ----------
    graph, marks, named
        Nodes and edges, with what is marked.
    stored
        All edges by id.
    own
        Id of each node's own edge.
    parents
        Parent of each node.
    data
        Keys of the objects that are there, by edge.
    retired, condemned
        Keys of the retirements and condemnations that were there before the nodes and edges were listed.
    """

    graph: Graph
    marks: Marks
    named: tuple[keys.TagName, ...]
    stored: dict[str, Stored] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    data: dict[str, list[str]] = field(default_factory=dict)
    retired: list[str] = field(default_factory=list)
    condemned: list[str] = field(default_factory=list)

    @property
    def kept(self) -> set[str]:
        """Nodes that are not let go of."""
        return set(self.graph.nodes) - self.graph.hidden

    def key_of(self, edge: str) -> str | None:
        """Return the key of the record that an edge is in; None for objects of no record."""
        stored = self.stored.get(edge)
        if stored is None:
            return None
        if stored.own:
            return keys.node_key(self.graph.nodes[stored.target])
        return keys.edge_key(self.graph.edges[edge])


def take_census(
    backend: Backend, before: Census | None = None, on_progress: OnProgress | None = None
) -> Census:
    """List a store and read all its records; those of an earlier census are not read again.

    Raises
    ------
    CorruptionError
        A record cannot be read, contradicts its name, or has a parent of which nothing is known. Nothing may
        be collected then: run ``lcstore repair``.
    """
    # Condemnations first: they go last, so whatever is condemned and not listed here is seen to be gone; and
    # what is listed was condemned before the records were, so a state that needs it is seen, or its writer
    # saw the condemnation. Retirements that may be swept: they are written after what they are about. Then
    # data: of a save under way the record is listed, or its objects are not.
    condemned, early = backend.list(keys.CONDEMNED), set(backend.list(keys.RETIRED))
    data: defaultdict[str, list[str]] = defaultdict(list)
    for key in backend.list(keys.DATA):
        data[keys.parse_data_key(key).edge].append(key)
    nodes, edges = backend.list(keys.NODES), backend.list(keys.EDGES)
    # Pins last: a state that is seen to be retired was not pinned before that, or the pin is seen.
    retired, named = backend.list(keys.RETIRED), backend.list(keys.NAMES)
    taken = Census(Graph(), Marks(), tuple(map(keys.parse_tag_key, named)), data=dict(data))
    taken.retired, taken.condemned = [key for key in retired if key in early], condemned
    graph = taken.graph
    _read_nodes(backend, taken, nodes, before, on_progress)
    _read_edges(backend, taken, edges, before, on_progress)
    _strict(read_records(backend, retired, read_retired, phase="retirements"), backend)
    _strict(read_records(backend, named, read_tag, phase="tags"), backend)
    pins = bearers(taken.named, "pin", graph.nodes)
    taken.marks = marks_of(
        map(keys.parse_retired_key, retired),
        {name.node for names in pins.values() for name in names if name.node is not None},
        map(keys.parse_condemned_key, condemned),
    )
    taken.marks.mark(graph)
    _check_parents(taken)
    return taken


def _read_nodes(
    backend: Backend,
    taken: Census,
    listed: list[str],
    before: Census | None,
    on_progress: OnProgress | None,
) -> None:
    new = []
    for key in listed:
        name = keys.parse_node_key(key)
        if before is not None and name.node in before.own:
            taken.graph.add(name)
            taken.own[name.node], taken.parents[name.node] = before.own[name.node], before.parents[name.node]
            taken.stored[before.own[name.node]] = before.stored[before.own[name.node]]
        else:
            new.append(key)
    read = read_records(backend, new, node_reader(backend), phase="nodes", on_progress=on_progress)
    for key, record in _strict(read, backend):
        name = keys.parse_node_key(key)
        taken.graph.add(name)
        _take(taken, own_edge(name.node, record))
        taken.own[name.node], taken.parents[name.node] = record.edge.id, record.parent


def _read_edges(
    backend: Backend,
    taken: Census,
    listed: list[str],
    before: Census | None,
    on_progress: OnProgress | None,
) -> None:
    new = []
    for key in listed:
        name = keys.parse_edge_key(key)
        known = before.stored.get(name.edge) if before is not None else None
        if known is not None:
            taken.graph.add_edge(name)
            taken.stored[name.edge] = known
        else:
            new.append(key)
    read = read_records(backend, new, edge_reader(backend), phase="edges", on_progress=on_progress)
    for key, record in _strict(read, backend):
        taken.graph.add_edge(keys.parse_edge_key(key))
        _take(taken, shortcut_edge(record))


def _take(taken: Census, stored: Stored) -> None:
    if stored.edge in taken.stored:
        raise CorruptionError(f"two records claim edge {stored.edge}: run `lcstore verify`")
    taken.stored[stored.edge] = stored


def _strict(read: Iterable[ReadRecord[T]], backend: Backend) -> list[tuple[str, T]]:
    """Give the records; one that cannot be read ends it all, unless it was deleted since it was listed."""
    found = []
    for item in read:
        if item.record is not None:
            found.append((item.key, item.record))
        elif isinstance(item.error, NotFoundError) and item.key not in backend.list(item.key.split("/")[0]):
            continue
        else:
            assert item.error is not None
            raise _refusal(item.error)
    return found


def _refusal(error: LcstoreError) -> LcstoreError:
    message = f"{error.message}; nothing is collected while a record cannot be read: run `lcstore repair`"
    return type(error)(message, key=error.key, step=error.step)


def _check_parents(taken: Census) -> None:
    for node, parent in taken.parents.items():
        if node in taken.graph.hidden or parent is None or parent in taken.graph.nodes:
            continue
        if parent not in taken.marks.retired:
            name = taken.graph.nodes[node]
            raise CorruptionError(
                f"its parent, node {parent}, is missing, and no record says that it was retired; nothing is "
                "collected while that is so: run `lcstore repair`",
                key=keys.node_key(name),
                step=name.step,
            )


def own_edge(node: str, record: NodeRecord) -> Stored:
    """Return the edge that a node was saved with."""
    exact = record.exact.objects if record.exact is not None else ()
    ops = record.edge.columns.get("op", b"")
    edge = record.edge
    return Stored(edge.id, edge.base, node, True, record.layout, ops, _arrays(edge), exact)


def shortcut_edge(record: EdgeRecord) -> Stored:
    """Return an edge that maintenance added."""
    edge = record.edge
    return Stored(edge.id, edge.base, record.target, False, "", edge.columns.get("op", b""), _arrays(edge))


def _arrays(edge: EdgeBody) -> dict[Array, tuple[ObjectRef, ...]]:
    found: defaultdict[Array, list[ObjectRef]] = defaultdict(list)
    for ref in edge.objects:
        name = keys.parse_data_key(ref.key)
        if name.pool is not None and name.op is not None:
            found[stem_of(name.pool), name.op].append(ref)
    return {array: tuple(refs) for array, refs in found.items()}
