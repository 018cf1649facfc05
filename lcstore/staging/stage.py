"""Staging: a state on the host, with what is said about it. Everything that a save is made of."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import LcstoreError
from lcstore.format.labels import Labels
from lcstore.garbage import garbage_waits
from lcstore.jobs.jobs import run_all
from lcstore.staging.landing import Landing
from lcstore.state.frameworks import HostArray, is_loaded
from lcstore.state.names import Name
from lcstore.state.tree import FlatState, flatten

#: Bytes that one thread copies at a time, and shares from which more threads than one are worth it.
_SHARE: Final = 4 << 20
_WORTH_THREADS: Final = 3
#: A tensor of fewer bytes is copied at once: to hand it to torch or to a thread takes longer than the copy.
_TINY: Final = 1 << 15
#: Where to copy, and what.
Pair: TypeAlias = tuple[Array, Array]


class Buffers:
    """Memory that states are copied to, kept from one save to the next, so that its pages are there.

    It holds one state: what was copied for a save is overwritten by the next copy.

    Parameters
    ----------
    executor
        Threads that copy side by side: one alone does not reach what the memory gives. Tensors of torch are
        copied by torch's own threads, which are awake after a training step.
    gpu_memory
        Bytes of each GPU that tensors may be copied to on their way.
    """

    def __init__(self, executor: Executor | None = None, gpu_memory: int = 0) -> None:
        self._executor = executor
        self._held: dict[Name, Array] = {}
        self._landing = Landing(gpu_memory)

    def land(self, tensors: Sequence[tuple[Name, HostArray]]) -> dict[Name, Array]:
        """Begin to copy the tensors that lie on GPUs to this memory; return their elements in C order.

        The elements are there after `wait`. What GPUs are given later may change the tensors.
        """
        return self._landing.begin({name: host for name, host in tensors if host.on_gpu is not None})

    def copy(self, tensors: Sequence[tuple[Name, HostArray]]) -> dict[Name, Array]:
        """Copy tensors to this memory; return their elements in C order.

        Memory is kept for these names alone, so that of names that went away is free.
        """
        held: dict[Name, Array] = {}
        pairs: dict[bool, list[Pair]] = {True: [], False: []}
        by_torch = is_loaded("torch")  # if not, arrays may stand for its tensors all the same
        for name, host in tensors:
            array = flat_array(host.array)
            old = self._held.get(name)
            fits = old is not None and (old.size, old.dtype) == (array.size, array.dtype)
            held[name] = old if old is not None and fits else np.empty_like(array)
            if array.nbytes < _TINY:
                held[name][:] = array
            else:
                pairs[by_torch and host.framework == "torch"].append((held[name], array))
        self._held = held
        _copy_by_torch(pairs[True])
        jobs = [partial(_copy_each, some) for some in _shares(pairs[False])]
        if self._executor is None or len(jobs) < _WORTH_THREADS:
            for job in jobs:
                job()
        else:
            run_all(self._executor, jobs)
        return held

    def wait(self) -> None:
        """Wait for tensors that are on their way from GPUs."""
        self._landing.wait()


def flat_array(array: Array) -> Array:
    """Return the elements of an array in C order, flat; shares memory where it can."""
    return np.ascontiguousarray(array).reshape(-1)


def _shares(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Cut what is to be copied into shares of about `_SHARE` bytes."""
    share: list[Pair] = []
    left = _SHARE
    for to, array in pairs:
        step = max(1, _SHARE // max(1, array.itemsize))
        for low in range(0, array.size, step):
            part = array[low : low + step]
            share.append((to[low : low + step], part))
            left -= part.nbytes
            if left <= 0:
                yield share
                share, left = [], _SHARE
    if share:
        yield share


def _copy_each(pairs: Iterable[Pair]) -> None:
    for to, array in pairs:
        np.copyto(to, array)


def _copy_by_torch(pairs: Iterable[Pair]) -> None:
    torch: Any = sys.modules.get("torch")
    for to, array in pairs:
        # Bytes, so that no dtype is one that torch has not.
        torch.from_numpy(to.view(np.uint8)).copy_(torch.from_numpy(array.view(np.uint8)))


@dataclass(frozen=True)
class Staged:
    """A state that is ready to be coded.

    Attributes
    ----------
    step
        The training step.
    flat
        The state taken apart.
    arrays
        Its tensors in C order, one-dimensional, in the order of `flat`.
    labels
        Metrics, metadata and tags.
    exact
        Whether the exact value is kept besides the track.
    touched
        By tensor name, the rows that have changed since the save before, where the caller says so.
    """

    step: int
    flat: FlatState
    arrays: tuple[Array, ...]
    labels: Labels = field(default_factory=Labels)
    exact: bool = False
    touched: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(array.nbytes for array in self.arrays)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the step in errors that name none yet: a later save may be what raises them."""
        with named(self.step):
            yield


@contextmanager
def named(step: int) -> Iterator[None]:
    """Name a step in errors that name none yet."""
    try:
        yield
    except LcstoreError as error:
        error.step = step if error.step is None else error.step
        raise


@garbage_waits()
def stage(
    step: int,
    state: Any,
    labels: Labels | None = None,
    *,
    exact: bool = False,
    touched: Mapping[str, Any] | None = None,
    copy: bool = True,
    buffers: Buffers | None = None,
) -> Staged:
    """Return a state as a save needs it.

    Parameters
    ----------
    step, labels, exact, touched
        As `Staged` says.
    state
        What `lcstore.state.tree.flatten` takes.
    copy
        Copy every tensor, so that the caller may go on changing the state. Otherwise the tensors are
        borrowed: the caller must leave the state alone until the save is done.
    buffers
        Where to copy to, and where tensors on GPUs land in any case; new memory if not given. Where it
        copies, its `wait` has to be called before arrays are read.

    Raises
    ------
    InvalidInputError
        Something in the state cannot be stored; the message names it.
    """
    flat = flatten(state, fetch=buffers is None)
    found = {} if buffers is None else buffers.land(flat.tensors)
    here = [(name, host) for name, host in flat.tensors if name not in found]
    if copy:
        found |= (buffers or Buffers()).copy(here)
        touched = {name: np.array(rows) for name, rows in (touched or {}).items()}
    elif found and buffers is not None:
        buffers.wait()
    tensors = [
        (name, HostArray(found[name].reshape(host.array.shape), host.framework) if name in found else host)
        for name, host in flat.tensors
    ]
    arrays = [found[name] if name in found else flat_array(host.array) for name, host in tensors]
    flat = replace(flat, tensors=tensors)
    return Staged(step, flat, tuple(arrays), labels or Labels(), exact, dict(touched or {}))
