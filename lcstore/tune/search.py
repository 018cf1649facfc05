"""The search: sensitivities by a few evaluations, rates by coding, a sweep, and a check of its result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import InvalidInputError
from lcstore.format.policyfile import PolicyLike, policy_from
from lcstore.jobs.survey import OnProgress
from lcstore.state.names import Name, match
from lcstore.state.tree import FlatState, flatten
from lcstore.track.policy import Policy, Rule
from lcstore.tune.groups import Group, given_groups, make_groups
from lcstore.tune.loops import (
    LADDER,
    Loop,
    Part,
    Sampled,
    check_count,
    part_of,
    row_errors,
    run_loop,
    uniform,
)
from lcstore.tune.probe import Loss, Probe
from lcstore.tune.result import Cost, Measured, Point, Setting, Tuned
from lcstore.tune.sweep import Model, make_model
from lcstore.write.entries import layout_entries

#: Evaluations of the loss, unless said otherwise.
EVALUATIONS: Final = 40
_FEWEST: Final = 13
#: Policies that are tried at most.
_TRIES: Final = 3
#: No group gets an error of more than this many times the preset's, or in intervals, unless said otherwise.
COARSEST: Final = 2.0
#: The finest error that a group may get, as a part of the preset's.
_FINEST: Final = 0.2
_BOUNDS: Final = (0.05, 8.0)
#: A policy that uses this part of its tolerance is near enough.
_ENOUGH: Final = 0.93
_MARGIN: Final = 0.98
_POINTS: Final = 24


def tune(
    states: Iterable[Any],
    loss: Loss,
    *,
    like: PolicyLike = "balanced",
    tolerance: float | None = None,
    evaluations: int = EVALUATIONS,
    most_error: float | None = None,
    groups: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> Tuned:
    """Find the errors of groups of weights that take the fewest bytes within a tolerance of the loss.

    Parameters
    ----------
    states
        States of a run, one after another at the interval at which they are saved; 4 or more, 8 to 16 are a
        good number. Anything that can be iterated over several times (a list, a `Saved`); an iterator is
        put into a list.
    loss
        Called with states shaped like the last one, with other weights in them; gives the loss on a fixed
        probe batch. It must be a function of the state alone: no dropout, the same batch each time.
    like
        The preset (or policy) to compare with, of which everything but the errors of weights is kept.
    tolerance
        The expected increase of the loss over that of the exact state. If not given, that of `like`.
    evaluations
        At most so many calls of `loss`, 13 or more.
    most_error
        No group is given more, in intervals; by default twice the error of `like`.
    groups
        Globs of names of tensors that are to share a setting. By default tensors of one kind and depth do.
    on_progress
        Called with what is being done, how much is done, and how much there is to do.

    Raises
    ------
    InvalidInputError
        The states are too few or hold no weights, the loss is not finite, or does not depend on the state.

    Notes
    -----
    The expected increase is half the curvature of the loss along the error, measured by adding the error and
    taking it away, plus the first-order part where that is a cost (see `lcstore.tune.probe`). The loss of
    a restored state alone would mislead: it is often lower than that of the exact one.
    """
    base = policy_from(like)
    bounds = _check(base, tolerance, evaluations, most_error)
    run = list(states) if iter(states) is states else states
    return _Search(run, loss, base, tolerance, evaluations, bounds, groups, on_progress).run()


def _check(
    base: Policy, tolerance: float | None, evaluations: int, most_error: float | None
) -> tuple[float, float]:
    """Return the least and the most error of a group."""
    if base.error is None:
        raise InvalidInputError("like is a policy that keeps weights plain: there is nothing to tune")
    if evaluations < _FEWEST:
        raise InvalidInputError(f"evaluations is {evaluations}; {_FEWEST} is the least")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise InvalidInputError(f"tolerance is {tolerance}; it is an increase of the loss, more than 0")
    most = min(COARSEST * base.error, _BOUNDS[1]) if most_error is None else most_error
    least = max(_FINEST * min(base.error, most), _BOUNDS[0])
    if not least < most <= _BOUNDS[1]:
        raise InvalidInputError(
            f"most_error is {most}; it is more than {least:g}, and at most {_BOUNDS[1]:g}"
        )
    return least, most


@dataclass
class _Search:
    """One search, from the first look at the states to the last check."""

    states: Iterable[Any]
    loss: Loss
    base: Policy
    tolerance: float | None
    evaluations: int
    bounds: tuple[float, float]
    globs: Sequence[str] | None
    on_progress: OnProgress | None

    def run(self) -> Tuned:
        last, self.count = self._last()
        flat = flatten(last)
        self.sizes = tunable(flat, self.base)
        self.groups = self._groups()
        self.part: Part = part_of(self.sizes)
        sampled, preset, coarse = self._first_pass()
        probe = Probe(self.loss, last, self.evaluations)
        whole, coarsest, alone = self._sensitivities(probe, preset, coarse)
        probe.check()
        tolerance = whole.charged if self.tolerance is None else self.tolerance
        model = self._model(sampled, alone, whole, coarsest, (preset.error, coarse.error))
        at_preset = np.full(len(self.groups), model.place_of(self._error()))
        self.weights = _weights(model, at_preset)
        of_preset = self._measured(preset, whole, at_preset, model)
        policy, tuned, places = self._tries(probe, model, at_preset, of_preset, tolerance)
        preset.close()
        coarse.close()
        scale = (
            of_preset.bytes_per_save / max(model.size(at_preset), 1.0),
            whole.charged / (model.cost(at_preset) or 1.0),
        )
        return Tuned(
            policy,
            of_preset,
            tuned,
            tolerance,
            probe.exact,
            self._settings(model, places, alone),
            _points(model, model.sweep(_POINTS), scale),
            _points(model, _all_alike(model), scale),
            probe.evaluations,
            self.count,
        )

    # What there is ----------------------------------------------------------------------------------------

    def _last(self) -> tuple[Any, int]:
        count, last = 0, None
        for state in self.states:
            count, last = count + 1, state
        check_count(count)
        return last, count

    def _groups(self) -> list[Group]:
        # One for the state itself, two each for the preset and the coarsest, two for each try.
        most = (self.evaluations - 5 - 2 * self._tries_allowed()) // 2
        if self.globs is not None:
            return given_groups(self.sizes, self.globs, most)
        return make_groups(self.sizes, most)

    def _tries_allowed(self) -> int:
        return _TRIES if self.evaluations >= 2 * _FEWEST else 2

    def _error(self) -> float:
        assert self.base.error is not None
        return self.base.error

    def _first_pass(self) -> tuple[Sampled, Loop, Loop]:
        """Save all states as the preset and at the coarsest error, and keep rows of them."""
        sampled = Sampled(self.sizes)
        preset = Loop(replace(self.base, bytes_per_save=None), self.count)
        coarse = Loop(uniform(self.base, self.bounds[1]), self.count)
        for place, state in enumerate(self.states):
            flat = flatten(state)
            sampled.add(flat, self.sizes)
            for loop in (preset, coarse):
                loop.save(self.part(flat))
            self._told("saving the run", place + 1, self.count)
        return sampled, preset, coarse

    # What it costs ----------------------------------------------------------------------------------------

    def _sensitivities(self, probe: Probe, preset: Loop, coarse: Loop) -> tuple[Cost, Cost, list[Cost]]:
        """Return what the preset, the coarsest, and the coarsest in one group at a time do to the loss."""
        whole = probe.cost(self._errors(probe, preset))
        errors = self._errors(probe, coarse)
        coarsest = probe.cost(errors)
        alone = []
        for place, group in enumerate(self.groups):
            alone.append(probe.cost({name: errors[name] for name in group.names}))
            self._told("evaluating the loss", place + 1, len(self.groups))
        return whole, coarsest, alone

    def _errors(self, probe: Probe, loop: Loop) -> dict[Name, Array]:
        restored = loop.restored()
        return probe.errors_of({name: restored[name] for name in self.sizes})

    def _model(
        self,
        sampled: Sampled,
        alone: list[Cost],
        whole: Cost,
        coarsest: Cost,
        found: tuple[float, float],
    ) -> Model:
        asked = [float(e) for e in np.geomspace(*self.bounds, LADDER)]
        rates = []
        for place, group in enumerate(self.groups):
            rates.append(sampled.rates(group, self.base, asked))
            self._told("measuring rates", place + 1, len(self.groups))
        power = _power(whole.charged, coarsest.charged, *found)
        costs = [cost.charged for cost in alone]
        elements = [group.elements for group in self.groups]
        return make_model(rates, costs, elements, self.bounds[1], power, self.bounds)

    # What to choose ---------------------------------------------------------------------------------------

    def _tries(
        self, probe: Probe, model: Model, at_preset: Array, preset: Measured, tolerance: float
    ) -> tuple[Policy, Measured, Array]:
        """Return the best of the policies tried; each tells how far the model is off."""
        best = (replace(self.base, name=f"tuned-{self.base.name}"), preset, at_preset)
        fits = preset.cost.charged <= tolerance
        factor = preset.cost.charged / (model.cost(at_preset) or 1.0)
        seen: set[tuple[int, ...]] = set()
        for number in range(self._tries_allowed()):
            places = model.within(tolerance / max(factor, 1e-30) * (_MARGIN if number else 1.0))
            if tuple(places.tolist()) in seen or probe.left < 2:
                break
            seen.add(tuple(places.tolist()))
            policy = self._policy(model, places)
            loop = run_loop(policy, self.states, self.count, self.part)
            cost = probe.cost(self._errors(probe, loop))
            found = self._measured(loop, cost, places, model)
            loop.close()
            self._told("trying policies", number + 1, self._tries_allowed())
            kept = cost.charged <= tolerance
            if kept and (not fits or found.bytes_per_save < best[1].bytes_per_save):
                best, fits = (policy, found, places), True
            factor = cost.charged / (model.cost(places) or 1.0)
            if kept and (cost.charged >= _ENOUGH * tolerance or (places == model.errors.size - 1).all()):
                break
        if not fits:
            raise InvalidInputError(
                f"no policy that was tried keeps to a tolerance of {tolerance:g}; {self.base.name} costs "
                f"{preset.cost.charged:g}: allow more, or tune like a finer policy"
            )
        return best

    def _policy(self, model: Model, places: Array) -> Policy:
        """Return the policy: the preset's roles, the errors of the groups, the preset's other rules."""
        roles = {glob: rule for glob, rule in self.base.rules.items() if isinstance(rule, str)}
        rows = row_errors(self.base.rules)
        errors = [float(f"{model.errors[place]:.3g}") for place in places]
        rules: dict[str, Rule] = {
            glob: {"error": error} | rows.get(glob, {})
            for group, error in zip(self.groups, errors, strict=True)
            for glob in group.globs
        }
        others = {glob: rule for glob, rule in self.base.rules.items() if glob not in roles | rules}
        return replace(
            self.base, rules=roles | rules | others, name=f"tuned-{self.base.name}", bytes_per_save=None
        )

    def _measured(self, loop: Loop, cost: Cost, places: Array, model: Model) -> Measured:
        errors = model.errors[places]
        weighted = math.sqrt(float(np.average(errors**2, weights=self.weights)))
        return Measured(loop.nbytes, cost, loop.error, weighted)

    def _settings(self, model: Model, places: Array, alone: list[Cost]) -> tuple[Setting, ...]:
        return tuple(
            Setting(
                group.globs,
                len(group.names),
                group.elements,
                float(f"{model.errors[place]:.3g}"),
                cost,
                self.bounds[1],
            )
            for group, place, cost in zip(self.groups, places, alone, strict=True)
        )

    def _told(self, what: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(what, done, total)


def tunable(flat: FlatState, policy: Policy) -> dict[Name, int]:
    """Return the tensors of weights whose error a policy decides, with their elements."""
    given = [glob for glob, rule in policy.rules.items() if isinstance(rule, str)]
    found = {
        entry.name: math.prod(entry.shape)
        for entry in layout_entries(flat, policy, set())
        if entry.role == "weights" and not any(match(glob, entry.name) for glob in given)
    }
    if not found:
        raise InvalidInputError("the last state has no tensors of weights whose error could be tuned")
    return found


def _power(low: float, high: float, at_low: float, at_high: float) -> float:
    """Return the power of the error with which the loss rises, by two points; 2 where they do not tell."""
    if not (0 < low < high and 0 < at_low < at_high):
        return 2.0
    return min(max(math.log(high / low) / math.log(at_high / at_low), 1.0), 3.0)


def _weights(model: Model, at: Array) -> Array:
    """Return what an interval of error in each group costs the loss; ones where it costs nothing in any."""
    costs = model.costs[np.arange(len(at)), at]
    return costs if costs.sum() > 0 else np.ones(len(at))


def _all_alike(model: Model) -> Iterator[Array]:
    for place in np.unique(np.linspace(0, model.errors.size - 1, _POINTS).round().astype(int)):
        yield np.full(len(model.nbytes), place)


def _points(model: Model, divisions: Iterable[Array], scale: tuple[float, float]) -> tuple[Point, ...]:
    """Return points of a curve, scaled so that the model's preset is the measured one."""
    return tuple(Point(model.size(one) * scale[0], model.cost(one) * scale[1]) for one in divisions)
