"""A store as plain Python: which states were acknowledged, and what each must give back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lcstore.state.names import format_name
from lcstore.state.tree import flatten
from lcstore.store.store import Store


@dataclass(frozen=True)
class Snapshot:
    """What a state is, bit for bit, without its arrays.

    Attributes
    ----------
    structure, leaves
        The tree, and the plain values in it.
    tensors
        By path: dtype, shape, and sha256 of the bytes in C order.
    """

    structure: object
    leaves: tuple[str, ...]
    tensors: dict[str, tuple[str, tuple[int, ...], str]]

    @classmethod
    def of(cls, state: Any) -> Snapshot:
        """Return the snapshot of a tree."""
        flat = flatten(state)
        return cls(
            structure=flat.structure,
            # By text: nan equals itself there, and 1 is not True.
            leaves=tuple(map(repr, flat.leaves)),
            tensors={
                format_name(path): (str(host.array.dtype), tuple(host.array.shape), _hash(host.array))
                for path, host in flat.tensors
            },
        )

    def differences(self, other: Snapshot) -> list[str]:
        """Return what differs: paths of tensors, and ``structure`` or ``leaves``; empty if nothing does."""
        found = [what for what in ("structure", "leaves") if getattr(self, what) != getattr(other, what)]
        paths = self.tensors.keys() | other.tensors.keys()
        return found + sorted(p for p in paths if self.tensors.get(p) != other.tensors.get(p))


def _hash(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@dataclass(frozen=True)
class Known:
    """A state of which the model knows what it gives back."""

    node: str
    step: int
    run: int
    run_id: str
    seq: int
    tags: tuple[str, ...]
    snapshot: Snapshot

    @property
    def order(self) -> tuple[int, int, str]:
        """By this, the greatest is the latest."""
        return (self.seq, self.run, self.node)


@dataclass
class StoreModel:
    """Which states a store must have, and which it may have.

    Attributes
    ----------
    known
        Every state that was taken in, by node.
    retired
        Nodes that the store let go.
    doubtful
        Nodes of which an operation that failed or died may or may not have let go: the store may show them
        or not.
    pinned
        Nodes that a pin holds, whatever was retired.
    """

    known: dict[str, Known] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    pinned: set[str] = field(default_factory=set)

    def acknowledge(self, store: Store, node: str, state: Any = None) -> Known:
        """Take in a state that the store has acknowledged (or that turned out to have landed).

        Parameters
        ----------
        store
            A handle to look with: one without faults.
        node
            The node, as `SaveInfo` names it.
        state
            What it restored to when it was acknowledged; None looks now.
        """
        info = store.info(node)
        snapshot = Snapshot.of(store.restore(node) if state is None else state)
        known = Known(node, info.step, info.run, info.run_id, info.seq, tuple(info.tags), snapshot)
        self.known[node] = known
        return known

    def adopt(self, store: Store) -> list[Known]:
        """Take in every state that is listed and not known: saves that landed unacknowledged."""
        new = [found.node for found in store.states(records=False) if found.node not in self.known]
        return [self.acknowledge(store, node) for node in new]

    def retire(self, nodes: Iterable[str]) -> None:
        """The store acknowledged that it let these go."""
        gone = set(nodes)
        self.retired |= gone
        self.doubtful -= gone

    def doubt(self, nodes: Iterable[str]) -> None:
        """An operation that was to let these go did not say how it ended."""
        self.doubtful |= set(nodes) - self.retired

    def change(self, node: str, snapshot: Snapshot) -> None:
        """From now on a node gives back something else: its exact value was let go, or a pool stripped."""
        self.known[node] = replace(self.known[node], snapshot=snapshot)

    def kept(self) -> list[Known]:
        """Return the states that must be there, the latest last."""
        return self._ordered(lambda node: node in self.pinned or node not in self.retired | self.doubtful)

    def possible(self) -> list[Known]:
        """Return the states that may be shown: those kept, and those in doubt."""
        return self._ordered(lambda node: node in self.pinned or node not in self.retired)

    def _ordered(self, chosen: Callable[[str], bool]) -> list[Known]:
        return sorted((k for k in self.known.values() if chosen(k.node)), key=lambda known: known.order)

    def steps(self) -> list[int]:
        """Return the steps of the states that must be there, in rising order."""
        return sorted({known.step for known in self.kept()})

    def latest(self) -> Known | None:
        """Return the latest of the states that must be there."""
        kept = self.kept()
        return kept[-1] if kept else None


class Chronicle:
    """What a model was at each moment of a run, for tests that ask later ("the power failed at change 212").

    Attributes
    ----------
    model
        As it is now.
    """

    def __init__(self) -> None:
        self.model = StoreModel()
        self._past: list[tuple[int, StoreModel]] = [(0, deepcopy(self.model))]

    def note(self, moment: int) -> None:
        """Say that from this moment on (never before the last one noted) the model is as it is now."""
        self._past.append((moment, deepcopy(self.model)))

    def at(self, moment: int) -> StoreModel:
        """Return the model as it was: what had been noted by that moment."""
        return deepcopy([model for noted, model in self._past if noted <= moment][-1])
