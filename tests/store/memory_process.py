"""Makes a store of large states, or merges its edges and tells how far memory rose: a process for each.

python memory_process.py make <url> <megabytes>
python memory_process.py merge <url> <bytes that merging may hold> <threads>
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import lcstore
from lcstore.compaction import making
from lcstore.graph.plan import Shortcut
from lcstore.graph.refs import ROOT
from lcstore.storage.memory import MemoryBackend
from lcstore.write import shortcut

COLUMNS = 2048
SAVES = 4


def save(url, megabytes: int) -> None:
    rng = np.random.default_rng(0)
    rows = megabytes * 10**6 // 4 // COLUMNS // 2
    model = {f"{name}.weight": rng.standard_normal((rows, COLUMNS), np.float32) for name in "ab"}
    with lcstore.open(url, threads=2, grace=0) as store:
        for step in range(SAVES):
            store.save(step, {"model": model})
            for weight in model.values():
                weight += rng.standard_normal(COLUMNS, np.float32) * np.float32(1e-3)


def merge(url, threads: int) -> None:
    """Merge all deltas, and all edges, as a compaction does."""
    with lcstore.open(url, "r+", threads=threads) as store:
        names = [store.info(step).node for step in store.steps()]
        maker = making.Maker(store._reader, store.durability)
        for base in (names[0], ROOT):
            maker.make(Shortcut(base, names[-1], 0, len(names)))


def peak() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    what, url, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if what == "make":
        save(url, number)
        return
    small = MemoryBackend.fresh()
    save(small, 1)
    merge(small, 1)  # code is loaded now
    shortcut.MEMORY = number  # type: ignore[misc]
    before = peak()
    merge(url, int(sys.argv[4]))
    print(peak() - before)


if __name__ == "__main__":
    main()
