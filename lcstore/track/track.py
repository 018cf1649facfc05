"""The track: per pool the integers (or bytes) that a reader of the last commit would have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from lcstore.arrays import Array
from lcstore.coders.tables import TableCache
from lcstore.edges import grid
from lcstore.edges.columns import Columns
from lcstore.edges.digests import Digests
from lcstore.layout.layout import Layout
from lcstore.state.names import Name
from lcstore.track import samples
from lcstore.track.budget import Budget
from lcstore.track.coding import Coder
from lcstore.track.decide import Asked, decide
from lcstore.track.draft import Draft
from lcstore.track.fusedpass import Scratch
from lcstore.track.held import Held
from lcstore.track.known import Known
from lcstore.track.policy import Policy
from lcstore.track.sensitivity import Sensitivity


class Track:
    """What a handle stands on: what its last commit left, and buffers that its saves share.

    Not thread-safe: one save at a time. The jobs of one draft may run side by side.

    Attributes
    ----------
    held
        What readers of the last commit have, and what is remembered.
    """

    def __init__(self) -> None:
        self.held = Held()
        self._tables = TableCache()
        self._scratch = Scratch()
        self._sensitivity = Sensitivity()

    @property
    def layout(self) -> Layout | None:
        """Layout of the node that the track stands on; None before the first commit."""
        return self.held.layout

    @property
    def columns(self) -> Columns | None:
        """Columns of that node."""
        return self.held.columns

    @property
    def pools(self) -> Mapping[str, Array]:
        """What readers of that node have, by pool."""
        return self.held.pools

    def draft(
        self,
        layout: Layout,
        arrays: Sequence[Array],
        policy: Policy,
        *,
        anchor: bool,
        exact: bool = False,
        reset: Set[Name] = frozenset(),
        delta_cost: float = 1.0,
        touched: Mapping[Name, Array] | None = None,
        kept: bool = True,
    ) -> Draft:
        """Begin a save; the parameters are those of `Asked`, but for `kept`.

        An anchor that is not kept leaves no pools: no delta can be coded to it, and it takes no memory.

        Raises
        ------
        InvalidInputError
            `touched` leaves out elements that have changed.
        """
        shares = self._sensitivity.shares(layout, arrays, policy)
        asked = Asked(layout, arrays, policy, shares, anchor, exact, reset, delta_cost, touched or {})
        decided = decide(self.held, asked)
        assert kept or anchor
        pools = self._pools_for(layout, fresh=anchor) if kept else {}
        fresh = {name for name, pool in pools.items() if pool is not self.held.pools.get(name)}
        digests = Digests(layout, decided.columns.digest)
        coder = Coder(asked, decided, pools, fresh, layout.maps, digests, self._tables, self._scratch)
        return Draft(coder, self.held.known, self._accept)

    def _accept(self, held: Held) -> None:
        """Take over what a commit leaves: all that a save changes, in one place."""
        self.held = held

    def stand_on(
        self,
        layout: Layout,
        columns: Columns,
        pools: dict[str, Array],
        values: Callable[[int], Array],
        saves: int,
    ) -> None:
        """Stand on a restored node, whose user goes on from `values`: flat ones, by place in the layout."""
        known = {
            spec.name: Known(samples.take(values(place)))
            for place, spec in enumerate(layout.tensors)
            if spec.role == "weights"
        }
        self._accept(Held(layout, columns, pools, known, saves=saves))

    def forget_budget(self) -> None:
        """Begin anew with what was spent: another budget, or another error to multiply, is aimed at."""
        self._accept(replace(self.held, budget=Budget()))

    def _pools_for(self, layout: Layout, *, fresh: bool) -> dict[str, Array]:
        """Return the pools of a layout: those held, in place, where they are large enough."""
        pools = {}
        for name, spec in layout.pools.items():
            dtype = grid.pool_dtype(spec)
            if dtype is None:
                continue
            held = None if fresh else self.held.pools.get(name)
            assert held is None or self.held.layout is None or held.size == self.held.layout.pools[name].size
            if held is None or held.size > spec.size:  # smaller than it was: laid out afresh
                held = np.zeros(spec.size, dtype)
            elif held.size < spec.size:
                held = np.concatenate((held, np.zeros(spec.size - held.size, dtype)))
            pools[name] = held
        return pools
