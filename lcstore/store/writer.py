"""Saving: one edge's objects, then one record, then one look at what was condemned meanwhile."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import LcstoreError, StorageError, UnknownOutcomeError
from lcstore.graph.names import ROOT, NodeName
from lcstore.limits import MAX_LEAVES_BYTES, check
from lcstore.state.leaves import encode_leaf
from lcstore.state.paths import Path
from lcstore.state.plan import Plan, make_plan
from lcstore.state.tree import FlatState
from lcstore.store import keys
from lcstore.store.backend import Backend
from lcstore.store.catalog import Catalog
from lcstore.store.commit import is_taken_away, put_record
from lcstore.store.entries import flat_array, plan_entries
from lcstore.store.info import SaveInfo, phases
from lcstore.store.jobs import run_all
from lcstore.store.labels import Labels
from lcstore.store.marked import next_seq
from lcstore.store.marks import RetiredRecord, TagRecord
from lcstore.store.records import EdgeBody, ExactBody, NodeRecord, ObjectRef, node_id, utc_now
from lcstore.store.standing import is_going
from lcstore.store.strictjson import dumps
from lcstore.store.touched import ranges_of, union
from lcstore.store.written import Written
from lcstore.track.columns import EXACT, SET
from lcstore.track.draft import Draft, Job
from lcstore.track.grid import exponent_of
from lcstore.track.motion import moved
from lcstore.track.policy import Policy
from lcstore.track.track import Track, largest
from lcstore.version import SOFTWARE

#: Leaves of more than this many bytes go into an object of their own.
_INLINE_LEAVES = 1 << 16
#: How often a state is saved anew when a collector takes what it stands on, or its own objects.
_TRIES = 3


@dataclass
class _Pending:
    """A commit whose outcome is not known yet: the record is to be written again, with the same bytes."""

    key: str
    data: bytes
    draft: Draft
    record: NodeRecord
    name: NodeName


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
        self._exact: set[Path] = set()
        self._plans: dict[int, tuple[Plan, str]] = {}
        #: Ranges of elements that were said to have changed by saves that did not come about.
        self._touched: dict[Path, Array] = {}
        self._pending: _Pending | None = None
        #: Whether the track is what a reader of the head gets. If not, the next save sets everything anew.
        self._sound = True

    def stand_on(self, head: NodeName, track: Track) -> None:
        """Go on from a node: `track` is what was rebuilt of it."""
        self.settle()
        self.head, self.track = head, track
        self._foreign, self._doubtful = True, False
        self._exact, self._sound = set(), True

    def distrust(self) -> None:
        """Build on nothing that was written before: the next save sets everything anew."""
        self._sound = False
        self._foreign = True

    def settle(self) -> None:
        """Find out about a commit that was left open, by writing the same record again and looking at it.

        Raises
        ------
        UnknownOutcomeError, StorageError
            It is still open.
        """
        pending = self._pending
        if pending is not None:
            try:
                put_record(self.backend, pending.key, pending.data)
            except UnknownOutcomeError:
                raise
            except LcstoreError as error:
                raise UnknownOutcomeError(
                    "the last commit is still open: save again once the storage answers", key=pending.key
                ) from error
            self._accept(pending)
            self._pending = None
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
        saving = _Saving(self, step, flat, arrays, labels, exact, touched or {})
        if self._foreign and self.head is not None and (not self._sound or self._is_going(self.head)):
            # What may be let go of is neither built upon nor named: soon nothing may tell what became of it.
            self.head = None
        anchor = self.head is None or not self._sound
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
        if (policy.error, policy.bytes_per_save) != (self.policy.error, self.policy.bytes_per_save):
            self.track.rate.forget_budget()
        self.policy = policy

    def moved(self, flat: FlatState) -> float:
        """Return how far a state is from the head, as `lcstore.track.motion.moved` does."""
        if self.head is None or not self._sound or self._pending is not None:
            return math.inf
        return moved(self.track, {path: flat_array(host.array) for path, host in flat.tensors})

    def all_touched(self, touched: Mapping[str, Any], plan: Plan) -> dict[Path, Array]:
        """Return the ranges that have changed since the last commit, of the tensors that `touched` names."""
        now = ranges_of(touched, plan)
        for path in now.keys() & self._touched.keys():
            now[path] = union(now[path], self._touched[path])
        self._touched = {**self._touched, **now}
        return now

    def skipped(
        self, step: int, flat: FlatState, touched: Mapping[str, Any] | None, started: float
    ) -> SaveInfo:
        """Return what is said of a state that is not saved, as it is about the head."""
        assert self.head is not None
        assert self.track.plan is not None
        self.all_touched(touched or {}, self.track.plan)
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

    def _accept(self, pending: _Pending) -> None:
        pending.draft.commit()
        self._touched = {}
        self.head = pending.name
        self._sound = self._doubtful = True
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

    def plan_digest(self, plan: Plan) -> tuple[str, int]:
        """Return the digest of a plan, stored if this handle has not yet done so, and the bytes written."""
        known = self._plans.get(id(plan))
        if known is not None and known[0] is plan:
            return known[1], 0
        data = dumps(plan.to_json())
        digest = hashlib.sha256(data).hexdigest()
        self.backend.put(keys.plan_key(digest), data)
        self._plans[id(plan)] = (plan, digest)
        return digest, len(data)


class _Saving:
    """One state on its way into the store."""

    def __init__(
        self,
        writer: Writer,
        step: int,
        flat: FlatState,
        arrays: list[Array],
        labels: Labels,
        exact: bool,
        touched: Mapping[str, Any],
    ) -> None:
        self.writer = writer
        self.step = step
        self.flat = flat
        self.arrays = arrays
        self.labels = labels
        self.exact = exact
        self.touched = touched
        self.written = Written(writer.backend)
        self.sound = writer._sound

    def attempt(self, anchor: bool, started: float, flattened: float) -> SaveInfo:
        """Code, write and commit; on any failure the track is as it was."""
        writer = self.writer
        edge = secrets.token_hex(16)
        self.written = Written(writer.backend)
        self.sound = writer._sound
        reset: set[Path] = set()
        while True:
            draft = self._draft(anchor, reset)
            writer._sound = False  # from here to the commit, or to the way back, whatever interrupts
            try:
                if not draft.off_grid:
                    self._run(draft.jobs, edge)
                if not draft.off_grid:
                    coded = time.perf_counter()
                    error, lag = draft.tracking()
                    pending = self._commit(draft, edge, anchor, error)
                    break
            except BaseException:
                self._roll_back(draft)
                raise
            self._roll_back(draft)
            self._off_grid(draft, reset)
            edge = secrets.token_hex(16)  # names are unique: nothing is ever written over
            self.written = Written(writer.backend)
        writer._accept(pending)
        ended = time.perf_counter()
        return self._info(pending, error, lag, phases(started, flattened, coded, ended))

    def _draft(self, anchor: bool, reset: set[Path]) -> Draft:
        writer = self.writer
        if anchor:
            writer._exact = set() if not reset else writer._exact
        entries = plan_entries(self.flat.tensors, writer.policy, writer._exact)
        plan = make_plan(self.flat.structure, entries, writer.track.plan, fresh=anchor)
        touched = writer.all_touched(self.touched, plan)
        return writer.track.draft(
            plan, self.arrays, writer.policy, anchor=anchor, exact=self.exact, reset=reset, touched=touched
        )

    def _roll_back(self, draft: Draft) -> None:
        draft.roll_back()
        self.writer._sound = self.sound

    def _off_grid(self, draft: Draft, reset: set[Path]) -> None:
        """Decide about tensors that did not fit their grids: a new grid if there is one, exact if not."""
        for tensor in draft.off_grid:
            spec = draft.plan.tensors[tensor]
            fits = exponent_of(largest(self.arrays[tensor], spec.dtype), spec.dtype) is not None
            if not fits or spec.path in reset:
                self.writer._exact.add(spec.path)
            reset.add(spec.path)

    def _run(self, jobs: Sequence[Job], edge: str) -> None:
        """Run the jobs side by side, each chunk written as soon as it is coded."""

        def one(job: Job) -> None:
            chunk = job()
            if chunk is not None:
                self.written.put_chunk(edge, chunk)

        run_all(self.writer.executor, [partial(one, job) for job in jobs])

    def _commit(self, draft: Draft, edge: str, anchor: bool, error: float) -> _Pending:
        writer = self.writer
        written = self.written
        written.put_metadata(edge, draft.plan)
        digest, plan_bytes = writer.plan_digest(draft.plan)
        written.extra += plan_bytes
        written.objects += plan_bytes > 0
        leaves, leaves_object = self._leaves(edge)
        edge_objects, exact_objects = written.split(draft)
        assert writer.run is not None
        record = NodeRecord(
            step=self.step,
            run=writer.run,
            run_id=writer.run_id,
            seq=writer.next_seq(),
            parent=writer.head.node if writer.head is not None else None,
            plan=digest,
            created=utc_now(),
            edge=EdgeBody(
                edge,
                ROOT if anchor or writer.head is None else writer.head.node,
                tuple(edge_objects),
                draft.columns.to_bytes(),
            ),
            exact=ExactBody(tuple(exact_objects)) if self.exact else None,
            leaves=leaves,
            leaves_object=leaves_object,
            metrics={str(k): float(v) for k, v in self.labels.metrics.items()},
            metadata=dict(self.labels.metadata),
            tags=tuple(self.labels.tags),
            stats=self._stats(draft, error),
            software=SOFTWARE,
        )
        data = record.to_bytes()
        name = record.name(node_id(data))
        self._put_tags(name.node, record.created)
        pending = _Pending(keys.node_key(name), data, draft, record, name)
        written.extra += len(data)
        written.objects += 1
        self._put_record(pending)
        return pending

    def _put_tags(self, node: str, created: str) -> None:
        """Set the tags of the node to come; one of a node that does not come to exist says nothing."""
        if not self.labels.tags:
            return
        named = [keys.parse_tag_key(key) for key in self.writer.backend.list(keys.NAMES)]
        for tag in self.labels.tags:
            mark = TagRecord(tag, node, next_seq(named, "tag", tag), created)
            self.written.put_mark(mark.key(), mark.to_bytes())

    def _put_record(self, pending: _Pending) -> None:
        try:
            put_record(self.writer.backend, pending.key, pending.data)
        except UnknownOutcomeError:
            # The track stays where it is: the next save writes this very record again.
            self.writer._pending = pending
            pending.draft.keep()
            raise

    def _leaves(self, edge: str) -> tuple[list[object] | None, ObjectRef | None]:
        leaves: list[object] = [encode_leaf(leaf) for leaf in self.flat.leaves]
        data = dumps(leaves)
        check(len(data), MAX_LEAVES_BYTES, "the plain values of the state, in bytes")
        if len(data) <= _INLINE_LEAVES:
            return leaves, None
        return None, self.written.put(keys.leaves_key(edge), data)

    def _stats(self, draft: Draft, error: float) -> dict[str, int | float]:
        stats: dict[str, int | float] = {
            "bytes_raw": sum(array.nbytes for array in self.arrays),
            "tensors": len(self.arrays),
            "exact": int(self.exact or self._comes_back_exactly(draft)),
        }
        return stats | ({"error": float(error)} if np.isfinite(error) else {})

    def _comes_back_exactly(self, draft: Draft) -> bool:
        """Say whether the edge alone gives back every bit."""
        return all(
            spec.role == "exact"
            or op == EXACT
            or (op == SET and spec.role == "weights" and not array.view(np.uint8).any())
            for spec, op, array in zip(draft.plan.tensors, draft.columns.op, self.arrays, strict=True)
        )

    def _info(self, pending: _Pending, error: float, lag: float, seconds: dict[str, float]) -> SaveInfo:
        record = pending.record
        anchor = record.edge.base == ROOT
        return SaveInfo(
            step=self.step,
            node=pending.name.node,
            base=None if anchor else record.edge.base,
            kind="anchor" if anchor else "delta",
            exact=bool(record.stats["exact"]),
            bytes_raw=int(record.stats["bytes_raw"]),
            bytes_stored=self.written.nbytes,
            objects=self.written.objects,
            error=float(error) if np.isfinite(error) else None,
            lag=float(lag) if np.isfinite(lag) else None,
            seconds=seconds,
        )
