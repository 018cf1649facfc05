"""The rules that name states to keep, by place, step, time, metric, size or name."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from lcstore.errors import InvalidInputError
from lcstore.retention.base import (
    Keep,
    Retention,
    check_count,
    check_keeps,
    check_number,
    check_text,
    keeps_of,
)
from lcstore.retention.candidates import Candidate
from lcstore.units import format_bytes, format_seconds, parse_bytes, parse_seconds, whole

#: Commits are dated in milliseconds.
_MIN_SECONDS = 0.001
#: Some 30,000 years: every float below has its own text.
_MAX_SECONDS = 1e12
#: Metrics that a message lists.
_SHOWN = 10


@dataclass(frozen=True, slots=True, repr=False)
class LatestN(Keep):
    """Keep the last `n` commits, whatever their steps: revisions of a step count one by one."""

    n: int

    def __post_init__(self) -> None:
        check_count("LatestN", "n", self.n)

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the last `n` nodes."""
        return {item.node for item in candidates[-self.n :]}


@dataclass(frozen=True, slots=True, repr=False)
class EveryNSteps(Keep):
    """Keep the first save at or after each multiple of `n` steps (counted from `offset`).

    Where saves land on the multiples, those are kept, as in Orbax: 0, 1000, 2000 for ``n=1000``. Where they
    do not, nothing is missed: of saves at 7, 14, 21, ... it keeps 7, 1001, 2002, ..., while a test of
    ``step % n == 0`` would keep every seventh thousand only. The beginning is a multiple too (0 times `n`),
    so the first save of a run stays. One save may answer for several multiples, if none was made between.

    Of a step that was saved again only the newest revision is kept. Steps before `offset` are not named.
    """

    n: int
    offset: int = 0

    def __post_init__(self) -> None:
        check_count("EveryNSteps", "n", self.n)
        check_count("EveryNSteps", "offset", self.offset, 0)

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the newest revision of the lowest step from each multiple to the next."""
        newest = {item.step: item for item in candidates if item.step >= self.offset}
        by_step = (newest[step] for step in sorted(newest))
        return set(_firsts(by_step, lambda item: (item.step - self.offset) // self.n).values())


@dataclass(frozen=True, slots=True, repr=False, init=False)
class EveryNSeconds(Keep):
    """Keep the first commit in every interval of so many seconds, by the clocks of the writers.

    Intervals are counted from 1970 (UTC), so ``"6h"`` keeps the first commits after 0, 6, 12 and 18 o'clock.
    Which commit is the first is decided by their order, not by clocks: a clock that goes backwards never
    takes back what was kept, and the latest commit is kept whatever its time (see `decide`).

    Parameters
    ----------
    seconds
        A number greater than 0, or a text such as ``"90s"``, ``"15min"``, ``"6h"``, ``"1d"``, ``"2w"``.
    last
        How many of the latest intervals that have commits count; None for all. As in backup tools,
        ``EveryNSeconds("1h", 24) | EveryNSeconds("1d", 30)`` is hourly for a day and daily for a month,
        where time that nothing was saved in is not counted.
    """

    seconds: float
    last: int | None = None

    def __init__(self, seconds: float | str, last: int | None = None) -> None:
        number = parse_seconds(seconds) if isinstance(seconds, str) else seconds
        checked = check_number("EveryNSeconds", "seconds", number, 0, _MAX_SECONDS)
        if checked < _MIN_SECONDS:
            raise InvalidInputError(
                f"EveryNSeconds takes {_MIN_SECONDS} seconds or more, not {seconds!r:.100}"
            )
        object.__setattr__(self, "seconds", whole(checked))
        if last is not None:
            check_count("EveryNSeconds", "last", last)
        object.__setattr__(self, "last", last)

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the first node of every interval that counts."""
        firsts = _firsts(candidates, lambda item: item.seconds // self.seconds)
        # By their numbers, not by their first commits: a clock that goes backwards may change which that is.
        counted = sorted(firsts) if self.last is None else heapq.nlargest(self.last, firsts)
        return {firsts[interval] for interval in counted}

    def arguments(self) -> list[str]:
        """Return the duration with a unit, where it has a whole one, and how many intervals count."""
        last = [] if self.last is None else [repr(self.last)]
        return [repr(format_seconds(self.seconds) or self.seconds), *last]


@dataclass(frozen=True, slots=True, repr=False)
class BestN(Keep):
    """Keep the `n` states with the least (``"min"``) or greatest (``"max"``) value of a metric.

    Of equal values the later commit is the better one. States without the metric are not named, nor are
    those where it is NaN or infinite.
    """

    n: int
    metric: str
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        check_count("BestN", "n", self.n)
        check_text("BestN", "metric", self.metric)
        if self.mode not in ("min", "max"):
            raise InvalidInputError(f"mode of BestN is 'min' or 'max', not {self.mode!r:.100}")

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the best nodes."""
        sign = 1 if self.mode == "max" else -1
        ranked = [
            (sign * item.metrics[self.metric], item.order)
            for item in candidates
            if self.metric in item.metrics and math.isfinite(item.metrics[self.metric])
        ]
        return {order[-1] for _, order in heapq.nlargest(self.n, ranked)}

    def unjudged(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the nodes without the metric."""
        return {item.node for item in candidates if self.metric not in item.metrics}

    def lacking(self, candidates: Sequence[Candidate]) -> str | None:
        """Return that no state has the metric, and which metrics there are."""
        values = [item.metrics[self.metric] for item in candidates if self.metric in item.metrics]
        if values:
            finite = any(map(math.isfinite, values))
            said = f"the metric {self.metric!r} is NaN or infinite wherever it was saved"
            return None if finite else said
        known = sorted({name for item in candidates for name in item.metrics})
        shown = ", ".join(map(repr, known[:_SHOWN])) + (", ..." if len(known) > _SHOWN else "")
        return f"no state has the metric {self.metric!r}; the metrics there are: {shown or 'none'}"


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Budget(Keep):
    """Keep as many of the latest commits as fit into so many stored bytes; at least the latest.

    Counted are an anchor of the oldest of them, the edges of the others, and the exact values of them all but
    those that an `ExactOnly` of the same rule lets go of. An anchor that is not there counts as what one
    would take; where nobody knows that, as the largest edge. What is kept for other reasons (other rules,
    pins, the latest state of every run, shortcuts made by compaction) is not counted.

    Parameters
    ----------
    nbytes
        Bytes, or a text such as ``"500MB"``, ``"10GB"``, ``"1.5TiB"``.
    """

    nbytes: int

    def __init__(self, nbytes: int | str) -> None:
        number = parse_bytes(nbytes) if isinstance(nbytes, str) else nbytes
        object.__setattr__(self, "nbytes", check_count("Budget", "bytes", number))

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the latest nodes that fit."""
        largest = max(item.nbytes for item in candidates)
        names = {candidates[-1].node}
        later = candidates[-1].nbytes + candidates[-1].exact_bytes
        for item in reversed(candidates[:-1]):
            anchor = largest if item.anchor_bytes is None else item.anchor_bytes
            if anchor + item.exact_bytes + later > self.nbytes:
                break
            names.add(item.node)
            later += item.nbytes + item.exact_bytes
        return names

    def arguments(self) -> list[str]:
        """Return the size with a unit."""
        return [repr(format_bytes(self.nbytes))]


@dataclass(frozen=True, slots=True, repr=False)
class Pinned(Keep):
    """Keep the pinned states. They are kept anyway; alone, this lets everything else go."""

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the pinned nodes."""
        return {item.node for item in candidates if item.pinned}


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Tagged(Keep):
    """Keep the states with a tag that any of `globs` matches (``*``, ``?``, ``[...]``).

    Without globs: those with any tag.
    """

    globs: tuple[str, ...]

    def __init__(self, *globs: str) -> None:
        checked = tuple(check_text("Tagged", "a glob", glob) for glob in globs)
        object.__setattr__(self, "globs", checked)

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the nodes with such a tag."""
        return {item.node for item in candidates if any(map(self._matches, item.tags))}

    def why(self, candidate: Candidate) -> str:
        """Return the rule, and by which tags it keeps a candidate."""
        return f"{self}: {', '.join(sorted(filter(self._matches, candidate.tags)))}"

    def _matches(self, tag: str) -> bool:
        return not self.globs or any(fnmatchcase(tag, glob) for glob in self.globs)

    def arguments(self) -> list[str]:
        """Return the globs."""
        return list(map(repr, self.globs))


@dataclass(frozen=True, slots=True, repr=False)
class EachRun(Keep):
    """Keep of each run what `inner` keeps of the states of that run alone.

    ``EachRun(EveryNSteps(100))``: of two runs that saved the same steps, such as a fork and what it went on
    from, each keeps its own state of each multiple. A process that is started again is a run of its own, and
    so is what follows a rewind: ``EachRun(LatestN(2))`` keeps two states of each.

    Parameters
    ----------
    inner
        Rules that name states to keep, united with ``|``.
    """

    inner: Retention

    def __post_init__(self) -> None:
        first, *others = check_keeps("EachRun", self.inner).parts
        inner = _bare(first)
        for part in others:
            inner |= _bare(part)
        object.__setattr__(self, "inner", inner)

    @property
    def parts(self) -> tuple[Retention, ...]:
        """The rules that this one unites: one for each of those inside, so that each is told by itself."""
        return (self,) if len(self.inner.parts) == 1 else tuple(map(EachRun, self.inner.parts))

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return what the rules inside name in any of the runs."""
        # By the id, too: two handles that begin at the same time may take the same number.
        runs = defaultdict[Hashable, list[Candidate]](list)
        for item in candidates:
            runs[item.run, item.run_id].append(item)
        keeps = keeps_of(self.inner)
        return {node for states in runs.values() for part in keeps for node in part.named(states)}

    def unjudged(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the nodes that a rule inside cannot name for lack of data."""
        return {node for part in keeps_of(self.inner) for node in part.unjudged(candidates)}

    def lacking(self, candidates: Sequence[Candidate]) -> str | None:
        """Return what the candidates lack for the first rule inside that can name none."""
        lacks = (part.lacking(candidates) for part in keeps_of(self.inner))
        return next((lack for lack in lacks if lack), None)


def _bare(rule: Retention) -> Retention:
    """Return what is said of each run already without saying so."""
    return rule.inner if isinstance(rule, EachRun) else rule


def _firsts(candidates: Iterable[Candidate], group: Callable[[Candidate], float]) -> dict[float, str]:
    """Return for each group the node of the first of its candidates."""
    first: dict[float, str] = {}
    for item in candidates:
        first.setdefault(group(item), item.node)
    return first
