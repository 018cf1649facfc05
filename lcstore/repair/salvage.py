"""Records that cannot be read: set aside, with what has to be said in their place."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from lcstore.check.readable import Readable
from lcstore.errors import CorruptionError, LcstoreError, NotFoundError, StorageError, UnsupportedFormatError
from lcstore.format import keys, markkeys
from lcstore.format.marks import CondemnedRecord, RetiredRecord, TagRecord
from lcstore.format.records import DEFAULT_GRACE_SECONDS, MAX_GRACE_SECONDS, StoreRecord, utc_now
from lcstore.index.aside import place_aside
from lcstore.index.gone import DAMAGED, REASON_LOST
from lcstore.records.kinds import KINDS, second_copy_of
from lcstore.records.lost import lost_key
from lcstore.repair.overlay import Overlay
from lcstore.repair.repaired import Action, Loss

#: How often an object is read again that is not the same twice.
_TRIES: Final = 4
_GRACE: Final = re.compile(rb'"grace_seconds":([0-9]{1,9})[^0-9]')


def refuse(problems: dict[str, LcstoreError]) -> None:
    """Raise where something is not known to be damaged: the target fails, or it is of a newer lcstore."""
    for key, error in problems.items():
        if isinstance(error, UnsupportedFormatError):
            raise UnsupportedFormatError(f"{error.message}: nothing is repaired by an older one", key=key)
        if isinstance(error, StorageError):
            raise StorageError(
                f"{error.message}: nothing is repaired while the target does not give everything", key=key
            )


class Salvage:
    """Sets the unreadable records of a store aside; `actions` and `lost` say what came of it."""

    def __init__(self, backend: Overlay, store: Readable) -> None:
        self.backend = backend
        self.store = store
        self.actions: list[Action] = []
        self.lost: list[Loss] = []

    def run(self) -> None:
        """Put back what has a second copy, set aside what cannot be read, and account for missing parents."""
        for key, error in sorted(self.store.mended.items()):
            copy = keys.copy_key(key) if key == keys.STORE_KEY else second_copy_of(key)
            assert copy is not None  # or it could not have been read
            self._put_back_from(copy, key, error)
        for copy, key in sorted(self.store.uncopied.items()):
            self._put_back_from(key, copy, CorruptionError("it is no copy any more", key=copy))
        for key, error in sorted(self.store.unreadable.items()):
            self._save(key, error)
        for parent, step in sorted(self._missing_parents().items()):
            reason = f"{DAMAGED}its record is missing"
            self._retire(parent, reason, f"node {parent}, on which step {step} stands, has no record", None)

    def _save(self, key: str, error: LcstoreError) -> None:
        folder = key.partition("/")[0]
        if key == keys.STORE_KEY:
            self._store_record(error)
            return
        if isinstance(error, NotFoundError):
            return  # it was listed, and is not there: the target contradicts itself
        if folder == keys.NODES:
            self._node(key, error)
        elif folder in (keys.NAMES, keys.RETIRED, keys.CONDEMNED):
            self._renew(folder, key)
        self._set_aside(key, error)

    def _put_back_from(self, other: str, key: str, error: LcstoreError) -> None:
        """Store again what another object is a copy of, unless that is gone by now as well."""
        with suppress(NotFoundError):  # collected meanwhile, or else the next repair sees that it is lost
            data = self._read(other)
            self.put_back(key, lambda: data, error)

    def _read(self, key: str) -> bytes:
        """Return what an object is, having read it until the same comes twice: a bit may flip on the way."""
        data = self.backend.get(key)
        for _ in range(_TRIES):
            again, data = data, self.backend.get(key)
            if again == data:
                return data
        raise StorageError("each time that it is read it is another: nothing is repaired so", key=key)

    def put_back(self, key: str, was: Callable[[], bytes], error: LcstoreError) -> None:
        """Store what an object was; what is there in its place is set aside."""
        self._set_aside(key, error)
        self.backend.put_made(key, was)
        self.actions.append(Action("rebuild", key, f"put back: {error.message}", keys.step_of(key)))

    def _set_aside(self, key: str, error: LcstoreError) -> None:
        """Move an object into quarantine."""
        found = place_aside(self.backend, key)
        if found is not None:
            aside = found[0]
            self.backend.move(key, aside)
            self.actions.append(Action("quarantine", aside, f"set aside: {error.message}", keys.step_of(key)))

    def _store_record(self, error: LcstoreError) -> None:
        grace = DEFAULT_GRACE_SECONDS
        if not isinstance(error, NotFoundError):
            found = _GRACE.search(self.backend.get(keys.STORE_KEY, 0, 1 << 16))
            # Only a longer grace is believed: whatever the store was made with, that is on the safe side.
            grace = max(grace, min(int(found[1]), MAX_GRACE_SECONDS)) if found is not None else grace
            self._set_aside(keys.STORE_KEY, error)
        self.backend.put(keys.STORE_KEY, StoreRecord(grace).to_bytes())
        message = f"written anew, with a grace of {grace} s between condemning and deleting"
        self.actions.append(Action("rewrite", keys.STORE_KEY, message))

    def _node(self, key: str, error: LcstoreError) -> None:
        name = keys.parse_node_key(key)
        if name.node in self.store.records:
            return  # a second name of a record that is whole
        for whole in (key, keys.copy_key(name.node)):
            right = lost_key(self.backend, whole, name.node)
            if right is not None:  # the name alone was wrong
                self._put_back_from(whole, right, error)
                return
        if name.node not in self.store.graph.hidden:
            names = names_of(self.store, name.node)
            self.lost.append(Loss(name.step, name.node, markkeys.WHOLE_STATE, (), names, key))
        if name.node not in self.store.marks.retired:
            reason = f"{DAMAGED}{error.message}"
            self._retire(name.node, reason, f"step {name.step} is lost: {error.message}", name.step)

    def _retire(self, node: str, reason: str, message: str, step: int | None) -> None:
        mark = RetiredRecord(node, reason[:2_000], utc_now())
        self.backend.put(mark.key(), mark.to_bytes())
        self.actions.append(Action("retire", mark.key(), message, step))

    def _renew(self, folder: str, key: str) -> None:
        """Write a mark again: readers go by its name alone, and that says all that it says."""
        parse = KINDS[folder].parse
        name = parse(key)
        whole = set(self.store.below(folder)) - self.store.unreadable.keys()
        if any(replace(parse(other), record=name.record) == name for other in whole):
            return
        mark: TagRecord | RetiredRecord | CondemnedRecord
        if folder == keys.NAMES:
            mark = TagRecord(name.name, name.node, name.seq, utc_now(), name.kind)
        elif folder == keys.RETIRED:
            mark = RetiredRecord(name.node, REASON_LOST, utc_now(), name.what)
        else:
            mark = CondemnedRecord(name.edge, name.node, name.scope, utc_now())
        self.backend.put(mark.key(), mark.to_bytes())
        self.actions.append(Action("renew", mark.key(), "written again from its name"))

    def _missing_parents(self) -> dict[str, int]:
        """Return the parents of which nothing is known, with a step that stands on each.

        A state that was let go of, and that none was saved upon, says nothing: it may not have been
        acknowledged, since the store with its parent was moved away.
        """
        graph = self.store.graph
        known = graph.nodes.keys() | self.store.marks.retired
        idle = graph.hidden - {name.base for name in graph.nodes.values()}
        return {
            record.parent: record.step
            for node, record in self.store.records.items()
            if record.parent is not None and record.parent not in known and node not in idle
        }


def names_of(store: Readable, node: str) -> tuple[str, ...]:
    """Return by what users may look for a node."""
    name = store.graph.nodes[node]
    tips = {"latest": store.graph.latest(), f"latest of run {name.run}": store.graph.latest(name.run_id)}
    found = [label for label, tip in tips.items() if tip is not None and tip.node == node]
    marks = {(tag.kind, tag.name) for tag in store.named if tag.node == node}
    return (*found, *(f"{kind} {text}" for kind, text in sorted(marks)))
