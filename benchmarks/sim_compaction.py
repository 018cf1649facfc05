"""What compaction does to a store of many thousand saves, on paper: names and sizes only.

    python -m benchmarks.sim_compaction [--quick | --long | --picture]

A pretend run saves deltas of 0.75 bits for each of ten million weights. Every so many saves the retention
policy lets nodes go, compaction carries out its plan (with real sizes that differ from the estimates by up to
5 %), and the collector deletes what is not needed. The table says what that cost and what restores are like;
the bounds are checked every time. `--picture` draws `docs/compaction.svg` from a small run of the same.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lcstore.graph.graph import Graph
from lcstore.graph.plan import Plan, needed, plan
from lcstore.graph.refs import ROOT, EdgeName, NodeName
from lcstore.graph.sizes import Sizes

ELEMENTS = 10_000_000
ANCHOR = 26 * ELEMENTS // 8
DELTA = 3 * ELEMENTS // 32


@dataclass
class History:
    """A store, by its names, and what the edges of it would really measure.

    Distances grow with the number of saves as its power `drift`: 1 where all go the same way. Compaction
    takes each for one that goes its own way: 0.5.
    """

    seed: int = 0
    drift: float = 0.5
    wrong: float = 0.05
    nodes: dict[str, NodeName] = field(default_factory=dict)
    edges: dict[str, EdgeName] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    saved: int = 0
    written: int = 0
    count: int = 0
    run: int = 1
    seq: int = 0

    def __post_init__(self) -> None:
        self.made = 0
        self.random = random.Random(self.seed)
        self.sizes = Sizes(ELEMENTS)
        self._spread: dict[str, float] = {ROOT: 0.0}

    def save(self, base: str, step: int) -> str:
        """Save a state that descends from `base`."""
        node = hashlib.sha256(f"{self.seed}/{self.count}".encode()).hexdigest()[:40]
        nbytes = ANCHOR if base == ROOT else int(DELTA * self.random.uniform(0.85, 1.15))
        own = self.sizes.spread(nbytes) ** (0.5 / self.drift) if base != ROOT else 0.0
        self._spread[node] = self._spread[base] + own
        self.nodes[node] = NodeName(step, self.run, f"r{self.run}", self.seq, node, base, nbytes)
        self.count += 1
        self.seq += 1
        self.saved += nbytes
        return node

    def resume(self) -> None:
        """Begin another run."""
        self.run += 1
        self.seq = 0

    def graph(self) -> Graph:
        graph = Graph(self.nodes.values(), self.edges.values())
        for node in self.gone:
            graph.condemn(node=node)
        return graph

    def compact(self, kept: set[str]) -> Plan:
        """Carry out the plan, and collect."""
        made = plan(self.graph(), kept, ELEMENTS)
        for shortcut in made.shortcuts:
            self.made += 1
            edge = f"e{self.made}"
            nbytes = self._measure(shortcut.base, shortcut.target)
            self.edges[edge] = EdgeName(shortcut.target, shortcut.base, edge, nbytes)
            self.written += nbytes
        self.collect(kept)
        return made

    def _measure(self, base: str, target: str) -> int:
        if base == ROOT:
            return ANCHOR
        true = self.sizes.nbytes((self._spread[target] - self._spread[base]) ** (2 * self.drift))
        return int(min(true, ANCHOR) * self.random.uniform(1 - self.wrong, 1 + self.wrong))

    def collect(self, kept: set[str]) -> None:
        needs = needed(self.graph(), kept, ELEMENTS)
        own = {edge.target for edge in needs if edge.edge is None}
        made = {edge.edge for edge in needs}
        stay = kept | {edge.base for edge in needs} | {edge.target for edge in needs}
        self.edges = {name: edge for name, edge in self.edges.items() if name in made}
        self.nodes = {name: node for name, node in self.nodes.items() if name in stay}
        self.gone = self.nodes.keys() - own

    def stored(self) -> int:
        own = sum(node.nbytes for name, node in self.nodes.items() if name not in self.gone)
        return own + sum(edge.nbytes for edge in self.edges.values())


Policy = Callable[[History], set[str]]


def latest_of_runs(history: History) -> set[str]:
    newest: dict[int, NodeName] = {}
    for node in history.nodes.values():
        if node.run not in newest or newest[node.run].seq < node.seq:
            newest[node.run] = node
    return {node.node for node in newest.values()}


def everything(history: History) -> set[str]:
    return set(history.nodes)


def last(count: int) -> Policy:
    def policy(history: History) -> set[str]:
        ordered = sorted(history.nodes.values(), key=lambda node: node.order)
        return {node.node for node in ordered[-count:]} | latest_of_runs(history)

    return policy


def every(steps: int) -> Policy:
    def policy(history: History) -> set[str]:
        some = {node.node for node in history.nodes.values() if node.step % steps == 0}
        return some | latest_of_runs(history)

    return policy


def thinning(history: History) -> set[str]:
    """Keep the last 64, half of the 64 before those, a quarter of the 128 before those, and so on."""
    now = max(node.step for node in history.nodes.values())
    found = latest_of_runs(history)
    for node in history.nodes.values():
        spacing = 1 << max(0, (now - node.step).bit_length() - 6)
        if node.step % spacing == 0:
            found.add(node.node)
    return found


@dataclass
class Scene:
    """A way to train and to let go."""

    name: str
    policy: Policy
    fork: float = 0.0
    back: float = 0.0
    drift: float = 0.5


SCENES = [
    Scene("keep everything", everything),
    Scene("last 100", last(100)),
    Scene("last 1000", last(1000)),
    Scene("every 100th", every(100)),
    Scene("thinning with age", thinning),
    Scene("forks, all kept", everything, fork=0.002),
    Scene("forks, every 10th", every(10), fork=0.002),
    Scene("rolled back, all kept", everything, back=0.005),
    Scene("rolled back, thinning", thinning, back=0.005),
    Scene("drifting, all kept", everything, drift=0.8),
]


@dataclass
class Outcome:
    """What a simulation came to."""

    name: str
    kept: int
    amplification: float
    stored: float
    edges: int
    bound: int
    mean_edges: float
    newest: float
    seconds: float


def simulate(scene: Scene, saves: int, every: int, seed: int = 0) -> Outcome:
    """Save, let go, compact, collect; check the bounds each time."""
    history = History(seed, scene.drift)
    chance = random.Random(seed + 1)
    at, step = ROOT, 0
    outcome = Outcome(scene.name, 0, 0.0, 0.0, 0, 0, 0.0, 0.0, 0.0)
    for number in range(1, saves + 1):
        at = history.save(at, step)
        step += 1
        if chance.random() < scene.fork:
            at = chance.choice(list(history.nodes.values())).node
            history.resume()
            step = history.nodes[at].step + 1
        elif chance.random() < scene.back:
            back = {node.step: node.node for node in history.nodes.values()}
            earlier = [s for s in back if step - 200 <= s < step]
            at = back[chance.choice(earlier)]
            history.resume()
            step = history.nodes[at].step + 1
        if number % every == 0 or number == saves:
            kept = scene.policy(history)
            # The one that training stands on is open in its writer.
            kept.add(at)
            began = time.perf_counter()
            history.compact(kept)
            took = time.perf_counter() - began
            look(history, kept, outcome)
            outcome.seconds = max(outcome.seconds, took)
    outcome.amplification = history.written / history.saved
    return outcome


def look(history: History, kept: set[str], outcome: Outcome) -> None:
    """Measure restores, and check what is promised of them."""
    graph = history.graph()
    latest = max((history.nodes[node] for node in kept), key=lambda node: node.order)
    paths = [graph.path(node) for node in kept]
    edges = [len(path) for path in paths]
    if any(graph.is_condemned(edge) for path in paths for edge in path):
        raise RuntimeError("a restore needs an edge that was collected")
    outcome.bound = len(kept).bit_length() + 1
    if max(edges) > outcome.bound:
        raise RuntimeError(f"a restore takes {max(edges)} edges, and {outcome.bound} were promised")
    outcome.kept, outcome.edges, outcome.mean_edges = len(kept), max(edges), sum(edges) / len(edges)
    delta = latest.nbytes if latest.base != ROOT else 0
    outcome.newest = max(outcome.newest, graph.path_bytes(latest.node) / (ANCHOR + delta))
    if outcome.newest > 1.1:
        raise RuntimeError(f"the newest state reads {outcome.newest:.2f} times an anchor and a delta")
    own = sum(min(history.nodes[node].nbytes, DELTA) for node in kept)
    outcome.stored = history.stored() / (own + ANCHOR)


def table(saves: int, each: int, scenes: list[Scene]) -> None:
    print(f"{saves} saves, compacted after every {each}\n")
    print(
        "| training and retention | kept | written | stored | edges | promised | mean | newest | slowest, s |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for scene in scenes:
        o = simulate(scene, saves, each)
        print(
            f"| {o.name} | {o.kept} | {o.amplification:.2f} | {o.stored:.2f} | {o.edges} | {o.bound} "
            f"| {o.mean_edges:.1f} | {o.newest:.2f} | {o.seconds:.1f} |",
            flush=True,
        )


def picture() -> str:
    """Draw 24 saves, of which the last eight and every fourth before are kept, before and after."""
    history, names, at = History(), [], ROOT
    for step in range(24):
        at = history.save(at, step)
        names.append(at)
    kept = {name for i, name in enumerate(names) if i % 4 == 0 or i >= 16}
    x = {name: 70 + 33 * i for i, name in enumerate(names)} | {ROOT: 24}
    before = history.graph()
    history.compact(kept)
    after = history.graph()
    parts = [_row(before, names, kept, x, 60), _row(after, names, kept, x, 250)]
    return _SVG.format("".join(parts))


_SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 300"
  font-family="sans-serif" font-size="13">
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">\
<path d="M0 0L8 4L0 8z" fill="#444"/></marker></defs>
<rect width="860" height="300" fill="#fff"/>
<text x="14" y="28" fill="#111">as saved: every edge a delta; the last is 24 edges from the root</text>
<text x="14" y="118" fill="#111">compacted and collected: blue states are kept, dashed ones are gone</text>
{}</svg>
"""


def _row(graph: Graph, names: list[str], kept: set[str], x: dict[str, int], y: int) -> str:
    """Draw the nodes and, as arcs where they skip something, the edges that restores use."""
    used = {edge for name in kept for edge in graph.path(name)}
    parts = ['<g stroke="#444" stroke-width="1.4" fill="none" marker-end="url(#a)">']
    for edge in sorted(used, key=lambda edge: (x[edge.base], x[edge.target])):
        a, b = x[edge.base] + 10, x[edge.target] - 10
        if edge.edge is None:
            parts.append(f'<path d="M{a} {y}H{b}"/>')
        else:
            top = y - 14 - (b - a) * 0.28
            parts.append(f'<path d="M{a - 5} {y - 9}Q{(a + b) / 2:.0f} {top:.0f} {b + 5} {y - 9}"/>')
    parts.append('</g><g stroke="#444" stroke-width="1.3">')
    parts.append(f'<circle cx="{x[ROOT]}" cy="{y}" r="9" fill="#fff" stroke-dasharray="3 2"/>')
    for name in names:
        look = 'fill="#dbe9ff"' if name in kept else 'fill="#fff"'
        if name not in graph:
            look += ' stroke-dasharray="2 3" stroke="#aaa"'
        parts.append(f'<circle cx="{x[name]}" cy="{y}" r="9" {look}/>')
    parts.append('</g><g text-anchor="middle" font-size="9" fill="#111">')
    parts += [f'<text x="{x[name]}" y="{y + 3}">{i}</text>' for i, name in enumerate(names)]
    return "\n".join(parts) + "</g>\n"


def main() -> None:
    if "--picture" in sys.argv:
        (Path(__file__).parents[1] / "docs" / "compaction.svg").write_text(picture())
    elif "--quick" in sys.argv:
        table(4_000, 500, SCENES)
    elif "--long" in sys.argv:
        table(100_000, 5_000, SCENES[:5])
    else:
        table(10_000, 500, SCENES)


if __name__ == "__main__":
    main()
