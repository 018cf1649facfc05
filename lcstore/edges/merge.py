"""Edges along a path, merged into one that leads from its first node to its last: a shortcut, or an anchor.

Nothing is rounded: merged deltas are exact sums of integers on the grid, on the finest step size among them.
What the target's own edge sets is not repeated; the shortcut leaves it to that edge (`OWN`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Final, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import clear
from lcstore.edges.algebra import ArrayName, Effect, Start, by_array, merged
from lcstore.edges.columns import Columns
from lcstore.edges.digests import Digests
from lcstore.edges.edge import Edge, composed_dtype
from lcstore.edges.frames import Chunk, values_of_frame
from lcstore.edges.path import Path
from lcstore.edges.patterns import patterns
from lcstore.edges.sumframes import frame_of_sums
from lcstore.errors import CorruptionError
from lcstore.frames.lossless import encode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.frames.scales import log2_of
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import PieceColumns

#: Merges one chunk; gives what is to be stored of it: nothing, its `add`, its `set`, or both.
MergeJob: TypeAlias = Callable[[], list[Chunk]]

#: Most bytes that a job holds: in those of a chunk as it is composed, and besides.
_CHUNKS_HELD: Final = 6
_HELD_BESIDES: Final = 16 << 20
_NO_STEP: Final = 255


class Merger:
    """Merges the edges of one path. Jobs may run side by side.

    Parameters
    ----------
    edges
        From the base to the target, at least one.
    layout, columns
        The target's: the columns of its own edge.
    base
        Layout and columns of the node that the path begins at; None where it begins at the root: then the
        merged edge is an anchor.

    Attributes
    ----------
    columns
        Those of the merged edge. Their step sizes are complete once `prove` has run.

    Raises
    ------
    CorruptionError
        Nothing sets a tensor, neither the path nor the base.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        layout: Layout,
        columns: Columns,
        base: tuple[Layout, Columns] | None = None,
    ) -> None:
        self.layout = layout
        own = Effect.of(layout, columns.op)
        start = None if base is None else Start(base[0], np.ones(len(base[0].tensors), bool))
        self.path = Path(edges, layout, np.flatnonzero(~own.sets).tolist(), start)
        self.path.check()
        op = merged(self.path.trace, own)
        steps, moved = np.zeros(op.size, np.uint8), np.zeros(op.size, np.float32)
        self.columns = columns.but(op=op, shift=steps, moved=moved)
        self._effect = Effect.of(layout, op, columns.op)
        self._base = None if base is None else (base[0], base[1].digest)
        self._digests = Digests(layout)
        self._steps = np.full(op.size, _NO_STEP, np.uint8)
        self._lock = Lock()

    def jobs(self) -> list[MergeJob]:
        """List the jobs, one for each chunk that may have something to store."""
        return [partial(self.merge, pool, chunk, pieces) for pool, chunk, pieces in self.chunks()]

    def chunks(self) -> Iterator[tuple[str, int, PieceColumns]]:
        """Yield pool, number and pieces of the chunks that may have something to store."""
        held = [self._effect.holds(array) for array in ("add", "grid", "exact", "set")]
        return self.path.chunks(np.flatnonzero(np.any(held, axis=0)).tolist())

    def prove(self) -> None:
        """Check, once all jobs have run, that what was merged leads to the target; complete the columns.

        Raises
        ------
        CorruptionError
            The digest of a tensor is not the one committed.
        """
        effect = self._effect
        wanted = effect.digests(self.columns.digest, self._base)
        wrong = np.flatnonzero(~effect.owned & effect.unlike(self._digests.found, wanted))
        if wrong.size:
            name = self.layout.tensors[int(wrong[0])].name
            if effect.passes[wrong[0]]:
                raise CorruptionError(
                    f"the edges merged do not lead tensor {name!r} from the digest of the base to that of "
                    "the target"
                )
            raise CorruptionError(f"the merged value of tensor {name!r} does not have the digest committed")
        self.columns.shift[:] = np.where(self._steps == _NO_STEP, 0, self._steps)

    def merge(self, pool: str, chunk: int, pieces: PieceColumns) -> list[Chunk]:
        """Merge one chunk; return what is to be stored of it."""
        low, high = self.layout.maps[pool].bounds(chunk)
        out = np.zeros(high - low, composed_dtype(self.layout.pools[pool]))
        self.path.apply(pool, chunk, pieces, out)
        divided = by_array(self.columns.op, self.layout.weights, pieces)
        held = [(array, some) for array, some in divided if array is not None]
        merge = self._sum if self.layout.pools[pool].role == "weights" else self._copy
        last = len(held) - 1
        made = [
            merge(pool, array, chunk, some, out if at == last else out.copy())
            for at, (array, some) in enumerate(held)
        ]
        return [one for one in made if one is not None]

    def _sum(self, pool: str, op: ArrayName, chunk: int, pieces: PieceColumns, sums: Array) -> Chunk | None:
        """Code what a chunk adds up to; `sums` is used up."""
        _clear_between(sums, pieces)
        self._digests.add(pieces, sums)
        data, steps = frame_of_sums(sums, [*pieces], f"chunk {chunk} of pool {pool!r}")
        with self._lock:
            for tensor, step in steps.items():
                self._steps[tensor] = min(int(self._steps[tensor]), step, key=log2_of)
        return None if data is None else Chunk(pool, op, chunk, data)

    def _copy(
        self, pool: str, array: ArrayName, chunk: int, pieces: PieceColumns, values: Array
    ) -> Chunk | None:
        """Code values as they are, every bit of them, or what bit patterns add up to."""
        _clear_between(values, pieces)
        self._digests.add(pieces, values)
        if not values.view(np.uint8).any():
            return None
        coded = patterns(values) if array == "add" else values
        parts = [(low, coded[low:high]) for low, high in pieces.runs()]
        data = encode_lossless(Pieces(parts, coded.size, coded.dtype))
        back = values_of_frame(data, coded.size, coded.dtype)
        if not np.array_equal(back.view(np.uint8), values.view(np.uint8)):
            raise CorruptionError(f"the frame made of chunk {chunk} of pool {pool!r} does not decode to it")
        return Chunk(pool, array, chunk, data)


def bytes_per_job(layout: Layout) -> int:
    """Return a bound of the bytes that one job of a `Merger` holds at a time, what it fetches included.

    Six times the largest chunk as it is composed (4 bytes per weight, 8 of float64; other values as they
    are), and 16 MiB for what decoders need. The result, coded, is counted while the job runs.
    """
    held = (min(pool.chunk, pool.size) * composed_dtype(pool).itemsize for pool in layout.pools.values())
    return _CHUNKS_HELD * max(held, default=0) + _HELD_BESIDES


def _clear_between(values: Array, pieces: PieceColumns) -> None:
    """Set to zero what lies outside the pieces: other tensors of the chunk, and holes."""
    end = 0
    for low, high in pieces.runs():
        clear(values[end:low])
        end = high
    clear(values[end:])
