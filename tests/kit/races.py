"""Which orders of storage operations need to be tried: all that could end differently, and few others.

Two operations *commute* if swapping them, when neighbours, changes nothing that anyone can see. Schedules
that differ only in the order of operations that commute end alike, so one of each class is enough. The search
is "source-DPOR" with sleep sets (Abdulla, Aronsson, Jonsson, Sagonas: Optimal dynamic partial order
reduction, POPL 2014): it runs a schedule, looks for *races* (neighbours that do not commute, or would be
neighbours but for operations that commute with one of them), and for each goes back to try the other order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lcstore.testing.faults import OperationName


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of one actor. `data` tells apart what is put under one key."""

    actor: str
    name: OperationName
    key: str
    data: int = 0

    def __str__(self) -> str:
        return f"{self.actor}: {self.name} {self.key!r}"


Commutes: TypeAlias = Callable[[Step, Step], bool]


class NotDeterministicError(AssertionError):
    """An actor did something else than before, though it had seen the same."""


def commute(one: Step, other: Step) -> bool:
    """Say whether two operations commute, whatever the store holds."""
    changes = ("put", "delete")
    if one.name not in changes and other.name not in changes:
        return True
    if one.name == "list" or other.name == "list":
        prefix, key = (one.key, other.key) if one.name == "list" else (other.key, one.key)
        return prefix != "" and not key.startswith(f"{prefix}/")
    if one.key != other.key:
        return True
    return one.name == other.name and one.data == other.data


@dataclass
class _Choice:
    """A moment of the schedule: what each actor wanted to do, what was chosen, what else is to be tried."""

    pending: dict[str, Step]
    asleep: frozenset[str]
    chosen: str
    wanted: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)


class Search:
    """Goes through the schedules. For each: `choose` at each moment, `learn` at the end, then `advance`.

    Parameters
    ----------
    commutes
        Whether two operations commute; must be symmetric, and true only if they always do.
    """

    def __init__(self, commutes: Commutes = commute) -> None:
        self.commutes = commutes
        self._stack: list[_Choice] = []
        self._trace: list[Step] = []
        self._numbers: list[int] = []
        self._clocks: list[dict[str, int]] = []
        self._depth = 0

    def choose(self, pending: Mapping[str, Step]) -> str | None:
        """Return whose operation is next; None if whatever comes was tried already."""
        depth = self._depth
        if depth == len(self._stack) and not self._push(dict(pending)):
            return None
        choice = self._stack[depth]
        if pending != choice.pending:
            before, now = (", ".join(map(str, steps.values())) for steps in (choice.pending, pending))
            raise NotDeterministicError(f"before: {before}; now, after the same schedule: {now}")
        self._depth += 1
        return choice.chosen

    def _push(self, pending: dict[str, Step]) -> bool:
        asleep: frozenset[str] = frozenset()
        last = None
        if self._stack:
            above = self._stack[-1]
            last = above.chosen
            asleep = frozenset(
                actor
                for actor in above.asleep | above.done
                if actor != last and self.commutes(above.pending[actor], above.pending[last])
            )
        awake = [actor for actor in pending if actor not in asleep]
        if not awake:
            return False
        # To go on with the same actor is the cheapest, and gives the schedules that are easiest to read.
        chosen = last if last in awake else awake[0]
        self._stack.append(_Choice(pending, asleep, chosen, {chosen}))
        return True

    def learn(self) -> None:
        """Find the races of the schedule that has just been run, and note what they make worth trying."""
        for at in range(len(self._trace), self._depth):
            choice = self._stack[at]
            self._take(choice.pending[choice.chosen])

    def _take(self, step: Step) -> None:
        """Append a step to the trace: its clock says how many steps of each actor come before it for sure."""
        at = len(self._trace)
        mine = next((k for k in range(at - 1, -1, -1) if self._trace[k].actor == step.actor), None)
        clock = dict(self._clocks[mine]) if mine is not None else {}
        races = []
        for k in range(at - 1, -1, -1):
            other = self._trace[k]
            if clock.get(other.actor, 0) >= self._numbers[k] or self.commutes(other, step):
                continue
            races.append(k)
            for actor, number in self._clocks[k].items():
                clock[actor] = max(clock.get(actor, 0), number)
        self._trace.append(step)
        self._numbers.append(clock.get(step.actor, 0) + 1)
        clock[step.actor] = self._numbers[-1]
        self._clocks.append(clock)
        for k in races:
            self._try_before(k, at)

    def _try_before(self, first: int, second: int) -> None:
        """Have an order tried in which the second of two racing steps comes before the first."""
        between = [k for k in range(first + 1, second) if not self._after(first, k)]
        rest = [*between, second]
        initials = []
        for place, k in enumerate(rest):
            actor = self._trace[k].actor
            if actor not in initials and not any(self._after(m, k) for m in rest[:place]):
                initials.append(actor)
        wanted = self._stack[first].wanted
        if not wanted.intersection(initials):
            racing = self._trace[second].actor
            wanted.add(racing if racing in initials else initials[0])

    def _after(self, first: int, second: int) -> bool:
        return self._clocks[second].get(self._trace[first].actor, 0) >= self._numbers[first]

    def advance(self) -> bool:
        """Go to the next schedule; say whether there is one."""
        self._depth = 0
        while self._stack:
            choice = self._stack[-1]
            choice.done.add(choice.chosen)
            left = [a for a in choice.pending if a in choice.wanted - choice.done - choice.asleep]
            if left:
                choice.chosen = left[0]
                keep = len(self._stack) - 1
                del self._trace[keep:], self._numbers[keep:], self._clocks[keep:]
                return True
            self._stack.pop()
        return False


def shorten(schedule: Sequence[str]) -> str:
    """Return a schedule as text: ``a*3 b a``."""
    parts: list[list[object]] = []
    for actor in schedule:
        if parts and parts[-1][0] == actor:
            parts[-1][1] = int(str(parts[-1][1])) + 1
        else:
            parts.append([actor, 1])
    return " ".join(str(actor) if count == 1 else f"{actor}*{count}" for actor, count in parts)


def lengthen(text: str) -> list[str]:
    """Return the schedule that a text stands for; the inverse of `shorten`."""
    schedule: list[str] = []
    for part in text.split():
        actor, _, count = part.partition("*")
        schedule += [actor] * int(count or 1)
    return schedule
