"""Walks and histories: one listing, then state after state along the edges between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from lcstore.errors import CorruptionError, InvalidInputError, NotFoundError
from lcstore.format.labels import At, Run, check_at, check_choice
from lcstore.graph.lines import line_to
from lcstore.graph.refs import NodeName
from lcstore.index.resolve import check_run
from lcstore.layout.layout import Layout
from lcstore.read.convert import shaped, tree_of
from lcstore.read.find import find, named
from lcstore.read.lookup import Wanted, absent, as_name, tensors_at
from lcstore.read.node import Node
from lcstore.read.reader import Reader
from lcstore.state.frameworks import TARGETS
from lcstore.state.names import Name, format_name
from lcstore.state.tree import MISSING, Selection
from lcstore.walks.oneline import tell_of_lines
from lcstore.walks.walker import Walker

T = TypeVar("T")

#: What a walk is over unless it is told.
MODEL: Final = "model/**"


@dataclass(frozen=True)
class Stops:
    """The states that a walk visits.

    Attributes
    ----------
    names
        In the order of the walk.
    listed
        Whether the caller named each of them, and misses what is not there.
    """

    names: list[NodeName]
    listed: bool


def stops(
    reader: Reader,
    steps: Iterable[At] | None,
    *,
    run: Run = None,
    line: At = None,
    reverse: bool = False,
) -> Stops:
    """Return the states that a user means by `steps`: None for all, a range, or a list.

    Parameters
    ----------
    reader, steps, reverse
        As for `Store.walk`.
    run, line
        Only those of one run; only those that training went through up to a state.

    Raises
    ------
    NotFoundError
        One of a list is not there, or there is no such run, or no state `line`, or no state at all.
    InvalidInputError
        It is none of these.
    """
    graph = reader.listed()
    if graph.latest() is None:
        named(reader, None)  # raises what a restore does, of no store or of one without a state
    check_run(graph, reader.url, run)
    ranged = steps is None or isinstance(steps, range)
    if not ranged and (not isinstance(steps, Iterable) or isinstance(steps, str | bytes)):
        raise InvalidInputError(f"steps is a range, a list of steps, or None for all, not {steps!r:.100}")
    if line is not None:
        last = named(reader, line, run)
        there = {name.step: name for name in line_to(graph, last.node)}
    elif ranged:
        there = {step: name for step in graph.steps(run) if (name := graph.at_step(step, run)) is not None}
    if isinstance(steps, range):
        names = [there[step] for step in sorted(there, reverse=steps.step < 0) if step in steps]
    elif steps is None:
        names = [there[step] for step in sorted(there)]
    elif line is None:
        asked = [*steps]
        names = [named(reader, at, run) for at in asked]
    else:
        names = [_in_line(reader, at, there, last) for at in steps]
    if run is None and line is None:
        # Whoever names a state by its id, or a tag, knows of what line it is.
        by_step = (
            names if ranged else [name for name, at in zip(names, asked, strict=True) if at == name.step]
        )
        tell_of_lines(reader, by_step)
    return Stops(names[::-1] if reverse else names, not ranged)


def _in_line(reader: Reader, at: At, there: Mapping[int, NodeName], last: NodeName) -> NodeName:
    """Return the state of a line that a user names."""
    at = check_at(at)
    found = there.get(at) if isinstance(at, int) else named(reader, at)
    if found is None or there.get(found.step) != found:
        raise NotFoundError(
            f"state {at!r:.100} is not among the {len(there)} that led to step {last.step} "
            f"(node {last.node}): leave `line` out, or name a state after it",
            missing="state",
        )
    return found


class Walk(Iterator[tuple[int, T]]):
    """An iterator of step after step; see `Store.walk` and `Store.history`.

    States that are not there any more when their turn comes are passed over, unless the caller named them.

    Parameters
    ----------
    walker, stops
        What reads, and where it goes.
    choose
        Says which tensors of a state are wanted.
    use
        Makes of a state what is given; `MISSING` passes over it.
    end
        Is called when all states were visited, with the number of those given; may raise `NotFoundError`.
    holds_back
        Says of what is given whether it is nothing. As long as all is nothing, it is given after `end`: a
        name that matches nothing anywhere is told before a caller looks for it in vain.
    """

    def __init__(
        self,
        walker: Walker,
        stops: Stops,
        choose: Callable[[Node], Sequence[int]],
        use: Callable[[Node], T],
        end: Callable[[int], object],
        holds_back: Callable[[T], bool] = lambda _: False,
    ) -> None:
        self._walker = walker
        self._holds_back = holds_back
        self._choose = choose
        self._use = use
        self._end = end
        self._steps = self._run(stops)

    @property
    def edges_applied(self) -> int:
        """How many edges were added, taken back or composed for tensors of weights so far."""
        return self._walker.edges_applied

    def __next__(self) -> tuple[int, T]:
        return next(self._steps)

    def _run(self, stops: Stops) -> Iterator[tuple[int, T]]:
        given, held = 0, list[tuple[int, T]]()
        for place, name in enumerate(stops.names):
            self._walker.goes_on = place + 1 < len(stops.names)
            try:
                found = self._read(name)
            except NotFoundError:
                if stops.listed or self._walker.has(name):
                    raise
                continue
            self._walker.expect(stops.names, place + 1, self._choose)
            if found is MISSING:
                continue
            given += 1
            held.append((name.step, found))
            if given > len(held) or not self._holds_back(found):
                yield from held
                held.clear()
        self._end(given)
        yield from held

    def _read(self, name: NodeName) -> T:
        reader = self._walker.reader
        reader.check_open()
        try:
            return self._use(self._walker.node(name))
        except CorruptionError:
            return find(reader, name.node, lambda snapshot: snapshot.using(lambda at: self._anew(at.node)))

    def _anew(self, node: Node) -> T:
        self._walker.forget()
        return self._use(node)


def history(
    reader: Reader,
    name: str | Name,
    steps: Iterable[At] | None,
    *,
    run: Run = None,
    line: At = None,
    to: str = "saved",
) -> Walk[Any]:
    """Return a walk that gives one tensor or plain value step after step; see `Store.history`."""
    check_choice("to", to, TARGETS)
    where = as_name(name)
    visited = stops(reader, steps, run=run, line=line)
    walker = Walker(reader)

    def use(node: Node) -> Any:
        tensor = node.layout.named.get(where)
        if tensor is None:
            leaf = node.leaf_places.get(where)
            if leaf is not None:
                return reader.leaves(node)[leaf]
            if visited.listed:
                raise absent(format_name(where), [node], reader.url)
            return MISSING
        if not visited.listed and any(map(node.has_let_go, node.layout.shards[tensor])):
            return MISSING
        return shaped(walker.values(node, [tensor])[tensor], node.layout.wholes[tensor], None, to)

    def end(given: int) -> None:
        if visited.names and not given:
            last = absent(format_name(where), [walker.node(visited.names[-1])], reader.url)
            said = f"none of these {len(visited.names)} states has it: {last.message}"
            raise NotFoundError(said, missing=last.missing)

    return Walk(walker, visited, partial(tensors_at, name=where), use, end)


def walk(
    reader: Reader,
    steps: Iterable[At] | None,
    names: str | Sequence[str] | None,
    *,
    run: Run = None,
    line: At = None,
    reverse: bool,
    to: str,
) -> Walk[Any]:
    """Return a walk that gives a part of the state step after step; see `Store.walk`."""
    check_choice("to", to, TARGETS)
    wanted = Wanted(names)
    visited = stops(reader, steps, run=run, line=line, reverse=reverse)
    walker = Walker(reader)
    last: list[tuple[Node, Layout, Selection]] = []

    def part(node: Node) -> Selection:
        if not last or last[0][1] is not node.layout:
            last[:] = [(node, node.layout, wanted.part(node))]
        return last[0][2]

    def use(node: Node) -> Any:
        chosen = part(node)
        values = walker.values(node, chosen.tensors)
        return tree_of(node, chosen, values, reader.leaves(node) if chosen.leaves else (), to=to)

    def end(_: int) -> None:
        try:
            wanted.check([node for node, _, _ in last], reader.url)
        except NotFoundError as error:
            if names == MODEL:
                error.message += f"; names= says what a walk is over, which is {MODEL!r} unless it is given"
            raise

    return Walk(walker, visited, lambda node: part(node).tensors, use, end, lambda tree: tree == {})
