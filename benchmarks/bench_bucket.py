"""How many requests a state of 200 MB takes in a bucket, how long they take, and how long plain objects.

    python -m benchmarks.bench_bucket s3://bucket/empty/prefix [--endpoint http://...] [--steps 10000]

The state is 500 tensors, 200 MB together. Requests are counted where the client of S3 (``s3fs``) sends them,
as one listing of 10,000 names takes ten. Each save is set beside storing as many bytes in as many plain
objects, and beside the bytes of the state itself. For a bucket that is far away, a proxy that delays goes
between by ``--endpoint``. What is stored stays.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

import lcstore
from lcstore.format.keys import STORE_KEY, node_key, parse_node_key
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.targets import open_backend

R = TypeVar("R")

_PIECE = 16 << 20


class Bucket:
    """Places in a bucket, and the requests to all of them."""

    def __init__(self, url: str, options: dict[str, Any] | None) -> None:
        self.url, self.options = url, options
        self.sent: list[str] = []
        store = self.at("store")
        store.list("nodes")  # the client connects; all places share it
        events = store._fs._s3.meta.events
        events.register("before-send", lambda request, **_: self.sent.append(request.url))

    def at(self, name: str) -> Any:
        return open_backend(f"{self.url}/{name}", self.options)

    def cost(self, name: str, call: Callable[[], R], most: int | None = None) -> R:
        """Run a call, and print what it cost."""
        self.sent.clear()
        started = time.perf_counter()
        found = call()
        seconds = time.perf_counter() - started
        wanted = "" if most is None else f"   (wanted: {most} requests)"
        print(f"{name:36} {len(self.sent):5} requests  {seconds:6.2f} s{wanted}", flush=True)
        return found

    def plain(self, name: str, sizes: list[int]) -> None:
        """Store random bytes as plain objects, side by side."""
        target = self.at(f"plain-{name}")
        bodies = [np.random.default_rng(n).bytes(size) for n, size in enumerate(sizes)]
        keys = [str(n) for n in range(len(sizes))]
        with ThreadPoolExecutor(32) as pool:
            said = f"  as plain objects, {sum(sizes) / 1e6:.1f} MB"
            self.cost(said, lambda: list(pool.map(target.put, keys, bodies)))


def state(number: int) -> dict[str, Any]:
    """Return 500 tensors, a little further each time."""
    rng = np.random.default_rng(3)
    step = np.random.default_rng(number).standard_normal((1000, 100)).astype(np.float32) * np.float32(1e-4)
    tensors = [np.float32(0.02) * rng.standard_normal((1000, 100)).astype(np.float32) for _ in range(500)]
    return {"model": {f"l{layer}.weight": tensor + number * step for layer, tensor in enumerate(tensors)}}


def saves(bucket: Bucket) -> None:
    """Measure saves and restores of the state."""
    with lcstore.open(MemoryBackend.fresh()) as warm:
        for number in range(2):
            warm.save(number, state(number))
        warm.restore()
    backend = bucket.at("store")
    print("the state itself")
    bucket.plain("state", [_PIECE] * (200_000_000 // _PIECE + 1))
    store = lcstore.open(backend, durability="none")
    known: set[str] = set()
    for number in range(4):
        tree = state(number)
        kind, most = ("delta save", 12) if number else ("first save", None)
        bucket.cost(kind, lambda number=number, tree=tree: store.save(number, tree), most)
        there = {*backend.list("")}
        bucket.plain(str(number), [backend.size(key) for key in there - known])
        known = there
        if number:
            reader = bucket.cost("open", lambda: lcstore.open(backend, "r"))
            said = f"restore the latest, deltas: {number}"
            bucket.cost(said, reader.restore, 20 if number == 1 else None)


def steps(bucket: Bucket, count: int) -> None:
    """Measure opening and listing a store of many steps."""
    source = MemoryBackend.fresh()
    with lcstore.open(source) as one:
        one.save(0, {"n": 1})
    first = parse_node_key(source.list("nodes")[0])
    many = bucket.at("many")
    many.put(STORE_KEY, source.get(STORE_KEY))
    names = (replace(first, step=n, seq=n, node=f"{n:032x}") for n in range(count))
    with ThreadPoolExecutor(32) as pool:  # nothing is read of them but their names
        list(pool.map(lambda name: many.put(node_key(name), b"{}"), names))
    listed = bucket.cost(f"open, and list {count:,} steps", lambda: lcstore.open(many, "r").steps(), 16)
    assert len(listed) == count


def main() -> None:
    """Measure one bucket."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url", help="an empty place in a bucket; what is stored there stays")
    parser.add_argument("--endpoint", help="of an S3 server, or of what delays its requests")
    parser.add_argument("--steps", type=int, default=10_000)
    given = parser.parse_args()
    options = {"client_kwargs": {"endpoint_url": given.endpoint}} if given.endpoint else None
    bucket = Bucket(given.url, options)
    saves(bucket)
    steps(bucket, given.steps)


if __name__ == "__main__":
    main()
