"""Estimates of merged edges, and branches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.graph.branches import Branches
from lcstore.graph.graph import Graph
from lcstore.graph.numbered import Numbered
from lcstore.graph.refs import ROOT, EdgeName, NodeName
from lcstore.graph.sizes import Sizes

pytestmark = pytest.mark.once

ELEMENTS = 1_000_000


def entropy_bytes(levels):
    _, counts = np.unique(levels, return_counts=True)
    share = counts / levels.size
    return -(share * np.log2(share)).sum() * ELEMENTS / 8


@given(st.integers(1, ELEMENTS * 2))
def test_one_edge_is_as_large_as_it_is(nbytes):
    sizes = Sizes(ELEMENTS)
    assert sizes.nbytes(sizes.spread(nbytes)) == pytest.approx(nbytes, rel=0.01, abs=1)


@given(st.integers(0, 2**70), st.integers(1, 2**40))
def test_any_size_gives_a_finite_spread_and_merging_never_shrinks(nbytes, elements):
    sizes = Sizes(elements)
    spread = sizes.spread(nbytes)
    assert 0 < spread < math.inf
    assert 0 <= sizes.nbytes(spread) <= sizes.nbytes(2 * spread) <= sizes.nbytes(100_000 * spread)


def test_nothing_merged_is_nothing():
    assert Sizes(ELEMENTS).nbytes(0.0) == 0


@pytest.mark.parametrize("scale", [0.35, 0.6, 1.0])
@pytest.mark.parametrize("count", [2, 4, 16, 64])
def test_sums_of_independent_deltas_are_as_large_as_estimated(scale, count):
    rng = np.random.default_rng(1)
    deltas = np.rint(rng.laplace(0, scale / math.sqrt(2), (count, 50_000))).astype(int)
    sizes = Sizes(ELEMENTS)
    one = np.mean([entropy_bytes(delta) for delta in deltas])
    merged = sizes.nbytes(count * sizes.spread(int(one)))
    assert merged == pytest.approx(entropy_bytes(deltas.sum(axis=0)), rel=0.1)
    assert merged < 0.8 * count * one


@pytest.mark.parametrize("bad", [0, -1])
def test_a_senseless_number_of_weights_is_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        Sizes(bad)


def node(name, base, seq, nbytes=1000):
    return NodeName(0, 1, "r", seq, name, base, nbytes)


class Named:
    """Branches, with nodes and edges by their names."""

    def __init__(self, graph, elements=ELEMENTS):
        self.graph = Numbered(graph, Sizes(elements))
        self.number = self.graph.number
        self.found = Branches(self.graph, self.graph.there)

    @property
    def nodes(self):
        return [self.graph.ids[node] for node in self.found.nodes]

    def of(self, column, node):
        return getattr(self.found, column)[self.number[node]]

    def links(self, node):
        return [self.graph.names[edge] for edge in self.of("links", node)]

    def merged(self, base, node):
        return self.found.merged(self.number[base], self.number[node])

    def span(self, base, node):
        return self.found.span(self.number[base], self.number[node])


def parents(graph):
    found = Named(graph)
    return {node: found.graph.ids[found.of("parent", node)] for node in found.nodes}


def test_a_node_descends_from_the_base_of_its_own_edge():
    nodes = [node("a", ROOT, 0), node("b", "a", 1), node("c", "b", 2)]
    assert parents(Graph(nodes, [EdgeName("c", "a", "e", 1)])) == {"a": ROOT, "b": "a", "c": "b"}


def test_where_that_edge_is_gone_it_descends_from_the_nearest_other_base():
    nodes = [node("a", ROOT, 0), node("b", "a", 1), node("c", "b", 2), node("d", "c", 3)]
    edges = [EdgeName("d", ROOT, "e0", 1), EdgeName("d", "a", "e1", 1), EdgeName("d", "b", "e2", 1)]
    graph = Graph(nodes, edges)
    graph.condemn(node="d")
    assert parents(graph)["d"] == "b"
    graph.condemn(edge="e2")
    assert parents(graph)["d"] == "a"
    without = Graph([n for n in nodes if n.node != "c"], edges[:2])
    assert parents(without)["d"] == "a"


def test_circles_and_missing_bases_have_no_place():
    nodes = [node("a", "b", 0), node("b", "a", 1), node("c", "c", 2), node("d", "gone", 3)]
    assert parents(Graph(nodes)) == {}
    assert parents(Graph(nodes, [EdgeName("b", ROOT, "e", 1)])) == {"b": ROOT, "a": "b"}


def test_every_node_comes_behind_its_bases_whatever_their_numbers_are():
    """A handle that began earlier may go on from what one that began later saved."""
    nodes = [NodeName(0, 2, "r2", 0, "a", ROOT, 9), NodeName(1, 1, "r1", 0, "b", "a", 9)]
    nodes += [NodeName(2, 2, "r2", 1, "c", "b", 9), NodeName(3, 1, "r1", 1, "d", "c", 9)]
    assert Named(Graph(nodes, [EdgeName("d", "a", "e", 1)])).nodes == ["a", "b", "c", "d"]


def test_what_only_condemned_edges_lead_to_is_not_sound_and_stands_on_none():
    graph = Graph([node("a", ROOT, 0), node("b", "a", 1), node("c", "b", 2)], [EdgeName("c", "a", "e", 1)])
    graph.condemn(node="b")
    found = Named(graph)
    assert [bool(found.of("sound", name)) for name in "abc"] == [True, False, True]
    assert found.links("b") == []
    assert found.links("c") == ["e"]  # not over b


def test_a_branch_remembers_how_far_it_is_from_its_anchor():
    nodes = [node("a", ROOT, 0, 9000), node("b", "a", 1), node("c", "b", 2)]
    found = Named(Graph(nodes))
    assert (found.of("length", "c"), found.of("anchor", "c")) == (3, 9000)
    assert found.merged("b", "c") == 1000
    assert 1000 < found.merged("a", "c") < 2000
    # An anchor that is made holds integers of the grid: the first one may have been smaller.
    assert found.merged(ROOT, "c") == max(9000, ELEMENTS * 26 // 8)
    assert Named(Graph(nodes), 100).merged(ROOT, "c") == 9000
    assert (found.span(ROOT, "c"), found.span("a", "c")) == (3, 2)
