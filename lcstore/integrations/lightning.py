"""`LcstoreCheckpointIO` for programs that import ``lightning``, and not ``pytorch_lightning``."""

from __future__ import annotations

from lightning.pytorch.plugins.io import CheckpointIO, TorchCheckpointIO

from lcstore.integrations.lightning_io import StoredCheckpoints

__all__ = ["LcstoreCheckpointIO"]


class LcstoreCheckpointIO(StoredCheckpoints, CheckpointIO):  # type: ignore[misc]
    """The plugin for a `Trainer` of ``lightning``; see `StoredCheckpoints`."""

    files = TorchCheckpointIO
