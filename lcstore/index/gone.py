"""A store without a state that had some: what is said of it wherever one would be taken for new."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lcstore.format import keys
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


def unrecorded(graph: Graph, data: Iterable[str]) -> str:
    """Return what is said of a store that has objects of several saves, and a record of none; "" of others.

    One save may have been killed before its record was stored: that is no sign of a state.
    """
    saves = 0 if graph.nodes or graph.hidden else len({keys.parse_data_key(key).edge for key in data})
    what = f"no state is recorded, though objects of {saves} saves are here"
    return f"{what}: nodes/ was lost or moved, unless no save has ever ended" if saves > 1 else ""
