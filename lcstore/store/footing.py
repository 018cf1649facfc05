"""What the next save of a handle stands on, and whether a collector is about to take any of it away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from lcstore.state.paths import Path
from lcstore.state.plan import Plan
from lcstore.store import keys
from lcstore.track.columns import SET, Columns


@dataclass
class Footing:
    """The edges behind the track of a handle.

    Attributes
    ----------
    edges
        Ids of the edges on the path.
    whole
        Ids of the own edges of all nodes that are passed: they go together with the nodes' records.
    origins
        The edge that last set an exact tensor, and its pool: later edges may say that it is unchanged.
    """

    edges: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    origins: dict[Path, tuple[str, str]] = field(default_factory=dict)

    def advance(self, edge: str, plan: Plan, columns: Columns, *, anchor: bool) -> None:
        """Take in an edge that was just committed."""
        if anchor:
            self.edges, self.whole, self.origins = set(), set(), {}
        self.edges.add(edge)
        self.whole.add(edge)
        if len(self.origins) > sum(spec.role == "exact" for spec in plan.tensors):
            self.origins = {path: at for path, at in self.origins.items() if path in plan.index}
        for tensor in np.flatnonzero(columns.op == SET).tolist():
            spec = plan.tensors[tensor]
            if spec.role == "exact":
                self.origins[spec.path] = (edge, spec.pool)

    def is_shaken(self, condemned: Iterable[keys.CondemnedName]) -> bool:
        """Say whether anything condemned is part of this."""
        arrays: set[tuple[str, str]] | None = None
        for name in condemned:
            if name.scope == keys.EXACT_VALUE:
                continue
            if name.scope == keys.WHOLE_EDGE:
                if name.edge in self.edges or name.edge in self.whole:
                    return True
            elif name.blocks:
                if name.edge in self.edges:
                    return True
                continue
            if arrays is None:
                arrays = set(self.origins.values())
            if name.pool is None:
                if any(name.edge == edge for edge, _ in arrays):
                    return True
            elif (name.edge, name.pool) in arrays:
                return True
        return False
