"""lcstore keeps every training checkpoint: small lossy deltas over any fsspec target.

    import lcstore
    store = lcstore.open("s3://bucket/run1")
    store.save(1000, {"model": model, "optim": optimizer})
    state = store.resume()

The public names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING, Any, Final

from lcstore.version import __version__

if TYPE_CHECKING:
    from lcstore.check.findings import Finding, VerifyReport
    from lcstore.codec.lc import LCCodec
    from lcstore.compaction.compact import CompactReport
    from lcstore.copying.copy import CopyReport
    from lcstore.durability import Durability
    from lcstore.errors import (
        BesideWarning,
        ClosedError,
        ConflictError,
        CorruptionError,
        DamageWarning,
        FallbackWarning,
        InvalidInputError,
        LcstoreError,
        LimitError,
        NotFiniteWarning,
        NotFoundError,
        ReadOnlyError,
        StepWarning,
        StorageError,
        TruncatedError,
        UnknownOutcomeError,
        UnrecognisedWarning,
        UnsupportedFormatError,
    )
    from lcstore.exchange.exporting import ExportReport, export
    from lcstore.exchange.importing import Imported, ImportReport, import_files
    from lcstore.index.info import StepInfo
    from lcstore.index.states import Listed
    from lcstore.maintain.collected import CollectReport
    from lcstore.maintain.removal import RemoveReport
    from lcstore.maintain.retire import Retired, RetireReport
    from lcstore.maintain.sizing import Forecast
    from lcstore.maintain.unretire import Unretired, UnretireReport
    from lcstore.manager.manager import CheckpointManager
    from lcstore.manager.random_state import RandomState
    from lcstore.manager.schedule import FailureRate, Overhead, Pace, Schedule, Seconds, Steps
    from lcstore.places.below import (
        Tended,
        collect_below,
        copy_below,
        maintain_below,
        unretire_below,
        verify_below,
    )
    from lcstore.places.whole import copy, remove
    from lcstore.read.snapshot import Snapshot
    from lcstore.read.statistics import Stats
    from lcstore.repair.repaired import RepairReport
    from lcstore.report.facts import (
        SavedState,
        SharedNote,
        StoreReport,
        TensorFacts,
        TensorGroup,
        TensorsSeen,
    )
    from lcstore.report.writing import write_report
    from lcstore.retention import (
        BestN,
        Budget,
        EachRun,
        EveryNSeconds,
        EveryNSteps,
        ExactOnly,
        LatestN,
        LogSpaced,
        Pinned,
        Retention,
        Strip,
        Tagged,
    )
    from lcstore.store.costs import RestoreCost, RestoreCosts
    from lcstore.store.nightly import MaintainReport
    from lcstore.store.opening import open_store as open
    from lcstore.store.saver import SaveFuture
    from lcstore.store.store import Store
    from lcstore.track.policy import Policy
    from lcstore.walks.diff import Diff, TensorDiff
    from lcstore.walks.walk import Walk
    from lcstore.write.saveinfo import SaveInfo

__all__ = [
    "BesideWarning",
    "BestN",
    "Budget",
    "CheckpointManager",
    "ClosedError",
    "CollectReport",
    "CompactReport",
    "ConflictError",
    "CopyReport",
    "CorruptionError",
    "DamageWarning",
    "Diff",
    "Durability",
    "EachRun",
    "EveryNSeconds",
    "EveryNSteps",
    "ExactOnly",
    "ExportReport",
    "FailureRate",
    "FallbackWarning",
    "Finding",
    "Forecast",
    "ImportReport",
    "Imported",
    "InvalidInputError",
    "LCCodec",
    "LatestN",
    "LcstoreError",
    "LimitError",
    "Listed",
    "LogSpaced",
    "MaintainReport",
    "NotFiniteWarning",
    "NotFoundError",
    "Overhead",
    "Pace",
    "Pinned",
    "Policy",
    "RandomState",
    "ReadOnlyError",
    "RemoveReport",
    "RepairReport",
    "RestoreCost",
    "RestoreCosts",
    "Resumed",
    "Retention",
    "RetireReport",
    "Retired",
    "SaveFuture",
    "SaveInfo",
    "SavedState",
    "Schedule",
    "Seconds",
    "SharedNote",
    "Snapshot",
    "Stats",
    "StepInfo",
    "StepWarning",
    "Steps",
    "StorageError",
    "Store",
    "StoreReport",
    "Strip",
    "Tagged",
    "Tended",
    "TensorDiff",
    "TensorFacts",
    "TensorGroup",
    "TensorsSeen",
    "TruncatedError",
    "UnknownOutcomeError",
    "UnrecognisedWarning",
    "UnretireReport",
    "Unretired",
    "UnsupportedFormatError",
    "VerifyReport",
    "Walk",
    "__version__",
    "collect_below",
    "copy",
    "copy_below",
    "export",
    "import_files",
    "maintain_below",
    "open",
    "remove",
    "unretire_below",
    "verify_below",
    "write_report",
]

#: Where a public name is defined. The rules of retention are found together, and so are the errors.
_HOMES: Final = {
    "CheckpointManager": "lcstore.manager.manager",
    "CollectReport": "lcstore.maintain.collected",
    "CompactReport": "lcstore.compaction.compact",
    "CopyReport": "lcstore.copying.copy",
    "Diff": "lcstore.walks.diff",
    "Durability": "lcstore.durability",
    "ExportReport": "lcstore.exchange.exporting",
    "FailureRate": "lcstore.manager.schedule",
    "Finding": "lcstore.check.findings",
    "Forecast": "lcstore.maintain.sizing",
    "ImportReport": "lcstore.exchange.importing",
    "Imported": "lcstore.exchange.importing",
    "LCCodec": "lcstore.codec.lc",
    "Listed": "lcstore.index.states",
    "MaintainReport": "lcstore.store.nightly",
    "Overhead": "lcstore.manager.schedule",
    "Pace": "lcstore.manager.schedule",
    "Policy": "lcstore.track.policy",
    "RandomState": "lcstore.manager.random_state",
    "RemoveReport": "lcstore.maintain.removal",
    "RepairReport": "lcstore.repair.repaired",
    "RestoreCost": "lcstore.store.costs",
    "RestoreCosts": "lcstore.store.costs",
    "Resumed": "lcstore.manager.resumed",
    "RetireReport": "lcstore.maintain.retire",
    "Retired": "lcstore.maintain.retire",
    "SaveFuture": "lcstore.store.saver",
    "SaveInfo": "lcstore.write.saveinfo",
    "SavedState": "lcstore.report.facts",
    "Schedule": "lcstore.manager.schedule",
    "Seconds": "lcstore.manager.schedule",
    "SharedNote": "lcstore.report.facts",
    "Snapshot": "lcstore.read.snapshot",
    "Stats": "lcstore.read.statistics",
    "StepInfo": "lcstore.index.info",
    "Steps": "lcstore.manager.schedule",
    "Store": "lcstore.store.store",
    "StoreReport": "lcstore.report.facts",
    "Tended": "lcstore.places.below",
    "TensorDiff": "lcstore.walks.diff",
    "TensorFacts": "lcstore.report.facts",
    "TensorGroup": "lcstore.report.facts",
    "TensorsSeen": "lcstore.report.facts",
    "UnretireReport": "lcstore.maintain.unretire",
    "Unretired": "lcstore.maintain.unretire",
    "VerifyReport": "lcstore.check.findings",
    "Walk": "lcstore.walks.walk",
    "collect_below": "lcstore.places.below",
    "copy": "lcstore.places.whole",
    "copy_below": "lcstore.places.below",
    "export": "lcstore.exchange.exporting",
    "import_files": "lcstore.exchange.importing",
    "maintain_below": "lcstore.places.below",
    "open": "lcstore.store.opening:open_store",
    "remove": "lcstore.places.whole",
    "unretire_below": "lcstore.places.below",
    "verify_below": "lcstore.places.below",
    "write_report": "lcstore.report.writing",
}

#: What people look for here, and a store has.
_METHODS: Final = frozenset((
    "collect", "compact", "diff", "history", "maintain", "read", "repair", "restore",
    "resume", "retain", "retire", "save", "stats", "steps", "verify",
))  # fmt: skip


def _loaded(name: str) -> Any:
    if name not in __all__:
        method = {"load": "restore"}.get(name, name)
        hint = f": a store has it, lcstore.open(url).{method}" if method in _METHODS else ""
        # Python looks for the nearest name itself. This is asked for every module of the library too.
        raise AttributeError(
            f"module 'lcstore' has no attribute {name!r}{hint}", name=name, obj=modules[__name__]
        )
    home = "lcstore.errors" if name.endswith(("Error", "Warning")) else "lcstore.retention"
    module, _, other = _HOMES.get(name, home).partition(":")
    value = getattr(import_module(module), other or name)
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # who checks types is to tell of names that are not there
    __getattr__ = _loaded


def __dir__() -> list[str]:
    return sorted(__all__)
