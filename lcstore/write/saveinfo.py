"""What `save` tells: plain data about one node, and how long it took."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from lcstore.edges.algebra import sets_weights
from lcstore.graph.refs import ROOT, NodeName
from lcstore.index.info import StepInfo
from lcstore.staging.stage import Staged
from lcstore.state.names import format_name
from lcstore.units import counted
from lcstore.write.commit import Commit


@dataclass(frozen=True)
class SaveInfo:
    """What a save did.

    Attributes
    ----------
    step, node, base
        The step, the new node's id, and the node that it is a delta to (None for an anchor).
    kind
        ``"anchor"`` or ``"delta"``; ``"skipped"`` where the state had moved too little to be saved, and
        `node` is the one saved last.
    exact
        Whether every bit of the state comes back.
    bytes_raw
        Bytes of the state's tensors in memory.
    bytes_stored
        Bytes of everything that was written for it: chunks, metadata, its record, a new layout, parity,
        second copies, and `bytes_beside`. Marks such as tags are not counted.
    objects
        Objects written; 0 of a save that was interrupted when its state was there.
    error
        How far the weights that come back are off, in checkpoint intervals, estimated on samples. None for an
        anchor, and for an exact state.
    lag
        The part of the track's error along the last update, estimated on samples. None for an anchor.
    seconds
        Wall time by phase. ``flatten``: naming the tensors. ``code``: coding them, while chunks go out.
        ``commit``: the last chunks, the record, and the look around. ``total``: all of it.
    bytes_protection
        Of `bytes_stored`: parity, and second copies of what is read first.
    bytes_beside
        Of `bytes_stored`: an anchor that the save added beside the state. `StepInfo` and `lcstore ls` leave
        it out, as it is an edge of its own.
    set_anew
        How many tensors of weights a delta sets whole: new ones, such as moved too far for a delta, and such
        as are laid out afresh, since most beside them went. They take as many bytes as in an anchor.
        `Snapshot.set_anew` names them.
    row_error, row_error_at
        The largest relative error ``|u - u~| / |u|`` of a row of weights, and the name of its tensor. A save
        looks at a part of the rows only; see ``docs/rows.md``. None for an anchor and an exact state, where
        nothing moved, and where the policy has no `row_error`.
    """

    step: int
    node: str
    base: str | None
    kind: Literal["anchor", "delta", "skipped"]
    exact: bool
    bytes_raw: int
    bytes_stored: int
    objects: int
    error: float | None
    lag: float | None
    seconds: dict[str, float] = field(default_factory=dict)
    row_error: float | None = None
    row_error_at: str | None = None
    bytes_protection: int = 0
    bytes_beside: int = 0
    set_anew: int = 0

    def __str__(self) -> str:
        """Return one line for a log."""
        if self.kind == "skipped":
            return f"nothing for step {self.step}: it has hardly moved since node {self.node}"
        error = "" if self.error is None else f", error {self.error:.2f}"
        own = self.bytes_stored - self.bytes_beside
        anew = f", {counted(self.set_anew, 'tensor')} set anew" if self.set_anew else ""
        beside = f", and an anchor beside it, {self.bytes_beside:,} bytes" if self.bytes_beside else ""
        return (
            f"step {self.step}, node {self.node}: {self.kind}, {own:,} bytes for {self.bytes_raw:,} "
            f"({self.bytes_raw / max(own, 1):.1f}x{error}){anew}{beside}, in {self.seconds['total']:.2f} s"
        )

    @property
    def ratio(self) -> float:
        """Raw bytes per stored byte."""
        return self.bytes_raw / max(self.bytes_stored, 1)


def phases(started: float, flattened: float, coded: float, ended: float) -> dict[str, float]:
    """Return how long each phase of a save took, given the moments between them."""
    return {
        "flatten": flattened - started,
        "code": coded - flattened,
        "commit": ended - coded,
        "total": ended - started,
    }


def saved(commit: Commit, seconds: dict[str, float]) -> SaveInfo:
    """Return what is said of a save."""
    record, write = commit.record, commit.write
    exact = bool(record.stats["exact"])
    worst = None if exact else write.worst
    return SaveInfo(
        step=record.step,
        node=commit.name.node,
        base=None if write.base is None else write.base.node,
        kind="anchor" if write.base is None else "delta",
        exact=exact,
        bytes_raw=int(record.stats["bytes_raw"]),
        bytes_stored=write.written.nbytes,
        objects=write.written.objects,
        error=None if exact else record.stats.get("error"),
        lag=float(write.lag) if math.isfinite(write.lag) else None,
        seconds=seconds,
        row_error=None if worst is None else worst[0],
        row_error_at=None if worst is None else format_name(worst[1]),
        bytes_protection=write.written.protection,
        set_anew=0 if write.base is None else len(sets_weights(write.draft.columns.op, write.draft.layout)),
    )


def saved_of(info: StepInfo, seconds: float) -> SaveInfo:
    """Return what is said of a save that was interrupted when its state was there, by what is recorded."""
    return SaveInfo(
        step=info.step,
        node=info.node,
        base=info.base,
        kind=info.kind,
        exact=info.exact,
        bytes_raw=info.bytes_raw,
        bytes_stored=info.bytes_stored,
        objects=0,
        error=info.error,
        lag=None,
        seconds={"total": seconds},
        row_error=info.row_error,
        bytes_protection=info.bytes_parity,
    )


def skipped(head: NodeName, staged: Staged, seconds: float) -> SaveInfo:
    """Return what is said of a state that is not saved, as it is about the one saved last."""
    return SaveInfo(
        step=staged.step,
        node=head.node,
        base=None if head.base == ROOT else head.base,
        kind="skipped",
        exact=False,
        bytes_raw=staged.nbytes,
        bytes_stored=0,
        objects=0,
        error=None,
        lag=None,
        seconds={"total": seconds},
    )
