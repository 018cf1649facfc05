"""Saving: the part of `lcstore.Store` that writes states, at once or in the background."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Final

import numpy as np

from lcstore.durability import Durability
from lcstore.errors import (
    InvalidInputError,
    NotFiniteWarning,
    StepWarning,
    UnrecognisedWarning,
)
from lcstore.format.labels import Labels, check_labels, check_step
from lcstore.format.policyfile import PolicyLike, policy_from
from lcstore.format.records import NodeRecord, StoreRecord
from lcstore.index.recorded import policy_of_numbers
from lcstore.jobs.deadline import deadline
from lcstore.jobs.jobs import telling, threads_behind
from lcstore.jobs.survey import OnProgress
from lcstore.layout.layout import Layout
from lcstore.staging.stage import Staged, named, stage
from lcstore.staging.tiny import tiny_said
from lcstore.staging.unrecognised import changed_wrapping, unmet_names
from lcstore.storage.backend import Backend
from lcstore.storage.patient import PatientBackend
from lcstore.store.handle import Handle
from lcstore.store.otherruns import OtherRuns
from lcstore.store.saver import SaveFuture, Saver
from lcstore.track.policy import PRESETS, Policy
from lcstore.warned import warn
from lcstore.write.saveinfo import SaveInfo
from lcstore.write.writer import Writer

_log: Final = logging.getLogger("lcstore")


class Saving(Handle):
    """The methods of `lcstore.Store` that save."""

    def __init__(
        self,
        backend: Backend,
        policy: Policy | None,
        durability: Durability,
        *,
        writable: bool,
        made: StoreRecord | None,
        grace: float,
        threads: int | None,
        gpu_memory: int = 0,
    ) -> None:
        super().__init__(backend, durability, writable=writable, threads=threads)
        self._writer = Writer(
            self._index,
            self._executor,
            self._requests,
            policy=policy or PRESETS["balanced"],
            durability=durability,
            made=made,
            grace=grace,
        )
        self._told_of = self._writer.not_finite
        #: Whether the policy is the caller's. Otherwise it becomes that of the state that is gone on from.
        self._policy_is_given = policy is not None
        #: Whether the next save is to say (once) that names in the state and in the policy do not meet.
        self.looks_at_names = True
        self.looks_at_steps = True  #: Whether to say (once) that a step is not above the one before.
        self._looks_at_wrapping = self._looks_at_sizes = self._looks_at_runs = True
        #: Whether the latest state (of all, or of a run) was resumed: a lower step is a counter's mistake.
        self._counts_on = False
        self.goes_on = True  #: Whether more may be saved; if not, nothing is held for deltas to an anchor.
        self._other_runs = OtherRuns(self._index)
        self._saver = Saver(self._executor, threads_behind(threads), gpu_memory)

    @property
    def policy(self) -> Policy:
        """The quality of what is saved next; `info` tells that of a state. May be set between saves."""
        return self._writer.policy

    @policy.setter
    def policy(self, policy: PolicyLike) -> None:
        with self._alone():
            self._writer.change_policy(policy_from(policy))
            self._policy_is_given = self.looks_at_names = True

    def _go_on_with_policy(self, record: NodeRecord) -> None:
        """Save as the state of a record was saved, unless the caller has said how."""
        found = policy_of_numbers(record.stats)
        if self._policy_is_given or found is None:
            return
        policy, more = found
        if more:
            _log.warning(
                "%s: step %d was saved under a policy with rules or bounds, which are not kept in a store: "
                "give it again, open(..., policy=...)",
                self.url,
                record.step,
            )
        if policy != self.policy:
            _log.info("%s: saves go on under the policy of step %d: %s", self.url, record.step, policy.name)
        self._writer.change_policy(policy)

    def save(
        self,
        step: int,
        state: Any,
        *,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        exact: bool = False,
        skip_below: float = 0.0,
        touched: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> SaveInfo:
        """Commit a state. When this returns, it is there (and durable, where the target can be).

        Parameters
        ----------
        step
            The training step, 0 or more. A step saved before gets another revision.
        state
            Any nesting of dicts, lists and tuples with arrays (numpy, torch, JAX, anything with
            ``__array__`` or DLPack) and plain values; objects with ``state_dict()`` are asked for it.
        metrics, metadata
            Numbers, and JSON-like data, kept with the state.
        tags
            Names to find it by.
        exact
            Keep every bit of it (a full-size save); later saves go on as small deltas.
        skip_below
            Save nothing if the weights have `moved` less than this since the last save of this handle. Then
            the result is of kind ``"skipped"`` and names that last state, and there is no such step. Small
            moves add up until one is saved. States with tags, and exact saves, are never skipped.
        touched
            Which rows of large tables have changed since the last save that returned, by name: row numbers or
            a mask, ``{"model/table.weight": rows}``. Others are not read, but for a sample that must agree.
            So a save is quicker. It is not smaller: rows that did not change cost about nothing anyway.
        timeout
            Seconds that the storage has for the save as a whole. For stores that were opened with a `timeout`
            or are behind a network. By default ten times the store's `timeout`, and two seconds more for each
            MiB of the state.
        on_progress
            Called with "save", how many chunks are coded and on their way, and how many there are.

        Raises
        ------
        InvalidInputError
            Something in the state cannot be stored; the message says where it lies. Or it would be the
            first of a store that lies in another one, or another in it: nothing was stored.
        StorageError
            The target failed; nothing was committed, and the handle goes on.
        UnknownOutcomeError
            The target failed, and the commit may have landed or not. The next save finds out first.

        Warns
        -----
        UnrecognisedWarning
            Once for a handle, and for a `policy` that is set: most of the state is plain, as no name or
            rule says that it is weights; or a rule matches no tensor. And once where a wrapper of the
            model (DDP, `torch.compile`) came or went, so that names changed and all is stored anew.
        NotFiniteWarning
            Weights or moments hold NaN or infinity, for the first time or after saves in which none did.
        StepWarning
            Once for a handle: the step is not above the one that it saved before, or is below the one that it
            resumed as the latest.

        Examples
        --------
        >>> info = store.save(30, state, metrics={"loss": 1.5}, tags=["last"])
        >>> info.kind
        'delta'
        >>> store.info("last").metrics
        {'loss': 1.5}
        """
        step, labels = self._asked(step, metrics, metadata, tags, exact, skip_below, timeout)
        with self._alone(), named(step):
            started, buffers = time.perf_counter(), self._saver.buffers
            staged = stage(step, state, labels, exact=exact, touched=touched, copy=False, buffers=buffers)
            return self._commit(staged, started, skip_below, timeout, on_progress)

    def save_async(
        self,
        step: int,
        state: Any,
        *,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        exact: bool = False,
        skip_below: float = 0.0,
        touched: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> SaveFuture:
        """Copy a state, and commit it in the background. When this returns, the state may be changed.

        One save at a time is under way: a call waits until the one before has ended, and so a loop that saves
        faster than the target takes it is slowed down (`is_saving` tells). The copy is kept for the next one:
        a handle that saves so takes the memory of one state more. Of tensors on GPUs it is made meanwhile:
        what the current stream is given later waits, on the GPU, until they are read (docs/background.md).

        Parameters as for `save`; `on_progress` is called by another thread.

        Returns
        -------
        SaveFuture
            A `concurrent.futures.Future`: `result` waits for the commit, and gives what `save` does. The
            state is there once it is done, and not before.

        Raises
        ------
        InvalidInputError
            Something in the state cannot be stored. Nothing is under way then.
        LcstoreError
            The save before failed, and nobody asked its future: it is raised here, once, and this state is
            not saved. The track is that of the last commit, so later saves go on from there.

        Notes
        -----
        A failure is raised where it is asked for, or else by the next save, resume, `wait` or `close`. The
        end of the interpreter finishes a save under way first. A process that is killed loses that alone.

        Examples
        --------
        >>> future = store.save_async(40, state)
        >>> weight[:] = 0  # the loop goes on
        >>> future.result().step
        40
        """
        step, labels = self._asked(step, metrics, metadata, tags, exact, skip_below, timeout)
        with self._saver.turn(), named(step):
            self._check_open()
            started, buffers = time.perf_counter(), self._saver.buffers
            staged = stage(step, state, labels, exact=exact, touched=touched, buffers=buffers)

            def commit() -> SaveInfo:
                buffers.wait()
                with self._lock:
                    return self._commit(staged, started, skip_below, timeout, on_progress)

            return self._saver.begin(commit)

    @property
    def is_saving(self) -> bool:
        """Whether a save is under way in the background, which the next one would wait for."""
        return self._saver.is_busy

    def wait(self) -> SaveInfo | None:
        """Wait until no save is under way in the background; return what was saved so last.

        Raises
        ------
        LcstoreError
            What it failed with, if nobody has heard of that yet.
        """
        self._check_open()
        return self._saver.wait()

    def close(self) -> None:
        """End the handle, once a save under way is done; closing twice is fine.

        Raises
        ------
        LcstoreError
            A save in the background failed, and nobody has heard of that yet. The handle is closed.
        """
        if self._saver.is_foreign:
            return
        try:
            self._saver.wait()
        finally:
            super().close()
            self._saver.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"Besides, a save in the background failed: {failure}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Have nothing else be saved in a ``with`` block, what is under way being done before."""
        self._check_open()
        # What is staged may lie in memory that the next one is staged to.
        with self._saver.turn(), super()._alone():
            yield

    def _asked(
        self,
        step: int,
        metrics: Mapping[str, float] | None,
        metadata: Mapping[str, Any] | None,
        tags: Sequence[str],
        exact: bool,
        skip_below: float,
        timeout: float | None,
    ) -> tuple[int, Labels]:
        """Return step and labels of a save, checked."""
        labels = check_labels(metrics, metadata, tags)
        if exact not in (True, False):
            raise InvalidInputError(f"exact is {exact!r:.100}; it is True or False")
        if not (isinstance(skip_below, int | float | np.floating) and skip_below >= 0):
            raise InvalidInputError(f"skip_below is {skip_below!r:.100}; it is a distance, 0 or more")
        if timeout is not None and not isinstance(self._backend, PatientBackend):
            raise InvalidInputError(f"{self.url} is not waited for: open it with a timeout to bound saves")
        self._check_writable()
        return check_step(step), labels

    def _commit(
        self,
        staged: Staged,
        started: float,
        skip_below: float,
        timeout: float | None,
        on_progress: OnProgress | None,
    ) -> SaveInfo:
        """Commit a state, or skip it."""
        skips = skip_below > 0 and not staged.exact and not staged.labels.tags
        if skips and self._writer.moved(staged) < skip_below:
            return self._writer.skipped(staged, started)
        before, head = self._writer.track.layout, self._writer.head
        self._told_of = self._told_of if self._writer.plain else self._writer.not_finite
        own = head is not None and self._writer.is_own
        with staged.named(), self._bounded(staged.nbytes, timeout), telling(on_progress, "save"):
            info = self._writer.save(staged, started, kept=self.goes_on)
        self._look_at_names(info.step, before)
        self._look_at_values(info.step)
        assert self._writer.head is not None
        self._other_runs.saved(self._writer.head, anew=head is None)
        if own and head is not None and info.step <= head.step:
            self._look_at_step(info.step, head.step, "in the same run")
        elif not own and head is not None and self._counts_on and info.step < head.step:
            self._look_at_step(info.step, head.step, "which was resumed as the latest")
        _log.info("%s: saved %s", self.url, info)
        return info

    def _look_at_step(self, step: int, before: int, how: str) -> None:
        """Warn once of a step that is not above the one before, as of a counter that began anew."""
        if self.looks_at_steps:
            self.looks_at_steps = False
            warn(
                f"step {step} was saved after step {before}, {how}; both are kept. 'latest' is the state "
                "that was saved last, and a step that was saved twice is the later of the two. If a counter "
                "begins anew with each epoch or process, count all steps together: a resumed loop begins "
                "with store.step + 1. If it is meant so, resume that state by its step",
                StepWarning,
            )

    def _look_at_values(self, step: int) -> None:
        """Warn once where weights are not finite any more, and once where moments are not."""
        if self._writer.not_finite.is_news_after(self._told_of):
            self._told_of = self._writer.not_finite
            warn(self._told_of.said(step, self._writer.policy), NotFiniteWarning)

    def _look_at_names(self, step: int, before: Layout | None) -> None:
        """Warn once where names in a state, in the one before and in the policy do not meet, or take much."""
        layout = self._writer.track.layout
        if self._looks_at_sizes and layout is not before and (tiny := tiny_said(step, layout)):
            self._looks_at_sizes = False
            warn(tiny, UnrecognisedWarning)
        if self._looks_at_wrapping and (changed := changed_wrapping(before, layout)):
            self._looks_at_wrapping = False
            warn(changed, UnrecognisedWarning)
        if self.looks_at_names and layout is not None:
            self.looks_at_names = False
            for message in unmet_names(self._writer.policy, layout, self._writer.plain):
                warn(message, UnrecognisedWarning)

    def moved(self, state: Any) -> float:
        """Return how far the weights have moved since the last save of this handle.

        In the distances that saves are usually apart, by samples: 1 is about one save's worth. Infinity where
        that is not known: before the second save, and where tensors came, went, or are not finite.
        """
        with self._alone():
            return self._writer.moved(stage(0, state, copy=False, buffers=self._saver.buffers))

    def _distrust(self) -> None:
        self._writer.distrust()

    def _bounded(self, nbytes: int, timeout: float | None) -> AbstractContextManager[None]:
        """Bound what a save of some bytes asks of the storage."""
        if isinstance(self._backend, PatientBackend):
            return deadline(self._backend.patience.whole_save(nbytes) if timeout is None else timeout)
        return nullcontext()
