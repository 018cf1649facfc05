"""A checkpoint of another tool, as it was read from a file or folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lcstore.errors import InvalidInputError
from lcstore.format.labels import flat
from lcstore.units import listed


@dataclass(frozen=True)
class Checkpoint:
    """A state, with the metadata and metrics that came with it, and the names of what was left out of it."""

    state: Any
    metadata: Mapping[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def numbers(self, names: Iterable[str]) -> dict[str, float]:
        """Return numbers of the state by the last parts of their names, which are paths.

        Raises
        ------
        InvalidInputError
            There is no such number, it is too large, or two names have the same last part.
        """
        wanted = [*dict.fromkeys(names)]
        tree = self.state if wanted and isinstance(self.state, Mapping) else {}
        known = {name: value for name, value in flat(tree, "/") if _is_number(value)}
        for name in wanted:
            if name not in known:
                there = f"there are: {listed(known)}" if known else "there is none"
                raise InvalidInputError(f"no number {name!r} is in it, to be a metric; {there}")
        found = {name.rpartition("/")[2]: known[name] for name in wanted}
        if len(found) < len(wanted):
            raise InvalidInputError(f"metrics are named by last parts, and some are equal: {listed(wanted)}")
        try:
            return {name: float(number) for name, number in found.items()}
        except OverflowError as error:
            raise InvalidInputError(f"too large to be a metric: one of {listed(wanted)}") from error


def _is_number(value: Any) -> bool:
    """Return whether something is a number, of no dimension where an array holds it."""
    dtype = str(getattr(value, "dtype", ""))  # of torch or numpy
    of_arrays = getattr(value, "shape", None) == () and ("float" in dtype or "int" in dtype)
    return of_arrays or (isinstance(value, int | float) and not isinstance(value, bool))
