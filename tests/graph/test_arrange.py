"""What compaction plans and the collector keeps: bounds, and what must hold of any names."""

from __future__ import annotations

import math
import pickle
import random

import graph_histories
import plain_plan
import pytest
from graph_histories import ANCHOR, DELTA, ELEMENTS, History, Stubborn
from hypothesis import given
from hypothesis import strategies as st

from lcstore.durability import NAMED, Durability
from lcstore.graph import newest
from lcstore.graph.graph import Graph
from lcstore.graph.plan import Shortcut, needed, plan
from lcstore.graph.refs import ROOT, EdgeName, EdgeRef, NodeName
from lcstore.graph.sizes import Sizes

pytestmark = pytest.mark.once


def bound(kept):
    return math.floor(math.log2(len(kept))) + 2


def newest_limit(node):
    return 1.1 * (ANCHOR + (node.nbytes if node.base != ROOT else 0))


def test_one_node_needs_its_anchor_and_nothing_is_planned():
    history = History()
    (node,) = history.chain(1)
    made = history.plan({node})
    assert made.shortcuts == ()
    assert (made.stored_before, made.stored_after, made.edges_after) == (ANCHOR, ANCHOR, 1)
    assert history.needed({node}) == {EdgeRef(ROOT, node, None, ANCHOR)}


def test_nothing_kept_needs_nothing():
    history = History()
    history.chain(5)
    assert history.plan(set()).stored_after == 0
    assert history.needed(set()) == frozenset()


def test_a_short_chain_is_left_as_it_is():
    history = History()
    ids = history.chain(4)
    assert history.plan(ids).shortcuts == ()


def test_a_long_gap_of_retired_nodes_becomes_one_edge():
    history = History()
    ids = history.chain(101)
    kept = {ids[0], ids[-1]}
    made = history.plan(kept)
    shortcut, *anchors = made.shortcuts
    assert (shortcut.base, shortcut.target, shortcut.span) == (ids[0], ids[-1], 100)
    # The latest is read most.
    assert {(anchor.base, anchor.target) for anchor in anchors} <= {(ROOT, ids[-1])}
    assert DELTA < shortcut.nbytes < 6 * DELTA
    history.compact(kept)
    assert history.nodes.keys() == kept


def test_a_short_gap_is_not_worth_writing():
    history = History()
    ids = history.chain(3)
    assert history.plan({ids[0], ids[2]}).shortcuts == ()
    assert len(history.needed({ids[0], ids[2]})) == 3


def test_a_shared_prefix_is_merged_once():
    """Forty retired saves, then a fork whose branches are kept: one merge up to the fork."""
    history = History()
    trunk = history.chain(41)
    tips = [history.chain(1, trunk[-1])[0] for _ in range(5)]
    made = history.plan({trunk[0], *tips})
    into = [s for s in made.shortcuts if s.target == trunk[-1]]
    assert len(into) == 1
    assert into[0].base == trunk[0]


def test_no_merge_to_a_retired_fork_of_which_part_is_gone():
    history = History()
    trunk = history.chain(41)
    tips = [history.chain(1, trunk[-1])[0] for _ in range(5)]
    made = history.plan({trunk[0], *tips}, partial={trunk[-1]})
    assert {s.target for s in made.shortcuts} <= set(tips)
    # A kept one stays on the edges that it has, however many.
    kept = {trunk[0], trunk[-1], tips[0]}
    assert trunk[-1] in {s.target for s in history.plan(kept).shortcuts}
    made = history.plan(kept, partial={trunk[-1]})
    assert trunk[-1] not in {s.target for s in made.shortcuts}
    assert made.edges_after == 41


@pytest.mark.parametrize("count", [1, 2, 3, 10, 31, 32, 33, 300, 1000])
def test_bounds_hold_for_a_chain_that_is_kept_whole(count):
    history = History()
    kept = set(history.chain(count))
    latest = max(history.nodes.values(), key=lambda node: node.order)
    made = history.compact(kept)
    assert history.most_edges(kept) <= bound(kept)
    assert made.edges_after <= bound(kept)
    assert history.graph().path_bytes(latest.node) <= newest_limit(latest)
    assert made.stored_after == pytest.approx(history.stored(), rel=0.05)
    assert history.plan(kept).shortcuts == ()


def test_saves_that_keep_going_the_same_way_get_new_anchors():
    history = History(drift=1.0)
    kept = set(history.chain(600))
    latest = max(history.nodes.values(), key=lambda node: node.order)
    assert any(shortcut.base == ROOT for shortcut in history.compact(kept).shortcuts)
    assert history.graph().path_bytes(latest.node) <= newest_limit(latest)
    assert history.most_edges(kept) <= bound(kept)


def test_a_condemned_anchor_is_made_again():
    history = History()
    ids = history.chain(4)
    history.gone = {ids[0]}
    made = history.plan(set(ids))
    lost = EdgeRef(ROOT, ids[0], None, ANCHOR)
    assert made.shortcuts == (Shortcut(ROOT, ids[0], ANCHOR, 1, (lost,)),)
    history.carry_out(made)
    assert all(edge != EdgeRef(ROOT, ids[0], None, ANCHOR) for edge in history.needed(set(ids)))


def test_a_node_behind_a_condemned_edge_gets_a_fresh_one():
    history = History()
    ids = history.chain(4)
    history.gone = {ids[3]}
    made = history.plan(set(ids))
    assert [s.target for s in made.shortcuts] == [ids[3]]
    history.compact(set(ids))
    graph = history.graph()
    assert not any(graph.is_condemned(edge) for node in ids for edge in graph.path(node))


@pytest.mark.parametrize("elements", [1, 100, 10_000, ELEMENTS])
def test_an_edge_that_came_out_larger_than_estimated_is_not_made_again(elements):
    """Of small models it may: what is not weights is most of it, and estimates know nothing of that."""
    history = History()
    ids = history.chain(2)
    history.gone = {ids[1]}
    for nbytes in (DELTA, 2 * DELTA, ANCHOR // 2):
        made = [EdgeName(ids[1], ids[0], "made", nbytes)]
        graph = condemned_graph(history.nodes.values(), made, history.gone)
        assert plan(graph, {ids[1]}, elements).shortcuts == ()


def test_without_a_plan_the_path_over_condemned_edges_is_needed():
    history = History()
    ids = history.chain(3)
    history.gone = {ids[0]}
    assert len(history.needed({ids[2]})) == 3


def test_what_stands_on_a_missing_node_is_not_planned_and_not_let_go():
    history = History()
    ids = history.chain(5)
    del history.nodes[ids[1]]
    assert history.plan({ids[0], ids[4]}).shortcuts == ()
    needs = {edge.target for edge in history.needed({ids[0], ids[4]})}
    assert needs == {ids[0], ids[2], ids[3], ids[4]}


def test_a_budget_is_kept_and_spent_on_what_is_most_useful():
    history = History()
    ids = history.chain(2000)
    kept = set(ids[::50]) | {ids[-1]}
    whole = history.plan(kept)
    for part in (0.1, 0.5, 0.9):
        made = history.plan(kept, max_bytes=int(whole.written * part))
        assert made.written <= whole.written * part
        assert made == history.plan(kept, max_bytes=int(whole.written * part))
        freed = whole.stored_before - whole.stored_after
        # In a chain every edge stands for as many others, so a part of the writing frees about that part.
        assert made.stored_before - made.stored_after >= 0.7 * part * freed
    assert history.plan(kept, max_bytes=whole.written) == whole
    assert history.plan(kept, max_bytes=0).shortcuts == ()


def test_short_merges_come_before_the_long_ones_that_can_use_them():
    history = History()
    made = history.plan(set(history.chain(500)))
    spans = [shortcut.span for shortcut in made.shortcuts]
    assert spans == sorted(spans)
    assert spans[-1] > spans[0]


def test_a_plan_does_not_depend_on_the_order_of_a_listing():
    history = History()
    ids = history.chain(300)
    kept = set(ids[::3])
    names = list(history.nodes.values())
    random.Random(1).shuffle(names)
    assert plan(Graph(names), kept, ELEMENTS) == history.plan(kept)


@pytest.mark.parametrize("elements", [0, -1])
def test_a_state_without_weights_cannot_be_planned_for(elements):
    with pytest.raises(ValueError, match="elements"):
        plan(Graph(), set(), elements)


# Any names at all, circles and missing nodes among them.

NAMES = [f"n{i}" for i in range(9)]
names = st.sampled_from(NAMES)
bases = names | st.just(ROOT) | st.just("gone")
sizes = st.integers(0, 40_000_000)
hostile_nodes = st.lists(
    st.builds(NodeName, st.just(0), st.integers(1, 2), st.just("r"), st.integers(0, 3), names, bases, sizes),
    unique_by=lambda node: node.node,
    max_size=9,
)
hostile_edges = st.lists(st.tuples(names, bases, sizes), max_size=8).map(
    lambda found: [EdgeName(target, base, f"e{i}", n) for i, (target, base, n) in enumerate(found)]
)


def reached(nodes, edges):
    """The nodes that edges lead to from the root."""
    found, grew = {ROOT}, True
    while grew:
        new = {edge.target for edge in edges if edge.base in found and edge.target in nodes} - found
        found |= new
        grew = bool(new)
    return found


def all_edges(graph):
    own = [EdgeRef(node.base, node.node, None, node.nbytes) for node in graph.nodes.values()]
    return own + [EdgeRef(e.base, e.target, e.edge, e.nbytes) for e in graph.edges.values()]


def condemned_graph(nodes, edges, condemned):
    graph = Graph(nodes, edges)
    for name in condemned:
        graph.condemn(node=name) if name.startswith("n") else graph.condemn(edge=name)
    return graph


def with_plan(graph, made):
    """The same names, and the plan's edges."""
    new = [EdgeName(s.target, s.base, f"p{i}", s.nbytes) for i, s in enumerate(made.shortcuts)]
    again = Graph(graph.nodes.values(), [*graph.edges.values(), *new])
    again.condemned_nodes |= graph.condemned_nodes
    again.condemned_edges |= graph.condemned_edges
    return again


condemnations = st.sets(names | st.sampled_from([f"e{i}" for i in range(4)]), max_size=3)


@given(hostile_nodes, hostile_edges, condemnations, st.sets(names))
def test_whatever_could_be_restored_still_can_be(nodes, edges, condemned, kept):
    graph = condemned_graph(nodes, edges, condemned)
    before = reached(graph.nodes, all_edges(graph)) & kept
    needs = needed(graph, kept, 1_000_000)
    assert needs <= set(all_edges(graph))
    assert before <= reached(graph.nodes, needs)
    sound = [edge for edge in all_edges(graph) if not graph.is_condemned(edge)]
    sound_needs = [edge for edge in needs if not graph.is_condemned(edge)]
    assert reached(graph.nodes, sound) & kept <= reached(graph.nodes, sound_needs)


def without_others(graph, needs):
    """What is left when all other edges are deleted, and the nodes that nothing stands on."""
    left = Graph(graph.nodes.values(), [e for e in graph.edges.values() if e.edge in {n.edge for n in needs}])
    gone = graph.nodes.keys() - {edge.target for edge in needs if edge.edge is None}
    for node in gone | graph.condemned_nodes:
        left.condemn(node=node)
    for edge in graph.condemned_edges & left.edges.keys():
        left.condemn(edge=edge)
    return left


@given(hostile_nodes, hostile_edges, condemnations, st.sets(names))
def test_what_is_needed_stays_needed_when_the_rest_is_gone(nodes, edges, condemned, kept):
    graph = condemned_graph(nodes, edges, condemned)
    needs = needed(graph, kept, 1_000_000)
    assert needed(without_others(graph, needs), kept, 1_000_000) == needs


@given(hostile_nodes, hostile_edges, condemnations, st.sets(names), st.sampled_from([1, 1000, 1_000_000]))
def test_a_plan_makes_every_kept_node_sound_and_near(nodes, edges, condemned, kept, elements):
    graph = condemned_graph(nodes, edges, condemned)
    present = reached(graph.nodes, all_edges(graph)) & kept
    made = plan(graph, kept, elements)
    there = {(edge.base, edge.target) for edge in all_edges(graph) if not graph.is_condemned(edge)}
    for shortcut in made.shortcuts:
        # What is to be merged is there: a path leads from the base to the target.
        assert graph.path(shortcut.target, shortcut.base)
        assert (shortcut.base, shortcut.target) not in there  # it would be that edge again
    after = with_plan(graph, made)
    needs = needed(after, kept, elements)
    left = without_others(after, needs)
    for name in present:
        path = left.path(name)
        assert not any(left.is_condemned(edge) or graph.is_condemned(edge) for edge in path)
        assert len(path) <= bound(present)


@given(hostile_nodes, hostile_edges, st.sets(names))
def test_planning_again_finds_nothing_and_the_prediction_comes_true(nodes, edges, kept):
    graph = Graph(nodes, edges)
    made = plan(graph, kept, 1_000_000)
    after = with_plan(graph, made)
    assert plan(after, kept, 1_000_000).shortcuts == ()
    present = reached(graph.nodes, all_edges(graph)) & kept
    assert sum(edge.nbytes for edge in needed(after, present, 1_000_000)) == made.stored_after


durabilities = st.sampled_from([*NAMED.values(), Durability(anchor_every=3), Durability(anchor_ratio=1.0)])
budgets = st.sampled_from([None, 0, 10**6, 10**8, 10**9])


def check_twins(graph, kept, elements, *, durability, **only_plan):
    """What is planned and needed is what the plain twins say, to the last byte; return the plan."""
    made = plan(graph, kept, elements, durability=durability, **only_plan)
    assert made == plain_plan.plan(graph, kept, elements, durability=durability, **only_plan)
    needs = needed(graph, kept, elements, durability=durability)
    assert needs == plain_plan.needed(graph, kept, elements, durability=durability)
    return made


@given(
    hostile_nodes, hostile_edges, condemnations, st.sets(names), st.sets(names, max_size=2),
    st.sampled_from([1, 1000, 1_000_000]), budgets, durabilities,
)  # fmt: skip
def test_of_any_names_the_plan_is_that_of_the_plain_twin(
    nodes, edges, condemned, kept, partial, elements, budget, durability
):
    graph = condemned_graph(nodes, edges, condemned)
    check_twins(graph, kept, elements, durability=durability, max_bytes=budget, partial=partial)


def test_of_needless_edges_that_a_plan_would_make_again_one_stays_and_always_the_same():
    """Of two that were as large, it was one or the other by chance."""
    nodes = [
        NodeName(0, 2, "s", 2, "n0", ROOT, 39_000_013),
        NodeName(0, 1, "s", 3, "n1", "n1", 30_000_010),
        NodeName(0, 1, "r", 15, "n2", "n0", 15_000_005),
    ]
    edges = [
        EdgeName("n0", ROOT, "e5", 39_000_013),
        EdgeName("n1", "n2", "e6", 3_000_001),
        EdgeName("n0", "n2", "e8", 39_000_013),
        EdgeName("n0", "n1", "e9", 0),
        EdgeName("n2", ROOT, "e11", 36_000_012),
    ]
    needs = needed(Graph(nodes, edges), {"n0", "n2"}, 1000)
    assert [edge.edge for edge in needs if edge.base == ROOT and edge.target == "n0"] == [None]


@st.composite
def trees(draw):
    """A history of saves, forks and anchors, what is kept of it, and how much of that is kept later."""
    history = History(seed=draw(st.integers(0, 99)), wrong=draw(st.sampled_from([0.0, 0.08])))
    ids = []
    for _ in range(draw(st.integers(1, 12))):
        base = draw(st.sampled_from([ROOT, *ids[-40:]])) if ids else ROOT
        history.run += 1
        ids += history.chain(draw(st.integers(1, 40)), base)
    first, second = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    return history, {i for n, i in enumerate(ids) if n % first == 0}, second


@given(trees())
def test_a_shortcut_names_what_it_sums_from_what_is_there_or_made_before(tree):
    history, kept, _ = tree
    there, made = set(history.graph().refs()), set()
    for shortcut in history.plan(kept).shortcuts:
        at = shortcut.base
        for edge in shortcut.inputs:
            assert edge.base == at
            assert edge in there or (edge.is_planned and (edge.base, edge.target) in made)
            at = edge.target
        assert at == shortcut.target
        made.add((shortcut.base, shortcut.target))
        assert pickle.loads(pickle.dumps(shortcut)) == shortcut  # plain data, for other machines


def settle(history, kept):
    """What is estimated from other edges once these are collected may pay a little more, once."""
    more = history.plan(kept)
    assert more.written <= 0.3 * history.stored()
    history.carry_out(more)
    assert history.plan(kept).shortcuts == ()
    history.collect(kept)
    assert history.plan(kept).shortcuts == ()


@given(trees())
def test_laws_of_a_history(tree):
    history, kept, second = tree
    for keep in (1, second):
        kept = {node for n, node in enumerate(sorted(kept)) if n % keep == 0}
        made = history.plan(kept)
        history.carry_out(made)
        assert history.plan(kept).shortcuts == ()
        history.collect(kept)
        # Where an edge came out smaller than estimated, another may turn out to be needless.
        assert history.stored() <= made.stored_after * (1.001 + history.wrong)
        if not history.wrong:
            assert history.stored() >= made.stored_after * 0.999
        assert history.most_edges(kept) <= bound(kept)
        newest = max((history.nodes[node] for node in kept), key=lambda node: node.order)
        assert history.graph().path_bytes(newest.node) <= newest_limit(newest)
        settle(history, kept)


@pytest.mark.parametrize("wrong", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(12))
def test_maintenance_settles_however_wrong_the_estimates_are(wrong, seed):
    """What came out too large to be needed was made and deleted again, night after night."""
    chance = random.Random(seed)
    history, ids = Stubborn(seed, wrong=wrong), []
    for _ in range(chance.randint(1, 12)):
        history.run += 1
        ids += history.chain(chance.randint(1, 40), chance.choice([ROOT, *ids[-40:]]) if ids else ROOT)
    kept = set(ids[:: chance.randint(1, 12)])
    nights = [history.compact(kept).shortcuts for _ in range(8)]
    assert nights[-1] == (), [len(made) for made in nights]
    needs = history.needed(kept)
    history.collect(kept)
    assert history.needed(kept) == needs


@given(trees(), durabilities, st.integers(0, 99))
def test_of_a_history_the_plan_is_that_of_the_plain_twin_night_after_night(tree, durability, seed):
    history, kept, second = tree
    chance = random.Random(seed)
    for keep in (1, second, 1):
        kept = {node for n, node in enumerate(sorted(kept)) if n % keep == 0}
        ids = sorted(history.nodes)
        for node in chance.sample(ids, min(2, len(ids))):  # what writers add
            history.edges[f"a{node}"] = EdgeName(node, ROOT, f"a{node}", ANCHOR)
        history.gone |= set(chance.sample(ids, chance.choice([0, 0, min(3, len(ids))])))
        history.carry_out(check_twins(history.graph(), kept, ELEMENTS, durability=durability))
        check_twins(history.graph(), kept, ELEMENTS, durability=durability)
        history.collect(kept)


@given(trees())
def test_collecting_twice_lets_go_of_nothing_more(tree):
    history, kept, _ = tree
    history.compact(kept)
    needs = history.needed(kept)
    history.collect(kept)
    assert history.needed(kept) == needs


@pytest.mark.parametrize(("free", "anchors"), [(0, True), (newest.FREE_READS, False)])
def test_newest_states_of_small_runs_need_no_anchors_of_their_own(monkeypatch, free, anchors):
    """Of a sweep of small models they were most of what was stored, to save reads that take no time."""
    monkeypatch.setattr(newest, "FREE_READS", free)
    for name, value in {"ELEMENTS": 10**5, "ANCHOR": 325_000, "DELTA": 40_000}.items():
        monkeypatch.setattr(graph_histories, name, value)
    history = History()
    history.sizes = Sizes(10**5)
    begin = history.chain(10)[-1]
    ends = set()
    for _ in range(6):
        history.run += 1
        ends.add(history.chain(22, begin)[-1])
    made = history.plan(set(history.nodes))
    assert any(shortcut.base == ROOT for shortcut in made.shortcuts) == anchors
    history.carry_out(made)
    assert made.edges_after <= bound(history.nodes)
    assert all(history.graph().path_bytes(node) < 1 << 22 for node in ends)
    assert history.plan(set(history.nodes)).shortcuts == ()
