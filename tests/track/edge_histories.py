"""Random histories of saves, kept as edges in memory, and shortcuts merged of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from lcstore.dtypes import dtype_name
from lcstore.edges.columns import Columns
from lcstore.edges.compose import Composer
from lcstore.edges.edge import Edge
from lcstore.edges.merge import Merger
from lcstore.layout.layout import Layout, make_layout
from lcstore.state.tree import flatten
from lcstore.track.policy import PRESETS, Policy
from lcstore.track.track import Track

ROOT = -1
ROLES = {"w": "weights", "m": "first_moment", "v": "second_moment", "e": "plain"}
DTYPES = [np.float32, np.float32, ml_dtypes.bfloat16, np.float16, np.float64]
SHAPES = [(0, 3), (1,), (33, 40), (64, 64), (5, 300), (1100,)]


def edge_of(layout: Layout, columns: Columns, chunks: dict, own: Edge | None = None) -> Edge:
    """Make an edge of the chunks that a dict holds."""
    return Edge(
        layout,
        columns,
        lambda pool, op, index: chunks.get((pool, op, index)),
        lambda pool, op, index: f"{pool}.{op}/{index}",
        own,
    )


@dataclass
class Segment:
    """An edge between two nodes of a history, by their numbers."""

    base: int
    target: int
    edge: Edge
    chunks: dict


@dataclass
class History:
    """Nodes with their own edges, from one anchor on."""

    policy: Policy = PRESETS["balanced"]
    segments: list[Segment] = field(default_factory=list)
    track: Track = field(default_factory=Track)

    def save(self, arrays: dict[str, np.ndarray], *, exact: bool = False, fresh: bool = False) -> Segment:
        """Save a flat dict; the first letter of a name is the role."""
        flat = flatten(arrays)
        entries = [
            (path, host.array.shape, dtype_name(host.array.dtype), ROLES[path[0][0]], host.framework)
            for path, host in flat.tensors
        ]
        layout = make_layout(flat.structure, entries, self.track.layout, fresh=fresh)
        if self.track.layout is not None and layout == self.track.layout:
            layout = Layout.from_json(layout.to_json())  # as read from storage: equal, not the same
        values = [np.ascontiguousarray(host.array).reshape(-1) for _, host in flat.tensors]
        anchor = fresh or not self.segments
        reset: set = set()
        while True:
            draft = self.track.draft(layout, values, self.policy, anchor=anchor, exact=exact, reset=reset)
            made = [] if draft.off_grid else [job() for job in draft.jobs]
            if not draft.off_grid:
                break
            off_grid = {layout.tensors[t].name for t in draft.off_grid}
            draft.roll_back()
            reset |= off_grid
        chunks = {(c.pool, c.op, c.index): c.data for c in made if c is not None}
        draft.commit()
        if anchor:
            self.segments.clear()
        at = len(self.segments)
        self.segments.append(Segment(at - 1, at, edge_of(layout, draft.columns, chunks), chunks))
        return self.segments[-1]

    def values(self, path: list[Segment]) -> list[np.ndarray]:
        """Restore everything of the node that a path from the root leads to, proved."""
        assert path[0].base == ROOT
        own = self.segments[path[-1].target].edge
        every = range(len(own.layout.tensors))
        composer = Composer([s.edge for s in path], own.layout, own.columns, every)
        for job in composer.jobs():
            job()
        return [composer.values(t) for t in every]

    def merger(self, path: list[Segment]) -> Merger:
        """Merge a path."""
        own = self.segments[path[-1].target].edge
        base = None if path[0].base == ROOT else self.segments[path[0].base].edge
        at = None if base is None else (base.layout, base.columns)
        return Merger([s.edge for s in path], own.layout, own.columns, at)

    def shortcut(self, path: list[Segment]) -> Segment:
        """Merge a path to one segment, as a reader would find it."""
        merging = self.merger(path)
        chunks = {(c.pool, c.op, c.index): c.data for job in merging.jobs() for c in job()}
        merging.prove()
        own = self.segments[path[-1].target].edge
        columns = Columns.from_bytes(
            merging.columns.to_bytes(), len(own.layout.tensors), key="shortcut", shortcut=True
        )
        return Segment(path[0].base, path[-1].target, edge_of(own.layout, columns, chunks, own), chunks)


def same_bits(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    """Say whether two lists of arrays hold the same bits."""
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True)
    )


def random_history(seed: int, saves: int = 7) -> History:
    """Make a history in which tensors move, freeze, jump, vanish, come back and change their shape."""
    rng = np.random.default_rng(seed)
    history, state = History(), {}
    for name in ("w0", "w1", "w2", "w3", "m0", "v0", "e0", "e1", "e2"):
        state[name] = first_value(rng, name)
    for index in range(saves):
        history.save(dict(state), exact=bool(rng.random() < 0.2), fresh=index > 0 and rng.random() < 0.05)
        for name in list(state):
            state[name] = next_value(rng, name, state[name])
        if rng.random() < 0.3:
            state.pop(str(rng.choice(list(state))))
        if rng.random() < 0.4 or not state:
            name = f"{rng.choice(list(ROLES))}{rng.integers(8)}"
            state[name] = first_value(rng, name)
    return history


def first_value(rng: np.random.Generator, name: str) -> np.ndarray:
    """Make a tensor, of a random dtype and shape."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    if name.startswith("e") and rng.random() < 0.5:
        return rng.integers(-5, 5, shape)
    values = rng.standard_normal(shape) * 0.1
    if rng.random() < 0.15:
        values[...] = 0
    values = np.square(values) if name.startswith("v") else values
    return values.astype(DTYPES[rng.integers(len(DTYPES))])


def moved_little(rng: np.random.Generator, value: np.ndarray) -> np.ndarray:
    """Make what some elements of a plain tensor are later: near what they were, or anything."""
    words = value.copy().view(f"i{value.itemsize}").reshape(-1)
    some = rng.random(words.size) < rng.choice([0.05, 0.5, 1])
    words[some] += rng.integers(-100, 100, words.size).astype(words.dtype)[some]
    far = rng.random(words.size) < 0.002
    words[far] = rng.integers(np.iinfo(words.dtype).min, np.iinfo(words.dtype).max, words.size)[far]
    return words.view(value.dtype).reshape(value.shape)


def next_value(rng: np.random.Generator, name: str, value: np.ndarray) -> np.ndarray:
    """Make what a tensor is one interval later."""
    what = rng.random()
    if what < 0.25:
        return value
    if what < 0.3:
        return first_value(rng, name)
    if name.startswith("e"):
        return moved_little(rng, value) if what < 0.9 else np.zeros_like(value)
    if what < 0.36 and value.dtype != np.float16:
        return value * value.dtype.type(64)
    if what < 0.42:
        return np.zeros_like(value)
    moved = value.astype(np.float64) + rng.standard_normal(value.shape) * 10.0 ** -rng.integers(2, 5)
    moved = np.square(moved) if name.startswith("v") else moved
    return np.clip(moved, -1e4, 1e4).astype(value.dtype)
