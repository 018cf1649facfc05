"""`LcstoreCheckpointIO` for programs that import ``pytorch_lightning``, and not ``lightning``."""

from __future__ import annotations

from pytorch_lightning.plugins.io import CheckpointIO, TorchCheckpointIO

from lcstore.integrations.lightning_io import StoredCheckpoints

__all__ = ["LcstoreCheckpointIO"]


class LcstoreCheckpointIO(StoredCheckpoints, CheckpointIO):  # type: ignore[misc]
    """The plugin for a `Trainer` of ``pytorch_lightning``; see `StoredCheckpoints`."""

    files = TorchCheckpointIO
