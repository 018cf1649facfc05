"""Random histories of one store, and the proof that all of it stays what it was, over every path."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from states import leaves

import lcstore
from lcstore import InvalidInputError
from lcstore.edges.compose import Composer
from lcstore.graph.graph import Graph
from lcstore.graph.refs import ROOT, EdgeRef
from lcstore.read.node import Node
from lcstore.read.reader import Reader
from lcstore.read.resolved import Resolved
from lcstore.state.names import format_name
from lcstore.storage.memory import MemoryBackend

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
WEIGHTS = {
    "embed.weight": ((40, 33), np.dtype(np.float32)),
    "mix.weight": ((48, 32), BFLOAT16),
    "deep.weight": ((12, 70), np.dtype(np.float64)),
    "half.weight": ((16, 40), np.dtype(np.float16)),
}
#: So small that the pools of these states have several chunks.
CHUNK = 2048

#: What was committed, or what a restore gave, by path of tensor: the hash of the bytes.
Sums = dict[str, str]


def hashed(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


class Training:
    """A pretend run, in which tensors of many kinds move, stand still, come, go and outgrow their grids."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rng = np.random.default_rng(chance.getrandbits(32))
        self.model: dict[str, np.ndarray] = {}
        for name in ("embed.weight", "mix.weight", "deep.weight"):
            self.appear(name)
        self.model["bn.running_mean"] = self.rng.standard_normal(9).astype(np.float32)
        self.model["ids"] = np.arange(12).reshape(3, 4)
        self.optimizer = True
        self.count = 0

    def appear(self, name: str) -> None:
        shape, dtype = WEIGHTS[name]
        self.model[name] = self.rng.standard_normal(shape).astype(dtype)

    def train(self) -> None:
        """One interval: mostly a small step, now and then something else."""
        self.count += 1
        size = self.chance.choice([1e-3] * 8 + [1e-5, 1e-2, 0.3])
        still = self.chance.random() < 0.1
        for name, array in self.model.items():
            if name.endswith(".weight") and not still and self.chance.random() < 0.9:
                self._move(name, array.astype(np.float64), size)
            elif name == "bn.running_mean" and self.chance.random() < 0.5:
                self.model[name] = array + np.float32(0.01)
            elif name == "ids" and self.chance.random() < 0.2:
                self.model[name] = array + 1
        if self.chance.random() < 0.15:
            self.surprise()

    def _move(self, name: str, values: np.ndarray, size: float) -> None:
        moved = values + self.rng.standard_normal(values.shape) * size
        self.model[name] = np.clip(moved, -6e4, 6e4).astype(self.model[name].dtype)

    def surprise(self) -> None:
        name = self.chance.choice(list(WEIGHTS))
        array = self.model.get(name)
        if array is None:
            self.appear(name)
            return
        what = self.chance.choice(["gone", "grown", "zero", "jump", "tiny", "dtype", "optimizer", "nan"])
        if what == "gone":
            del self.model[name]
        elif what == "grown":
            self.model[name] = np.concatenate([array, array[:3]])
        elif what == "zero":
            self.model[name] = np.zeros_like(array)
        elif what in ("jump", "tiny"):
            factor = 500.0 if what == "jump" else 1e-4
            self._move(name, np.clip(array.astype(np.float64) * factor, -5e4, 5e4), 1e-3)
        elif what == "dtype":
            self.model[name] = array.astype(self.chance.choice([np.float32, BFLOAT16, np.float64]))
        elif what == "optimizer":
            self.optimizer = not self.optimizer
        elif self.chance.random() < 0.3:
            self.model[name] = array.copy()
            self.model[name].reshape(-1)[0] = np.nan

    def tree(self) -> dict[str, Any]:
        tree: dict[str, Any] = {"model": dict(self.model), "epoch": self.count}
        if self.optimizer:
            of = [name for name in ("embed.weight", "mix.weight") if name in self.model]
            tree["optim"] = {"state": {name: self._moments(self.model[name].shape) for name in of}}
        return tree

    def _moments(self, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        return {
            "step": np.float32(self.count),
            "exp_avg": self.rng.standard_normal(shape).astype(np.float32) * np.float32(1e-3),
            "exp_avg_sq": self.rng.random(shape).astype(np.float32) * np.float32(1e-6),
        }

    def back_to(self, state: dict[str, Any]) -> None:
        self.model = {name: np.asarray(array) for name, array in state["model"].items()}
        self.optimizer = "optim" in state
        self.count = state["epoch"]


class Story:
    """One store, what happened to it, and what each node of it must give.

    Attributes
    ----------
    given
        By node: what a restore gives.
    tracks
        By node: the track, as the integers and values that edges compose to.
    letting_go
        By node: what a restore gives once the exact value is let go.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.training = Training(self.chance)
        self.backend = MemoryBackend.fresh()
        self.store = lcstore.open(self.backend, threads=1, grace=0)
        self.step = 0
        self.given: dict[str, Sums] = {}
        self.tracks: dict[str, Sums] = {}
        self.letting_go: dict[str, Sums] = {}
        self.stripped: dict[str, set[str]] = {}
        self.retired: set[str] = set()
        self.pinned: set[str] = set()

    @property
    def kept(self) -> list[str]:
        return [node for node in self.given if node not in self.retired or node in self.pinned]

    # What happens -----------------------------------------------------------------------------------------

    def go_on(self, turns: int) -> None:
        self.save()
        acts = {
            self.save: 60,
            self.fork: 5,
            self.reopen: 2,
            self.retire: 8,
            self.retain: 6,
            self.pin: 2,
            self.unpin: 2,
            self.compact: 4,
            self.collect: 4,
        }
        # Every story has a temper: one that retires nearly everything, one that forks at every turn.
        often = [weight * self.chance.choice([0.3, 1, 1, 4]) for weight in acts.values()]
        for _ in range(turns):
            self.chance.choices(list(acts), often)[0]()

    def save(self) -> None:
        self.training.train()
        # Now and then an earlier step once more: a revision.
        step = self.chance.randrange(self.step + 1) if self.chance.random() < 0.1 else self.step
        self.step = max(self.step, step + 1)
        tree = self.training.tree()
        node = self.store.save(step, tree, exact=self.chance.random() < 0.08).node
        self._take_in(self._node(node), leaves(tree))

    def _take_in(self, node: Node, truth: dict[str, np.ndarray]) -> None:
        """Note what the writer holds to be the track: that is what readers must get from now on."""
        track = self.store._writer.track
        composer = Resolved(self.store._reader, node.name).compose(node.everything)
        given, rounded, composed = {}, {}, {}
        for tensor, spec in enumerate(node.layout.tensors):
            path = format_name(spec.name)
            part = slice(spec.offset, spec.offset + spec.size)
            held = track.pools[spec.pool] if spec.pool in track.pools else composer.pools[spec.pool]
            composed[path] = hashed(held[part])
            rounded[path] = hashed(composer.values(tensor))
            exact = spec.role == "plain" or node.keeps_exact(tensor)
            given[path] = hashed(truth[path]) if exact else rounded[path]
        name = node.name.node
        self.given[name], self.letting_go[name], self.tracks[name] = given, rounded, composed
        self._same_track(composer, name)

    def fork(self) -> None:
        node = self.chance.choice(self.kept)
        if self.stripped.get(node):
            return
        state = self.store.resume(node)
        assert {path: hashed(array) for path, array in leaves(state).items()} == self.given[node]
        self.training.back_to(state)

    def reopen(self) -> None:
        self.store.close()
        self.store = lcstore.open(self.backend, threads=1)
        if self.chance.random() < 0.7:
            self.fork()

    def retire(self) -> None:
        node = self.chance.choice(self.kept)
        try:
            self.store.retire(node)
        except InvalidInputError:  # the latest of its run, or pinned
            return
        self.retired.add(node)

    def retain(self) -> None:
        newest = self.chance.randrange(1, 12)
        policy = self.chance.choice(
            [
                f"strip:optim/**:latest:{newest}",
                f"exact-only:latest:{newest}",
                f"latest:{newest} | every:{self.chance.randrange(2, 5)}",
                f"log:1.3 | latest:3 | strip:optim/**:latest:2 | exact-only:every:{newest}",
            ]
        )
        for one in self.store.retain(policy).retired:
            if one.what == "state":
                self.retired.add(one.node)
            elif one.what == "exact":
                self.given[one.node] = self.letting_go[one.node]
            else:
                self.stripped.setdefault(one.node, set()).add(one.what.removeprefix("pool."))

    def pin(self) -> None:
        node = self.chance.choice(self.kept)
        self.store.pin(node)
        self.pinned.add(node)

    def unpin(self) -> None:
        if self.pinned:
            node = self.chance.choice(sorted(self.pinned))
            self.store.unpin(node)
            self.pinned.discard(node)

    def compact(self) -> None:
        most = self.chance.choice([None, None, 4000, 40_000])
        self.store.compact(max_bytes=most)
        self.check(6, 4)

    def collect(self) -> None:
        self.store.collect()
        self.check(6, 4)

    # What must hold ---------------------------------------------------------------------------------------

    def check(self, nodes: int | None = None, paths: int = 32) -> int:
        """Check some nodes (all for None): what they restore to, and up to so many paths to each.

        Returns
        -------
        int
            How many paths were composed.
        """
        graph = self.store._index.refresh(full=True)
        chosen = self.kept
        if nodes is not None and nodes < len(chosen):
            chosen = self.chance.sample(chosen, nodes)
        count = 0
        for name in chosen:
            node = self._node(name)
            self.restores(node)
            for path in simple_paths(graph, name, self.chance, paths):
                self._composes(node, path)
                count += 1
        return count

    def restores(self, node: Node) -> None:
        """Check that a restore gives what it gave before: all that is not stripped."""
        name = node.name.node
        assert node.stripped == self.stripped.get(name, set())
        values = Resolved(self.store._reader, node.name).values(self._there(node))
        paths = {tensor: format_name(node.layout.tensors[tensor].name) for tensor in values}
        wrong = [p for t, p in paths.items() if hashed(values[t]) != self.given[name][p]]
        assert not wrong, (name, wrong)

    def _composes(self, node: Node, path: list[EdgeRef]) -> None:
        wanted = self._there(node)
        composer = Composer(self.store._reader.edges(path), node.layout, node.columns, wanted)
        for job in composer.jobs():
            job()
        self._same_track(composer, node.name.node)

    def _same_track(self, composer: Composer, name: str) -> None:
        for tensor in composer.path.wanted.tolist():
            composer.values(tensor)  # which are proved
            spec = composer.layout.tensors[tensor]
            held = composer.pools[spec.pool][spec.offset : spec.offset + spec.size]
            assert hashed(held) == self.tracks[name][format_name(spec.name)], (name, spec.name)

    def _there(self, node: Node) -> list[int]:
        gone = self.stripped.get(node.name.node, set())
        return [t for t, spec in enumerate(node.layout.tensors) if spec.pool not in gone]

    def _node(self, name: str) -> Node:
        reader: Reader = self.store._reader
        return reader.node(self.store._index.refresh(full=True).nodes[name])


def simple_paths(graph: Graph, node: str, chance: random.Random, most: int) -> Iterator[list[EdgeRef]]:
    """Give every path from the root to a node, free of condemned edges; or `most` of them at random."""
    counts: dict[str, int] = {ROOT: 1}

    def usable(at: str) -> list[EdgeRef]:
        return [edge for edge in graph.refs() if edge.target == at and not graph.is_condemned(edge)]

    def count(at: str) -> int:
        if at not in counts:
            counts[at] = sum(count(edge.base) for edge in usable(at))
        return counts[at]

    def every(at: str) -> Iterator[list[EdgeRef]]:
        if at == ROOT:
            yield []
            return
        for edge in usable(at):
            for before in every(edge.base):
                yield [*before, edge]

    for name in sorted(graph.ancestors(node) | {node}, key=lambda name: graph.nodes[name].order):
        count(name)
    assert count(node), f"no path free of condemned edges leads to {node}"
    if counts[node] <= most:
        yield from every(node)
        return
    for _ in range(most):
        path, at = [], node
        while at != ROOT:
            edges = [edge for edge in usable(at) if counts[edge.base]]
            edge = chance.choices(edges, [counts[edge.base] for edge in edges])[0]
            path.append(edge)
            at = edge.base
        yield path[::-1]
