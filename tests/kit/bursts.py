"""Plans for a `FaultBackend`: faults strewn by a seed, and objects that fail a few times before they work."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence

from lcstore.testing.faults import Fault, FaultKind, Operation, OperationName, When

#: What a process survives: the operation fails, or its outcome stays open.
FAILURES: tuple[FaultKind, ...] = ("eio", "busy", "lost_reply", "lost_request")


def seeded_plan(
    seed: int,
    *,
    operations: int = 1000,
    rate: float = 0.05,
    kinds: Sequence[FaultKind] = FAILURES,
    longest: int = 5,
) -> dict[When, Fault]:
    """Return a plan in which faults of several kinds are strewn over a run.

    Parameters
    ----------
    seed
        Chooses places, kinds and lengths; same seed, same plan.
    operations
        How many operations the plan is for; later ones go well.
    rate
        The chance of each operation to meet a fault.
    kinds
        What may happen. One that does not fit the operation that it meets does not happen.
    longest
        A busy server refuses up to this many operations at a time.
    """
    chance = random.Random(f"plan/{seed}")
    return {
        number: Fault(chance.choice(list(kinds)), count=chance.randint(1, longest))
        for number in range(operations)
        if chance.random() < rate
    }


class Reluctant:
    """Strikes the first `times` operations of one sort on each key, after which that key works.

    ``FaultBackend(inner, {Reluctant("get", 2): Fault("eio", times=None)})`` fails the first two reads of
    every object.
    """

    def __init__(self, name: OperationName, times: int) -> None:
        self.name = name
        self.times = times
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, operation: Operation) -> bool:
        """Say whether this operation is struck."""
        if operation.name != self.name:
            return False
        with self._lock:
            self._seen[operation.key] += 1
            return self._seen[operation.key] <= self.times
