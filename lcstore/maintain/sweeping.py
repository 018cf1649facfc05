"""Marks that nothing refers to any more, once something goes."""

from __future__ import annotations

from collections.abc import Sequence

from lcstore.format import keys, markkeys
from lcstore.index.contents import Contents
from lcstore.maintain.verdict import Scope


def staying_nodes(contents: Contents, gone: Sequence[Scope]) -> set[str]:
    """Return the nodes whose records stay."""
    whole = _whole(gone)
    return {node for node, edge in contents.own.items() if edge in contents.stored and edge not in whole}


def loose_marks(contents: Contents, gone: Sequence[Scope]) -> list[str]:
    """Return the keys of the marks that nothing refers to once some things are gone."""
    whole, nodes = _whole(gone), staying_nodes(contents, gone)
    parents = {contents.parents[node] for node in nodes}
    gone_layouts = {scope.edge for scope in gone if scope.scope == markkeys.LAYOUT}
    layouts = {half for half in map(keys.layout_half, contents.layouts) if half not in gone_layouts}
    left = (set(contents.stored) | set(contents.data)) - whole | layouts
    marks = [key for key in contents.condemned if markkeys.parse_condemned_key(key).edge not in left]
    marks += [
        key
        for key in contents.retired
        if (node := markkeys.parse_retired_key(key).node) not in nodes and node not in parents
    ]
    dead = {node for node, edge in contents.own.items() if edge in whole}
    marks += [
        markkeys.tag_key(name)
        for name in contents.named
        if name.node in dead or (name.kind == "line" and name.name not in nodes)
    ]
    return sorted(marks)


def _whole(gone: Sequence[Scope]) -> set[str]:
    return {scope.edge for scope in gone if scope.scope == markkeys.WHOLE_EDGE}
