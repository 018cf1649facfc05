"""Maintenance of a store that is open."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lcstore.check.findings import Level
from lcstore.cluster.tasks import Client, check_seen_by_others
from lcstore.errors import LcstoreError
from lcstore.format.labels import At, Run
from lcstore.format.markkeys import WHOLE_STATE
from lcstore.jobs.survey import OnProgress
from lcstore.maintain.collect import Collector
from lcstore.maintain.collected import CollectReport
from lcstore.maintain.retire import Retired, RetireReport, retire_by, retire_node
from lcstore.maintain.wrongrun import retire_run
from lcstore.storage.backend import check_writable
from lcstore.store.labelling import Labelling
from lcstore.store.soundness import Soundness
from lcstore.units import parse_seconds

if TYPE_CHECKING:
    from lcstore.compaction.compact import CompactReport
    from lcstore.index.contents import Contents
    from lcstore.maintain.sizing import Forecast
    from lcstore.retention.base import Retention
    from lcstore.store.nightly import MaintainReport


class Upkeep(Soundness, Labelling):
    """The methods of `lcstore.Store` that maintain. All of them may run beside a training run's saves."""

    # Letting go -----------------------------------------------------------------------------------------

    def retire(self, at: At, reason: str = "", *, run: Run = None, dry_run: bool = False) -> Retired:
        """Let go of one state.

        It is not listed or found any more, and the next `collect` deletes what only it needed. States that
        were saved on top of it are not harmed. Until it is collected, its node's id still finds it, and
        `unretire` brings it back, by its step too; or `pin`, to hold it.

        Parameters
        ----------
        at, run
            As for `restore`.
        reason
            Why; kept in the record.
        dry_run
            Only say what would be let go.

        Raises
        ------
        NotFoundError
            There is no such state.
        InvalidInputError
            It is the latest state of its run, or pinned.
        """
        self._check_open() if dry_run else self._check_writable()
        gone = retire_node(self._reader, self._durability, self._found(at, run), reason, dry_run=dry_run)
        self._log_done(gone, dry_run=dry_run)
        return gone

    def retire_run(
        self,
        run: int | str,
        reason: str = "",
        *,
        after: int | None = None,
        run_is_dead: bool = False,
        dry_run: bool = False,
    ) -> RetireReport:
        """Let go of a run, or its end, the latest state too: of two in one store, the wrong one.

        Parameters
        ----------
        run
            Its number, or its id.
        reason, dry_run
            As for `retire`.
        after
            Only the states after this step: the end of a run that went wrong.
        run_is_dead
            Let go of it though it saved lately. If it is alive all the same, its next save is an anchor.

        Raises
        ------
        ConflictError, InvalidInputError
            It saved lately and may be alive; two runs have that number; nothing else can be restored.
        """
        self._check_open() if dry_run else self._check_writable()
        how: dict[str, Any] = {"after": after, "run_is_dead": run_is_dead, "dry_run": dry_run}
        report = retire_run(self._reader, self._durability, run, reason, **how)
        self._log_done(report, dry_run=dry_run)
        return report

    def retain(
        self, keep: Retention | str, *, dry_run: bool = False, on_progress: OnProgress | None = None
    ) -> RetireReport:
        """Let go of all that a retention rule does not keep.

        The latest state of every run, and what is pinned, is kept whatever the rule says.

        Parameters
        ----------
        keep
            A rule, or its text: ``LatestN(3) | EveryNSteps(1000)``, ``"latest:3 | every:1000"``. What any of
            the rules names is kept.
        dry_run
            Only say what would be let go.

        Raises
        ------
        InvalidInputError
            The rule names no state to keep.
        CorruptionError
            A record cannot be read: nothing is decided about states of which not all is known.

        Examples
        --------
        >>> report = store.retain(lcstore.LatestN(1) | lcstore.EveryNSteps(20))
        >>> store.steps()
        [0, 20]
        """
        from lcstore.retention.parse import as_rule

        self._check_open() if dry_run else self._check_writable()
        how: dict[str, Any] = {"dry_run": dry_run, "on_progress": on_progress}
        report = retire_by(self._reader, self._durability, as_rule(keep), **how)
        self._log_done(report, dry_run=dry_run)
        return report

    def compact(
        self,
        *,
        dry_run: bool = False,
        max_bytes: int | str | None = None,
        max_seconds: float | str | None = None,
        on_progress: OnProgress | None = None,
        client: Client | None = None,
    ) -> CompactReport:
        """Add merged edges, so that every state is quick to restore, and retired ones need not stay.

        Nothing is let go of (that is what `retain` does), and nothing that can be restored changes by a bit.
        The edges take bytes of their own; `collect` then frees what is not needed any more. `maintain` does
        all of it.

        Parameters
        ----------
        dry_run
            Only say what would be done. How many bytes that takes is estimated as by `forecast`.
        max_bytes, max_seconds
            Write no more than this (``"10GB"``), with parity and records; begin nothing after this time
            (``"2h"``). Whatever is done is of use, and the next compaction goes on.
        on_progress
            Called with what is being done, how much of it is done, and how much there is.
        client
            A `distributed.Client`, of the Dask cluster that is to merge, each edge in a task: the plan and
            the bytes are the same. This process merges if None.

        Raises
        ------
        CorruptionError
            Something that is to be merged is damaged.
        InvalidInputError
            The workers of the cluster do not see the store.

        Examples
        --------
        >>> report = store.compact()
        >>> report.longest_after <= report.longest_before
        True
        """
        self._check_open() if dry_run else self._check_writable()
        bounds = {"max_bytes": max_bytes, "max_seconds": max_seconds}
        how = {"on_progress": on_progress, "client": client}
        report = self._compact(frozenset(), dry_run=dry_run, **bounds, **how)
        return self._sized(report, **bounds) if dry_run else report

    def _compact(self, without: frozenset[str], *, dry_run: bool, **bounds: Any) -> CompactReport:
        """Compact, as if some nodes had been let go of."""
        report = self._compactor(**bounds).run(dry_run=dry_run, without=without)
        self._log_done(report, dry_run=dry_run)
        return report

    def _sized(self, report: CompactReport, **bounds: Any) -> CompactReport:
        """Return what a dry run says with all bytes that would be written, where they can be estimated."""
        from lcstore.maintain.sizing import would_write

        with suppress(LcstoreError):
            if report.planned:
                return replace(report, bytes_written=would_write(self._compactor(**bounds)))
        return report

    def forecast(
        self,
        going: Iterable[Retired] = (),
        *,
        max_bytes: int | str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Forecast:
        """Say how many bytes the store takes now, once compacted, and once collected after that.

        Records are read, and at most 96 chunks, which are merged to see how large such edges come out.

        Parameters
        ----------
        going
            What would be let go of before: `retired` of what ``retain(keep, dry_run=True)`` returns.
        max_bytes
            What bounds the compaction.

        Raises
        ------
        CorruptionError
            A record cannot be read, or a kept state not be restored: nothing can be said then.
        """
        from lcstore.maintain.sizing import forecast

        self._check_open()
        return forecast(self._compactor(max_bytes=max_bytes), going, on_progress)

    def collect(
        self,
        *,
        grace: float | str | None = None,
        run_is_dead: bool = False,
        spare_recent: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> CollectReport:
        """Delete what no kept state needs.

        Parameters
        ----------
        grace
            Seconds, or ``"24h"``: how long ago a thing must have been condemned. The store's own if None;
            it cannot be shorter than that. So what this call condemns a later one deletes.
        run_is_dead
            No run writes to this store any more: the grace may be shorter, so that space is free at once
            (``grace=0``). It is refused where something was stored lately (within twice what the last saves
            were apart, and a minute at least), or while this looks several times. Restores that are under
            way may fail; nothing that is kept is lost.
        spare_recent
            Leave what was let go of within the last eighth of the grace (three hours of a day), so that
            `unretire` brings it back. `maintain` and a manager do.
        dry_run
            Only say what would be deleted in the end.

        Raises
        ------
        CorruptionError
            A record cannot be read, or a kept state not be restored: nothing is deleted then.
        ConflictError
            With `run_is_dead`: something shows that a run is alive. Nothing is deleted.
        """
        how: dict[str, Any] = {"dry_run": dry_run, "on_progress": on_progress}
        return self._collect(grace, run_is_dead=run_is_dead, spare_recent=spare_recent, **how)[0]

    def _collect(
        self,
        grace: float | str | None = None,
        *,
        run_is_dead: bool = False,
        spare_recent: bool,
        dry_run: bool,
        on_progress: OnProgress | None,
    ) -> tuple[CollectReport, Contents | None]:
        """Collect; return of a dry run also what there would be then."""
        self._check_open() if dry_run else self._check_writable()
        seconds = parse_seconds(grace) if isinstance(grace, str) else grace
        collector = Collector(
            self._backend,
            self._index,
            self._executor,
            self._durability,
            seconds,
            on_progress,
            run_is_dead=run_is_dead,
            spare_recent=spare_recent,
        )
        report = collector.run(dry_run=dry_run)
        self._log_done(report, dry_run=dry_run)
        self._index.refresh(full=True)
        return report, collector.leaves

    def maintain(
        self,
        keep: Retention | str,
        *,
        dry_run: bool = False,
        max_bytes: int | str | None = None,
        max_seconds: float | str | None = None,
        level: Level = "structure",
        on_progress: OnProgress | None = None,
        client: Client | None = None,
    ) -> MaintainReport:
        """Collect, retain, compact and verify, in this order: all that is to be done every night.

        What was let go of a night before is deleted first; so what is let go of now can be brought back
        until the next night, and for an eighth of the grace where that comes sooner. It may be interrupted
        at any time, and the next one goes on.

        Parameters
        ----------
        keep
            As for `retain`.
        dry_run
            Only say what would be done, and what becomes of the bytes: see `forecast`.
        max_bytes, max_seconds
            As for `compact`.
        level
            As for `verify`.
        client
            As for `compact` and `verify`: a Dask cluster does most of these two.

        Returns
        -------
        MaintainReport
            `ok` is false where a part failed, and `problems` says which one and why. Those after it, but for
            `verify`, did not run.

        Raises
        ------
        InvalidInputError
            `keep` is no rule, or asks for what no state has, such as a metric of another name. Or the target
            can only be read, as an archive: a dry run is refused too, since nothing can come of it.
        """
        from lcstore.check.verify import check_level
        from lcstore.maintain.afterwards import if_newest
        from lcstore.maintain.sizing import forecast
        from lcstore.retention.parse import as_rule
        from lcstore.store.nightly import run_parts

        self._check_open() if dry_run else self._check_writable()
        check_writable(self._backend)
        rule = as_rule(keep)
        if client is not None:
            check_seen_by_others([self.url])

        bounds = {"max_bytes": max_bytes, "max_seconds": max_seconds}
        # What is no level and no size is told before anything is done.
        check_level(level)
        self._compactor(**bounds)
        leaves: Contents | None = None  # of a dry run, which plans for what its own collection would leave

        def collect() -> CollectReport:
            nonlocal leaves
            report, leaves = self._collect(spare_recent=True, dry_run=dry_run, on_progress=on_progress)
            return report

        def compact(retained: RetireReport) -> CompactReport:
            how = {"on_progress": on_progress, "client": client, "contents": if_newest(leaves, self._index)}
            going = frozenset(one.node for one in retained.retired if one.what == WHOLE_STATE)
            return self._compact(going, dry_run=dry_run, **bounds, **how)

        def foresee(report: MaintainReport) -> None:
            if report.compacted is not None and report.retained is not None and dry_run:
                compactor = self._compactor(max_bytes=max_bytes, contents=if_newest(leaves, self._index))
                how = report.retained.retired, on_progress, report.collected
                report.forecast = found = forecast(compactor, *how)
                report.compacted = replace(report.compacted, bytes_written=found.compaction_writes)

        return run_parts(
            self.url,
            dry_run=dry_run,
            collect=collect,
            retain=lambda: self.retain(rule, dry_run=dry_run, on_progress=on_progress),
            compact=compact,
            verify=lambda: self.verify(level, on_progress, client=client),
            foresee=foresee,
        )
