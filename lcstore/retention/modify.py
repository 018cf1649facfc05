"""The rules that take something away from the states that are kept; they keep or drop none themselves."""

from __future__ import annotations

from dataclasses import dataclass

from lcstore.retention.base import Retention, check_keeps, check_text


@dataclass(frozen=True, slots=True, repr=False)
class Strip(Retention):
    """Let go of the tensors that `glob` matches, in the kept states that `after` does not keep.

    ``Strip("optim/**", after=LatestN(2))``: only the last two commits can be resumed with their optimizer.
    Pinned states and the latest of every run are never stripped, so that every run can go on.

    Parameters
    ----------
    glob
        A glob of names of tensors, as in ``restore(names=...)``.
    after
        Rules that name states to keep, united with ``|``.
    """

    glob: str
    after: Retention

    def __post_init__(self) -> None:
        check_text("Strip", "glob", self.glob)
        check_keeps("after of Strip", self.after)

    def arguments(self) -> list[str]:
        """Return both, `after` by name."""
        return [repr(self.glob), f"after={self.after}"]


@dataclass(frozen=True, slots=True, repr=False)
class ExactOnly(Retention):
    """Let go of the exact values of all states but those that `inner` names and those that are pinned.

    ``ExactOnly(LatestN(1))``: the newest state comes back bit for bit if it was saved so, the others at the
    store's quality.
    """

    inner: Retention

    def __post_init__(self) -> None:
        check_keeps("ExactOnly", self.inner)
