"""All of maintenance in one call, as it is run every night: part after part, each told by itself."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from lcstore.check.findings import DOCTOR, REPAIR, with_store
from lcstore.errors import (
    CorruptionError,
    FallbackWarning,
    InvalidInputError,
    LcstoreError,
    NotFoundError,
    StorageError,
    UnsupportedFormatError,
)
from lcstore.format import keys
from lcstore.format.keyforms import STRAY
from lcstore.storage.patient import no_room
from lcstore.units import size
from lcstore.version import UPGRADE
from lcstore.warned import noted

if TYPE_CHECKING:
    from lcstore.check.findings import VerifyReport
    from lcstore.compaction.compact import CompactReport
    from lcstore.maintain.collected import CollectReport
    from lcstore.maintain.retire import RetireReport
    from lcstore.maintain.sizing import Forecast

Part: TypeAlias = Literal["collect", "retain", "compact", "verify"]
R = TypeVar("R")

_TO_ANOTHER_DISK: Final = "lcstore cp {url} TO"
_COMMAND: Final = re.compile("`(lcstore [^`]+)`")


@dataclass
class MaintainReport:
    """What each part of maintenance did, or would do.

    Attributes
    ----------
    url, dry_run
        The URL of the store, and whether nothing was changed.
    collected, retained, compacted, verified
        The reports of the parts, in the order in which they ran; None for one that failed or did not run.
    forecast
        Of a dry run: what becomes of the bytes of the store; None where damage keeps that from being known.
    problems
        By part: why it failed. Those between that one and `verify` did not run.
    seconds
        Wall time.
    """

    url: str
    dry_run: bool
    collected: CollectReport | None = None
    retained: RetireReport | None = None
    compacted: CompactReport | None = None
    verified: VerifyReport | None = None
    forecast: Forecast | None = None
    problems: dict[Part, LcstoreError] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every part ran, and found nothing wrong."""
        return not self.problems

    @property
    def wrong(self) -> str:
        """Which parts failed, and why; "" where none did."""
        return "; ".join(self._failures)

    @property
    def _failures(self) -> list[str]:
        return [f"{part} failed: {problem}" for part, problem in self.problems.items()]

    @property
    def _refusals(self) -> list[StorageError]:
        return [error for error in self.problems.values() if isinstance(error, StorageError)]

    @property
    def is_short_of_room(self) -> bool:
        """Whether a part failed, or stopped before its end, as the disk is full or nearly so."""
        return any(error.reason == "full" for error in self._refusals)

    @property
    def lack(self) -> StorageError | None:
        """What failed as the disk has no room for records; None where nothing did."""
        return next(filter(no_room, self._refusals), None)

    @property
    def next(self) -> str:
        """The command, of `{url}`, that goes on where a part failed; "" where that depends on why it did."""
        if any(isinstance(error, UnsupportedFormatError) for error in self.problems.values()):
            return UPGRADE
        if self.lack is not None:  # nothing is repaired before there is room, and it says what makes some
            found = _COMMAND.search(self.lack.message)
            return _TO_ANOTHER_DISK if found is None else found[1]
        if not any(isinstance(error, CorruptionError) for error in self.problems.values()):
            return _TO_ANOTHER_DISK if self.is_short_of_room else DOCTOR if self._refusals else ""
        return (self.verified and self.verified.next) or REPAIR

    def __str__(self) -> str:
        """Return a line for each part, for a log."""
        done = self.collected, self.retained, self.compacted, self.verified
        lines = [f"{self.url}:", *(str(part) for part in done if part is not None)]
        lines += self._failures
        if self.forecast is not None:
            told = self.forecast
            lines.append(
                f"{size(told.bytes_now)} now, {size(told.bytes_compacted)} once compacted, "
                f"{size(told.bytes_collected)} once collected after that"
            )
        return "\n".join(lines)


def run_parts(
    url: str,
    *,
    dry_run: bool,
    collect: Callable[[], CollectReport],
    retain: Callable[[], RetireReport],
    compact: Callable[[RetireReport], CompactReport],
    verify: Callable[[], VerifyReport],
    foresee: Callable[[MaintainReport], None],
) -> MaintainReport:
    """Run the parts of maintenance: collect first, so that what is let go of now can be brought back a day.

    What stands in the way of one part (damage, a target that fails) may be what the next would build upon: so
    the others are left out then. The last one looks in any case. Whatever is done is of use, and the next
    maintenance goes on. At last `foresee` may add what becomes of the bytes; damage that it meets counts.
    """
    began = time.monotonic()
    report, repair = MaintainReport(url, dry_run), REPAIR.replace("{url}", shlex.quote(url))

    def tried(part: Part, run: Callable[[], R]) -> R | None:
        if report.problems and part != "verify":
            return None
        try:
            return run()
        except LcstoreError as error:
            if isinstance(error, InvalidInputError) and part in ("collect", "retain"):
                raise  # what was asked for, and nothing of the store; workers that see none are met later
            error.message = with_store(error.message, url)
            if isinstance(error, CorruptionError) and "`lcstore " not in error.message:
                # Of a stray the message says what to do, and no command can.
                error.message += "" if error.message == STRAY else f": run `{repair}`"
            report.problems[part] = error
            return None

    with noted(FallbackWarning) as met:
        report.collected = tried("collect", collect)
        retained = report.retained = tried("retain", retain)
        if retained is not None:
            report.compacted = tried("compact", lambda: compact(retained))
        found = report.verified = tried("verify", verify)
        try:
            foresee(report)
        except LcstoreError as error:
            met += [f"{error}: run `{repair}`"] * isinstance(error, CorruptionError)
    wrong = None if found is None else _wrong(found, met)
    if found is not None and report.lack is not None and _lacks_parity_alone(found):
        wrong = None  # it made room for records, as far as it went: the part that found too little says so
    if wrong is not None:
        report.problems["verify"] = wrong
    report.seconds = time.monotonic() - began
    return report


def _wrong(found: VerifyReport, met: list[str]) -> LcstoreError | None:
    """Return what is not as it should be, by the verdict of ``lcstore verify`` or by what was met before."""
    if found.is_sound:  # bytes that have changed are not read for it
        return CorruptionError(f"damage was met on the way: {met[0]}") if met else None
    if found.ok and found.none_left:
        return NotFoundError(f"{found.wrong}: `{found.none_left.next}`")
    told = (one for one in found.findings if one.severity == "error" or one.is_unread)
    first = next(chain(told, found.mendable, filter(None, [found.lost_pin])))
    command = found.next.replace("{url}", shlex.quote(found.url))
    kind = UnsupportedFormatError if found.is_later else CorruptionError
    return kind(f"{found.wrong}; run `{command}`", key=first.key, step=first.step)


def _lacks_parity_alone(found: VerifyReport) -> bool:
    """Return whether parity is all that is missed."""
    if not found.ok or found.none_left or found.unread:
        return False
    return bool(found.mendable) and all(keys.is_parity(one.key or "") for one in found.mendable)
