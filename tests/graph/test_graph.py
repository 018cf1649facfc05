"""Paths, revisions and runs, against a slow and simple search, and with names that storage made up."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.errors import CorruptionError, NotFoundError
from lcstore.graph import graph as graph_module
from lcstore.graph.graph import Graph
from lcstore.graph.paths import path_in
from lcstore.graph.refs import EDGE_COST, ROOT, EdgeName, EdgeRef, NodeName

pytestmark = pytest.mark.once


def node(name, base=ROOT, nbytes=1, *, step=0, run=1, run_id="r1", seq=0):
    return NodeName(step=step, run=run, run_id=run_id, seq=seq, node=name, base=base, nbytes=nbytes)


def chain(length, nbytes=1):
    return [node(f"n{i}", f"n{i - 1}" if i else ROOT, nbytes, step=10 * i, seq=i) for i in range(length)]


def hops(path):
    return [(edge.base, edge.target) for edge in path]


def test_a_chain_is_walked_from_the_root():
    graph = Graph(chain(4))
    assert graph.path("n2") == [
        EdgeRef(ROOT, "n0", None, 1),
        EdgeRef("n0", "n1", None, 1),
        EdgeRef("n1", "n2", None, 1),
    ]
    assert graph.path_bytes("n2") == 3


def test_the_cheapest_wins_then_fewest_edges_then_the_own_edge_then_the_id():
    nodes = [node("a", nbytes=5), node("b", "a", 5), node("c", "b", 5)]
    assert hops(Graph(nodes).path("c")) == [(ROOT, "a"), ("a", "b"), ("b", "c")]
    as_cheap = 10 + EDGE_COST  # one edge less saves a round trip
    cheaper = Graph(nodes, [EdgeName("c", "a", "e1", as_cheap - 1)])
    assert hops(cheaper.path("c")) == [(ROOT, "a"), ("a", "c")]
    same = Graph(nodes, [EdgeName("c", "a", "e1", as_cheap)])
    assert hops(same.path("c")) == [(ROOT, "a"), ("a", "c")]
    dearer = Graph(nodes, [EdgeName("c", "a", "e1", as_cheap + 1)])
    assert hops(dearer.path("c")) == [(ROOT, "a"), ("a", "b"), ("b", "c")]
    equal = Graph(nodes, [EdgeName("c", "b", "e0", 5), EdgeName("b", "a", "e3", 5)])
    assert [edge.edge for edge in equal.path("c")] == [None, None, None]
    shortcuts = [EdgeName("c", "a", "e2", 3), EdgeName("c", "a", "e1", 3)]
    assert Graph(nodes, shortcuts).path("c")[-1].edge == "e1"
    assert Graph(nodes, shortcuts[::-1]).path("c")[-1].edge == "e1"


def test_a_condemned_edge_is_the_last_resort():
    nodes = [node("a", nbytes=5), node("b", "a", 5), node("c", "b", 5)]
    graph = Graph(nodes, [EdgeName("c", ROOT, "e1", 1 << 40)])
    graph.condemn(node="b")
    assert hops(graph.path("c")) == [(ROOT, "c")]
    assert hops(graph.path("b")) == [(ROOT, "a"), ("a", "b")]
    graph.condemn(edge="e1")
    assert hops(graph.path("c")) == [(ROOT, "a"), ("a", "b"), ("b", "c")]


def test_a_hidden_node_is_only_a_way_to_others():
    nodes = [node("a", step=1), node("b", "a", step=2, seq=1), node("c", "b", step=2, seq=2)]
    graph = Graph(nodes)
    graph.hide("c")
    assert graph.latest().node == graph.latest(1).node == graph.at_step(2).node == "b"
    graph.hide("b")
    assert graph.steps() == [1]
    assert graph.at_step(2) is None
    assert graph.revisions(2) == []
    assert graph.latest("r1").node == "a"
    assert hops(graph.path("c")) == [(ROOT, "a"), ("a", "b"), ("b", "c")]
    graph.add(node("d", "c", step=2, seq=3))
    assert graph.latest().node == "d"
    graph.hide("e")
    graph.add(node("e", "d", step=9, seq=9))
    assert graph.latest().node == "d"
    for name in "ad":
        graph.hide(name)
    assert graph.latest() is graph.latest(1) is None


def brute_force(nodes, edges, start=ROOT):
    """Cost and edges of the cheapest way to each node, by going over all edges until nothing changes."""
    names = {item.node for item in nodes}
    links = [(item.base, item.node, item.nbytes) for item in nodes]
    links += [(item.base, item.target, item.nbytes) for item in edges if item.target in names]
    best = {start: (0, 0)}
    changed = True
    while changed:
        changed = False
        for base, target, nbytes in links:
            if base in best:
                new = (best[base][0] + nbytes + EDGE_COST, best[base][1] + 1)
                if target not in best or new < best[target]:
                    best[target] = new
                    changed = True
    return best


names = st.sampled_from([f"n{i}" for i in range(8)])
bases = names | st.just(ROOT) | st.just("gone")
node_names = st.builds(
    node,
    names,
    bases,
    st.integers(0, 4),
    step=st.integers(0, 3),
    run=st.integers(0, 2),
    run_id=st.sampled_from(["r1", "r2"]),
    seq=st.integers(0, 3),
)
node_lists = st.lists(node_names, max_size=8, unique_by=lambda item: item.node)
edge_lists = st.lists(
    st.builds(
        EdgeName,
        target=names | st.sampled_from(["gone", ROOT]),
        base=bases,
        edge=st.integers(0, 99).map("e{:02}".format),
        nbytes=st.integers(0, 4),
    ),
    max_size=8,
    unique_by=lambda item: item.edge,
)


@given(node_lists, edge_lists)
def test_paths_are_the_cheapest(nodes, edges):
    graph = Graph(nodes, edges)
    best = brute_force(nodes, edges)
    for item in nodes:
        if item.node not in best:
            with pytest.raises(CorruptionError):
                graph.path(item.node)
            with pytest.raises(CorruptionError):
                graph.path_bytes(item.node)
            continue
        path = graph.path(item.node)
        nbytes = sum(edge.nbytes for edge in path)
        assert (nbytes + EDGE_COST * len(path), len(path)) == best[item.node]
        assert graph.path_bytes(item.node) == nbytes
        assert path[0].base == ROOT
        assert path[-1].target == item.node
        assert all(one.target == other.base for one, other in itertools.pairwise(path))


@given(node_lists, edge_lists, st.sets(names, max_size=3), st.sets(st.integers(0, 99).map("e{:02}".format)))
def test_a_path_looked_for_alone_is_that_which_is_found_among_all(nodes, edges, condemned, avoided):
    def marked():
        graph = Graph(nodes, edges)
        for name in condemned:
            graph.condemn(node=name)
        for edge in graph.edges.keys() & avoided:
            graph.avoid(graph.edges[edge].ref)
        return graph

    many = marked()
    for _ in range(2):  # once as much was looked at as there are nodes, all paths are found
        for item in nodes:
            answer(many, item.node)
    for item in nodes:
        alone = marked()
        assert answer(alone, item.node) == answer(many, item.node)
        assert alone.is_in_danger(item.node) == many.is_in_danger(item.node)


def test_of_many_nodes_few_are_looked_at_for_one_path():
    nodes = [node(f"n{i}", f"n{i - 1}" if i % 100 else ROOT, 3, seq=i) for i in range(100_000)]
    graph = Graph(nodes)
    start = time.process_time()
    assert len(graph.path("n99999")) == 100
    assert time.process_time() - start < 0.1  # a thousandth of a second; all paths take half of one


@given(node_lists, edge_lists)
def test_paths_between_nodes_are_the_cheapest(nodes, edges):
    graph = Graph(nodes, edges)
    known = {item.node for item in nodes}
    for start in known:
        best = brute_force(nodes, edges, start)
        for item in known:
            if item not in best:
                with pytest.raises(CorruptionError):
                    graph.path(item, start)
                continue
            path = graph.path(item, start)
            assert (sum(edge.nbytes + EDGE_COST for edge in path), len(path)) == best[item]
            assert all(one.target == other.base for one, other in itertools.pairwise(path))
            assert not path or (path[0].base, path[-1].target) == (start, item)


def answer(graph, name):
    """The path to a node, or why there is none."""
    try:
        return graph.path(name)
    except CorruptionError as exc:
        return str(exc)


@given(node_lists, edge_lists, st.randoms(use_true_random=False))
def test_order_of_adding_and_of_asking_changes_nothing(nodes, edges, rng):
    whole = Graph(nodes, edges)
    grown = Graph()
    pieces = [*nodes, *edges]
    rng.shuffle(pieces)
    for piece in pieces:
        if isinstance(piece, NodeName):
            grown.add(piece)
        else:
            grown.add_edge(piece)
        if grown.nodes and rng.random() < 0.7:
            with contextlib.suppress(CorruptionError):
                grown.path(rng.choice(sorted(grown.nodes)))
    for item in nodes:
        assert answer(grown, item.node) == answer(whole, item.node)
    assert grown.latest() == whole.latest()
    assert grown.steps() == whole.steps()
    assert [grown.revisions(step) for step in grown.steps()] == [
        whole.revisions(step) for step in whole.steps()
    ]


@given(node_lists)
def test_latest_steps_and_runs(nodes):
    graph = Graph(nodes)
    assert len(graph) == len(nodes)

    def newest(items):
        return max(items, key=lambda item: (item.seq, item.run, item.node), default=None)

    assert graph.latest() == newest(nodes)
    for run in (0, 1, 2):
        assert graph.latest(run) == newest([item for item in nodes if item.run == run])
    for run_id in ("r1", "r2", "r3"):
        assert graph.latest(run_id) == newest([item for item in nodes if item.run_id == run_id])
    assert graph.steps() == sorted({item.step for item in nodes})
    for step in range(5):
        same = [item for item in nodes if item.step == step]
        assert graph.revisions(step) == sorted(same, key=lambda item: (item.seq, item.run, item.node))
        assert graph.at_step(step) == newest(same)
    assert graph.next_run() == max((item.run for item in nodes), default=0) + 1
    pairs = {(item.run, item.run_id) for item in nodes}
    assert graph.ambiguous_runs() == [run for run in (0, 1, 2) if {(run, "r1"), (run, "r2")} <= pairs]
    assert sorted(name.run for name in graph.shown()) == sorted(item.run for item in nodes)


def test_a_run_that_rolled_back_is_the_latest():
    graph = Graph([node("a", step=1000, run=1, seq=9), node("b", step=500, run=2, seq=10)])
    assert graph.latest().node == "b"
    assert graph.last_seq() == 10
    assert graph.at_step(1000).node == "a"


def test_an_empty_graph():
    graph = Graph()
    assert graph.latest() is None
    assert graph.steps() == []
    assert graph.at_step(3) is None
    assert graph.revisions(3) == []
    assert graph.next_run() == 1
    # Asking does not add what was asked for.
    assert graph.steps() == []
    assert graph.descendants(ROOT) == set()


def test_ancestors_and_descendants_follow_every_edge():
    nodes = [node("a"), node("b", "a"), node("c", "b"), node("fork", "a"), node("lost", "gone")]
    graph = Graph(nodes, [EdgeName("fork", "c", "e1", 1), EdgeName("c", ROOT, "e2", 1)])
    assert graph.ancestors("c") == {"a", "b"}
    assert graph.ancestors("fork") == {"a", "b", "c"}
    assert graph.descendants("a") == {"b", "c", "fork"}
    assert graph.descendants("b") == {"c", "fork"}
    assert graph.descendants(ROOT) == {"a", "b", "c", "fork"}
    assert graph.ancestors("lost") == set()
    for ask in (graph.ancestors, graph.descendants, graph.path, graph.path_bytes):
        with pytest.raises(NotFoundError):
            ask("gone")


def test_a_missing_parent_is_named():
    graph = Graph([node("a", "gone"), node("b", "a")])
    with pytest.raises(CorruptionError, match="gone"):
        graph.path("b")
    graph.add(node("gone"))
    assert hops(graph.path("b")) == [(ROOT, "gone"), ("gone", "a"), ("a", "b")]


def test_no_path_leads_through_a_node_that_was_not_committed():
    graph = Graph([node("b", "ghost")], [EdgeName("ghost", ROOT, "e1", 1)])
    with pytest.raises(CorruptionError, match="ghost"):
        graph.path("b")


def test_circles_do_not_hang():
    graph = Graph([node("a", "c", 0), node("b", "a", 0), node("c", "b", 0), node("self", "self", 0)])
    for name in ("a", "b", "c", "self"):
        with pytest.raises(CorruptionError, match="circle"):
            graph.path(name)
    assert graph.ancestors("a") == {"b", "c"}
    assert graph.descendants("self") == set()
    graph.add_edge(EdgeName("b", ROOT, "e1", 7))
    assert hops(graph.path("a")) == [(ROOT, "b"), ("b", "c"), ("c", "a")]


def test_adding_the_same_again_is_nothing():
    graph = Graph(chain(3))
    edge = EdgeName("n2", ROOT, "e1", 1)
    graph.add(chain(3)[1])
    graph.add_edge(edge)
    graph.add_edge(edge)
    assert len(graph) == 3
    assert graph.revisions(10) == [chain(3)[1]]
    assert hops(graph.path("n2")) == [(ROOT, "n2")]


def test_hostile_names():
    good = node("a")
    for bad in (dataclasses.replace(good, base="b"), dataclasses.replace(good, nbytes=2)):
        with pytest.raises(CorruptionError, match="claim node a"):
            Graph([good, bad])
    with pytest.raises(CorruptionError, match="root"):
        Graph([node(ROOT)])
    with pytest.raises(CorruptionError, match="-1 bytes"):
        Graph([node("a", nbytes=-1)])
    with pytest.raises(CorruptionError, match="-1 bytes"):
        Graph([good], [EdgeName("a", ROOT, "e", -1)])
    with pytest.raises(CorruptionError, match="claim edge e"):
        Graph([good], [EdgeName("a", ROOT, "e", 1), EdgeName("a", ROOT, "e", 2)])
    assert Graph([good], [EdgeName(ROOT, "a", "e", 0)]).path_bytes("a") == 1


def test_a_refused_name_changes_nothing():
    graph = Graph(chain(2))
    for bad in (node("n1", "elsewhere"), node(ROOT), node("x", nbytes=-1)):
        with pytest.raises(CorruptionError):
            graph.add(bad)
    assert graph.latest().node == "n1"
    assert graph.steps() == [0, 10]
    assert graph.path_bytes("n1") == 2


def test_a_hundred_thousand_nodes():
    count = 100_000
    nodes = chain(count, nbytes=3)
    edges = [EdgeName(f"n{i}", f"n{i - 64}", f"e{i}", 70) for i in range(64, count, 64)]
    start = time.process_time()
    graph = Graph(nodes, edges)
    built = time.process_time()
    path = graph.path(f"n{count - 1}")
    found = time.process_time()
    assert sum(edge.nbytes for edge in path) == graph.path_bytes(f"n{count - 1}")
    assert len(path) < count / 60 + 64
    assert len(graph.ancestors(f"n{count - 1}")) == count - 1
    # Half a second and a quarter on two shared cores; the bounds only catch something quadratic.
    assert built - start < 5
    assert found - built < 5


def test_a_growing_run_stays_quick():
    graph = Graph()
    start = time.process_time()
    for item in chain(20_000):
        graph.add(item)
        assert graph.path_bytes(item.node) == item.seq + 1
    assert time.process_time() - start < 5


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1 << 20), st.integers(0, 40)), max_size=40))
def test_paths_asked_for_one_after_another_are_those_of_a_graph_that_was_asked_nothing(moves):
    """A run asks for the path to its head with each save, while anchors, forks and marks come beside."""
    graph, nodes, edges, condemned, head = Graph(), [], [], [], ROOT
    for number, (kind, pick, nbytes) in enumerate(moves):
        names = [name.node for name in nodes]
        if kind == 0 and names:
            edges.append(EdgeName(head, ROOT, f"e{number:03}", nbytes))  # an anchor beside the head
            graph.add_edge(edges[-1])
        elif kind == 1 and names:
            edges.append(EdgeName(names[pick % len(names)], ROOT, f"e{number:03}", nbytes))
            graph.add_edge(edges[-1])
        elif kind == 2 and names:
            condemned.append(names[pick % len(names)])
            graph.condemn(node=condemned[-1])
        else:
            base = names[pick % len(names)] if kind == 3 and names else head
            nodes.append(node(f"n{number:03}", base, nbytes, step=number, seq=number))
            graph.add(nodes[-1])
            head = nodes[-1].node
        for asked in {head, *(name.node for name in nodes[-3:])} if nodes else ():
            fresh = Graph(nodes, edges)
            for gone in condemned:
                fresh.condemn(node=gone)
            assert graph.path(asked) == fresh.path(asked)


def test_saves_are_counted_from_the_first_that_a_node_goes_back_to():
    nodes = [*chain(9), node("m0", seq=20), node("m1", "m0", seq=21), node("x", "gone", seq=30)]
    graph = Graph(nodes)
    assert [graph.saves_until(graph.nodes[name]) for name in ("n0", "n8", "m1", "x")] == [1, 9, 2, 30]
    rounds = Graph([node("a", "b", seq=4), node("b", "a", seq=7)])
    assert rounds.saves_until(rounds.nodes["a"]) == 4


def test_the_path_to_the_head_of_a_run_is_not_walked_with_each_save(monkeypatch):
    walked = []
    counted = lambda found, end: walked.append(end) or path_in(found, end)  # noqa: E731
    monkeypatch.setattr("lcstore.graph.graph.path_in", counted)
    graph = Graph()
    for number, name in enumerate(chain(50)):
        graph.add(name)
        for _ in range(2):
            path = graph.path(name.node)
            assert len(path) == number + 1
            path.clear()  # it is the caller's own
    assert len(walked) < 10


def test_a_graph_is_copied_while_another_thread_adds_to_it():
    """A handle saves in the background, and its program asks what restores cost."""
    graph = Graph(chain(4))

    class Beside(Graph):
        def add(self, node):
            graph.add(dataclasses.replace(node, node=f"{node.node}-more", step=1000))
            super().add(node)

    assert len(Beside(graph.nodes.values(), graph.edges.values())) == 4
    assert len(graph) == 8


def test_paths_that_are_found_while_another_thread_adds_a_node_lead_to_that_too(monkeypatch):
    """Kept without it they would be all that the graph knows from then on."""
    graph = Graph(chain(30))
    found = graph_module.cheapest_paths

    def slow(*how):
        paths = found(*how)
        adding = threading.Thread(target=graph.add, args=[node("late", "n29", seq=99)])
        adding.start()
        adding.join(0.2)  # it has to wait until they are kept
        threads.append(adding)
        return paths

    threads = []
    for name in graph.nodes:  # until all paths are found at once
        graph.path(name)
    graph.condemn(node="n7")
    monkeypatch.setattr(graph_module, "cheapest_paths", slow)
    graph.path("n29")
    monkeypatch.undo()
    threads[0].join()
    assert [edge.target for edge in graph.path("late")[-2:]] == ["n29", "late"]


def test_an_edge_that_is_avoided_already_has_no_path_found_anew(monkeypatch):
    graph = Graph(chain(30))
    damaged = graph.path("n9")[4]
    graph.avoid(damaged)
    for name in graph.nodes:
        graph.path(name)
    monkeypatch.setattr(graph_module, "cheapest_paths", None)
    graph.avoid(damaged)
    assert len(graph.path("n29")) == 30
