"""Pretend stores for the tests of planning: names, and what edges would really measure."""

from __future__ import annotations

import hashlib
import random

from lcstore.graph.graph import Graph
from lcstore.graph.plan import needed, plan
from lcstore.graph.refs import ROOT, EdgeName, NodeName
from lcstore.graph.sizes import Sizes

ELEMENTS = 100_000_000
ANCHOR = 26 * ELEMENTS // 8
DELTA = 3 * ELEMENTS // 32


class History:
    """Saves, compacts and collects, on paper. Real sizes differ from the estimates by up to `wrong`.

    With the number of saves distances grow as its power `drift`: 1 where all go the same way, 0.5 where each
    goes a way of its own, for which all are taken by estimates.
    """

    def __init__(self, seed=0, drift=0.5, wrong=0.05):
        self.random = random.Random(seed)
        self.drift, self.wrong = drift, wrong
        self.sizes = Sizes(ELEMENTS)
        self.spread = {ROOT: 0.0}
        self.nodes, self.edges, self.gone = {}, {}, set()
        self.run, self.saved, self.written = 1, 0, 0

    def save(self, base, step=0):
        count = len(self.spread)
        node = hashlib.sha256(f"node {count}".encode()).hexdigest()[:40]
        nbytes = ANCHOR if base == ROOT else int(DELTA * self.random.uniform(0.85, 1.15))
        own = self.sizes.spread(nbytes) ** (0.5 / self.drift) if base != ROOT else 0.0
        self.spread[node] = self.spread[base] + own
        self.nodes[node] = NodeName(step, self.run, f"r{self.run}", count, node, base, nbytes)
        self.saved += nbytes
        return node

    def chain(self, count, base=ROOT):
        """Save so many states one after another, and return their ids."""
        ids = []
        for step in range(count):
            base = self.save(base, step)
            ids.append(base)
        return ids

    def graph(self):
        graph = Graph(self.nodes.values(), self.edges.values())
        for node in self.gone:
            graph.condemn(node=node)
        return graph

    def plan(self, kept, **options):
        return plan(self.graph(), kept, ELEMENTS, **options)

    def needed(self, kept):
        return needed(self.graph(), kept, ELEMENTS)

    def carry_out(self, made):
        for shortcut in made.shortcuts:
            nbytes = ANCHOR
            if shortcut.base != ROOT:
                apart = self.spread[shortcut.target] - self.spread[shortcut.base]
                true = self.sizes.nbytes(apart ** (2 * self.drift))
                nbytes = int(min(true, ANCHOR) * self.error(shortcut))
            edge = f"e{self.random.getrandbits(64)}"
            self.edges[edge] = EdgeName(shortcut.target, shortcut.base, edge, nbytes)
            self.written += nbytes

    def error(self, shortcut):
        """How many times larger an edge turns out than it should be."""
        return self.random.uniform(1 - self.wrong, 1 + self.wrong)

    def collect(self, kept):
        needs = self.needed(kept)
        stay = set(kept).union(*({edge.base, edge.target} for edge in needs))
        made = {edge.edge for edge in needs}
        self.edges = {name: edge for name, edge in self.edges.items() if name in made}
        self.nodes = {name: node for name, node in self.nodes.items() if name in stay}
        self.gone = self.nodes.keys() - {edge.target for edge in needs if edge.edge is None}

    def compact(self, kept):
        made = self.plan(kept)
        self.carry_out(made)
        self.collect(kept)
        return made

    def stored(self):
        own = sum(node.nbytes for name, node in self.nodes.items() if name not in self.gone)
        return own + sum(edge.nbytes for edge in self.edges.values())

    def most_edges(self, kept):
        graph = self.graph()
        return max(len(graph.path(node)) for node in kept)


class Stubborn(History):
    """An edge that is made again is as wrong as it was before: up to so many times larger or smaller."""

    def error(self, shortcut):
        own = random.Random(f"{shortcut.base} {shortcut.target}")
        return own.uniform(1 / (1 + self.wrong), 1 + self.wrong)
