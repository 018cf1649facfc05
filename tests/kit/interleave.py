"""Every way in which a few actors can interleave their storage operations, run with the real code.

::

    def make():
        backend = MemoryBackend.fresh(objects)
        def write(actor): ...  lcstore.open(actor).save(...)
        def read(actor): ...
        def check(outcomes): assert ...
        return Scene(backend, {"w": write, "r": read}, check)

    found = explore(make)
    assert found.complete

Every way means: one schedule of each class that can end differently (see :mod:`kit.races`),
given that operations are atomic and seen by all at once. What `check` looks at must be what the actors
returned and what the backend holds; where it matters who was first, actors `say`, and ask what they `heard`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kit.actors import Actor, Choose, Outcome, Stage, alone, deterministic
from kit.races import Commutes, NotDeterministicError, Search, Step, commute, lengthen, shorten
from lcstore.storage.backend import Backend


@dataclass(frozen=True)
class Scene:
    """What is explored: made afresh for every schedule, always alike.

    Attributes
    ----------
    backend
        What the actors share.
    actors
        By name (no spaces, no ``*``): what each does with its view of the backend.
    check
        Called at the end with the outcome of each actor; raises if a promise was broken.
    """

    backend: Backend
    actors: Mapping[str, Callable[[Actor], object]]
    check: Callable[[Mapping[str, Outcome]], None]


@dataclass(frozen=True)
class Exploration:
    """What was explored.

    Attributes
    ----------
    schedules
        Run to the end and checked, by search; all of them different in more than operations that commute.
    cut_short
        Begun and given up, because all that could follow had been tried.
    sampled
        Run and checked with random schedules.
    complete
        Whether the search tried everything.
    operations
        Of the longest schedule.
    seconds
        How long it took.
    """

    schedules: int
    cut_short: int
    sampled: int
    complete: bool
    operations: int
    seconds: float


class ScheduleError(AssertionError):
    """A schedule on which a promise is broken. `schedule` replays it; the cause is what was raised."""

    def __init__(self, schedule: str, trace: Sequence[Step], cause: BaseException) -> None:
        lines = [f"  {number:4d}  {step}" for number, step in enumerate(trace)]
        super().__init__("\n".join([f"{type(cause).__name__}: {cause}", f"schedule: {schedule!r}", *lines]))
        self.schedule = schedule


def explore(
    make: Callable[[], Scene],
    limit: int | None = None,
    seed: int = 0,
    *,
    samples: int = 0,
    commutes: Commutes | None = None,
) -> Exploration:
    """Run the actors of a scene in every order that can matter, and check each time.

    Parameters
    ----------
    make
        Makes the scene. Actors must do the same whenever they see the same: random names and the clock are
        taken care of.
    limit
        Search through at most so many schedules; None searches through all.
    seed
        For random names, and random schedules.
    samples
        Where the search did not complete, so many random schedules are run besides.
    commutes
        Further pairs of operations that commute in this scene ("layouts are there and never deleted"). It is
        asked with both orders of a pair.

    Raises
    ------
    ScheduleError
        An actor failed otherwise than with an error of lcstore, or the check failed.
    """
    search = Search(commute if commutes is None else lambda a, b: commute(a, b) or commutes(a, b))
    began = time.perf_counter()
    done = cut = longest = sampled = 0
    complete = False
    with deterministic(seed) as anew, alone():
        while limit is None or done + cut < limit:
            anew()
            ended, length = _run(make(), search.choose)
            done, cut, longest = done + ended, cut + (not ended), max(longest, length)
            search.learn()
            if not search.advance():
                complete = True
                break
        while not complete and sampled < samples:
            anew()
            _, length = _run(make(), _at_random(random.Random(f"{seed}/{sampled}")))
            sampled, longest = sampled + 1, max(longest, length)
    return Exploration(done, cut, sampled, complete, longest, time.perf_counter() - began)


def replay(make: Callable[[], Scene], schedule: str | Sequence[str], seed: int = 0) -> None:
    """Run one schedule of a scene, as a `ScheduleError` gives it; what it leaves open goes on in order.

    Raises
    ------
    ScheduleError
        As for `explore`.
    """
    left = lengthen(schedule) if isinstance(schedule, str) else list(schedule)
    left.reverse()

    def choose(pending: Mapping[str, Step]) -> str:
        actor = left.pop() if left else next(iter(pending))
        if actor not in pending:
            raise NotDeterministicError(f"the schedule wants {actor} to go on, but it has ended")
        return actor

    with deterministic(seed), alone():
        _run(make(), choose)


def _run(scene: Scene, choose: Choose) -> tuple[bool, int]:
    """Run one schedule; return whether it came to its end, and how long it is."""
    stage = Stage(scene.backend, choose)
    try:
        ended = stage.run(scene.actors)
        if ended:
            scene.check(stage.outcomes)
    except Exception as error:
        schedule = shorten([step.actor for step in stage.trace])
        raise ScheduleError(schedule, stage.trace, error) from error
    return ended, len(stage.trace)


def _at_random(chance: random.Random) -> Choose:
    """Choose at random; some runs change the actor rarely, others at every turn."""
    switch = chance.choice([0.05, 0.2, 0.5, 1.0])
    last: list[str] = []

    def choose(pending: Mapping[str, Step]) -> str:
        if not last or last[0] not in pending or chance.random() < switch:
            last[:] = [chance.choice(list(pending))]
        return last[0]

    return choose
