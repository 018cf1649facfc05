"""Which files name which states: pointers come and go, and a state goes with the last one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain
from typing import Any, Final

from lcstore.errors import InvalidInputError, NotFoundError
from lcstore.integrations.lightning_pointer import (
    Pointer,
    place_of,
    pointers_beside,
    read_pointer,
    remove_pointer,
    write_pointer,
)
from lcstore.store.store import Store

_log: Final = logging.getLogger("lcstore")


class Names:
    """The pointers to the states of one store.

    Attributes
    ----------
    newest
        The pointer to the newest state that is there, if this process saved or loaded one.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.newest: Pointer | None = None
        #: What the files that were written here name.
        self._named: dict[str, str] = {}
        #: States that could not be let go of yet, each with a file that named it.
        self._refused: set[tuple[str, str]] = set()

    def point(self, path: str, node: str, step: int, notes: dict[str, Any]) -> None:
        """Have a file name a state, and let go of what it named before."""
        before, pointer = read_pointer(path), Pointer(self._store.url, node, step, notes)
        write_pointer(path, pointer)
        self._named[place_of(path)] = node
        if self.newest is None or self.newest.node != node:
            # The latest state of a run stays. Now another one is.
            refused, self._refused = self._refused, set()
            for each in refused:
                self._let_go(*each)
        self.newest = pointer
        if before is not None and before.store == pointer.store and not self._let_go(before.node, path):
            self._refused.add((before.node, path))

    def remove(self, path: str, otherwise: Callable[[str], None]) -> None:
        """Remove a pointer, and let go of its state; what is no pointer is removed `otherwise`."""
        pointer, node = read_pointer(path), self._named.pop(place_of(path), None)
        if pointer is None:
            otherwise(path)
        else:
            remove_pointer(path)
            node = pointer.node if pointer.store == self._store.url else None
        if node is not None and not self._let_go(node, path):
            self._refused.add((node, path))

    def _let_go(self, node: str, path: str) -> bool:
        """Let go of a state, if no pointer beside a file names it.

        Return False where the store keeps it for now, as the latest of its run or as pinned.
        """
        known = [place for place, named in self._named.items() if named == node]
        # Those that were written here are looked at first: where there are many files, that is quicker.
        for pointer in chain(map(read_pointer, known), pointers_beside(path)):
            if pointer is not None and pointer.node == node:
                return True
        try:
            self._store.retire(node, "no checkpoint file names it any more")
        except NotFoundError:
            return True
        except InvalidInputError as error:  # it is the latest of its run, or pinned
            _log.info("kept, though no checkpoint file names it: %s", error)
            return False
        return True
