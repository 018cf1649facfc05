"""Whether a state stays: what whoever builds upon it, or wants to keep it, asks once that is on record."""

from __future__ import annotations

from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys
from lcstore.graph.names import EdgeRef
from lcstore.index.catalog import Catalog
from lcstore.index.census import Census, own_edge, shortcut_edge
from lcstore.index.needs import needed_arrays
from lcstore.storage.backend import Backend


def is_going(backend: Backend, catalog: Catalog, node: str) -> bool:
    """Say whether a state to be built upon is let go of, or a collector may be deleting what it needs.

    To be asked when the record that builds upon it is stored: whoever condemns anything from then on lists
    the records once more and finds that.
    """
    retired, condemned = _look(backend, catalog, node)
    marks = catalog.marks
    if node not in catalog.graph.nodes or (keys.WHOLE_STATE in retired and node not in marks.pinned):
        return True
    if any(what.startswith("pool.") for what in retired):
        return True  # stripped: what it has unchanged may be among that
    return _is_condemned(catalog, node, condemned)


def is_too_late(backend: Backend, catalog: Catalog, node: str) -> bool:
    """Say whether a state, just pinned, was let go of, and a collector may be deleting what it needs."""
    retired, condemned = _look(backend, catalog, node)
    if node not in catalog.graph.nodes:
        return True
    return keys.WHOLE_STATE in retired and _is_condemned(catalog, node, condemned)


def _look(backend: Backend, catalog: Catalog, node: str) -> tuple[set[str], set[keys.CondemnedName]]:
    """List everything anew; return what is retired of a node, and what is condemned.

    Marks are deleted after the records that they are about. So they are listed before those: none that came
    and went is missed.
    """
    marks = [keys.parse_retired_key(key) for key in backend.list(keys.RETIRED)]
    condemned = set(map(keys.parse_condemned_key, backend.list(keys.CONDEMNED)))
    catalog.refresh(full=True)
    retired = {name.what for name in marks if name.node == node}
    retired |= {keys.WHOLE_STATE} if node in catalog.marks.retired else set()
    retired |= {keys.pool_of(pool) for pool in catalog.marks.stripped.get(node, ())}
    return retired, condemned | catalog.marks.condemned


def _is_condemned(catalog: Catalog, node: str, condemned: set[keys.CondemnedName]) -> bool:
    """Say whether any of some condemnations is about what a node's cheapest path reads."""
    try:
        path = catalog.path(node)
        needed, passed = _reads(catalog, path, node)
    except (CorruptionError, NotFoundError):  # deleted meanwhile
        return True
    for name in condemned:
        if name.scope == keys.WHOLE_EDGE:
            gone = name.edge in passed or name.node in passed
        elif name.scope == keys.EXACT_VALUE:
            gone = name.node == node and node not in catalog.marks.inexact
        else:
            gone = any(
                edge == name.edge and keys.array_scope(pool, op) == name.scope for edge, pool, op in needed
            )
        if gone:
            return True
    return False


def _reads(
    catalog: Catalog, path: list[EdgeRef], node: str
) -> tuple[set[tuple[str, str, keys.Op]], set[str]]:
    """Return the arrays that a path reads, and the edges and nodes that it leads over."""
    census = Census(catalog.graph, catalog.marks, ())
    passed: set[str] = set()
    for ref in path:
        own = own_edge(ref.target, catalog.record(ref.target))
        census.stored[own.edge], census.own[ref.target] = own, own.edge
        passed |= {ref.target, own.edge if ref.edge is None else ref.edge}
        if ref.edge is not None:
            census.stored[ref.edge] = shortcut_edge(catalog.edge(ref.edge))
    return needed_arrays(census, path, {node}, catalog.layout), passed
