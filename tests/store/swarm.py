"""What many processes do to one store: training runs, a compactor, a collector. And a store in a server.

Each process notes what it was told in a file of its own, a line at a time.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterable
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

import numpy as np
from states import leaves, tracked

import lcstore
from lcstore import CorruptionError, InvalidInputError, LcstoreError, NotFoundError
from lcstore.storage.backend import BaseBackend, Names
from lcstore.storage.memory import MemoryBackend

#: How many states are kept, besides the latest of every run.
KEPT = 20
#: Seconds between saves, at most: maintenance is to come in between.
PAUSE = 0.2
#: An address of a server, or a path.
Where = tuple[str, str]


class Server(BaseManager):
    """A process that keeps a store in its memory."""


_held = MemoryBackend.fresh()


def _the_held() -> MemoryBackend:
    return _held


Server.register("held", callable=_the_held, exposed=["put", "get", "list", "delete", "size", "created"])


class Served(BaseBackend):
    """The store of a server."""

    def __init__(self, address: str) -> None:
        super().__init__("served://", durable=False)
        server = Server(address, authkey=b"held")
        server.connect()
        self.held: Any = server.held()  # type: ignore[attr-defined]

    def _put(self, key: str, data: memoryview) -> None:
        self.held.put(key, bytes(data))

    def _get(self, key: str, start: int, end: int | None) -> bytes:
        return self.held.get(key, start, end)

    def _list(self, prefix: str) -> Names:
        return self.held.list(prefix)

    def _delete(self, key: str) -> None:
        self.held.delete(key)

    def _size(self, key: str) -> int:
        return self.held.size(key)

    def _created(self, key: str) -> float | None:
        return self.held.created(key)


def opened(where: Where, mode: Any = "r+", **options: Any) -> lcstore.Store:
    """The store, as this process sees it."""
    kind, place = where
    return lcstore.open(Served(place) if kind == "server" else place, mode, threads=1, **options)


def state(rng: np.random.Generator, weights: np.ndarray) -> dict[str, Any]:
    moved = weights + rng.standard_normal(weights.shape).astype(np.float32) * np.float32(1e-3)
    return {"a.weight": moved, "mask": np.arange(5)}


def digest(values: dict[str, bytes]) -> str:
    """Of what a state gives."""
    whole = hashlib.sha256()
    for path in sorted(values):
        whole.update(path.encode() + hashlib.sha256(values[path]).digest())
    return whole.hexdigest()


def digest_of(tree: Any) -> str:
    """Of a state."""
    return digest({path: array.tobytes() for path, array in leaves(tree).items()})


class Diary:
    """What a process was told: one line for each thing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, **fields: object) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(fields) + "\n")

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def write(where: Where, path: Path, number: int, commits: int) -> None:
    """A training run that now and then goes back to some state, be it one that was let go of since."""
    diary, chance, rng = Diary(path), random.Random(number), np.random.default_rng(number)
    mine: list[str] = []
    weights = rng.standard_normal((8, 16)).astype(np.float32)
    with opened(where) as store:
        done = 0
        while done < commits:
            if chance.random() < 0.3:
                weights = go_back(store, diary, chance, mine, weights)
            tree = state(rng, weights)
            try:
                info = store.save(done, tree, exact=chance.random() < 0.1)
            except LcstoreError as error:
                assert "keeps condemning" in str(error), error  # to be tried again, as it says
                diary.note(error=str(error))
                continue
            # An anchor or exact save gives every bit back; a delta what the writer holds.
            whole = info.kind == "anchor" or info.exact
            held = {"a.weight": tracked(store)["a.weight"], "mask": tree["mask"].tobytes()}
            diary.note(node=info.node, kind=info.kind, digest=digest_of(tree) if whole else digest(held))
            mine.append(info.node)
            weights = tree["a.weight"]
            done += 1
            time.sleep(chance.random() * PAUSE)
    diary.note(finished=True)


def go_back(
    store: lcstore.Store, diary: Diary, chance: random.Random, mine: list[str], weights: np.ndarray
) -> np.ndarray:
    """Resume from some state; return its weights, or those at hand if it is not there any more."""
    there = [found.node for found in store.states(records=False)]
    nodes = mine if mine and chance.random() < 0.6 else there
    if not nodes:
        return weights
    try:
        return store.resume(chance.choice(nodes))["a.weight"]
    except (NotFoundError, CorruptionError) as error:
        diary.note(gone=str(error))
        return weights


def maintain(where: Where, path: Path, stop: Path, kind: str) -> None:
    """Compact and retire, or collect, until told to stop, and then once more."""
    diary, chance = Diary(path), random.Random(1)
    last = False
    with opened(where) as store:
        while not last:
            time.sleep(0.01)
            last = stop.exists()
            if store.latest_step() is None:
                continue
            try:
                if kind == "collect":
                    diary.note(deleted=store.collect(grace=0).deleted_states)
                else:
                    let_go(store, diary, chance)
                    store.compact()
                    diary.note(compacted=True)
            except CorruptionError as error:  # documented: nothing was done, try again
                diary.note(refused=str(error))
    diary.note(finished=True)


def let_go(store: lcstore.Store, diary: Diary, chance: random.Random) -> None:
    """Retire all but some states, whatever stands on them."""
    there = [found.node for found in store.states(records=False)]
    for node in chance.sample(there, max(0, len(there) - KEPT)):
        try:
            store.retire(node)
        except InvalidInputError as error:
            assert "the latest" in str(error), error
        except NotFoundError as error:
            diary.note(gone=str(error))
        else:
            diary.note(retired=node)


def all_of(diaries: Iterable[Diary], field: str) -> list[dict[str, Any]]:
    """Return the lines that have a field."""
    return [line for diary in diaries for line in diary.read() if field in line]
