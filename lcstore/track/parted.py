"""The track of one writer among several: what its part of a node says, and nothing of the others."""

from __future__ import annotations

from collections.abc import Mapping

from lcstore.arrays import Array
from lcstore.edges.columns import Columns
from lcstore.layout.layout import Layout, Part
from lcstore.layout.qualified import FIRST_PART, part_of, stem_of
from lcstore.track.track import Track


def track_of(
    part: str,
    layout: Layout,
    columns: Columns,
    pools: Mapping[str, Array],
    values: Mapping[int, Array],
    saves: int,
) -> Track:
    """Return a track that stands on one part of a node.

    Parameters
    ----------
    part
        Its name. Where the node has no such part, the track stands on nothing: all that is saved next is set.
    layout, columns
        Of the node, joined of its parts'.
    pools, values
        Its track by pool, and flat values by place in the layout, as `Resolved.rebuild` gives them.
    saves
        Saves before the next one.
    """
    track = Track()
    mine = next((one for one in layout.parts or (Part(FIRST_PART, layout, 0),) if one.name == part), None)
    if mine is not None:
        last = mine.first + len(mine.layout.tensors)
        track.stand_on(
            mine.layout,
            columns.rows(mine.first, last),
            {stem_of(name): pool for name, pool in pools.items() if part_of(name) == part},
            lambda place: values[mine.first + place],
            saves,
        )
    return track
