"""Whether the states of a series are of one line of training: whoever compares steps is told if not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lcstore.errors import BesideWarning
from lcstore.graph.lines import backwards, predecessors
from lcstore.graph.refs import NodeName
from lcstore.index.resolve import runs_there
from lcstore.read.reader import Reader
from lcstore.warned import warn

#: Runs of which the message says which steps are beside the line.
_SHOWN: Final = 3


def tell_of_lines(reader: Reader, names: Iterable[NodeName]) -> None:
    """Warn where training did not go through these states one after another, once for each reader.

    Their steps alone named them, so a fork or a rewind may have left states of both lines among them. What
    follows on a state is later, so all of them led to the latest if they are of one line. It goes by names.
    """
    found = sorted(names, key=lambda name: (name.step, name.order))
    if reader.told_of_lines or len(found) < 2:
        return
    graph = reader.index.graph
    last = max(found, key=lambda name: name.order)
    beside = _beside(found, last.node, {name.node: name.base for name in [*graph.nodes.values()]})
    # Where what a state was saved upon is gone, records tell what it came from: that takes longer.
    beside = beside and _beside(found, last.node, predecessors(graph))
    if not beside:
        return
    reader.told_of_lines = True
    end = "latest" if last == reader.index.latest() else last.node
    warn(
        f"{reader.url}: {len(beside)} of these {len(found)} states are not of the line of training that led "
        f"to the latest of them, step {last.step} of run {last.run}: {_steps(beside)}. Of each step this is "
        f"the newest state, whichever run saved it. line={end!r} gives that line alone; run= the states of "
        f"one run, and run= with line='latest' those that it went on from, too. The runs there are: "
        f"{runs_there(graph)}",
        BesideWarning,
    )


def _beside(names: Sequence[NodeName], last: str, before: Mapping[str, str]) -> list[NodeName]:
    """Return which names are not among those that led to the last one, by what each came from."""
    line = {last, *backwards(before, last)}
    return [name for name in names if name.node not in line]


def _steps(names: Iterable[NodeName]) -> str:
    """Return which steps of which runs these are, given in their order."""
    runs: defaultdict[int, list[int]] = defaultdict(list)
    for name in names:
        runs[name.run].append(name.step)
    texts = [
        f"step{'s' if len(steps) > 1 else ''} {' to '.join(map(str, dict.fromkeys((steps[0], steps[-1]))))} "
        f"of run {run}"
        for run, steps in runs.items()
    ]
    return ", ".join(texts[:_SHOWN]) + ", ..." * (len(texts) > _SHOWN)
