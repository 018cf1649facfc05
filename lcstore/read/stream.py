"""A state value by value, in order: the next tensors are decoded while the caller uses what it has."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_from_name
from lcstore.edges.edge import composed_dtype
from lcstore.errors import CorruptionError, LcstoreError
from lcstore.jobs.jobs import default_threads, drop_all
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import Piece, PieceColumns
from lcstore.limits import check_unstored, zeros
from lcstore.read.convert import shaped
from lcstore.read.feeder import ROOM, Ask, Feeder
from lcstore.read.kept import exact_chunk, exact_fetch
from lcstore.read.lookup import in_order
from lcstore.read.resolved import Resolved
from lcstore.read.upcoming import Job, largest_chunk, plan
from lcstore.state.names import Name, format_name

T = TypeVar("T")

#: A state as `Snapshot.stream` gives it: name and value, one after another.
Stream: TypeAlias = Generator[tuple[str, Any], None, None]
#: Chunks of each pool that lie ahead at least: tensors of several pools are wanted in turn.
_LEAST_CHUNKS: Final = 4


class Using(Protocol):
    """Returns what a function makes of a state, over whatever path it can be read: `Snapshot.using`."""

    def __call__(self, use: Callable[[Resolved], T]) -> T:
        """Return what `use` makes of the state."""


class Chosen(NamedTuple):
    """What is streamed of a state: names in order, and the places of tensors among `Layout.wholes`."""

    layout: Layout
    names: list[Name]
    wholes: dict[Name, int]


def choose(state: Resolved, names: str | Sequence[str] | None) -> Chosen:
    """Return what of a state is wanted; `NotFoundError` where something is not there, or was let go of."""
    node = state.node
    found = in_order(node, names, state.reader.url)
    wholes = {name: node.layout.named[name] for name in found if name in node.layout.named}
    with node.named():
        node.check_kept(node.layout.stored({*wholes.values()}))
    return Chosen(node.layout, found, wholes)


def stream(using: Using, chosen: Chosen, *, to: str, ahead: int | None) -> Stream:
    """Yield names and values; see `Snapshot.stream`."""
    layout, names, wholes = chosen
    left = Counter(wholes.values())
    held: dict[int, Any] = {}
    with closing(_flats(using, [*left], ahead)) as flats:
        for name in names:
            whole = wholes.get(name)
            if whole is None:
                yield format_name(name), using(partial(_leaf, name))
                continue
            if whole not in held:
                held[whole] = shaped(next(flats), layout.wholes[whole], None, to)
            left[whole] -= 1  # it may have other names
            yield format_name(name), held[whole] if left[whole] else held.pop(whole)


def _leaf(name: Name, state: Resolved) -> object:
    return state.leaves[state.node.leaf_places[name]]


def _flats(using: Using, wholes: Sequence[int], ahead: int | None) -> Generator[Array, None, None]:
    """Yield the flat values of tensors by place among `Layout.wholes`."""
    done = 0
    while done < len(wholes):
        run = using(partial(Ahead, wholes=wholes[done:], ahead=ahead))
        with run.running():
            for whole in wholes[done:]:
                try:
                    found = run.take(whole)
                except CorruptionError:
                    break
                done += 1
                yield found
        if done < len(wholes):
            # By itself: over another path, if there is one. The others go on along that.
            found = using(partial(_alone, wholes[done]))
            done += 1
            yield found


def _alone(whole: int, state: Resolved) -> Array:
    return state.values([whole])[whole]


class Ahead:
    """Decodes tensors of a state in a given order, some of them before they are asked for.

    Each is asked for once, in that order, while it is `running`. What they are is what `Resolved.values`
    gives, and so are the errors.

    Parameters
    ----------
    state
        The state.
    wholes
        Places among `Layout.wholes`, each once.
    ahead
        Bytes that are decoded before they are asked for, at most; but the next tensor is in any case. None:
        so many that all threads have something to do, and chunks are decoded once.
    """

    def __init__(self, state: Resolved, wholes: Sequence[int], ahead: int | None = None) -> None:
        node, reader = state.node, state.reader
        self._node = node
        self._reader = reader
        stored = node.layout.stored(wholes)
        exact, tracked = node.divide(stored)
        chunks = max(default_threads() + 1, _LEAST_CHUNKS)
        #: A third of what is held comes next, one lies in the chunks of that, one (at most) comes much later.
        self._room = chunks * largest_chunk(node.layout, stored) if ahead is None else ahead // 3
        self._plan = plan(node.layout, stored, {*exact}, self._room)
        self._feeder = Feeder(reader.requests, min(ROOM, self._room))
        fetch = exact_fetch(reader, node)
        self._exact = self._feeder.fed(fetch)
        with node.named():
            node.check_kept(stored)
            check_unstored(sum(node.layout.tensors[place].nbytes for place in exact), fetch.stored)
            self._composer = state.composer(tracked, of=self._feeder.edge)
            self._composer.check()
        self._made = {
            place: self._making(place, len(made.jobs)) for place, made in self._plan.tensors.items()
        }
        self._next = 0
        self._begun: dict[Job, Future[None]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Decode for the time of a ``with`` block; at its end nothing is at work any more."""
        process = os.getpid()
        with self._feeder.feeding(self._asks()):
            try:
                yield
            finally:
                if os.getpid() == process:  # a fork has none of the threads
                    drop_all([*self._begun.values()])

    def take(self, whole: int) -> Array:
        """Return the flat values of the next tensor, by its place among `Layout.wholes`."""
        self._reader.check_open()
        layout = self._node.layout
        places = layout.shards[whole]
        tensors = [self._plan.tensors[place] for place in places]
        self._begin(tensors[-1].begin)
        with self._node.named():
            for job in {job: None for tensor in tensors for job in tensor.jobs}:
                self._begun[job].result()
            values = {place: self._made.pop(place).take() for place in places}
        self._begin(tensors[-1].end)
        return layout.put_together(values, [whole])[whole]

    def _begin(self, taken: int) -> None:
        """Begin the jobs of what lies ahead once so many bytes were taken."""
        jobs = self._plan.jobs
        while self._next < len(jobs) and jobs[self._next].begin <= taken + self._room:
            job = jobs[self._next]
            self._begun[job] = self._reader.executor.submit(self._decode, job)
            self._next += 1

    def _decode(self, job: Job) -> None:
        self._reader.check_not_closed()
        values = self._exact_of(job) if job.exact else self._composed(job)
        for piece in job.pieces:
            self._made[piece.tensor].put(piece, values)

    def _composed(self, job: Job) -> Array:
        return self._composer.chunk(job.pool, job.chunk, PieceColumns.of(job.pieces))

    def _exact_of(self, job: Job) -> Array:
        lies = self._node.layout.maps[job.pool]
        values = exact_chunk(lies, job.chunk, self._exact)
        if values is not None:
            return values
        low, high = lies.bounds(job.chunk)
        return zeros(high - low, dtype_from_name(lies.pool.dtype))

    def _making(self, place: int, pieces: int) -> _Making:
        spec = self._node.layout.tensors[place]
        if self._node.keeps_exact(place):
            return _Making(spec.size, dtype_from_name(spec.dtype), pieces, np.copy)
        held = composed_dtype(self._node.layout.pools[spec.pool])
        return _Making(spec.size, held, pieces, partial(self._composer.proved, place))

    def _asks(self) -> Iterator[Ask]:
        """Yield the stored chunks that the jobs get, in their order."""
        for job in self._plan.jobs:
            if job.exact:
                yield Ask(self._exact, job.pool, "exact", job.chunk)
            else:
                for edge, array in self._composer.needs(PieceColumns.of(job.pieces)):
                    yield Ask(edge.fetch, job.pool, array, job.chunk)


class _Making:
    """A stored tensor, of which pieces come from several threads.

    Parameters
    ----------
    size, dtype
        Of what the pieces make.
    pieces
        How many come.
    finish
        Makes the flat values of them, once all are there; `LcstoreError` where that cannot be.
    """

    def __init__(self, size: int, dtype: np.dtype, pieces: int, finish: Callable[[Array], Array]) -> None:
        self._size = size
        self._dtype = dtype
        self._left = pieces
        self._finish = finish
        self._held: Array | None = None
        self._found: Array | LcstoreError | None = None
        self._lock = Lock()

    def put(self, piece: Piece, chunk: Array) -> None:
        """Take a piece from its chunk; the thread that has the last one finishes."""
        here = chunk[piece.at : piece.at + piece.size]
        if piece.size < self._size:
            with self._lock:
                if self._held is None:
                    self._held = zeros(self._size, self._dtype)
            self._held[piece.first : piece.first + piece.size] = here
            here = self._held
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._found, self._held = self._finished(here), None

    def _finished(self, held: Array) -> Array | LcstoreError:
        try:
            return self._finish(held)
        except LcstoreError as error:  # others that lie in the chunk are well
            return error

    def take(self) -> Array:
        """Return the flat values, once all pieces have come."""
        found = self._found if self._size else self._finished(np.zeros(0, self._dtype))
        if isinstance(found, LcstoreError):
            raise found
        assert found is not None
        return found
