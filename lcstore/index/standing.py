"""Whether a state stays. Whoever builds upon it, or pins it, asks this once the record of that is stored."""

from __future__ import annotations

from collections.abc import Iterable

from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef
from lcstore.graph.refs import EdgeRef
from lcstore.index.contents import Contents, own_edge, shortcut_edge
from lcstore.index.index import Index
from lcstore.index.listing import BUILDING, CONDEMNATIONS, Listing
from lcstore.index.needs import needed_arrays
from lcstore.storage.backend import Backend


def is_taken_away(
    backend: Backend, edge: str, objects: Iterable[ObjectRef], new_layouts: Iterable[str] = ()
) -> bool:
    """Return whether a collector took what a record just committed names for an interrupted write's.

    Whatever is condemned after this, its collector lists the records once more and finds the new one.

    Parameters
    ----------
    backend
        Where the store is.
    edge, objects
        The edge of the record, and all objects that it needs.
    new_layouts
        The digests of those of its layouts that no earlier record of its handle names.
    """
    condemned = Listing.take(backend, CONDEMNATIONS).condemned
    if any(name.edge == edge and name.scope != keys.LAYOUT for name in condemned):
        return True
    # The condemnation goes last: one that came and went took along what was there by then, whatever that was.
    there = set(backend.list(keys.edge_folder(edge)))
    if any(ref.key not in there for ref in objects):
        return True
    halves = {name.edge for name in condemned if name.scope == keys.LAYOUT}
    return any(
        keys.layout_half(layout) in halves or not _is_there(backend, keys.layout_key(layout))
        for layout in new_layouts
    )


def _is_there(backend: Backend, key: str) -> bool:
    try:
        backend.size(key)
    except NotFoundError:
        return False
    return True


def is_going(index: Index, node: str) -> bool:
    """Return whether a state to be built upon is let go of, or a collector may be deleting what it needs.

    To be asked when the record that builds upon it is stored: whoever condemns anything from then on lists
    the records once more and finds that.
    """
    retired, condemned = _look(index, node)
    marks = index.marks
    if node not in index.graph.nodes or (keys.WHOLE_STATE in retired and node not in marks.pinned):
        return True
    if any(what.startswith("pool.") for what in retired):
        return True  # stripped: what it has unchanged may be among that
    return _is_condemned(index, node, condemned)


def is_too_late(index: Index, node: str) -> bool:
    """Return whether a state, just pinned, was let go of, and a collector may be deleting what it needs."""
    retired, condemned = _look(index, node)
    if node not in index.graph.nodes:
        return True
    return keys.WHOLE_STATE in retired and _is_condemned(index, node, condemned)


def _look(index: Index, node: str) -> tuple[set[str], set[keys.CondemnedName]]:
    """List everything anew; return what is retired of a node, and what is condemned."""
    listing = index.look(BUILDING)
    marks = [*map(keys.parse_retired_key, listing.before[keys.RETIRED]), *listing.retired]
    condemned = {*map(keys.parse_condemned_key, listing.before[keys.CONDEMNED]), *listing.condemned}
    return {name.what for name in marks if name.node == node}, condemned


def _is_condemned(index: Index, node: str, condemned: set[keys.CondemnedName]) -> bool:
    """Return whether any of some condemnations is about what a node's cheapest path reads."""
    try:
        path = index.path(node)
        needed, passed = _reads(index, path, node)
    except (CorruptionError, NotFoundError):  # deleted meanwhile
        return True
    for name in condemned:
        if name.scope == keys.WHOLE_EDGE:
            gone = name.edge in passed or name.node in passed
        elif name.scope == keys.EXACT_VALUE:
            gone = name.node == node and node not in index.marks.inexact
        else:
            gone = any(
                edge == name.edge and keys.array_scope(pool, op) == name.scope for edge, pool, op in needed
            )
        if gone:
            return True
    return False


def _reads(index: Index, path: list[EdgeRef], node: str) -> tuple[set[tuple[str, str, keys.Op]], set[str]]:
    """Return the arrays that a path reads, and the edges and nodes that it leads over."""
    contents = Contents(index.graph, index.marks, ())
    passed: set[str] = set()
    for ref in path:
        own = own_edge(ref.target, index.record(ref.target))
        contents.stored[own.edge], contents.own[ref.target] = own, own.edge
        passed |= {ref.target, own.edge if ref.edge is None else ref.edge}
        if ref.edge is not None:
            contents.stored[ref.edge] = shortcut_edge(index.edge(ref.edge))
    return needed_arrays(contents, path, {node}, index.layout), passed
