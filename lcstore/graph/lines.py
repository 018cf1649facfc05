"""Lines of training: which state each one came from, whether what lay between them is there or not."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from itertools import islice

from lcstore.graph.graph import Graph
from lcstore.graph.refs import NodeName


def predecessors(graph: Graph) -> dict[str, str]:
    """Return by node the one that training came to it from, where one is there.

    That is what it was saved upon. Where that is gone it is what a record says (`Graph.came_from`); without
    one, the latest node that another edge leads from, or that the run saved before, at a lesser step: a
    handle may have gone back.
    """
    runs: defaultdict[str, list[NodeName]] = defaultdict(list)
    found = {}
    for name in sorted(graph.nodes.values(), key=lambda name: name.order):
        before = _before(graph, name, runs[name.run_id])
        if before is not None:
            found[name.node] = before
        runs[name.run_id].append(name)
    return found


def _before(graph: Graph, name: NodeName, run: list[NodeName]) -> str | None:
    for known in (name.base, graph.came_from.get(name.node)):
        if known in graph.nodes:
            return known
    others = [graph.nodes[ref.base] for ref in graph.into(name.node) if ref.base in graph.nodes]
    others += islice((one for one in reversed(run) if one.step < name.step), 1)
    latest = max(others, key=lambda one: one.order, default=None)
    return None if latest is None else latest.node


def backwards(before: Mapping[str, str], node: str) -> Iterator[str]:
    """Yield what training came to a node from, the nearest first, by what each one came from."""
    passed = {node}
    while (last := before.get(node)) is not None and last not in passed:  # names may form circles
        yield last
        passed.add(last)
        node = last


def nearest(graph: Graph, ends: Iterable[str], wanted: Container[str]) -> dict[str, str]:
    """Return by node the nearest wanted one that training came to it from, where one is there."""
    ends = [*ends]
    before = predecessors(graph) if ends else {}
    found = {end: next((one for one in backwards(before, end) if one in wanted), None) for end in ends}
    return {end: one for end, one in found.items() if one is not None}


def ends_of_short_runs(graph: Graph, node: str, most: int) -> Iterator[NodeName]:
    """Yield the states that runs up to a node went on from, the last first, while each took few commits.

    Parameters
    ----------
    graph, node
        The last state of the last of these runs.
    most
        How many commits each of them took at the most. The places of commits tell: what is gone counts too.
    """
    end = name = graph.nodes[node]
    while (before := _before(graph, name, [])) is not None:
        after, name = name, graph.nodes[before]
        if not 0 < after.seq - name.seq <= end.seq - name.seq <= most:  # names may form circles
            return
        if name.run_id != end.run_id:
            yield name
            end = name


def line_to(graph: Graph, node: str) -> list[NodeName]:
    """Return what training went through up to a node: itself the last, without nodes that are hidden."""
    found = [node, *backwards(predecessors(graph), node)]
    return [graph.nodes[one] for one in reversed(found) if one not in graph.hidden]


def lines_of_runs(graph: Graph, superseded: Container[str] = ()) -> dict[str, str]:
    """Return by run the one with which its line of training began: itself, or one that it went on from.

    A run that goes on from the end of another continues the line of that. Forks begin lines of their own:
    what goes on from before an end. Of several that go on from one end the first continues the line where it
    took the place of the run before; else all are forks, as those of a sweep. Runs are told by their ids.
    """
    before, ends, begins = predecessors(graph), dict[str, str](), dict[str, str]()
    found: dict[str, str] = {}
    for name in sorted([*graph.nodes.values()], key=_order):
        begins.setdefault(name.run_id, name.node)
        ends[name.run_id] = name.node
    upon: defaultdict[str, list[str]] = defaultdict(list)
    for run, node in begins.items():
        if node in before:
            upon[before[node]].append(run)
    continued = {
        runs[0]: graph.nodes[end].run_id
        for end, runs in upon.items()
        if ends[graph.nodes[end].run_id] == end and (len(runs) == 1 or end in superseded)
    }
    for run in begins:
        found[run] = found.get(continued.get(run, run), run)
    return found


def came_through(graph: Graph, node: str) -> set[str]:
    """Return the nodes that training went through a node to, hidden ones too."""
    after: defaultdict[str, list[str]] = defaultdict(list)
    for one, before in predecessors(graph).items():
        after[before].append(one)
    found, stack = {node}, [node]
    while stack:
        new = [one for one in after[stack.pop()] if one not in found]
        found.update(new)
        stack += new
    return found - {node}


def cut(graph: Graph, gone: set[str]) -> dict[str, str]:
    """Return what is to be said of lines once some nodes are gone.

    Returns
    -------
    dict
        By node that stays, the nearest one that stays of those that training came from, where neither its
        name nor its run would tell that any more. Edges may go as well, and not all who list nodes list them.
    """
    if not gone:
        return {}
    after = Graph(name for name in [*graph.nodes.values()] if name.node not in gone)
    after.came_from = graph.came_from
    before, seen = predecessors(graph), predecessors(after)
    found = {}
    for node in after.nodes:
        last = next((one for one in backwards(before, node) if one not in gone), None)
        if last is not None and last != seen.get(node):
            found[node] = last
    return found


def up_to(graph: Graph, ends: Iterable[str]) -> set[str]:
    """Return the nodes of runs up to the latest of the ends that are given of each; hidden ones too."""
    last: dict[str, NodeName] = {}
    for end in sorted((graph.nodes[node] for node in ends if node in graph.nodes), key=_order):
        last[end.run_id] = end
    nodes = [*graph.nodes.values()]
    return {name.node for name in nodes if name.run_id in last and name.order <= last[name.run_id].order}


def followers(graph: Graph, node: str) -> set[str]:
    """Return the nodes that were saved upon a node, and those that training came to through it."""
    return graph.descendants(node) | came_through(graph, node)


def ends_of_runs(graph: Graph, nodes: Iterable[str]) -> set[NodeName]:
    """Return the latest of some nodes of each run, and the latest shown one, which may outlive it."""
    found = sorted((graph.nodes[node] for node in nodes), key=_order)
    shown = (name for name in found if name.node not in graph.hidden)
    return {*{name.run_id: name for name in found}.values(), *{name.run_id: name for name in shown}.values()}


def moved_back(graph: Graph, ends: Iterable[str], gone: Set[str]) -> dict[str, str]:
    """Return for ends of runs that go what the end is then, of several alike the latest of them.

    Nothing where no node before it is left.
    """
    going = sorted((graph.nodes[node] for node in gone & graph.nodes.keys() & set(ends)), key=_order)
    left = {end.run_id: list[NodeName]() for end in going}
    for name in sorted((one for one in [*graph.nodes.values()] if one.run_id in left), key=_order):
        if name.node not in gone:
            left[name.run_id].append(name)
    found: dict[str, str] = {}
    for end in going:
        place = bisect_left(left[end.run_id], end.order, key=_order)
        if place:
            found[left[end.run_id][place - 1].node] = end.node
    return {end: node for node, end in found.items()}


def _order(name: NodeName) -> tuple[int, int, str]:
    return name.order
