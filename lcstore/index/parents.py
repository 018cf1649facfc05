"""Which states stand on one of which nothing is known any more."""

from __future__ import annotations

from collections.abc import Mapping

from lcstore.index.listing import PARENTS, Listing
from lcstore.storage.backend import Backend


def forsaken(backend: Backend, parents: Mapping[str, str]) -> list[str]:
    """Return the nodes whose parent is gone although nobody let go of it.

    A collector may have taken a parent away since the store was listed, having found it retired after that.
    It leaves what says so for as long as a node names that parent: so where a node is there after the
    retirements were listed without its parent's, nobody has retired that.

    Parameters
    ----------
    backend
        Where the store is.
    parents
        Nodes, each with a parent that is not there and was not retired when the store was listed.
    """
    if not parents:
        return []
    listing = Listing.take(backend, PARENTS)
    retired = {name.node for name in listing.retired}
    there = {name.node for name in listing.nodes}
    return [node for node, parent in parents.items() if parent not in retired and node in there]
