"""A run of several writers, each with a part of the state: what a distributed writer does, step by step."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joined import check_stored, join_parts, write_part

from lcstore.dtypes import dtype_from_name
from lcstore.edges import grid
from lcstore.edges.columns import EXACT, NO_GRID
from lcstore.format import keys
from lcstore.format.records import NodeRecord, StoreRecord, node_id, utc_now
from lcstore.graph.refs import ROOT
from lcstore.layout.layout import Layout, make_layout
from lcstore.layout.shards import Shard
from lcstore.staging.stage import flat_array
from lcstore.state.names import Name, format_name
from lcstore.state.tree import flatten
from lcstore.storage.put import put_record
from lcstore.track.policy import PRESETS
from lcstore.track.track import Track
from lcstore.write.entries import layout_entries
from lcstore.write.written import Written

POLICY = PRESETS["balanced"]


@dataclass
class Host:
    """One writer of several."""

    name: str
    apart: bool = False
    track: Track = field(default_factory=Track)
    named: tuple[Layout, str] | None = None

    def draft(self, state: Any, shards: dict[Name, Shard], *, anchor: bool, exact: bool = False):
        """Begin a save of what this writer has; return the draft and its plain values."""
        flat = flatten(state)
        whole = layout_entries(flat, POLICY, set())
        entries = [entry._replace(shard=shards.get(entry.name)) for entry in whole]
        layout = make_layout(flat.structure, entries, self.track.layout, fresh=anchor)
        arrays = [flat_array(host.array) for _, host in flat.tensors]
        return self.track.draft(layout, arrays, POLICY, anchor=anchor, exact=exact), flat.leaves

    def held(self, state: Any = None) -> dict[str, tuple[Shard | None, np.ndarray]]:
        """What readers are to get of each tensor of weights: the track, or what was set of the state."""
        found = {}
        values = flatten(state).tensors if state is not None else [None] * len(self.track.layout.tensors)
        columns = self.track.columns
        rows = zip(self.track.layout.tensors, columns.grid, columns.op, values, strict=True)
        for spec, unit, op, value in rows:
            if value is not None and op == EXACT and spec.role == "weights":
                found[format_name(spec.name)] = spec.shard, value[1].array
            elif spec.role == "weights":
                integers = self.track.pools[spec.pool][spec.offset : spec.offset + spec.size]
                out = np.zeros(spec.size, dtype_from_name(spec.dtype))
                grid.from_grid(integers, 0 if unit == NO_GRID else int(unit), spec.dtype, out)
                found[format_name(spec.name)] = spec.shard, out.reshape(spec.shape)
        return found


@dataclass
class Group:
    """Writers of one run, and what joins what they write."""

    backend: Any
    hosts: list[Host]
    run_id: str = field(default_factory=lambda: secrets.token_hex(4))
    seq: int = 0
    head: str | None = None

    def save(self, step: int, states: list[tuple[Any, dict[Name, Shard]]], *, exact: bool = False) -> str:
        """Commit one state of all writers; return its node."""
        edge, base, drafts, parts = secrets.token_hex(16), self.head or ROOT, [], []
        with ThreadPoolExecutor(2) as executor:
            for host, (state, shards) in zip(self.hosts, states, strict=True):
                draft, leaves = host.draft(state, shards, anchor=self.head is None, exact=exact)
                written = Written(self.backend, edge)
                written.part = host.name
                part = write_part(
                    written, draft, leaves, executor, exact=exact, apart=host.apart, named=host.named
                )
                drafts.append(draft)
                parts.append((part, draft.layout))
        body = join_parts(edge, base, parts)
        check_stored(self.backend, body)
        record = NodeRecord(step, 1, self.run_id, self.seq, self.head, utc_now(), body)
        data = record.to_bytes()
        name = record.name(node_id(data))
        put_record(self.backend, keys.STORE_KEY, StoreRecord(0).to_bytes())
        put_record(self.backend, keys.node_key(name), data)
        for host, draft, (part, layout) in zip(self.hosts, drafts, parts, strict=True):
            draft.commit()
            host.named = layout, part.layout
        self.head, self.seq = name.node, self.seq + 1
        return name.node

    def held(self, states: list[tuple[Any, dict[Name, Shard]]]) -> dict[str, np.ndarray]:
        """What readers are to get of all tensors of weights, put together of their shards."""
        found: dict[str, np.ndarray] = {}
        for host, (state, _) in zip(self.hosts, states, strict=True):
            for name, (shard, value) in host.held(state).items():
                if shard is None:
                    found[name] = value
                else:
                    whole = found.setdefault(name, np.zeros(shard.whole, value.dtype))
                    whole[tuple(slice(low, high) for low, high in shard.box(value.shape))] = value
        return found


def cut(array: np.ndarray, axis: int, low: int, high: int) -> tuple[np.ndarray, Shard]:
    """Return a part of an array along one axis, and which one it is."""
    start = tuple(low if d == axis else 0 for d in range(array.ndim))
    return np.ascontiguousarray(np.take(array, range(low, high), axis)), Shard(array.shape, start)
