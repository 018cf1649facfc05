"""Inputs made of the traces: the same bytes on every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.workloads import trace
from benchmarks.workloads_cache import Tensors, Trace
from lcstore.edges import grid
from lcstore.edges.deltas import apply_delta
from lcstore.layout.layout import make_layout
from lcstore.state.names import format_name
from lcstore.state.tree import flatten
from lcstore.track.draft import Draft
from lcstore.track.policy import Policy, settled
from lcstore.track.track import Track
from lcstore.write.entries import layout_entries

#: Saves of the trace from which the weights of one large state are put together.
STARTS = (0, 30, 60, 85)


def gpt(count: int = 101) -> Trace:
    """The GPT's saves."""
    return trace("gpt", every=20, count=count)


def weights(saves: Trace, index: int) -> Tensors:
    """The matrices of one save by path."""
    return {p: a for p, a in saves[index].items() if p.startswith("model/") and a.ndim >= 2}


@dataclass(frozen=True)
class Block:
    """Matrices of several saves as one state of `raw.size` elements, end to end in `raw`."""

    raw: np.ndarray
    state: dict[str, dict[str, np.ndarray]]


def block(saves: Trace, later: int, elements: int, starts: Sequence[int] = STARTS) -> Block:
    """The matrices of saves ``start + later``, end to end until there are `elements`; the last one is cut."""
    raw = np.empty(elements, np.float32)
    tensors: Tensors = {}
    at = 0
    for start in starts:
        for path, array in weights(saves, start + later).items():
            rows = min(array.shape[0], (elements - at) // array.shape[1])
            if not rows:
                continue
            part = raw[at : at + rows * array.shape[1]].reshape(rows, array.shape[1])
            part[:] = array[:rows]
            tensors[f"{start}.{path.removeprefix('model/')}"] = part
            at += part.size
    return Block(raw[:at], {"model": tensors})


def draft(track: Track, state: object, policy: Policy) -> Draft:
    """Begin a save of `state` on a bare track, as a store does of a run that goes on for long."""
    flat = flatten(state)
    layout = make_layout(
        flat.structure, layout_entries(flat, policy, set()), track.layout, fresh=track.layout is None
    )
    arrays = [np.ascontiguousarray(host.array).reshape(-1) for _, host in flat.tensors]
    return track.draft(layout, arrays, settled(policy), anchor=track.layout is None)


def run_jobs(made: Draft) -> list[bytes]:
    """Run the jobs of a draft, one after another; give the frames."""
    return [chunk.data for chunk in (job() for job in made.jobs) if chunk is not None]


def take_back(made: Draft, frames: Sequence[bytes]) -> None:
    """Undo the moves of a draft whose jobs have run, so that they can run again (a real rollback ends it)."""
    for (name, chunk), frame in zip(delta_chunks(made), frames, strict=True):
        apply_delta(frame, place_of(made, name, chunk), -1)


def delta_chunks(made: Draft) -> list[tuple[str, int]]:
    """The pools, and the numbers of their chunks, that a draft adds to."""
    changed, maps = set(made.coder.decided.tables), made.coder.maps
    return [(name, chunk) for name in maps for chunk in maps[name].chunks_of(changed)]


def place_of(made: Draft, name: str, chunk: int) -> np.ndarray:
    """The track of a chunk."""
    return made.coder.pools[name][slice(*made.coder.maps[name].bounds(chunk))]


def warmed(states: Sequence[object], policy: Policy) -> Track:
    """A track that stands on the last of `states`, each saved as a delta to the one before."""
    track = Track()
    for state in states:
        made = draft(track, state, policy)
        run_jobs(made)
        made.commit()
    return track


def tracking_error(track: Track, now: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> float:
    """The true tracking error over all tracked weights, in intervals: nothing is sampled."""
    assert track.layout is not None
    assert track.columns is not None
    missed = moved = 0.0
    for index, spec in enumerate(track.layout.tensors):
        path = format_name(spec.name)
        if spec.role != "weights" or path not in before:
            continue
        held = np.empty(spec.size, np.float32)
        integers = track.pools[spec.pool][spec.offset : spec.offset + spec.size]
        grid.from_grid(integers, int(track.columns.grid[index]), spec.dtype, held)
        flat = now[path].reshape(-1)
        missed += square(flat - held)
        moved += square(flat - before[path].reshape(-1))
    return (missed / moved) ** 0.5


def square(values: np.ndarray) -> float:
    """The sum of squares, in double precision but without a copy of everything in it."""
    return float(np.einsum("i,i->", values, values, dtype=np.float64, casting="safe"))
