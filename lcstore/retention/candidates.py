"""What a retention rule knows of a committed state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from lcstore.errors import InvalidInputError

#: Why a state stays that training can go back to.
BEFORE_NOT_FINITE: Final = "last before values that are not finite"

#: Why a state stays that a run would go on from.
LATEST_OF_ITS_RUN: Final = "latest of its run"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A committed state that a retention rule decides about.

    Attributes
    ----------
    node
        The node's id.
    step
        The training step; several candidates of one step are revisions of it.
    run, run_id, seq
        The number of the writing handle, its random name, and the place of the commit among those of the
        handle.
    created
        When, by the writer's clock: seconds since 1970 (UTC), or a `datetime` that knows its time zone.
    metrics
        As given to `save`.
    tags
        Names to find the state by.
    pinned
        Whether it is never to be touched.
    nbytes
        Stored bytes of its own edge.
    anchor_bytes
        Stored bytes that an anchor of this state takes or would take; None where nobody knows.
    exact
        Whether it has an exact value that has not been let go.
    exact_bytes
        Stored bytes of that value besides those of its edge, in which an anchor has its own.
    superseded
        Whether its run went on from an earlier state: then it is not kept for being the latest.
    finite_before
        Of the latest of a run, where its weights are not finite: the nearest state that training came to it
        from in which they are. None where there is none, and of all others.
    """

    node: str
    step: int
    run: int
    run_id: str
    seq: int
    created: float | datetime = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    tags: frozenset[str] = frozenset()
    pinned: bool = False
    nbytes: int = 0
    anchor_bytes: int | None = None
    exact: bool = True
    exact_bytes: int = 0
    superseded: bool = False
    finite_before: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.created, datetime):
            if self.created.tzinfo is None:
                raise InvalidInputError(f"the time of node {self.node} has no time zone: {self.created}")
        elif not math.isfinite(self.created):
            raise InvalidInputError(f"the time of node {self.node} is {self.created}")
        if self.step < 0 or self.nbytes < 0 or self.exact_bytes < 0:
            raise InvalidInputError(f"step and bytes of node {self.node} count up from 0")

    @property
    def order(self) -> tuple[int, int, str]:
        """What decides which of two candidates is later, as for nodes of the graph."""
        return (self.seq, self.run, self.node)

    @property
    def seconds(self) -> float:
        """When it was created, in seconds since 1970 (UTC)."""
        return self.created.timestamp() if isinstance(self.created, datetime) else self.created


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates as they were committed, the latest last; each node may be there once."""
    found = sorted(candidates, key=lambda item: item.order)
    if len({item.node for item in found}) != len(found):
        raise InvalidInputError("a node is among the candidates twice")
    return found


def tips(candidates: Iterable[Candidate]) -> set[str]:
    """Return the latest node of every writing handle that none superseded, given those in order of commit."""
    latest = {(item.run, item.run_id): item for item in candidates}
    return {item.node for item in latest.values() if not item.superseded}


def stays_anyway(candidates: Sequence[Candidate]) -> dict[str, list[str]]:
    """Return why nodes stay that runs can go on from, given the candidates in order of commit."""
    latest = tips(candidates)
    last = {item.finite_before for item in candidates if item.node in latest}
    found = {item.node: [BEFORE_NOT_FINITE] for item in candidates if item.node in last}
    return found | {node: [LATEST_OF_ITS_RUN] for node in latest}
