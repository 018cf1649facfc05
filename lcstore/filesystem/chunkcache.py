"""A cache of decoded chunks: each is decoded once, by whoever needs it first."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Final, Generic, TypeVar

from lcstore.arrays import Array
from lcstore.futures import SafeFuture

K = TypeVar("K", bound=Hashable)

#: Bytes that are held of all that was decoded: some chunks, which have up to 64 MiB each.
MOST_CACHED: Final = 256 << 20


class ChunkCache(Generic[K]):
    """The chunks that were decoded last. Thread-safe: whoever asks for one that another decodes waits for it.

    Parameters
    ----------
    most
        Bytes that are held at most, or else one chunk. What is being decoded comes on top.
    """

    def __init__(self, most: int = MOST_CACHED) -> None:
        self.most = most
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._found: OrderedDict[K, Future[Array]] = OrderedDict()
        self._nbytes = 0

    def lacks(self, key: K) -> bool:
        """Return whether nobody has decoded this, or is at it."""
        return key not in self._found

    def take(self, keys: Sequence[K], make: Callable[[Sequence[K]], Sequence[Array]]) -> dict[K, Array]:
        """Return what some keys stand for; `make` decodes those that are not here, all at once."""
        if os.getpid() != self._process:  # a fork has none of the threads that decode
            self._begin()
        mine: dict[K, Future[Array]] = {}
        wanted: dict[K, Future[Array]] = {}
        try:
            with self._lock:
                for key in keys:
                    if key in self._found:
                        self._found.move_to_end(key)
                    else:
                        mine[key] = self._found[key] = SafeFuture()
                    wanted[key] = self._found[key]
            if mine:
                self._make(mine, make)
        except BaseException as error:
            self._give_up(mine, error)  # whoever waits for it makes it
            raise
        # What failed for another may have been interrupted there.
        return {
            key: make([key])[0] if future.exception() is not None else future.result()
            for key, future in wanted.items()
        }

    def _make(self, mine: dict[K, Future[Array]], make: Callable[[Sequence[K]], Sequence[Array]]) -> None:
        made = make([*mine])
        for future, values in zip(mine.values(), made, strict=True):
            future.set_result(values)
        with self._lock:
            self._nbytes += sum(values.nbytes for values in made)
            for key in [key for key, future in self._found.items() if future.done()][:-1]:
                if self._nbytes <= self.most:
                    break
                self._nbytes -= self._found.pop(key).result().nbytes

    def _give_up(self, mine: dict[K, Future[Array]], error: BaseException) -> None:
        with self._lock:
            for key, future in mine.items():
                if not future.done():
                    self._found.pop(key, None)
                    future.set_exception(error)
