"""Saving: a staged state is written as an edge, committed by one record, and looked after once."""

from __future__ import annotations

import math
import secrets
import time
from concurrent.futures import Executor

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import LcstoreError, StorageError, UnknownOutcomeError
from lcstore.format.bodies import split_layouts
from lcstore.format.marks import RetiredRecord
from lcstore.format.records import utc_now
from lcstore.graph.refs import ROOT, NodeName
from lcstore.index.index import Index
from lcstore.index.standing import is_going, is_taken_away
from lcstore.state.layout import Layout
from lcstore.state.names import Name, format_name
from lcstore.storage.backend import Backend
from lcstore.storage.settle import put_record
from lcstore.track.motion import moved
from lcstore.track.policy import Policy
from lcstore.track.track import Track
from lcstore.write.commit import Commit, Place, prepare, put_tags
from lcstore.write.edgewrite import EdgeWrite, Quality
from lcstore.write.saveinfo import SaveInfo, phases
from lcstore.write.stage import Staged
from lcstore.write.touched import ranges_of, union

#: How often a state is saved anew when a collector takes what it stands on, or its own objects.
_TRIES = 3


class Writer:
    """Writes states one after another, each as a delta to the one before. One save at a time.

    Parameters
    ----------
    backend, index, executor
        Where to; what is there; threads to code and write with.
    policy
        The quality.
    """

    def __init__(self, backend: Backend, index: Index, executor: Executor, policy: Policy) -> None:
        self.backend = backend
        self.index = index
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
        #: Names of tensors that have shown values which no grid holds: plain until the next anchor.
        self._plain: frozenset[Name] = frozenset()
        #: The layout that the head names, and its hash, where the head is this handle's own and acknowledged.
        self._named_layout: tuple[Layout, str] | None = None
        #: Ranges of elements that were said to have changed since the head, by saves that did not come about.
        self._touched: dict[Name, Array] = {}
        #: A commit that was left open.
        self._open: Commit | None = None
        #: Whether the track is what a reader of the head gets. If not, the next save sets everything anew.
        self.sound = True

    def stand_on(self, head: NodeName, track: Track) -> None:
        """Go on from a node: `track` is what was rebuilt of it."""
        self.settle()
        self.head, self.track = head, track
        self._foreign, self._doubtful, self._named_layout = True, False, None
        self._plain, self.sound, self._touched = frozenset(), True, {}

    def distrust(self) -> None:
        """Build on nothing that was written before: the next save sets everything anew."""
        self.sound = False
        self._foreign, self._named_layout = True, None

    def settle(self) -> None:
        """Find out about a commit that was left open, by writing the same record again and looking at it.

        Raises
        ------
        UnknownOutcomeError, StorageError
            It is still open.
        """
        if self._open is not None:
            try:
                self._open.put(self.backend)
            except UnknownOutcomeError:
                raise
            except LcstoreError as error:
                raise UnknownOutcomeError(
                    "the last commit is still open: save again once the storage answers", key=self._open.key
                ) from error
            self.accept(self._open)
            self._open = None
        if self._doubtful and self.head is not None:
            head = self.head
            base = self.index.graph.nodes.get(head.base)
            gone = self._foreign and head.base != ROOT and base is None
            if gone or self._is_let_go(base, head.step):
                self._disown(head)

    def save(self, staged: Staged, started: float) -> SaveInfo:
        """Commit a state: write its edge, store the record, look around, and only then acknowledge.

        Parameters
        ----------
        staged
            The state.
        started
            When the save began, by `time.perf_counter`.

        Raises
        ------
        StorageError
            Nothing was committed, and nothing changed.
        UnknownOutcomeError
            The commit is open; the next save settles it.
        """
        self.settle()
        if self.run is None:
            self.run = self.index.refresh().next_run()
        if self._foreign and self.head is not None and (not self.sound or self._is_going(self.head)):
            # What may be let go of is neither built upon nor named: soon nothing may tell what became of it.
            self.head = None
        flattened = time.perf_counter()
        base = self.head if self.sound else None
        touched = self._note_touched(staged)
        for _ in range(_TRIES):
            commit = self._attempt(staged, base, touched)
            seconds = phases(started, flattened, commit.write.coded, time.perf_counter())
            if not self._is_let_go(base, staged.step):
                return _info(commit, seconds)
            self._disown(commit.name)
            base = None
        raise LcstoreError(
            "a collector keeps condemning what is being saved: stop it, and save again", step=staged.step
        )

    def change_policy(self, policy: Policy) -> None:
        """Save with another quality from now on."""
        kept = ("error", "bytes_per_save", "weighted")
        if any(getattr(policy, name) != getattr(self.policy, name) for name in kept):
            self.track.forget_budget()
        self.policy = policy

    def moved(self, staged: Staged) -> float:
        """Return how far a state is from the head, as `lcstore.track.motion.moved` does."""
        if self.head is None or not self.sound or self._open is not None:
            return math.inf
        names = (name for name, _ in staged.flat.tensors)
        return moved(self.track.held, dict(zip(names, staged.arrays, strict=True)))

    def skipped(self, staged: Staged, started: float) -> SaveInfo:
        """Return what is said of a state that is not saved, as it is about the head."""
        assert self.head is not None
        self._note_touched(staged)
        return SaveInfo(
            step=staged.step,
            node=self.head.node,
            base=None if self.head.base == ROOT else self.head.base,
            kind="skipped",
            exact=False,
            bytes_raw=staged.nbytes,
            bytes_stored=0,
            objects=0,
            error=None,
            lag=None,
            seconds={"total": time.perf_counter() - started},
        )

    def accept(self, commit: Commit) -> None:
        """Take over a commit that is there: it is the head, and what is saved next stands on it."""
        commit.write.accept()
        self._touched = {}
        self._plain = frozenset(commit.write.plain)
        self.head = commit.name
        self.sound = self._doubtful = True
        self.index.add(commit.name, commit.record, len(commit.data))

    def _note_touched(self, staged: Staged) -> dict[Name, Array]:
        """Return what changed of the named tensors since the head, and remember it until a save lands."""
        shapes = {name: host.array.shape for name, host in staged.flat.tensors}
        now = ranges_of(staged.touched, shapes)
        for name in now.keys() & self._touched.keys():
            now[name] = union(now[name], self._touched[name])
        self._touched = {**self._touched, **now}
        return now

    def _attempt(self, staged: Staged, base: NodeName | None, touched: dict[Name, Array]) -> Commit:
        """Write and commit a state once; on any failure the track is as it was."""
        plain = frozenset[Name]() if base is None else self._plain
        quality = Quality(self.policy, plain, touched)
        write = EdgeWrite(staged, base, self.track, quality, self.backend, self.executor)
        sound, self.sound = self.sound, False  # until the commit, or the way back, whatever interrupts
        try:
            write.write()
            commit = self._prepare(write)
            self._put(commit)
        except BaseException:
            self.sound = write.undo() and sound
            raise
        self.accept(commit)
        return commit

    def _prepare(self, write: EdgeWrite) -> Commit:
        """Return the commit of an edge, with all that has to be stored before its record."""
        assert self.run is not None
        self.seq += 1  # every attempt takes a number
        place = Place(self.run, self.run_id, self.seq, self.head)
        layout = write.written.put_layout(write.draft.layout, self._named_layout)
        commit = prepare(write, place, layout)
        put_tags(self.backend, commit)
        return commit

    def _put(self, commit: Commit) -> None:
        commit.write.written.count(len(commit.data))
        try:
            commit.put(self.backend)
        except UnknownOutcomeError:
            # The track stays where it is: the next save writes this very record again.
            self._open = commit
            commit.write.leave_open()
            raise

    def _is_let_go(self, base: NodeName | None, step: int) -> bool:
        """Return whether a collector takes away anything of the node just committed, or of what it stands on.

        Whatever it condemns from now on, it lists the records once more and finds this one. What this
        handle committed before needs no look: collectors keep the latest node of every run.
        """
        assert self.head is not None
        record = self.index.record(self.head.node)
        try:
            known = None if self._named_layout is None else self._named_layout[1]
            new_layouts = [digest for _, digest in split_layouts(record.layout) if digest != known]
            gone = is_taken_away(self.backend, record.edge.id, record.objects, new_layouts)
            gone = gone or (base is not None and self._foreign and self._is_going(base))
        except StorageError as error:
            raise UnknownOutcomeError(
                "the state is stored, but whether a collector let go of what it stands on could not be "
                "listed: save again, which looks first",
                step=step,
            ) from error
        if not gone:
            self._foreign = self._doubtful = False
            layout = self.track.layout
            self._named_layout = None if layout is None else (layout, record.layout)
        return gone

    def _is_going(self, base: NodeName) -> bool:
        return is_going(self.index, base.node)

    def _disown(self, name: NodeName) -> None:
        """Let go of a node that is not acknowledged: what it stands on is being deleted."""
        mark = RetiredRecord(name.node, "not acknowledged: what it stood on was being deleted", utc_now())
        try:
            put_record(self.backend, mark.key(), mark.to_bytes())
        except StorageError as error:
            raise UnknownOutcomeError(
                "what the state just stored stands on is being deleted: save again", step=name.step
            ) from error
        self.head, self._foreign, self._doubtful, self._named_layout = None, False, False, None


def _info(commit: Commit, seconds: dict[str, float]) -> SaveInfo:
    """Return what is said of a save."""
    record, write = commit.record, commit.write
    worst = write.worst
    return SaveInfo(
        step=record.step,
        node=commit.name.node,
        base=None if write.base is None else write.base.node,
        kind="anchor" if write.base is None else "delta",
        exact=bool(record.stats["exact"]),
        bytes_raw=int(record.stats["bytes_raw"]),
        bytes_stored=write.written.nbytes,
        objects=write.written.objects,
        error=record.stats.get("error"),
        lag=float(write.lag) if np.isfinite(write.lag) else None,
        seconds=seconds,
        row_error=None if worst is None else worst[0],
        row_error_at=None if worst is None else format_name(worst[1]),
    )
