"""`LcstoreCheckpointIO` for programs that import ``pytorch_lightning``; those of ``lightning`` have their own."""

from __future__ import annotations

from pytorch_lightning.plugins.io import CheckpointIO, TorchCheckpointIO

from lcstore.integrations.lightning_io import StoredCheckpoints

__all__ = ["LcstoreCheckpointIO"]


class LcstoreCheckpointIO(StoredCheckpoints, CheckpointIO):  # type: ignore[misc]
    __doc__ = StoredCheckpoints.__doc__

    files = TorchCheckpointIO
