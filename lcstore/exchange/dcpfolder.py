"""Folders of ``torch.distributed.checkpoint``, read by one process, whole.

Torch reads two things in them by running whatever a pickle says: the metadata, and plain values. Here both
are looked at first, and have to be data alone.
"""

from __future__ import annotations

import importlib
import io
import pickle
from typing import Any, Final

from lcstore.errors import CorruptionError, LcstoreError
from lcstore.exchange.held import Held
from lcstore.exchange.torchfile import load_data, refusal, torch_for

_METADATA: Final = ".metadata"
_DCP: Final = "torch.distributed.checkpoint"
#: What metadata is made of, besides all that a module of torch defines for it.
_ALSO: Final = frozenset(
    {
        (f"{_DCP}.filesystem", "_StorageInfo"),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        ("collections", "OrderedDict"),
        ("pathlib", "PosixPath"),
        ("pathlib", "WindowsPath"),
        ("pathlib._local", "PosixPath"),
        ("pathlib._local", "WindowsPath"),
    }
)


def read_dcp(path: str, where: str) -> Held:
    """Return what a folder holds, tensors put together of their shards.

    Raises
    ------
    InvalidInputError
        It holds objects that are no data.
    CorruptionError
        It is no such folder, or damaged.
    """
    torch = torch_for(where)
    planner = importlib.import_module(f"{_DCP}.default_planner")
    loader = importlib.import_module(f"{_DCP}.state_dict_loader")

    class Planner(planner._EmptyStateDictLoadPlanner):  # type: ignore[misc, name-defined]
        """Makes the state of what the metadata says, and takes plain values for nothing but data."""

        def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
            data = io.BytesIO()
            torch.save(load_data(torch, value, where), data)
            data.seek(0)
            super().load_bytes(read_item, data)

    state: dict[str, Any] = {}
    try:
        with open(f"{path}/{_METADATA}", "rb") as file:
            _Metadata(file, torch, where).load()
        reader = importlib.import_module(_DCP).FileSystemReader(path)
        loader._load_state_dict(state, storage_reader=reader, planner=Planner(), no_dist=True)
    except LcstoreError:
        raise
    except Exception as error:
        # What torch raises, a `CheckpointException` above all, wraps what was raised while it read.
        inner = next((one for one in _causes(error) if isinstance(one, LcstoreError)), None)
        if inner is not None:
            raise inner from error
        raise CorruptionError(f"{where} is no whole folder of {_DCP}: {_line(error)}") from error
    return Held(state)


def _causes(error: BaseException) -> list[BaseException]:
    failures = getattr(error, "failures", {})
    return [one[0] if isinstance(one, tuple) else one for one in getattr(failures, "values", list)()]


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:200]}".replace("\n", " ")


class _Metadata(pickle.Unpickler):
    """Reads metadata, and refuses whatever would make anything else of it."""

    def __init__(self, file: Any, torch: Any, where: str) -> None:
        super().__init__(file)
        self._torch = torch
        self._where = where

    def find_class(self, module: str, name: str) -> Any:
        """Return what metadata is made of; `InvalidInputError` for anything else."""
        found = None
        if module == f"{_DCP}.metadata" and "." not in name:
            found = getattr(importlib.import_module(module), name, None)
            found = found if isinstance(found, type) and found.__module__ == module else None
        elif module == "torch" and isinstance(getattr(self._torch, name, None), self._torch.dtype):
            found = getattr(self._torch, name)
        elif (module, name) in _ALSO:
            found = super().find_class(module, name)
        if found is None:
            raise refusal(f"{module}.{name}", self._where)
        return found
