"""Everything that a report shows, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lcstore.check.findings import VerifyReport
    from lcstore.maintain.sizing import Forecast
    from lcstore.read.statistics import Stats
    from lcstore.store.costs import RestoreCosts

#: What the bytes of a save are for, in the order in which they are shown.
ROLES: Final = {
    "weights": "weights",
    "first_moment": "first moments",
    "second_moment": "second moments",
    "plain": "plain tensors and values",
    "exact": "exact values",
    "parity": "parity",
    "records": "records and copies",
}


@dataclass(frozen=True)
class SavedState:
    """One state, as its record says.

    Attributes
    ----------
    step, node, run, run_id, seq, kind, created, error, metrics
        As in `StepInfo`.
    bytes_raw
        Of its tensors.
    bytes_stored
        By what they are for: see `ROLES`.
    retired
        Whether it was let go of, and is still there.
    line
        The id of the run with which the line of training began that it lies on: runs that went on from one
        another are one line.
    not_finite, moments_not_finite
        How many tensors of weights, and how many moments, hold NaN or infinities.
    began_anew
        What its optimizer had counted of steps, and the state before, if that is more; else None.
    """

    step: int
    node: str
    run: int
    run_id: str
    seq: int
    kind: str
    created: str
    bytes_raw: int
    bytes_stored: dict[str, int]
    error: float | None
    metrics: dict[str, float]
    retired: bool = False
    line: str = ""
    not_finite: int = 0
    moments_not_finite: int = 0
    began_anew: tuple[float, float] | None = None

    @property
    def total(self) -> int:
        """All bytes that were stored with it."""
        return sum(self.bytes_stored.values())

    @property
    def is_anchor(self) -> bool:
        """Whether it needs no other state."""
        return self.kind == "anchor"


@dataclass(frozen=True)
class TensorFacts:
    """One tensor along the line of states that leads to the latest one.

    Attributes
    ----------
    name, role, shape, dtype, bytes_raw
        As in the last state of the line that has it.
    bytes_delta
        Mean of the bytes that a delta stores of it; of tensors that share a chunk, by their elements. None
        where no delta has it.
    movement
        By the states of `TensorsSeen.steps`: the root mean square of an update, as a part of the largest
        weight (to a power of two) an eighth into these states. 0: it did not move. None: it is not known, as
        of an anchor.
    error
        By the same: the tracking error that its step size stands for, in checkpoint intervals.
    note
        What stands out; "" where nothing does.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    bytes_raw: int
    bytes_delta: float | None
    movement: tuple[float | None, ...] = ()
    error: tuple[float | None, ...] = ()
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times fewer bytes a delta takes than the tensor has; None where that is not known."""
        return self.bytes_raw / self.bytes_delta if self.bytes_delta else None


@dataclass(frozen=True)
class TensorGroup:
    """Tensors of one role whose names differ in numbers alone, as those of layers that are built alike.

    Attributes
    ----------
    pattern
        Their names with ``*`` in the place of each number.
    role
        As in `TensorFacts`.
    count, notable
        How many there are, and how many of them stand out.
    bytes_raw, bytes_delta
        Of all of them; the latter None where no delta has any.
    """

    pattern: str
    role: str
    count: int
    notable: int
    bytes_raw: int
    bytes_delta: float | None

    @property
    def ratio(self) -> float | None:
        """How many times fewer bytes deltas take than the tensors have; None where that is not known."""
        return self.bytes_raw / self.bytes_delta if self.bytes_delta else None


@dataclass(frozen=True)
class SharedNote:
    """What stands out of one tensor, or of several alike.

    Attributes
    ----------
    text
        What it is: of several with the least and the most of what differs among them.
    count, names
        Of how many it is said, and the names of the first of them.
    steps
        Of the first states at which something is otherwise, in the order of the text; of several tensors the
        least. Compare each with the state before it.
    """

    text: str
    count: int
    names: tuple[str, ...]
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class TensorsSeen:
    """The tensors of a store.

    Attributes
    ----------
    steps
        Of the states that are shown, along the line that leads to the latest one, or the latest of a run.
    states, looked
        How many states that line has, and at how many of them it was looked for what stands out.
    tensors
        The largest ones and those that stand out, in the order of the state.
    left_out, bytes_left_out
        How many there are besides, and their bytes.
    groups
        All tensors by what they are alike in, those of most bytes first.
    noted
        Places among `tensors` of those that stand out. What most of them did comes last; of the rest what
        stopped being finite first comes first, and then what happened first.
    notes
        What is said of all that stand out, in the same order; of those that are alike it is said once.
    leap, leap_step
        From which step on most layers move far further than shortly before: in words, "" where none is; and
        that step, or None.
    run, run_id
        Of the state that the line leads to.
    beside
        How many runs there are of which the latest state lies on no part of this line.
    """

    steps: tuple[int, ...] = ()
    states: int = 0
    looked: int = 0
    tensors: tuple[TensorFacts, ...] = field(default=(), repr=False)
    left_out: int = 0
    bytes_left_out: int = 0
    groups: tuple[TensorGroup, ...] = field(default=(), repr=False)
    noted: tuple[int, ...] = field(default=(), repr=False)
    notes: tuple[SharedNote, ...] = field(default=(), repr=False)
    leap: str = ""
    leap_step: int | None = None
    run: int | None = None
    run_id: str = ""
    beside: int = 0

    @property
    def count(self) -> int:
        """How many tensors there are."""
        return len(self.tensors) + self.left_out

    @property
    def late(self) -> int:
        """How many saves a step may be late that is said of a tensor that stands out: 0 where it is exact."""
        return -(-(self.states - 1) // max(1, self.looked - 1)) - 1 if self.looked < self.states else 0

    @property
    def notable(self) -> list[TensorFacts]:
        """Those that stand out, as `noted` says."""
        return [self.tensors[place] for place in self.noted]


@dataclass(frozen=True)
class StoreReport:
    """Everything that `lcstore.write_report` shows of a store.

    Attributes
    ----------
    url, created, software
        The store, when it was looked at (ISO 8601, UTC), and by which version.
    stats
        The store in numbers.
    states
        Every state whose record can be read, in the order of their commits; those that were let go of and
        are still there too.
    tensors
        Its tensors.
    costs
        What restores read.
    verified
        Whether all is there, by records and the lengths of objects.
    forecast
        What maintenance would make of its bytes, where a compaction would add something, or states were let
        go of and nothing is condemned; None of other stores, and where damage keeps it from being known.
    """

    url: str
    created: str
    software: str
    stats: Stats
    states: tuple[SavedState, ...] = field(repr=False)
    tensors: TensorsSeen
    costs: RestoreCosts
    verified: VerifyReport
    forecast: Forecast | None = None

    @property
    def kept(self) -> list[SavedState]:
        """The states that were not let go of."""
        return [state for state in self.states if not state.retired]

    @property
    def looked_at(self) -> list[SavedState]:
        """Those of them that metrics are told of: where runs end apart, of the line that layers are of."""
        seen, states = self.tensors, self.kept
        if not seen.beside:
            return states
        line = next((state.line for state in self.states if state.run_id == seen.run_id), "")
        return [state for state in states if state.line == line]
