"""The words of the graph: what a name says about a node or an edge before its record is read.

Names are hints, records verify. So nothing here is trusted further than a wrong answer that a record refutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lcstore.errors import CorruptionError

#: The base of an anchor: the empty state.
ROOT: Final = "root"

#: The id of an edge that is only planned.
PLANNED: Final = ""

#: What an edge costs besides its bytes: about what a bucket reads in the time of one round trip.
EDGE_COST: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class NodeName:
    """A committed state, and the edge that it was saved with.

    Attributes
    ----------
    step
        The training step, an attribute: two nodes of one step are revisions of it.
    run, run_id, seq
        The number of the writing handle, its random name (which tells two handles of one number apart), and
        the place of the commit among those of the handle.
    node
        The node's id.
    base
        Where its own edge comes from: the id of a node, or `ROOT`.
    nbytes
        Bytes that every path over its own edge reads. (What each edge sets anew is read once, whatever the
        path, and not counted.)
    """

    step: int
    run: int
    run_id: str
    seq: int
    node: str
    base: str
    nbytes: int

    @property
    def order(self) -> tuple[int, int, str]:
        """What decides which of two nodes is later. Not the step: a run that was rolled back is later.

        A handle counts on from the commits that it sees when it begins a run or resumes. So what follows on
        something is later, and so is a run that was begun after the other one's commits.
        """
        return (self.seq, self.run, self.node)

    @property
    def ref(self) -> EdgeRef:
        """Its own edge, as paths name it."""
        return EdgeRef(self.base, self.node, None, self.nbytes)


@dataclass(frozen=True, slots=True)
class EdgeName:
    """An edge that maintenance added: a shortcut, or an anchor where `base` is `ROOT`."""

    target: str
    base: str
    edge: str
    nbytes: int

    @property
    def ref(self) -> EdgeRef:
        """The edge, as paths name it."""
        return EdgeRef(self.base, self.target, self.edge, self.nbytes)


@dataclass(frozen=True, slots=True)
class EdgeRef:
    """One edge of a path.

    Attributes
    ----------
    base, target
        Ids of nodes, or `ROOT`.
    edge
        The edge's id; None for the edge that the target was saved with.
    nbytes
        Bytes that every path over the edge reads.
    backward
        Whether the path goes from the target to the base.
    """

    base: str
    target: str
    edge: str | None
    nbytes: int
    backward: bool = False

    @property
    def end(self) -> str:
        """Where a path over it comes to."""
        return self.base if self.backward else self.target

    @property
    def is_planned(self) -> bool:
        """Whether the edge is only planned."""
        return self.edge == PLANNED

    @property
    def rank(self) -> tuple[str, str]:
        """What decides between edges of one cost into one node: its own edge first, then the smaller id."""
        return (self.edge or "", self.base)


def check_size(nbytes: int, name: str) -> None:
    """Raise `CorruptionError` if the size that a name claims is negative."""
    if nbytes < 0:
        raise CorruptionError(f"the name of {name} claims {nbytes} bytes")
