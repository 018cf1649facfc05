"""The result of a search: the policy, what it was measured to do, and the curve that it was chosen from."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from lcstore.format.policyfile import write_policy
from lcstore.track.policy import Policy


@dataclass(frozen=True)
class Cost:
    """What an error does to the loss.

    Attributes
    ----------
    even
        The part that does not depend on the error's sign: half its curvature.
    odd
        The part that does: positive where lying behind costs, negative where it averages noise.
    """

    even: float
    odd: float

    @property
    def increase(self) -> float:
        """The loss of the restored state minus that of the exact one."""
        return self.even + self.odd

    @property
    def charged(self) -> float:
        """The expected increase: averaged noise is no gain, as it comes back with the next steps."""
        return max(self.even, 0.0) + max(self.odd, 0.0)


@dataclass(frozen=True)
class Measured:
    """What a policy was measured to do.

    Attributes
    ----------
    bytes_per_save
        Coded bytes of the weights of a delta, the mean after the first ones.
    cost
        What its error does to the loss.
    error
        Tracking error over all weights, in intervals.
    weighted_error
        The tracking error with each group weighted by what an interval of error in it costs the loss.
    """

    bytes_per_save: float
    cost: Cost
    error: float
    weighted_error: float


@dataclass(frozen=True)
class Setting:
    """The setting of a group of tensors.

    Attributes
    ----------
    globs
        Globs that match the tensors' names.
    tensors, elements
        How many tensors there are, and how many elements they have together.
    error
        The error that the group is given, in intervals.
    alone
        What the group's error alone did to the loss when it was coded at the error `probed`.
    probed
        The coarsest error of the search, in intervals, at which each group was tried alone.
    """

    globs: tuple[str, ...]
    tensors: int
    elements: int
    error: float
    alone: Cost
    probed: float


@dataclass(frozen=True)
class Point:
    """A point of the rate-quality curve, by the model: bytes of a delta, and the expected increase."""

    bytes_per_save: float
    increase: float


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    Attributes
    ----------
    policy
        The policy; `like` under another name if nothing smaller kept to the tolerance.
    preset, tuned
        The preset it is compared with, and the policy.
    tolerance
        The expected increase of the loss that was allowed.
    loss
        The loss of the last state itself.
    settings
        What each group is given, in the order of the state.
    curve, uniform
        Points of rate and quality, from few bytes to many: with groups at equal slope, and with one error for
        all of them.
    evaluations
        How often the loss was called.
    states
        How many states the rates come from.
    """

    policy: Policy
    preset: Measured
    tuned: Measured
    tolerance: float
    loss: float
    settings: tuple[Setting, ...]
    curve: tuple[Point, ...]
    uniform: tuple[Point, ...]
    evaluations: int
    states: int

    @property
    def gain(self) -> float:
        """How many times fewer bytes the policy takes than the preset."""
        return self.preset.bytes_per_save / max(self.tuned.bytes_per_save, 1.0)

    @property
    def unread(self) -> tuple[Setting, ...]:
        """The groups whose errors did nothing to the loss, because it does not read them, perhaps."""
        return tuple(one for one in self.settings if one.alone.even == one.alone.odd == 0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy file that ``lcstore.open(url, policy=path)`` takes."""
        write_policy(self.policy, path, about=self.summary())

    def summary(self) -> dict[str, Any]:
        """Return the main figures as values of JSON."""
        return {
            "gain": self.gain,
            "tolerance": self.tolerance,
            "loss": self.loss,
            "evaluations": self.evaluations,
            "states": self.states,
            "preset": asdict(self.preset),
            "tuned": asdict(self.tuned),
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything but the policy as values of JSON."""
        return self.summary() | {
            "settings": [asdict(one) for one in self.settings],
            "curve": [asdict(one) for one in self.curve],
            "uniform": [asdict(one) for one in self.uniform],
        }
