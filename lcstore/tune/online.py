"""Tuning beside a run: states are shown as they are saved, and now and then a search runs on the last few."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from lcstore.errors import InvalidInputError
from lcstore.format.policyfile import PolicyLike, policy_from
from lcstore.state.tree import flatten, select, unflatten
from lcstore.track.policy import Policy
from lcstore.tune.probe import Loss
from lcstore.tune.result import Tuned
from lcstore.tune.search import EVALUATIONS, tunable, tune

_FEWEST: Final = 4


class Tuner:
    """Keeps a policy fitted to a run.

    Parameters
    ----------
    loss, like, tolerance, evaluations, most_error
        As for `tune`.
    every
        States from one search to the next. Sensitivities change slowly, and a search takes its time.
    window
        States that a search sees. Copies of their weights are held in memory: that many times the weights.

    Attributes
    ----------
    found
        What the last search found; None before it.

    Examples
    --------
    ::

        tuner = Tuner(loss, like="balanced")
        for step in ...:
            if tuner.observe(state):
                store.policy = tuner.policy()
            store.save(step, state)
    """

    def __init__(
        self,
        loss: Loss,
        *,
        like: PolicyLike = "balanced",
        tolerance: float | None = None,
        evaluations: int = EVALUATIONS,
        most_error: float | None = None,
        every: int = 200,
        window: int = 6,
    ) -> None:
        if window < _FEWEST or every < 1:
            raise InvalidInputError(f"window is {_FEWEST} or more, every 1 or more: not {window} and {every}")
        self._loss = loss
        self._like = policy_from(like)
        self._settings: dict[str, Any] = {
            "tolerance": tolerance,
            "evaluations": evaluations,
            "most_error": most_error,
        }
        self._every = every
        self._window: deque[Any] = deque(maxlen=window)
        self._until = window
        self.found: Tuned | None = None

    def observe(self, state: Any) -> bool:
        """Look at the next state that is saved; return whether there is a new policy.

        The first search runs when the window is full. The state may be changed once this returns.

        Raises
        ------
        InvalidInputError
            As for `tune`. The policy then stays what it was, and the next search comes in its turn.
        """
        self._until -= 1
        due = self._until <= 0
        if self._until < (self._window.maxlen or 0):
            self._window.append(self._copied(state))
        if not due:
            return False
        self._until = self._every
        states = [*self._window][:-1]
        if self._every >= (self._window.maxlen or 0):
            self._window.clear()  # they will be out of date by then
        self.found = tune([*states, state], self._loss, like=self._like, **self._settings)
        return True

    def policy(self) -> Policy:
        """Return the policy that the last search found; `like` before the first one."""
        return self._like if self.found is None else self.found.policy

    def _copied(self, state: Any) -> Any:
        flat = flatten(state)
        found = select(flat.structure, tunable(flat, self._like).__contains__)
        return unflatten(found.structure, [flat.tensors[i][1].array.copy() for i in found.tensors], [])
