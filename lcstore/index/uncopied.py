"""Second copies that are missing though nothing was lost: a process was killed before it stored them."""

from __future__ import annotations

from lcstore.format import keys
from lcstore.graph.graph import Graph


def copied_late(graph: Graph) -> dict[str, str]:
    """Return the keys of second copies that may never have been stored, with the keys of their records.

    A copy is stored after its record. A process that is killed in between leaves the record without a copy:
    the latest of a run, that of an edge that was added, or the store's own. All else that has a copy is named
    by a record that is stored after both.
    """
    latest = {
        (name.run, name.run_id): name for name in sorted(graph.nodes.values(), key=lambda name: name.order)
    }
    found = {keys.copy_key(name.node): keys.node_key(name) for name in latest.values()}
    for edge in map(keys.edge_key, graph.edges.values()):
        found[keys.copy_key(keys.edge_stem(edge))] = edge
    return found | {keys.copy_key(keys.STORE_KEY): keys.STORE_KEY}
