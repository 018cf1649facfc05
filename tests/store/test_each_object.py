"""A closed store of sixty saves, and one fault: the weights of every state come back, whatever was hit."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from crash_histories import Reads, quick
from damaged import faults, keys_of
from states import leaves, same

import lcstore
from lcstore.errors import FallbackWarning
from lcstore.format import keys
from lcstore.layout import layout as layouts
from lcstore.storage.memory import MemoryBackend

pytestmark = pytest.mark.once

SAVES = 60
#: What is stored besides is the default; anchors come sooner, so that several lie among sixty saves.
DURABILITY = lcstore.Durability(anchor_every=12)
ANCHORED = (12, 24, 36, 48)
#: The step at which a layer comes, and with it another layout; the one that is kept exactly; the first of
#: those with plain values that are an object of their own.
GROWN, EXACT, LONG = 30, 13, 7
#: The arrays of moments, which have no parity, and the names that theirs end with.
MOMENTS = {"/first-float32.set/c.": "exp_avg", "/second-float32.set/c.": "exp_avg_sq"}


def state(step: int) -> dict[str, Any]:
    """Weights of several chunks, moments, values that change with every save or never, long ones at times."""
    base, moved = np.random.default_rng(6).standard_normal((2, 64, 32), dtype=np.float32)
    w = base + np.float32(step / 100) * moved
    grown = {"head.weight": w[8:16] * np.float32(2)} if step >= GROWN else {}
    first = w[:8] * np.float32(0.1)
    return {
        "model": {
            "embed.weight": w,
            "fc.weight": w[:8] * np.float32(0.5),
            "norm.running_mean": w[0] * 2,
            "mask": np.arange(20) % 3 == 0,
            **grown,
        },
        "optim": {"state": {0: {"exp_avg": first, "exp_avg_sq": first**2, "step": np.float32(step)}}},
        "log": "long " * 20_000 if step % 20 == LONG else "short",
        "epoch": step,
    }


@dataclass(frozen=True)
class Closed:
    """A store that is written to no more.

    Attributes
    ----------
    objects, whole
        Its objects, and what each step gives back while none of them is damaged.
    folders, anchors
        The folder of the edge that each step was saved with, and of the anchors that were added.
    readers
        The steps that an object is read for, by the key, or the folder of the edge, that it has.
    """

    objects: dict[str, bytes]
    whole: dict[int, Any]
    folders: dict[int, str]
    anchors: dict[int, str]
    readers: dict[str, set[int]]


@cache
def closed() -> Closed:
    backend = MemoryBackend.fresh()
    with (
        quick(),
        patch.object(layouts, "chunk_elements", lambda size, dtype, covered=False: 1024),
        lcstore.open(backend, durability=DURABILITY, threads=1) as store,
    ):
        for step in range(SAVES):
            store.save(step, state(step), exact=step == EXACT, tags=["good"] if step == 5 else ())
        whole = {step: store.restore(step) for step in range(SAVES)}
        edges = {step: store._index.record(store.info(step).node).edge.id for step in range(SAVES)}
        graph = store._index.refresh(full=True)
        added = {graph.nodes[edge.target].step: edge.edge for edge in graph.edges.values()}
        readers = readers_of(backend)
    folders, anchors = (
        {step: keys.edge_folder(edge) for step, edge in found.items()} for found in (edges, added)
    )
    return Closed(backend.snapshot(), whole, folders, anchors, readers)


def readers_of(backend: MemoryBackend) -> dict[str, set[int]]:
    """Return for which steps each object is read, by a handle that has read nothing before."""
    readers: dict[str, set[int]] = {}
    for step in range(SAVES):
        reads = Reads(backend)
        with lcstore.open(reads, "r", threads=1) as store:
            store.restore(step)
        for key in reads.keys:
            readers.setdefault(place_of(key), set()).add(step)
    return readers


def place_of(key: str) -> str:
    """Return the folder of the edge that an object is of, or else its own key."""
    return keys.edge_folder(key.split("/")[1]) if keys.is_data_key(key) else key


def lacking(
    objects: dict[str, bytes], hit: str, steps: Iterable[int], kept: Callable[[int, str], bool]
) -> set[int]:
    """Restore steps of a damaged store; return those that do not come back whole.

    Of these comes back what is `kept` of them. All that is given has the right bits, and all that is not is
    refused with an error that names what was `hit`.
    """
    whole, found = closed().whole, set()
    with quick(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        with lcstore.open(MemoryBackend.fresh(objects), "r", threads=1) as store:
            assert store.steps() == [*range(SAVES)]
            for step in steps:
                try:
                    assert same(store.restore(step), whole[step]), (hit, step)
                except lcstore.CorruptionError as error:
                    assert error.key is not None
                    assert error.key.startswith(hit), (hit, step, error)
                    names = [name for name in leaves(whole[step]) if kept(step, name)]
                    found.add(step)
                    assert part_of(store.restore(step, names=names), names) == part_of(whole[step], names)
    return found


def part_of(tree: Any, names: list[str]) -> dict[str, bytes]:
    """Return the bytes of some tensors of a state."""
    found = leaves(tree)
    return {name: found[name].tobytes() for name in names}


# One object -----------------------------------------------------------------------------------------------


def check_object(key: str, readers: int, others: int, kinds: Iterable[str] = ("gone", "flipped")) -> None:
    """Lose and damage one object: no state lacks anything, but for one that lacks the moment that was hit.

    Whatever does not read the object, nor anything else of its edge, is as it was: of those states some are
    looked at, and of the others so many. In any order, as what a handle meets first decides on its paths.
    """
    moment = next((name for array, name in MOMENTS.items() if array in key), None)
    own = next((step for step, folder in closed().folders.items() if key.startswith(f"{folder}/")), None)
    # The exact save has its moments twice: rounded as ever, and exactly, which parity covers.
    allowed = set() if moment is None or own == EXACT else {own}
    damaged = faults(closed().objects, key)
    for kind in kinds:
        chance = random.Random(f"{kind} {key}")
        concerned = sorted(closed().readers.get(place_of(key), ()))
        steps = {
            *chance.sample(concerned, min(readers, len(concerned))),
            *chance.sample(range(SAVES), others),
        }
        steps |= allowed
        lost = lacking(damaged[kind], key, shuffled(steps, chance), lambda _, name: moment != last_of(name))
        assert lost == allowed, (kind, key)


def last_of(name: str) -> str:
    return name.rpartition("/")[2]


def shuffled(steps: Iterable[int], chance: random.Random) -> list[int]:
    found = sorted(steps)
    chance.shuffle(found)
    return found


def test_a_tenth_of_all_objects():
    for number, key in enumerate(keys_of(closed().objects, 10)):
        check_object(key, 1, 1, [("gone", "flipped")[number % 2]])


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(16))
def test_every_object(part):
    for key in sorted(closed().objects)[part::16]:
        check_object(key, SAVES, SAVES // 10)


def test_the_objects_of_the_store():
    """Every kind of object that such a store has is among those that are hit."""
    objects = closed().objects
    assert len(objects) > 800
    assert {key.split("/")[0] for key in objects} == {
        "lcstore.json", "layouts", "copies", "data", "nodes", "edges", "names",
    }  # fmt: skip
    assert len([key for key in objects if key.startswith(f"{keys.LAYOUTS}/")]) == 2
    for array in (
        "weights-float32.add/c.1",
        "weights-float32.exact/c.1",
        "weights-float32.grid/c.1",
        *MOMENTS,
    ):
        assert any(array in key for key in objects), array


# One edge -------------------------------------------------------------------------------------------------


def check_edge(step: int, others: int) -> None:
    """Lose all objects of a step's own edge: between two anchors that costs what this edge alone set."""
    folder, chance = closed().folders[step], random.Random(step)

    def kept(other: int, name: str) -> bool:
        # The exact weights lay there; behind the last anchor nothing leads back to the weights.
        if step in (0, EXACT) or step > ANCHORED[-1]:
            return False
        return name.endswith(".weight") and not (step == GROWN and "head" in name)

    steps = {step, *chance.sample(range(SAVES), others)}
    lost = lacking(without(folder), f"{folder}/", shuffled(steps, chance), kept)
    assert lost == ({step} if step <= ANCHORED[-1] else steps & {*range(step, SAVES)})


def without(folder: str) -> dict[str, bytes]:
    return {key: data for key, data in closed().objects.items() if not key.startswith(f"{folder}/")}


def test_a_tenth_of_all_edges():
    for step in (*random.Random(3).sample(range(SAVES), SAVES // 10), GROWN, EXACT, LONG):
        check_edge(step, SAVES // 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_edge():
    for step in range(SAVES):
        check_edge(step, SAVES)


@pytest.mark.parametrize("step", ANCHORED)
def test_an_anchor_that_is_lost_costs_nothing(step):
    folder = closed().anchors[step]
    assert not lacking(without(folder), folder, range(step, SAVES, 3), lambda *_: False)
