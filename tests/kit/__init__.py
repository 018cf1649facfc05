"""What our own tests of the store stand on: models, interleavings, power cuts, and what must always hold.

What users of a new backend need (the conformance suite, fault injection) is in `lcstore.testing`.
"""

from kit.actors import Actor, Outcome
from kit.bursts import Reluctant, seeded_plan
from kit.interleave import Exploration, Scene, ScheduleError, explore, replay
from kit.invariants import BrokenStoreError, check_store, problems, refuses_to_go_on
from kit.model import Chronicle, Known, Snapshot, StoreModel
from kit.powerloss import Disk, power_loss
from kit.races import Step

__all__ = [
    "Actor",
    "BrokenStoreError",
    "Chronicle",
    "Disk",
    "Exploration",
    "Known",
    "Outcome",
    "Reluctant",
    "Scene",
    "ScheduleError",
    "Snapshot",
    "Step",
    "StoreModel",
    "check_store",
    "explore",
    "power_loss",
    "problems",
    "refuses_to_go_on",
    "replay",
    "seeded_plan",
]
