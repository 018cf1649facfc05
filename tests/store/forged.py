"""Stores that nobody wrote in good faith: every hash and name is right, and what they say is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

import lcstore
from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.format.hashing import hash_of
from lcstore.format.records import record_id
from lcstore.storage.memory import MemoryBackend

#: Stands in hostile values: no message may hold it.
SECRET = "hush-9f3"


def one_state() -> dict[str, bytes]:
    """A store of one state: weights, moments, zeros, plain tensors and plain values."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((40, 24), dtype=np.float32)
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        state = {
            "model": {"w": w, "zeros": np.zeros((30, 16), np.float32), "ids": np.arange(7)},
            "optim": {"state": {0: {"exp_avg": w / 9, "exp_avg_sq": w * w}}},
            "note": "text",
            "epoch": 3,
        }
        store.save(7, state, metrics={"loss": 0.5}, metadata={"by": "hand"}, tags=["good"])
    return backend.snapshot()


class Forge:
    """The objects of a store of one state, to be changed and sealed again."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = dict(objects)
        (self.key,) = [key for key in objects if key.startswith(f"{keys.NODES}/")]
        (self.layout_key,) = [key for key in objects if key.startswith(f"{keys.LAYOUTS}/")]
        for key in [key for key in objects if key.startswith((f"{keys.COPIES}/", f"{keys.NAMES}/"))]:
            del self.objects[key]
        self.record: dict[str, Any] = json.loads(objects[self.key])
        self.layout: dict[str, Any] = json.loads(objects[self.layout_key])

    @property
    def part(self) -> dict[str, Any]:
        """The only part of the only edge."""
        part: dict[str, Any] = self.record["edge"]["parts"][0]
        return part

    def chunk(self, at: int, data: bytes) -> None:
        """Put other bytes in the place of a chunk, and its length and hash in the record."""
        ref = self.chunk_ref(at)
        self.objects[self._key(ref)] = data
        ref[1:] = [len(data), hash_of(data)]

    def chunk_ref(self, at: int) -> list:
        """Return what the record lists of a chunk."""
        chunks = [ref for ref in self.part["objects"] if "/c." in ref[0]]
        return chunks[at % len(chunks)]

    def chunk_bytes(self, at: int) -> bytes:
        """Return the bytes of a chunk."""
        return self.objects[self._key(self.chunk_ref(at))]

    def _key(self, ref: list) -> str:
        return f"{keys.part_folder(self.record['edge']['id'], '0')}/{ref[0]}"

    def seal(self, record: bytes | None = None, layout: bytes | None = None) -> MemoryBackend:
        """Return a store with the record and the layout as they are now, or with these bytes for them."""
        objects = self.objects
        if layout is None:
            layout = text(self.layout)
        del objects[self.layout_key]
        objects[f"{keys.LAYOUTS}/{hash_of(layout)}.json"] = layout
        if record is None:
            if isinstance(self.record, dict) and self._has_layout():
                self.part["layout"] = hash_of(layout)
            record = text(self.record)
        del objects[self.key]
        objects[self._name(record)] = record
        return MemoryBackend.fresh(objects)

    def _has_layout(self) -> bool:
        try:
            return isinstance(self.part["layout"], str)
        except (KeyError, IndexError, TypeError):
            return False

    def _name(self, record: bytes) -> str:
        """Return a name that goes with the record as far as names can."""
        name = replace(keys.parse_node_key(self.key), node=record_id(record))
        try:
            folder = keys.part_folder(self.record["edge"]["id"], "0")
            named = [(keys.parse_data_key(f"{folder}/{ref[0]}"), ref[1]) for ref in self.part["objects"]]
            size = sum(size for data, size in named if data.op in keys.COMPOSED and data.parity is None)
            return keys.node_key(
                replace(name, nbytes=size, step=self.record["step"], base=self.record["edge"]["base"])
            )
        except (LcstoreError, KeyError, IndexError, TypeError, ValueError):
            return keys.node_key(name)


def text(value: object) -> bytes:
    """Return JSON as records have it, of whatever a test wants to say."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
