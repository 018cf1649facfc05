"""What of a damaged state can be read all the same, for the message that it cannot be read whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import Final

from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.index.listing import OBJECTS, Listing
from lcstore.read.node import called, weights_by_pattern
from lcstore.read.resolved import Resolved
from lcstore.state.names import leading

#: Of so many names at the top of a state it is looked whether they can be read.
_LOOKED_AT: Final = 32


def rest(state: Resolved, damaged: str | None) -> str:
    """Return how to have what of a state can be read without a damaged object, to go on with a message.

    That an object is there is taken from one listing: one that is there and damaged is not noticed.
    """
    if damaged is None or not keys.is_data_key(damaged):
        return ""
    with suppress(LcstoreError):
        tops, leaves = _tops(state)
        there = {*Listing.take(state.reader.backend, OBJECTS).below(keys.DATA)} - {damaged}
        whole = state.has_leaves(there)
        looked = [*islice(tops, _LOOKED_AT)]
        left = [top for top in looked if (whole or top not in leaves) and _has(state, tops[top], there)]
        if not left and len(looked) == len(tops):
            layout = state.node.layout
            weights = weights_by_pattern(layout, lambda places: _has(state, places, there))
            if weights:
                return f"; restore({state.called!r}, {called(weights)}) gives weights, as it does not need it"
            return "; no part of this state that holds tensors can be read whole" * (len(tops) > 1)
        if left and len(left) < len(tops):
            # Each may be read over a shorter path than all together.
            together = _has(state, (tensor for top in left for tensor in tops[top]), there)
            return f"; restore({state.called!r}, {called(left if together else left[:1])}) does not need it"
    return ""


def _tops(state: Resolved) -> tuple[dict[str, list[int]], set[str]]:
    """Return the tensors below each name at the top of a state; and those that have plain values below."""
    tops: defaultdict[str, list[int]] = defaultdict(list)
    for name, tensor in state.node.layout.named.items():
        if name:
            tops[leading(name)[1]].append(tensor)
    leaves = {leading(name)[1] for name in state.node.leaf_places if name}
    return dict(tops), leaves


def _has(state: Resolved, tensors: Iterable[int], there: Collection[str]) -> bool:
    with suppress(LcstoreError):
        return state.has(sorted(tensors), there)
    return False
