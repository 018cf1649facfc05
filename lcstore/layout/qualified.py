"""How pools of several parts are told apart: by the number of the part before their own name, the stem."""

from __future__ import annotations

from typing import Final

#: The part of an edge that has one.
FIRST_PART: Final = "0"


def qualified(part: str, stem: str) -> str:
    """Return the name that a pool of a part has in the layout of all parts: that of part 0 is not said."""
    return stem if part == FIRST_PART else f"{part}/{stem}"


def part_of(pool: str) -> str:
    """Return the part that a pool of a layout lies in."""
    return pool.rpartition("/")[0] or FIRST_PART


def stem_of(pool: str) -> str:
    """Return the name of a pool without its part: what scopes and roles go by."""
    return pool.rpartition("/")[2]
