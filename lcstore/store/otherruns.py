"""Whether other runs save to a store: whoever forgot to resume, or trains twice by mistake, is told so."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from lcstore.errors import BesideWarning, LcstoreError
from lcstore.graph.refs import NodeName
from lcstore.index.index import Index
from lcstore.ranks import RankOfHandle, is_own
from lcstore.warned import warn

#: After twice as many commits each time the states are listed once more; and after so many seconds, so a
#: machine that hung is told that another took its place.
_LOOKS_EACH: Final = 600.0


class OtherRuns:
    """Watches for other runs on behalf of a handle that saves, and tells of them once (`BesideWarning`)."""

    def __init__(self, index: Index) -> None:
        self._url = index.backend.url
        self._index = index
        self._commits, self._looked = 0, 0.0
        #: The ids of its own runs: one that was rewound begins another.
        self._own: set[str] = set()
        #: The last states of other runs, as of the first commit, those too that were let go of and may be
        #: brought back; None once they were told of.
        self._others: dict[str, NodeName] | None = {}
        self._looks_at_rank, self._rank = True, RankOfHandle()

    def saved(self, head: NodeName, *, anew: bool) -> None:
        """Take note of a commit, right after it; `anew`: it goes on from no other."""
        self._commits += 1
        self._own.add(head.run_id)
        self._look_at_rank()
        if self._commits == 1:
            there = [*self._index.graph.nodes.values()]
            self._others, self._looked = self._last_of_each(there), time.time()
            if anew and self._states():
                self._tell_of_those_before(head)
        elif self._others is not None and (
            self._commits.bit_count() == 1 or abs(time.time() - self._looked) >= _LOOKS_EACH
        ):
            self._looked = time.time()
            with suppress(LcstoreError):  # the state is there, and this can wait
                self._index.refresh()
                self._look_for_new(head, self._others)

    def _states(self) -> list[NodeName]:
        """Return the states of other runs, as of the last listing."""
        # By the id: two handles that begin at the same time may take the same number.
        return [name for name in self._index.graph.shown() if name.run_id not in self._own]

    def _last_of_each(self, states: Iterable[NodeName]) -> dict[str, NodeName]:
        return {name.run_id: name for name in sorted(states, key=lambda name: name.order)}

    def _tell_of_those_before(self, head: NodeName) -> None:
        steps = [name.step for name in self._states()]
        warn(
            f"run {head.run} begins anew at step {head.step}, beside what other runs saved to {self._url} "
            f"(steps {min(steps)} to {max(steps)}): to go on from that, call resume or resume_into before "
            "the first save; for a store of its own, use another URL, or mode 'w-' to be sure",
            BesideWarning,
        )

    def _look_for_new(self, head: NodeName, before: dict[str, NodeName]) -> None:
        for run, other in self._last_of_each(self._states()).items():
            if run in before and other.order <= before[run].order:
                continue
            self._others = None
            warn(
                f"run {other.run} ({run}) saved step {other.step} to {self._url} while this one, run "
                f"{head.run} ({head.run_id}), saves there: two processes train beside each other. Nothing is "
                "lost, but 'latest' may be of either: end one of them, or tell them apart by run=",
                BesideWarning,
            )
            return

    def _look_at_rank(self) -> None:
        """Warn of a process that trains with others and saves, as the one of rank 0 does, too."""
        number = self._rank.number if self._looks_at_rank else 0
        if number and not is_own(self._url, number):
            self._looks_at_rank = False
            warn(
                f"rank {number} of the processes that train together saves to {self._url}: each that does "
                "begins a run of its own there. Save in rank 0 only, as a CheckpointManager does, or by "
                "Store.save to one store for each rank, with its number in the URL",
                BesideWarning,
            )
