"""Bringing back what was let go of, by a wrong rule say: until a rule lets go of it anew."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lcstore.errors import NotFoundError
from lcstore.format.markkeys import UNRETIRED, WHOLE_STATE, retired_key
from lcstore.format.marks import RetiredRecord
from lcstore.format.records import utc_now
from lcstore.graph.refs import NodeName
from lcstore.index.gone import DAMAGED, NOT_ACKNOWLEDGED, REASON_LOST
from lcstore.index.index import Index
from lcstore.index.listing import READING
from lcstore.index.standing import come_too_late
from lcstore.records.kinds import RETIRED
from lcstore.records.reading import read_each
from lcstore.storage.backend import Backend
from lcstore.units import counted
from lcstore.write.naming import pin_all, too_late_to_pin

#: What is said of states that come back by their names alone, by how the reasons begin for which they went.
_BY_NAME: Final = {
    DAMAGED: "let go of as damaged",
    NOT_ACKNOWLEDGED: "not acknowledged, and saved once more",
    REASON_LOST: "let go of for a reason that cannot be read",
}


@dataclass(frozen=True)
class Unretired:
    """A state that is brought back.

    Attributes
    ----------
    step, node
        The state.
    reason, created
        Why, and when, it was let go of last.
    """

    step: int
    node: str
    reason: str
    created: str


@dataclass(frozen=True)
class UnretireReport:
    """What is brought back of the states that were let go of.

    Attributes
    ----------
    url, dry_run
        The URL of the store, and whether nothing was changed.
    brought_back
        The states that come back, by step. The next rule decides about them anew.
    too_late
        Those that a collect has begun to take.
    notes
        What the user may want to know.
    since
        How many seconds before this they were let go of, at most; None where that does not matter.
    """

    url: str
    dry_run: bool
    brought_back: tuple[Unretired, ...]
    too_late: tuple[Unretired, ...] = ()
    notes: tuple[str, ...] = ()
    since: float | None = None

    @property
    def ok(self) -> bool:
        """Whether all came back that went since then. Of what is older some is always being collected."""
        return not self.wrong

    @property
    def wrong(self) -> str:
        """What did not come back of what went since then, in words; "" where all did."""
        late = () if self.since is None else self.too_late
        return f"too late for {counted(len(late), 'state')}: being collected" if late else ""

    def __str__(self) -> str:
        """Return one line for a log."""
        late = f", too late for {len(self.too_late)}" * bool(self.too_late)
        return f"{'would be ' * self.dry_run}brought back: {counted(len(self.brought_back), 'state')}{late}"


def unretire(
    index: Index,
    executor: Executor,
    node: str | None,
    *,
    since: float | None = None,
    dry_run: bool = False,
) -> UnretireReport:
    """Bring back one state, or all that a collect has not begun to take: until they are let go of again.

    A collector may have listed the retirements already. So none is taken away, and each state is pinned, as
    `pin` does it. Rules, and `retire`, let go of what has this pin alone.

    Parameters
    ----------
    node
        The state. None: all but those that were damaged, and those of saves that were not acknowledged.
    since
        Only what was let go of within so many seconds.

    Raises
    ------
    ConflictError
        The state that is named is being collected: too late.
    """
    backend, listing = index.backend, index.look(READING)
    names = {name.node: name for name in index.graph.nodes.values() if name.node in index.graph.hidden}
    names = names if node is None else {one: names[one] for one in (node,) if one in names}
    notes = [f"step {index.name(node).step} is not retired"] if node is not None and not names else []
    marks = [name for name in listing.retired if name.what == WHOLE_STATE and name.node in names]
    retired = _retirements(backend, map(retired_key, marks))
    if node is None:
        notes += _by_name(retired)
        retired = {one: records for one, records in retired.items() if _kind(records) is None}
    found = _found(names, retired, since)
    nodes = [one.node for one in found]
    late = come_too_late(index, nodes) if dry_run else pin_all(index, executor, nodes, UNRETIRED)
    if node in late:
        raise too_late_to_pin(backend, node)
    back = tuple(one for one in found if one.node not in late)
    parts = sum(one.node in index.marks.inexact or one.node in index.marks.stripped for one in back)
    if parts:
        notes.append(f"in part: {counted(parts, 'state')}, of which a pool or the exact value was let go of")
    gone = tuple(one for one in found if one.node in late)
    return UnretireReport(backend.url, dry_run, back, gone, tuple(notes), since)


def _retirements(backend: Backend, found: Iterable[str]) -> dict[str, list[RetiredRecord]]:
    """Return by state the records that let go of it; one that cannot be read has no reason that is known."""
    records: defaultdict[str, list[RetiredRecord]] = defaultdict(list)
    for read in read_each(backend, RETIRED, found):
        node = RETIRED.parse(read.key).node
        if isinstance(read.error, NotFoundError):  # collected since it was listed, with its state
            continue
        lost = RetiredRecord(node, REASON_LOST, utc_now())
        records[node].append(lost if read.record is None else read.record)
    return dict(records)


def _kind(records: Iterable[RetiredRecord]) -> str | None:
    """Return the reason for which a state comes back only where it is named; None if it has none of these."""
    begun = (begin for record in records for begin in _BY_NAME if record.reason.startswith(begin))
    return next(begun, None)


def _by_name(retired: Mapping[str, list[RetiredRecord]]) -> Iterator[str]:
    """Yield what stays retired, and why."""
    for kind, count in sorted(Counter(filter(None, map(_kind, retired.values()))).items()):
        yield f"by name alone, or never: {counted(count, 'state')} {_BY_NAME[kind]}"


def _found(
    names: Mapping[str, NodeName], retired: Mapping[str, list[RetiredRecord]], since: float | None
) -> list[Unretired]:
    """Return the states that were let go of within some seconds, by step."""
    last = {node: max(records, key=lambda one: one.created) for node, records in retired.items()}
    now = datetime.fromisoformat(utc_now())
    going = sorted((names[node] for node in last), key=lambda name: (name.step, name.order))
    told = ((name, last[name.node]) for name in going)
    return [
        Unretired(name.step, name.node, record.reason, record.created)
        for name, record in told
        if since is None or (now - datetime.fromisoformat(record.created)).total_seconds() <= since
    ]
