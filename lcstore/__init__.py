"""lcstore keeps every training checkpoint: small lossy deltas over any fsspec target.

    import lcstore
    store = lcstore.open("s3://bucket/run1")
    store.save(1000, {"model": model, "optim": optimizer})
    state = store.resume()

The public names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lcstore.version import __version__

if TYPE_CHECKING:
    from lcstore.codec.lc import LCCodec
    from lcstore.durability import Durability
    from lcstore.errors import (
        ClosedError,
        ConflictError,
        CorruptionError,
        DamageWarning,
        FallbackWarning,
        InvalidInputError,
        LcstoreError,
        LimitError,
        NotFoundError,
        StorageError,
        TruncatedError,
        UnknownOutcomeError,
        UnrecognisedWarning,
        UnsupportedFormatError,
    )
    from lcstore.index.info import StepInfo
    from lcstore.read.snapshot import Snapshot
    from lcstore.retention.keep import (
        BestN,
        Budget,
        EveryNSeconds,
        EveryNSteps,
        LatestN,
        Pinned,
        Tagged,
    )
    from lcstore.retention.modify import Exact, Strip
    from lcstore.retention.spaced import LogSpaced
    from lcstore.store.opening import open_store as open
    from lcstore.store.store import Store
    from lcstore.store.whole import copy, remove
    from lcstore.track.policy import Policy
    from lcstore.write.saveinfo import SaveInfo

__all__ = [
    "BestN",
    "Budget",
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "DamageWarning",
    "Durability",
    "EveryNSeconds",
    "EveryNSteps",
    "Exact",
    "FallbackWarning",
    "InvalidInputError",
    "LCCodec",
    "LatestN",
    "LcstoreError",
    "LimitError",
    "LogSpaced",
    "NotFoundError",
    "Pinned",
    "Policy",
    "SaveInfo",
    "Snapshot",
    "StepInfo",
    "StorageError",
    "Store",
    "Strip",
    "Tagged",
    "TruncatedError",
    "UnknownOutcomeError",
    "UnrecognisedWarning",
    "UnsupportedFormatError",
    "__version__",
    "copy",
    "open",
    "remove",
]

_HOMES: Final = {
    "BestN": "lcstore.retention.keep",
    "Budget": "lcstore.retention.keep",
    "Durability": "lcstore.durability",
    "EveryNSeconds": "lcstore.retention.keep",
    "EveryNSteps": "lcstore.retention.keep",
    "Exact": "lcstore.retention.modify",
    "LCCodec": "lcstore.codec.lc",
    "LatestN": "lcstore.retention.keep",
    "LogSpaced": "lcstore.retention.spaced",
    "Pinned": "lcstore.retention.keep",
    "Policy": "lcstore.track.policy",
    "SaveInfo": "lcstore.write.saveinfo",
    "Snapshot": "lcstore.read.snapshot",
    "StepInfo": "lcstore.index.info",
    "Store": "lcstore.store.store",
    "Strip": "lcstore.retention.modify",
    "Tagged": "lcstore.retention.keep",
    "copy": "lcstore.store.whole",
    "open": "lcstore.store.opening:open_store",
    "remove": "lcstore.store.whole",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lcstore' has no attribute {name!r}")
    module, _, other = _HOMES.get(name, "lcstore.errors").partition(":")
    value = getattr(import_module(module), other or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
