"""Files of ``torch.save``. Whatever is read is data: nothing in a file is ever run."""

from __future__ import annotations

import importlib
import pickle
import re
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any, Final

import numpy as np

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.exchange.held import Held
from lcstore.exchange.outgoing import Outgoing

#: What torch says that it met and does not take for data.
_REFUSED: Final = re.compile(r"(?:GLOBAL|global|class) [`']?([\w.]+)")


def torch_for(where: str) -> Any:
    """Return torch; `InvalidInputError` where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise InvalidInputError(f"{where} takes torch: pip install torch") from error


def write_torch(file: IO[bytes], out: Outgoing) -> None:
    """Write a state as ``torch.save`` does: with all of its tensors in memory, as those of torch."""
    torch_for("a file of torch.save").save(out.tree(), file)


def read_torch(path: str, where: str) -> Held:
    """Return what a file holds. Values are read when used, if the file is newer than torch 1.6.

    Raises
    ------
    InvalidInputError
        It holds objects that are no data.
    CorruptionError
        It is no such file, or damaged.
    """
    torch = torch_for(where)
    with _arrays_are_data(torch):
        try:
            return Held(_load(torch, path))
        except pickle.UnpicklingError as error:
            raise _refusal(str(error), where) from error
        except Exception as error:  # torch raises many kinds of what is no file of its own
            text = str(error).strip().split("\n", 1)[0]
            message = f"{where} is no whole file of torch.save: {type(error).__name__}: {text:.300}"
            raise CorruptionError(message) from error


def _load(torch: Any, path: str) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, ValueError) as error:
        if "mmap" not in str(error):
            raise
        return torch.load(path, map_location="cpu", weights_only=True)


def _arrays_are_data(torch: Any) -> AbstractContextManager[Any]:
    """Have arrays of numpy and its numbers be taken for data: losses and random states are full of them."""
    declaring = getattr(torch.serialization, "safe_globals", None)
    if declaring is None:  # torch before 2.5
        return nullcontext()
    core = importlib.import_module("numpy._core.multiarray")
    # Files that an older numpy wrote have the other name.
    older = [(make, f"numpy.core.multiarray.{make.__name__}") for make in (core._reconstruct, core.scalar)]
    kinds = {type(np.dtype(code)): None for code in "?bBhHiIlLqQefdFD"}
    declared: AbstractContextManager[Any] = declaring(
        [core._reconstruct, core.scalar, *older, np.ndarray, np.dtype, *kinds]
    )
    return declared


def _refusal(said: str, where: str) -> InvalidInputError | CorruptionError:
    """Return what is said of a file that torch does not take for data alone."""
    found = _REFUSED.search(said)
    if found is None:
        line = said.strip().split("\n", 1)[0]
        return CorruptionError(f"{where} is no file of torch.save, or damaged: {line:.200}")
    return InvalidInputError(
        f"{where} holds a {found[1]}, which only running code of the file could make, and an import never "
        "does. If you trust the file, save what it holds from Python: "
        f"lcstore.open(URL).save(STEP, state), with the dicts and tensors of torch.load({where!r}, "
        "weights_only=False)"
    )
