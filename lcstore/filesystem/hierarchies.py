"""States, and one tensor through all of them, as zarr gives them."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr

from lcstore.arrays import Array
from lcstore.errors import CorruptionError, InvalidInputError, NotFoundError
from lcstore.filesystem.chunkcache import ChunkCache
from lcstore.filesystem.decoded import Decoded
from lcstore.filesystem.files import File, Folder, Literal
from lcstore.filesystem.quoting import quoted
from lcstore.filesystem.statefiles import kept
from lcstore.filesystem.tensorfiles import shown_dtype
from lcstore.filesystem.turns import Turns
from lcstore.filesystem.zarrnodes import ZarrArray, ZarrGroup, dims_of, finite, state_hierarchy
from lcstore.filesystem.zarrstore import FolderStore
from lcstore.format.labels import At, Run
from lcstore.graph.refs import NodeName
from lcstore.read.lookup import absent, as_name, tensors_at
from lcstore.read.node import Node
from lcstore.read.reader import Reader
from lcstore.read.snapshot import Snapshot
from lcstore.state.names import Name, format_name
from lcstore.storage.backend import Backend
from lcstore.walks.walk import stops
from lcstore.walks.walker import Walker

if TYPE_CHECKING:
    from zarr import Group

_STEP: Final = "step"


def state_group(snapshot: Snapshot) -> Group:
    """Return the tensors of a state as a group of zarr; see `Store.zarr`."""
    return zarr.open_group(FolderStore(_state_folder, snapshot), mode="r")


def _state_folder(snapshot: Snapshot) -> Folder:
    source = Decoded(snapshot, ChunkCache())
    return state_hierarchy(source, kept(source))


def history_array(
    reader: Reader, tensor: str | Name, steps: Iterable[At] | None, run: Run = None, line: At = None
) -> zarr.Array[Any]:
    """Return one tensor in many states as an array of zarr; see `Store.zarr_history`."""
    name = as_name(tensor)
    visited = stops(reader, steps, run=run, line=line)
    found = _having(reader, name, visited.names, visited.listed)
    store = FolderStore(_history_folder, History(reader, name, found))
    return zarr.open_array(store, path=_called(name), mode="r")


def _having(reader: Reader, name: Name, names: Sequence[NodeName], listed: bool) -> list[NodeName]:
    """Return which states have the tensor as the last of them has it."""
    list(reader.requests.map(reader.index.record, [one.node for one in names]))
    found: list[tuple[NodeName, tuple[Any, ...]]] = []
    for one in names:
        node = reader.node(one)
        whole = node.layout.named.get(name)
        if whole is None and listed:
            raise absent(format_name(name), [node], reader.url)
        places = () if whole is None else node.layout.shards[whole]
        if listed:
            with node.named():
                node.check_kept(places)
        if whole is not None and not any(map(node.has_let_go, places)):
            spec = node.layout.wholes[whole]
            found.append((one, (spec.shape, spec.dtype)))
    if not found:
        said = f"none of these {len(names)} states has a tensor {format_name(name)!r}"
        if names and whole is None:  # what was let go of is there by that name
            plain = f"it is a plain value, which history({format_name(name)!r}) gives"
            is_plain = name in node.leaf_places
            said += f": {plain if is_plain else absent(format_name(name), [node], reader.url).message}"
        raise NotFoundError(said, missing="tensor")
    last = found[-1][1]
    other = next((one for one in found if one[1] != last), None)
    if listed and other is not None:
        raise InvalidInputError(
            f"{format_name(name)!r} is {other[1][1]}{list(other[1][0])} at step {other[0].step}, and "
            f"{last[1]}{list(last[0])} at step {found[-1][0].step}: ask for the steps of either apart"
        )
    return [one for one, kind in found if kind == last]


class History:
    """One tensor in many states. Thread-safe; it pickles as where the store is, and which states they are.

    Parameters
    ----------
    reader, name
        What reads, and which tensor.
    names
        The states, all of which have it in one shape and dtype.
    """

    def __init__(self, reader: Reader, name: Name, names: Sequence[NodeName]) -> None:
        self._reader = reader
        self.name = name
        self.names = [*names]
        self._begin()

    def _begin(self) -> None:
        self._turns = Turns()
        self._walker = Walker(self._reader)

    def __reduce__(self) -> tuple[Any, ...]:
        return _sent, (self._reader.backend, self.name, self.names)

    def __repr__(self) -> str:
        return f"{format_name(self.name)!r} in {len(self.names)} states of {self._reader.url!r}"

    def node(self, place: int) -> Node:
        """Return one of the states, its record and layout read."""
        return self._here().node(self.names[place])

    def value(self, place: int) -> Array:
        """Return the flat values in one of the states: from those of the state that was asked for before."""
        reader = self._here()
        node = reader.node(self.names[place])
        whole = node.layout.named.get(self.name)
        assert whole is not None
        with self._turns.at(place) as before:
            self._walker.goes_on = place + 1 < len(self.names)
            try:
                found = self._walker.values(node, [whole])[whole]
                if place == before + 1:
                    self._walker.expect(self.names, place + 1, partial(tensors_at, name=self.name))
                return found
            except CorruptionError:
                self._walker.forget()
        snapshot = Snapshot(reader, self.names[place])
        return snapshot.using(lambda state: state.values([whole])[whole])

    def _here(self) -> Reader:
        if os.getpid() != self._reader.process:  # a fork has neither the threads nor the connections
            self._reader = _reader_of(copy.deepcopy(self._reader.backend))
            self._begin()
        return self._reader


def _reader_of(backend: Backend) -> Reader:
    reader = Reader.alone(backend)
    reader.listed()
    return reader


def _sent(backend: Backend, name: Name, names: Sequence[NodeName]) -> History:
    return History(_reader_of(backend), name, names)


@dataclass(frozen=True)
class _State:
    """A tensor in one state, as bytes of a file."""

    history: History
    place: int
    dtype: np.dtype
    nbytes: int

    def span(self, start: int, end: int) -> None:
        """Return that they are decoded by themselves."""

    def read(self, start: int, end: int) -> list[memoryview]:
        """Return some of the bytes."""
        values = self.history.value(self.place)
        raw = np.ascontiguousarray(values, self.dtype.newbyteorder("<")).view(np.uint8)
        return [raw[start:end].data]


def _history_folder(history: History) -> Folder:
    nodes = [history.node(place) for place in range(len(history.names))]
    whole = nodes[-1].layout.named.get(history.name)
    assert whole is not None
    spec = nodes[-1].layout.wholes[whole]
    dtype, shape = shown_dtype(spec.dtype), spec.shape
    records = [node.record for node in nodes]
    metrics = {
        metric: [record.metrics.get(metric) for record in records]
        for metric in sorted({metric for record in records for metric in record.metrics})
    }

    def part(at: Sequence[int]) -> File:
        return File([_State(history, at[0], dtype, math.prod(shape) * dtype.itemsize)])

    called = _called(history.name)
    about: dict[str, Any] = {
        "name": format_name(history.name),
        "dtype": spec.dtype,
        "role": spec.role,
        "steps": [name.step for name in history.names],
        "nodes": [name.node for name in history.names],
        "runs": [name.run for name in history.names],
        "metrics": {metric: [*map(finite, values)] for metric, values in metrics.items()},
    }
    dims = [_STEP, *dims_of(history.name, shape)]
    array = ZarrArray([len(nodes), *shape], dtype, [1, *(max(1, n) for n in shape)], part, dims, about)
    inside = {
        quoted((metric,))[0]: _along_steps(np.array([math.nan if v is None else v for v in values]))
        for metric, values in metrics.items()
    }
    inside |= {_STEP: _along_steps(np.array(about["steps"], np.int64)), called: array}
    return ZarrGroup(inside, {"name": about["name"]})


def _called(name: Name) -> str:
    """Return what the array of a tensor is called beside the steps of its states, which are called `step`."""
    *above, called = quoted(name)
    if called != _STEP:
        return called
    return ".".join([*above, called]) if above else "value"


def _along_steps(values: Array) -> ZarrArray:
    """Return a number for each step as an array."""
    data = File([Literal(values.astype(values.dtype.newbyteorder("<")).tobytes())])
    return ZarrArray(values.shape, values.dtype, values.shape, lambda at: data, [_STEP], {})
