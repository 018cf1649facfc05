"""Second copies that are missing though nothing was lost: of records after which a process was killed."""

from __future__ import annotations

from lcstore.format import keys
from lcstore.graph.graph import Graph


def copied_late(graph: Graph) -> dict[str, str]:
    """Return keys of second copies, with those of what they are copies of, that may never have been stored.

    A record makes something be there, so its copy is stored after it: who is killed in between leaves one
    without. That is the latest record of a run, one of an edge that was added, or the store's own. Whatever
    else has a copy is named by a record that is stored after both.
    """
    latest = {
        (name.run, name.run_id): name for name in sorted(graph.nodes.values(), key=lambda name: name.order)
    }
    found = {keys.copy_key(name.node): keys.node_key(name) for name in latest.values()}
    for edge in map(keys.edge_key, graph.edges.values()):
        found[keys.copy_key(keys.edge_stem(edge))] = edge
    return found | {keys.copy_key(keys.STORE_KEY): keys.STORE_KEY}
