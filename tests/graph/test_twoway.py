"""Paths between nodes in either direction: the cheapest there is, and never over condemned edges."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.graph.graph import Graph
from lcstore.graph.paths import TwoWayPaths, path_in
from lcstore.graph.refs import EDGE_COST, ROOT, EdgeName, EdgeRef, NodeName

pytestmark = pytest.mark.once


def node(number: int, base: int, nbytes: int = 0) -> NodeName:
    return NodeName(number, 1, "r", number, f"n{number}", f"n{base}" if base >= 0 else ROOT, nbytes)


def two_way(graph: Graph) -> TwoWayPaths:
    return TwoWayPaths(edge for edge in graph.refs() if not graph.is_condemned(edge))


def check(path: list[EdgeRef], start: str, end: str) -> int:
    """Follow a path; return what it costs."""
    at = ROOT if path and path[0].base == ROOT else start
    for edge in path:
        assert at == (edge.target if edge.backward else edge.base)
        assert not (edge.backward and edge.base == ROOT)
        at = edge.end
    assert at == end
    return sum(edge.nbytes + EDGE_COST for edge in path)


def least(graph: Graph, start: str, end: str) -> int | None:
    """The cost of the cheapest way, by going over all edges until nothing gets better."""
    own = [(n.base, n.node, n.nbytes) for n in graph.nodes.values() if n.node not in graph.condemned_nodes]
    more = [(e.base, e.target, e.nbytes) for e in graph.edges.values() if e.edge not in graph.condemned_edges]
    links = [(a, b, cost + EDGE_COST) for a, b, cost in own + more]
    links += [(b, a, cost) for a, b, cost in links if a != ROOT]
    costs = {start: 0, ROOT: 0}
    better = True
    while better:
        better = False
        for a, b, cost in links:
            if a in costs and costs[a] + cost < costs.get(b, costs[a] + cost + 1):
                costs[b] = costs[a] + cost
                better = True
    return costs.get(end)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 12))
    sizes = st.sampled_from([0, 1000, EDGE_COST, 10 * EDGE_COST])
    graph = Graph(node(i, draw(st.integers(-1, i - 1)), draw(sizes)) for i in range(count))
    for i in range(draw(st.integers(0, 8))):
        target = draw(st.integers(0, count - 1))
        base = draw(st.integers(-1, target - 1))
        graph.add_edge(EdgeName(f"n{target}", f"n{base}" if base >= 0 else ROOT, f"e{i}", draw(sizes)))
    for name in draw(st.sets(st.sampled_from(list(graph.nodes)), max_size=3)):
        graph.condemn(node=name)
    for edge in draw(st.sets(st.sampled_from([*graph.edges, "e9"]), max_size=2)):
        graph.condemn(edge=edge)
    return graph


@given(graphs(), st.data())
def test_a_path_is_the_cheapest(graph, data):
    names = st.sampled_from(list(graph.nodes))
    start, end = data.draw(names), data.draw(names)
    path, cost = two_way(graph).find(start, end), least(graph, start, end)
    assert (path is None) == (cost is None)
    if path is not None:
        assert check(path, start, end) == cost
        assert not any(graph.is_condemned(replace(edge, backward=False)) for edge in path)


@given(graphs())
def test_all_paths_around_at_once_are_those_that_are_asked_for_one_by_one(graph):
    around = graph.paths_around()
    for name in graph.nodes:
        assert path_in(around, name) == graph.path_around(name)


def test_neighbours_are_one_edge_apart_in_either_direction():
    paths = two_way(Graph(node(i, i - 1) for i in range(50)))
    assert [edge.backward for edge in paths.find("n20", "n21") or ()] == [False]
    assert [edge.backward for edge in paths.find("n21", "n20") or ()] == [True]
    assert paths.find("n7", "n7") == []


def test_between_branches_that_share_nothing_a_path_begins_at_the_root():
    paths = two_way(Graph([node(0, -1), node(1, 0), node(2, -1), node(3, 2)]))
    path = paths.find("n1", "n3")
    assert path is not None
    assert [edge.target for edge in path] == ["n2", "n3"]
    assert [edge.backward for edge in paths.find("n1", "n0") or ()] in ([True], [False])


def test_there_may_be_no_path():
    graph = Graph([node(0, -1), node(1, 0)])
    graph.condemn(node="n1")
    assert two_way(graph).find("n0", "n1") is None
