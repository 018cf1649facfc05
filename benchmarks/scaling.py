"""A cost model of save, restore, compact and list, and how near it comes to what is measured.

    python -m benchmarks.scaling [--quick] [--page]

Each operation is structure times constants. The structure (chunks, requests, edges, names) follows from the
sizes alone. The constants (seconds per weight, per tensor, per request, bytes per weight) are measured first,
in small, by the same process; then the model says what larger states and longer histories take, and each is
measured. Seconds are those of the processor, of one thread: other work on the machine does not count. They
are taken in memory that the process has had before. What fresh memory costs is shown beside: on a virtual
machine it differs by ten from one minute to the next. What is waited for a target is measured apart, on one
that takes 100 ms for each request. `--page` puts the tables into `docs/scaling.md`.

States are weights alone, float32, in matrices of 1,024 columns that move by a random step between saves. They
are kept in memory (``/dev/shm``), without what `durability` stores besides, as in a bucket.
"""

from __future__ import annotations

import ctypes
import gc
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lcstore
from benchmarks.measure import Report, arguments
from lcstore.compaction.making import Maker
from lcstore.format import keys
from lcstore.graph.graph import Graph
from lcstore.graph.plan import Shortcut, plan
from lcstore.graph.refs import ROOT, EdgeRef, NodeName
from lcstore.index.index import Index
from lcstore.layout.specs import chunk_elements
from lcstore.storage.local import LocalBackend

COLUMNS = 1024
#: Options of glibc's `mallopt`.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
LATENCY = 0.1
PAGE = Path(__file__).parent.parent / "docs/scaling.md"


# What is measured -------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What an operation took, or is to take.

    Attributes
    ----------
    requests, nbytes
        Requests, and bytes there and back.
    seconds
        Of the processor, of one thread.
    memory
        Bytes at the most, above what was held before.
    first
        Seconds of the first time, in memory that the process is given then.
    """

    requests: float
    nbytes: float
    seconds: float
    memory: float = math.nan
    first: float = math.nan


class Counting(LocalBackend):
    """A directory that is taken for a bucket, counts what is asked of it, and may be far away."""

    def __init__(self, root: Path, latency: float = 0.0) -> None:
        super().__init__(root)
        self.latency = latency
        self.requests, self.nbytes = 0, 0

    @property
    def url(self) -> str:
        return "s3://bucket/run"

    def _count(self, nbytes: int) -> None:
        self.requests += 1
        self.nbytes += nbytes
        if self.latency:
            time.sleep(self.latency)

    def put(self, key: str, data: Any) -> None:
        self._count(memoryview(data).nbytes)
        super().put(key, data)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        data = super().get(key, start, end)
        self._count(len(data))
        return data

    def list(self, prefix: str, foreign: list[str] | None = None) -> list[str]:
        self._count(0)
        return super().list(prefix, foreign)

    def size(self, key: str) -> int:
        self._count(0)
        return super().size(key)


def keep_memory(keep: bool) -> None:
    """Have the process keep the memory that it was given, or give back what it frees, as is usual."""
    for option, value in ((_TRIM_THRESHOLD, -1 if keep else 1 << 17), (_MMAP_MAX, 0 if keep else 1 << 16)):
        assert ctypes.CDLL(None).mallopt(option, value)


def measured(backend: Counting, run: Callable[[], Any], *, fresh: bool = False) -> Cost:
    """Run once; with `fresh`, memory that is free was given back before."""
    gc.collect()
    if fresh:
        ctypes.CDLL(None).malloc_trim(0)
    backend.requests = backend.nbytes = 0
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, began = _status("VmRSS"), time.process_time()
    kept = run()
    seconds = time.process_time() - began
    del kept
    return Cost(backend.requests, backend.nbytes, seconds, _status("VmHWM") - before)


def repeated(run: Callable[[bool], Cost], rounds: int) -> Cost:
    """Run once in fresh memory, which tells the memory, and then some times; return the medians of these."""
    keep_memory(False)
    first = run(True)
    keep_memory(True)
    run(False)
    return middle([run(False) for _ in range(rounds)])._replace(memory=first.memory, first=first.seconds)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def middle(costs: list[Cost]) -> Cost:
    """Return the medians of some costs."""
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a folder in memory."""
    path = Path(tempfile.mkdtemp(prefix="lcstore-scaling-", dir="/dev/shm"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Training:
    """A pretend run of some weights in some tensors."""

    def __init__(self, weights: int, tensors: int) -> None:
        rows = max(1, weights // tensors // COLUMNS)
        self.rng = np.random.default_rng(0)
        self.model = {
            f"l{number}.weight": np.float32(0.02) * self.rng.standard_normal((rows, COLUMNS), np.float32)
            for number in range(tensors)
        }
        self.noise = self.rng.standard_normal(rows * COLUMNS + COLUMNS**2, np.float32) * np.float32(1e-4)
        self.weights = rows * COLUMNS * tensors
        self.tensors = tensors

    def step(self) -> dict[str, Any]:
        """Move all weights, and return the state."""
        for weight in self.model.values():
            at = int(self.rng.integers(COLUMNS**2))
            weight += self.noise[at : at + weight.size].reshape(weight.shape)
        return {"model": self.model}


@dataclass
class Run:
    """What saving, restoring and merging took at one size.

    Attributes
    ----------
    restore
        By the number of edges that are read.
    merge
        By the number of edges that are summed.
    """

    weights: int
    tensors: int
    anchor: Cost
    delta: Cost
    restore: dict[int, Cost] = field(default_factory=dict)
    merge: dict[int, Cost] = field(default_factory=dict)
    #: Bytes of a delta, and of an anchor, for each weight; of merged edges, by how many are summed.
    bytes_delta: float = 0.0
    bytes_anchor: float = 0.0
    bytes_merged: dict[int, float] = field(default_factory=dict)


def run_of(weights: int, tensors: int, *, deltas: int, sums: tuple[int, ...], rounds: int = 3) -> Run:
    """Save an anchor and deltas, restore, and merge."""
    training = Training(weights, tensors)
    n = training.weights
    anchor = repeated(partial(_first_save, training), rounds)
    with folder() as root:
        backend = Counting(root)
        with lcstore.open(backend, threads=1, durability="none") as store:
            saves = [measured(backend, partial(store.save, 0, training.step()))]
            nodes = [store.info().node]
            for step in range(1, deltas + 1):
                saves.append(measured(backend, partial(store.save, step, training.step())))
                nodes.append(store.info().node)
        steady = saves[3:] or saves[1:]
        found = Run(n, tensors, anchor, middle(steady), bytes_anchor=saves[0].nbytes / n)
        found.bytes_delta = found.delta.nbytes / n
        del training
        for step in sorted({1, min(4, deltas)}):
            found.restore[step + 1] = repeated(partial(_restore, backend, step), rounds)
        for count in sums:
            found.merge[count] = repeated(partial(_merge, found, backend, nodes, count), rounds)
    return found


def _first_save(training: Training, fresh: bool) -> Cost:
    """Save an anchor to a store of its own."""
    with folder() as root:
        backend = Counting(root)
        with lcstore.open(backend, threads=1, durability="none") as store:
            return measured(backend, partial(store.save, 0, training.step()), fresh=fresh)


def _restore(backend: Counting, step: int, fresh: bool) -> Cost:
    """Restore a state in a handle of its own."""

    def restore() -> Any:
        with lcstore.open(backend, "r", threads=1) as store:
            return store.restore(step, to="numpy")

    return measured(backend, restore, fresh=fresh)


def _merge(run: Run, backend: Counting, nodes: list[str], count: int, fresh: bool) -> Cost:
    """Merge the last deltas into one, and note its bytes for each weight."""
    with lcstore.open(backend, "r+", threads=1) as store:
        graph = store._index.refresh(full=True)
        store.info()
        path = [
            EdgeRef(graph.nodes[node].base, node, None, graph.nodes[node].nbytes) for node in nodes[-count:]
        ]
        maker = Maker(store._reader, store.durability)
        shortcut = Shortcut(path[0].base, nodes[-1], 0, count, tuple(path))
        cost = measured(backend, partial(maker.make, shortcut), fresh=fresh)
        run.bytes_merged[count] = maker.written / run.weights
        return cost


# The model --------------------------------------------------------------------------------------------------


def chunks(weights: float) -> int:
    """Return of how many chunks an array is."""
    return math.ceil(weights / chunk_elements(int(weights), "float32"))


@dataclass
class Line:
    """Seconds of an operation: so many each time, for each tensor, and for each weight.

    A weight costs more where chunks are larger than what a processor keeps near: so there are two sizes of
    chunks that it is measured at, and what lies between goes by their logarithms.
    """

    each: float
    tensor: float
    near: float
    far: float
    sizes: tuple[float, float]

    def weight(self, weights: float) -> float:
        """Return the seconds for each weight of a state."""
        low, high = self.sizes
        size = min(max(chunk_elements(int(weights), "float32"), low), high)
        part = math.log(size / low) / math.log(high / low)
        return self.near + part * (self.far - self.near)

    def seconds(self, weights: float, tensors: float) -> float:
        """Return the seconds of an operation."""
        return self.each + self.tensor * tensors + self.weight(weights) * weights


def line(runs: dict[str, Run], cost: Callable[[Run], float]) -> Line:
    """Return the constants of an operation: of calibrations of little, of many tensors, of many weights."""
    tiny, many, near, far = (runs[name] for name in ("tiny", "many", "near", "far"))
    sizes = tuple(float(chunk_elements(run.weights, "float32")) for run in (near, far))
    found = Line(cost(tiny), 0.0, 0.0, 0.0, sizes)  # type: ignore[arg-type]
    for _ in range(5):  # each is freed of what the others explain
        found.near, found.far = (
            max(0.0, cost(run) - found.each - found.tensor * run.tensors) / run.weights for run in (near, far)
        )
        rest = cost(many) - found.each - found.weight(many.weights) * many.weights
        found.tensor = max(0.0, rest / many.tensors)
        found.each = max(0.0, cost(tiny) - found.tensor * tiny.tensors)
    return found


class Model:
    """What operations take, from constants measured in small.

    Parameters
    ----------
    runs
        Calibrations: ``tiny``, ``many`` tensors, and weights in ``near`` and ``far`` chunks.
    names
        Seconds and bytes of memory for each name that is listed, and seconds each time.
    """

    def __init__(self, runs: dict[str, Run], names: tuple[float, float, float]) -> None:
        self.names = names
        far = runs["far"]
        self.bytes_anchor, self.bytes_delta = far.bytes_anchor, far.bytes_delta
        few, most = min(far.merge), max(far.merge)
        self.growth = math.log(far.bytes_merged[most] / far.bytes_merged[few]) / math.log(most / few)
        self.bytes_merged = far.bytes_merged[few] / few**self.growth
        self.anchor = line(runs, lambda run: run.anchor.seconds)
        self.delta = line(runs, lambda run: run.delta.seconds)
        self.first, self.further = lines(runs, lambda run: run.restore, 1)
        self.coded, self.summed = lines(runs, lambda run: run.merge, 0)
        #: Memory besides what each weight takes, in chunks.
        self.held = {
            "anchor": (far.anchor.memory - 4 * far.weights) / chunk(far.weights),
            "restore": (max(cost.memory for cost in far.restore.values()) - 4 * far.weights)
            / chunk(far.weights),
            "merge": statistics.mean(cost.memory for cost in far.merge.values()) / chunk(far.weights),
        }

    def save_anchor(self, weights: float, tensors: float) -> Cost:
        """Return the cost of the first save: the track is held from then on."""
        memory = 4 * weights + self.held["anchor"] * chunk(weights)
        seconds = self.anchor.seconds(weights, tensors)
        return Cost(chunks(weights) + 8, self.bytes_anchor * weights, seconds, memory)

    def save_delta(self, weights: float, tensors: float) -> Cost:
        """Return the cost of a later save; what it holds was held by the first one."""
        seconds = self.delta.seconds(weights, tensors)
        return Cost(chunks(weights) + 6, self.bytes_delta * weights, seconds)

    def restore(self, weights: float, tensors: float, edges: int) -> Cost:
        """Return the cost of opening a store and restoring: sums are held block by block, values whole."""
        nbytes = (self.bytes_anchor + (edges - 1) * self.bytes_delta) * weights
        seconds = self.first.seconds(weights, tensors) + (edges - 1) * self.further.seconds(weights, tensors)
        memory = 4 * weights + self.held["restore"] * chunk(weights)
        return Cost(edges * (chunks(weights) + 1) + 7, nbytes, seconds, memory)

    def merge(self, weights: float, tensors: float, inputs: int) -> Cost:
        """Return the cost of one merged edge, which is read back."""
        made = self.bytes_merged * inputs**self.growth * weights
        nbytes = inputs * self.bytes_delta * weights + 2 * made
        seconds = self.coded.seconds(weights, tensors) + inputs * self.summed.seconds(weights, tensors)
        memory = self.held["merge"] * chunk(weights)
        return Cost((inputs + 2) * chunks(weights) + inputs + 4, nbytes, seconds, memory)

    def list_names(self, names: int) -> Cost:
        """Return the cost of listing a store and knowing its graph."""
        each, name, memory = self.names
        return Cost(6 + names // 1000, 0, each + name * names, memory * names)


def lines(runs: dict[str, Run], costs: Callable[[Run], dict[int, Cost]], first: int) -> tuple[Line, Line]:
    """Return the seconds of what is done `first` times or once, and of each time more."""

    def seconds(run: Run, times: int) -> float:
        return costs(run)[times].seconds

    def slope(run: Run) -> float:
        few, most = min(costs(run)), max(costs(run))
        return (seconds(run, most) - seconds(run, few)) / (most - few)

    def base(run: Run) -> float:
        few = min(costs(run))
        return seconds(run, few) - (few - first) * slope(run)

    return line(runs, base), line(runs, slope)


def chunk(weights: float) -> float:
    """Return the bytes of a chunk."""
    return 4 * min(chunk_elements(int(weights), "float32"), weights)


# In numbers -------------------------------------------------------------------------------------------------

#: Calibrations: weights and tensors.
SMALL = {"tiny": (4096, 1), "many": (1 << 22, 256), "near": (1 << 23, 1), "far": (1 << 26, 1)}
#: Points: weights and tensors, and how many deltas are merged.
POINTS = {10**6: (15, 8), 10**7: (64, 8), 10**8: (64, 8), 10**9: (128, 4)}
NAMES = (10, 100, 1_000, 10_000, 100_000)


def main() -> None:
    asked = arguments(__doc__ or "", page="put the tables into docs/scaling.md")
    report = Report("scaling", asked.quick)
    touch(1 << 30 if asked.quick else 12 << 30)
    assert ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)  # threads share what is kept
    keep_memory(True)
    run_of(1 << 20, 4, deltas=4, sums=(2,))  # code is loaded now
    runs = {name: run_of(*size, deltas=18, sums=(2, 16), rounds=5) for name, size in SMALL.items()}
    model = Model(runs, calibrated_names())
    tables = [states(report, model, [10**6, 10**7] if asked.quick else [*POINTS])]
    tables.append(histories(report, model, NAMES[:4] if asked.quick else NAMES))
    tables.append(waiting(report, [10**6, 10**7]))
    tables.append(constants(report, model))
    tables.append(extrapolated(report, model))
    if asked.page and not asked.quick:
        fill_page(report, tables)
    report.write()


def touch(nbytes: int) -> None:
    """Have the machine give memory once: a virtual one takes long to give a page for the first time."""
    free = int(
        next(line for line in Path("/proc/meminfo").read_text().splitlines() if "Available" in line).split()[
            1
        ]
    )
    assert 1024 * free > 1.4 * nbytes, "too little memory is free"
    np.ones(nbytes, np.uint8)


Table = tuple[str, list[str], list[list[object]]]


def states(report: Report, model: Model, sizes: list[int]) -> Table:
    """Measure operations on states of several sizes."""
    rows: list[list[object]] = []
    misses: dict[str, list[float]] = {"requests": [], "nbytes": [], "seconds": [], "memory": []}
    for size in sizes:
        tensors, merged = POINTS[size]
        run = run_of(size, tensors, deltas=max(merged, 5), sums=(merged,), rounds=3 if size < 10**9 else 1)
        w = run.weights
        pairs = [("save, anchor", run.anchor, model.save_anchor(w, tensors))]
        pairs.append(("save, delta", run.delta._replace(memory=math.nan), model.save_delta(w, tensors)))
        for edges, cost in run.restore.items():
            pairs.append((f"restore over {edges} edges", cost, model.restore(w, tensors, edges)))
        for inputs, cost in run.merge.items():
            pairs.append((f"merge {inputs} deltas", cost, model.merge(w, tensors, inputs)))
        for what, found, said in pairs:
            if size < 10**8:  # less than what the operations before it have left
                said = said._replace(memory=math.nan)
            rows.append([f"{w:.2g} weights, {what}", *beside(found, said)])
            for name, miss in misses.items():
                one, other = getattr(found, name), getattr(said, name)
                if math.isfinite(one) and math.isfinite(other):
                    miss.append(other / one - 1)
    head = ["", "requests", "MB to and fro", "processor s", "in fresh memory", "MB of memory"]
    report.table("measured, and what the model says", head, rows)
    for name, miss in misses.items():
        worst = max(miss, key=abs, default=0.0)
        share = sum(abs(one) <= 0.25 for one in miss)
        report.bar(
            f"{name}: the worst of {len(miss)} points, {share} within 25 %", worst, "0.25", abs(worst) <= 0.25
        )
    return "states", head, rows


def beside(found: Cost, said: Cost) -> list[str]:
    """Return what was measured, and what the model says with how far off that is."""

    def cell(one: float, other: float, form: str) -> str:
        if not math.isfinite(one) or not math.isfinite(other):
            return ""
        return f"{one:{form}} / {other:{form}} ({100 * (other / one - 1):+.0f} %)" if one else "0"

    return [
        cell(found.requests, said.requests, ",.0f"),
        cell(found.nbytes / 1e6, said.nbytes / 1e6, ",.2f"),
        cell(found.seconds, said.seconds, ".3f"),
        f"{found.first:.3f}" if math.isfinite(found.first) else "",
        cell(found.memory / 1e6, said.memory / 1e6, ",.0f"),
    ]


# Histories --------------------------------------------------------------------------------------------------


def named_nodes(root: Path, count: int) -> None:
    """Store a history of names: listing reads no record."""
    (root / keys.NODES).mkdir(parents=True)
    for name in history(count):
        (root / keys.node_key(name)).touch()


def history(count: int) -> Iterator[NodeName]:
    base = ROOT
    for step in range(count):
        node = f"{step:032x}"
        nbytes = 33_000_000 if base == ROOT else 950_000 + step % 1000
        yield NodeName(step, 1, "0" * 8, step + 1, node, base, nbytes)
        base = node


def listed(count: int, rounds: int) -> tuple[Cost, Cost]:
    """List a store of some names: without Python's collector of garbage at work, and with it."""

    def look(fresh: bool) -> Cost:
        return measured(backend, lambda: Index(backend).refresh(full=True), fresh=fresh)

    with folder() as root:
        named_nodes(root, count)
        backend = Counting(root)
        usual = repeated(look, rounds)
        gc.disable()
        try:
            return repeated(look, rounds), usual
        finally:
            gc.enable()


def planned(count: int) -> tuple[float, int, int]:
    """Return the seconds of a plan for a history, and how many edges it adds and sums."""
    graph = Graph(history(count), ())
    began = time.process_time()
    found = plan(graph, graph.nodes.keys(), 10_000_000)
    seconds = time.process_time() - began
    return seconds, len(found.shortcuts), sum(len(shortcut.inputs) for shortcut in found.shortcuts)


def calibrated_names() -> tuple[float, float, float]:
    """Return the seconds of a listing, of each name, and the bytes of memory of each."""
    (few, _), (many, _) = listed(1, 15), listed(5000, 5)
    name = (many.seconds - few.seconds) / 5000
    return few.seconds, name, max(0.0, many.memory) / 5000


def histories(report: Report, model: Model, counts: tuple[int, ...]) -> Table:
    """List histories of several lengths, and plan their compaction."""
    rows: list[list[object]] = []
    misses = []
    for count in counts:
        (found, usual), said = listed(count, 5 if count < 100_000 else 3), model.list_names(count)
        miss = said.seconds / found.seconds - 1
        misses.append(miss)
        plans = planned(count) if count <= 10_000 else (math.nan, math.nan, math.nan)
        rows.append(
            [
                f"{count:,}",
                f"{1e3 * found.seconds:,.1f} / {1e3 * said.seconds:,.1f} ({100 * miss:+.0f} %)",
                f"{1e3 * usual.seconds:,.1f}",
                f"{found.memory / 1e6:,.1f} / {said.memory / 1e6:,.1f}",
                f"{plans[0]:.3f}" if plans[0] == plans[0] else "",
                f"{plans[1] / count:.2f}" if plans[0] == plans[0] else "",
                f"{plans[2] / count:.2f}" if plans[0] == plans[0] else "",
            ]
        )
    head = [
        "states",
        "ms to list them",
        "with Python's collector",
        "MB of memory",
        "s to plan",
        "merges a state",
        "edges summed a state",
    ]
    report.table("histories: names alone", head, rows)
    worst = max(misses, key=abs)
    report.bar("listing: the worst of all lengths", worst, "0.25", abs(worst) <= 0.25)
    return "histories", head, rows


# Waiting ----------------------------------------------------------------------------------------------------


def waits(size: int, tensors: int) -> dict[str, tuple[float, float]]:
    """Return the seconds of a save and a restore on a target that is far, and those of the processor."""
    training = Training(size, tensors)
    found = {}
    with folder() as root:
        backend = Counting(root, LATENCY)

        def timed(what: str, run: Callable[[], Any]) -> None:
            began, worked = time.perf_counter(), time.process_time()
            run()
            found[what] = time.perf_counter() - began, time.process_time() - worked

        with lcstore.open(backend, threads=1, durability="none") as store:
            for step in range(6):
                state = training.step()
                timed("save, delta", partial(store.save, step, state))

        def restore() -> None:
            with lcstore.open(backend, "r", threads=1) as store:
                store.restore(3)

        timed("restore over 4 edges", restore)
    return found


def waiting(report: Report, sizes: list[int]) -> Table:
    """Measure what is waited for: as many times the latency as there are requests one after another."""
    small = waits(4096, 1)
    rounds = {what: round((wall - worked) / LATENCY) for what, (wall, worked) in small.items()}
    rows: list[list[object]] = []
    misses = []
    for size in sizes:
        for what, (wall, worked) in waits(size, POINTS[size][0]).items():
            said = worked + rounds[what] * LATENCY
            misses.append(said / wall - 1)
            rows.append(
                [
                    f"{size:.2g} weights, {what}",
                    rounds[what],
                    f"{wall:.3f} / {said:.3f} ({100 * misses[-1]:+.0f} %)",
                ]
            )
    head = ["", "requests one after another", f"seconds at {1e3 * LATENCY:.0f} ms a request"]
    report.table("a target that is far away", head, rows)
    worst = max(misses, key=abs)
    report.bar("waiting: the worst point", worst, "0.25", abs(worst) <= 0.25)
    report.data["rounds"] = rounds
    return "waiting", head, rows


# What follows -----------------------------------------------------------------------------------------------


def constants(report: Report, model: Model) -> Table:
    rows: list[list[object]] = []
    for what, one in (
        ("save, anchor", model.anchor),
        ("save, delta", model.delta),
        ("restore, first edge", model.first),
        ("restore, each further edge", model.further),
        ("merge, coding the sum", model.coded),
        ("merge, each edge summed", model.summed),
    ):
        figures = 1e3 * one.each, 1e6 * one.tensor, 1e9 * one.near, 1e9 * one.far
        rows.append([what, *(f"{figure:.3g}" for figure in figures)])
    head = ["", "ms each time", "µs a tensor", "ns a weight, near", "far"]
    report.table("constants of this machine, one thread", head, rows)
    report.data["constants"] = {
        "bits of an anchor": 8 * model.bytes_anchor,
        "bits of a delta": 8 * model.bytes_delta,
        "growth of merged edges": model.growth,
        "ns a name": 1e9 * model.names[1],
        "bytes a name": model.names[2],
        "chunks of memory": model.held,
    }
    for name, value in report.data["constants"].items():
        report.say(f"{name}: {value}")
    return "constants", head, rows


#: The largest run that is told of: weights, writers; tensors, cores, and bytes a second of each.
LARGEST, WRITERS, TENSORS, CORES, RATE = 10**12, 1000, 64, 16, 1e9


def extrapolated(report: Report, model: Model) -> Table:
    """Say what a state of 10^12 weights, in parts of 1,000 writers, takes of each and of the target."""
    part = LARGEST // WRITERS
    rows: list[list[object]] = []
    for what, cost in (
        ("save, anchor", model.save_anchor(part, TENSORS)),
        ("save, delta", model.save_delta(part, TENSORS)),
        ("restore over 16 edges", model.restore(part, TENSORS, 16)),
        ("merge 8 deltas", model.merge(part, TENSORS, 8)),
    ):
        rows.append(
            [
                what,
                f"{cost.requests:,.0f}",
                f"{cost.nbytes / 1e6:,.0f}",
                f"{cost.seconds / CORES:.2f}",
                f"{cost.nbytes / RATE:.2f}",
                f"{WRITERS * cost.requests:,.0f}",
                f"{WRITERS * cost.nbytes / 1e9:,.0f}",
            ]
        )
    head = ["", "requests", "MB", f"s of {CORES} cores", "s at 1 GB/s", "requests of all", "GB of all"]
    report.table(f"{LARGEST:.0e} weights, {WRITERS:,} writers: of each, and of all", head, rows)
    return "extrapolated", head, rows


def fill_page(report: Report, tables: list[Table]) -> None:
    """Put the tables between the marks of the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, head, rows in tables:
        begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        rule = "|".join(["---", *["--:"] * (len(head) - 1)])
        lines = [
            f"| {' | '.join(head)} |",
            f"|{rule}|",
            *(f"| {' | '.join(map(str, row))} |" for row in rows),
        ]
        before, _, rest = text.partition(begin)
        text = before + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.partition(end)[2]
    PAGE.write_text(text, encoding="utf-8")
    report.say(f"written: {PAGE.name}")


if __name__ == "__main__":
    main()
