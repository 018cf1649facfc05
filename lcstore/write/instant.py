"""An instant, and how long ago it was: as long as the clock says that saw the most time pass."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self


def _clocks() -> tuple[float, ...]:
    # Clocks that stand still while a machine sleeps, that go on, and that are set to what others say.
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    asleep = () if boot is None else (time.clock_gettime(boot),)
    return time.monotonic(), time.time(), *asleep


@dataclass(frozen=True)
class Instant:
    """A point in time, by every clock that there is; by none if it is not known."""

    clocks: tuple[float, ...] = ()

    @classmethod
    def now(cls) -> Self:
        """Return this instant."""
        return cls(_clocks())

    def is_within(self, seconds: float) -> bool:
        """Return whether every clock says that it was less than some seconds ago, and none went backward."""
        passed = [now - then for now, then in zip(_clocks(), self.clocks, strict=False)]
        return bool(passed) and all(0 <= some < seconds for some in passed)
