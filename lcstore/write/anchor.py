"""A second edge to the node just committed: from the root, made of the track that the writer holds."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from lcstore.arrays import Array
from lcstore.durability import Durability
from lcstore.edges.algebra import whole
from lcstore.edges.columns import Columns
from lcstore.edges.deltas import Step
from lcstore.edges.edge import Edge
from lcstore.edges.merge import Merger
from lcstore.format.records import EdgeRecord
from lcstore.frames.decode import Room
from lcstore.graph.refs import ROOT
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import PieceColumns
from lcstore.storage.backend import Backend
from lcstore.track.track import Track
from lcstore.write.shortcut import ShortcutWrite


@dataclass(frozen=True)
class HeldEdge(Edge):
    """An edge from the root that sets every tensor to what a track holds: nothing of it is stored."""

    pools: Mapping[str, Array] = field(default_factory=dict)

    def setter(self, pool: str, chunk: int, pieces: PieceColumns, room: Room) -> Step:
        """Return the step that fills pieces of a chunk."""
        size = self.layout.pools[pool].chunk
        held = self.pools[pool][chunk * size : (chunk + 1) * size]

        def run(low: int, out: Array) -> None:
            for first, behind in pieces.within(low, low + out.size).runs():
                out[first - low : behind - low] = held[first:behind]

        return Step(run, 0)

    @classmethod
    def of(cls, layout: Layout, columns: Columns, pools: Mapping[str, Array]) -> HeldEdge:
        """Return the edge of the tracks of a layout's tensors."""
        return cls(layout, columns.but(op=whole(layout)), _no_chunk, lambda *_: "", pools=pools)


def add_anchor(
    backend: Backend, executor: Executor, track: Track, node: str, durability: Durability
) -> tuple[EdgeRecord | None, int]:
    """Add an edge from the root to a node, and return it with the bytes that were stored.

    What the node's own edge sets is left to that. Bits, step sizes and errors stay as they are: it is only
    a further path to the node, and backward from it to those before.

    Parameters
    ----------
    backend, executor
        Where to; threads to code and write with.
    track
        It stands on the node. Nothing of it changes.
    node
        The node's id.
    durability
        What is stored besides.

    Returns
    -------
    tuple
        No edge, where a collector took it meanwhile.

    Raises
    ------
    CorruptionError
        The track is not what was committed.
    StorageError
        An object could not be stored.
    """
    layout, columns = track.layout, track.columns
    assert layout is not None
    assert columns is not None
    held = HeldEdge.of(layout, columns, track.pools)
    write = ShortcutWrite(backend, executor, Merger([held], layout, columns), durability)
    record = write.commit(ROOT, node, 1) if write.write() else None
    return record, write.written.nbytes


def _no_chunk(pool: str, array: str, chunk: int) -> None:
    raise AssertionError("nothing of the edge is stored")
