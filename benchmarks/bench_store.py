"""Time of saving, restoring and opening, beside safetensors, numpy and memcpy of the same state.

    python -m benchmarks.bench_store [--quick] [--streams]

The large state is 400 MB of GPT weights from several times of the training, as 48 matrices; its saves are
deltas of twenty iterations, each to the one before. Files go to a new directory below the system's temporary
one, and everything that writes syncs: lcstore does by itself, safetensors is followed by an fsync.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import lcstore
from benchmarks.inputs import block, gpt
from benchmarks.measure import Report, arguments
from benchmarks.workloads_cache import Trace
from lcstore.format import keys
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend

LARGE = 100_000_000
MATRICES = 48
#: Saves from which the large state is put together.
STARTS = tuple(range(0, 92, 8))
#: Matrices of a block of a GPT, in units of its width.
BLOCK = {"attn.c_attn": (3, 1), "attn.c_proj": (1, 1), "mlp.c_fc": (4, 1), "mlp.c_proj": (1, 4)}


def main() -> None:
    asked = arguments(__doc__ or "", streams="only how soon the tensors of a state come: this needs no trace")
    quick = asked.quick
    report = Report("streams" if asked.streams else "store", quick)
    folder = Path(tempfile.mkdtemp(prefix="lcstore-bench-"))
    try:
        streaming(report, folder, quick)
        if not asked.streams:
            traced(report, folder, quick)
    finally:
        shutil.rmtree(folder)
    report.write()


def traced(report: Report, folder: Path, quick: bool) -> None:
    """What the GPT's trace is needed for."""
    saves = gpt()
    elements = LARGE // 10 if quick else LARGE
    states = [large(saves, later, elements) for later in range(4 if quick else 8)]
    local(report, states, folder)
    memory(report, states)
    del states
    many(report, saves, 50_000_000 // (10 if quick else 1))
    opening(report, folder, 500 if quick else 10_000)
    adam(report, saves, folder)


def large(saves: Trace, later: int, elements: int, parts: int = MATRICES) -> dict[str, Any]:
    """One state of `parts` equal matrices."""
    raw = block(saves, later, elements, STARTS).raw
    rows = raw.size // (parts * 1000)
    return {
        "model": {
            f"layers.{i}.weight": raw[i * rows * 1000 : (i + 1) * rows * 1000].reshape(rows, 1000)
            for i in range(parts)
        }
    }


def raw_bytes(state: dict[str, Any]) -> int:
    """Bytes of a state's matrices."""
    return sum(array.nbytes for array in state["model"].values())


def timed(run: Callable[[], Any]) -> float:
    """Seconds of one run."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def copying(state: dict[str, Any], repeats: int = 9) -> float:
    """Seconds of memcpy of a state, one thread, into memory that is mapped already."""
    pairs = [(np.zeros_like(array), array) for array in state["model"].values()]

    def copy() -> None:
        for target, source in pairs:
            np.copyto(target, source)

    return statistics.median(timed(copy) for _ in range(repeats))


def summary(seconds: list[float]) -> list[float]:
    """Median, least and most."""
    return [statistics.median(seconds), min(seconds), max(seconds)]


def phases(infos: list[lcstore.SaveInfo]) -> str:
    """Median seconds by phase."""
    names = infos[0].seconds
    return ", ".join(f"{n} {statistics.median(i.seconds[n] for i in infos):.3f}" for n in names)


def local(report: Report, states: list[dict[str, Any]], folder: Path) -> None:
    """Two threads, local disk, beside safetensors."""
    nbytes = raw_bytes(states[0])
    deltas, peers = [], []
    with lcstore.open(folder / "large", threads=2) as store:
        anchor = store.save(0, states[0])
        for step, state in enumerate(states[1:], 1):
            deltas.append(store.save(step, state))
            peers.append(timed(lambda s=state, step=step: synced(s, folder / f"{step % 2}.safetensors")))
        restored = [timed(store.restore) for _ in range(3)]
    with lcstore.open(folder / "large", "r", threads=2) as store:
        first = timed(lambda: store.restore(0))
    loaded = [timed(lambda: load_file(folder / "1.safetensors")) for _ in range(3)]
    np.savez(folder / "all.npz", **states[-1]["model"])
    plain = [timed(lambda: dict(np.load(folder / "all.npz").items())) for _ in range(3)]
    seconds = [i.seconds["total"] for i in deltas]
    path = sum(i.bytes_stored for i in (anchor, *deltas))
    rows = [
        ["lcstore: anchor", anchor.seconds["total"], "", "", anchor.bytes_stored],
        ["lcstore: delta", *summary(seconds), deltas[-1].bytes_stored],
        ["safetensors and fsync", *summary(peers), nbytes],
        [f"lcstore: restore over {len(deltas)} deltas", *summary(restored), path],
        ["lcstore: restore of the anchor", first, "", "", anchor.bytes_stored],
        ["safetensors: load_file", *summary(loaded), nbytes],
        ["numpy: load of an npz", *summary(plain), nbytes],
    ]
    head = ["", "seconds", "least", "most", "bytes"]
    title = f"{nbytes / 1e6:.0f} MB in {MATRICES} matrices, local disk, 2 threads"
    report.table(title, head, rows)
    report.data["local"] = [dict(zip(head, row, strict=True)) for row in rows]
    report.say(f"anchor by phase: {phases([anchor])}")
    report.say(f"delta by phase: {phases(deltas)}")
    speedup = statistics.median(p / s for p, s in zip(peers, seconds, strict=True))
    report.bar("delta, times as fast as safetensors with fsync", speedup, "> 1", speedup > 1)


def synced(state: dict[str, Any], file: Path) -> None:
    """Write with safetensors, to stable storage."""
    save_file(state["model"], file)
    with file.open("rb") as written:
        os.fsync(written.fileno())


def memory(report: Report, states: list[dict[str, Any]]) -> None:
    """One thread, no storage, beside memcpy."""
    infos, ratios = [], []
    with lcstore.open(MemoryBackend.fresh(), threads=1) as store:
        anchor = store.save(0, states[0])
        for step, state in enumerate(states[1:], 1):
            copied = copying(state, 3)
            infos.append(store.save(step, state))
            ratios.append(copied / infos[-1].seconds["total"])
    median, low, high = summary(ratios)
    report.say(f"to memory, one thread: anchor {anchor.seconds['total']:.2f} s; delta: {phases(infos)}")
    report.say(f"x memcpy by save: {low:.3f} to {high:.3f}")
    deltas = [info.seconds for info in infos]
    report.data["memory"] = {"anchor": anchor.seconds, "deltas": deltas, "ratios": ratios}
    report.bar("delta to memory, one thread, x memcpy", median, ">= 0.1", median >= 0.1)


def many(report: Report, saves: Trace, elements: int) -> None:
    """Five hundred tensors."""
    infos = []
    with lcstore.open(MemoryBackend.fresh(), threads=2) as store:
        for step in range(4):
            infos.append(store.save(step, large(saves, step, elements, 500)))
    most = max(info.objects for info in infos[1:])  # the first, an anchor, has a layout and its copy besides
    megabytes = infos[0].bytes_raw / 1e6
    report.say(f"500 tensors, {megabytes:.0f} MB: objects by save {[i.objects for i in infos]}")
    report.say(f"delta by phase: {phases(infos[1:])}")
    report.data["many"] = {"objects": [i.objects for i in infos], "seconds": [i.seconds for i in infos]}
    report.bar("objects of a delta of 500 tensors", most, "<= 12", most <= 12)


class Counting(LocalBackend):
    """A local backend that counts what it is asked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked = {"list": 0, "get": 0}

    def _list(self, prefix: str) -> list[str]:
        self.asked["list"] += 1
        return super()._list(prefix)

    def _get(self, key: str, start: int, end: int | None) -> bytes:
        self.asked["get"] += 1
        return super()._get(key, start, end)


def opening(report: Report, folder: Path, steps: int) -> None:
    """Open a store of many steps and find the latest."""
    made = MemoryBackend.fresh()
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(8, 8)).astype(np.float32)
    with lcstore.open(made, threads=1) as store:
        seconds = [store.save(step, {"w": weight}).seconds["total"] for step in range(steps)]
    root = folder / "many-steps"
    for key, data in made.snapshot().items():
        if not key.startswith(keys.DATA):  # what open and latest do not look at
            file = root / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    taken, asked = [], {}
    for _ in range(5):
        backend = Counting(root)
        began = time.perf_counter()
        with lcstore.open(backend, "r") as store:
            assert store.latest_step() == steps - 1
            taken.append(time.perf_counter() - began)
            asked = dict(backend.asked)
            began = time.perf_counter()
            store.info()
            info = time.perf_counter() - began
    median, low, high = summary(taken)
    report.say(f"{steps:,} steps: open and latest_step {low:.3f} to {high:.3f} s, {asked}; info {info:.3f} s")
    early, late = (statistics.median(part) for part in (seconds[10:110], seconds[-100:]))
    report.say(f"a tiny save: {1e3 * early:.2f} ms at first, {1e3 * late:.2f} ms at step {steps:,}")
    report.data["opening"] = {"steps": steps, "seconds": taken, "asked": asked, "tiny": [early, late]}
    report.bar("open and latest, seconds", median, "<= 1", median <= 1)


def adam(report: Report, saves: Trace, folder: Path) -> None:
    """The GPT's whole state, with the optimizer's."""
    for name, target in (("local disk", folder / "adam"), ("memory", MemoryBackend.fresh())):
        with lcstore.open(target, threads=2) as store:
            infos = [store.save(i, saves.state(i)) for i in range(saves.moments)]
        deltas = infos[1:]
        ratio = statistics.median(i.ratio for i in deltas)
        report.say(
            f"GPT and AdamW, {infos[0].bytes_raw / 1e6:.0f} MB, {name}: "
            f"anchor {infos[0].seconds['total']:.2f} s, delta by phase: {phases(deltas)}; ratio {ratio:.1f}"
        )
        report.data[f"adam, {name}"] = [i.seconds for i in infos]


def streaming(report: Report, folder: Path, quick: bool, rounds: int = 7) -> None:
    """The tensors of a state one after another, beside all of them at once, by turns."""
    with lcstore.open(folder / "streamed", threads=2) as store:
        for step, state in enumerate(pretended(256 if quick else 512, 11)):
            store.save(step, state)
        nbytes = store.at().nbytes
    restored, streamed = [], []
    for _ in range(rounds):  # each from a handle of its own, which has read nothing
        with lcstore.open(folder / "streamed", "r", threads=2) as store:
            restored.append(timed(store.restore))
        with lcstore.open(folder / "streamed", "r", threads=2) as store:
            streamed.append(arrivals(store))
    rows = [["restore", *summary(restored)]]
    for place, what in enumerate(("first tensor", "first block", "the model", "everything")):
        rows.append([f"stream: {what}", *summary([one[place] for one in streamed])])
    head = ["", "seconds", "least", "most"]
    title = f"a GPT with AdamW, {nbytes / 1e6:.0f} MB, an anchor and ten deltas, local disk, 2 threads"
    report.table(title, head, rows)
    report.data["streams"] = [dict(zip(head, row, strict=True)) for row in rows]


def pretended(width: int, count: int) -> Iterator[dict[str, Any]]:
    """States of a GPT of 8 blocks that Adam trains on noise: made at once, and as large as real ones."""
    rng = np.random.default_rng(0)
    shapes = {"wte.weight": (16_000, width), "wpe.weight": (1024, width)}
    for number in range(8):
        for name, (rows, columns) in BLOCK.items():
            shapes[f"h.{number}.{name}.weight"] = rows * width, columns * width
    model = {name: 0.02 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    first, second = ({name: np.zeros_like(weight) for name, weight in model.items()} for _ in range(2))
    for step in range(count):
        for name, weight in model.items():
            gradient = rng.standard_normal(weight.shape, np.float32)
            first[name] += np.float32(0.3) * (gradient - first[name])
            second[name] += np.float32(0.05) * (gradient * gradient - second[name])
            weight -= np.float32(1e-4) * first[name] / (np.sqrt(second[name]) + np.float32(1e-8))
        moments = {
            i: {"step": np.float32(step), "exp_avg": first[name], "exp_avg_sq": second[name]}
            for i, name in enumerate(model)
        }
        yield {"model": model, "optim": {"state": moments}}


def arrivals(store: lcstore.Store) -> list[float]:
    """Seconds until the first tensor is there, the first block, the model, everything; all of it is kept."""
    began, kept, seen = time.perf_counter(), [], {}
    for name, value in store.at().stream():
        kept.append(value)
        part = name.split("/")[0] if "model/h.0" not in name else "block"
        seen.setdefault("first", time.perf_counter() - began)
        seen[part] = time.perf_counter() - began
    return [seen["first"], seen["block"], seen["model"], max(seen.values())]


if __name__ == "__main__":
    main()
