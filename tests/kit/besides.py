"""What is stored besides a state by default, left out where a test is about something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from lcstore.durability import NAMED


@contextmanager
def unprotected() -> Iterator[None]:
    """Have stores be opened with ``durability="none"`` where nothing else is said: half the operations."""
    with patch.dict(NAMED, default=NAMED["none"]):
        yield
