"""Of a state that lost a part: what a repair lets go of, and what can be read all the same."""

from __future__ import annotations

import numpy as np

from lcstore.check.damage import Harm, Judge
from lcstore.format import markkeys
from lcstore.index.links import Link
from lcstore.layout.qualified import stem_of
from lcstore.layout.specs import is_optimizer_pool
from lcstore.read.node import spared


def let_go_of(judge: Judge, node: str, harm: Harm | None) -> tuple[str, ...]:
    """Return what a state has to be without: ``"exact"``, ``"pool.<pool>"``, or all of it, ``"state"``.

    A state without its weights or buffers is none: nothing can go on from it, so it must not be the latest,
    nor count for a retention rule.

    Parameters
    ----------
    judge
        What damage comes to.
    node, harm
        A node, and what its track lacks over the path that is taken.
    """
    if judge.missing(node, harm) is None:
        return ()
    own, marks = judge.store.own.get(node), judge.store.marks
    for exact, strips in ((False, False), (True, True), (False, True)) if own is not None else ():
        assert own is not None
        counts = exact and node not in marks.inexact
        pools = lost_pools(own, judge.missing(node, harm, exact=counts)) if strips else set()
        if pools is None or not all(map(is_optimizer_pool, pools)):
            continue
        stripped = marks.stripped.get(node, frozenset()) | pools
        if judge.missing(node, harm, exact=counts, stripped=stripped) is None:
            found = () if exact else (markkeys.EXACT_VALUE,)
            return (*found, *map(markkeys.pool_of, sorted(pools)))
    return (markkeys.WHOLE_STATE,)


def rest_of(judge: Judge, node: str, harm: Harm | None) -> str:
    """Return what of a state needs nothing that is lost, as ``names='replay'``; "" where all does."""
    own = judge.store.own.get(node)
    pools = None if own is None else lost_pools(own, harm)
    return "" if own is None or not pools else spared(own.layout, pools)


def lost_pools(own: Link, harm: Harm | None) -> set[str] | None:
    """Return the pools of the tensors that a state lacks; None where all of it is lacking."""
    if harm is None:
        return set()
    if harm.tensors is None:
        return None
    return {stem_of(own.layout.tensors[t].pool) for t in np.flatnonzero(harm.tensors).tolist()}
