"""Runs of several processes: what they agree on, and what the first one of them can save for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import torch
from accelerate.state import AcceleratorState

from lcstore.errors import InvalidInputError, LcstoreError
from lcstore.ranks import rank
from lcstore.state.torchtensors import is_shard

_T = TypeVar("_T")
_SHARDED: Final = ("FSDP", "DEEPSPEED", "MEGATRON_LM")


def check_unsharded(models: Iterable[Any]) -> None:
    """Refuse models of which each process holds a part.

    Raises
    ------
    InvalidInputError
        They are sharded.
    """
    how = str(AcceleratorState().distributed_type.value)
    if how not in _SHARDED:
        if not any(is_shard(tensor) for model in models for tensor in model.parameters()):
            return
        how = "tensors of torch.distributed.tensor"
    raise InvalidInputError(
        f"the model is sharded ({how}), and sharded saving is not there yet: train it in one process or with "
        "DDP, or save it as its library does (Trainer: save_strategy='steps'; Accelerate: save_state)"
    )


def are_several() -> bool:
    """Return whether several processes train together."""
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def any_of_all(told: bool, device: Any) -> bool:
    """Return whether any process was told to end: all of them have to leave the loop at one step."""
    if not are_several():
        return told
    flag = torch.tensor(int(told), device=device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
    return bool(flag)


def wait_for_all() -> None:
    """Wait until all processes have come to this place."""
    if are_several():
        torch.distributed.barrier()


def of_the_first(make: Callable[[], _T]) -> _T:
    """Return what the first process makes, in each of them; raise in each what it failed with."""
    if not are_several():
        return make()
    told: list[Any] = [None, None]
    if rank() == 0:
        try:
            told[0] = make()
        except LcstoreError as error:
            told[1] = error
        except Exception as error:  # of any kind: the others wait to be told
            told[1] = LcstoreError(f"the first process failed: {type(error).__name__}: {error}")
            told[1].__cause__ = error
    torch.distributed.broadcast_object_list(told)
    made, failed = told
    if failed is not None:
        raise failed
    return made  # type: ignore[no-any-return]
