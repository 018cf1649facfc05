"""What `info` tells: plain data about one node."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

from lcstore.format import keys
from lcstore.format.records import NodeRecord
from lcstore.index.recorded import told_of


@dataclass(frozen=True)
class StepInfo:
    """What a node's record says.

    Attributes
    ----------
    step, node, base, kind, exact, bytes_raw, bytes_stored, error, row_error
        As in `lcstore.SaveInfo`.
    not_finite, moments_not_finite
        How many tensors of weights, and how many moments, hold NaN or infinities.
    run, run_id, seq
        Number and random name of the writing handle, and the place of this commit in it.
    created
        When it was saved, by the writer's clock (ISO 8601, UTC).
    tensors
        Number of tensors.
    metrics, metadata
        As given to `save`.
    tags
        The tags that it has now. Where nothing was listed, as in another process: those given to `save`.
    bytes_parity
        Of `bytes_stored`: what lost chunks can be rebuilt from.
    policy
        The policy that it was saved under: a preset's name, or its numbers. None where the record does not
        say.
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
    not_finite: int = 0
    moments_not_finite: int = 0
    bytes_parity: int = 0
    policy: str | None = None


def step_info(
    node: str, record: NodeRecord, nbytes: int, tags: Iterable[str] | None = None, *, inexact: bool = False
) -> StepInfo:
    """Return what a node's record, of some bytes, says.

    With the tags that it has now, if they are known; `inexact` where its exact value was let go of.
    """
    anchor = record.edge.base == "root"
    stored = sum(ref.nbytes for ref in record.objects) + int(record.stats.get("bytes_besides", 0))
    exact = bool(record.stats.get("exact", 0)) and not inexact
    # Those of a record are of the track: who is given every bit sees none of them.
    error, row_error = (None if exact else record.stats.get(name) for name in ("error", "row_error"))
    return StepInfo(
        step=record.step,
        node=node,
        base=None if anchor else record.edge.base,
        kind="anchor" if anchor else "delta",
        exact=exact,
        bytes_raw=int(record.stats.get("bytes_raw", 0)),
        bytes_stored=stored + nbytes * (1 + int(record.stats.get("record_copies", 0))),
        error=None if error is None else float(error),
        run=record.run,
        run_id=record.run_id,
        seq=record.seq,
        created=record.created,
        tensors=int(record.stats.get("tensors", 0)),
        metrics=dict(record.metrics),
        metadata=deepcopy(record.metadata),
        tags=record.tags if tags is None else tuple(sorted(tags)),
        row_error=None if row_error is None else float(row_error),
        not_finite=int(record.stats.get("not_finite", 0)),
        moments_not_finite=int(record.stats.get("moments_not_finite", 0)),
        policy=told_of(record.stats),
        bytes_parity=sum(ref.nbytes for ref in record.objects if keys.is_parity(ref.key)),
    )
