"""Modules of which tensors have more rows than what is saved of them, as a table with new entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

_Shape: TypeAlias = tuple[int, ...] | None


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
