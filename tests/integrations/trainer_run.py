"""A small run of Trainer: tied weights, dropout, accumulation of gradients, evaluations, epochs."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import lcstore
from lcstore.integrations.transformers import LcstoreCallback

#: What differs from run to run.
TIMES = ("_runtime", "_per_second")


class Texts(torch.utils.data.Dataset):
    """Random tokens."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 64, (count, 12), generator=generator)
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        self.read.append(place)
        return {"input_ids": self.tokens[place], "labels": self.tokens[place]}


def model_of(seed: int = 0) -> GPT2LMHeadModel:
    """Return a new model, with other weights for another seed."""
    torch.manual_seed(seed)
    tokens = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(n_positions=12, n_embd=32, n_layer=1, n_head=2, **tokens))


def trainer_of(folder: Path, *callbacks: TrainerCallback, model: Any = None, **options: Any) -> Trainer:
    """Return a Trainer with everything new: 7 steps to the epoch, of which the last is shorter."""
    chosen = {
        "output_dir": str(folder / "out"),
        "save_strategy": "no",
        "num_train_epochs": 3,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-2,
        "warmup_steps": 4,
        "logging_steps": 2,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "disable_tqdm": True,
        "report_to": "none",
        "use_cpu": True,
        **options,
    }
    return Trainer(
        model_of() if model is None else model,
        TrainingArguments(**chosen),
        train_dataset=Texts(26, 1),
        eval_dataset=Texts(8, 2),
        callbacks=[*callbacks],
    )


def disturb() -> None:
    """Draw random numbers, as no run did. (The order of the data follows from the seed of torch alone.)"""
    random.random()
    np.random.random()  # noqa: NPY002  (that is what Trainer keeps)
    torch.rand(1)


def logged(trainer: Trainer) -> list[dict[str, float]]:
    """Return what was logged, but for times; and for the summary, which tells of this process alone."""
    return [
        {name: value for name, value in entry.items() if not name.endswith(TIMES)}
        for entry in trainer.state.log_history
        if "train_loss" not in entry
    ]


def digest(trainer: Trainer) -> str:
    """Return a hash of every bit of the weights and of the optimizer's state."""
    found = hashlib.sha256()
    moments = trainer.optimizer.state_dict()["state"]
    tensors = [*trainer.model.state_dict().values(), *(t for one in moments.values() for t in one.values())]
    for tensor in tensors:
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


class Ends(TrainerCallback):
    """Ends the process at a step, by a signal, once a state is there."""

    def __init__(self, url: str, step: int, number: int) -> None:
        self.url, self.step, self.number = url, step, number

    def on_optimizer_step(self, args, state, control, **parts):
        if state.global_step == self.step:
            while lcstore.open(self.url, "r").latest_step() is None:
                pass
            os.kill(os.getpid(), self.number)


def main(folder: Path, policy: str, ends: str, at: int) -> None:
    """Train, from where the store says; tell of it in a file."""
    torch.set_num_threads(1)
    url = str(folder / policy)
    callback = LcstoreCallback(url, every=2, policy=policy)
    trainer = trainer_of(folder, callback)
    if ends != "never":
        trainer.add_callback(Ends(url, at, getattr(signal, ends)))
    begin = callback.checkpoint(trainer.args.output_dir)
    if begin is not None:
        disturb()
    trainer.train(resume_from_checkpoint=begin)
    told = {"begin": begin, "logged": logged(trainer), "digest": digest(trainer)}
    (folder / f"{policy}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
