"""For tests: a suite of what every backend promises, one in memory, and one that fails on purpose.

`lcstore.open` and `CheckpointManager` take a backend in the place of a URL.
"""

from lcstore.storage.memory import MemoryBackend
from lcstore.testing.conformance import BackendConformance, CheckFailedError, Finding, checks, run
from lcstore.testing.faults import (
    Crash,
    Fault,
    FaultBackend,
    Operation,
    Point,
    crash_points,
    every_point,
)

__all__ = [
    "BackendConformance",
    "CheckFailedError",
    "Crash",
    "Fault",
    "FaultBackend",
    "Finding",
    "MemoryBackend",
    "Operation",
    "Point",
    "checks",
    "crash_points",
    "every_point",
    "run",
]
