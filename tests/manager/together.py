"""Processes that train together by DistributedDataParallel, as the one of a rank of two."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

import lcstore


def make() -> dict:
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    return {"model": model, "optim": torch.optim.AdamW(model.parameters())}


def train(url: str, rank: int, steps: int, told_at: int) -> None:
    """Train from where the store says; at a step have one of the processes told to end."""
    parts = make()
    policy = "lossless" if steps == 11 else "balanced"
    with lcstore.CheckpointManager(url, every=5, policy=policy) as manager:
        at = [manager.latest_step()]
        dist.broadcast_object_list(at)
        resumed = None if at[0] is None else manager.resume_into(parts, at[0])
        first = resumed.step + 1 if resumed else 0
        for step in range(first, steps):
            torch.manual_seed(2 * step + rank)
            loss = parts["model"](torch.randn(8, 64)).square().mean()
            parts["optim"].zero_grad()
            loss.backward()
            parts["optim"].step()
            if step == told_at and rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            told = torch.tensor(float(manager.has_notice))
            dist.all_reduce(told, op=dist.ReduceOp.MAX)  # all leave at the same step
            if told:
                manager.give_notice()
            saved = manager.save(step, parts)
            assert not (saved and rank)
            if told:
                print("told to end at", step, flush=True)
                dist.barrier()
                with lcstore.open(url, "r") as store:
                    print("saved", store.latest_step(), flush=True)
                break
    weight = parts["model"].module.weight.double().sum().item()
    print("from", first, "ended with", weight, flush=True)


def save_in_both(url: str, rank: int) -> None:
    """Save in each process, and say what it was warned of."""
    for where in (url, f"{url}-{rank}"):
        with lcstore.open(where) as store, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if rank:
                dist.barrier()
            store.save(0, {"weight": torch.zeros(64, 64)})
            if not rank:
                dist.barrier()
        texts = [str(each.message) for each in caught if each.category is lcstore.BesideWarning]
        print(sum("rank 1 of the processes" in text for text in texts), "warnings", flush=True)


def manage_in_both(url: str, rank: int) -> None:
    """Give states to managers of the same store, and of one for each process; say what was logged."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lcstore").addHandler(handler)
    for where in (url, f"{url}-{rank}"):
        with lcstore.CheckpointManager(where, background=False) as manager:
            for step in range(2):
                assert manager.save(step, {"weight": torch.zeros(64, 64)}, force=True) is not bool(rank)
        found = sum(f"{url}-{rank}" in text and "by Store.save" in text for text in told)
        print(found, "told", flush=True)


def go_on_alone(url: str, rank: int) -> None:
    """End the group while handles are open, and save by them: each still knows which process it is of."""
    with lcstore.CheckpointManager(url, background=False) as manager, lcstore.open(f"{url}-both") as store:
        if not rank:
            store.save(0, {"weight": torch.zeros(64, 64)})
        dist.barrier()
        dist.destroy_process_group()
        manager.give_notice()
        due, saved = manager.should_save(1), manager.save(1, {"weight": torch.ones(64, 64)}, force=True)
        print("after the end", due, saved, manager.reached_preemption(), flush=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store.save(1, {"weight": torch.ones(64, 64)})
        print(
            sum(f"rank {rank} of" in str(each.message) for each in caught), "warnings at the end", flush=True
        )
        os.kill(os.getpid(), signal.SIGKILL)  # rather than by the notice


def main(url: str, rank: int, steps: int, told_at: int) -> None:
    meeting = f"file://{Path(url).absolute()}.meeting{told_at}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    try:
        if steps:
            train(url, rank, steps, told_at)
        elif told_at == 0:
            go_on_alone(url, rank)
        else:
            save_in_both(url, rank)
            manage_in_both(f"{url}-managed", rank)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
