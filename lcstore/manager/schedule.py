"""When to save: after so many steps or seconds, or as often as it pays by what was measured."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from lcstore.errors import InvalidInputError
from lcstore.units import parse_seconds

#: Steps as people write them where a number is taken.
_STEPS: Final = re.compile(r"\s*([0-9]+)\s*(?:steps?)?\s*")


class Pace(NamedTuple):
    """What was measured of a loop, at the end of a step.

    Attributes
    ----------
    step
        The step.
    last
        The step that was saved last, or resumed; None where there is none.
    seconds
        Since that save began, or since it was resumed.
    step_seconds
        What a step takes while nothing is saved; None where that is not known yet.
    save_seconds
        What a save takes from the loop: waiting for it, and by how much steps are slower while it is under
        way; None where that is not known yet.
    """

    step: int
    last: int | None
    seconds: float
    step_seconds: float | None
    save_seconds: float | None

    @property
    def measures_saves(self) -> bool:
        """Whether it takes a save to know what one takes: a process that resumed has measured steps alone."""
        return self.step_seconds is not None and self.save_seconds is None


class Schedule(Protocol):
    """Says after which steps to save.

    The first step of a run that was not resumed is saved in any case, and a step below the one saved last.
    """

    def is_due(self, pace: Pace) -> bool:
        """Return whether to save now."""


@dataclass(frozen=True)
class Steps:
    """Save at multiples of a number of steps; where such a step was not offered, at the next one.

    Parameters
    ----------
    count
        1 or more.
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise InvalidInputError(f"a number of steps is 1 or more, not {self.count!r}")

    def is_due(self, pace: Pace) -> bool:
        """Return whether a multiple was reached since the last save."""
        return pace.last is None or pace.step // self.count > pace.last // self.count


@dataclass(frozen=True)
class Seconds:
    """Save when so much time has passed since the last save.

    Parameters
    ----------
    interval
        Seconds, or a text such as ``"10min"``.
    """

    interval: float | str

    def __post_init__(self) -> None:
        _positive(self.interval, "an interval")

    def is_due(self, pace: Pace) -> bool:
        """Return whether the time has passed."""
        return pace.last is None or pace.seconds >= _positive(self.interval, "an interval")


@dataclass(frozen=True)
class Overhead:
    """Save as often as a part of the training time allows.

    What a step and a save take is measured all the time, and so the interval follows both (CheckFreq, Mohan
    et al., FAST 2021, section 4.3).

    Parameters
    ----------
    share
        Time that saves may take from the loop, for each second of training: 0.035 is 3.5 %.
    """

    share: float = 0.035

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidInputError(
                f"an overhead is a share of the time, between 0 and 1, not {self.share!r}"
            )

    def is_due(self, pace: Pace) -> bool:
        """Return whether the steps since the last save make up for what a save takes."""
        if pace.last is None:
            return True
        if pace.step_seconds is None or pace.save_seconds is None:
            return pace.measures_saves
        return (pace.step - pace.last) * pace.step_seconds * self.share >= pace.save_seconds


@dataclass(frozen=True)
class FailureRate:
    """Save such that the least time is lost, to saves and to work that a failure undoes.

    The interval is the one of Daly, "A higher order estimate of the optimum checkpoint interval for restart
    dumps" (2006), equation 37. How long a restart takes does not change it.

    Parameters
    ----------
    mean_time
        Time between failures of the whole run on average: seconds, or a text such as ``"12h"``.
    """

    mean_time: float | str

    def __post_init__(self) -> None:
        _positive(self.mean_time, "a time between failures")

    def interval(self, save_seconds: float) -> float:
        """Return the seconds between saves that each take so many seconds."""
        mean = _positive(self.mean_time, "a time between failures")
        if save_seconds >= 2 * mean:
            return mean
        part = save_seconds / (2 * mean)
        return math.sqrt(2 * save_seconds * mean) * (1 + math.sqrt(part) / 3 + part / 9) - save_seconds

    def is_due(self, pace: Pace) -> bool:
        """Return whether the interval has passed."""
        if pace.last is None:
            return True
        if pace.save_seconds is None:
            return pace.measures_saves
        return pace.seconds >= self.interval(pace.save_seconds)


#: What `CheckpointManager` takes for ``every``: 100 is each 100 steps, ``"10min"`` ten minutes.
ScheduleLike: TypeAlias = Schedule | int | str


def schedule_from(every: ScheduleLike) -> Schedule:
    """Return a schedule.

    Raises
    ------
    InvalidInputError
        It is none.
    """
    if isinstance(every, int):
        return Steps(every)
    if isinstance(every, str):
        steps = _STEPS.fullmatch(every)
        if steps is not None:
            count = steps[1]
            raise InvalidInputError(
                f"{every!r} is no schedule: steps are a number, {count}, and a time has a unit, '{count}s'"
            )
        return Seconds(every)
    if isinstance(every, type) or not callable(getattr(every, "is_due", None)):
        raise InvalidInputError(
            "a schedule is a number of steps, a time such as '10min', one of Steps, Seconds, Overhead and "
            "FailureRate, or an object of yours that says is_due(pace), as lcstore.Schedule does; not "
            f"{every!r:.100}"
        )
    return every


def _positive(interval: float | str, what: str) -> float:
    seconds = parse_seconds(interval) if isinstance(interval, str) else interval
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidInputError(f"{what} is seconds above 0, or a text such as '10min', not {interval!r}")
    return seconds
