"""`LcstoreCheckpointIO` for programs that import ``lightning``; those of ``pytorch_lightning`` have their own."""

from __future__ import annotations

from lightning.pytorch.plugins.io import CheckpointIO, TorchCheckpointIO

from lcstore.integrations.lightning_io import StoredCheckpoints

__all__ = ["LcstoreCheckpointIO"]


class LcstoreCheckpointIO(StoredCheckpoints, CheckpointIO):  # type: ignore[misc]
    __doc__ = StoredCheckpoints.__doc__

    files = TorchCheckpointIO
