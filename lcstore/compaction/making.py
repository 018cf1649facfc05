"""Making the edges that compaction plans: here, or wherever a task is sent that names what it sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from lcstore.durability import Durability
from lcstore.edges.merge import Merger
from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys
from lcstore.graph.graph import Graph
from lcstore.graph.plan import Shortcut
from lcstore.graph.refs import ROOT, EdgeName, EdgeRef
from lcstore.index.index import Index
from lcstore.index.listing import REMADE, Listing, committed
from lcstore.index.standing import is_taken_away
from lcstore.jobs.jobs import Workers
from lcstore.layout.poolmap import PieceColumns
from lcstore.read.feeder import Ask, Feeder
from lcstore.read.reader import Reader
from lcstore.storage.backend import Backend
from lcstore.write.shortcut import NoRoomError, ShortcutWrite

#: How often an edge is tried when a collector changes its path meanwhile.
_TRIES: Final = 3
#: Bytes of chunks that are on their way to a merge.
_ROOM: Final = 8 << 20


@dataclass(frozen=True)
class Made:
    """What came of a planned edge.

    Attributes
    ----------
    name
        The edge; None where it could not be made.
    nbytes
        Bytes written.
    why
        Why it could not be made.
    """

    name: EdgeName | None
    nbytes: int
    why: str = ""


class Maker:
    """Makes planned edges.

    Parameters
    ----------
    reader
        Reads the store, and has threads to merge with. Its index knows the records that an edge is made of,
        at least; where something changed it lists all.
    durability
        What is stored besides the edges.
    """

    def __init__(self, reader: Reader, durability: Durability) -> None:
        self.reader = reader
        self.index = reader.index
        self.durability = durability
        self.written = 0

    def make(self, shortcut: Shortcut, made: Sequence[Made] = (), room: int | None = None) -> Made:
        """Make an edge. What a collector took away meanwhile is no failure.

        Parameters
        ----------
        shortcut
            What is planned.
        made
            The edges, made since, that the same plan names among what is to be summed.
        room
            How many bytes may be written; None: any number.

        Raises
        ------
        CorruptionError
            What is to be summed is damaged.
        """
        before = self.written
        names = [one.name for one in made if one.name is not None]
        self.index.know(map(keys.edge_key, names))
        name, why = self._try(shortcut, [name.ref for name in names], room)
        return Made(name, self.written - before, why)

    def _try(
        self, shortcut: Shortcut, made: Sequence[EdgeRef], room: int | None
    ) -> tuple[EdgeName | None, str]:
        """Return the edge, or why it could not be made."""
        why = "a collector kept taking the new edge for one of an interrupted compaction"
        situation = partial(self._situation, shortcut, made)
        for _ in range(_TRIES):
            before = situation()
            try:
                name = self._add(shortcut, made, room)
                if name is not None:
                    return name, ""
            except NoRoomError:
                why = "it takes more than is left of the bytes that may be written"
                break
            except (CorruptionError, NotFoundError) as error:
                changed = self.index.news(situation, before)
                if not changed and not self._was_let_go(error):
                    raise
                why = f"collected meanwhile ({error})"
                if not changed or situation() is None:
                    break
        return None, why

    def _was_let_go(self, error: CorruptionError | NotFoundError) -> bool:
        """Return whether what is missing was condemned: of a retired state only what others need is kept."""
        if error.key is None or not error.key.startswith(f"{keys.DATA}/"):
            return False
        edge = keys.parse_data_key(error.key).edge
        return any(name.edge == edge for name in self.index.marks.condemned)

    def _situation(self, shortcut: Shortcut, made: Sequence[EdgeRef]) -> object:
        """Return what is to be merged, and what of that may be gone; None if there is nothing to do."""
        graph = self.index.graph
        if shortcut.target not in graph.nodes or shortcut.target in graph.hidden:
            return None
        try:
            inputs = self._inputs(shortcut, made)
        except (CorruptionError, NotFoundError):
            return None
        return [(ref, graph.is_condemned(ref)) for ref in inputs]

    def _add(self, shortcut: Shortcut, made: Sequence[EdgeRef], room: int | None) -> EdgeName | None:
        """Add one edge; return None if it does not stay."""
        node = self.reader.node(self.index.name(shortcut.target))
        with node.named():
            merger, feeder = self.merger(shortcut, made)
            backend, executor = self.reader.backend, self.reader.executor
            write = ShortcutWrite(backend, executor, merger, self.durability, room=room)
            with feeder.feeding(asks(merger, merger.chunks())):
                if not write.write():
                    return None
        record = write.commit(shortcut.base, shortcut.target, shortcut.span)
        self.written += write.written.nbytes
        if record is None:
            return None
        self.index.add_edge(record)
        return record.name

    def _inputs(self, shortcut: Shortcut, made: Sequence[EdgeRef]) -> list[EdgeRef]:
        """Return the edges to sum: those that are named; where one is not there, what leads there now."""
        graph = self.index.graph
        by_ends = {(ref.base, ref.target): ref for ref in made}
        named = [
            by_ends.get((ref.base, ref.target), ref) if ref.is_planned else ref for ref in shortcut.inputs
        ]
        if named and all(graph.has_edge(ref) and not graph.is_condemned(ref) for ref in named):
            return named
        return graph.path(shortcut.target, shortcut.base)

    def merger(self, shortcut: Shortcut, made: Sequence[EdgeRef] = ()) -> tuple[Merger, Feeder]:
        """Return what merges a planned edge, and what feeds it with chunks."""
        feeder = Feeder(self.reader.requests, _ROOM)
        node = self.reader.node(self.index.name(shortcut.target))
        edges = self.reader.edges(self._inputs(shortcut, made))
        base = None
        if shortcut.base != ROOT:
            below = self.reader.node(self.index.name(shortcut.base))
            base = below.layout, below.columns
        return Merger([*map(feeder.edge, edges)], node.layout, node.columns, base), feeder


def asks(merger: Merger, chunks: Iterable[tuple[str, int, PieceColumns]]) -> Iterator[Ask]:
    """Yield what a merger gets to merge some chunks, in that order."""
    for pool, chunk, pieces in chunks:
        for edge, array in merger.path.needs(pieces):
            yield Ask(edge.fetch, pool, array, chunk)


def known_of(shortcut: Shortcut, graph: Graph) -> list[str]:
    """Return the keys of the records that an edge is made of, as far as they are there."""
    nodes = {shortcut.base, shortcut.target, *(ref.target for ref in shortcut.inputs)}
    edges = {ref.edge for ref in shortcut.inputs if ref.edge}
    found = [keys.node_key(graph.nodes[node]) for node in nodes if node in graph.nodes]
    return found + [keys.edge_key(graph.edges[edge]) for edge in edges if edge in graph.edges]


def make_there(
    backend: Backend,
    durability: Durability,
    shortcut: Shortcut,
    known: Sequence[str],
    standing: frozenset[str],
    made: Sequence[Made],
) -> Made:
    """Make a planned edge on a worker, with one thread.

    Parameters
    ----------
    backend
        Where the store is.
    durability, shortcut, made
        As for `Maker`.
    known
        The keys of the records that it is made of.
    standing
        The edges between the same nodes that were there when this was planned.
    """
    reader = Reader.alone(backend, known)
    name = _made_before(reader.index, shortcut, standing)
    if name is not None:
        return Made(name, name.nbytes)
    with Workers(1, "lcstore-task") as executor:
        alone = Reader(reader.index, executor, reader.requests)
        return Maker(alone, durability).make(shortcut, made)


def _made_before(index: Index, shortcut: Shortcut, standing: frozenset[str]) -> EdgeName | None:
    """Return the edge that another try at the same task has made: its worker was lost after that."""
    listing = Listing.take(index.backend, REMADE)
    taken = {name.edge for name in listing.condemned} | standing
    found = (keys.parse_edge_key(key) for key in listing.below(keys.EDGES) if shortcut.target in key)
    for name in found:
        if (name.base, name.target) != (shortcut.base, shortcut.target) or name.edge in taken:
            continue
        # The one who made it may not have got so far as to look around.
        index.know([keys.edge_key(name)])
        objects = index.edge(name.edge).edge.objects
        if not is_taken_away(Listing.take(index.backend, committed(name.edge, ())), name.edge, objects):
            return name
    return None
