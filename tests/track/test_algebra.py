"""What edges do along a path: arrays over all tensors say what a look at one tensor after the other says."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore import CorruptionError
from lcstore.edges.algebra import LOST, START, Effect, Start, Trace, array_of, merged, sets, trace
from lcstore.edges.columns import ADD, EXACT, KEEP, OWN, SET, SET_GRID
from lcstore.edges.edge import decode
from lcstore.frames.lossless import encode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.layout.layout import Layout
from lcstore.layout.specs import PoolSpec, TensorSpec

seeds = st.integers(0, 1 << 30)
POOLS = {
    "weights": "weights-float32",
    "first_moment": "first-float32",
    "second_moment": "second-float32",
    "plain": "plain-float64",
}
ROLE_OF = {"w": "weights", "m": "first_moment", "v": "second_moment", "e": "plain"}
SETTERS = {
    "weights": (SET_GRID, EXACT, SET),
    "first_moment": (SET, EXACT),
    "second_moment": (SET,),
    "plain": (SET, EXACT),
}
#: What edges may add to, and what a merge says of tensors that an edge in between sets.
ADDED_TO = ("w", "e")
BETWEEN = {"w": SET_GRID, "e": EXACT, "m": SET, "v": SET}
NAMES = [f"{role}{number}" for role in ROLE_OF for number in range(4)]


def dtype_of(pool: str) -> str:
    return pool.partition("-")[2]


def layout_of(places: dict[str, int]) -> Layout:
    """Return a layout that has each tensor at a place."""
    tensors = [
        TensorSpec((name,), (16,), dtype_of(pool), ROLE_OF[name[0]], "plain", pool, 1024 * at)
        for name, at in places.items()
        for pool in [POOLS[ROLE_OF[name[0]]]]
    ]
    pools = {name: PoolSpec(name, dtype_of(name), 1 << 16, 1 << 14) for name in POOLS.values()}
    return Layout(None, tuple(tensors), pools)


@dataclass(eq=False)
class Node:
    """A node: where its tensors are, and what they are."""

    places: dict[str, int]
    values: dict[str, int]
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        self.layout = layout_of(self.places)


@dataclass
class Segment:
    """An edge: what it says of each tensor of its target, and the numbers that it stores or adds."""

    base: Node | None
    target: Node
    op: list[int]
    amounts: list[int]
    own: Segment | None = None

    @property
    def effect(self) -> Effect:
        op = np.array(self.op, np.uint8)
        own = None if self.own is None else np.array(self.own.op, np.uint8)
        return Effect.of(self.target.layout, op, own)


def saved(rng: np.random.Generator, base: Node | None) -> Segment:
    """Make a node with its own edge: tensors are kept, added to, set, moved, dropped and made."""
    places, values, op, amounts = {}, {}, [], []
    for name in rng.permutation(NAMES).tolist():
        there = base is not None and name in base.places
        if rng.random() < (0.15 if there else 0.5):
            continue
        moves = not there or rng.random() < 0.1
        places[name] = int(rng.integers(50)) if moves else base.places[name]
        if there and places[name] == base.places[name] and rng.random() < 0.75:
            add = name.startswith(ADDED_TO) and rng.random() < 0.6
            amounts.append(int(rng.integers(1, 1 << 40)) if add else 0)
            op.append(ADD if add else KEEP)
            values[name] = base.values[name] + amounts[-1]
        else:
            op.append(int(rng.choice(SETTERS[ROLE_OF[name[0]]])))
            zero = name.startswith("w") and op[-1] == SET
            amounts.append(0 if zero else int(rng.integers(1 << 40)))
            values[name] = amounts[-1]
    return Segment(base, Node(places, values), op, amounts)


@dataclass
class History:
    """Nodes that fork, with their own edges."""

    own: list[Segment]

    @classmethod
    def random(cls, rng: np.random.Generator, count: int = 10) -> History:
        own = [saved(rng, None)]
        while len(own) < count:
            before = own[int(rng.integers(max(0, len(own) - 3), len(own)))]
            own.append(saved(rng, before.target if rng.random() < 0.95 else None))
        return cls(own)

    def of(self, node: Node) -> Segment:
        return next(segment for segment in self.own if segment.target is node)

    def path(self, node: Node, base: Node | None = None) -> list[Segment] | None:
        """Return the own edges from a base, or the root, to a node; None if it is not above."""
        path = []
        while node is not base:
            path.insert(0, self.of(node))
            if path[0].base is None:
                return path if base is None else None
            node = path[0].base
        return path

    def with_shortcuts(self, rng: np.random.Generator, path: list[Segment]) -> list[Segment]:
        path = list(path)
        for _ in range(int(rng.integers(4)) if path else 0):
            low = int(rng.integers(len(path)))
            high = int(rng.integers(low, len(path))) + 1
            path[low:high] = [shortcut(self, path[low:high])]
        return path


def shortcut(history: History, path: list[Segment]) -> Segment:
    """Merge a path, with numbers that one tensor after the other adds up to."""
    base, target, own = path[0].base, path[-1].target, history.of(path[-1].target)
    start = None if base is None else Start(base.layout, np.ones(len(base.places), bool))
    wanted = np.flatnonzero(~own.effect.sets)
    found = trace([segment.effect for segment in path], target.layout, wanted, start)
    op = merged(found, own.effect).tolist()
    amounts = []
    for said, (name, value) in zip(op, target.values.items(), strict=True):
        before = base.values[name] if said in (ADD, KEEP) else 0
        amounts.append(0 if said == OWN else value - before)
    return Segment(base, target, op, amounts, own)


# One tensor after the other -------------------------------------------------------------------------------


def naive(segments: list[tuple[Segment, bool]], held: dict[str, tuple[int, int]]) -> dict[str, tuple]:
    """Go over edges, on or back: give place and value of each tensor that is known in the end."""
    for segment, back in segments:
        after = {}
        ends = segment.base if back else segment.target
        for name, place in ends.places.items():
            known = held.get(name)
            index = list(segment.target.places).index(name) if name in segment.target.places else None
            if index is None:
                continue
            op, amount = segment.op[index], segment.amounts[index]
            if op in (KEEP, ADD):
                if known is not None and known[0] == place:
                    after[name] = place, known[1] + (-amount if back else amount)
            elif not back:
                after[name] = place, segment.own.amounts[index] if op == OWN else amount
        held = after
    return held


def value_at(found: Trace, path: list[tuple[Segment, bool]], layout: Layout, tensor: int, held: dict) -> int:
    """Add up what a trace says of one tensor."""
    name = layout.tensors[tensor].name[0]
    begin, total, added = int(found.begins[tensor]), 0, False
    if begin == START:
        total = held[name][1]
    for at in range(max(begin, 0), len(path)):
        segment, back = path[at]
        effect = segment.effect.back() if back else segment.effect
        place = int(layout.places_in(effect.layout)[tensor])
        if at == begin:
            assert effect.sets[place]
            total = (segment.own if effect.owned[place] else segment).amounts[place]
        elif effect.adds[place]:
            total, added = total + effect.sign * segment.amounts[place], True
        else:
            assert effect.passes[place]
    assert added == found.added[tensor]
    return total


def check(path: list[tuple[Segment, bool]], start: Node | None, some: set[str], end: Node) -> None:
    """Compare a trace with `naive`, from what is held of some tensors of a node on."""
    held = {} if start is None else {n: (start.places[n], start.values[n]) for n in some if n in start.places}
    mask = None
    if start is not None:
        mask = Start(start.layout, np.array([name in held for name in start.places], bool))
    effects = [segment.effect.back() if back else segment.effect for segment, back in path]
    found = trace(effects, end.layout, np.arange(len(end.places)), mask)
    wanted = naive(path, held)
    for tensor, name in enumerate(end.places):
        assert (found.begins[tensor] == LOST) == (name not in wanted)
        if name in wanted:
            assert value_at(found, path, end.layout, tensor, held) == wanted[name][1] == end.values[name]


@given(seeds)
def test_from_the_root_every_path_leads_to_every_value(seed):
    rng = np.random.default_rng(seed)
    history = History.random(rng)
    end = history.own[int(rng.integers(len(history.own)))].target
    path = [(segment, False) for segment in history.with_shortcuts(rng, history.path(end))]
    check(path, None, set(), end)
    found = trace([segment.effect for segment, _ in path], end.layout, np.arange(len(end.places)), None)
    assert (found.begins >= 0).all()


@given(seeds)
def test_on_and_back_between_any_two_nodes(seed):
    rng = np.random.default_rng(seed)
    history = History.random(rng)
    start, end = (history.own[int(n)].target for n in rng.integers(len(history.own), size=2))
    above = [start, *(segment.base for segment in reversed(history.path(start)))]
    fork = next(node for node in above if node is None or history.path(end, node) is not None)
    if fork is None:  # nothing leads back to the root
        return
    back = history.with_shortcuts(rng, history.path(start, fork))
    on = history.with_shortcuts(rng, history.path(end, fork))
    path = [(segment, True) for segment in reversed(back)] + [(segment, False) for segment in on]
    check(path, start, {name for name in NAMES if rng.random() < 0.7}, end)


@given(seeds)
def test_a_shortcut_says_what_the_table_says(seed):
    rng = np.random.default_rng(seed)
    history = History.random(rng)
    end = history.own[int(rng.integers(len(history.own)))].target
    whole = history.path(end)
    path = whole[int(rng.integers(len(whole))) :]
    said = dict(zip(end.places, shortcut(history, path).op, strict=True))
    for name, place in end.places.items():
        ops = []
        for segment in reversed(path):  # back to where it was last set
            ops.append(segment.op[list(segment.target.places).index(name)])
            assert segment.target.places[name] == place
            if ops[-1] not in (KEEP, ADD):
                break
        if ops[0] not in (KEEP, ADD):
            assert said[name] == OWN
        elif ops[-1] not in (KEEP, ADD):
            assert said[name] == BETWEEN[name[0]]
        else:
            assert said[name] == (ADD if ADD in ops else KEEP)


@given(seeds)
def test_digests_of_edges_are_differences(seed):
    rng = np.random.default_rng(seed)
    history = History.random(rng)
    end = history.own[int(rng.integers(len(history.own)))].target
    for segment in history.with_shortcuts(rng, history.path(end)):
        # The number itself is linear, so it will do for a digest.
        of = {n: np.array(list(n.values.values()), np.uint64) for n in (segment.base, segment.target) if n}
        base = None if segment.base is None else (segment.base.layout, of[segment.base])
        left = segment.effect.owned
        found = segment.effect.digests(of[segment.target], base)
        assert found[~left].tolist() == [n for n, own in zip(segment.amounts, left, strict=True) if not own]


@given(seeds)
def test_what_is_said_of_the_base_is_carried_where_its_value_goes_on(seed):
    rng = np.random.default_rng(seed)
    for segment in History.random(rng).own:
        if segment.base is None:
            continue
        marks = rng.integers(100, size=len(segment.base.places))
        named = dict(zip(segment.base.places, marks.tolist(), strict=True))
        found = segment.effect.carry(marks, segment.base.layout, -1)
        wanted = [
            named[name] if op in (KEEP, ADD) else -1
            for name, op in zip(segment.target.places, segment.op, strict=True)
        ]
        assert found.tolist() == wanted


@given(seeds)
def test_damage_spoils_what_an_array_holds_and_the_neighbours_of_what_is_added(seed):
    rng = np.random.default_rng(seed)
    history = History.random(rng)
    end = history.own[int(rng.integers(len(history.own)))].target
    for segment in history.with_shortcuts(rng, history.path(end)):
        count = len(segment.target.places)
        damaged = {array: rng.random(count) < 0.4 for array in ("add", "grid", "set", "exact")}
        found = segment.effect.spoiled(damaged.__getitem__)
        for tensor, (name, op) in enumerate(zip(segment.target.places, segment.op, strict=True)):
            array = array_of(op, name.startswith("w"))
            if op == KEEP and name.startswith(ADDED_TO):
                array = "add"
            assert found[tensor] == (array is not None and damaged[array][tensor])


def test_an_array_holds_what_one_look_at_each_tensor_says():
    layout = layout_of({"w0": 0, "m0": 0, "e0": 0})
    for op in range(OWN):
        effect = Effect.of(layout, np.array([op, op, op], np.uint8))
        for tensor, weights in enumerate((True, False, False)):
            holding = [array for array in ("add", "grid", "set", "exact") if effect.holds(array)[tensor]]
            known = array_of(op, weights)
            assert holding == ([] if known is None else [known])
        assert effect.sets.tolist() == sets(effect.op).tolist() == [op in (SET, EXACT, SET_GRID)] * 3
        assert effect.passes.tolist() == [op in (KEEP, ADD), op == KEEP, op in (KEEP, ADD)]


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 16), ("int32", 32), ("float64", 64)])
def test_digests_of_patterns_are_compared_modulo_what_the_patterns_are(dtype, bits):
    spec = TensorSpec(("e",), (16,), dtype, "plain", "numpy", f"plain-{dtype}", 0)
    layout = Layout(None, (spec,), {spec.pool: PoolSpec(spec.pool, dtype, 1024, 1024)})
    wanted = np.array([5], np.uint64)
    for place in range(64):
        found = wanted + np.uint64(1 << place)
        assert Effect.of(layout, np.array([ADD], np.uint8)).unlike(found, wanted)[0] == (place < bits)
        assert Effect.of(layout, np.array([SET], np.uint8)).unlike(found, wanted)[0]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_nothing_is_added_to_complex_numbers(dtype):
    spec = TensorSpec(("e",), (16,), dtype, "plain", "numpy", f"plain-{dtype}", 0)
    layout = Layout(None, (spec,), {spec.pool: PoolSpec(spec.pool, dtype, 1024, 1024)})
    effect = Effect.of(layout, np.array([ADD], np.uint8))
    assert not effect.adds.any()
    assert not effect.passes.any()
    with pytest.raises(CorruptionError, match="have no deltas"):
        decode(layout.pools[spec.pool], "add", encode_lossless(Pieces.of(np.arange(16, dtype=np.int16))), 16)


@pytest.mark.parametrize("own", [None, [KEEP, SET], [SET]])
def test_what_is_left_to_an_own_edge_must_be_set_there(own):
    said = None if own is None else np.array(own, np.uint8)
    with pytest.raises(CorruptionError, match=r"\('w0',\).*own edge that does not set it"):
        Effect.of(layout_of({"w0": 0, "m0": 0}), np.array([OWN, KEEP], np.uint8), said)


def test_places_are_those_of_one_name_pool_offset_and_shape():
    here = layout_of({"w0": 0, "w1": 1, "m0": 1, "v0": 3})
    there = layout_of({"m0": 1, "w1": 2, "w0": 0})
    assert here.places_in(there).tolist() == [2, -1, 0, -1]
    assert there.places_in(here).tolist() == [2, -1, 0]
    assert here.places_in(here).tolist() == [0, 1, 2, 3]
    again = [layout_of({"w1": at, "w0": 0}) for at in (1, 2)]
    for _ in range(2):
        assert [here.places_in(layout).tolist() for layout in again] == [[1, 0, -1, -1], [1, -1, -1, -1]]
