"""Compaction: what it makes of a thousand saves, what restores cost then, and the memory that it takes.

    python -m benchmarks.bench_compact [--quick | --memory]

The saves are the matrices of a GPT every twenty iterations, forth and back through the training until there
are a thousand, on local disk. Restores of the newest state and of an anchor alone are timed in turn, after
one of each that does not count. Then all but some states are let go, and it is compacted and collected again.

`--memory` makes a store of states of 2 GB in one process, and merges four deltas and a whole anchor in
another, which tells how far its memory rose above where it stood with the store just opened.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lcstore
from benchmarks.inputs import gpt, weights
from benchmarks.measure import Report, arguments
from benchmarks.workloads_cache import Trace
from lcstore.format import keys
from lcstore.graph.plan import Shortcut
from lcstore.graph.refs import ROOT
from lcstore.storage.local import LocalBackend

SAVES = 1000
ROUNDS = 9
#: What stays in the end.
KEEP = "latest:20 | every:25"
MATRIX = (8192, 8192)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    asked = arguments(__doc__ or "", memory="only measure memory: 2 GB states, minutes and 4 GB of disk")
    report = Report("compact-memory" if asked.memory else "compact", asked.quick)
    folder = Path(tempfile.mkdtemp(prefix="lcstore-bench-"))
    try:
        if asked.memory:
            memory(report, folder, 200 if asked.quick else 2000)
        else:
            chain(report, folder, 100 if asked.quick else SAVES)
    finally:
        shutil.rmtree(folder)
    report.write()


def reflected(saves: Trace, index: int) -> dict[str, Any]:
    """A save of a run that goes forth and back through the trace."""
    turn = index % (2 * (len(saves) - 1))
    return {"model": weights(saves, min(turn, 2 * (len(saves) - 1) - turn))}


def stored(backend: LocalBackend) -> int:
    """Bytes of all objects that compose in a store."""
    listed = backend.list(keys.DATA)
    return sum(backend.size(key) for key in listed if keys.parse_data_key(key).op in keys.COMPOSED)


def timed(run: Callable[[], Any]) -> float:
    """Seconds of one run."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def chain(report: Report, folder: Path, count: int) -> None:
    """A run that is saved, compacted, collected; then thinned out, compacted and collected again."""
    saves = gpt()
    backend = LocalBackend(folder / "chain")
    raw = sum(array.nbytes for array in reflected(saves, 0)["model"].values())
    with lcstore.open(backend, threads=2, grace=0) as store:
        spent = [store.save(step, reflected(saves, step)).seconds["total"] for step in range(count)]
        written = stored(backend)
        anchor, long = lone_anchor(store), timed(store.restore)
        rows = [row("saved", count, raw, stored(backend), longest(store), written, 0.0)]
        for what, keep in (("compacted and collected", None), (f"kept {KEEP}, the same", KEEP)):
            if keep is not None:
                store.retain(keep)
            done = store.compact()
            written += done.bytes_written
            store.collect()
            left = len(store.steps())
            rows.append(row(what, left, raw, stored(backend), longest(store), written, done.seconds))
            newest(report, store, what, anchor if keep is None else lone_anchor(store))
            report.data[what] = dict(vars(done))
    head = [
        "",
        "states",
        "weights, bytes",
        "times smaller than float32",
        "longest path",
        "written",
        "seconds",
    ]
    report.table(f"{raw / 1e6:.0f} MB of GPT weights, {count:,} saves, local disk, 2 threads", head, rows)
    report.data["rows"] = [dict(zip(head, row, strict=True)) for row in rows]
    report.say(f"a save {statistics.median(spent):.3f} s; restore over {count} edges {long:.1f} s")
    saved = rows[0][5]
    report.say(f"write amplification: {rows[1][5] / saved:.2f} compacted, {rows[2][5] / saved:.2f} in all")


def row(what: str, states: int, raw: int, left: int, edges: int, written: int, seconds: float) -> list[Any]:
    """A line of the table."""
    return [what, states, left, states * raw / left, edges, written, seconds]


def longest(store: lcstore.Store) -> int:
    """The most edges that a restore of a kept state goes over."""
    graph = store._index.refresh(full=True)
    return max(len(graph.path(name)) for name in set(graph.nodes) - graph.hidden)


def lone_anchor(store: lcstore.Store) -> str:
    """The node that the newest state's path goes over first."""
    graph = store._index.refresh(full=True)
    return graph.path(store.info().node)[0].target


def newest(report: Report, store: lcstore.Store, what: str, first: str) -> None:
    """The newest state beside the anchor that it stands on, and beside the one that a save made."""
    below = lone_anchor(store)
    names = {"newest": None, "its anchor": below, "a saved anchor": first}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(ROUNDS + 1):
        for name, at in names.items():
            took = timed(lambda at=at: store.restore(at))
            if turn:
                seconds[name].append(took)
    edges = len(store._index.graph.path(store.info().node))
    medians = {name: statistics.median(took) for name, took in seconds.items()}
    told = ", ".join(f"{name} {took:.3f}" for name, took in medians.items())
    report.say(f"{what}: restore, seconds: {told}; the newest over {edges} edges")
    ratio = statistics.median(n / a for n, a in zip(seconds["newest"], seconds["its anchor"], strict=True))
    report.data[f"restore, {what}"] = seconds | {"edges": edges}
    report.bar(f"{what}: restore of the newest, x its anchor alone", ratio, "<= 1.3", ratio <= 1.3)


# Memory -----------------------------------------------------------------------------------------------------


def memory(report: Report, folder: Path, megabytes: int) -> None:
    """Merging, in a process of its own, beside the same process with the store just opened."""
    made = run_child("make", str(folder / "large"), str(megabytes))
    found = run_child("merge", str(folder / "large"), "2")
    report.say(f"{made['saves']} saves of {made['bytes'] / 1e9:.2f} GB")
    for name in ("merged", "anchor"):
        report.say(f"{name}: {found[name]['seconds']:.1f} s, {found[name]['bytes'] / 1e6:.0f} MB written")
    rose = (found["anchor"]["peak"] - found["opened"]) / 2**20
    report.data["memory"] = {"made": made, "found": found}
    report.bar("memory above the opened store, MiB", rose, "<= 512", rose <= 512)


def run_child(*what: str) -> Any:
    """Run a part of this in a new process, and return what it says."""
    command = [sys.executable, "-m", "benchmarks.bench_compact", "--child", *what]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def child(what: str, url: str, number: str) -> None:
    """In the new process: `make` a store of so many megabytes, or `merge` with so many threads."""
    print(json.dumps(make(url, int(number)) if what == "make" else merge(url, int(number))))


def make(url: str, megabytes: int) -> dict[str, int]:
    """Save an anchor and four deltas of some large matrices."""
    rng = np.random.default_rng(0)
    size = MATRIX[0] * MATRIX[1]
    rows = [MATRIX[0]] * max(1, round(megabytes * 1e6 / 4 / size))
    if megabytes * 1e6 < 4 * size:
        rows = [round(megabytes * 1e6 / 4 / MATRIX[1])]
    model = {
        f"layers.{i}.weight": rng.standard_normal((n, MATRIX[1]), np.float32) * np.float32(0.02)
        for i, n in enumerate(rows)
    }
    noise = rng.standard_normal((256, MATRIX[1]), np.float32) * np.float32(1e-4)
    with lcstore.open(url, threads=2, grace=0) as store:
        for step in range(5):
            store.save(step, {"model": model})
            for weight in model.values():
                for at in range(0, len(weight), len(noise)):
                    part = weight[at : at + len(noise)]
                    part += np.roll(noise, int(rng.integers(MATRIX[1])), 1)[: len(part)]
    return {"saves": 5, "bytes": sum(weight.nbytes for weight in model.values())}


def merge(url: str, threads: int) -> dict[str, Any]:
    """Merge the four deltas, then everything, as a compaction does; tell the peak after each."""
    from lcstore.compaction.making import Maker

    with lcstore.open(url, "r+", threads=threads) as store:
        names = [store.info(step).node for step in store.steps()]
        found: dict[str, Any] = {"opened": peak()}
        maker = Maker(store._reader, store.durability)
        for name, base in (("merged", names[0]), ("anchor", ROOT)):
            before = maker.written
            seconds = timed(lambda base=base: maker.make(Shortcut(base, names[-1], 0, len(names))))
            found[name] = {"seconds": seconds, "bytes": maker.written - before, "peak": peak()}
    return found


def peak() -> int:
    """The most memory that this process has held so far, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
