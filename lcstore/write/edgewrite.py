"""Writing one edge: its chunks are coded and stored, and no record names them yet."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import LOSSY_DTYPES, dtype_name
from lcstore.durability import NAMED, Durability
from lcstore.edges.columns import EXACT, SET
from lcstore.edges.grid import exponent_of, largest
from lcstore.format.bodies import PartBody
from lcstore.garbage import garbage_waits
from lcstore.graph.refs import ROOT, NodeName
from lcstore.index.recorded import numbers_of
from lcstore.layout.layout import make_layout
from lcstore.staging.notfinite import NotFinite, not_finite
from lcstore.staging.stage import Staged
from lcstore.state.names import Name
from lcstore.state.roles import is_optimizer
from lcstore.state.tree import FlatState
from lcstore.storage.backend import Backend
from lcstore.track.policy import Policy
from lcstore.track.track import Track
from lcstore.write.counters import counters_anew
from lcstore.write.entries import layout_entries
from lcstore.write.paritywrite import covered_roles
from lcstore.write.parts import finish_part, run_jobs
from lcstore.write.written import Written

#: After so many saves that a grid would have held, weights that were plain are deltas again.
_FINITE_SAVES: Final = 2


@dataclass(frozen=True)
class Quality:
    """What decides how a state is coded.

    Attributes
    ----------
    policy
        The quality asked for.
    plain
        Names of tensors that showed values which no grid holds, with the saves for which each is plain yet.
    touched
        By name, ranges of elements (``int64[r, 2]``) that have changed since the base, where that is known.
    """

    policy: Policy
    plain: Mapping[Name, int]
    touched: dict[Name, Array]


class EdgeWrite:
    """An edge on its way into the store: coded, stored, and not committed. Readers do not see it.

    Coding moves the track to the new state. Until `accept` or `undo` this object holds the only claim on the
    track: nothing else may be coded from it.

    Parameters
    ----------
    staged
        The state that the edge leads to.
    base
        The node that it leads from, on which `track` stands; None to set everything, on new grids.
    track
        What readers of `base` have. It is moved in place.
    quality
        Policy, and what is known of single tensors.
    backend, executor
        Where objects go; threads to code with.
    requests
        Threads that wait for the target: objects are there once `written.end` returned, not before.
    durability
        What is stored besides the state.
    kept
        Whether the track comes along, as it has to for deltas to this state. An anchor may do without.

    Attributes
    ----------
    draft, written
        What was decided and coded; the objects that were stored.
    part
        What the record says of them, but for the layout; whole once `write` has run.
    plain
        As in `Quality`: tensors that are plain, as no grid holds their values, or held them lately.
    not_finite
        Weights and moments that hold NaN or infinity; known once `write` has run.
    stats
        What the record says for reports.
    lag
        How far the track is behind along the last update, in intervals (NaN where nothing moved).
    worst
        The largest relative error among the rows looked at, and the tensor; None where none were.
    coded
        When coding was done, by `time.perf_counter`.
    """

    def __init__(
        self,
        staged: Staged,
        base: NodeName | None,
        track: Track,
        quality: Quality,
        backend: Backend,
        executor: Executor,
        requests: Executor | None = None,
        durability: Durability = NAMED["none"],
        kept: bool = True,
    ) -> None:
        self.staged = staged
        self.base = base
        self.plain = _still_plain(staged, quality.plain)
        self.part = PartBody()
        self.not_finite = NotFinite()
        self.stats: dict[str, int | float] = {}
        self.lag = math.nan
        self.worst: tuple[float, Name] | None = None
        self.coded = math.nan
        self.kept = kept or base is not None
        self._track = track
        self._quality = quality
        self._backend = backend
        self._executor = executor
        self._requests = requests
        self._durability = durability
        self._begin(set())

    @property
    def edge(self) -> str:
        """The edge's id."""
        return self.written.edge

    @property
    def base_id(self) -> str:
        """The id of the base, or `ROOT`."""
        return ROOT if self.base is None else self.base.node

    def write(self) -> None:
        """Code the state and begin to store the edge's objects. After a failure, `undo` is left to do."""
        anew = counters_anew(self.staged, self._track.layout, self._track.pools)  # before pools are moved
        reset: set[Name] = set()
        while True:
            if not self.draft.off_grid:
                run_jobs(self.written, self.draft.jobs, self._executor)
            if not self.draft.off_grid:
                break
            self.draft.roll_back()
            self.written.take_away()
            self._off_grid(reset)
            self._begin(reset)
        self.coded = time.perf_counter()
        error, self.lag = self.draft.tracking()
        self.worst = self.draft.worst_row()
        self.stats = {
            "bytes_raw": self.staged.nbytes,
            "tensors": len(self.staged.arrays),
            "exact": int(self.staged.exact or self._comes_back_exactly()),
            **numbers_of(self._quality.policy),
            **anew,
        }
        self.stats |= {"error": float(error)} if np.isfinite(error) else {}
        self.stats |= {"row_error": self.worst[0]} if self.worst is not None else {}
        tensors, moments = self.draft.layout.tensors, sorted(self.draft.not_finite.items())
        self.not_finite = NotFinite(self._not_finite(), {tensors[at].name: count for at, count in moments})
        self.stats |= self.not_finite.stats
        leaves = self.staged.flat.leaves
        self.part = finish_part(self.written, self.draft, leaves, exact=self.staged.exact)

    def accept(self) -> None:
        """Make what was coded the track's state: the edge is committed."""
        self.draft.commit()

    def undo(self) -> bool:
        """Put the track back to the base; return whether that went well."""
        self.draft.roll_back()
        return not self.draft.astray

    def leave_open(self) -> None:
        """Forget the way back, and the state: whether the edge is committed will be found out later."""
        self.draft.keep()
        self.staged = replace(self.staged, flat=FlatState(), arrays=())

    @garbage_waits()
    def _begin(self, reset: set[Name]) -> None:
        """Decide what each tensor does. Nothing is ever written over, so each attempt is another edge."""
        staged, track, quality = self.staged, self._track, self._quality
        self.written = Written(
            self._backend, secrets.token_hex(16), durability=self._durability, requests=self._requests
        )
        entries = layout_entries(staged.flat, quality.policy, self.plain.keys())
        anchor = self.base is None
        covered = covered_roles(self._durability.parity)
        layout = make_layout(
            staged.flat.structure,
            entries,
            track.layout,
            fresh=anchor,
            covered=covered,
            notes=staged.flat.notes,
        )
        tracked = {spec.name for spec in layout.tensors if spec.role == "weights"}
        self.draft = track.draft(
            layout,
            staged.arrays,
            quality.policy,
            anchor=anchor,
            exact=staged.exact,
            reset=reset,
            delta_cost=1 + 1 / self._durability.anchor_ratio,
            touched={name: ranges for name, ranges in quality.touched.items() if name in tracked},
            kept=self.kept,
        )

    def _off_grid(self, reset: set[Name]) -> None:
        """Decide about tensors that did not fit their grids: a new grid if there is one, plain if not."""
        for tensor in self.draft.off_grid:
            spec = self.draft.layout.tensors[tensor]
            if not _fits(self.staged.arrays[tensor]) or spec.name in reset:
                self.plain[spec.name] = _FINITE_SAVES
            reset.add(spec.name)

    def _not_finite(self) -> dict[Name, int]:
        """Return how many values of weights are not finite, where some are; what a grid holds is."""
        if self._quality.policy.error is not None:
            return not_finite(self.staged, self.plain.keys())
        names = {name for name, _ in self.staged.flat.tensors if not is_optimizer(name)}
        bad = not_finite(self.staged, names)
        # Which of them are weights is guessed from all names, which takes up to a quarter of a small save.
        entries = layout_entries(self.staged.flat, Policy(), frozenset()) if bad else ()
        weights = {entry.name for entry in entries if entry.role == "weights"}
        return {name: count for name, count in bad.items() if name in weights}

    def _comes_back_exactly(self) -> bool:
        """Return whether the edge alone gives back every bit."""
        draft, arrays = self.draft, self.staged.arrays
        return all(
            spec.role == "plain"
            or op == EXACT
            or (op == SET and spec.role == "weights" and not array.view(np.uint8).any())
            for spec, op, array in zip(draft.layout.tensors, draft.columns.op, arrays, strict=True)
        )


def _still_plain(staged: Staged, plain: Mapping[Name, int]) -> dict[Name, int]:
    """Return which tensors stay plain, each for how many saves: no grid holds them, or none did until lately.

    To set a tensor on a new grid takes all of its bytes: what comes and goes would be set each time.
    """
    if not plain:
        return {}
    tensors = zip(staged.flat.tensors, staged.arrays, strict=True)
    here = ((name, array) for (name, _), array in tensors if name in plain)
    left = {name: plain[name] - 1 if _fits(array) else _FINITE_SAVES for name, array in here}
    return {name: saves for name, saves in left.items() if saves}


def _fits(array: Array) -> bool:
    """Return whether there is a grid for a flat tensor, or it is all zeros."""
    name = dtype_name(array.dtype)
    if name not in LOSSY_DTYPES:  # it was one of weights before
        return False
    magnitude = largest(array)
    return magnitude == 0 or exponent_of(magnitude, name) is not None
