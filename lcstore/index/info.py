"""What `save` and `info` tell: plain data about one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lcstore.format.records import NodeRecord


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
    bytes_raw, bytes_stored
        Of the state's tensors, and of everything written for it: chunks, metadata, records, a new layout.
    objects
        Objects written.
    error, lag
        Tracking error of the weights in checkpoint intervals, and the part of it along the last update,
        estimated on samples; None for an anchor.
    seconds
        Wall time by phase: ``flatten``, ``code`` (with writing the chunks), ``commit``, ``total``.
    row_error, row_error_at
        The largest relative error ``|u - u~| / |u|`` among the rows of weights that were looked at for it,
        and the path of their tensor. Looked at are one in eight tensors in turn and the two that come
        nearest to the bound: in each the smallest rows, 2,048 elements of them, and as many rows in turn (all
        rows of a tensor of up to 4,096 elements). None for an anchor, where nothing moved, and where the
        policy has no `row_error`.
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

    @property
    def ratio(self) -> float:
        """Raw bytes per stored byte."""
        return self.bytes_raw / max(self.bytes_stored, 1)


@dataclass(frozen=True)
class StepInfo:
    """What a node's record says.

    Attributes
    ----------
    step, node, base, kind, exact, bytes_raw, bytes_stored, error, row_error
        As in `SaveInfo` (`bytes_stored` counts the objects of its edge and exact value).
    run, run_id, seq
        Number and random name of the writing handle, and the place of this commit in it.
    created
        When, by the writer's clock (ISO 8601, UTC).
    tensors
        Number of tensors.
    metrics, metadata, tags
        As given to `save`.
    """

    step: int
    node: str
    base: str | None
    kind: Literal["anchor", "delta"]
    exact: bool
    bytes_raw: int
    bytes_stored: int
    error: float | None
    run: int
    run_id: str
    seq: int
    created: str
    tensors: int
    metrics: dict[str, float]
    metadata: dict[str, object]
    tags: tuple[str, ...]
    row_error: float | None = None


def step_info(node: str, record: NodeRecord) -> StepInfo:
    """Return what a node's record says."""
    anchor = record.edge.base == "root"
    exact = record.exact.nbytes if record.exact is not None else 0
    error, row_error = record.stats.get("error"), record.stats.get("row_error")
    return StepInfo(
        step=record.step,
        node=node,
        base=None if anchor else record.edge.base,
        kind="anchor" if anchor else "delta",
        exact=bool(record.stats.get("exact", 0)),
        bytes_raw=int(record.stats.get("bytes_raw", 0)),
        bytes_stored=record.edge.nbytes + exact,
        error=None if error is None else float(error),
        run=record.run,
        run_id=record.run_id,
        seq=record.seq,
        created=record.created,
        tensors=int(record.stats.get("tensors", 0)),
        metrics=dict(record.metrics),
        metadata=dict(record.metadata),
        tags=record.tags,
        row_error=None if row_error is None else float(row_error),
    )


def phases(started: float, flattened: float, coded: float, ended: float) -> dict[str, float]:
    """Return how long each phase of a save took, given the moments between them."""
    return {
        "flatten": flattened - started,
        "code": coded - flattened,
        "commit": ended - coded,
        "total": ended - started,
    }
