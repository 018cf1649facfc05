"""What a loop may lose without knowing: its last step, and good evaluations at steps where no save is due."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from lcstore.errors import LcstoreError
from lcstore.retention import BestN, EachRun, Retention
from lcstore.store.store import Store

_log: Final = logging.getLogger("lcstore")

#: A loop of more steps than this goes over batches and not over epochs.
_EPOCHS: Final = 1000
#: Numbers that are at hand, while one on a GPU has to be waited for.
_KNOWN: Final = (int, float, np.number)

#: What a rule goes by: a metric, its mode, and whether each run is judged by itself.
_Name: TypeAlias = tuple[str, str, bool]


class Evaluations:
    """Tells once where an evaluation is lost that a rule would have kept: no save was due at its step.

    That is of metrics given now and then, as those of a held-out set, at once. Of one that is given at most
    steps it is at the end of a loop over epochs: the loss of a batch is much like the one that is saved next.

    Parameters
    ----------
    store
        Where the states are: what earlier processes saved may be better.
    rule
        What is kept; None: everything.
    """

    def __init__(self, store: Store, rule: Retention | None) -> None:
        self._store = store
        parts = rule.parts if rule else ()
        each = [(part, False) if not isinstance(part, EachRun) else (part.inner, True) for part in parts]
        # A rule may keep the most of what another keeps the least of; or of each run, and another of all.
        self._rules: dict[_Name, BestN] = {
            (rule.metric, rule.mode, of_each): rule for rule, of_each in each if isinstance(rule, BestN)
        }
        self._best: dict[_Name, float] = {}
        self._missed: dict[_Name, tuple[float, int]] = {}
        self._steps, self._given = 0, 0

    def offered(self, step: int, metrics: Mapping[str, Any] | None, *, saved: bool) -> None:
        """Take in the metrics of a step, and whether it is saved."""
        self._steps += 1
        known = metrics if isinstance(metrics, Mapping) else {}  # a save refuses what is none
        judged = {name: rule for name, rule in self._rules.items() if rule.metric in known}
        self._given += bool(judged)
        mostly = 2 * self._given > self._steps
        for name, rule in judged.items():
            metric = known[rule.metric]
            if mostly and not saved and not isinstance(metric, _KNOWN):
                continue  # no number is asked of a GPU at each step
            value = _value(metric) * _sign(rule)
            if not value > self._best.get(name, -math.inf):
                continue
            if saved:
                self._best[name] = value
            elif mostly:
                self._missed[name] = max(self._missed.get(name, (value, step)), (value, step))
            else:
                self._tell(step, name, rule, value)

    def mode_of(self, metric: str) -> Literal["min", "max"] | None:
        """Return which value of a metric is the best by the rule; None where it says none, or both."""
        modes = {rule.mode for rule in self._rules.values() if rule.metric == metric}
        return modes.pop() if len(modes) == 1 else None

    def ended(self, offered: int | None, last: int | None) -> None:
        """Tell of the last step that was offered, and of the best of a loop over epochs, if not saved."""
        if offered not in (None, last):
            _log.warning(
                "%s: the loop ended with step %s, and the last one saved is %s: to keep the end of a loop, "
                "give force=True to the save of its last step", self._store.url, offered, last,
            )  # fmt: skip
        for name, rule in [*self._rules.items()] if self._steps <= _EPOCHS else []:
            value, step = self._missed.get(name, (-math.inf, 0))
            if value > self._best.get(name, -math.inf):
                self._tell(step, name, rule, value)

    def _tell(self, step: int, name: _Name, rule: BestN, value: float) -> None:
        *_, of_each = name
        if not of_each:  # of this run all that was saved is known
            self._best[name] = self._best_of_all(rule)
        if not self._rules or value <= self._best.get(name, -math.inf):
            return
        self._rules = {}
        _log.warning(
            "%s: step %d, with the best %r so far, is not saved, as no save is due: %s finds saved steps "
            "alone. To save all that are evaluated, give force=True to their saves",
            self._store.url, step, rule.metric, rule,
        )  # fmt: skip

    def _best_of_all(self, rule: BestN) -> float:
        with suppress(LcstoreError):  # no state has the metric
            found = self._store.info(f"best:{rule.metric}:{rule.mode}")
            return _value(found.metrics[rule.metric]) * _sign(rule)
        return -math.inf


def _sign(rule: BestN) -> int:
    return 1 if rule.mode == "max" else -1


def _value(metric: Any) -> float:
    """Return a metric as a number; NaN where it is none, which a save would refuse."""
    try:
        return float(metric)
    except Exception:  # as of an array that its library has given away: nothing of it is saved here
        return math.nan
