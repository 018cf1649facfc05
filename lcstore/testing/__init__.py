"""For testing stores and backends: faults on purpose, and the promises of a backend as checks."""

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
    "Operation",
    "Point",
    "checks",
    "crash_points",
    "every_point",
    "run",
]
