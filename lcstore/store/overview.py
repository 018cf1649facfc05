"""What there is: the states of a store, and what records say of them. No tensor is read for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Literal

import numpy as np

from lcstore.errors import FallbackWarning, StepWarning
from lcstore.format.labels import At, Run, split_best
from lcstore.format.records import NodeRecord
from lcstore.graph.graph import Graph
from lcstore.index.gone import none_left
from lcstore.index.info import StepInfo
from lcstore.index.resolve import check_run, lost_records, resolved
from lcstore.index.standing import come_too_late
from lcstore.index.states import Listed, list_states
from lcstore.jobs.survey import OnProgress
from lcstore.read.find import find
from lcstore.read.metrics import best
from lcstore.read.snapshot import Snapshot
from lcstore.read.statistics import Stats, stats
from lcstore.records.reading import ReadRecord
from lcstore.retention.base import mode_of
from lcstore.store.handle import Handle
from lcstore.warned import warn

if TYPE_CHECKING:
    from lcstore.compaction.compact import CompactReport
    from lcstore.store.costs import RestoreCosts


class Overview(Handle):
    """The methods of `lcstore.Store` that tell what there is."""

    def best_step(self, metric: str, mode: Literal["min", "max"] | None = None, *, run: Run = None) -> int:
        """Return the step of the state that has the best value of a metric.

        All states are looked at. NaN and infinity never win; of equals the later commit does. Where the step
        was saved more than once, ``restore("best:loss")`` takes the best of these, and the step alone the
        newest.

        Parameters
        ----------
        metric
            Its name, with the mode behind it if that is not given: ``"accuracy:max"``.
        mode
            Which value is the best; if not given, the least.
        run
            Look only at the states of this run, by number or id.

        Raises
        ------
        InvalidInputError
            No mode is given for a metric of which, by its name, more is better.
        NotFoundError
            No step has the metric as a finite number; the message says which metrics there are.

        Warns
        -----
        StepWarning
            The step alone does not name the best state.
        """
        found = split_best(f"best:{metric}") if mode is None else None
        metric, way = found or (metric, mode_of(metric, mode))
        name = best(self._reader, metric, way, run)
        if resolved(self._index.graph, name.step, run, self._index.own_run) != name:
            warn(
                f"step {name.step} was saved more than once, and the best by {metric!r} is not the one that "
                f"the step names: go by the metric, or by node {name.node!r}",
                StepWarning,
            )
        return name.step

    def __contains__(self, step: object) -> bool:
        """Return whether a step is there."""
        if isinstance(step, bool) or not isinstance(step, int | np.integer):
            return False
        return self._reader.listed().at_step(int(step)) is not None

    def __iter__(self) -> Iterator[int]:
        """Yield every step that can be restored, in rising order: what `in` looks for."""
        return iter(self.steps())

    def steps(self, *, run: Run = None) -> list[int]:
        """Return every step that can be restored, in rising order; of one run, by number or id, if given.

        Raises
        ------
        NotFoundError
            There is no such run.
        """
        graph = self._reader.listed()
        check_run(graph, self.url, run)
        return graph.steps(run)

    def latest_step(self, *, run: Run = None) -> int | None:
        """Return the step of the latest state (which need not be the greatest), or None where there is none.

        It is what `restore` and `resume` give: of this handle's own run once it has saved, or of `run`;
        otherwise, of all. Each call looks anew, so what others saved meanwhile counts. None with a warning
        (`FallbackWarning`) is of a store that had states: all of them, or their records, are gone.

        Raises
        ------
        NotFoundError, InvalidInputError
            There is no such run, or two runs have this number.
        """
        graph = self._reader.listed()
        check_run(graph, self.url, run)
        latest = self._index.latest(run)
        if latest is None:
            self._tell_of_lost(graph)
        return None if latest is None else latest.step

    def _tell_of_lost(self, graph: Graph) -> None:
        """Warn of a store that had states: whoever takes it for new begins anew."""
        lost = "" if graph.nodes else lost_records(self._backend)
        look = f"verify {quote(self.url)}" if lost else f"ls {quote(self.url)} --retired"
        if left := lost or none_left(graph):
            warn(f"{self.url}: {left}; whoever goes on now begins anew: `lcstore {look}`", FallbackWarning)

    def info(self, at: At = None, *, run: Run = None) -> StepInfo:
        """Return what is recorded of a state, without reading any of its tensors."""
        return find(self._reader, self._of_run(at, run), lambda found: found.info)

    def paths(self, at: At = None, *, run: Run = None) -> dict[str, tuple[tuple[int, ...], str, str]]:
        """Return shape, dtype and role of each tensor of a state by its name."""
        return find(self._reader, self._of_run(at, run), Snapshot.tensors)

    def leaves(self, at: At = None, *, run: Run = None) -> dict[str, object]:
        """Return the plain values of a state by name, without reading any of its tensors."""
        return find(self._reader, self._of_run(at, run), Snapshot.leaves)

    def states(
        self,
        *,
        run: Run = None,
        records: bool = True,
        limit: int | None = None,
        retired: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[Listed]:
        """Return every state by step, each revision by itself, in the order of their commits.

        Parameters
        ----------
        run
            Only the states of this run, by number or id.
        records
            Read the records: metrics, bytes and errors. Names alone are a few listings, however many states
            there are.
        limit
            Only so many, the last ones.
        retired
            Also those that were let go of, as far as they are not collected yet.
        on_progress
            Called with what is being done, how many records have been read, and how many there are.
        """
        self._check_open()
        found = list_states(self._backend, run, records, limit, retired, on_progress)
        if run is not None and not (retired and found):
            check_run(self._reader.listed(), self.url, run)
        if records and any(state.retired for state in found):
            self._reader.listed()
            late = come_too_late(self._index, {state.node for state in found if state.retired})
            found = [replace(state, condemned=state.node in late) for state in found]
        return found

    def stats(
        self,
        on_progress: OnProgress | None = None,
        seen: Callable[[ReadRecord[NodeRecord]], None] | None = None,
    ) -> Stats:
        """Count what the store holds: states, bytes by kind and by pool, what is condemned, and more.

        It lists all objects, and reads every record once. A record that cannot be read is told in
        `Stats.unreadable`.

        Parameters
        ----------
        on_progress
            Called with what is being done, how many records have been read, and how many there are.
        seen
            Called with each record of a node as it was read: who wants more of them need not read them again.
        """
        self._check_open()
        return stats(self._backend, self._index.layout, on_progress, seen, self._index.known)

    def restore_costs(self) -> RestoreCosts:
        """Return what restoring each state reads, now and once the store is compacted: from names alone."""
        from lcstore.store.costs import restore_costs

        self._check_open()
        return restore_costs(self._compactor())

    def planned(self, *, max_bytes: int | None = None) -> CompactReport:
        """Return what a compaction would do, from names and from records of the latest state alone.

        So it costs a few requests; its `bytes_written` is of weights alone, where that of
        ``compact(dry_run=True)``, which reads all records, is of all that would be written.
        """
        self._check_open()
        return self._compactor(max_bytes=max_bytes).run(dry_run=True)

    def _of_run(self, at: At, run: Run) -> At:
        """Return a name of the state that `at` and `run` mean together."""
        return at if run is None else self._found(at, run)
