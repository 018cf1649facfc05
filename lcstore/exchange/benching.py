"""The policies of lcstore beside what others do, on checkpoints of the user's own."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.durability import Durability
from lcstore.exchange.importing import by_step, read
from lcstore.exchange.peers import Coder, cast, peers
from lcstore.exchange.sources import Source, sources
from lcstore.format.policyfile import policy_from
from lcstore.jobs.survey import OnProgress
from lcstore.read.snapshot import Snapshot
from lcstore.state.names import format_name
from lcstore.state.tree import flatten
from lcstore.storage.memory import MemoryBackend
from lcstore.store.opening import open_store
from lcstore.track.policy import PRESETS, settled

#: A file on this machine, and what it is.
Here: TypeAlias = tuple[str, Source]
#: What a store is given; all others are compared with these.
POLICIES: Final = tuple(PRESETS)
#: Of each file so many pieces are coded by others: samples of it say as much as all of it.
_PIECES: Final = 64
_PIECE_BYTES: Final = 4 << 20
#: What a store keeps by default, but for anchors: where those lie depends on how long the run is.
_NO_ANCHORS: Final = Durability(anchor_ratio=math.inf)
#: The peer that loses something.
_CAST: Final = "cast to bfloat16"


@dataclass
class Method:
    """What one method made of the files.

    Attributes
    ----------
    name
        A policy, or what others do.
    bytes_first, bytes_others
        What the first file takes, and all others together; estimated from samples where they are others'.
    error
        Of the weights of the last file: how far they are off, as a part of their size (``|u - u~| / |u|``).
    intervals
        The same in checkpoint intervals, where a store says so.
    seconds
        To code all files.
    bytes_protection
        What a store keeps of all files against damage besides, as it is made by default; 0 of others.
    """

    name: str
    bytes_first: float = 0.0
    bytes_others: float = 0.0
    error: float = 0.0
    intervals: float | None = None
    seconds: float = 0.0
    bytes_protection: int = 0

    def add(self, nbytes: float, seconds: float, *, first: bool) -> None:
        """Count a file."""
        self.seconds += seconds
        if first:
            self.bytes_first += nbytes
        else:
            self.bytes_others += nbytes


@dataclass(frozen=True)
class BenchReport:
    """What was measured.

    Attributes
    ----------
    files
        Paths or URLs, in the order of their steps.
    bytes_first, bytes_others
        Bytes of tensors in the first file, and in all others together.
    methods
        Policies of lcstore, and what others do.
    left_out
        Names of what is no data in files of torch, objects of classes, and was not looked at.
    """

    files: tuple[str, ...]
    bytes_first: int
    bytes_others: int
    methods: list[Method] = field(default_factory=list)
    left_out: tuple[str, ...] = ()


def bench(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    steps_from: str | None = None,
    format: str | None = None,
    policies: Sequence[str] = POLICIES,
    threads: int | None = None,
    file_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> BenchReport:
    """Compare the policies of lcstore with what others do, on checkpoint files of one run.

    The first file becomes an anchor, and the others deltas, as in a store; they are kept in memory, coded,
    and what a store keeps against damage is counted apart. Others code samples of each file. Objects that
    lie beside tensors in a file of torch are left out: nothing in a file is ever run.

    Parameters
    ----------
    files, steps_from, format, file_options
        As for `import_files`. A single file needs no step.
    policies
        As `lcstore.open` takes them.
    threads
        As for `lcstore.open`. Others code with one.
    on_progress
        Called with "bench", how many files were coded, and how many are to be.

    Raises
    ------
    NotFoundError, InvalidInputError, CorruptionError
        As for `import_files`; or a file of torch holds no tensors but in objects.

    Examples
    --------
    >>> from lcstore.exchange.benching import bench
    >>> weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    >>> np.savez("step1.npz", **{"fc.weight": weights})
    >>> np.savez("step2.npz", **{"fc.weight": weights * 1.001})
    >>> report = bench(["step1.npz", "step2.npz"], policies=["balanced"])
    >>> [method.name for method in report.methods][0]
    'balanced'
    """
    given = [files] if isinstance(files, str | os.PathLike) else [*files]
    found = sources(given, format, file_options)
    ordered = [*by_step(found, 0 if len(found) == 1 else None, steps_from)[0].values()]
    done = 0

    def tell() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress("bench", done, len(ordered) * (len(policies) + 1))

    ours, weights = [], set[str]()
    with ExitStack() as fetched:
        files_here = [(fetched.enter_context(source.local()), source) for source in ordered]
        for policy in policies:
            method, weights = _policy(policy, files_here, threads, tell)
            ours.append(method)
        sizes, others, left_out = _others(files_here, weights, tell)
    urls = tuple([source.url for source in ordered])
    return BenchReport(urls, sizes[0], sum(sizes[1:]), [*ours, *others], left_out)


def _policy(
    policy: str, files: Sequence[Here], threads: int | None, tell: Callable[[], None]
) -> tuple[Method, set[str]]:
    """Return what a policy makes of the files, as of a long run, and the names of the tensors of weights."""
    method, weights = Method(policy), set[str]()
    _load_kernels(policy)
    usual = settled(policy_from(policy))
    with open_store(MemoryBackend.fresh(), policy=usual, threads=threads, durability=_NO_ANCHORS) as store:
        for step, (path, source) in enumerate(files):
            state = read(path, source, skip_objects=True).state
            info = store.save(step, state)
            method.bytes_protection += info.bytes_protection
            own = info.bytes_stored - info.bytes_protection
            method.add(own, info.seconds["total"], first=step == 0)
            method.intervals = info.error
            if step == len(files) - 1:
                weights, method.error = _compared(store[step], state)
            del state
            tell()
    return method, weights


def _load_kernels(policy: str) -> None:
    """Have compiled what a save calls, so that it is not counted."""
    weight = np.linspace(-1, 1, 1 << 14, dtype=np.float32).reshape(128, 128)
    with open_store(MemoryBackend.fresh(), policy=policy, durability="none") as store:
        for step in range(3):
            moments = {"exp_avg": weight * step, "exp_avg_sq": weight**2, "step": step}
            store.save(step, {"model": {"weight": weight + step / 999}, "optim": {"state": {0: moments}}})


def _compared(snapshot: Snapshot, state: Any) -> tuple[set[str], float]:
    """Return which tensors of a state are weights, and how far they are off in a store."""
    weights = {name for name, (_, _, role) in snapshot.tensors().items() if role == "weights"}
    given = {format_name(name): host.array for name, host in flatten(state).tensors}
    off = size = 0.0
    for name in weights & given.keys():
        off, size = _added(off, size, given[name], snapshot.read(name, to="numpy"))
    return weights, math.sqrt(off / size) if size else 0.0


def _added(off: float, size: float, given: Array, found: Array) -> tuple[float, float]:
    """Return squares of differences and of values, with those of one more tensor."""
    wide = given.astype(np.float64)
    return off + float(np.square(found - wide).sum()), size + float(np.square(wide).sum())


def _others(
    files: Sequence[Here], weights: set[str], tell: Callable[[], None]
) -> tuple[list[int], list[Method], tuple[str, ...]]:
    """Return the bytes of tensors in each file, what others make of them, and what is left out of any."""
    coders = peers()
    methods = {name: Method(name) for name in coders}
    sizes, left_out = [], dict[str, None]()
    off = size = 0.0
    for number, (path, source) in enumerate(files):
        found = read(path, source, skip_objects=True)
        left_out |= dict.fromkeys(found.left_out)
        tensors = flatten(found.state).tensors
        nbytes = sum(host.array.nbytes for _, host in tensors)
        sizes.append(nbytes)
        pieces = [*_pieces([host.array for _, host in tensors])]
        for name, coder in coders.items():
            methods[name].add(*_estimated(coder, pieces, nbytes), first=number == 0)
        if number == len(files) - 1:
            for path_of, host in tensors:
                if format_name(path_of) in weights:
                    flat = host.array.reshape(-1)[: _PIECE_BYTES // host.array.itemsize]
                    off, size = _added(off, size, flat, cast(flat).astype(np.float64))
        del found, tensors, pieces
        tell()
    methods[_CAST].error = math.sqrt(off / size) if size else 0.0
    return sizes, [*methods.values()], tuple(left_out)


def _pieces(arrays: Sequence[Array]) -> Iterator[Array]:
    """Yield pieces of tensors, evenly spread over all of them."""
    flat = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    total = sum(array.nbytes for array in flat)
    stride = max(1, math.ceil(total / (_PIECES * _PIECE_BYTES)))
    number = 0
    for array in flat:
        step = _PIECE_BYTES // array.itemsize
        for low in range(0, array.size, step):
            if number % stride == 0:
                yield array[low : low + step]
            number += 1


def _estimated(coder: Coder, pieces: Sequence[Array], nbytes: int) -> tuple[float, float]:
    """Return the bytes and seconds that a coder takes for so many bytes, of which some pieces are known."""
    raw = sum(piece.nbytes for piece in pieces)
    started = time.perf_counter()
    coded = sum(map(coder, pieces))
    seconds = time.perf_counter() - started
    part = nbytes / raw if raw else 1.0
    return coded * part, seconds * part
