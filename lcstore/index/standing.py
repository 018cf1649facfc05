"""Whether a state stays. Whoever builds upon it, or pins it, asks this once the record of that is stored."""

from __future__ import annotations

from collections.abc import Container, Iterable

from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import ObjectRef
from lcstore.format.records import NodeRecord
from lcstore.graph.refs import EdgeRef, NodeName
from lcstore.index.contents import Contents, own_edge, shortcut_edge
from lcstore.index.index import Index
from lcstore.index.listing import BUILDING, Listing
from lcstore.index.needs import needed_arrays


def is_taken_away(
    listing: Listing, edge: str, objects: Iterable[ObjectRef], new_layouts: Iterable[str] = ()
) -> bool:
    """Return whether a collector took the objects of a new record for those of an interrupted write.

    Whatever is condemned after the listing, its collector lists the records once more and finds the new one.

    Parameters
    ----------
    listing
        As `committed` orders it, with the layouts where there are new ones.
    edge, objects
        The edge of the record, and all objects that it needs.
    new_layouts
        The digests of those of its layouts that no earlier record of its handle names.
    """
    if any(name.scope != markkeys.LAYOUT for name in condemnations(listing, {edge})):
        return True
    return lacks(listing, edge, objects) or any(
        any(name.scope == markkeys.LAYOUT for name in condemnations(listing, {keys.layout_half(layout)}))
        or keys.layout_key(layout) not in listing.by_folder[keys.LAYOUTS]
        for layout in new_layouts
    )


def lacks(listing: Listing, edge: str, objects: Iterable[ObjectRef]) -> bool:
    """Return whether any of an edge's objects is gone."""
    there = set(listing.by_folder[keys.edge_folder(edge)])
    return any(ref.key not in there for ref in objects)


def is_broken(index: Index, run_id: str, record: NodeRecord, base: NodeName | None, listing: Listing) -> bool:
    """Return whether a state just committed, of which something is let go, is unreadable or soon may be.

    What its `base` needs may be deleted by whoever condemned that before the record came. It is not taken
    for broken by that while its run alone has states: then it may be all that there is.
    """
    if lacks(listing, record.edge.id, record.objects):
        return True
    if base is None or all(other.run_id == run_id for other in index.graph.shown()):
        return False
    return base.node not in index.graph.nodes or _is_condemned(index, base.node, {*listing.condemned})


def condemnations(listing: Listing, edges: Container[str]) -> list[markkeys.CondemnedName]:
    """Return the condemnations of some edges. There may be very many of others, so these are not parsed."""
    begin = len(keys.CONDEMNED) + 1
    mine = (
        key for key in listing.by_folder.get(keys.CONDEMNED, ()) if key[begin:].partition("-")[0] in edges
    )
    return [*map(markkeys.parse_condemned_key, mine)]


def is_kept(listing: Listing, node: str) -> bool:
    """Return whether nothing lets go of a node, be it the latest of its run or not."""
    mine = (key for key in listing.by_folder[keys.RETIRED] if key.startswith(f"{keys.RETIRED}/{node}-"))
    given_up = {markkeys.WHOLE_STATE, markkeys.SUPERSEDED}
    return given_up.isdisjoint(markkeys.parse_retired_key(key).what for key in mine)


def is_going(index: Index, node: str, listing: Listing) -> bool:
    """Return whether a state that is built upon is let go of, or a collector may be deleting what it needs.

    Parameters
    ----------
    index, node
        The store, and the state.
    listing
        What `index.look` returned since the record that builds upon the state was stored: whoever condemns
        anything from then on lists the records once more and finds that.
    """
    retired, condemned = _marks(listing, node)
    marks = index.marks
    if node not in index.graph.nodes or (markkeys.WHOLE_STATE in retired and node not in marks.pinned):
        return True
    if any(what.startswith("pool.") for what in retired):
        return True  # stripped: what it has unchanged may be among that
    return _is_condemned(index, node, condemned)


def too_late(index: Index, nodes: Iterable[str]) -> set[str]:
    """Return which of some states, just pinned, need what a collector may be deleting."""
    listing = index.look(BUILDING)
    retired = {name.node for name in listing.retired if name.what == markkeys.WHOLE_STATE}
    condemned, graph = {*listing.condemned}, index.graph
    gone = {node for node in nodes if node not in graph.nodes}
    # Of objects of no record names do not tell whose they are, where the record came later.
    edges = {name.edge for name in condemned if name.node is None and name.scope != markkeys.LAYOUT}
    loose = not edges <= graph.edges.keys()
    return gone | _going(index, retired.intersection(nodes) - gone, condemned, by_names=not loose)


def come_too_late(index: Index, nodes: Iterable[str]) -> set[str]:
    """Return for which retired states a pin would come too late, as of the last full listing."""
    return _going(index, nodes, {*index.marks.condemned})


def _going(
    index: Index, nodes: Iterable[str], condemned: set[markkeys.CondemnedName], *, by_names: bool = True
) -> set[str]:
    """Return those states, of some that were let go of, of which anything is condemned.

    With `by_names` records are read only where names leave it open.
    """
    whole = {name.node for name in condemned if name.scope == markkeys.WHOLE_EDGE}
    return {
        node
        for node in nodes
        if node in whole
        or ((not by_names or index.is_going(node, condemned)) and _is_condemned(index, node, condemned))
    }


def need_exact(index: Index, nodes: Iterable[str]) -> set[str]:
    """Return which states have their exact value alone, as a repair condemned what else they would read.

    Records are read only where names leave it open.
    """
    rest = {name for name in index.marks.condemned if name.scope != markkeys.EXACT_VALUE}
    return {node for node in nodes if rest and index.is_going(node) and _is_condemned(index, node, rest)}


def _marks(listing: Listing, node: str) -> tuple[set[str], set[markkeys.CondemnedName]]:
    """Return what is retired of a node, and what is condemned."""
    return {name.what for name in listing.retired if name.node == node}, {*listing.condemned}


def _is_condemned(index: Index, node: str, condemned: set[markkeys.CondemnedName]) -> bool:
    """Return whether any of some condemnations is about what a node's cheapest path reads."""
    try:
        path = index.path(node)
        needed, passed = _reads(index, path, node)
    except (CorruptionError, NotFoundError):  # deleted meanwhile
        return True
    for name in condemned:
        if name.scope == markkeys.WHOLE_EDGE:
            gone = name.edge in passed or name.node in passed
        elif name.scope == markkeys.EXACT_VALUE:
            gone = name.node == node and node not in index.marks.inexact
        else:
            arrays = ((edge, markkeys.array_scope(pool, op)) for edge, pool, op in needed)
            gone = (name.edge, name.scope) in arrays
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
