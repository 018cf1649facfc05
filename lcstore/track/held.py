"""What readers of the last commit have, and what the next delta needs to know besides: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lcstore.arrays import Array
from lcstore.edges.columns import Columns
from lcstore.layout.layout import Layout
from lcstore.layout.specs import TensorSpec
from lcstore.state.names import Name
from lcstore.track.budget import Budget
from lcstore.track.known import Known


@dataclass(frozen=True, eq=False)
class Held:
    """What a commit left. Only coding changes any of it: the pools, until the save is committed or undone.

    Attributes
    ----------
    layout, columns
        Those of the node that was committed; None before the first commit.
    pools
        By name: ``int32`` or ``int64`` for weights, values in their dtype for plain pools. Moments are not
        held: they are set afresh in each edge.
    known
        By the name of a tensor of weights. Of this, only the samples are needed for a sound delta.
    budget
        Where the handle is with its budget.
    saves
        Saves so far, with those that it goes on from: rows are looked at in turn, and the first are nearer.
    """

    layout: Layout | None = None
    columns: Columns | None = None
    pools: Mapping[str, Array] = field(default_factory=dict)
    known: Mapping[Name, Known] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    saves: int = 0

    def of(self, spec: TensorSpec) -> Array:
        """Return what readers have of a tensor, flat: its part of its pool."""
        return self.pools[spec.pool][spec.offset : spec.offset + spec.size]
