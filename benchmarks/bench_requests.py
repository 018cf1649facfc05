"""How many requests a store makes, how many rounds of them one after another, and how long that takes.

    python -m benchmarks.bench_requests [--delay 0.05] [--url s3://bucket/prefix [--endpoint http://...]]

Without a URL the target is memory, of which each request takes `--delay` seconds. With one it is what is
behind the URL (an S3 server needs ``s3fs``; a proxy that delays requests goes between by ``--endpoint``), and
the requests are counted on the way to its client. The state is five small tensors; everything is warmed up on
another store before. A round is counted where no request came for half of the delay.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

import lcstore
from lcstore.storage.backend import Backend, Buffer, Names
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.targets import open_backend

R = TypeVar("R")

#: What is wanted at 50 ms a request: requests (None: any number), and seconds (None: as they come).
BARS = {
    "open": (None, None),
    "open + latest": (None, 0.2),
    "first save": (10, None),
    "delta save": (8, 0.3),
    "restore over 20": (None, 0.8),
    "save after resume": (12, None),
}


class Counting:
    """A backend around another that delays requests and notes when each began."""

    def __init__(self, inner: Backend, delay: float) -> None:
        self.inner = inner
        self.delay = delay
        self.began: list[float] = []
        #: A target that is far away does not look at all of a path with each save.
        self.url = "s3://far/away"
        self.durable, self.writable = inner.durable, inner.writable

    def put(self, key: str, data: Buffer) -> None:
        self._ask(lambda: self.inner.put(key, data))

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        return self._ask(lambda: self.inner.get(key, start, end))

    def list(self, prefix: str, foreign: Names | None = None) -> Names:
        return self._ask(lambda: self.inner.list(prefix, foreign))

    def delete(self, key: str) -> None:
        self._ask(lambda: self.inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        wanted = [*keys]
        self._ask(lambda: self.inner.delete_many(wanted))

    def size(self, key: str) -> int:
        return self._ask(lambda: self.inner.size(key))

    def created(self, key: str) -> float | None:
        return self._ask(lambda: self.inner.created(key))

    def _ask(self, effect: Callable[[], R]) -> R:
        self.began.append(time.perf_counter())
        if self.delay:
            time.sleep(self.delay)
        return effect()


def state(number: int) -> dict[str, Any]:
    """Return five small tensors, a little further each time."""
    rng = np.random.default_rng(3)
    model = {}
    for layer in range(4):
        value, step = rng.standard_normal((2, 32, 32))
        model[f"l{layer}.weight"] = (value + 1e-3 * number * step).astype(np.float32)
    return {"model": model | {"l.bias": np.full(32, number + 1, np.float32)}, "step": number}


def measured(target: Counting, name: str, call: Callable[[], R], gap: float) -> R:
    """Run a call, and print what it cost."""
    target.began.clear()
    started = time.perf_counter()
    found = call()
    seconds = time.perf_counter() - started
    rounds, last = 0, -gap
    for at in sorted(target.began):
        rounds += at - last > gap
        last = at
    most, longest = BARS[name]
    bars = [f"{most} requests"] * (most is not None) + [f"{longest} s"] * (longest is not None)
    wanted = f"   (wanted: {', '.join(bars)})" if bars else ""
    print(f"{name:18} {len(target.began):3} requests  ~{rounds:2} rounds  {seconds:6.3f} s{wanted}")
    return found


def run(target: Counting, gap: float) -> None:
    """Measure everything that has a bar."""
    store = measured(target, "open", lambda: lcstore.open(target, durability="none"), gap)
    measured(target, "first save", lambda: store.save(0, state(0)), gap)
    for number in range(1, 20):
        if number in (1, 2, 19):
            measured(target, "delta save", lambda number=number: store.save(number, state(number)), gap)
        else:
            store.save(number, state(number))
    measured(target, "open + latest", lambda: lcstore.open(target, "r").latest_step(), gap)
    reader = lcstore.open(target, "r")
    measured(target, "restore over 20", reader.restore, gap)
    other = lcstore.open(target, durability="none")
    other.resume()
    measured(target, "save after resume", lambda: other.save(20, state(20)), gap)


def main() -> None:
    """Measure one target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--delay", type=float, default=None, help="seconds that each request takes longer")
    parser.add_argument("--url", help="an empty place; what is stored there stays")
    parser.add_argument("--endpoint", help="of an S3 server, or of what delays its requests")
    given = parser.parse_args()
    delay = (0.0 if given.url else 0.05) if given.delay is None else given.delay
    with lcstore.open(MemoryBackend.fresh()) as warm:
        for number in range(3):
            warm.save(number, state(number))
        warm.restore(1)
    options = {"client_kwargs": {"endpoint_url": given.endpoint}} if given.endpoint else None
    inner = open_backend(given.url, options) if given.url else MemoryBackend.fresh()
    inner.list("nodes")  # the client connects
    run(Counting(inner, delay), max(delay / 2, 0.025))


if __name__ == "__main__":
    main()
