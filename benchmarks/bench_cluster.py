"""Maintenance on a Dask cluster: two workers against one, a worker that is killed, and a thousand stores.

    python -m benchmarks.bench_cluster [--quick]

The cluster is processes of this machine with one thread each. First two of them compact a store each: what
they gain then, this machine has. Four stores of 200 deltas are compacted, and verified down to every edge, by
one worker and by two in turn, each time a fresh copy: which edges wait for each other differs from store to
store. Merged edges are then compared with those that this process made: all bytes but ids and times. Needs
`distributed`.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

import lcstore
from benchmarks.measure import Report, arguments

ROUNDS, STORES = 3, 4
KEEP = "latest:2 | every:4"


def main() -> None:
    asked = arguments(__doc__ or "")
    report = Report("cluster", asked.quick)
    deltas, weights, stores = (40, 1 << 18, 20) if asked.quick else (200, 1 << 22, 1000)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lcstore-bench-")))
        clients = {count: stack.enter_context(cluster(count)) for count in (1, 2)}
        for client in clients.values():  # each worker has loaded its code then
            compact(fill(folder / f"warm-{client.id}", 30, 4096), client)
        gains = []
        for number in range(1 if asked.quick else STORES):
            saved = fill(folder / f"saved-{number}", deltas, weights)
            merged = merged_here(report, saved)
            machine(report, saved, clients[2])
            gains.append(race(report, saved, clients, merged))
            if number == 0:
                killed(report, saved, clients[2], merged)
            shutil.rmtree(saved)
        gain = statistics.median(gains)
        report.bar("compaction by two workers against one, median", gain, ">= 1.7", gain >= 1.7)
        many(report, folder / "many", clients[2], stores)
    report.write()


def cluster(workers: int) -> Client:
    """Start processes with one thread each."""
    started = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
    return Client(started, set_as_default=False)


def fill(url: Path, count: int, size: int) -> Path:
    """Save an anchor, and deltas to it."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((size // 64, 64), dtype=np.float32)
    with lcstore.open(url) as store:
        for step in range(count + 1):
            store.save(step, {"model": {"w.weight": weights}})
            weights += rng.standard_normal(weights.shape, dtype=np.float32) * np.float32(1e-3)
    return url


def copied(url: Path, name: str) -> Path:
    """Copy a store beside it."""
    return Path(shutil.copytree(url, url.with_name(name), dirs_exist_ok=True))


def compact(url: Path, client: Client, **how: Any) -> None:
    with lcstore.open(url, "r+") as store:
        store.compact(client=client, **how)


def verify(url: Path, client: Client) -> None:
    with lcstore.open(url, "r") as store:
        assert store.verify("restore", client=client).ok


def merged_here(report: Report, saved: Path) -> dict[tuple[str, str], Any]:
    """Compact a copy of a store with one thread of this process; return its merged edges."""
    url = copied(saved, "here")
    with lcstore.open(url, "r+", threads=1) as store:
        began = time.perf_counter()
        store.compact()
        seconds = time.perf_counter() - began
    merged = edges(url)
    shutil.rmtree(url)
    report.say(f"{saved.name}: {len(merged)} edges; here, one thread: {seconds:.2f} s")
    return merged


def edges(url: Path) -> dict[tuple[str, str], Any]:
    """Return all bytes of each merged edge but its id: hashes of objects, and columns."""
    with lcstore.open(url, "r") as store:
        graph = store._index.refresh(full=True)
        records = {(name.base, name.target): store._index.edge(edge) for edge, name in graph.edges.items()}
        assert len(records) == len(graph.edges)
    return {
        ends: (
            sorted((ref.key.replace(record.edge.id, ""), ref.hash) for ref in record.edge.objects),
            record.edge.columns,
        )
        for ends, record in records.items()
    }


def alone(url: Path) -> float:
    """Compact a store with one thread; return the seconds."""
    began = time.perf_counter()
    with lcstore.open(url, "r+", threads=1) as store:
        store.compact()
    return time.perf_counter() - began


def machine(report: Report, saved: Path, client: Client) -> None:
    """Have two workers compact stores of their own side by side: no more is to be had of this machine."""
    gains = []
    for _ in range(1 if report.quick else ROUNDS):
        urls = [copied(saved, f"own-{number}") for number in range(3)]
        one = client.submit(alone, urls[0], pure=False).result()
        both = client.gather(client.map(alone, urls[1:], pure=False))
        gains.append(2 * one / max(both))
        for url in urls:
            shutil.rmtree(url)
    report.say(f"two stores, a worker each, that share nothing: {statistics.median(gains):.2f} times one")


def race(
    report: Report, saved: Path, clients: dict[int, Client], merged: dict[tuple[str, str], Any]
) -> float:
    """Have one worker and two compact and verify in turn; return how many times as fast two compact."""
    seconds: dict[tuple[str, int], list[float]] = {}
    busiest: dict[tuple[str, int], list[float]] = {}

    def timed(what: str, workers: int, call: Callable[..., None], url: Path) -> None:
        before = clients[workers].run(time.process_time)
        began = time.perf_counter()
        call(url, clients[workers])
        seconds.setdefault((what, workers), []).append(time.perf_counter() - began)
        worked = [now - before[name] for name, now in clients[workers].run(time.process_time).items()]
        busiest.setdefault((what, workers), []).append(max(worked))

    for _ in range(1 if report.quick else ROUNDS):
        for workers in clients:
            url = copied(saved, f"by-{workers}")
            timed("compact", workers, compact, url)
            assert edges(url) == merged, "the bytes differ"
            timed("verify", workers, verify, url)
            shutil.rmtree(url)
    rows = []
    for what in ("compact", "verify"):
        for unit, found in (("seconds", seconds), ("processor seconds of the busiest worker", busiest)):
            one, two = (statistics.median(found[what, workers]) for workers in clients)
            rows.append([f"{what}, {unit}", one, two, one / two])
    title = f"{saved.name}: medians of {ROUNDS} rounds in turn"
    report.table(title, ["", "one worker", "two", "times"], rows)
    report.say("merged edges: the same bytes in each round")
    report.data[saved.name] = {f"{what} {workers}": found for (what, workers), found in seconds.items()}
    return statistics.median(seconds["compact", 1]) / statistics.median(seconds["compact", 2])


def killed(report: Report, saved: Path, client: Client, merged: dict[tuple[str, str], Any]) -> None:
    """Kill one of two workers in the middle."""
    pid = next(iter(client.run(os.getpid).values()))

    def kill(phase: str, done: int, total: int) -> None:
        if done == total // 2:
            os.kill(pid, signal.SIGKILL)

    url = copied(saved, "killed")
    compact(url, client, on_progress=kill)
    same = edges(url) == merged
    with lcstore.open(url, "r") as store:
        whole = store.verify("restore").ok
    report.bar(
        "a worker killed in the middle: the same edges, all whole", float(same and whole), "1", same and whole
    )
    client.wait_for_workers(2)


def many(report: Report, folder: Path, client: Client, count: int) -> None:
    """Maintain many small stores in one run."""
    first = fill(folder / "0000", 8, 4096)
    for number in range(1, count):
        copied(first, f"{number:04d}")
    began = time.perf_counter()
    tended = lcstore.maintain_below(folder, KEEP, client=client)
    seconds = time.perf_counter() - began
    good = sum(one.ok for one in tended)
    report.say(f"{count} stores of 9 states below a prefix, two workers: {seconds:.1f} s")
    report.bar("stores maintained in one run", good, f"{count}", good == count)


if __name__ == "__main__":
    main()
