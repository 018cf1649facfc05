"""Saving: one edge's objects, then one record, then one look at what was condemned meanwhile."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from lcstore.arrays import Array
from lcstore.errors import LcstoreError, StorageError, UnknownOutcomeError
from lcstore.format import keys
from lcstore.format.hashing import hash_of
from lcstore.format.labels import Labels
from lcstore.format.marks import RetiredRecord
from lcstore.format.records import utc_now
from lcstore.format.strictjson import dumps
from lcstore.graph.names import ROOT, NodeName
from lcstore.index.catalog import Catalog
from lcstore.index.commit import is_taken_away, put_record
from lcstore.index.info import SaveInfo
from lcstore.index.standing import is_going
from lcstore.state.layout import Layout
from lcstore.state.names import Name
from lcstore.state.tree import FlatState
from lcstore.storage.backend import Backend
from lcstore.track.motion import moved
from lcstore.track.policy import Policy
from lcstore.track.track import Track
from lcstore.write.entries import flat_array
from lcstore.write.saving import Pending, Saving
from lcstore.write.touched import ranges_of, union

#: How often a state is saved anew when a collector takes what it stands on, or its own objects.
_TRIES = 3


class Writer:
    """Writes states one after another, each as a delta to the one before. One save at a time.

    Parameters
    ----------
    backend, catalog, executor
        Where to; what is there; threads to code and write with.
    policy
        The quality.
    """

    def __init__(self, backend: Backend, catalog: Catalog, executor: Executor, policy: Policy) -> None:
        self.backend = backend
        self.catalog = catalog
        self.executor = executor
        self.policy = policy
        self.track = Track()
        self.head: NodeName | None = None
        self.run: int | None = None
        self.run_id = secrets.token_hex(4)
        self.seq = 0
        #: Whether the node that this handle goes on from is another's, so that it may be let go of meanwhile.
        self._foreign = False
        #: Whether the head was committed, and not yet looked at: a collector may have taken it away.
        self._doubtful = False
        #: Paths that have shown values which no grid holds: exact until the next anchor.
        self.exact: set[Name] = set()
        self._layouts: dict[int, tuple[Layout, str]] = {}
        #: Ranges of elements that were said to have changed by saves that did not come about.
        self._touched: dict[Name, Array] = {}
        #: A commit that was left open.
        self.pending: Pending | None = None
        #: Whether the track is what a reader of the head gets. If not, the next save sets everything anew.
        self.sound = True

    def stand_on(self, head: NodeName, track: Track) -> None:
        """Go on from a node: `track` is what was rebuilt of it."""
        self.settle()
        self.head, self.track = head, track
        self._foreign, self._doubtful = True, False
        self.exact, self.sound, self._touched = set(), True, {}

    def distrust(self) -> None:
        """Build on nothing that was written before: the next save sets everything anew."""
        self.sound = False
        self._foreign = True

    def settle(self) -> None:
        """Find out about a commit that was left open, by writing the same record again and looking at it.

        Raises
        ------
        UnknownOutcomeError, StorageError
            It is still open.
        """
        pending = self.pending
        if pending is not None:
            try:
                put_record(self.backend, pending.key, pending.data)
            except UnknownOutcomeError:
                raise
            except LcstoreError as error:
                raise UnknownOutcomeError(
                    "the last commit is still open: save again once the storage answers", key=pending.key
                ) from error
            self.accept(pending)
            self.pending = None
        if self._doubtful and self.head is not None:
            head = self.head
            base = self.catalog.graph.nodes.get(head.base)
            gone = self._foreign and head.base != ROOT and base is None
            if gone or self._is_let_go(base, head.step):
                self._disown(head)

    def save(
        self,
        step: int,
        flat: FlatState,
        labels: Labels,
        *,
        exact: bool,
        started: float,
        touched: Mapping[str, Any] | None = None,
    ) -> SaveInfo:
        """Commit a state.

        Raises
        ------
        StorageError
            Nothing was committed, and nothing changed.
        UnknownOutcomeError
            The commit is open; the next save settles it.
        """
        self.settle()
        if self.run is None:
            self.run = self.catalog.refresh().next_run()
        flattened = time.perf_counter()
        arrays = [flat_array(host.array) for _, host in flat.tensors]
        saving = Saving(self, step, flat, arrays, labels, exact, touched or {})
        if self._foreign and self.head is not None and (not self.sound or self._is_going(self.head)):
            # What may be let go of is neither built upon nor named: soon nothing may tell what became of it.
            self.head = None
        anchor = self.head is None or not self.sound
        for _ in range(_TRIES):
            base = self.head if not anchor else None
            info = saving.attempt(anchor, started, flattened)
            assert self.head is not None
            if not self._is_let_go(base, step):
                return info
            self._disown(self.head)
            anchor = True
        raise LcstoreError(
            "a collector keeps condemning what is being saved: stop it, and save again", step=step
        )

    def change_policy(self, policy: Policy) -> None:
        """Save with another quality from now on."""
        kept = ("error", "bytes_per_save", "weighted")
        if any(getattr(policy, name) != getattr(self.policy, name) for name in kept):
            self.track.rate.forget_budget()
        self.policy = policy

    def moved(self, flat: FlatState) -> float:
        """Return how far a state is from the head, as `lcstore.track.motion.moved` does."""
        if self.head is None or not self.sound or self.pending is not None:
            return math.inf
        return moved(self.track, {path: flat_array(host.array) for path, host in flat.tensors})

    def all_touched(self, touched: Mapping[str, Any], layout: Layout) -> dict[Name, Array]:
        """Return the ranges that have changed since the last commit, of the tensors that `touched` names."""
        now = ranges_of(touched, layout)
        for path in now.keys() & self._touched.keys():
            now[path] = union(now[path], self._touched[path])
        self._touched = {**self._touched, **now}
        return now

    def skipped(
        self, step: int, flat: FlatState, touched: Mapping[str, Any] | None, started: float
    ) -> SaveInfo:
        """Return what is said of a state that is not saved, as it is about the head."""
        assert self.head is not None
        assert self.track.layout is not None
        self.all_touched(touched or {}, self.track.layout)
        return SaveInfo(
            step=step,
            node=self.head.node,
            base=None if self.head.base == ROOT else self.head.base,
            kind="skipped",
            exact=False,
            bytes_raw=sum(host.array.nbytes for _, host in flat.tensors),
            bytes_stored=0,
            objects=0,
            error=None,
            lag=None,
            seconds={"total": time.perf_counter() - started},
        )

    def next_seq(self) -> int:
        """Return the number of the next commit; every attempt takes one."""
        self.seq += 1
        return self.seq

    def accept(self, pending: Pending) -> None:
        """Take over a commit that is there: it is the head, and what is saved next stands on it."""
        pending.draft.commit()
        self._touched = {}
        self.head = pending.name
        self.sound = self._doubtful = True
        self.catalog.add(pending.name, pending.record)

    def _is_let_go(self, base: NodeName | None, step: int) -> bool:
        """Say whether a collector takes away anything of the node just committed, or of what it stands on.

        Whatever it condemns from now on, it lists the records once more and finds this one. What this
        handle committed before needs no look: collectors keep the latest node of every run.
        """
        assert self.head is not None
        record = self.catalog.record(self.head.node)
        try:
            gone = is_taken_away(self.backend, record.edge.id, record.objects)
            gone = gone or (base is not None and self._foreign and self._is_going(base))
        except StorageError as error:
            raise UnknownOutcomeError(
                "the state is stored, but whether a collector let go of what it stands on could not be "
                "listed: save again, which looks first",
                step=step,
            ) from error
        if not gone:
            self._foreign = self._doubtful = False
        return gone

    def _is_going(self, base: NodeName) -> bool:
        return is_going(self.backend, self.catalog, base.node)

    def _disown(self, name: NodeName) -> None:
        """Let go of a node that is not acknowledged: what it stands on is being deleted."""
        mark = RetiredRecord(name.node, "not acknowledged: what it stood on was being deleted", utc_now())
        try:
            put_record(self.backend, mark.key(), mark.to_bytes())
        except StorageError as error:
            raise UnknownOutcomeError(
                "what the state just stored stands on is being deleted: save again", step=name.step
            ) from error
        self.head, self._foreign, self._doubtful = None, False, False

    def layout_digest(self, layout: Layout) -> tuple[str, int]:
        """Return the digest of a layout, stored if this handle has not yet done so, and the bytes written."""
        known = self._layouts.get(id(layout))
        if known is not None and known[0] is layout:
            return known[1], 0
        data = dumps(layout.to_json())
        digest = hash_of(data)
        self.backend.put(keys.layout_key(digest), data)
        self._layouts[id(layout)] = (layout, digest)
        return digest, len(data)
