"""One save in the making: the jobs that code its chunks, what they have found so far, and the way back.

Coding moves the track, on which a draft holds the only claim while it is open. One that is not committed is
rolled back: coded deltas are subtracted (integers, so exactly), overwritten values are put back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TypeAlias

from lcstore.edges.frames import Chunk
from lcstore.state.names import Name
from lcstore.track import samples
from lcstore.track import smallrows as rows
from lcstore.track.coding import Coder, Journal, Work
from lcstore.track.held import Held
from lcstore.track.known import Known

#: Codes one chunk; None where there is nothing to store. Jobs of a draft may run side by side.
Job: TypeAlias = Callable[[], Chunk | None]


class Draft:
    """A save that is not committed yet. Made by `Track.draft`.

    Parameters
    ----------
    coder
        What there is to do.
    before
        What is remembered of the last commit.
    accept
        Takes over what this one leaves.

    Attributes
    ----------
    layout, columns
        Those of the new node. The columns' digests are complete once every job has run.
    jobs
        Run each once, in any order or side by side; then `commit` or `roll_back`.
    off_grid
        Tensors found not to fit their grid. If there are any, the draft can only be rolled back.
    not_finite
        By moment: how many of its values are NaN or infinite, once every job has run.
    astray
        Whether what was moved could not be moved back: even rolled back, the track is nobody's.
    """

    def __init__(self, coder: Coder, before: Mapping[Name, Known], accept: Callable[[Held], None]) -> None:
        self.coder = coder
        self.layout = coder.asked.layout
        columns = coder.decided.columns
        self.columns = replace(columns, digest=coder.digests.found)
        self.off_grid = {*coder.decided.off_grid}
        self.not_finite: Counter[int] = Counter()
        self.astray = False
        self.jobs: list[Job] = [partial(self._run, work) for work in coder.jobs()]
        self._before = before
        self._accept = accept
        self._coded = 0
        self._journal: Journal = []
        self._lock = Lock()

    def commit(self) -> None:
        """Make what the draft coded the track's state: it is committed."""
        self._accept(self.outcome())
        self.keep()

    def outcome(self) -> Held:
        """Return what the draft leaves once it is committed."""
        decided, policy = self.coder.decided, self.coder.asked.policy
        budget = decided.budget
        if decided.tables and policy.error is not None and policy.bytes_per_save is not None:
            budget = budget.after(policy.bytes_per_save, policy.error, self._coded)
        return Held(self.layout, self.columns, self.coder.pools, decided.known, budget, decided.saves)

    def roll_back(self) -> None:
        """Put the track back to where it was before the draft; a failure leaves it `astray`."""
        self.astray = True
        for undo in reversed(self._journal):
            undo()
        self.astray = False
        self.keep()

    def keep(self) -> None:
        """Forget the way back, and the user's state: whether it is committed will be found out later."""
        self.jobs.clear()
        self._journal.clear()
        self.coder = replace(self.coder, asked=replace(self.coder.asked, arrays=()))

    def tracking(self) -> tuple[float, float]:
        """Estimate tracking error and lag on the samples, both in intervals (NaN where nothing moved)."""
        error = moved = along = 0.0
        for tensor in self.coder.decided.tables:
            spec, unit = self.layout.tensors[tensor], math.ldexp(1.0, int(self.columns.grid[tensor]))
            now, before = (known[spec.name].sample for known in (self.coder.decided.known, self._before))
            if now.size:
                held = self.coder.pools[spec.pool][spec.offset : spec.offset + spec.size]
                sums, weight = samples.residuals(held, unit, now, before), held.size / now.size
                error += weight * sums[0]
                moved += weight * sums[1]
                along += weight * sums[2]
        return (math.sqrt(error / moved), along / moved) if moved > 0 else (math.nan, math.nan)

    def worst_row(self) -> tuple[float, Name] | None:
        """Return the largest relative error among some rows, and its tensor; None where none are watched.

        Looked at are the tensors whose turn it is, and the few with the smallest rows beside their step size.
        """
        decided, found = self.coder.decided, None
        for tensor in decided.watched:
            spec, flat = self.layout.tensors[tensor], self.coder.asked.arrays[tensor]
            norms = decided.known[spec.name].norms
            assert norms is not None
            held = self.coder.pools[spec.pool][spec.offset : spec.offset + spec.size]
            error = rows.worst_row(flat, held, spec, norms, decided.saves)
            if found is None or error > found[0]:
                found = error, spec.name
        return found

    def _run(self, work: Work) -> Chunk | None:
        """Run a job, and take note of what it has found."""
        coded = work(self._journal)
        with self._lock:
            self.off_grid |= coded.off_grid
            self.not_finite.update(dict(coded.not_finite))
            if coded.chunk is not None and coded.chunk.op != "exact":  # these are no part of a delta
                self._coded += len(coded.chunk.data)
        return coded.chunk
