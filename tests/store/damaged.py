"""Stores to be damaged, with every kind of record, and what can be had of them over any path."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from states import same

import lcstore
from lcstore.compaction.making import Maker
from lcstore.errors import LcstoreError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import EdgeBody
from lcstore.format.marks import CondemnedRecord, RetiredRecord, TagRecord
from lcstore.graph.plan import Shortcut
from lcstore.graph.refs import ROOT, EdgeRef
from lcstore.index.marked import Situation
from lcstore.storage.backend import Backend
from lcstore.storage.memory import MemoryBackend
from lcstore.store.store import Store

CREATED = "2026-01-01T00:00:00Z"


def state(step: int, *, rows: int = 48, many: bool = False) -> dict[str, Any]:
    """A state with weights, moments, a count that rarely changes, and plain values."""
    rng = np.random.default_rng(7)
    w, moved, m = rng.standard_normal((3, rows, 24), dtype=np.float32)
    w = w + np.float32(step / 100) * moved
    return {
        "model": {"w": w, "running": np.full(6, step // 40, np.float32)},
        "optim": {
            "state": {0: {"exp_avg": m * np.float32(step), "exp_avg_sq": m * m, "step": np.int64(step // 40)}}
        },
        "log": "long " * 20_000 if many else "short",
        "epoch": step,
    }


def merge(store: Store, base: int | None, target: int) -> str:
    """Add a shortcut between two steps (None: from the root); return its id."""
    graph = store._index.refresh(full=True)
    before = set(graph.edges)
    ids = [ROOT if base is None else graph.at_step(base).node, graph.at_step(target).node]
    maker = Maker(store._reader, store.durability)
    maker.make(Shortcut(ids[0], ids[1], 0, 0))
    [added] = set(store._index.refresh(full=True).edges) - before
    return added


def with_part(edge: EdgeBody, **fields: Any) -> EdgeBody:
    """Return an edge whose only part says something else."""
    (part,) = edge.parts
    return replace(edge, parts=(replace(part, **fields),))


def put(backend: Backend, *marks: CondemnedRecord | RetiredRecord | TagRecord) -> None:
    """Store marks."""
    for mark in marks:
        backend.put(mark.key(), mark.to_bytes())


def grown() -> dict[str, bytes]:
    """Seven states with an exact one, a fork, an anchor and two shortcuts, and every kind of mark."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        for step in range(0, 70, 10):
            store.save(
                step, state(step, many=step == 50), exact=step == 20, tags=["good"] if step == 40 else ()
            )
        merge(store, None, 30)
        merge(store, 10, 40)
        spare = merge(store, 0, 20)
        at = {step: store.info(step).node for step in store.steps()}
        store.pin(10)
    with lcstore.open(backend, durability="none") as store:
        store.resume(40)
        store.save(45, state(45))
    put(
        backend,
        RetiredRecord(at[10], "old", CREATED),
        RetiredRecord(at[30], "old", CREATED),
        CondemnedRecord(spare, None, markkeys.WHOLE_EDGE, CREATED),
    )
    return backend.snapshot()


def faults(objects: dict[str, bytes], key: str) -> dict[str, dict[str, bytes]]:
    """A store without an object, and with a byte of it flipped."""
    data = bytearray(objects[key])
    found = {"gone": {other: value for other, value in objects.items() if other != key}}
    if data:
        data[random.Random(key).randrange(len(data))] ^= 1 << random.Random(key).randrange(8)
        found["flipped"] = objects | {key: bytes(data)}
    return found


def keys_of(objects: dict[str, bytes], share: int) -> list[str]:
    """One in so many objects of each kind, at least one."""
    rng = random.Random(share)
    kinds: dict[str, list[str]] = {}
    for key in sorted(objects):
        name = keys.parse_data_key(key) if keys.is_data_key(key) else None
        kind = key.split("/")[0] if name is None else f"{name.pool} {name.op} {name.parity is None}"
        kinds.setdefault(kind, []).append(key)
    return [key for found in kinds.values() for key in rng.sample(found, -(-len(found) // share))]


def paths(store: Store, node: str) -> Iterator[list[EdgeRef]]:
    """Every path from the root to a node."""
    graph = store._index.graph
    name = graph.nodes[node]
    into = [EdgeRef(name.base, node, None, name.nbytes)]
    into += [EdgeRef(e.base, node, e.edge, e.nbytes) for e in graph.edges.values() if e.target == node]
    for ref in into:
        if ref.base == ROOT:
            yield [ref]
        elif ref.base in graph.nodes:
            for path in paths(store, ref.base):
                yield [*path, ref]


def restorable(objects: dict[str, bytes]) -> dict[str, Any]:
    """What any path gives of each node, its exact value where it is kept."""
    found = {}
    with lcstore.open(MemoryBackend.fresh(objects), "r", threads=1) as store:
        graph = store._index.refresh(full=True)
        for node in graph.nodes:
            for path in (*paths(store, node), None):  # None: what its own edge sets needs no path
                _lead(store, path)
                try:
                    found[node] = store.restore(node)
                except LcstoreError:
                    continue
                break
    return found


def _lead(store: Store, path: list[EdgeRef] | None) -> None:
    """Have a store read whatever it is asked for over one path, or over none."""
    index = store._index
    marks = index.marks
    index.situation = lambda node: Situation(
        None if path is None else tuple(path),
        node in marks.inexact,
        marks.stripped.get(node, frozenset()),
        "no path" if path is None else "",
    )


def tracks(objects: dict[str, bytes]) -> dict[str, Any]:
    """What a reader finds of each node once no exact value is kept."""
    backend = MemoryBackend.fresh(objects)
    with lcstore.open(backend) as store:
        nodes = list(store._index.refresh(full=True).nodes)
        put(backend, *(RetiredRecord(node, "", CREATED, markkeys.EXACT_VALUE) for node in nodes))
        return {node: store.restore(node) for node in nodes}


__all__ = [
    "CREATED",
    "faults",
    "grown",
    "keys_of",
    "merge",
    "paths",
    "put",
    "restorable",
    "same",
    "state",
    "tracks",
]
