"""A run of Lightning in a process of its own: it is killed at a step, and begun again."""

from __future__ import annotations

import os
import signal
import sys
import warnings

warnings.filterwarnings("ignore", module="lightning")
warnings.filterwarnings("ignore", module="torch")

import lightning as L  # noqa: E402
import torch  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

from lcstore.integrations.lightning import LcstoreCheckpointIO  # noqa: E402

STEPS, EVERY, WIDTH = 32, 4, 64


class Batches:
    """Batches that are known by their place, and a place that can be saved: what a resumable loader is."""

    def __init__(self) -> None:
        self.first = self.next = 0

    def __len__(self) -> int:
        return STEPS // 2

    def __iter__(self):
        first, self.first = self.first, 0
        for place in range(first, len(self)):
            self.next = place + 1
            x = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(place))
            yield x, x.sin()

    def state_dict(self) -> dict:
        return {"next": self.next % len(self)}  # at the end of an epoch: the next one from its beginning

    def load_state_dict(self, state: dict) -> None:
        self.first = state["next"]


class Model(L.LightningModule):
    def __init__(self, kill_at: int = -1, number: int = signal.SIGKILL) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 256),
            torch.nn.BatchNorm1d(256),
            torch.nn.Tanh(),
            torch.nn.Linear(256, WIDTH),
        )
        self.kill_at, self.number = kill_at, number

    def training_step(self, batch, _):
        if self.global_step == self.kill_at:
            os.kill(os.getpid(), self.number)
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [STEPS // 2], 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def fitted(folder: str, io: LcstoreCheckpointIO | None, ckpt_path: str | None = None, *kill_at: int, **more):
    """Train to the end, saving to a folder of pointers."""
    more = {"every_n_train_steps": EVERY, "save_top_k": -1, "save_last": True, "filename": "{step}"} | more
    saving = ModelCheckpoint(folder, **more)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[saving],
        plugins=[] if io is None else [io],
    )
    model = Model(*kill_at)
    try:
        trainer.fit(model, Batches(), ckpt_path=ckpt_path, weights_only=False)
    finally:
        if trainer.received_sigterm:
            sys.exit(143)
    return trainer, model


def main(store: str, folder: str, policy: str, background: str, kill_at: str, out: str) -> None:
    """Go on from the last checkpoint, if there is one."""
    torch.set_num_threads(1)
    io = LcstoreCheckpointIO(store, policy=policy, background=background == "True")
    killed = int(kill_at), signal.SIGTERM if policy == "high" else signal.SIGKILL
    trainer, model = fitted(folder, io, "last", *killed, save_on_exception=policy == "high")
    end = {"step": trainer.global_step, "loss": float(trainer.callback_metrics["loss"])}
    torch.save(end | {"model": model.state_dict(), "optim": trainer.optimizers[0].state_dict()}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
