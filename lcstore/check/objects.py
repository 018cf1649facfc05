"""Looking at the objects that records list: their presence, lengths, hashes, frames and digests."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.check.findings import Level
from lcstore.check.looker import Batch, Looker, Need, decodes, readers_of
from lcstore.check.proof import Proof, Sums, prove
from lcstore.check.readable import Readable
from lcstore.cluster.tasks import Client, Task, carried_out
from lcstore.errors import LcstoreError, NotFoundError
from lcstore.format import keys
from lcstore.format.hashing import hash_of
from lcstore.index.links import Link
from lcstore.jobs.survey import OnProgress, spread
from lcstore.layout.layout import Layout
from lcstore.storage.backend import Backend, told_lengths

#: What one task of a cluster looks at: some seconds of work, and no more than is soon done again.
_BATCH_BYTES: Final = 64 << 20
_BATCH_OBJECTS: Final = 500


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
    client
        Of the Dask cluster that is to look; None: this process does.
    """

    def __init__(
        self,
        store: Readable,
        level: Level,
        sample: Sample,
        until: float,
        on_progress: OnProgress | None,
        client: Client | None = None,
    ) -> None:
        self.store = store
        self.backend: Backend = store.backend
        self.level = level
        self.sample = sample
        self.until = until
        self.on_progress = on_progress
        self.client = client
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
            self._sums = {link.id: Sums(link) for link in self._links().values() if self._is_sampled(link)}
        told = self._told(wanted)
        done = len(told)
        for need, problem, nbytes in self._looks([need for need in wanted if need.ref.key not in told]):
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

    def _told(self, wanted: list[Need]) -> set[str]:
        """Return the objects of which one listing tells that they are there, as long as they should be."""
        if self.level != "structure" or time.monotonic() >= self.until:
            return set()
        lengths = told_lengths(self.backend, keys.DATA)
        return {need.ref.key for need in wanted if lengths.get(need.ref.key) == need.ref.nbytes}

    def _looks(self, wanted: list[Need]) -> Iterator[tuple[Need, LcstoreError | None, int]]:
        """Yield objects, what is wrong with each, and the bytes read of it, in no order, while time lasts."""
        if self.client is not None:
            yield from self._looks_elsewhere(wanted)
            return
        links, layouts = self._links(), self._layouts()
        looks = spread(
            Looker(self.backend, self.level, links, layouts, self._sums).look,
            wanted,
            workers=readers_of(self.level),
            phase="objects",
            on_progress=self.on_progress,
            until=lambda: time.monotonic() >= self.until,
        )
        for (problem, nbytes), need in zip(looks, wanted, strict=False):
            yield need, problem, nbytes

    def _looks_elsewhere(self, wanted: list[Need]) -> Iterator[tuple[Need, LcstoreError | None, int]]:
        """Yield as `_looks`; workers of a cluster look, at some objects each."""
        batches, done = list(self._batches(wanted)), 0
        tasks = [Task("verify", self.backend.url, batch.look) for batch in batches]
        for place, (looks, sums) in carried_out(tasks, self.client, seconds=self.until - time.monotonic()):
            for edge, found in sums.items():
                self._sums[edge].found[:] += found
            for (problem, nbytes), need in zip(looks, batches[place].needs, strict=True):
                yield need, problem, nbytes
            done += len(looks)
            if self.on_progress is not None:
                self.on_progress("objects", done, len(wanted))

    def _batches(self, wanted: list[Need]) -> Iterator[Batch]:
        """Yield objects in batches, with all that has to be known of them."""
        links, layouts = self._links(), self._layouts()
        batch, nbytes = list[Need](), 0
        for place, need in enumerate(wanted):
            batch.append(need)
            nbytes += 0 if self.level == "structure" else need.ref.nbytes
            if nbytes < _BATCH_BYTES and len(batch) < _BATCH_OBJECTS and place + 1 < len(wanted):
                continue
            yield Batch(
                self.backend,
                self.level,
                batch,
                {one.owner: links[one.owner] for one in batch if one.owner in links and decodes(self.level)},
                {one.ref.key: layouts[one.ref.key] for one in batch if one.ref.key in layouts},
                {one.edge: self._sums[one.edge].link for one in batch if one.edge in self._sums},
            )
            batch, nbytes = [], 0

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

    def _links(self) -> dict[tuple[str | None, str], Link]:
        """Return the edges that can be used, by whose they are."""
        own = {(node, link.id): link for node, link in self.store.own.items()}
        return own | {(None, edge): link for edge, link in self.store.shortcuts.items()}

    def _layouts(self) -> dict[str, Layout]:
        """Return the layouts of plain values, by the key of the object that holds those."""
        parts = (part for record in self.store.records.values() for part in record.edge.parts)
        stored = self.store.stored_layouts
        return {
            part.leaves_object.key: stored[part.layout]
            for part in parts
            if part.leaves_object is not None and part.layout in stored
        }

    def _is_sampled(self, link: Link) -> bool:
        return self.sample.holds(keys.edge_folder(link.id))

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
