"""From what a user calls a state to a snapshot of it; and on to an earlier one where that is damaged."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar, get_args

from lcstore.errors import (
    BesideWarning,
    CorruptionError,
    FallbackWarning,
    LcstoreError,
    LimitError,
    NotFoundError,
    UnsupportedFormatError,
)
from lcstore.format.labels import At, OnCorrupt, check_at, check_choice, split_best
from lcstore.graph.lines import backwards, line_to, predecessors, up_to
from lcstore.graph.refs import NodeName
from lcstore.index.marked import Situation
from lcstore.read.metrics import best
from lcstore.read.reader import Reader
from lcstore.read.snapshot import Snapshot
from lcstore.units import counted
from lcstore.warned import warn

T = TypeVar("T")

#: What makes one state unreadable, and says nothing of others.
_UNREADABLE: Final = (CorruptionError, LimitError, UnsupportedFormatError)
#: Before what is wrong is told, so many earlier states are tried, to say which can be read.
_LOOKED_AT: Final = 16
#: How often a state is resolved anew when maintenance changed what is there meanwhile.
_TRIES: Final = 4


def named(reader: Reader, at: At, run: int | str | None = None) -> NodeName:
    """Return the node that a user means, as of the last listing.

    Parameters
    ----------
    reader
        What reads. The best state by a metric is looked for with a listing of its own.
    at
        A step (its newest revision), ``"latest"`` or None, ``"best:loss"``, a tag, or a node's id, or 8
        characters of it or more.
    run
        Look only at the states of this run number or run id.

    Raises
    ------
    NotFoundError
        There is no such state.
    """
    at = check_at(at)
    by = split_best(at)
    return reader.index.resolve(at, run) if by is None else best(reader, *by, run)


def find(
    reader: Reader, at: At, use: Callable[[Snapshot], T], *, listed: bool = False, tried: bool = False
) -> T:
    """Return what `use` makes of a state.

    It is resolved anew where what it was resolved to is gone meanwhile: the whole node, or its exact value.

    Parameters
    ----------
    reader, at, use
        What reads, what a user calls the state, and what is to be made of it.
    listed
        Whether a listing was just taken.
    tried
        Whether the state is one of several that are tried. Errors do not say then what else can be read.

    Raises
    ------
    NotFoundError
        There is no such state.
    CorruptionError
        What is stored is not what was committed.
    """
    failed: tuple[NotFoundError, str, Situation] | None = None
    left = _TRIES
    while True:
        left -= 1
        if not listed or failed is not None:
            reader.listed()
        name = named(reader, at)
        situation = reader.index.situation(name.node)
        if failed is not None and (left <= 0 or failed[1:] == (name.node, situation)):
            raise failed[0]
        try:
            return use(Snapshot(reader, name, tried=tried))
        except NotFoundError as error:
            failed = error, name.node, situation


def snapshot_at(reader: Reader, at: At, *, listed: bool = False) -> Snapshot:
    """Return a state of which the record and the layout are read; errors as for `find`."""

    def loaded(snapshot: Snapshot) -> Snapshot:
        snapshot.using(lambda state: state.node)
        return snapshot

    return find(reader, at, loaded, listed=listed)


def find_whole(reader: Reader, at: At, use: Callable[[Snapshot], T], on_corrupt: OnCorrupt) -> T:
    """Return what `use` makes of a state, or of the newest earlier one that can be read (`FallbackWarning`).

    Raises
    ------
    CorruptionError, LimitError, UnsupportedFormatError
        Why the state cannot be read.
    """
    check_choice("on_corrupt", on_corrupt, get_args(OnCorrupt))
    reader.listed()  # what cannot be listed says nothing of any state
    try:
        return find(reader, at, use, listed=True)
    except (*_UNREADABLE, NotFoundError) as error:
        damage = error
    if on_corrupt == "raise":
        if isinstance(damage, CorruptionError):
            damage.message += f"; {_newest_readable(reader, at, use)}"
        raise damage
    lost = named(reader, at)
    # A repair lets go of what is damaged of a state: it is found, and not whole.
    if isinstance(damage, NotFoundError) and lost.node not in reader.index.marks.stripped:
        raise damage
    for back, name in enumerate(_earlier(reader, at, lost), 1):
        try:
            found = find(reader, name.node, use, tried=True)
        except (*_UNREADABLE, NotFoundError):
            continue
        of = "" if name.run_id == lost.run_id else f" of run {name.run} ({name.run_id})"
        instead = f"this is step {name.step}{of}, {counted(back, 'save')} before"
        warn(f"step {lost.step} cannot be read ({damage}): {instead}", FallbackWarning)
        return found
    raise damage


def warn_of_later(reader: Reader, taken: NodeName) -> None:
    """Warn where the state taken for the latest may not be the one that is meant (`BesideWarning`).

    Another run was at work beside it: it saved after the first state of that run, so the two went on at the
    same time. Or that run went on from an earlier state of a line that has come further, as an experiment
    does. Which of them is meant only people know.
    """
    graph = reader.index.graph
    if reader.index.own_run is not None or taken != graph.latest():
        return  # it was not taken for the latest: it is the own one, or stands in for one that is damaged
    shown = sorted(graph.shown(), key=lambda name: name.order)
    ends = {name.run_id: name for name in shown}
    # What this line went on from, or a rewind left behind, is no line beside it.
    over = up_to(graph, reader.index.marks.superseded)
    others = [end for end in ends.values() if end.run_id != taken.run_id and end.node not in over]
    if not others:
        return
    line = predecessors(graph)
    before = {*backwards(line, taken.node)}
    others = [end for end in others if end.node not in before]
    newest = sorted(others, key=lambda name: name.order)[-_LOOKED_AT:]
    if not newest:
        return
    first = next((name for name in shown if name.run_id == taken.run_id), taken)
    with suppress(LcstoreError):
        names = [first, taken, *newest]
        records = reader.index.records([name.node for name in names], reader.requests)
        began, saved, *times = [record.created for record in records]
        last, other = max(zip(times, newest, strict=True), key=lambda found: found[0])
        if last > began:
            warn(
                f"this is step {taken.step} of run {taken.run} ({taken.run_id}, {saved[:19]}). Run "
                f"{other.run} ({other.run_id}) was at work beside it, and saved step {other.step} "
                f"{_when(last, saved)} ({last[:19]}): to go on from there, say run={other.run_id!r}, or name "
                f"that state, {other.node!r}",
                BesideWarning,
            )
            return
    ahead = [name for name in newest if name.step > taken.step]
    left = [name for name in ahead if any(node in before for node in backwards(line, name.node))]
    if left:
        further = max(left, key=lambda name: name.step)
        warn(
            f"this is step {taken.step} of run {taken.run} ({taken.run_id}), and run {further.run} had come "
            f"to step {further.step} from where it began: to go on from there, say run={further.run_id!r}. "
            "The one that is not to go on is let go of by `lcstore retire URL --run RUN`",
            BesideWarning,
        )


def _when(time: str, other: str) -> str:
    return "after that" if time > other else "before that"


def _newest_readable(reader: Reader, at: At, use: Callable[[Snapshot], object]) -> str:
    """Return a sentence that says which state before one can be read, for the message that it cannot."""
    try:
        reader.listed()
        lost = named(reader, at)
    except _UNREADABLE:
        return f"what there is cannot be listed: run `lcstore verify {reader.url}`"
    before = _earlier(reader, at, lost)
    earlier = before[:_LOOKED_AT]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for back, name in enumerate(earlier, 1):
            with suppress(*_UNREADABLE, NotFoundError):
                find(reader, name.node, use, tried=True)
                there = f"step {name.step}, {counted(back, 'save')} before"
                return f"{there}, can be read: on_corrupt='previous' takes it"
    if len(earlier) < len(before):
        return f"nor can the {len(earlier)} newest before it: on_corrupt='previous' looks further back"
    return f"nor can any of the {len(before)} before it be read" if before else "none was saved before it"


def _earlier(reader: Reader, at: At, lost: NodeName) -> list[NodeName]:
    """Return the states that may take the place of one, those first that training came through to it.

    Of a state that was named by its id, or as one of a run, no state of another line may.
    """
    graph = reader.index.graph
    line = [name for name in reversed(line_to(graph, lost.node)) if name != lost]
    if isinstance(at, str) and len(at) > 7 and lost.node.startswith(at):
        return line
    others = {name for name in graph.shown() if name.order < lost.order}.difference(line)
    return line + sorted(others, key=lambda name: name.order, reverse=True)
