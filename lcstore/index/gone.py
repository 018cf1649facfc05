"""A store without a state that had some: what is said of it wherever one would be taken for new."""

from __future__ import annotations

from typing import Final

from lcstore.graph.graph import Graph

#: What the reason begins with for which a repair lets go of a state.
DAMAGED: Final = "damaged: "


def all_gone(states: int) -> str:
    """Return what is said of a store of which no state is kept, and so many are not deleted yet."""
    if not states:
        return "All was let go of, or lost"
    are = "1 state is" if states == 1 else f"{states} states are"
    return f"All was let go of, or lost; {are} not deleted yet"


def none_left(graph: Graph) -> str:
    """Return the same of a graph listed in full; "" where a state is kept, or there never was one."""
    gone = bool(graph.hidden) and graph.nodes.keys() <= graph.hidden
    return all_gone(len(graph.nodes)) if gone else ""
