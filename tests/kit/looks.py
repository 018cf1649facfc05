"""What is in a store, or in any folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lcstore


def contents(folder: Path | str) -> dict[str, bytes]:
    """Return the bytes of each file, by its path in the folder."""
    root = Path(folder)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def steps(where: Any) -> list[int]:
    """Return the steps of the states that are kept."""
    with lcstore.open(where, "r") as store:
        return store.steps()


def values(where: Any) -> dict[int, Any]:
    """Return what each state that is kept gives."""
    with lcstore.open(where, "r", threads=1) as store:
        return {step: store.restore(step) for step in store.steps()}
