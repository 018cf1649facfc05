"""Small stores with forks and merged edges that lose an object: what was right before a repair stays so."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from damaged import keys_of
from kit.actors import alone, deterministic
from states import same

import lcstore
from lcstore.errors import LcstoreError, NotFoundError
from lcstore.format import keys
from lcstore.storage.memory import MemoryBackend
from lcstore.store.store import Store

#: A restore may get around damage, and says so.
pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore::lcstore.errors.FallbackWarning")]

#: Durability, policy, and whether what is retired was collected.
KINDS = [*product(("none", "default"), ("balanced", "lossless"), (False, True))]
PLAIN = [kind for kind in KINDS if kind[0] == "none"]
SMALLER = {"model": {"a.weight": np.ones((16, 24), np.float32)}, "step": 99}


@cache
def forked(durability: str, policy: str, collected: bool) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Seven states of two runs and two layouts, of which one is let go of, with merged edges.

    Returns the objects, and what is restored of each state that is kept.
    """
    backend, rng = MemoryBackend.fresh(), np.random.default_rng(collected)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((16, 24), (9, 9)))

    def state(step: int) -> dict[str, Any]:
        moments = {"exp_avg": a * np.float32(1e-3), "exp_avg_sq": a * a}
        mask = np.arange(5 + step % 2)
        model = {"a.weight": a, "b.weight": b}
        return {"model": model, "optim": {"state": {0: moments}}, "mask": mask, "step": step}

    with (
        deterministic(1),
        alone(),
        lcstore.open(backend, threads=1, policy=policy, durability=durability, grace=0) as store,
    ):
        nodes = []
        for step in range(6):
            a = a + np.float32(1e-3) * rng.standard_normal(a.shape, dtype=np.float32)
            b = b + np.float32(1e-3)
            nodes.append(store.save(step, state(step), exact=step == 3).node)
        store.pin(nodes[1], by="me")
        store.resume(nodes[2])
        a = a + np.float32(1e-2)
        nodes.append(store.save(10, state(10)).node)
        store.retire(nodes[3])
        store.compact()
        if collected:
            store.collect()
        return backend.snapshot(), {node: store.restore(node) for node in nodes if node != nodes[3]}


def right(backend: MemoryBackend, wanted: dict[str, Any]) -> set[str]:
    """Return the states that a new handle restores; each is what it was."""
    found = set()
    with lcstore.open(backend, "r", threads=1) as store:
        for node, value in wanted.items():
            try:
                assert same(store.restore(node), value)
            except LcstoreError:
                continue
            found.add(node)
    return found


def repaired(objects: dict[str, bytes]) -> MemoryBackend:
    backend = MemoryBackend.fresh(objects)
    with lcstore.open(backend, threads=1) as store:
        store.repair()
        assert store.verify(level="checksum").ok
    return backend


def go_on(store: Store) -> None:
    try:
        store.resume()
    except NotFoundError:
        assert store.latest_step() is None
    store.save(99, SMALLER)


DEEDS = {
    "go on": go_on,
    "save": lambda store: store.save(99, SMALLER),
    "collect": lambda store: store.collect(),
    "compact": lambda store: store.compact(),
    "forecast": lambda store: store.forecast(),
    "retain": lambda store: store.retain("latest:99", dry_run=True),
    "maintain": lambda store: store.maintain("latest:99"),
}


def check(objects: dict[str, bytes], wanted: dict[str, Any], deeds: Iterable[str]) -> set[str]:
    """Repair; what was right before is so after it, and after each of some deeds. Return what was right."""
    before = right(MemoryBackend.fresh(objects), wanted)
    backend = repaired(objects)
    assert right(backend, wanted) >= before, "repair"
    for deed in deeds:
        with lcstore.open(backend, threads=1) as store:
            DEEDS[deed](store)
            assert store.verify(level="checksum").ok, deed
        assert right(backend, wanted) >= before, deed
    return before


# A layout ---------------------------------------------------------------------------------------------------


def layouts_of(objects: dict[str, bytes]) -> list[set[str]]:
    """Return the keys of each layout, its second copy among them."""
    digests = sorted(keys.parse_layout_key(key) for key in objects if key.startswith(f"{keys.LAYOUTS}/"))
    return [{keys.layout_key(digest), keys.copy_key(digest)} for digest in digests]


def without(objects: dict[str, bytes], gone: Iterable[str]) -> dict[str, bytes]:
    return {key: data for key, data in objects.items() if key not in gone}


def check_layouts(kind: tuple[str, str, bool], seed: int) -> None:
    """Lose each layout of a store, and do anything afterwards."""
    objects, wanted = forked(*kind)
    for number, gone in enumerate(layouts_of(objects)):
        chance = random.Random(f"{kind} {number} {seed}")
        check(without(objects, gone), wanted, chance.choices([*DEEDS], k=3))


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("collects", [True, False])
def test_what_was_lost_with_a_layout_does_not_stop_collections(resumes, collects):
    objects, wanted = forked("none", "balanced", True)
    for gone in layouts_of(objects)[::2]:
        deeds = ["collect"] * collects + ["go on" if resumes else "save", "collect", "collect", "compact"]
        check(without(objects, gone), wanted, deeds)


def test_no_edge_is_merged_to_an_exact_state_that_no_path_leads_to_any_more():
    backend, rng, layouts = MemoryBackend.fresh(), np.random.default_rng(0), [set[str]()]
    weight = rng.standard_normal((16, 24), dtype=np.float32)
    with lcstore.open(backend, durability="none", threads=1, grace=0) as store:
        for step in range(12):
            weight = weight + np.float32(1e-3) * rng.standard_normal(weight.shape, dtype=np.float32)
            state = {"model": {"a.weight": weight}, "mask": np.arange(5 + (step == 3))}
            node = store.save(step, state, exact=step == 11).node
            layouts.append({*backend.list(keys.LAYOUTS)})
        wanted = {node: store.restore(node)}
    (gone,) = layouts[4] - layouts[3]  # that of step 3
    for deeds in (["compact", "collect", "compact"], ["go on", "collect", "compact"]):
        assert check(without(backend.snapshot(), [gone]), wanted, deeds) == {node}


@pytest.mark.parametrize("kind", PLAIN)
def test_anything_goes_on_after_a_layout_was_lost(kind):
    check_layouts(kind, 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_things_go_on_after_a_layout_was_lost(kind):
    for seed in range(20):
        check_layouts(kind, seed)


# Any object -------------------------------------------------------------------------------------------------


def test_what_a_later_state_keeps_comes_back_over_its_edge():
    """State 10 has the mask of state 2 and a path of its own: where the object of 2 is lost it gives that."""
    objects, wanted = forked("none", "balanced", True)
    with lcstore.open(MemoryBackend.fresh(objects), "r", threads=1) as store:
        node = store.info(2).node
        edge = store._index.record(node).edge
    (gone,) = (ref.key for ref in edge.objects if "/plain-int64.set/c." in ref.key)
    assert check(without(objects, [gone]), wanted, ["collect", "collect"]) == {*wanted}
    with lcstore.open(repaired(without(objects, [gone])), threads=1) as store:
        assert 2 in store.steps()


def check_objects(kind: tuple[str, str, bool], share: int) -> None:
    """Lose one in so many objects, one at a time."""
    objects, wanted = forked(*kind)
    for key in sorted({*keys_of(objects, share)} - {keys.STORE_KEY}):  # without it nothing opens
        check(without(objects, [key]), wanted, ["collect", "collect"])


@pytest.mark.parametrize("kind", PLAIN)
def test_what_a_reader_gives_is_not_let_go_of(kind):
    check_objects(kind, 10)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_reader_gives_is_not_let_go_of(kind):
    check_objects(kind, 1)
