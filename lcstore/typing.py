"""The types that signatures name, for annotations of your own: ``from lcstore.typing import PolicyLike``."""

from lcstore.durability import DurabilityLike
from lcstore.format.labels import At, Run
from lcstore.format.policyfile import PolicyLike
from lcstore.jobs.survey import OnProgress
from lcstore.manager.options import Labels, RestoreOptions
from lcstore.manager.schedule import Pace, ScheduleLike
from lcstore.storage.backend import Backend
from lcstore.store.opening import OpenMode, OpenOptions

__all__ = [
    "At",
    "Backend",
    "DurabilityLike",
    "Labels",
    "OnProgress",
    "OpenMode",
    "OpenOptions",
    "Pace",
    "PolicyLike",
    "RestoreOptions",
    "Run",
    "ScheduleLike",
]
