"""What a loop goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Resumed:
    """What a loop goes on from.

    Attributes
    ----------
    step
        The step that was saved: go on with the next one.
    state
        The state; without what was loaded into objects.
    """

    step: int
    state: Any
