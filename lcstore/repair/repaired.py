"""What a repair says: what was lost, what it did about it, and what it could do nothing about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lcstore.check.astray import stops_a_repair, way_back
from lcstore.check.findings import Finding, Level

#: ``quarantine``: what cannot be read was set aside. ``rebuild``: what was lost or damaged was put back.
#: ``rewrite``: the store's own record was made anew. ``renew``: a mark was written again from its name.
#: ``retire``: a state, its exact value or a pool was let go of. ``unpin``: a pin was taken from a lost state.
#: ``condemn``: readers keep off an edge or array. ``anchor``: a state that sets everything itself was given a
#: path.
Deed: TypeAlias = Literal["quarantine", "rebuild", "rewrite", "renew", "retire", "unpin", "condemn", "anchor"]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that was done, or would be.

    Attributes
    ----------
    deed, key
        What, and the stored object that says so.
    message
        The same in words.
    step
        That of the state concerned, where there is one.
    """

    deed: Deed
    key: str
    message: str
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that was committed and cannot be had any more.

    Attributes
    ----------
    step, node
        The state concerned.
    what
        ``"state"``: all of it. ``"exact"``: its exact value; it is restored as its track. ``"pool.<pool>"``:
        the tensors of a pool; the rest is restored with ``names=``.
    tensors
        Paths of the tensors that are lost; empty where all are.
    names
        By what users may look for it: ``latest`` of its run, tags, pins.
    reason
        The stored object that is to blame.
    rest
        What of the state can still be read, as ``names='replay'``; "" where that is nothing. Of a state that
        is let go of as a whole it is there until a `collect`: by its step before the repair, by its node's id
        after it.
    """

    step: int
    node: str
    what: str
    tensors: tuple[str, ...]
    names: tuple[str, ...]
    reason: str
    rest: str = ""


@dataclass(frozen=True)
class RepairReport:
    """The outcome of a repair.

    Attributes
    ----------
    url, level, dry_run
        What was looked at, how thoroughly, and whether nothing was changed.
    lost
        What was lost by the damage. Of a second repair: nothing, because it is known.
    actions
        What was done, or would be, in this order.
    remaining
        Errors that a repair can do nothing about, and records of states that are lost.
    states
        How many states are left.
    latest
        The step of the latest of them; None if there is none.
    seconds
        How long it took.
    astray
        Missing objects that cannot be rebuilt, and may be there under another name: that, by key.
    """

    url: str
    level: Level
    dry_run: bool
    lost: tuple[Loss, ...]
    actions: tuple[Action, ...]
    remaining: tuple[Finding, ...]
    states: int
    latest: int | None
    seconds: float
    astray: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return one line for a log."""
        return (
            f"{'would be ' * self.dry_run}repaired: {len(self.actions)} objects mended or set aside, "
            f"{len(self.lost)} states or parts of states lost, {len(self.remaining)} errors that no repair "
            f"can mend, {self.states} states left"
        )

    @property
    def way_back(self) -> str:
        """What brings back what a repair would let go of, and may be there; "" where nothing is."""
        return way_back(self.astray) if stops_a_repair(self.astray, lost=bool(self.lost)) else ""

    @property
    def ok(self) -> bool:
        """Whether there was nothing to repair, and nothing that cannot be."""
        return not self.actions and not self.remaining
