"""What is redundant of states that are let go of: on a full disk, the records that say so take its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from lcstore.durability import Durability
from lcstore.errors import CorruptionError, StorageError
from lcstore.format import keys, markkeys
from lcstore.index.contents import Contents, judged_contents
from lcstore.index.index import Index
from lcstore.maintain.afterwards import let_go
from lcstore.maintain.verdict import Scope, condemnable, judge, objects_of
from lcstore.records.kinds import second_copy_of
from lcstore.storage.backend import Backend
from lcstore.storage.patient import no_room

#: Objects that are deleted at a time for more room.
_FEW: Final = 16


def with_room_of(
    backend: Backend, act: Callable[[], None], redundant: Callable[[], list[str]]
) -> StorageError | None:
    """Do something; where there is no room, delete a little of what is redundant, and do it again.

    An interruption leaves few states without parity. They restore as before, and `repair` makes it again.

    Returns
    -------
    StorageError or None
        What found no room where nothing redundant was left.
    """
    spare: list[str] | None = None
    while True:
        try:
            act()
        except StorageError as error:
            if not no_room(error):
                raise
            spare = redundant() if spare is None else spare
            if not delete_few(backend, spare):
                return error
        else:
            return None


def delete_few(backend: Backend, spare: list[str]) -> bool:
    """Delete the first few of some objects, and take them off the list; return whether there were any."""
    few = spare[:_FEW]
    del spare[:_FEW]
    if few:
        backend.delete_many(few)
    return bool(few)


def redundant_in(contents: Contents, scopes: Iterable[Scope]) -> list[str]:
    """Return the keys of second copies and parity objects of what is to be condemned."""
    copies = set(contents.copies)
    edges = (scope for scope in scopes if scope.scope != markkeys.LAYOUT)
    return [key for scope in edges for key in _redundant(contents, copies, scope)]


def redundant_of(
    backend: Backend, index: Index, durability: Durability, going: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the keys of second copies and parity objects that nothing needs once some things are let go of.

    They are of the states concerned alone. What a state that stays shares is not among them, nor what is of
    one that somebody pinned meanwhile. First comes the parity of what the restore of one state alone reads;
    then, state by state, second copies and the parity of what another path to a state that stays leads over.

    Parameters
    ----------
    backend, index, durability
        The store, its layouts, and which anchors stay.
    going
        Nodes, each with what is let go of: see `Retired`.

    Returns
    -------
    list of str
        Nothing where a record or a state that stays is damaged: there parity is what it may be rebuilt from.
    """

    def found(contents: Contents) -> list[str]:
        unpinned = [(node, what) for node, what in going if node not in contents.marks.held]
        let_go(contents, unpinned)
        verdict = judge(contents, index.layout, durability)
        places = {node: place for place, (node, _) in enumerate(unpinned)}
        copies, of = set(contents.copies), list[tuple[bool, int, bool, str]]()
        for scope in condemnable(contents, verdict, set()):
            place = places.get(contents.stored[scope.edge].target)
            if place is None:
                continue
            for key in _redundant(contents, copies, scope):
                is_parity = keys.is_parity(key)
                passed = not is_parity or keys.parse_data_key(key).op in keys.COMPOSED
                of.append((passed, place, is_parity, key))
        return [key for *_, key in sorted(of)]

    try:
        return judged_contents(backend, found)[1]
    except CorruptionError:
        return []


def _redundant(contents: Contents, copies: set[str], scope: Scope) -> Iterator[str]:
    """Yield what is redundant of what a condemnation is about, as far as it is there."""
    for key in objects_of(contents, scope):
        if keys.is_parity(key) or keys.copied_from(key) is not None:
            yield key
    record = contents.key_of(scope.edge) if scope.is_whole else None
    copy = None if record is None else second_copy_of(record)
    if copy in copies:
        yield copy
