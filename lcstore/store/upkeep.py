"""Maintenance of a store that is open."""

from __future__ import annotations

from lcstore.store.findings import Level, Report
from lcstore.store.handle import Handle
from lcstore.store.stats import Stats, stats
from lcstore.store.survey import OnProgress
from lcstore.store.verify import verify


class Upkeep(Handle):
    """The methods of `lcstore.Store` that maintain."""

    def verify(self, level: Level = "structure", on_progress: OnProgress | None = None) -> Report:
        """Look for damage, changing nothing; see `lcstore.store.verify.verify`."""
        self._check_open()
        return verify(self._backend, level, on_progress)

    def stats(self, on_progress: OnProgress | None = None) -> Stats:
        """Count what the store holds; see `lcstore.store.stats.stats`."""
        self._check_open()
        return stats(self._backend, on_progress)
