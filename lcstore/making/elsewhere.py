"""Making a planned edge wherever a task is sent that names what it sums: whole, or in parts of its chunks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from lcstore.durability import Durability
from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys
from lcstore.graph.graph import Graph
from lcstore.graph.plan import Shortcut
from lcstore.graph.refs import EdgeName
from lcstore.index.index import Index
from lcstore.index.listing import REMADE, Listing, committed
from lcstore.index.standing import is_taken_away
from lcstore.making.maker import Made, Maker
from lcstore.read.reader import Reader
from lcstore.storage.backend import Backend
from lcstore.storage.jobs import Workers
from lcstore.write.shortcut import Part, ShortcutWrite


@dataclass(frozen=True)
class Order:
    """A planned edge, and what a worker has to know to make it.

    Attributes
    ----------
    backend, durability
        The store, and what is stored besides.
    shortcut
        What is planned.
    known
        The keys of the records that it is made of.
    standing
        The edges between the same nodes that were there when this was planned.
    edge, created
        Of an edge that is made in parts: its id, and the time that its record tells, as two tries at one task
        have to store the same bytes. "" of others.
    """

    backend: Backend
    durability: Durability
    shortcut: Shortcut
    known: tuple[str, ...]
    standing: frozenset[str]
    edge: str = ""
    created: str = ""


def known_of(shortcut: Shortcut, graph: Graph) -> tuple[str, ...]:
    """Return the keys of the records that an edge is made of, as far as they are there."""
    nodes = {shortcut.base, shortcut.target, *(ref.target for ref in shortcut.inputs)}
    edges = {ref.edge for ref in shortcut.inputs if ref.edge}
    found = [keys.node_key(graph.nodes[node]) for node in nodes if node in graph.nodes]
    return (*found, *(keys.edge_key(graph.edges[edge]) for edge in edges if edge in graph.edges))


def make_there(order: Order, made: Sequence[Made]) -> Made:
    """Make a planned edge on a worker, with one thread.

    Parameters
    ----------
    order
        Which one.
    made
        The edges, made since, that it is to sum too.
    """
    reader = Reader.alone(order.backend, order.known)
    name = _made_before(order, reader.index)
    if name is not None:
        return Made(name, name.nbytes)
    with Workers(1, "lcstore-task") as executor:
        return _maker(order, reader, executor).make(order.shortcut, made)


def merge_part(order: Order, number: int, of: int, made: Sequence[Made]) -> Part | None:
    """Merge and store part `number` of `of` of an edge, on a worker; None where something stands against it.

    Damage, and what a collector takes away meanwhile, are for who makes the edge whole (`join_parts`).
    """
    reader = Reader.alone(order.backend, order.known)
    with Workers(1, "lcstore-task") as executor:
        try:
            return _write(order, reader, executor, made).write_part(number, of)
        except (CorruptionError, NotFoundError):
            return None


def join_parts(order: Order, parts: Sequence[Part | None], made: Sequence[Made]) -> Made:
    """Commit an edge of which all parts are stored; where one is not, make it anew and whole."""
    reader = Reader.alone(order.backend, order.known)
    name = _made_before(order, reader.index)
    if name is not None:
        return Made(name, name.nbytes)
    with Workers(1, "lcstore-task") as executor:
        try:
            write = _write(order, reader, executor, made)
            if write.join(parts):
                ends = order.shortcut.base, order.shortcut.target
                record = write.commit(*ends, order.shortcut.span, created=order.created)
                if record is not None:
                    return Made(record.name, write.written.nbytes)
        except (CorruptionError, NotFoundError):
            pass  # who makes it whole meets that again, and knows what may stand against it
    return make_there(order, made)


def _maker(order: Order, reader: Reader, executor: Executor) -> Maker:
    return Maker(order.backend, reader.index, reader, executor, order.durability)


def _write(order: Order, reader: Reader, executor: Executor, made: Sequence[Made]) -> ShortcutWrite:
    """Return what writes an edge, or parts of it, under the id that it was given."""
    merger = _maker(order, reader, executor).merger_after(order.shortcut, made)
    return ShortcutWrite(order.backend, executor, merger, order.durability, edge=order.edge)


def _made_before(order: Order, index: Index) -> EdgeName | None:
    """Return the edge that another try at the same task has made: its worker was lost after that."""
    ends = order.shortcut.base, order.shortcut.target
    listing = Listing.take(order.backend, REMADE)
    taken = {name.edge for name in listing.condemned} | order.standing
    found = (keys.parse_edge_key(key) for key in listing.below(keys.EDGES) if ends[1] in key)
    for name in found:
        if (name.base, name.target) != ends or name.edge in taken:
            continue
        # The one who made it may not have got so far as to look around.
        index.know([keys.edge_key(name)])
        objects = index.edge(name.edge).edge.objects
        if not is_taken_away(Listing.take(order.backend, committed(name.edge, ())), name.edge, objects):
            return name
    return None
