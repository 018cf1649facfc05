"""What a loop of Hugging Face's Accelerate keeps: its parts, and its place in the data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from accelerate import Accelerator, skip_first_batches

from lcstore.errors import InvalidInputError
from lcstore.integrations.processes import check_unsharded
from lcstore.manager.random_state import RandomState


class Batches:
    """Stands for a data loader in the loop, and knows its place: after a resume each sample comes once.

    One iteration is an epoch, or the rest of the one that was resumed or left in the midst.

    Parameters
    ----------
    loader
        A data loader, as ``Accelerator.prepare`` gives it.

    Attributes
    ----------
    epoch
        How many epochs are over.

    Raises
    ------
    InvalidInputError
        The loader keeps its place itself (``use_stateful_dataloader``), or has no batches.
    """

    def __init__(self, loader: Any) -> None:
        if getattr(loader, "use_stateful_dataloader", False):
            raise InvalidInputError(
                "the data loader keeps its place itself: prepare it without use_stateful_dataloader, or give "
                "it to parts_of as it is"
            )
        if loader.batch_sampler is None:
            raise InvalidInputError(
                "the data loader gives single samples (batch_size=None), and Accelerate skips none of those "
                "after a resume: give it a batch_size"
            )
        self.loader = loader
        self.epoch = 0
        self._batch = 0
        #: The random numbers that the order of this epoch follows from.
        self._start: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        if self._start is None:
            self._start = self._random()
            batches = self._begun(self.loader)
        else:
            batches = self._rest(self._start)
        for batch in batches:
            self._batch += 1
            yield batch
        self.epoch, self._batch, self._start = self.epoch + 1, 0, None

    def _begun(self, loader: Any) -> Iterator[Any]:
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(self.epoch)
        return iter(loader)

    def _rest(self, start: dict[str, Any]) -> Iterator[Any]:
        """Draw the order of the epoch again, and yield what is left, with the random numbers of now."""
        random = RandomState()
        now = random.state_dict()
        random.load_state_dict(start["random"])
        # One that a sampler makes when it begins is not here yet: then it follows from a seed and the epoch.
        for generator, state in zip(_generators(self.loader), start["generators"], strict=False):
            generator.set_state(torch.as_tensor(state))
        batches = self._begun(skip_first_batches(self.loader, self._batch))
        first = [*islice(batches, 1)]
        random.load_state_dict(now)
        yield from first
        yield from batches

    def _random(self) -> dict[str, Any]:
        states = [generator.get_state() for generator in _generators(self.loader)]
        return {"random": RandomState().state_dict(), "generators": states}

    def state_dict(self) -> dict[str, Any]:
        """Return the place."""
        return {"epoch": self.epoch, "batch": self._batch, "start": self._start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place; the next iteration begins there."""
        self.epoch, self._batch, self._start = state["epoch"], state["batch"], state["start"]


def parts_of(accelerator: Accelerator, **things: Any) -> dict[str, Any]:
    """Return what a loop keeps, for ``manager.save(step, ...)`` and ``manager.resume_into(...)``.

    Parameters
    ----------
    accelerator
        What prepared them.
    things
        By the name that each has in a state: models, optimizers, schedulers, `Batches`, and whatever else
        has ``state_dict`` and ``load_state_dict``. Call models ``model`` and optimizers ``optim``, or
        something like it, since names tell lcstore what is what.

    Returns
    -------
    dict
        The same, with models unwrapped; the scaler, where there is one; and in the first process the random
        numbers.

    Raises
    ------
    InvalidInputError
        A model is sharded, or a data loader is given for `Batches`.
    """
    models = {name: thing for name, thing in things.items() if isinstance(thing, torch.nn.Module)}
    check_unsharded(models.values())
    for name, thing in things.items():
        if isinstance(thing, torch.utils.data.DataLoader) and not getattr(
            thing, "use_stateful_dataloader", False
        ):
            raise InvalidInputError(
                f"{name!r} is a data loader, which does not know its place: iterate over Batches(loader), "
                "and give that"
            )
    parts = things | {name: _unwrapped(accelerator, model) for name, model in models.items()}
    if accelerator.scaler is not None:
        parts["scaler"] = accelerator.scaler
    if accelerator.is_main_process:
        parts["random"] = RandomState()
    return parts


def _unwrapped(accelerator: Accelerator, model: Any) -> Any:
    model = accelerator.unwrap_model(model)
    return getattr(model, "_orig_mod", model)  # of torch.compile


def _generators(loader: Any) -> list[Any]:
    """Return the generators of its own that a loader draws its order from."""
    sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    found = [
        getattr(loader, "synchronized_generator", None),
        getattr(loader, "generator", None),
        getattr(sampler, "generator", None),
    ]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())
