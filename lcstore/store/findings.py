"""What `verify` says: findings, and the report that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from lcstore.errors import LcstoreError, NotFoundError, StorageError, UnsupportedFormatError

Severity: TypeAlias = Literal["error", "warning", "info"]
Level: TypeAlias = Literal["structure", "checksum"]

#: Commands that findings name; `{url}` is filled in when the report is made.
UPGRADE: Final = "pip install --upgrade lcstore"
DOCTOR: Final = "lcstore doctor {url}"

_ORDER: Final[dict[Severity, int]] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes
    ----------
    severity
        ``error``: something that was committed cannot be had. ``warning``: all can, but something is not
        as it should be. ``info``: worth knowing, and harmless.
    check
        What was being checked: a short fixed word, for programs.
    key
        The stored object concerned.
    step
        The step concerned, where there is one.
    message
        What is wrong.
    next
        The command to run next, if there is one.
    """

    severity: Severity
    check: str
    key: str | None
    step: int | None
    message: str
    next: str | None = None

    @property
    def order(self) -> tuple[int, str, str, str]:
        """How findings are sorted: the gravest first."""
        return (_ORDER[self.severity], self.check, self.key or "", self.message)


@dataclass(frozen=True)
class Report:
    """The outcome of `verify`.

    Attributes
    ----------
    url, level
        What was verified, and how thoroughly.
    findings
        The gravest first.
    states, objects
        How many were looked at.
    bytes_read
        Of objects, at level ``checksum``.
    lost
        Steps of the states that cannot be restored, in rising order.
    good
        The step of the latest state that can be, as far as this level sees; None if there is none.
    seconds
        How long it took.
    """

    url: str
    level: Level
    findings: tuple[Finding, ...]
    states: int
    objects: int
    bytes_read: int
    lost: tuple[int, ...]
    good: int | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether everything that was committed is there."""
        return not any(finding.severity == "error" for finding in self.findings)

    def count(self, severity: Severity) -> int:
        """Return how many findings there are of one severity."""
        return sum(finding.severity == severity for finding in self.findings)


class Findings:
    """Findings while they are made."""

    def __init__(self) -> None:
        self.made: list[Finding] = []

    def add(
        self,
        severity: Severity,
        check: str,
        key: str | None,
        message: str,
        *,
        step: int | None = None,
        next: str | None = None,
    ) -> None:
        """Note something."""
        self.made.append(Finding(severity, check, key, step, message, next))

    def unreadable(self, check: str, key: str, error: LcstoreError, *, step: int | None = None) -> None:
        """Note that an object could not be read, or is not what it should be."""
        message = "it is missing" if isinstance(error, NotFoundError) else error.message
        command = UPGRADE if isinstance(error, UnsupportedFormatError) else None
        if isinstance(error, StorageError):
            command = DOCTOR
        self.add("error", check, error.key or key, message, step=step, next=command)
