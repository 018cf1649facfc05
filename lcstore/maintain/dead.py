"""Whether a run that was declared dead shows any sign of life: asked before a grace is cut short.

The grace keeps a collector from what a save under way has stored and no record names yet, and from what a
reader is about to read. Where nobody writes any more only readers are left, and they lose no data.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from lcstore.errors import ConflictError, NotFoundError, StorageError
from lcstore.format import keys
from lcstore.graph.refs import NodeName
from lcstore.index.contents import Contents
from lcstore.jobs.survey import spread
from lcstore.storage.backend import Backend, storage_clock

#: A run that is silent for less may well be alive, however quickly it used to save.
LEAST: Final = 60.0
#: It may be late by as much as its saves were apart.
_TIMES: Final = 2
#: Saves of each run that are looked at.
_SAVES: Final = 6


@dataclass(frozen=True)
class Silence:
    """How long no run has written.

    Attributes
    ----------
    seconds
        Since the last sign of one; infinite where there never was any.
    needed
        As long as it has to be: twice what the last saves were apart at most, and a minute at least.
    """

    seconds: float
    needed: float

    @property
    def is_enough(self) -> bool:
        """Whether a run that is silent for so long is taken for dead."""
        return self.seconds >= self.needed


def check_dead(
    backend: Backend, contents: Contents, grace: float, writing: Iterable[float] = (), *, dry_run: bool
) -> Silence:
    """Return how long no run has written to a store.

    Parameters
    ----------
    backend, contents
        The store, as it was listed.
    grace
        That of the store: more silence than that is not asked for.
    writing
        When writes that have not ended last wrote anything.
    dry_run
        Store nothing, and refuse nothing: then it is this machine's clock that tells how long ago something
        was stored.

    Raises
    ------
    ConflictError
        Something was stored a short while ago: the run may be alive.
    StorageError
        The target does not tell when something was stored.
    """
    commits = _commits(contents)
    # All of a write, of which any may be the last: not every target tells of writes under way.
    idle = [key for edge, found in contents.data.items() if edge not in contents.stored for key in found]
    idle += [keys.layout_key(digest) for digest in contents.idle_layouts]
    now, at = _times(backend, [key for saves in commits for key in saves] + idle, dry_run=dry_run)
    rhythms = [[moment for key in saves if (moment := at[key]) is not None] for saves in commits]
    newest = max((saves for saves in rhythms if saves), key=lambda saves: saves[-1], default=[])
    # What no record names may be of a save under way: of the run that saved last, more likely than not.
    unnamed = [moment for key in idle if (moment := at[key]) is not None]
    signs = [([moment], newest) for moment in (*unnamed, *writing)]
    signs += [(saves, saves) for saves in rhythms if saves]
    found = [Silence(now - seen[-1], _needed(rhythm, grace)) for seen, rhythm in signs]
    least = min(found, key=lambda silence: silence.seconds, default=Silence(float("inf"), LEAST))
    least = next((silence for silence in found if not silence.is_enough), least)
    if not least.is_enough and not dry_run:
        raise ConflictError(f"{not_yet(least)}; nothing was deleted. If it is dead, ask again then")
    return least


def silence_of(backend: Backend, names: Iterable[NodeName], grace: float, *, dry_run: bool) -> Silence:
    """Return how long one run has not saved, given its nodes; what no record names may be another's."""
    saves = _last_saves(names)
    now, at = _times(backend, saves, dry_run=dry_run)
    rhythm = [moment for key in saves if (moment := at[key]) is not None]
    return Silence(now - rhythm[-1] if rhythm else float("inf"), max(LEAST, _needed(rhythm, grace)))


def not_yet(silence: Silence) -> str:
    """Say why a run may be alive."""
    needed = f"{silence.needed:.0f} s"
    if silence.seconds <= -1:
        return (
            f"the run may be alive: the time of something that was stored lies {-silence.seconds:.0f} s "
            f"ahead, and as often as it saved, it would have to lie {needed} back. A clock was wrong, or is: "
            f"set it right, have the files bear the time of now (`touch`), and ask again {needed} later"
        )
    return (
        f"the run may be alive: something was stored {max(0.0, silence.seconds):.0f} s ago, and as often as "
        f"it saved, it would have to be silent for {needed}"
    )


def check_still(before: Contents, after: Contents) -> None:
    """Refuse to go on where something was stored between two looks.

    Raises
    ------
    ConflictError
        A run is alive, or maintenance adds something.
    """
    known = {key for found in before.data.values() for key in found} | {*before.layouts}
    there = {key for found in after.data.values() for key in found} | {*after.layouts}
    new = (there - known) | (after.lengths.keys() - before.lengths.keys())
    if new:
        raise ConflictError(
            f"something writes to this store: {len(new)} objects were stored while it was looked at. So no "
            "grace can be cut short, and nothing was deleted",
            key=min(new),
        )


def _commits(contents: Contents) -> list[list[str]]:
    """Return the keys of the last commits of each run, in order."""
    runs = defaultdict(list)
    for name in contents.graph.nodes.values():
        runs[name.run, name.run_id].append(name)
    return [_last_saves(names) for names in runs.values()]


def _last_saves(names: Iterable[NodeName]) -> list[str]:
    """Return the keys of the last commits among some nodes, in order."""
    return [keys.node_key(name) for name in sorted(names, key=lambda name: name.order)[-_SAVES:]]


def _times(backend: Backend, wanted: list[str], *, dry_run: bool) -> tuple[float, dict[str, float | None]]:
    """Return what time it is, and when each object was stored; None where it is gone."""
    at = dict(zip(wanted, spread(partial(when_stored, backend), wanted), strict=True))
    now = time.time() if dry_run else storage_clock(backend)
    if now is None or (wanted and all(moment is None for moment in at.values())):
        raise StorageError(
            "this target does not tell when an object was stored: nothing shows that a run is dead"
        )
    return now, at


def when_stored(backend: Backend, key: str) -> float | None:
    """Return when an object was stored, by the storage's clock; None where it is gone or nothing tells."""
    with suppress(NotFoundError):
        return backend.created(key)
    return None


def _needed(saves: list[float], grace: float) -> float:
    longest = max((later - earlier for earlier, later in pairwise(saves)), default=0.0)
    return min(grace, max(LEAST, _TIMES * longest))
