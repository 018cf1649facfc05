"""Looking for damage, and mending what can be mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcstore.check.findings import Level, VerifyReport
from lcstore.cluster.tasks import Client
from lcstore.jobs.survey import OnProgress
from lcstore.store.handle import Handle

if TYPE_CHECKING:
    from lcstore.repair.repaired import RepairReport


class Soundness(Handle):
    """The methods of `lcstore.Store` that are about damage."""

    def verify(
        self,
        level: Level = "structure",
        on_progress: OnProgress | None = None,
        *,
        sample: tuple[int, int] = (1, 1),
        max_seconds: float | None = None,
        client: Client | None = None,
    ) -> VerifyReport:
        """Look for damage. Nothing is changed, and the store may be in use meanwhile.

        Parameters
        ----------
        level
            How thoroughly, each level as all before it: ``"structure"`` reads all records, and sees that the
            objects they list are there with their lengths; ``"checksum"`` reads every byte; ``"decode"``
            decodes every frame; ``"restore"`` proves that every edge leads to the values committed.
        on_progress
            Called with what is being done, how much of it is done, and how much there is.
        sample
            ``(n, t)``: look at the n-th of t slices of the objects; t runs look at all.
        max_seconds
            Begin with no further object after this time.
        client
            A `distributed.Client`, of the Dask cluster that is to look. This process looks if None.

        Raises
        ------
        NotFoundError
            There is no store.
        StorageError
            The store could not be listed. (An object that cannot be read is a finding.)
        """
        from lcstore.check.verify import verify

        self._check_open()
        report = verify(
            self._backend, level, on_progress, sample=sample, max_seconds=max_seconds, client=client
        )
        self._log_done(report, dry_run=False)
        return report

    def repair(
        self,
        *,
        dry_run: bool = False,
        level: Level = "checksum",
        on_progress: OnProgress | None = None,
    ) -> RepairReport:
        """Set aside what is damaged, and keep everything that can still be restored.

        What can be rebuilt is put back. A state that cannot be restored is retired; one that lacks only its
        exact value, or its moments, goes on without. What is condemned is deleted by `collect`. What lay in
        the place of something rebuilt is moved to ``quarantine/``, until you delete that folder. If anything
        was repaired, the next save of this handle begins anew with an anchor.

        Stop the writers of a damaged run first: one that goes on from a state that is lost is not told.

        Parameters
        ----------
        dry_run
            Only say what would be done.
        level, on_progress
            As for `verify`.

        Raises
        ------
        NotFoundError
            There is no store.
        StorageError, UnsupportedFormatError
            Something could not be read that may well be whole: nothing was changed, or what was damaged is
            so yet and the rest is to be repaired again.
        ConflictError
            Maintenance changed the store each time that it was looked at: nothing was changed.
        """
        from lcstore.repair.repair import repair

        self._check_open() if dry_run else self._check_writable()
        with self._alone():
            report = repair(self._backend, dry_run=dry_run, level=level, on_progress=on_progress)
            self._log_done(report, dry_run=dry_run)
            if report.actions and not dry_run:
                self._distrust()
        if not dry_run:
            self._index.refresh(full=True)
        return report

    def _distrust(self) -> None:
        """Build on nothing that was written before."""
