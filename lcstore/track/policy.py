"""How much error a user will have, per role, and exceptions by path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from lcstore.errors import InvalidInputError
from lcstore.state.paths import Path, match
from lcstore.state.roles import Role


@dataclass(frozen=True)
class Policy:
    """The quality of a store's saves.

    Parameters
    ----------
    error
        Tracking error aimed at for weights, in checkpoint intervals: ``|u - u~| / |u_t - u_(t-1)|``. None
        keeps weights exact.
    first_moment
        Bits per element of first moments; 0 drops them (they are restored as zero). None keeps them exact.
    second_moment
        Step of second moments in octaves, 1/16 to 15, on a logarithmic scale around the product of a factor
        per row and one per column: normal ones come back within 0.6 steps and 1/16 octave. They are zero only
        where they were. None keeps them exact.
    rules
        Roles by path glob, the first match wins: ``{"ema/**": "exact"}``. They go before what names suggest.
    name
        What the policy is called in records.
    """

    error: float | None = 1.0
    first_moment: float | None = 1.5
    second_moment: float | None = 1.0
    rules: Mapping[str, Role] = field(default_factory=dict)
    name: str = "custom"

    def __post_init__(self) -> None:
        if self.error is not None and not 0.01 <= self.error <= 8:
            raise InvalidInputError(f"a policy's error is 0.01 to 8 intervals, not {self.error}")
        first, second = self.first_moment, self.second_moment
        if first is not None and first != 0 and not 0.5 <= first <= 16:
            raise InvalidInputError(f"a policy's first_moment is 0, or 0.5 to 16 bits, not {first}")
        if second is not None and not 1 / 16 <= second <= 15:
            raise InvalidInputError(f"a policy's second_moment is 1/16 to 15 octaves, not {second}")
        for glob, role in self.rules.items():
            if role not in get_args(Role):
                raise InvalidInputError(
                    f"rule {glob!r} gives {role!r}; a role is one of {', '.join(get_args(Role))}"
                )

    def role(self, path: Path, guessed: Role) -> Role:
        """Return the role of the tensor at `path`, given what its name suggests."""
        role = next((role for glob, role in self.rules.items() if match(glob, path)), guessed)
        kept_exact = {
            "weights": self.error,
            "first_moment": self.first_moment,
            "second_moment": self.second_moment,
        }
        return "exact" if role in kept_exact and kept_exact[role] is None else role


PRESETS: Final[dict[str, Policy]] = {
    "exact": Policy(None, None, None, name="exact"),
    "high": Policy(0.35, 4.0, 1 / 16, name="high"),
    "balanced": Policy(1.0, 1.5, 1.0, name="balanced"),
    "small": Policy(2.0, 0.0, 4.0, name="small"),
}


def policy_of(policy: str | Policy) -> Policy:
    """Return a preset by name, or the policy itself."""
    if isinstance(policy, Policy):
        return policy
    if policy not in PRESETS:
        raise InvalidInputError(f"policy is {policy!r}; it is a Policy or one of {', '.join(PRESETS)}")
    return PRESETS[policy]
