"""Closed loops: a run of states saved again through a store in memory, under a policy.

Bytes and errors come from the real coder, after the first deltas, in which the error builds up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import InvalidInputError
from lcstore.format import keys
from lcstore.state.names import Name, nested
from lcstore.state.tree import FlatState, flatten, select, unflatten
from lcstore.storage.memory import MemoryBackend
from lcstore.store.opening import open_store
from lcstore.track.policy import Policy, Rule, settled
from lcstore.tune.groups import Group
from lcstore.tune.sweep import Rates

#: Deltas that are not counted, where there are enough.
WARM: Final = 3
#: Elements of all tensors together that rates are measured on; of larger states every so many rows are taken.
SAMPLED: Final = 1 << 24
#: Errors at which rates are measured.
LADDER: Final = 8


class Loop:
    """A store in memory that is saved to and measured."""

    def __init__(self, policy: Policy, states: int) -> None:
        self.policy = policy
        self._backend = MemoryBackend.fresh()
        self._store = open_store(self._backend, policy=settled(policy))
        self._store.looks_at_names = False  # these are parts of a state, made here
        self._skipped = 1 + min(WARM, (states - 2) // 2)
        self._saved = 0
        self._seen: set[str] = set()
        self._sizes: list[int] = []
        self._errors: list[float] = []

    def save(self, state: Any) -> None:
        """Save the next state, and measure it once the error has built up."""
        info = self._store.save(self._saved, state)
        objects = self._backend.snapshot()
        new = objects.keys() - self._seen
        self._seen |= new
        self._saved += 1
        if self._saved > self._skipped:
            self._sizes.append(sum(len(objects[key]) for key in new if _is_chunk(key)))
            if info.error is not None and math.isfinite(info.error):
                self._errors.append(info.error)

    @property
    def nbytes(self) -> float:
        """Coded bytes of a delta, the mean."""
        return float(np.mean(self._sizes))

    @property
    def error(self) -> float:
        """Tracking error, the root of the mean square; NaN where nothing moved."""
        return float(np.sqrt(np.mean(np.square(self._errors)))) if self._errors else math.nan

    def restored(self) -> dict[Name, Array]:
        """Return the last state as a reader gets it."""
        return {name: host.array for name, host in flatten(self._store.restore(to="numpy")).tensors}

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def run_loop(policy: Policy, states: Iterable[Any], count: int, part: Part) -> Loop:
    """Save a part of every state under a policy; return the loop with what it measured."""
    loop = Loop(policy, count)
    for state in states:
        loop.save(part(flatten(state)))
    return loop


#: Returns a state with nothing in it but what is tuned.
Part = Callable[[FlatState], Any]


def part_of(names: Iterable[Name]) -> Part:
    """Return a function that gives, of a state, a state with nothing in it but the tensors at `names`."""
    wanted = frozenset(names)

    def take(flat: FlatState) -> Any:
        found = select(flat.structure, wanted.__contains__)
        return unflatten(found.structure, [flat.tensors[i][1].array for i in found.tensors], [])

    return take


class Sampled:
    """Rows of every tensor of a run of states, from which rates are measured."""

    def __init__(self, sizes: dict[Name, int]) -> None:
        self._every = max(1, math.ceil(sum(sizes.values()) / SAMPLED))
        self.states: list[dict[Name, Array]] = []

    def add(self, flat: FlatState, names: Iterable[Name]) -> None:
        """Keep every so many rows of the tensors at `names`."""
        wanted = frozenset(names)
        rows = {name: host.array[:: self._every] for name, host in flat.tensors if name in wanted}
        self.states.append({name: np.array(array) for name, array in rows.items()})

    def rates(self, group: Group, base: Policy, asked: Sequence[float]) -> Rates:
        """Return what one group takes at several errors, each coded in a loop of its own."""
        found, sizes = [], []
        for error in asked:
            loop = Loop(uniform(base, error), len(self.states))
            for state in self.states:
                loop.save(nested((name, state[name]) for name in group.names if name in state))
            found.append(loop.error if loop.error > 0 else error)
            sizes.append(loop.nbytes * self._every)
            loop.close()
        return Rates(tuple(asked), tuple(found), tuple(sizes))


def uniform(base: Policy, error: float) -> Policy:
    """Return a policy with one error for all weights, and the roles and row errors of `base`."""
    rules = without_errors(base.rules)
    return replace(base, error=error, rules=rules, name="custom", bytes_per_save=None)


def without_errors(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return the roles and row errors of rules, without their tracking errors."""
    rows = row_errors(rules)
    return {
        glob: rows.get(glob, rule) for glob, rule in rules.items() if isinstance(rule, str) or glob in rows
    }


def row_errors(rules: Mapping[str, Rule]) -> dict[str, dict[str, float | None]]:
    """Return the row errors of rules, by glob."""
    return {
        glob: {"row_error": rule["row_error"]}
        for glob, rule in rules.items()
        if not isinstance(rule, str) and "row_error" in rule
    }


def check_count(states: int) -> None:
    """Refuse a run that is too short: its first state is an anchor, and errors build up over deltas."""
    if states < 4:
        raise InvalidInputError(f"tuning takes 4 states of a run or more, one after another, not {states}")


def _is_chunk(key: str) -> bool:
    return keys.is_data_key(key) and keys.parse_data_key(key).chunk is not None
