"""Which kept states are known not to restore, as an object is missing: told by names and records alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from lcstore.edges.columns import OWN
from lcstore.errors import CorruptionError
from lcstore.format import keys
from lcstore.graph.refs import ROOT, EdgeRef
from lcstore.index.contents import EXACT, Contents
from lcstore.index.needs import Needed, needed_arrays
from lcstore.layout.layout import Layout


def broken_states(contents: Contents, layout: Callable[[str], Layout]) -> dict[str, str]:
    """Return the kept states that are known not to restore, each with the key of an object that it lacks.

    The graph of `contents` is left with the edges condemned that lack something, or lead to a state that was
    let go of and whose layout is lost.
    """
    impassable = contents.impassable
    avoid(contents, {contents.own[node] for node in impassable}, whole=True)
    missing = contents.missing()
    if not missing:
        return {}
    avoid(contents, {edge for edge, _, op in missing if op in keys.COMPOSED})
    suspects = _suspects(contents, {edge for edge, _, _ in missing})
    around = contents.graph.paths_around() if suspects else {}
    needs = partial(needed_arrays, contents, layout=layout, impassable=impassable)
    lost = ((node, _lost(contents, missing, node, needs, is_around=node in around)) for node in suspects)
    return {node: key for node, key in lost if key is not None}


def _suspects(contents: Contents, edges: set[str]) -> list[str]:
    """Return the kept states that are read over some edges, in the order of their ids."""
    over = {ROOT: False}
    for node in contents.kept:
        passed, at = [], node
        while at not in over:
            read, base = {contents.own[at]}, ROOT
            with suppress(CorruptionError):  # nothing leads to it
                last = contents.graph.path_to(at).last
                if last is not None:
                    read, base = read | {last.edge or ""}, last.base
            passed.append((at, not edges.isdisjoint(read)))
            at = base
        found = over[at]
        for at, here in reversed(passed):
            found = over[at] = found or here
    return sorted(node for node in contents.kept if over[node])


def _lost(
    contents: Contents,
    missing: Mapping[tuple[str, str, str], str],
    node: str,
    needs: Callable[[list[EdgeRef], set[str]], set[Needed]],
    *,
    is_around: bool,
) -> str | None:
    """Return the key of an object that a state lacks, whichever path is taken to it.

    `is_around` says whether a path leads to it that may go over edges backward.
    """
    own = contents.own[node]
    if (own, *EXACT) in missing:
        return missing[own, *EXACT]
    try:
        path = contents.graph.path(node)
    except CorruptionError:
        path = []
    lacks = [array for array in needs(path, {node}) if array in missing]
    if is_around:
        # What a way back over edges cannot give is what the state's own edge alone sets.
        lacks = [array for array in lacks if array[0] == own and array[2] != "add"]
    return missing[min(lacks)] if lacks else None


def avoid(contents: Contents, edges: set[str], *, whole: bool = False) -> None:
    """Have edges be a last resort, with those that leave something to them, or (`whole`) end with them."""
    graph = contents.graph
    own = {stored.target for edge in edges if (stored := contents.stored.get(edge)) and stored.own}
    for node in own:
        graph.condemn(node=node)
    for edge, name in graph.edges.items():
        left = name.target in own and (whole or OWN in contents.stored[edge].ops)
        if edge in edges or left:
            graph.condemn(edge=edge)
