"""Modules of which tensors have more rows than what is saved of them, as a table with new entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

_Shape: TypeAlias = tuple[int, ...] | None


def under_names(state: str, names: Iterable[tuple[str, str]]) -> str | None:
    """Return what gives the saved state of a module under its names here; None where no short line does.

    Parameters
    ----------
    state
        What gives it as it is saved.
    names
        Of each tensor the saved name, and the one here: wrappers set them apart.
    """
    pairs = list(names)
    for old, new in pairs[:1]:
        wrapped, wraps = old.removesuffix(new), new.removesuffix(old)
        if old == new and all(old == new for old, new in pairs):
            return state
        if all(old == wrapped + new for old, new in pairs):
            return f"{{name.removeprefix({wrapped!r}): value for name, value in {state}.items()}}"
        if all(wraps + old == new for old, new in pairs):
            return f"{{{wraps!r} + name: value for name, value in {state}.items()}}"
    return None


def line_for_rows(state: str, differing: Sequence[tuple[_Shape, _Shape]]) -> str:
    """Return what loads a module of which tensors have more rows now; "" where some differ in another way.

    Parameters
    ----------
    state
        What gives the saved state of the module.
    differing
        Of each tensor of another shape the saved one, and the one here; None of what has none.
    """
    if not differing or not all(_came(saved, here) for saved, here in differing):
        return ""
    return (
        "to keep the rows that are saved, with new ones behind them as they are here: "
        f"saved, here = {state}, model.state_dict(); [here[name][tuple(map(slice, saved[name].shape))]"
        ".copy_(saved[name]) for name in saved if name in here]"
    )


def _came(saved: _Shape, here: _Shape) -> bool:
    """Return whether rows alone came to what was saved."""
    if not saved or not here:
        return False
    return saved[1:] == here[1:] and saved[0] < here[0]
