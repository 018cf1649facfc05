"""The set of nodes and edges that a listing showed, and the questions that the store asks of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from threading import RLock

from lcstore.errors import CorruptionError, NotFoundError
from lcstore.graph.paths import (
    DAMAGED,
    PathCost,
    TwoWayPaths,
    cheapest_paths,
    nodes_behind,
    path_between,
    path_in,
)
from lcstore.graph.refs import ROOT, EdgeName, EdgeRef, NodeName, check_size


class Graph:
    """Nodes and edges, by name only.

    Adding (`add`, `add_edge`) changes the graph in place; callers that share one between threads lock it.
    What is asked for is worked out then: of 100,000 nodes mostly one is wanted. A path is looked for from its
    end, which is mostly far less than all. Once as much was looked at in that way as there are nodes, paths
    are found for all of them at once, and kept up to date as a run goes on.

    Parameters
    ----------
    nodes
        Every committed node. The same name twice is one node.
    edges
        The edges that maintenance added. Those to nodes that are gone are kept and never used.

    Attributes
    ----------
    hidden
        Nodes that were retired.
    came_from
        By node, another that training came to it from: where what it was saved upon is gone.
    condemned_nodes, condemned_edges
        Nodes whose own edge, and edges of maintenance, that may be gone.

    Raises
    ------
    CorruptionError
        Two different names claim one node, a node is called root, or a size is negative.
    """

    def __init__(self, nodes: Iterable[NodeName] = (), edges: Iterable[EdgeName] = ()) -> None:
        self.nodes: dict[str, NodeName] = {}
        self.edges: dict[str, EdgeName] = {}
        self._added: defaultdict[str, list[EdgeRef]] = defaultdict(list)  # by target
        self._outgoing: defaultdict[str, list[EdgeRef]] | None = None
        self._steps: defaultdict[int, list[str]] | None = None
        self._run_ids: defaultdict[int, set[str]] = defaultdict(set)
        self._latest: dict[int | str | None, NodeName | None] = {}
        self.hidden: set[str] = set()
        self.came_from: dict[str, str] = {}
        self.condemned_nodes: set[str] = set()
        self.condemned_edges: set[str] = set()
        self._damaged: set[str] = set()
        self._paths: dict[str, PathCost] | None = None
        #: The path that was asked for last, and to which node, among the paths that were kept then.
        self._last: tuple[Mapping[str, PathCost], str, list[EdgeRef]] | None = None
        self._searched = 0
        self._lock = RLock()
        # Copies, made at once: they may be of a graph that other threads add to.
        for node in [*nodes]:
            self.add(node)
        for edge in [*edges]:
            self.add_edge(edge)

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, node: object) -> bool:
        return node in self.nodes

    def add(self, node: NodeName) -> None:
        """Add a committed node and the edge that it was saved with."""
        known = self.nodes.get(node.node)
        if known == node:
            return
        if known is not None:
            raise CorruptionError(f"two names claim node {node.node}; `lcstore verify` says which is wrong")
        if node.node == ROOT:
            raise CorruptionError("a stored node is called root")
        check_size(node.nbytes, node.node)
        self._run_ids[node.run].add(node.run_id)
        with self._lock:
            self.nodes[node.node] = node
            if self._steps is not None:
                self._steps[node.step].append(node.node)
            for run in (None, node.run, node.run_id) if node.node not in self.hidden else ():
                latest = self._latest.get(run)
                if run in self._latest and (latest is None or latest.order < node.order):
                    self._latest[run] = node
            if self._outgoing is not None:
                if node.node in self._added or node.node in self._outgoing:
                    # Edges that were waiting for this node come alive with it.
                    self._paths = None
                self._link(node.ref, self._outgoing)

    def add_edge(self, edge: EdgeName) -> None:
        """Add an edge that maintenance made."""
        known = self.edges.get(edge.edge)
        if known == edge:
            return
        if known is not None:
            raise CorruptionError(f"two names claim edge {edge.edge}; `lcstore verify` says which is wrong")
        check_size(edge.nbytes, edge.edge)
        with self._lock:
            self.edges[edge.edge] = edge
            self._added[edge.target].append(edge.ref)
            if self._outgoing is not None:
                self._link(edge.ref, self._outgoing)

    def has_edge(self, edge: EdgeRef) -> bool:
        """Return whether an edge is there."""
        if edge.edge is not None:
            return edge.edge in self.edges
        return edge.target in self.nodes and self.nodes[edge.target].base == edge.base

    def hide(self, node: str) -> None:
        """Leave a node out of `latest`, `steps` and `revisions`: it was retired. Paths may still use it."""
        self.hidden.add(node)
        name = self.nodes.get(node)
        with self._lock:
            for run in (None, name.run, name.run_id) if name is not None else ():
                if self._latest.get(run) == name:
                    del self._latest[run]

    def condemn(self, *, node: str | None = None, edge: str | None = None) -> None:
        """Note that the own edge of a node, or an edge that maintenance made, may be gone.

        Paths go over such edges only where there is no other path.
        """
        with self._lock:
            if node is not None:
                self.condemned_nodes.add(node)
            if edge is not None:
                self.condemned_edges.add(edge)
            self._paths = None

    def avoid(self, edge: EdgeRef) -> None:
        """Note that an edge is damaged: paths rather go over any number of edges that may be gone."""
        if (edge.edge or edge.target) not in self._damaged:
            self._damaged.add(edge.edge or edge.target)
            self.condemn(node=edge.target if edge.edge is None else None, edge=edge.edge)

    def _reluctance(self, edge: EdgeRef) -> int:
        return DAMAGED if (edge.edge or edge.target) in self._damaged else self.is_condemned(edge)

    def is_condemned(self, edge: EdgeRef) -> bool:
        """Return whether an edge may be gone."""
        if edge.edge is None:
            return edge.target in self.condemned_nodes
        return edge.edge in self.condemned_edges

    def refs(self) -> list[EdgeRef]:
        """Return all edges between nodes that are there and from the root, those of nodes first."""
        # Copies, made at once: other threads may add to the graph.
        nodes, edges = list(self.nodes.values()), list(self.edges.values())
        there = {ROOT, *(name.node for name in nodes)}
        found = [name.ref for name in nodes] + [name.ref for name in edges]
        return [edge for edge in found if edge.base in there and edge.target in there]

    def _link(self, edge: EdgeRef, outgoing: defaultdict[str, list[EdgeRef]]) -> None:
        outgoing[edge.base].append(edge)
        base = self._paths.get(edge.base) if self._paths is not None else None
        if self._paths is None or base is None or edge.target not in self.nodes:
            return
        path = base.extend(edge, self._reluctance(edge))
        if not path.better(self._paths.get(edge.target)):
            return
        if edge.target in outgoing:
            # Others go on from the target, and theirs may change: find all paths anew when next asked.
            self._paths = None
        else:
            self._paths[edge.target] = path

    def latest(self, run: str | int | None = None) -> NodeName | None:
        """Return the latest node: the greatest (seq, run, id), whatever its step.

        Parameters
        ----------
        run
            Look only at the nodes of this run number, or of this run id.
        """
        with self._lock:
            if run not in self._latest:
                ours = (n for n in self.shown() if run is None or run in (n.run, n.run_id))
                self._latest[run] = max(ours, key=lambda name: name.order, default=None)
            return self._latest[run]

    def _by_step(self) -> Mapping[int, list[str]]:
        """Return the nodes of each step, in no order."""
        with self._lock:
            if self._steps is None:
                self._steps = defaultdict(list)
                for name in self.nodes.values():
                    self._steps[name.step].append(name.node)
            return self._steps

    def steps(self, run: str | int | None = None) -> list[int]:
        """Return every step that has a node which is not hidden, in rising order; of one run, if given."""
        steps = sorted(self._by_step())
        if not self.hidden and run is None:
            return steps
        return [step for step in steps if self.at_step(step, run) is not None]

    def revisions(self, step: int) -> list[NodeName]:
        """Return the nodes of a step that are not hidden, the newest last."""
        shown = [self.nodes[node] for node in self._by_step().get(step, ()) if node not in self.hidden]
        return sorted(shown, key=lambda name: name.order)

    def at_step(self, step: int, run: str | int | None = None) -> NodeName | None:
        """Return the newest node of a step; of one run, if a run number or run id is given."""
        ours = (name for name in self.revisions(step) if run is None or run in (name.run, name.run_id))
        return max(ours, key=lambda name: name.order, default=None)

    def shown(self) -> list[NodeName]:
        """Return the nodes that are not hidden, in no order; other threads may add nodes meanwhile."""
        return [name for name in [*self.nodes.values()] if name.node not in self.hidden]

    def next_run(self) -> int:
        """Return the number for a handle that opens for writing now; the first is 1."""
        return max(self._run_ids, default=0) + 1

    def last_seq(self) -> int:
        """Return the number of the commit that is the latest of all; 0 where there is none."""
        return max((name.seq for name in [*self.nodes.values()]), default=0)

    def saves_until(self, name: NodeName) -> int:
        """Return about how many saves led to a node, from the first that it goes back to, itself counted.

        Where some of these are gone, it is all saves of the store.
        """
        first = name
        for _ in range(len(self.nodes)):  # names that storage made up may go round
            if first.base not in self.nodes:
                break
            first = self.nodes[first.base]
        return max(name.seq - first.seq + 1, 1) if first.base == ROOT else name.seq

    def ambiguous_runs(self) -> list[int]:
        """Return the run numbers that two handles or more took at the same time, in rising order."""
        return sorted(run for run, run_ids in self._run_ids.items() if len(run_ids) > 1)

    def path(self, node: str, base: str = ROOT) -> list[EdgeRef]:
        """Return the edges from the root (or from `base`) to `node` that are the cheapest to read.

        That is: as few edges as can be that are known to be damaged, then as few condemned ones, then the
        least of bytes and `EDGE_COST` for each edge. Of equal ones it is the one of fewer edges; then,
        looking back from the node, the one whose last edge is the node's own, or has the smallest id.

        Raises
        ------
        NotFoundError
            There is no such node.
        CorruptionError
            Nothing leads from the root to it; the message names the node that is missing.
        """
        if node not in self.nodes:
            raise NotFoundError(f"there is no node {node}")
        if base != ROOT:
            between = path_between(base, node, self.into, self.nodes, self._reluctance)
            if between is None:
                raise CorruptionError(f"nothing leads from node {base} to node {node}")
            return between
        found = self._paths_to(node)
        path = self._longer(found, node) or path_in(found, node)
        if path is None:
            raise CorruptionError(self._why_unreachable(node))
        if found is self._paths and path:
            self._last = found, node, path
        return [*path]

    def path_around(self, node: str) -> list[EdgeRef] | None:
        """Return the cheapest path from the root to `node` that no condemned edge is on, in either direction.

        What an edge adds can be taken back, so a path may lead past the node and backward to it. What edges
        on the way back set is then told by edges before the node; see `lcstore.edges.algebra`.

        Returns
        -------
        list
            The edges in order, those gone over backward saying so; None where there is no such path.
        """
        return self._around().find(ROOT, node)

    def paths_around(self) -> Mapping[str, PathCost]:
        """Return what `path_around` finds, for all nodes at once: `path_in` gives the path to one."""
        return self._around().all()

    def _around(self) -> TwoWayPaths:
        return TwoWayPaths(edge for edge in self.refs() if not self.is_condemned(edge))

    def path_bytes(self, node: str) -> int:
        """Return how many bytes the path to `node` has to read; errors as for `path`."""
        return self.path_to(node).nbytes

    def is_in_danger(self, node: str) -> bool:
        """Return whether no path over edges that are not condemned leads forward to a node."""
        found = self._paths_to(node).get(node)
        return found is None or found.avoided > 0

    def path_to(self, node: str) -> PathCost:
        """Return what the path to `node` comes to; errors as for `path`."""
        found = self._paths_to(node).get(node)
        if found is None:
            self.path(node)  # raises
        assert found is not None
        return found

    def _paths_to(self, node: str) -> Mapping[str, PathCost]:
        """Return the cheapest paths from the root to a node, if there is one, and to those that it passes."""
        with self._lock:  # or what another thread adds meanwhile would not be among those that are kept
            if self._paths is not None:
                return self._paths
            if self._searched < len(self.nodes):
                # From its end, then, among what was found so, from the root: as when all are found at once.
                behind = nodes_behind(node, self.into, self.nodes, self._reluctance)
                self._searched += len(behind)
                outgoing = defaultdict[str, list[EdgeRef]](list)
                for target in behind:
                    for edge in self.into(target):
                        outgoing[edge.base].append(edge)
                return cheapest_paths(outgoing, behind, self._reluctance)
            self._paths = cheapest_paths(self._outgoing_links(), self.nodes, self._reluctance)
            return self._paths

    def _longer(self, found: Mapping[str, PathCost], node: str) -> list[EdgeRef] | None:
        """Return the path to a node if it is that asked for last, or one edge longer, as of a run's saves.

        Kept paths change at their ends alone; where others would, all are found anew.
        """
        if self._last is None or self._last[0] is not found or node not in found:
            return None
        _, before, path = self._last
        edge = found[node].last
        if edge is None or found[before].last is not path[-1]:
            return None
        if node == before:
            return path
        return [*path, edge] if edge.base == before else None

    def into(self, node: str) -> list[EdgeRef]:
        """Return the edges to a node."""
        own = self.nodes.get(node)
        return self._added.get(node, []) if own is None else [own.ref, *self._added.get(node, ())]

    def _outgoing_links(self) -> Mapping[str, list[EdgeRef]]:
        """Return the edges by what they lead from."""
        with self._lock:
            if self._outgoing is None:
                self._outgoing = defaultdict(list)
                refs = [name.ref for name in self.nodes.values()]
                for ref in (*refs, *(name.ref for name in self.edges.values())):
                    self._outgoing[ref.base].append(ref)
            return self._outgoing

    def _why_unreachable(self, node: str) -> str:
        above = self.ancestors(node)
        missing = sorted(
            {edge.base for name in (node, *above) for edge in self.into(name)} - above - {node, ROOT}
        )
        if not missing:
            return f"node {node} cannot be restored: the names above it form a circle"
        return f"node {node} cannot be restored: node {missing[0]}, which it stands on, is missing"

    def ancestors(self, *nodes: str) -> set[str]:
        """Return the nodes from which any edges lead to some nodes, these and the root left out."""
        return self._reach(nodes, upward=True) - {*nodes}

    def descendants(self, node: str) -> set[str]:
        """Return the nodes to which any edges lead from `node` (or from `ROOT`), itself left out."""
        return self._reach([node], upward=False) - {node}

    def _reach(self, starts: Iterable[str], *, upward: bool) -> set[str]:
        """Return what edges lead to (or from, `upward`), the starts included."""
        outgoing = {} if upward else self._outgoing_links()
        found = set(starts)
        for start in found:
            if start not in self.nodes and start != ROOT:
                raise NotFoundError(f"there is no node {start}")
        stack = list(found)
        while stack:
            node = stack.pop()
            for edge in self.into(node) if upward else outgoing.get(node, ()):
                other = edge.base if upward else edge.target
                if other in self.nodes and other not in found:
                    found.add(other)
                    stack.append(other)
        return found
