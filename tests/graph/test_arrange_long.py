"""Compaction night after night: bounds after each, and what all of them together wrote."""

from __future__ import annotations

import math
import random
import time

import pytest
from graph_histories import ANCHOR, DELTA, ELEMENTS, History

from lcstore.graph.graph import Graph
from lcstore.graph.plan import needed, plan
from lcstore.graph.refs import ROOT, NodeName

pytestmark = pytest.mark.once


def everything(nodes):
    return set(nodes)


def last_hundred(nodes):
    return set(sorted(nodes, key=lambda node: nodes[node].order)[-100:])


def every_tenth(nodes):
    return {name for name, node in nodes.items() if node.step % 10 == 0}


def thinned_with_age(nodes):
    now = max(node.step for node in nodes.values())
    return {
        name
        for name, node in nodes.items()
        if node.step % (1 << max(0, (now - node.step).bit_length() - 6)) == 0
    }


def train(policy, saves, each, *, seed=0, forks=0.0, back=0.0, drift=0.5):
    """Save, and every so often let go, compact, collect and look; return how much that wrote and stored."""
    history, chance = History(seed, drift), random.Random(seed)
    at, step = ROOT, 0
    for number in range(1, saves + 1):
        at = history.save(at, step)
        step += 1
        if chance.random() < forks + back:
            names = [n for n in history.nodes.values() if forks or step - 100 <= n.step]
            at = chance.choice(names).node
            history.run += 1
            step = history.nodes[at].step + 1
        if number % each == 0:
            newest = {node.run: name for name, node in sorted(history.nodes.items(), key=lambda n: n[1].seq)}
            kept = policy(history.nodes) | set(newest.values()) | {at}
            made = history.compact(kept)
            look(history, kept, made)
    return history.written / history.saved, history.stored() / (ANCHOR + DELTA * len(kept))


def look(history, kept, made):
    graph = history.graph()
    depth = {}
    latest = max((history.nodes[node] for node in kept), key=lambda node: node.order)
    for node in kept:
        path = graph.path(node)
        depth[node] = len(path)
        assert not any(graph.is_condemned(edge) for edge in path)
    assert max(depth.values()) <= math.floor(math.log2(len(kept))) + 2
    limit = 1.1 * (ANCHOR + (latest.nbytes if latest.base != ROOT else 0))
    assert graph.path_bytes(latest.node) <= limit
    # Whether deltas go the same way is not known when they are planned for.
    assert made.stored_after == pytest.approx(history.stored(), rel=0.03 if history.drift == 0.5 else 0.2)
    assert history.plan(kept).shortcuts == ()


# Bounds on bytes written by compaction for each byte saved, and stored for each that the deltas of kept nodes
# had, a fifth above what was measured. Kept nodes far apart cannot be as small as deltas of neighbours.
SCENES = {
    "keep everything": (everything, {}, 0.85, 1.75),
    "last hundred": (last_hundred, {}, 0.65, 2.2),
    "every tenth": (every_tenth, {}, 0.6, 4.0),
    "thinned with age": (thinned_with_age, {}, 1.25, 4.5),
    "forks": (everything, {"forks": 0.01}, 0.7, 1.75),
    "rolled back": (thinned_with_age, {"back": 0.01}, 1.3, 4.5),
    "drifting": (everything, {"drift": 0.8}, 1.1, 2.2),
}


@pytest.mark.parametrize("name", SCENES)
def test_bounds_hold_night_after_night(name):
    policy, how, written, stored = SCENES[name]
    amplification, factor = train(policy, 2000, 200, **how)
    assert amplification <= written
    assert factor <= stored


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SCENES)
def test_bounds_hold_for_ten_thousand_saves(name, seed):
    policy, how, written, stored = SCENES[name]
    amplification, factor = train(policy, 10_000, 500, seed=seed, **how)
    assert amplification <= written * 1.3
    assert factor <= stored * 1.3


@pytest.mark.parametrize("policy", [last_hundred, everything])
def test_compacting_after_every_few_saves_writes_little_for_each(policy):
    """A constant number of edges for each save, not a rewrite of what is there."""
    history, at = History(), ROOT
    made = []
    for step in range(300):
        at = history.save(at, step)
        if step % 3 == 2:
            made.append(len(history.compact(policy(history.nodes)).shortcuts))
    assert sum(made[50:]) / len(made[50:]) <= 3
    assert max(made) <= 40


def test_letting_one_node_go_plans_a_few_edges_at_most():
    history = History()
    kept = set(history.chain(500))
    history.compact(kept)
    planned = []
    for node in random.Random(0).sample(sorted(kept), 20):
        kept.discard(node)
        planned.append(len(history.compact(kept).shortcuts))
    assert sum(planned) / len(planned) <= 2


def test_a_hundred_thousand_nodes_are_planned_without_recursion_in_reasonable_time():
    nodes = [
        NodeName(i, 1, "r", i, f"{i:08x}", f"{i - 1:08x}" if i else ROOT, DELTA if i else ANCHOR)
        for i in range(100_000)
    ]
    graph = Graph(nodes)
    kept = {node.node for node in nodes[::100]} | {nodes[-1].node}
    began = time.process_time()
    made = plan(graph, kept, ELEMENTS)
    needed(graph, kept, ELEMENTS)
    # Three seconds on shared cores; the limit only rules out that it is more than linear.
    assert time.process_time() - began < 20
    assert made.edges_after <= math.floor(math.log2(len(kept))) + 2
    assert made.edges_before == 100_000
