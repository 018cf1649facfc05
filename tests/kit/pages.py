"""The blocks of code on the documentation's pages, and how they are run: as they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lcstore

ROOT = Path(lcstore.__file__).parents[1]
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: Words after a fence's language: what a block needs, and that it is a loop which may be killed at any time.
LIBRARIES = ("torch", "torchdata", "jax", "flax", "optax", "keras", "transformers", "accelerate", "xarray")
LOOP = "loop"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    code: str

    @property
    def missing(self) -> list[str]:
        """The libraries that it needs and that are not installed."""
        return [word for word in LIBRARIES if self._needs(word) and find_spec(word) is None]

    def _needs(self, library: str) -> bool:
        return library in self.words or f"import {library}\n" in self.code

    def run(self, space: dict[str, Any]) -> None:
        """Run it; errors name the line of the page."""
        exec(compile("\n" * self.line + self.code, self.page, "exec"), space)


def blocks_of(page: str, language: str = "") -> list[Block]:
    """Return the blocks of a page, by its path below the root; those in one language if it is given."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], tuple(match[2].split()), match[3])
        for match in _FENCE.finditer(text)
    ]
    return [block for block in found if language in ("", block.language)]


def run_blocks(blocks: Sequence[Block], space: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run blocks one after another in one space; those whose libraries are missing are passed over."""
    space = {} if space is None else space
    for block in blocks:
        if not block.missing:
            block.run(space)
            if LOOP in block.words:  # killed and started again, or run to its end and started again
                block.run(space)
    return space
