"""What to do next, and what was left out, in sentences that several commands end with."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lcstore.units import counted, listed

if TYPE_CHECKING:
    from lcstore.check.findings import VerifyReport


def unseen(url: str, report: VerifyReport) -> str:
    """Return what looks at more than a report that read no byte of most objects; "" after any other."""
    return f" For every byte: lcstore verify {url} --level checksum" if report.level == "structure" else ""


def from_a_copy(url: str) -> str:
    """Return what brings back what is damaged."""
    return f"A copy of the store brings back what it has, before any repair: lcstore cp COPY {url} --check"


def objects_left_out(names: Collection[str]) -> str:
    """Return which objects in files are left out."""
    are, they = ("are", "they are") if len(names) > 1 else ("is", "it is")
    return f"{counted(len(names), 'object')} {are} left out, as {they} no data: {listed(names)}."
