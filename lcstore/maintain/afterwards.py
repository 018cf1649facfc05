"""What a store holds once something is let go of, or a collection is through: told before it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import replace

from lcstore.format import keys, markkeys
from lcstore.graph.graph import Graph
from lcstore.index.contents import Contents
from lcstore.index.index import Index
from lcstore.maintain.verdict import Scope


def if_newest(contents: Contents | None, index: Index) -> Contents | None:
    """Return contents, unless states were saved since: what is kept of them may be none of these."""
    graph = index.graph
    seen = graph.nodes if contents is None else contents.graph.nodes
    late = any(node not in seen and node not in graph.hidden for node in graph.nodes)
    return None if late else contents


def collected_from(
    contents: Contents, condemned: Iterable[str], gone: Collection[Scope], deleted: Set[str]
) -> Contents:
    """Return contents as they are once some things are condemned, and others are deleted.

    Parameters
    ----------
    contents
        What is there before.
    condemned
        Keys of the condemnations that come.
    gone, deleted
        What goes; and the keys of its objects, layouts and records.
    """
    edges = {scope.edge for scope in gone if scope.is_whole}
    nodes = {scope.node for scope in gone if scope.is_whole}
    more = frozenset(map(markkeys.parse_condemned_key, condemned))
    marks = replace(contents.marks, condemned=contents.marks.condemned | more)
    graph = Graph(
        (name for node, name in contents.graph.nodes.items() if node not in nodes),
        (name for edge, name in contents.graph.edges.items() if edge not in edges),
    )
    marks.mark(graph)
    data = {edge: [key for key in found if key not in deleted] for edge, found in contents.data.items()}
    return replace(
        contents,
        graph=graph,
        marks=marks,
        stored={edge: stored for edge, stored in contents.stored.items() if edge not in edges},
        own={node: edge for node, edge in contents.own.items() if node not in nodes},
        parents={node: parent for node, parent in contents.parents.items() if node not in nodes},
        data={edge: found for edge, found in data.items() if found},
        layouts=[digest for digest in contents.layouts if keys.layout_key(digest) not in deleted],
        lengths={key: nbytes for key, nbytes in contents.lengths.items() if key not in deleted},
    )


def let_go(contents: Contents, going: Iterable[tuple[str, str]]) -> None:
    """Have contents be as if of some nodes something had been let go of: the state, or a part of it."""
    names = [markkeys.RetiredName(node, what, "") for node, what in going]
    contents.marks = contents.marks.with_retired(names)
    for name in names:
        if name.what == markkeys.WHOLE_STATE:
            contents.graph.hide(name.node)
