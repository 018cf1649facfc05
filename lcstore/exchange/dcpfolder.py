"""Folders of ``torch.distributed.checkpoint``, read by one process, whole.

Torch reads two things in them by running whatever a pickle says: the metadata, and plain values. Here both
are looked at first, and have to be data alone.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
from collections.abc import Iterable
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Final

from lcstore.errors import CorruptionError, LcstoreError
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.dcpplan import check_plan
from lcstore.exchange.torchfile import check_sums, load_data, refusal, torch_for

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


def read_dcp(path: str, where: str) -> Checkpoint:
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

    dcp = importlib.import_module(_DCP)

    class Reader(dcp.FileSystemReader):  # type: ignore[misc, name-defined]
        """Reads by the metadata that was looked at."""

        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
            return metadata

    state: dict[str, Any] = {}
    try:
        with open(f"{path}/{_METADATA}", "rb") as file:
            metadata = _Metadata(file, torch, where).load()
        check_plan(metadata, where)
        _check_items(path, metadata.storage_data.values(), where)
        loader._load_state_dict(state, storage_reader=Reader(path), planner=Planner(), no_dist=True)
    except LcstoreError:
        raise
    except (Exception, dcp.CheckpointException) as error:
        # One error for each process, of which there is one here: what it met, and where.
        failures = [one for one, *_ in getattr(error, "failures", {}).values()]
        met = failures[0] if failures else error
        if isinstance(met, LcstoreError):
            raise met from error
        said = str(met).strip().split("\n", 1)[0]
        message = f"{where} is no whole folder of {_DCP}: {type(met).__name__}: {said:.200}"
        raise CorruptionError(message) from error
    return Checkpoint(_numbered(state))


def _check_items(path: str, items: Iterable[Any], where: str) -> None:
    """Refuse a folder of which an item, a file of torch each within another file, has not its checksums."""
    for name, some in groupby(sorted(items, key=_place), lambda item: item.relative_path):
        if type(name) is not str or os.path.isabs(name) or ".." in Path(name).parts:
            raise CorruptionError(f"{where} names {name!r}, which does not lie in the folder")
        with open(os.path.join(path, name), "rb") as file:
            for item in some:
                file.seek(item.offset)
                check_sums(io.BytesIO(file.read(item.length)), where)


def _place(item: Any) -> tuple[str, int]:
    return item.relative_path, item.offset


def _numbered(state: Any) -> Any:
    """Return a state in which optimizers have their parameters by number, as they were saved.

    Keys are texts in such a folder. What torch's `load_state_dict` finds under ``"0"`` it takes for none of
    its parameters, and says nothing.
    """
    if not isinstance(state, dict):
        return state
    state = {key: _numbered(value) for key, value in state.items()}
    groups, moments = state.get("param_groups"), state.get("state")
    if isinstance(groups, list) and isinstance(moments, dict):
        lists = [group.get("params") for group in groups if isinstance(group, dict)]
        numbers = {str(one): one for some in lists if isinstance(some, list) for one in some}
        state["state"] = {numbers.get(key, key): value for key, value in moments.items()}
    return state


class _Metadata(pickle._Unpickler):
    """Reads metadata, and refuses whatever would make anything else of it.

    It is the one that is written in Python: the other cannot be kept from changing a class, a function or
    a member of an enumeration, which are those of the whole process.
    """

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch}

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
        elif module == "torch" and isinstance(vars(self._torch).get(name), self._torch.dtype):
            found = vars(self._torch)[name]
        elif (module, name) in _ALSO:
            found = super().find_class(module, name)
        if found is None:
            raise refusal(f"{module}.{name}", self._where)
        return found

    def load_build(self) -> None:
        """Set what an object has; `InvalidInputError` where the object is no new one."""
        changed = self.stack[-2]  # type: ignore[attr-defined]
        if callable(changed) or isinstance(changed, Enum):
            raise refusal(f"change of {changed!r}", self._where)
        super().load_build()  # type: ignore[misc]

    dispatch[pickle.BUILD[0]] = load_build
