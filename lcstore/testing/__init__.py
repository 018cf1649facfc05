"""For testing stores and backends: faults on purpose, power cuts, interleavings, what must always hold."""

from lcstore.testing.actors import Actor, Outcome
from lcstore.testing.bursts import Reluctant, seeded_plan
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
from lcstore.testing.interleave import Exploration, Scene, ScheduleError, explore, replay
from lcstore.testing.invariants import BrokenStoreError, check_store, problems, refuses_to_go_on
from lcstore.testing.model import Chronicle, Known, Snapshot, StoreModel
from lcstore.testing.powerloss import Disk, power_loss
from lcstore.testing.races import Step

__all__ = [
    "Actor",
    "BackendConformance",
    "BrokenStoreError",
    "CheckFailedError",
    "Chronicle",
    "Crash",
    "Disk",
    "Exploration",
    "Fault",
    "FaultBackend",
    "Finding",
    "Known",
    "Operation",
    "Outcome",
    "Point",
    "Reluctant",
    "Scene",
    "ScheduleError",
    "Snapshot",
    "Step",
    "StoreModel",
    "check_store",
    "checks",
    "crash_points",
    "every_point",
    "explore",
    "power_loss",
    "problems",
    "refuses_to_go_on",
    "replay",
    "run",
    "seeded_plan",
]
