"""Saving and loading beside torch.save, safetensors, torch's distributed checkpoint, and Zarr with zstd.

    python -m benchmarks.bench_beside [--quick] [--page]

One state of float32 matrices moves a little from round to round, as weights do. In each round every
contender saves it and loads it again, one after another; of what is loaded every cache line is read. Seconds
are medians of nine rounds, and so are ratios to safetensors, each taken within its round. Memory is the most
that the process held beside what it held before, and beside the values that a load gives. A first save makes
the track, which is as large as the weights and stays: it is counted. Large memory is
fresh for everyone, as in a process that has just begun: an allocator that hands out again what the last
contender has left would make a load twice as fast. Of the machine's own memory all have the same: a virtual
machine gives pages that are free for a second back to its host, and who asks for them next would pay for it,
so as many as anyone needs are taken and freed before each save and load. `--page` puts the table into
benchmarks/README.md.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
import zarr
from safetensors.numpy import load_file, save_file
from zarr.codecs import ZstdCodec

import lcstore
from benchmarks.measure import Report, arguments

PAGE = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- beside -->\n", "<!-- end beside -->"
MATRICES, COLUMNS, ROUNDS = 24, 1000, 9
#: Deltas that there are before the first round; each adds one, so that there are 20 in the middle.
DELTAS = 15
#: Bytes that the machine has at hand when a save or load begins: five times the state.
AT_HAND = 1 << 30
State = dict[str, np.ndarray]


class Contender(NamedTuple):
    """How a state is saved to a folder, and loaded from it; and what is on stable storage then."""

    name: str
    synced: str
    save: Callable[[State, Path], Any]
    load: Callable[[State, Path], Any]


class Cost(NamedTuple):
    """Seconds, and bytes of memory."""

    seconds: float
    memory: int


def main() -> None:
    asked = arguments(__doc__ or "", page="put the table into benchmarks/README.md")
    report = Report("beside", asked.quick)
    rows, columns = (200 if asked.quick else 2000), COLUMNS
    rng = np.random.default_rng(0)
    state = {
        f"layers.{i}.weight": 0.02 * rng.standard_normal((rows, columns), np.float32) for i in range(MATRICES)
    }
    found: dict[str, list[tuple[Cost, Cost, int]]] = defaultdict(list)
    have_fresh_memory()
    folder = Path(tempfile.mkdtemp(prefix="lcstore-bench-"))
    try:
        line = lcstore.open(folder / "line", threads=2)
        for step in range(DELTAS):
            move(state, rng)
            line.save(step, state)
        some = contenders(line)
        for number in range((2 if asked.quick else ROUNDS) + 1):
            move(state, rng)
            for one in some:
                costs = turn(one, state, folder / "turn")
                if number:  # the first round has libraries loaded, and kernels compiled
                    found[one.name].append(costs)
        line.close()
    finally:
        shutil.rmtree(folder)
    nbytes = sum(weight.nbytes for weight in state.values())
    title = f"{nbytes / 1e6:.0f} MB of float32 in {MATRICES} matrices, local disk, {os.cpu_count()} cores"
    head = ["", "synced", "save, s", "x safetensors", "load, s", "x safetensors", "MB"]
    head += ["memory of a save, MiB", "of a load, MiB"]
    body = [[one.name, one.synced, *summary(found[one.name], found["safetensors"])] for one in some]
    report.table(title, head, body)
    report.data["beside"] = [dict(zip(head, row, strict=False)) for row in body]
    report.write()
    if asked.page and not asked.quick:
        write_page(title, head, body)


def have_fresh_memory() -> None:
    """Have glibc map what is large by itself, whatever was freed before."""
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD


def move(state: State, rng: np.random.Generator) -> None:
    """Move weights a little."""
    for weight in state.values():
        weight += np.float32(1e-4) * rng.standard_normal(weight.shape, np.float32)


def contenders(line: lcstore.Store) -> list[Contender]:
    """Return who takes part; `line` is a store in which each round adds a delta."""

    def fresh(state: State, folder: Path) -> None:
        with lcstore.open(folder, threads=2) as store:
            store.save(0, {"model": state})

    def back(_: State, folder: Path) -> Any:
        with lcstore.open(folder, "r", threads=2) as store:
            return store.restore(0)["model"]

    def further(state: State, folder: Path) -> None:
        folder.mkdir()
        info = line.save((line.latest_step() or 0) + 1, state)
        (folder / "as-many-bytes").write_bytes(bytes(info.bytes_stored))

    return [
        Contender("lcstore: first save", "files, folders", fresh, back),
        Contender(
            f"lcstore: a delta, {DELTAS + 1} to {DELTAS + ROUNDS} before it",
            "files, folders",
            further,
            lambda *_: line.restore(),
        ),
        Contender("safetensors", "file", partial(to_file, save_file), lambda _, at: load_file(at / "file")),
        Contender("torch.save", "file", partial(to_file, torch_save), lambda _, at: torch_load(at / "file")),
        Contender("torch DCP", "files", dcp_save, dcp_load),
        Contender("Zarr, zstd", "files", zarr_save, zarr_load),
    ]


def to_file(save: Callable[[State, Path], object], state: State, folder: Path) -> None:
    """Save to one file, and sync it."""
    folder.mkdir()
    save(state, folder / "file")
    sync(folder)


def sync(folder: Path) -> None:
    """Have all files below a folder on stable storage."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as written:
                os.fsync(written.fileno())


def tensors(state: State) -> dict[str, torch.Tensor]:
    """Return a state as tensors of the same memory."""
    return {name: torch.from_numpy(weight) for name, weight in state.items()}


def torch_save(state: State, file: Path) -> None:
    """Save with torch."""
    torch.save(tensors(state), file)


def torch_load(file: Path) -> Any:
    """Load with torch."""
    return {name: tensor.numpy() for name, tensor in torch.load(file, weights_only=True).items()}


def dcp_save(state: State, folder: Path) -> None:
    """Save a distributed checkpoint of one process, which syncs its files by itself."""
    dcp.save(tensors(state), checkpoint_id=folder, no_dist=True)


def dcp_load(state: State, folder: Path) -> State:
    """Load a distributed checkpoint into memory that is made for it."""
    into = {name: torch.empty(weight.shape) for name, weight in state.items()}
    dcp.load(into, checkpoint_id=folder, no_dist=True)
    return {name: tensor.numpy() for name, tensor in into.items()}


def zarr_save(state: State, folder: Path) -> None:
    """Save arrays of whole chunks, and sync them."""
    group = zarr.create_group(folder)
    for name, weight in state.items():
        group.create_array(name, data=weight, chunks=weight.shape, compressors=[ZstdCodec(level=1)])
    sync(folder)


def zarr_load(state: State, folder: Path) -> State:
    """Load all arrays."""
    group = zarr.open_group(folder, mode="r")
    return {name: np.asarray(group[name]) for name in state}


def turn(one: Contender, state: State, folder: Path) -> tuple[Cost, Cost, int]:
    """Save and load once; return what both took, and the bytes of the files."""
    saved = measured(lambda: one.save(state, folder), 0)
    nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    loaded = measured(lambda: touched(one.load(state, folder)), sum(w.nbytes for w in state.values()))
    shutil.rmtree(folder)
    return saved, loaded, nbytes


def touched(state: State) -> State:
    """Read every cache line of a state."""
    for weight in state.values():
        weight.view(np.uint8).reshape(-1)[::64].sum()
    return state


def measured(run: Callable[[], Any], given: int) -> Cost:
    """Return what something took, but for so many bytes that it gives."""
    np.ones(AT_HAND, np.uint8)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, began = held("VmRSS"), time.perf_counter()
    kept = run()
    seconds = time.perf_counter() - began
    del kept
    return Cost(seconds, max(held("VmHWM") - before - given, 0))


def held(name: str) -> int:
    """Return an entry of the process's status, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def summary(mine: list[tuple[Cost, Cost, int]], theirs: list[tuple[Cost, Cost, int]]) -> list[float]:
    """Return medians: seconds and ratio of save and load, MB, MiB of both."""
    cells: list[float] = []
    for place in (0, 1):
        seconds = [costs[place].seconds for costs in mine]
        ratios = [s / costs[place].seconds for s, costs in zip(seconds, theirs, strict=True)]
        cells += [statistics.median(seconds), statistics.median(ratios)]
    cells.append(statistics.median(costs[2] for costs in mine) / 1e6)
    return cells + [statistics.median(costs[place].memory for costs in mine) / 2**20 for place in (0, 1)]


def write_page(title: str, head: list[str], body: list[list[Any]]) -> None:
    """Put the table between its marks."""
    cells = [[cell if isinstance(cell, str) else f"{cell:.3g}" for cell in row] for row in body]
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---", "---", *["--:"] * 7], *cells)]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    text = "\n".join([f"{title}, medians of {ROUNDS} rounds:", "", *lines])
    PAGE.write_text(before + BEGIN + "\n" + text + "\n\n" + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
