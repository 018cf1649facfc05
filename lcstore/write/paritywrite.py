"""Parity of the arrays of one edge, made while their chunks are written."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Final, NamedTuple, get_args

from lcstore.arrays import Buffer
from lcstore.durability import Parity
from lcstore.format import keys
from lcstore.format.parity import COVERED, Xor
from lcstore.layout.specs import role_of
from lcstore.state.roles import Role

_ROLES: Final = frozenset[Role](get_args(Role))
#: What each save sets anew: damage to one of these arrays costs the tensors of one state.
_ANEW: Final = frozenset[Role]({"first_moment", "second_moment"})


class ParityObject(NamedTuple):
    """A parity object to be stored: of which array, its number there, and its bytes."""

    pool: str
    op: keys.Op
    number: int
    data: Buffer


class _Array:
    """The chunks of one array so far, and the exclusive or of those that no finished parity covers."""

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.open = Xor()


class ParityWrite:
    """Takes the chunks of an edge in whatever order they are coded. Thread-safe.

    The record lists chunks by their places here, so that a parity covers those that were coded one after
    another, and no more than one chunk's length is held for each array.
    """

    def __init__(self, which: Parity) -> None:
        self.which = which
        self._arrays: dict[tuple[str, keys.Op], _Array] = {}
        self._lock = Lock()

    def add(self, pool: str, op: keys.Op, chunk: int, data: Buffer) -> ParityObject | None:
        """Take a chunk in; return the parity that it completes."""
        if not is_covered(self.which, pool, op):
            return None
        with self._lock:
            array = self._arrays.setdefault((pool, op), _Array())
            place = array.places[chunk] = len(array.places)
            array.open.add(data)
            if place % COVERED != COVERED - 1:
                return None
            complete, array.open = array.open, Xor()
        return ParityObject(pool, op, place // COVERED, complete.value())

    def rest(self) -> Iterator[ParityObject]:
        """Yield the parities of the chunks that none covers yet."""
        for (pool, op), array in sorted(self._arrays.items()):
            number, left = divmod(len(array.places), COVERED)
            if left:
                yield ParityObject(pool, op, number, array.open.value())

    def place(self, key: str, pool: str | None, op: keys.Op | None) -> int:
        """Return the place of an object among the chunks of its array; 0 of what is no covered chunk."""
        array = None if pool is None or op is None else self._arrays.get((pool, op))
        chunk = None if array is None else keys.parse_data_key(key).chunk
        return 0 if array is None or chunk is None else array.places[chunk]


def covered_roles(which: Parity) -> frozenset[Role]:
    """Return the roles of pools of which all arrays get parity, whatever the save."""
    return {"all": _ROLES, "kept": _ROLES - _ANEW, "none": frozenset[Role]()}[which]


def is_covered(which: Parity, pool: str, op: keys.Op) -> bool:
    """Return whether an array gets parity: of ``"kept"`` no moments, as every save sets them anew."""
    anew = op == "set" and role_of(pool) in _ANEW
    return which == "all" or (which == "kept" and not anew)
