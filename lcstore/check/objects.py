"""Looking at the objects that records list: their presence, lengths, hashes, frames and digests."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.check.findings import Level
from lcstore.check.proof import Proof, Sums, prove
from lcstore.check.readable import Readable
from lcstore.edges.edge import decode
from lcstore.errors import CorruptionError, LcstoreError, NotFoundError, TruncatedError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import ObjectRef
from lcstore.format.hashing import Hasher, hash_of
from lcstore.format.strictjson import loads
from lcstore.index.links import Link
from lcstore.limits import MAX_LEAVES_BYTES
from lcstore.state.layout import Layout
from lcstore.state.leaves import decode_leaf
from lcstore.state.tree import structure_names
from lcstore.storage.backend import Backend
from lcstore.storage.survey import OnProgress, spread

#: Objects are read in pieces of this many bytes, by so many threads: memory stays small whatever their size.
_PIECE: Final = 32 << 20
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class Need:
    """An object that a record needs.

    Attributes
    ----------
    node, edge
        The node whose record it is, or the edge that maintenance added.
    exact
        Whether only the exact value of the node needs it.
    """

    ref: ObjectRef
    node: str | None
    edge: str
    step: int | None
    exact: bool = False

    @property
    def scope(self) -> str | None:
        """The narrowest that a condemnation of it may say; None: only the whole edge."""
        name = keys.parse_data_key(self.ref.key)
        if name.pool is None or name.op is None:
            return None
        return markkeys.EXACT_VALUE if self.exact else markkeys.array_scope(name.pool, name.op)


@dataclass(frozen=True)
class Sample:
    """The `number`-th of `of` slices, counted from 1: each object is in one of them."""

    number: int = 1
    of: int = 1

    def holds(self, name: str) -> bool:
        """Return whether an object is in this slice."""
        drawn = int.from_bytes(bytes.fromhex(hash_of(name.encode())[:16]), "big")
        return drawn % self.of == self.number - 1


@dataclass
class Looked:
    """What a look at the objects found.

    Attributes
    ----------
    problems, mended
        What is wrong, by key: with what cannot be had any more, and with what can be made again.
    proofs
        What is wrong with an edge whose objects are as they were committed, by edge.
    objects, nbytes
        Looked at, and read.
    skipped
        Objects not looked at, by reason of the sample or the time.
    complete
        Whether the time was enough.
    """

    problems: dict[str, LcstoreError] = field(default_factory=dict)
    mended: dict[str, LcstoreError] = field(default_factory=dict)
    proofs: dict[str, Proof] = field(default_factory=dict)
    objects: int = 0
    nbytes: int = 0
    skipped: int = 0
    complete: bool = True


class Objects:
    """The objects that the records of a store need, to be looked at once.

    Parameters
    ----------
    store
        What its records say.
    until
        When to stop, by `time.monotonic`.
    """

    def __init__(
        self,
        store: Readable,
        level: Level,
        sample: Sample,
        until: float,
        on_progress: OnProgress | None,
    ) -> None:
        self.store = store
        self.backend: Backend = store.backend
        self.level = level
        self.sample = sample
        self.until = until
        self.on_progress = on_progress
        self.needs = {need.ref.key: need for need in self._needs()}
        self._sums: dict[str, Sums] = {}
        self._seen: set[str] = set()

    def look(self) -> Looked:
        """Look at all objects of the sample, while there is time."""
        found = Looked()
        wanted = []
        for key, need in self.needs.items():
            if key not in self.store.listed:
                found.problems[key] = NotFoundError("it is missing", key=key)
                found.objects += 1
            elif self.sample.holds(keys.edge_folder(need.edge) if self.level == "restore" else key):
                wanted.append(need)
            else:
                found.skipped += 1
        if self.level == "restore":
            self._sums = {link.id: Sums(link) for link in self._links() if self._is_sampled(link)}
        looks = spread(
            self._look,
            wanted,
            workers=self._workers(),
            phase="objects",
            on_progress=self.on_progress,
            until=lambda: time.monotonic() >= self.until,
        )
        done = 0
        for (problem, nbytes), need in zip(looks, wanted, strict=False):
            done += 1
            found.nbytes += nbytes
            if problem is not None:
                found.problems[need.ref.key] = problem
            else:
                self._seen.add(need.ref.key)
        found.objects += done
        found.skipped += len(wanted) - done
        found.complete = done == len(wanted)
        found.proofs = self._prove()
        return found

    def _workers(self) -> int:
        if self.level == "structure":
            return 2 * _READERS
        if self.level == "checksum":
            return _READERS
        return min(_READERS, _processors())

    def _needs(self) -> Iterator[Need]:
        for node, record in self.store.records.items():
            edge, step = record.edge.id, record.step
            stored = (part.stored for part in record.edge.parts if part.stored is not None)
            for ref in (*record.edge.objects, *record.leaves_objects, *stored):
                yield Need(ref, node, edge, step)
            for ref in record.exact.objects if record.exact is not None else ():
                yield Need(ref, node, edge, step, exact=True)
        for shortcut in self.store.edges.values():
            for ref in shortcut.edge.objects:
                yield Need(ref, None, shortcut.edge.id, None)

    def _links(self) -> Iterator[Link]:
        yield from self.store.own.values()
        yield from self.store.shortcuts.values()

    def _is_sampled(self, link: Link) -> bool:
        return self.sample.holds(keys.edge_folder(link.id))

    # One object -----------------------------------------------------------------------------------------

    def _look(self, need: Need) -> tuple[LcstoreError | None, int]:
        """Return what is wrong with an object, and how many bytes were read."""
        ref = need.ref
        try:
            if self.level == "structure":
                _check_length(ref, self.backend.size(ref.key))
                return None, 0
            name = keys.parse_data_key(ref.key)
            if ref.key.endswith("/leaves.json"):
                self._read_leaves(need)
            elif name.chunk is not None and self.level in ("decode", "restore"):
                self._decode(need, name, self._read(ref))
            elif _digest(self.backend, ref) != ref.hash and _digest(self.backend, ref) != ref.hash:
                # Read twice: a bit may have flipped on the way.
                raise CorruptionError("its hash differs from the committed one", key=ref.key)
        except LcstoreError as error:
            error.key = error.key or ref.key
            return error, 0
        return None, ref.nbytes

    def _read(self, ref: ObjectRef) -> bytes:
        try:
            return ref.check(self.backend.get(ref.key, 0, ref.nbytes + 1))
        except CorruptionError:
            return ref.check(self.backend.get(ref.key, 0, ref.nbytes + 1))

    def _decode(self, need: Need, name: keys.DataName, data: bytes) -> None:
        link = self._link_of(need)
        if link is None or name.pool is None or name.op is None or name.chunk is None:
            return  # its record does not fit its layout, which is told of the record
        pool = link.layout.pools.get(name.pool)
        if pool is None:
            raise CorruptionError(f"it is of pool {name.pool!r}, unknown to its layout")
        size = min(pool.chunk, pool.size - name.chunk * pool.chunk)
        if size <= 0:
            raise CorruptionError(f"it lies past the end of pool {name.pool!r}")
        values = decode(pool, name.op, data, size)
        sums = self._sums.get(need.edge)
        if sums is not None and not need.exact:
            sums.take(name.pool, name.op, name.chunk, values)

    def _link_of(self, need: Need) -> Link | None:
        return self.store.shortcuts.get(need.edge) if need.node is None else self.store.own.get(need.node)

    def _read_leaves(self, need: Need) -> None:
        ref = need.ref
        data = self._read(ref)
        known = self.store.records.get(need.node) if need.node is not None else None
        parts = known.edge.parts if known is not None else ()
        part = next(part for part in parts if part.leaves_object == ref)
        layout = self.store.stored_layouts.get(part.layout or "")
        if layout is not None:
            check_leaves(loads(data, key=ref.key, max_bytes=MAX_LEAVES_BYTES), layout, ref.key)

    # Digests --------------------------------------------------------------------------------------------

    def _prove(self) -> dict[str, Proof]:
        """Prove the edges of the sample, as far as their objects could be decoded."""
        unseen: defaultdict[str, list[str]] = defaultdict(list)
        for key, need in self.needs.items():
            if need.edge in self._sums and not need.exact and key not in self._seen:
                unseen[need.edge].append(key)
        found = {}
        for edge, sums in self._sums.items():
            proof = prove(sums, self._known(sums.link, unseen[edge]), self.store.own)
            if proof is not None:
                found[edge] = proof
        return found

    @staticmethod
    def _known(link: Link, unseen: list[str]) -> Array:
        known = np.ones(link.columns.op.size, bool)
        for key in unseen:
            name = keys.parse_data_key(key)
            if name.pool is not None and name.chunk is not None:
                known &= ~link.layout.touched(name.pool, name.chunk)
        return known


def check_leaves(leaves: object, layout: Layout, key: str) -> None:
    """Check that plain values are as many as the layout says, and that each can be read."""
    if not isinstance(leaves, list):
        raise CorruptionError("it has no plain values", key=key)
    _, paths = structure_names(layout.structure)
    if len(leaves) != len(paths):
        raise CorruptionError(f"it has {len(leaves)} plain values; its layout says {len(paths)}", key=key)
    try:
        for leaf in leaves:
            decode_leaf(leaf)
    except LcstoreError as error:
        error.key = error.key or key
        raise


def _processors() -> int:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return available or 1


def _check_length(ref: ObjectRef, found: int) -> None:
    if found < ref.nbytes:
        raise TruncatedError(f"it has {found} bytes instead of {ref.nbytes}", key=ref.key)
    if found > ref.nbytes:
        raise CorruptionError(f"it has {found} bytes instead of {ref.nbytes}", key=ref.key)


def _digest(backend: Backend, ref: ObjectRef) -> str:
    """Return the hash of an object, having checked its length."""
    digest = Hasher()
    done = 0
    while done <= ref.nbytes:
        # The last piece asks for one byte more than there may be.
        data = backend.get(ref.key, done, min(done + _PIECE, ref.nbytes + 1))
        if not data:
            break
        digest.update(data)
        done += len(data)
    _check_length(ref, done)
    return digest.hexdigest()
