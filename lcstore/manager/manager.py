"""`CheckpointManager`: what a training loop calls after each step."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, Unpack

from lcstore.format.labels import At, Run, check_step
from lcstore.manager.landed import Landed
from lcstore.manager.lastsave import LastSave
from lcstore.manager.meter import Meter
from lcstore.manager.options import (
    Labels,
    RestoreOptions,
    ResumeOptions,
    check_labels,
    check_options,
    check_own,
)
from lcstore.manager.preemption import Notice
from lcstore.manager.ranked import is_left_out
from lcstore.manager.resumed import Resumed
from lcstore.manager.schedule import Overhead, ScheduleLike, schedule_from
from lcstore.manager.tending import Tending
from lcstore.manager.unsaved import Evaluations
from lcstore.ranks import RankOfHandle
from lcstore.retention import Retention
from lcstore.retention.parse import as_rule
from lcstore.state.containers import makes_state
from lcstore.storage.backend import Backend
from lcstore.store.opening import OpenOptions, open_store
from lcstore.store.store import Store
from lcstore.write.saveinfo import SaveInfo

_log: Final = logging.getLogger("lcstore")

#: A state, or what returns one: it is called only if the state is saved.
StateLike: TypeAlias = Any


class CheckpointManager:
    """Saves from a training loop: when it is due, in the background, and once more before a machine goes.

    Use it in a ``with`` block, or call `close`. Of processes that train together (``torch.distributed``) the
    one of rank 0 saves; the others only resume.

    Parameters
    ----------
    url
        As for `lcstore.open`.
    every
        When to save: each so many steps (``100``), a time (``"10min"``), or one of `Steps`, `Seconds`,
        `Overhead` and `FailureRate`. By default saves take 3.5 % of the time of the loop.
    keep
        What is kept, as for `Store.retain`; the rest is let go of in the background now and then, and deleted
        after the store's grace. None: everything.
    background
        Whether the loop goes on while a state is coded and stored. It waits for a copy of the state then.
    skip_if_busy
        Whether a state that is due while another is on its way is left out, instead of waited for.
    preempted
        Returns whether the machine is about to be taken away; asked at each step. None: SIGTERM says so, if
        the manager is made in the main thread.
    preemption_grace
        Seconds from that on until the machine is gone.
    on_saved
        Called once with what is told of each save that was committed, by the thread of the loop: by `save`,
        `wait_until_finished`, `check_for_errors`, `close`, and before a resume. What it raises is raised
        there, once the state that was due is saved, or on its way.
    options
        Passed on to `lcstore.open`: ``fs`` and ``path`` in the place of `url`, ``policy``,
        ``storage_options``, ``durability`` and so on.

    Raises
    ------
    InvalidInputError
        An argument is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> weight = np.zeros((256, 256), np.float32)
    >>> with lcstore.CheckpointManager("runs/managed", every=10) as manager:
    ...     resumed = manager.resume()
    ...     for step in range(resumed.step + 1 if resumed else 0, 30):
    ...         weight += np.float32(1e-3)
    ...         saved = manager.save(step, {"model": {"weight": weight}}, metrics={"loss": 1.0})
    ...         if manager.reached_preemption():
    ...             break
    ...     manager.wait_until_finished()
    ...     manager.all_steps()
    [0, 10, 20]
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Backend | None = None,
        *,
        every: ScheduleLike = Overhead(0.035),  # noqa: B008  (frozen)
        keep: Retention | str | None = None,
        background: bool = True,
        skip_if_busy: bool = False,
        preempted: Callable[[], bool] | None = None,
        preemption_grace: float = 30.0,
        on_saved: Callable[[SaveInfo], object] | None = None,
        **options: Unpack[OpenOptions],
    ) -> None:
        check_own(preemption_grace, preempted=preempted, on_saved=on_saved)
        check_options(options, open_store, CheckpointManager.__init__)
        self._schedule = schedule_from(every)
        rule = None if keep is None else as_rule(keep)
        self.store = open_store(url, **options)
        self._background = background
        self._skips = skip_if_busy
        self._last_save = LastSave(preemption_grace)
        self._meter = Meter()
        self._landed = Landed(self.store, self._last_save, on_saved)
        self._offered: int | None = None

        def opened() -> Store:
            return open_store(url, **(options | {"mode": "r+", "grace": None}))  # it is a store by then

        self._tending = None if rule is None else Tending(opened, rule)
        self._evaluations = Evaluations(self.store, rule)
        self._notice = Notice(preempted)
        self._answered = False
        self._process, self._rank = os.getpid(), RankOfHandle()

    # Saving ----------------------------------------------------------------------------------------------

    def should_save(self, step: int) -> bool:
        """Return whether `save` would save this step: it is due, or the machine is about to be taken away."""
        if self._rank.number:
            return False
        self._meter.enter(step, saving=self.store.is_saving)
        due = self._is_due(step)
        self._meter.leave(saving=self.store.is_saving)
        return due

    def _is_due(self, step: int) -> bool:
        if step == self._landed.last:
            return False
        if self._notice.wants_a_save:
            return True
        if self._skips and self.store.is_saving:
            return False
        # A loop that counts anew is due: no schedule would say so until it is past that step again.
        return step < (self._landed.last or 0) or self._schedule.is_due(self._meter.pace(step))

    def save(
        self,
        step: int,
        state: StateLike,
        *,
        metrics: Mapping[str, float] | None = None,
        force: bool = False,
        **labels: Unpack[Labels],
    ) -> bool:
        """Save a state if it is due, as `should_save` says; call it after each step.

        Once notice was given that the machine is about to be taken away, the state is committed before this
        returns: every bit of it if there is time for that by what was measured, else as a delta.

        Parameters
        ----------
        step
            The step that ended.
        state
            As for `Store.save`; or a function that returns it, which is called only where it is saved.
        metrics
            Numbers to find the best state by.
        force
            Save in any case, but for a step that this manager saved or resumed last.
        labels
            Passed on to `Store.save`: ``tags``, ``metadata``, ``exact``, ``touched`` and so on.

        Returns
        -------
        bool
            Whether a save of this step was begun. Never, in a process that is not of rank 0.

        Raises
        ------
        LcstoreError
            As of `Store.save`; or a save in the background failed, and nobody has heard of that yet. Then
            this state was not saved, and the next one goes on from the last commit. What `on_saved` raises
            comes after the save of this state.
        """
        check_step(step)
        check_labels(labels)
        if is_left_out(self.store.url, self._rank.number):
            return False
        self._offered = step
        self._meter.enter(step, saving=self.store.is_saving)
        told = False
        try:
            begun = self._take(step, state, metrics, labels, force=force)
            told = self._landed.tell()
            if begun and self._tending is not None:  # after that: what is told of may go now
                self._tending.begin()
            return begun
        finally:
            self._meter.leave(saving=self.store.is_saving, told=told)

    def _take(
        self, step: int, state: StateLike, metrics: Mapping[str, float] | None, labels: Labels, *, force: bool
    ) -> bool:
        """Save a step if it is due, and tell nobody of it yet."""
        told = self._notice.is_given
        # The last save goes on whatever came before.
        if not (told and self._notice.wants_a_save):
            self._landed.catch_up()
        due = (force and not self._landed.is_there(step)) or self._is_due(step)
        self._evaluations.offered(step, metrics, saved=due)
        if not due:
            self._answered = told
            return False
        self._meter.begun(step)
        state = self._meter.ready(state() if makes_state(state) else state)
        if self._notice.wants_a_save:
            self._save_last(step, state, metrics, labels)
        elif self._background:
            self._landed.wait()
            self._landed.begin(step, partial(self.store.save_async, step, state, metrics=metrics, **labels))
        else:
            self._landed.save(step, partial(self.store.save, step, state, metrics=metrics, **labels))
        self._answered = told
        return True

    def _save_last(
        self, step: int, state: StateLike, metrics: Mapping[str, float] | None, labels: Labels
    ) -> None:
        """Commit a state before the machine goes."""
        try:
            self._landed.wait()
        except Exception as error:  # what is to be saved now is later, and does not stand on that
            _log.warning("the save before the last one failed: %s", error)
        save = partial(self.store.save, step, state, metrics=metrics, **(labels | {"skip_below": 0.0}))
        commit = partial(self._last_save.commit, save, labels.get("exact"), self._notice.seconds)
        self._notice.saved(self._landed.save(step, commit))

    # Waiting ---------------------------------------------------------------------------------------------

    @property
    def is_saving_in_progress(self) -> bool:
        """Whether a save is under way in the background."""
        return self.store.is_saving

    def check_for_errors(self) -> None:
        """Raise what a save in the background failed with, if it ended and nobody has heard of that yet."""
        if not self.store.is_saving:
            self.wait_until_finished()

    def wait_until_finished(self) -> None:
        """Wait for the save under way.

        Raises
        ------
        LcstoreError
            What it failed with, if nobody has heard of that yet.
        """
        self._landed.wait()
        self._landed.tell()

    @property
    def has_notice(self) -> bool:
        """Whether the machine is about to be taken away. The step that ended may not be saved yet."""
        return self._notice.is_given

    def give_notice(self) -> None:
        """Take it that the machine is about to be taken away, as if SIGTERM had come to this process too.

        Of processes that train together one may be told before the others: call it in all of them, before
        the `save` of the step with which all leave the loop.
        """
        self._notice.give()

    def reached_preemption(self, step: int | None = None) -> bool:
        """Return whether it is time to leave the loop: the machine goes, and `save` has heard of that.

        Notice that comes after `save` waits for the next step. Where rank is not 0 it is `has_notice`.

        Parameters
        ----------
        step
            Only for likeness with other managers.
        """
        return self._notice.is_given and (self._answered or self._rank.number > 0)

    def close(self) -> None:
        """End: wait for the save under way, and for what is let go of beside it.

        If SIGTERM came, it then does what it would have done without the manager.

        Raises
        ------
        LcstoreError
            A save in the background failed, and nobody has heard of that yet.
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:  # a fork: the saves, and who hears of them, are its parent's
            return
        try:
            if kind is None:
                self._evaluations.ended(self._offered, self._landed.last)
                self._offered = None
            if self._tending is not None and not self._notice.seconds:
                self._tending.finish()
        finally:
            try:
                self._landed.end(kind, error, trace)
            finally:
                self._notice.stop()

    # Looking ---------------------------------------------------------------------------------------------

    def latest_step(self) -> int | None:
        """Return the step that `restore` and `resume` give, or None where nothing was saved."""
        return self.store.latest_step()

    def all_steps(self) -> list[int]:
        """Return every step that can be restored, in rising order."""
        return self.store.steps()

    def best_step(self, metric: str, mode: Literal["min", "max"] | None = None) -> int | None:
        """Return the step with the best value of a metric, or None where nothing was saved.

        Parameters
        ----------
        metric
            Its name, as it was given to `save`.
        mode
            Which value is the best; if not given, that of the rule in `keep`, or else the least.

        Raises
        ------
        InvalidInputError
            No mode is given for a metric of which, by its name, more is better.
        NotFoundError
            No state has this metric.
        """
        if self.store.latest_step() is None:
            return None
        return self.store.best_step(metric, mode or self._evaluations.mode_of(metric))

    def restore(self, step: At = None, **how: Unpack[RestoreOptions]) -> Any:
        """Return a state, as `Store.restore` does; the next save does not go on from it."""
        return self.store.restore(step, **how)

    # Resuming --------------------------------------------------------------------------------------------

    def resume(self, at: At = None, **how: Unpack[ResumeOptions]) -> Resumed | None:
        """Return a state and go on from it; None where nothing was saved yet, so that the loop begins anew.

        It warns (`FallbackWarning`) where the latest is damaged and passed over, or where all are gone.

        Parameters
        ----------
        at, how
            As for `Store.resume`: ``run``, ``dtype``, ``like``, ``to``.
        """
        return self._resumed(at, lambda at: self.store.resume(at, on_corrupt="previous", **how))

    def resume_into(
        self, targets: Mapping[str, Any], at: At = None, *, run: Run = None, assign: bool = False
    ) -> Resumed | None:
        """Load a state into models, optimizers and whatever has ``load_state_dict``, and go on from it.

        None where nothing was saved yet: nothing was changed, and the loop begins anew. Parameters as for
        `Store.resume_into`; a latest state that is damaged is passed over, with a warning.
        """
        return self._resumed(
            at, lambda at: self.store.resume_into(at, targets, run=run, assign=assign, on_corrupt="previous")
        )

    def _resumed(self, at: At, resume: Callable[[At], Any]) -> Resumed | None:
        self.wait_until_finished()
        if at is None and self.store.latest_step() is None:
            return None
        began = time.perf_counter()
        state = resume(at)
        self._last_save.resumed(time.perf_counter() - began)
        step = self.store.step
        assert step is not None
        self._landed.resumed(step)
        self._meter.resumed(step)
        return Resumed(step, state)
