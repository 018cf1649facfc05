"""What `verify` says: findings, and the report that holds them."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from shlex import quote
from typing import Final, Literal, TypeAlias

from lcstore.check.astray import as_nodes, likely, way_back
from lcstore.errors import LcstoreError, NotFoundError, StorageError, UnsupportedFormatError
from lcstore.format import keys
from lcstore.format.keyforms import STRAY
from lcstore.format.markkeys import TagName, tag_key
from lcstore.graph.refs import NodeName
from lcstore.units import counted, steps_text
from lcstore.version import UPGRADE

Severity: TypeAlias = Literal["error", "warning", "info"]
#: Each looks at all that the ones before look at.
Level: TypeAlias = Literal["structure", "checksum", "decode", "restore"]

#: What may be where something speaks of a state that is not there.
LOST: Final = "the record of that state and its second copy are lost"
#: Commands that findings name; `{url}` is filled in when the report is made.
DOCTOR: Final = "lcstore doctor {url}"
REPAIR: Final = "lcstore repair {url}"
VERIFY: Final = "lcstore verify {url}"
RETIRED: Final = "lcstore ls {url} --retired"
BRING_BACK: Final = "lcstore cp COPY {url} --check"
#: The checks that find a store which had states, and has none; and one that may have lost their records.
NONE_LEFT: Final = "none-left"
UNRECORDED: Final = "unrecorded"
#: The check that finds a pin of a state that is not there.
PINNED: Final = "pin"

#: Commands as errors name them that are raised where nobody knows the URL of the store.
_BARE: Final = re.compile(r"`lcstore (repair|verify|doctor)`")
_ORDER: Final[dict[Severity, int]] = {"error": 0, "warning": 1, "info": 2}


def with_store(message: str, url: str) -> str:
    """Return the message of an error, with the store in the commands that lack it."""
    return _BARE.sub(lambda found: f"`lcstore {found[1]} {quote(url)}`", message)


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
    def is_stray(self) -> bool:
        """Whether it is a name among the records that none can have: nothing reads the store meanwhile."""
        return self.severity == "error" and self.check == "name"

    @property
    def is_later(self) -> bool:
        """Whether a later version wrote what it is about, which this one does not read."""
        return self.severity != "info" and self.next == UPGRADE

    @property
    def is_unread(self) -> bool:
        """Whether nothing is known of it: the target did not give it, or a later version wrote it."""
        doctor = (self.next or "").startswith(DOCTOR.partition("{")[0])
        return self.is_later or (doctor and self.severity != "info")

    @property
    def order(self) -> tuple[int, str, str, str]:
        """How findings are sorted: the gravest first."""
        return (_ORDER[self.severity], self.check, self.key or "", self.message)


@dataclass(frozen=True)
class VerifyReport:
    """The outcome of `verify`.

    Attributes
    ----------
    url, level
        What was verified, and how thoroughly.
    findings
        The gravest first.
    states, objects
        How many were looked at. Retired states are none.
    bytes_read
        Bytes of objects; at level ``structure`` only of large plain values.
    skipped
        Objects that were not looked at: left to other samples, or for lack of time.
    complete
        Whether the time was enough for all that was asked for.
    lost
        Steps of the states that cannot be restored whole, in rising order.
    good
        The step of the latest state that can be, as far as this level sees; None if there is none.
    seconds
        How long it took.
    lost_ranges
        First and last steps of `lost`, where no other state lies in between.
    kept_in_part, let_go_in_part
        The same of those among them that a repair keeps without what is lost, such as the moments; and of
        those that it lets go of as a whole, as they lack weights or buffers, though some of their names can
        be read.
    stripped
        The same of kept states of which `Strip` or a repair let go of a part: `Store.restore` gives the rest
        by ``names=``. Those of them that lack nothing else are not among `lost`, and none is `good`.
    astray
        The missing objects that may be there under another name, renamed or moved: that, by key.
    unread
        How many objects the target did not give, as for permissions, or a later version wrote. Nothing is
        known of what they hold. States that need the former are among `lost` too.
    """

    url: str
    level: Level
    findings: tuple[Finding, ...]
    states: int
    objects: int
    bytes_read: int
    skipped: int
    complete: bool
    lost: tuple[int, ...]
    good: int | None
    seconds: float
    lost_ranges: tuple[tuple[int, int], ...] = ()
    kept_in_part: tuple[tuple[int, int], ...] = ()
    let_go_in_part: tuple[tuple[int, int], ...] = ()
    stripped: tuple[tuple[int, int], ...] = ()
    astray: Mapping[str, str] = field(default_factory=dict)
    unread: int = 0

    def __str__(self) -> str:
        """Return one line for a log."""
        lost = f"{counted(self.count('error'), 'error')}, {counted(len(self.lost), 'state')} lost"
        wrong = self.wrong if self.ok or self.unread else lost
        looked = f"{counted(self.states, 'state')} and {counted(self.objects, 'object')}"
        return f"verified ({self.level}): {looked}, {wrong or 'all is well'}, in {self.seconds:.2f} s"

    @property
    def ok(self) -> bool:
        """Whether everything that was committed is there, or can be made again: see `is_sound`."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged, be it that it can be made again: the verdict of ``lcstore verify``."""
        return not self.wrong

    @property
    def wrong(self) -> str:
        """What is not as it should be, in words; "" where all is sound."""
        errors = (one for one in self.findings if one.severity == "error" and not one.is_unread)
        if (first := next(errors, None)) is not None:
            return f"{counted(self.count('error'), 'error')}, the first: {first.message}"
        if self.none_left is not None:
            return self.none_left.message
        if unread := next((one for one in self.findings if one.is_unread), None):
            whose = "of a later version" if unread.is_later else "that the target did not give"
            return f"{counted(self.unread, 'object')} {whose}, the first: {unread.message}"
        made = counted(self.can_be_mended, "object")
        if self.mendable:
            return f"{made} to be made again, the first: {self.mendable[0].message}"
        return "" if self.lost_pin is None else self.lost_pin.message

    @property
    def next(self) -> str:
        """The command, of `{url}`, that goes on where not all is sound: no repair where that would refuse."""
        if self.is_later:
            return UPGRADE
        if any(one.is_stray or one.is_unread for one in self.findings):
            return VERIFY
        only_pins = self.lost_pin is not None and self.ok and not self.mendable
        return BRING_BACK if only_pins or self.unrecorded is not None else REPAIR

    @property
    def is_later(self) -> bool:
        """Whether a later version wrote some of it: this one repairs nothing then."""
        return any(one.is_later for one in self.findings)

    @property
    def none_left(self) -> Finding | None:
        """What says that no state is left, as a repair let go of those that were lost, or as records are."""
        found = (one for one in self.findings if one.check == NONE_LEFT and one.severity == "warning")
        return self.unrecorded or next(found, None)

    @property
    def lost_pin(self) -> Finding | None:
        """What says that a state is not there which is pinned; None where none is missed so."""
        return next((one for one in self.findings if one.check == PINNED), None)

    @property
    def unrecorded(self) -> Finding | None:
        """What says that no state is left as records of states are lost; None where they are not."""
        return next((one for one in self.findings if one.check == UNRECORDED), None)

    @property
    def in_part(self) -> str:
        """Which states are kept in part, in a sentence, and which one is whole; "" where all are."""
        if not self.stripped:
            return ""
        whole = "none is whole" if self.good is None else f"the latest whole one is step {self.good}"
        let_go = "was let go of, by `strip` or by a repair, and restoring them needs names="
        return f"Of {steps_text(self.stripped)} a part {let_go}; {whole}."

    @property
    def way_back(self) -> str:
        """How the missing objects that are astray come back; "" where none are."""
        return way_back(self.astray)

    @property
    def mendable(self) -> tuple[Finding, ...]:
        """What is damaged and costs nothing yet, and what a repair makes good."""
        repair = REPAIR.partition("{")[0]
        found = (one for one in self.findings if one.severity == "warning")
        return tuple(one for one in found if (one.next or "").startswith(repair))

    @property
    def can_be_mended(self) -> int:
        """How many of those there are."""
        return len(self.mendable)

    def count(self, severity: Severity) -> int:
        """Return how many findings there are of one severity."""
        return sum(finding.severity == severity for finding in self.findings)


def ranges_of(nodes: Iterable[NodeName], lost: Container[str]) -> tuple[tuple[int, int], ...]:
    """Return first and last steps of nodes that are lost, where none that is not lies in between."""
    found = []
    by_step = sorted(nodes, key=lambda name: (name.step, name.order))
    for is_lost, names in groupby(by_step, key=lambda name: name.node in lost):
        steps = [name.step for name in names]
        if is_lost:
            found.append((steps[0], steps[-1]))
    return tuple(found)


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

    def of(self, url: str, good: int | str | None = None) -> tuple[Finding, ...]:
        """Return what was noted of the store at `url`, the gravest first, and all commands as they are run.

        An error that names none takes the one that shows the state `good`, the latest whole one.
        """
        found, shown = [], f"lcstore show {quote(f'{url}@{good}')}"
        stray = good is None or any(one.is_stray for one in self.made)
        for one in sorted(self.made, key=lambda one: one.order):
            command = shown if one.next is None and one.severity == "error" and not stray else one.next
            found.append(replace(one, next=command and command.replace("{url}", quote(url))))
        return tuple(found)

    def of_no_state(self, name: TagName, *, held: bool, unread: bool) -> None:
        """Note a name of a state that is not there; `held`, where it is a pin that was not taken away.

        No save stores pins, and nothing lets go of a pinned state. So whoever pinned it is told, unless a
        record is `unread`, which may be that of the state.
        """
        key, what = tag_key(name), f"{name.kind} {name.name!r} is of no state that is there"
        if not held:
            why = "it was taken away" if name.kind == "pin" else "an interrupted save leaves that"
            self.add("info", "tag", key, f"{what}; {why}")
        elif unread:
            self.add("info", "tag", key, f"{what}; its record could not be read, or the pin came too late")
        else:
            cure = f"a copy of the store may have it; if not, lcstore unpin URL@{name.node} ends this"
            why = f"{LOST}, or the pin came too late: {cure}"
            self.add("warning", PINNED, key, f"{what}; {why}", next=BRING_BACK)

    def none_left(self, lost: str, left: str, *, damaged: bool) -> None:
        """Note that records may be lost, or that all was let go of, as it should be unless `damaged`."""
        if lost:
            self.add("warning", UNRECORDED, keys.NODES, lost, next=BRING_BACK)
        elif left:
            self.add("warning" if damaged else "info", NONE_LEFT, None, left, next=RETIRED)

    def tell_astray(self, missing: Collection[str], nodes: Collection[str] | None) -> dict[str, str]:
        """Say of each stray file that may be a missing object that it may; return their names, by key.

        `nodes` are those whose records are missing, None where it may be those of any.
        """
        strays = {one.key for one in self.made if one.message == STRAY and one.key is not None}
        missing = {*missing, *as_nodes(strays, nodes)}
        found = likely(missing, strays) if missing and strays else {}
        told = {name: f"it may be {key}, which is missing: move it back there" for key, name in found.items()}
        self.made = [
            replace(one, message=told[one.key]) if one.message == STRAY and one.key in told else one
            for one in self.made
        ]
        return found

    def mended(self, key: str, error: LcstoreError, *, step: int | None = None) -> None:
        """Note that an object is damaged or missing, and can be made again: nothing is lost by it."""
        message = "it is missing" if isinstance(error, NotFoundError) else error.message
        self.add("warning", "rebuild", key, f"{message}: it can be rebuilt", step=step, next=REPAIR)

    def unreadable(
        self,
        check: str,
        key: str,
        error: LcstoreError,
        *,
        step: int | None = None,
        severity: Severity = "error",
        why: str = "",
        next: str | None = None,
    ) -> None:
        """Note that an object could not be read, or is not what it should be."""
        message = "it is missing" if isinstance(error, NotFoundError) else error.message
        command = UPGRADE if isinstance(error, UnsupportedFormatError) else next
        if isinstance(error, StorageError):
            command = DOCTOR
        self.add(severity, check, error.key or key, message + why, step=step, next=command)
