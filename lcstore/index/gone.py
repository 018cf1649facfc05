"""A store without a state that had some: what is said of it wherever one would be taken for new."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lcstore.errors import LcstoreError
from lcstore.format import keys, markkeys
from lcstore.graph.graph import Graph

if TYPE_CHECKING:  # commands that look at no store import this
    from lcstore.index.listing import Listing

#: What the reason begins with for which a repair lets go of a state.
DAMAGED: Final = "damaged: "
#: And that for which a writer does, of a state that it saves once more.
NOT_ACKNOWLEDGED: Final = "not acknowledged"
#: What stands for one that was lost to damage.
REASON_LOST: Final = "the reason could not be read any more"


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


def unrecorded(listing: Listing) -> str:
    """Return what is said of the objects and retirements where no state is recorded; "" of a new store.

    One save may have been killed before its record was stored, and a repair sets records aside that it could
    not read: neither is a sign of states that are not let go of.
    """
    edges, nodes = set[str](), set[str]()
    for key in listing.below(keys.DATA):
        with suppress(LcstoreError):  # somebody else's name
            edges.add(keys.parse_data_key(key).edge)
    for key in listing.below(keys.RETIRED):
        with suppress(LcstoreError):
            name = markkeys.parse_retired_key(key)
            nodes |= {name.node} if name.what == markkeys.WHOLE_STATE else set()
    saves = len(edges) - len(nodes)
    what = f"No state is recorded, though objects of {saves} saves are here"
    cause = "nodes/ was lost or moved, or a copy, a removal or each save was cut off"
    return f"{what}: {cause}" if saves > 1 else ""
