"""What to do next, in sentences that several commands end with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcstore.check.findings import VerifyReport


def unseen(url: str, report: VerifyReport) -> str:
    """Return what looks at more than a report that read no byte of most objects; "" after any other."""
    return f" For every byte: lcstore verify {url} --level checksum" if report.level == "structure" else ""


def from_a_copy(url: str) -> str:
    """Return what brings back what is damaged."""
    return f"A copy of the store brings back what it has, before any repair: lcstore cp COPY {url} --check"
