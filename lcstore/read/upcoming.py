"""Which chunks are decoded when, for tensors that are wanted one after another. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from lcstore.edges.edge import composed_dtype
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import Piece, pieces_of


@dataclass(eq=False, slots=True)
class Job:
    """Some pieces of one chunk, which are decoded together.

    Attributes
    ----------
    pool, chunk
        The chunk.
    exact
        Whether the pieces are exact values, and not composed.
    begin
        Bytes of the tensors that are wanted before the first one of this job.
    pieces
        In the order in which their tensors are wanted.
    """

    pool: str
    chunk: int
    exact: bool
    begin: int
    pieces: list[Piece] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Upcoming:
    """A stored tensor that is wanted.

    Attributes
    ----------
    begin, end
        Its bytes among those of all tensors that are wanted, one after another.
    jobs
        The jobs that decode pieces of it.
    """

    begin: int
    end: int
    jobs: list[Job] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """Stored tensors in the order in which they are wanted, by place, and the jobs in their order."""

    tensors: dict[int, Upcoming]
    jobs: list[Job]


def plan(layout: Layout, wanted: Sequence[int], exact: Container[int], room: int) -> Plan:
    """Return what is decoded for tensors that are wanted one after another.

    A chunk is decoded once for all tensors that are wanted within `room` bytes, and for those that are wanted
    later as long as all of these together come to no more than that, too. Further ones have it decoded again:
    so what is held is bounded, whatever the order. Where states are given in their own order, each chunk is
    decoded once if the room is that of some chunks: what is wanted much later is small then (counters).

    Parameters
    ----------
    layout
        Where the tensors lie.
    wanted
        Places among `Layout.tensors`, in order, each once.
    exact
        Those of which the exact value is wanted.
    room
        So many bytes.
    """
    found = Plan({}, [])
    last: dict[tuple[str, int, bool], Job] = {}
    begin, spare = 0, room
    for place in wanted:
        spec = layout.tensors[place]
        kept = place in exact
        size = nbytes_of(layout, place, exact=kept)
        tensor = found.tensors[place] = Upcoming(begin, begin + size)
        for chunk, piece in pieces_of(place, spec, layout.pools[spec.pool].chunk):
            job = last.get((spec.pool, chunk, kept))
            late = job is not None and begin - job.begin > room
            if job is None or (late and size > spare):
                job = last[spec.pool, chunk, kept] = Job(spec.pool, chunk, kept, begin)
                found.jobs.append(job)
            elif late:
                spare -= size
            job.pieces.append(piece)
            tensor.jobs.append(job)
        begin = tensor.end
    return found


def nbytes_of(layout: Layout, place: int, *, exact: bool) -> int:
    """Return the bytes that a tensor takes while it is made."""
    spec = layout.tensors[place]
    return spec.nbytes if exact else spec.size * composed_dtype(layout.pools[spec.pool]).itemsize


def largest_chunk(layout: Layout, wanted: Sequence[int]) -> int:
    """Return the bytes of the largest chunk, composed, of the pools that some tensors lie in."""
    pools = [layout.pools[name] for name in {layout.tensors[place].pool for place in wanted}]
    return max((min(pool.chunk, pool.size) * composed_dtype(pool).itemsize for pool in pools), default=0)
