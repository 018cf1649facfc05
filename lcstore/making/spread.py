"""What workers of a cluster are given to do, so that all planned edges are made."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from lcstore.cluster.tasks import Client, Task, carried_out, threads_of
from lcstore.durability import Durability
from lcstore.format.records import utc_now
from lcstore.graph.plan import Shortcut, waits
from lcstore.index.index import Index
from lcstore.making.dividing import parts_of
from lcstore.making.elsewhere import Order, join_parts, known_of, make_there, merge_part
from lcstore.making.maker import Made
from lcstore.storage.backend import Backend
from lcstore.write.shortcut import Part

#: What a task gives: an edge, or a part of one.
_Given: TypeAlias = Made | Part | None

#: How long the parts of an edge take to join, beside merging it.
_JOINING: Final = 0.1


def made_by(
    client: Client,
    backend: Backend,
    durability: Durability,
    index: Index,
    shortcuts: Sequence[Shortcut],
    seconds: float,
) -> Iterator[tuple[int, Made]]:
    """Have a cluster make edges; yield the place of each, and what came of it.

    Parameters
    ----------
    client
        A `distributed.Client`.
    backend, durability, index
        The store, what is stored besides, and what is known of it.
    shortcuts
        What is planned.
    seconds
        Begin nothing after this time.

    Raises
    ------
    LcstoreError
        As `carried_out` does.
    """
    tasks: list[Task[_Given]] = []
    places: dict[int, int] = {}
    ends: list[int] = []
    after = waits(shortcuts)
    parts = parts_of(after, threads_of(client), _chunks(index))
    orders = _orders(backend, durability, index, shortcuts)
    for place, (order, of) in enumerate(zip(orders, parts, strict=True)):
        behind = tuple(ends[one] for one in after[place])
        tasks += _tasks(order, of if order.shortcut.inputs else 1, behind, len(tasks))
        ends.append(len(tasks) - 1)
        places[ends[-1]] = place
    for done, made in carried_out(tasks, client, seconds=seconds):
        if isinstance(made, Made):
            yield places[done], made


def _tasks(order: Order, of: int, behind: tuple[int, ...], first: int) -> list[Task[_Given]]:
    """Return what makes one edge: the last of these tasks; the first of them is task `first` of all."""
    url = order.backend.url
    if of == 1:
        return [Task("merge", url, partial(_made, order), behind)]
    order = replace(order, edge=secrets.token_hex(16), created=utc_now())
    parts = [
        Task("merge part", url, partial(_merged, order, number, of), behind, 1 / of) for number in range(of)
    ]
    join = partial(_joined, order, of)
    return [*parts, Task("join", url, join, (*range(first, first + of), *behind), _JOINING)]


def _made(order: Order, given: Sequence[_Given]) -> _Given:
    return make_there(order, _edges(given))


def _merged(order: Order, number: int, of: int, given: Sequence[_Given]) -> _Given:
    return merge_part(order, number, of, _edges(given))


def _joined(order: Order, of: int, given: Sequence[_Given]) -> _Given:
    return join_parts(
        order, [one if isinstance(one, Part) else None for one in given[:of]], _edges(given[of:])
    )


def _edges(given: Sequence[_Given]) -> list[Made]:
    return [one for one in given if isinstance(one, Made)]


def _orders(
    backend: Backend, durability: Durability, index: Index, shortcuts: Sequence[Shortcut]
) -> Iterator[Order]:
    standing = defaultdict[tuple[str, str], set[str]](set)
    for edge in index.graph.edges.values():
        standing[edge.base, edge.target].add(edge.edge)
    for shortcut in shortcuts:
        there = frozenset(standing[shortcut.base, shortcut.target])
        yield Order(backend, durability, shortcut, known_of(shortcut, index.graph), there)


def _chunks(index: Index) -> int:
    """Return how many chunks the latest state has."""
    latest = index.graph.latest()
    if latest is None:
        return 1
    pools = index.layout(index.record(latest.node).layout).pools.values()
    return sum(-(-pool.size // pool.chunk) for pool in pools)
