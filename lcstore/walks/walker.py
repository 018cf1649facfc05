"""Goes from state to state: about one edge each, however long the path from the root is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lcstore.arrays import Array
from lcstore.edges.compose import Composer
from lcstore.errors import CorruptionError
from lcstore.graph.refs import NodeName
from lcstore.jobs.jobs import map_all, run_all
from lcstore.limits import check_unstored
from lcstore.read.fetch import stored_bytes
from lcstore.read.kept import exact_values
from lcstore.read.node import Node
from lcstore.read.reader import Reader
from lcstore.walks.readahead import Readahead, carried, taken_over


class Walker:
    """Reads one state after another, each from what it holds of the one before. Not thread-safe.

    What it gives is what a `Snapshot` gives. It holds one copy of the tracks of the tensors that it reads.
    While the caller works, the objects of the next edges are fetched.

    Parameters
    ----------
    reader
        Reads records, edges and exact values.

    Attributes
    ----------
    edges_applied
        How many edges were added, taken back or composed for tensors of weights so far.
    goes_on
        Whether another state follows the one that is read next: as much of it is held as that may need.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.edges_applied = 0
        self.goes_on = False
        self._held: Composer | None = None
        self._node: str | None = None
        self._stored_bytes = 0  # of all that what is held was made of
        self._ahead = Readahead(reader)

    def forget(self) -> None:
        """Go on from the root, along paths as they are now: something has changed."""
        self._leave()
        self._ahead = Readahead(self.reader)

    def _leave(self) -> None:
        self._held = self._node = None

    def values(self, node: Node, wanted: Sequence[int]) -> dict[int, Array]:
        """Return flat values of tensors by place among `Layout.wholes`, as `Resolved.values` does.

        Raises
        ------
        CorruptionError
            They are not what was committed; nothing is held then.
        """
        return node.layout.put_together(self._stored(node, node.layout.stored(wanted)), wanted)

    def _stored(self, node: Node, wanted: Sequence[int]) -> dict[int, Array]:
        kept, rest = node.divide(wanted)
        with node.named():
            node.check_kept(wanted)
            out = exact_values(self.reader, node, kept)
        tracked = sorted({*rest})
        taken = {tensor: out[tensor] for tensor in (taken_over(node, wanted) if self.goes_on else ())}
        if not tracked and not taken:
            return out
        try:
            with node.named():
                composer = self._carry(node, carried(node, wanted), tracked) if tracked else self._from(node)
                out |= zip(tracked, map_all(self.reader.executor, composer.values, tracked), strict=True)
                self._take_over(composer, taken)
        except BaseException:
            self._leave()
            raise
        return out

    def node(self, name: NodeName) -> Node:
        """Read a node's record and layout."""
        return self.reader.node(name)

    def has(self, name: NodeName) -> bool:
        """Return whether a node is there and not retired, as of the last listing."""
        graph = self.reader.index.graph
        return name.node in graph and name.node not in graph.hidden

    def expect(self, names: Sequence[NodeName], place: int, choose: Callable[[Node], Sequence[int]]) -> None:
        """Have what the next states need fetched while the caller does other things.

        Parameters
        ----------
        names, place
            All states of the walk, and which of them is the next.
        choose
            Says which tensors of a state are wanted.
        """
        held = self._held
        at = None if held is None or self._node is None else (self._node, held.as_start)
        self._ahead.look(names, place, at, choose)

    def _carry(self, node: Node, wanted: list[int], needed: list[int]) -> Composer:
        """Hold the tracks of a node that are worth having: those needed alone where others are damaged."""
        try:
            return self._go(node, wanted)
        except CorruptionError:
            if wanted == needed:
                raise
        self._leave()
        return self._go(node, needed)

    def _go(self, node: Node, wanted: Sequence[int]) -> Composer:
        """Hold the tracks of a node."""
        composer = self._composer(node, wanted)
        lost = composer.path.lost
        if lost:
            composer.compose_anew(self._ahead.anew(node, lost))
        self._held = None
        self.edges_applied += composer.edges_applied
        asked = self._ahead.fetch(composer.path)
        run_all(self.reader.executor, composer.jobs())
        self._ahead.drop(asked)
        self._held, self._node = composer, node.name.node
        return composer

    def _take_over(self, composer: Composer, exact: Mapping[int, Array]) -> None:
        """Hold the tracks of exact values, too. Where that fails, the state is good as it is."""
        try:
            run_all(self.reader.executor, composer.taking(exact))
        except CorruptionError:
            self._leave()

    def _from(self, node: Node) -> Composer:
        """Begin at a node, with nothing of it yet."""
        self._held, self._node = Composer([], node.layout, node.columns, []), node.name.node
        self._stored_bytes = sum(ref.nbytes for ref in node.record.objects)
        return self._held

    def _composer(self, node: Node, wanted: Sequence[int]) -> Composer:
        """Return what goes from what is held to a node."""
        read, goes_on = self._ahead.edges_to(node, wanted, self._node)
        start = self._held if goes_on else None
        composer = Composer([*map(self._ahead.edge, read)], node.layout, node.columns, wanted, start=start)
        self._stored_bytes = stored_bytes(read) + (0 if start is None else self._stored_bytes)
        check_unstored(composer.nbytes, self._stored_bytes)
        return composer
