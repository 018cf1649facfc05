"""What is kept, and for how long.

Takes plain facts about the committed states of a store, and gives the decision which of them to keep, which
to strip and which exact values to let go. Knows steps, times, metrics and tags; never knows keys, frames or
where bytes lie, and the retention rules have neither I/O nor a clock.
"""

from lcstore.retention.base import Retention
from lcstore.retention.keep import (
    BestN,
    Budget,
    EachRun,
    EveryNSeconds,
    EveryNSteps,
    LatestN,
    Pinned,
    Tagged,
)
from lcstore.retention.modify import ExactOnly, Strip
from lcstore.retention.parse import parse_retention
from lcstore.retention.spaced import LogSpaced

__all__ = [
    "BestN",
    "Budget",
    "EachRun",
    "EveryNSeconds",
    "EveryNSteps",
    "ExactOnly",
    "LatestN",
    "LogSpaced",
    "Pinned",
    "Retention",
    "Strip",
    "Tagged",
    "parse_retention",
]
