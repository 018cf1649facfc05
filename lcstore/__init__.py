"""lcstore keeps every training checkpoint: small lossy deltas over any fsspec target.

    import lcstore
    store = lcstore.open("s3://bucket/run1")
    store.save(1000, {"model": model, "optim": optimizer})
    state = store.resume()
"""

from lcstore.errors import (
    ClosedError,
    ConflictError,
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    LimitError,
    NotFoundError,
    StorageError,
    TruncatedError,
    UnknownOutcomeError,
    UnsupportedFormatError,
)
from lcstore.store.info import SaveInfo, StepInfo
from lcstore.store.store import Store
from lcstore.store.store import open_store as open
from lcstore.track.policy import Policy
from lcstore.version import __version__

__all__ = [
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "InvalidInputError",
    "LcstoreError",
    "LimitError",
    "NotFoundError",
    "Policy",
    "SaveInfo",
    "StepInfo",
    "StorageError",
    "Store",
    "TruncatedError",
    "UnknownOutcomeError",
    "UnsupportedFormatError",
    "__version__",
    "open",
]
