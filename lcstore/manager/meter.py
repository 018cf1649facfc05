"""What steps and saves take from a training loop, measured as it goes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final, TypeVar

from lcstore.compiling.jit import readied
from lcstore.manager.behind import wait_for, wait_for_all
from lcstore.manager.schedule import Pace

T = TypeVar("T")

#: Steps and saves that are remembered: the median of them is what one takes.
_STEPS: Final = 50
_SAVES: Final = 6
#: The first save of a process stores a whole state, and it and others load kernels or compile them: they say
#: little of those that follow, and count so much of what they took while nothing else is known.
_EARLY: Final = 0.1


class _Save:
    """What one save took: the loop's waiting, and the steps while it was under way."""

    def __init__(self, *, early: bool) -> None:
        self.blocked = self.slow = 0.0
        self.steps = 0
        #: Whether it took more than later ones will.
        self.early = early
        self._kernels = readied()

    def look(self) -> None:
        """Take note whether kernels were loaded since it began; it is under way yet, or just over."""
        self.early = self.early or readied() > self._kernels

    def cost(self, step: float) -> float:
        """Return the seconds that the loop lost, of which a step takes so many otherwise."""
        return self.blocked + max(0.0, self.slow - self.steps * step)


class Meter:
    """Measures a loop, in seconds of a clock, that gives control away after a step and gets it back."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._steps: deque[float] = deque(maxlen=_STEPS)
        #: The same of those since the last save; and seconds and steps of all of these.
        self._fresh: deque[float] = deque(maxlen=_STEPS)
        self._seconds, self._count = 0.0, 0
        #: Whether steps are computed behind the loop, so that what fresh ones took says little yet.
        self._queued = False
        #: Whether the states are of JAX, which computes steps behind the loop.
        self._computes_behind = False
        self._saves: deque[_Save] = deque(maxlen=_SAVES)
        self._last: int | None = None
        self._began = clock()
        #: The step that ended last, when the loop went on after it, and whether a save was under way then.
        self._step: int | None = None
        self._left = 0.0
        self._saving = False
        self._entered = 0.0

    def enter(self, step: int, *, saving: bool) -> None:
        """Take note that a step has ended; a second time for one step changes nothing.

        Parameters
        ----------
        step
            The step.
        saving
            Whether a save is under way. JAX has many steps wait to be computed while the loop goes on: where
            a save ends, those that were computed beside it are told from those that follow.
        """
        if self._computes_behind and self._saving and not saving:
            wait_for_all()
        self._entered = self._clock()
        if self._step is not None and step > self._step:
            count, seconds = step - self._step, self._entered - self._left
            if not (saving or self._saving):
                self._fresh.append(seconds / count)
                self._seconds, self._count = self._seconds + seconds, self._count + count
            elif self._saves:
                self._saves[-1].slow += seconds
                self._saves[-1].steps += count
                self._saves[-1].look()
        self._step = step

    def begun(self, step: int) -> None:
        """Take note that a save of a step began at the moment that was entered."""
        self._saves.append(_Save(early=not self._saves))
        self._last, self._began = step, self._entered

    def ready(self, state: T) -> T:
        """Return the state to be saved once it is computed: that takes time of steps, and none of a save."""
        before = self._clock()
        self._computes_behind = wait_for(state)
        seconds = self._clock() - before
        self._entered += seconds
        if self._fresh:
            self._queued = seconds > median(self._fresh)
            each = (self._seconds + seconds) / self._count
            self._steps.extend([each] * len(self._fresh) if self._queued else self._fresh)
            self._fresh.clear()
            self._seconds, self._count = 0.0, 0
        elif len(self._saves) > 1:  # the save before is under way yet
            self._saves[-2].slow += seconds
        return state

    def leave(self, *, saving: bool, told: bool = False) -> None:
        """Take note that the loop goes on; `told`, where an observer was told of a save: that costs, too."""
        self._left, self._saving = self._clock(), saving
        if self._saves and (told or self._last == self._step):
            self._saves[-1].blocked += self._left - self._entered
            self._saves[-1].look()
            self._entered = self._left

    def resumed(self, step: int) -> None:
        """Take note that the loop goes on from a saved step."""
        self._last, self._step, self._began = step, None, self._clock()

    def pace(self, step: int) -> Pace:
        """Return what was measured until now, at the end of a step."""
        seconds = self._clock() - self._began
        known = self._steps if self._queued and self._steps else [*self._steps, *self._fresh][-_STEPS:]
        if not known:
            return Pace(step, self._last, seconds, None, None)
        each = median(known)
        return Pace(step, self._last, seconds, each, self._cost(each))

    def _cost(self, step: float) -> float | None:
        """Return what a save costs the loop, of which a step takes so many seconds; None before the first."""
        usual = [save for save in self._saves if not save.early]
        over = [save for save in usual if save is not self._saves[-1]]  # what is not may cost more yet
        if usual:
            return median(save.cost(step) for save in over or usual)
        return _EARLY * max(save.cost(step) for save in self._saves) if self._saves else None
