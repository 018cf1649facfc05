"""Values of a state that are NaN or infinite: a user is to know of them, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import LOSSY_DTYPES, dtype_name
from lcstore.edges.grid import largest
from lcstore.frames.fill import working
from lcstore.staging.stage import Staged
from lcstore.state.names import Name, format_name
from lcstore.track.policy import Policy

_SHOWN: Final = 3
#: What values cost that no grid holds.
_UNFIT: Final = ", and take that many bytes until two saves after they are finite again"


@dataclass(frozen=True)
class NotFinite:
    """How many values of tensors are NaN or infinite, where some are, by name."""

    weights: Mapping[Name, int] = field(default_factory=dict)
    moments: Mapping[Name, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.weights or self.moments)

    @property
    def stats(self) -> dict[str, int | float]:
        """What the record of a state says of it."""
        counts = {"not_finite": len(self.weights), "moments_not_finite": len(self.moments)}
        return {name: count for name, count in counts.items() if count}

    def is_news_after(self, told: NotFinite) -> bool:
        """Return whether it is to be told of, where something was: weights are the graver of the two."""
        return bool(self.weights if told else self) and not told.weights

    def said(self, step: int, policy: Policy) -> str:
        """Return what is to be said of them."""
        bad = {**self.weights, **self.moments}
        shown = [f"{format_name(name)!r}" for name in bad][:_SHOWN]
        more = ", ..." * (len(bad) > _SHOWN)
        counts = ", ".join(f"{count:,}" for count in [*bad.values()][:_SHOWN])
        kept = f"They are kept as they are, every bit{_UNFIT if policy.error is not None else ''}"
        if not self.weights:
            kept = "An optimizer makes weights NaN by such moments, or leaves them where they are. Moments "
            kept += "coded with these are kept bit for bit as well, so saves are larger while they last"
        return (
            f"step {step}: values of {', '.join(shown)}{more} are not finite (NaN or infinite): "
            f"{counts}{more} of them. {kept}; store.rewind goes "
            "back to a state before, and `lcstore diff` compares this step with that"
        )


def not_finite(staged: Staged, names: Set[Name]) -> dict[Name, int]:
    """Return how many values are not finite in those tensors of some names that hold any."""
    tensors = zip(staged.flat.tensors, staged.arrays, strict=True)
    arrays = ((name, array) for (name, _), array in tensors if name in names)
    return {name: _count(array) for name, array in arrays if not math.isfinite(_largest(array))}


def _count(array: Array) -> int:
    return int(np.count_nonzero(~np.isfinite(working(array))))


def _largest(array: Array) -> float:
    return largest(array) if dtype_name(array.dtype) in LOSSY_DTYPES else 0.0
