"""Lines of training: which state each one came from, however many of those between are gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.graph.graph import Graph
from lcstore.graph.lines import (
    came_through,
    cut,
    ends_of_runs,
    line_to,
    lines_of_runs,
    moved_back,
    predecessors,
    up_to,
)
from lcstore.graph.refs import ROOT, EdgeName, NodeName

pytestmark = pytest.mark.once


@st.composite
def histories(draw):
    """Nodes by name with the one that each was saved upon: runs that go on from any state that there is."""
    before, nodes, runs = {}, [], 0
    for number in range(draw(st.integers(1, 14))):
        upon = draw(st.sampled_from([None, *before])) if number else None
        if upon is None or upon != nodes[-1].node or draw(st.booleans()):
            runs += 1
        name = f"n{number}"
        step = nodes[int(upon[1:])].step + 10 if upon else 0
        nodes.append(NodeName(step, runs, f"r{runs}", number, name, upon or ROOT, 1))
        before[name] = upon
    return nodes, before


@given(histories(), st.data())
def test_lines_stay_however_nodes_go(history, data):
    """The law: after any collections a line is what it was, without what is gone."""
    nodes, before = history
    came_from, there = {}, {name.node: name for name in nodes}
    edges = [EdgeName(name.node, ROOT, f"e{name.node}", 1) for name in nodes if data.draw(st.booleans())]
    while there:
        graph = Graph(there.values(), [edge for edge in edges if edge.target in there])
        graph.came_from = came_from
        for node in there:
            wanted, one = [], node
            while one is not None:
                wanted.append(one)
                one = before[one]
            assert [name.node for name in line_to(graph, node)] == [n for n in wanted[::-1] if n in there]
        gone = data.draw(st.sets(st.sampled_from(sorted(there)), min_size=1))
        came_from = came_from | cut(graph, gone)
        came_from = {node: one for node, one in came_from.items() if node not in gone and one not in gone}
        there = {node: name for node, name in there.items() if node not in gone}


@given(histories())
def test_what_came_through_a_node_is_what_has_it_in_its_line(history):
    graph = Graph(history[0])
    for node in graph.nodes:
        lines = {end: {name.node for name in line_to(graph, end)} for end in graph.nodes}
        assert came_through(graph, node) == {end for end in lines if node in lines[end] and end != node}


def saved(*upon: str | None) -> Graph:
    """Return nodes n0, n1, ... of runs r0, r1, ..., saved upon these; "+" is of the same run."""
    nodes: list[NodeName] = []
    for number, base in enumerate(upon):
        last = nodes[-1] if nodes else None
        run = last.run if last and base == "+" else number
        base = last.node if last and base == "+" else base or ROOT
        nodes.append(NodeName(number, run, f"r{run}", number, f"n{number}", base, 1))
    return Graph(nodes)


def test_runs_that_went_on_from_the_end_of_another_are_one_line():
    assert lines_of_runs(saved(None, "n0", "+", "n2", "n3")) == dict.fromkeys(("r0", "r1", "r3", "r4"), "r0")
    began_anew = lines_of_runs(saved(None, "+", None, "n2"))
    assert began_anew == {"r0": "r0", "r2": "r2", "r3": "r2"}


def test_forks_are_lines_of_their_own():
    from_the_midst = lines_of_runs(saved(None, "+", "n0", "n2"))
    assert from_the_midst == {"r0": "r0", "r2": "r2", "r3": "r2"}
    several_from_the_end = lines_of_runs(saved(None, "n0", "n0", "n2"))
    assert several_from_the_end == {"r0": "r0", "r1": "r1", "r2": "r2", "r3": "r2"}
    first_took_its_place = lines_of_runs(saved(None, "n0", "n0", "n1"), {"n0"})
    assert first_took_its_place == {"r0": "r0", "r1": "r0", "r2": "r2", "r3": "r0"}


def test_a_line_goes_on_where_its_states_are_gone():
    graph = saved(None, "gone", "n1")
    assert lines_of_runs(graph) == {"r0": "r0", "r1": "r1", "r2": "r1"}
    graph.came_from = {"n1": "n0"}
    assert lines_of_runs(graph) == dict.fromkeys(("r0", "r1", "r2"), "r0")


def test_nothing_is_said_where_all_is_seen_without_it():
    nodes = [NodeName(10 * i, 1, "r", i, f"n{i}", f"n{i - 1}" if i else ROOT, 1) for i in range(9)]
    graph = Graph(nodes)
    assert cut(graph, set()) == {}
    assert cut(graph, {"n3", "n4"}) == {}  # the run saved n2 before n5
    assert cut(graph, {"n0"}) == {}


def test_names_that_form_circles_end():
    nodes = [NodeName(0, 1, "r", i, f"n{i}", f"n{(i + 1) % 3}", 1) for i in range(3)]
    graph = Graph(nodes)
    graph.came_from = {"n0": "n0", "n1": "gone"}
    assert len(line_to(graph, "n0")) == 3
    assert came_through(graph, "n0") == {"n1", "n2"}
    assert set(predecessors(graph)) == {"n0", "n1", "n2"}
    assert cut(graph, {"n1", "n2"}) == {}
    two = Graph(NodeName(0, i, f"r{i}", i, f"n{i}", f"n{1 - i}", 1) for i in range(2))
    assert set(lines_of_runs(two)) == {"r0", "r1"}


@given(histories(), st.data())
def test_ends_of_runs_stand_for_all_that_lies_before_them(history, data):
    graph = Graph(history[0], [])
    graph.hidden = {node for node in graph.nodes if data.draw(st.booleans())}
    nodes = {node for node in graph.nodes if data.draw(st.booleans())}
    ends = ends_of_runs(graph, nodes)
    assert len(ends) <= 2 * len({graph.nodes[node].run_id for node in nodes})
    assert up_to(graph, {name.node for name in ends}) == up_to(graph, nodes)
    shown = {name.node for name in ends} - graph.hidden
    assert up_to(graph, shown) == up_to(graph, nodes - graph.hidden)


@given(histories(), st.data())
def test_ends_stay_ends_however_nodes_go(history, data):
    """The law: what lies up to an end that another run took the place of does so after any collections."""
    there = {name.node: name for name in history[0]}
    ends = {node for node in there if data.draw(st.booleans())}
    over = up_to(Graph(there.values(), []), ends)
    assert ends <= over
    while there:
        gone = set(data.draw(st.lists(st.sampled_from([*there]), min_size=1, unique=True)))
        moved = moved_back(Graph(there.values(), []), ends, gone)
        assert moved.keys() <= ends & gone
        there = {node: name for node, name in there.items() if node not in gone}
        ends = (ends - gone) | set(moved.values())
        assert up_to(Graph(there.values(), []), ends) == over & there.keys()
