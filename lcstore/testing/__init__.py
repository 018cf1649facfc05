"""For testing a backend: a suite of what every backend promises, and a backend that fails on purpose."""

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
