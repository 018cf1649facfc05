"""Files of ``torch.save``. Whatever is read is data: nothing in a file is ever run."""

from __future__ import annotations

import importlib
import pickle
import re
import zipfile
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from textwrap import shorten
from typing import IO, Any, Final

import numpy as np

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.outgoing import Outgoing

#: What torch says that it met and does not take for data.
REFUSED: Final = re.compile(r"(?:GLOBAL|global|class) [`']?([\w.]+)")
#: What torch's reader of data says of the first thing in a pickle of protocol 4 or above: it knows less.
_LATER: Final = "Unsupported operand 149"
#: How files of torch begin ...
_ZIP: Final = b"PK\x03\x04"
#: ... and what is among the first bytes of those that it wrote before 1.6.
_MAGIC: Final = b"l\xfc\x9cF\xf9 j\xa8P\x19"
_HEAD: Final = 32

#: Bytes that are read at a time to check them.
_AT_ONCE: Final = 1 << 20
#: Characters of what torch says of a damaged file.
_MOST_SAID: Final = 300


def torch_for(where: str) -> Any:
    """Return torch; `InvalidInputError` where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        cure = (
            "pip install torch" if isinstance(error, ModuleNotFoundError) else f"it cannot be loaded: {error}"
        )
        raise InvalidInputError(f"{where} takes torch: {cure}") from error


def write_torch(file: IO[bytes], out: Outgoing) -> None:
    """Write a state as ``torch.save`` does: with all of its tensors in memory, as those of torch."""
    try:
        torch_for("a file of torch.save").save(out.tree(), file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # of a write that failed torch tells as of a wrong place
            raise error.__context__ from None
        raise


def read_torch(path: str, where: str) -> Checkpoint:
    """Return what a file holds. Values are read when used, if the file is newer than torch 1.6.

    Raises
    ------
    InvalidInputError
        It holds objects that are no data, or torch does not read its pickle as data.
    CorruptionError
        It is no such file, or damaged.
    """
    check_sums(path, where)
    return Checkpoint(load_data(torch_for(where), path, where))


def check_sums(path: str | IO[bytes], where: str) -> None:
    """Refuse a file that has not the checksums it was written with: torch looks at none of them."""
    try:
        if not zipfile.is_zipfile(path):  # as torch wrote them before 1.6
            return
        with zipfile.ZipFile(path) as file:
            for entry in file.infolist():
                if entry.CRC:  # 0 where torch was told to leave them out
                    with file.open(entry) as data:
                        while data.read(_AT_ONCE):
                            pass
    except Exception as error:  # of many kinds, as what is damaged may be anything
        raise CorruptionError(f"{where} is damaged: {_brief(str(error)) or 'it ends too early'}") from error


def load_data(torch: Any, file: str | IO[bytes], where: str) -> Any:
    """Return what a file holds that ``torch.save`` wrote, namespaces as dicts; errors as of `read_torch`."""
    with _arrays_are_data(torch):
        try:
            return _as_dicts(_load(torch, file), {})
        except pickle.UnpicklingError as error:
            said = str(error).strip()
            found = REFUSED.search(said)
            if found is not None:
                raise refusal(found[1], where) from error
            if _LATER in said and _is_of_torch(file):
                raise InvalidInputError(
                    f"{where} was saved with pickle_protocol=4 or above, which torch reads only where code "
                    "that a file names may run, and nothing is run here. If you trust it: torch.save(torch."
                    "load(FILE, weights_only=False), ANOTHER), and give that one"
                ) from error
            raise CorruptionError(f"{where} is no file of torch.save, or damaged: {_brief(said)}") from error
        except Exception as error:  # torch raises many kinds of what is no file of its own
            said = _brief(str(error)) or "it ends too early"
            message = f"{where} is no whole file of torch.save: {type(error).__name__}: {said}"
            raise CorruptionError(message) from error


def _is_of_torch(file: str | IO[bytes]) -> bool:
    """Return whether a file begins as ``torch.save`` has one begin; other pickles do not."""
    with open(file, "rb") if isinstance(file, str) else nullcontext(file) as data:
        data.seek(0)
        head = data.read(_HEAD)
    return head.startswith(_ZIP) or _MAGIC in head


def _brief(said: str) -> str:
    """Return the first line of the reason that torch gives, or of all that it says; cut between words."""
    reason = said.rpartition("WeightsUnpickler error:")[2].strip()
    return shorten(reason.split("\n", 1)[0], _MOST_SAID, placeholder=" ...")


def _load(torch: Any, file: str | IO[bytes]) -> Any:
    if not isinstance(file, str):
        return torch.load(file, map_location="cpu", weights_only=True)
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, ValueError) as error:
        if "mmap" not in str(error):
            raise
        return torch.load(file, map_location="cpu", weights_only=True)


def _as_dicts(value: Any, made: dict[int, tuple[Any, Any]]) -> Any:
    """Return a value, in which a namespace (the arguments of a script, as a rule) becomes a dict.

    `made` has what each container became, which may lie in many others; and the container, so that its id
    stays its own.
    """
    if id(value) in made:
        return made[id(value)][1]
    became = vars(value) if type(value) is Namespace else value
    if isinstance(became, dict):
        made[id(value)] = value, became
        became.update({key: _as_dicts(inner, made) for key, inner in became.items()})
    elif isinstance(became, list):
        made[id(value)] = value, became
        became[:] = [_as_dicts(inner, made) for inner in became]
    elif type(became) is tuple:
        became = tuple([_as_dicts(inner, made) for inner in became])
        made[id(value)] = value, became
    return became


def _arrays_are_data(torch: Any) -> AbstractContextManager[Any]:
    """Have arrays of numpy and its numbers be taken for data: losses and random states are full of them.

    So is a namespace: to make one runs nothing that the file says.
    """
    declaring = getattr(torch.serialization, "safe_globals", None)
    if declaring is None:  # torch before 2.5
        return nullcontext()
    core = importlib.import_module("numpy._core.multiarray")
    # Files that an older numpy wrote have the other name.
    older = [(make, f"numpy.core.multiarray.{make.__name__}") for make in (core._reconstruct, core.scalar)]
    kinds = {type(np.dtype(code)): None for code in "?bBhHiIlLqQefdFD"}
    declared: AbstractContextManager[Any] = declaring(
        [core._reconstruct, core.scalar, *older, np.ndarray, np.dtype, *kinds, Namespace]
    )
    return declared


def refusal(kind: str, where: str) -> InvalidInputError:
    """Return what is said of a file that holds an object of a class, or a function, that makes no data."""
    return InvalidInputError(
        f"{where} holds a {kind:.200}, which only running code that the file names could make, and an import "
        "never does. If you trust the file, save from Python what it holds: "
        f"lcstore.open(URL).save(STEP, state), of the dicts and tensors in what torch gives for it with "
        "weights_only=False"
    )
