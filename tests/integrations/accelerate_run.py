"""A small loop of Accelerate, with dropout, accumulation of gradients, and data in random order."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

import lcstore
from lcstore.integrations.accelerate import Batches, parts_of

EPOCHS = 3


class Numbers(torch.utils.data.Dataset):
    """Some numbers; it notes what was read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 23

    def __getitem__(self, place: int) -> tuple[int, torch.Tensor]:
        self.read.append(place)
        return place, torch.sin(torch.arange(32.0) * (place + 1))


def train(url: str | None, *, stop_at: int = -1, kill: bool = False, **how: Any) -> dict[str, Any]:
    """Train from where a store says, or without one; tell of each batch and of what came out."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(5) if how.pop("own_generator", False) else None
    every, policy = how.pop("every", 1), how.pop("policy", "lossless")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, **how)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, shuffle=True, generator=generator)
    model, optimizer, schedule, loader = accelerator.prepare(model, optimizer, schedule, loader)
    batches = Batches(loader)
    parts = parts_of(accelerator, model=model, optim=optimizer, schedule=schedule, data=batches)
    manager = None if url is None else lcstore.CheckpointManager(url, every=every, policy=policy)
    resumed = None if manager is None else manager.resume_into(parts)
    step = begin = resumed.step if resumed else 0
    told: list[list[Any]] = []
    for epoch in range(batches.epoch, EPOCHS):
        for places, values in batches:
            with accelerator.accumulate(model):
                loss = (model(values) - values.roll(1, 1)).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            told.append([epoch, places.tolist(), loss.item()])
            if not accelerator.sync_gradients:
                continue
            step += 1
            if manager is not None:
                manager.save(step, parts)
            if step == stop_at:
                if kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                manager.close()
                return {"told": told}
    if manager is not None:
        manager.close()
    found = hashlib.sha256(b"".join(t.numpy().tobytes() for t in parts["model"].state_dict().values()))
    return {"told": told, "digest": found.hexdigest(), "begin": begin}


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = Path(sys.argv[1])
    told = train(str(given), stop_at=int(sys.argv[2]), kill=True)
    given.with_suffix(".json").write_text(json.dumps(told))
