"""What of a store is to be copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field

from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import ObjectRef
from lcstore.index.listing import Listing
from lcstore.index.marked import Marks


@dataclass
class Wanted:
    """What is to be copied: objects, and records by their kind in the order in which they are stored.

    Of the objects, those that are condemned need not be there, or whole. `named_by` has the keys of records,
    by the edges and (the first halves of) the layouts that they name.
    """

    objects: list[ObjectRef] = field(default_factory=list)
    condemned: frozenset[str] = frozenset()
    records: dict[str, list[str]] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()
    marks: Marks = field(default_factory=Marks)
    named_by: Mapping[str, Set[str]] = field(default_factory=dict)

    @property
    def nodes(self) -> set[str]:
        """The ids of all states, let go of or not."""
        return {keys.parse_node_key(key).node for key in self.records[keys.NODES]}

    @property
    def lasting(self) -> set[str]:
        """The keys of what has to be in the copy, once all is copied."""
        objects = {ref.key for ref in self.objects} - self.condemned
        return objects.union(*(self.records[folder] for folder in (keys.LAYOUTS, keys.EDGES, keys.NODES)))


def condemned_of(listing: Listing, found: Iterable[str], exact: Set[str]) -> frozenset[str]:
    """Return which objects are condemned, some of them being of exact values."""
    marked = {(name.edge, name.scope) for name in listing.condemned}

    def is_marked(key: str) -> bool:
        name = keys.parse_data_key(key)
        scopes = {markkeys.WHOLE_EDGE}
        if key in exact:
            scopes.add(markkeys.EXACT_VALUE)
        if name.pool is not None and name.op is not None:
            scopes.add(markkeys.array_scope(name.pool, name.op))
        return not marked.isdisjoint((name.edge, scope) for scope in scopes)

    return frozenset(filter(is_marked, found)) if marked else frozenset()


def still_going(before: Set[str], now: Set[str], named_by: Mapping[str, Set[str]]) -> str | None:
    """Return a condemnation of an edge or layout that was there without any record which names it now.

    A collector that condemned it a grace ago may have looked for its record just before that was stored. It
    deletes condemnations after what they are about.

    Parameters
    ----------
    before, now
        What was in the target before the first record was stored, and after the last one.
    named_by
        As `Wanted` has it.
    """
    for key in sorted(key for key in before & now if key.startswith(f"{keys.CONDEMNED}/")):
        with suppress(CorruptionError):  # somebody else's file
            name = markkeys.parse_condemned_key(key)
            by = named_by.get(name.edge, ()) if name.scope in (markkeys.WHOLE_EDGE, markkeys.LAYOUT) else ()
            if by and before.isdisjoint(by):
                return key
    return None


def parts_of(marks: Marks) -> set[tuple[str, str]]:
    """Return what is let go of of states that stay."""
    pools = {(node, pool) for node, stripped in marks.stripped.items() for pool in stripped}
    return pools | {(node, markkeys.EXACT_VALUE) for node in marks.inexact}


def present(listing: Listing, refs: dict[str, ObjectRef], condemned: frozenset[str]) -> Iterator[ObjectRef]:
    """Yield the objects that are there, with second copies beside them.

    Raises
    ------
    NotFoundError
        One is missing, and no condemnation speaks of it. Parity may be: on a full disk that of states that
        were let go of makes room, a copy is the way out of there, and a repair makes it again.
    """
    there = {*listing.below(keys.DATA)}
    for key, ref in refs.items():
        beside = keys.own_copy_key(key) if keys.has_own_copy(key) else None
        if beside is not None and beside in there:
            yield ObjectRef(beside, ref.nbytes, ref.hash)
        if key in there:
            yield ref
        elif key not in condemned and not keys.is_parity(key):
            raise NotFoundError("an object that a record names is missing", key=key)
