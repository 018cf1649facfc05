"""``lcstore verify``: is everything that was committed still there, and what it was?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.errors import InvalidInputError
from lcstore.format.keyforms import is_number
from lcstore.format.keys import STORE_KEY
from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, MaxSeconds, Options, Pairs, Url, understood
from lcstore.terminal.scheduler import Scheduler, cluster
from lcstore.terminal.stores import below_of
from lcstore.terminal.table import Table, counted, size
from lcstore.terminal.tended import each_below, tell_verified
from lcstore.terminal.ways import from_a_copy, unseen
from lcstore.units import parse_seconds, steps_text

if TYPE_CHECKING:
    from lcstore.check.findings import Finding, Severity, VerifyReport

_STYLES = {"error": "red", "warning": "yellow", "info": None}
_MOST_SHOWN = 100
#: More findings that say the same are one row.
_MOST_ALIKE = 3
LEVEL_HELP = (
    "structure: records, and lengths of objects; checksum: every byte; decode: every frame; "
    "restore: every edge leads to the values committed."
)


class Level(StrEnum):
    """How thoroughly to look."""

    structure = "structure"
    checksum = "checksum"
    decode = "decode"
    restore = "restore"


def verify(
    url: Url,
    level: Annotated[Level, typer.Option("--level", help=LEVEL_HELP)] = Level.structure,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample", metavar="N/T", help="Only part N of T of the objects; today/T: another one each day."
        ),
    ] = None,
    max_seconds: MaxSeconds = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Look for damage. Changes nothing; exit status 1 if anything is damaged, or damage took all states.

    A URL that is no store stands for all stores below it, eight folders deep. With --scheduler the workers of
    a Dask cluster look.
    """
    part, longest = _sample(sample), understood("--max-seconds", _time, max_seconds)
    with answering(url, as_json, options, pairs) as answer:
        from lcstore.check.verify import verify as verify_store

        answer.whole("lcstore verify {store}")
        how: dict[str, Any] = {"sample": part, "max_seconds": longest}
        if below_of(answer, most=1):
            from lcstore.places.below import verify_below

            how |= {"level": level.value, "storage_options": answer.storage_options}
            with cluster(answer, scheduler) as client:
                tended = each_below(answer, verify_below, client=client, **how)
            tell_verified(answer, tended)
            return
        backend = answer.backend()
        with answer.finding(), cluster(answer, scheduler) as client, answer.progress() as on_progress:
            report = verify_store(backend, level.value, on_progress, client=client, **how)
        answer.give(report, _shown(answer.quoted, report), ok=report.is_sound)
    if not report.is_sound:
        raise typer.Exit(1)


def _sample(text: str | None) -> tuple[int, int]:
    """Return N and T of ``N/T``, or of ``today/T``."""
    if text is None:
        return 1, 1
    number, slash, of = text.partition("/")
    if slash and is_number(of) and int(of):
        if number == "today":
            return date.today().toordinal() % int(of) + 1, int(of)
        if is_number(number) and 1 <= int(number) <= int(of):
            return int(number), int(of)
    raise typer.BadParameter("--sample takes N/T: 1/10 to 10/10, say; or today/10")


def _time(text: str) -> float:
    seconds = parse_seconds(text)
    if not seconds:
        raise InvalidInputError("it takes some time: 2h, say")
    return seconds


def findings(found: tuple[Finding, ...]) -> Iterator[Table | str]:
    """Yield what was found, the gravest first."""
    if not found:
        return
    shown = Table("", "step", "what", "object", right=("step",), brief=True)
    alike: dict[tuple[str, str], list[Finding]] = {}
    for one in found:
        alike.setdefault((one.severity, one.message), []).append(one)
    rows = [row for those in alike.values() for row in _folded(those)]
    for severity, step, message, key in rows[:_MOST_SHOWN]:
        shown.row(severity, step, message, key, style=_STYLES[severity])
    yield shown
    if len(rows) > _MOST_SHOWN or len(rows) < len(found):
        left = f"... and {len(rows) - _MOST_SHOWN} more. " if len(rows) > _MOST_SHOWN else ""
        yield f"{left}{len(found)} findings in all: --json has each."


def _folded(alike: list[Finding]) -> list[tuple[Severity, str, str, str | None]]:
    """Return the rows of findings that say the same: one of many, with the steps that they lie between."""
    if len(alike) <= _MOST_ALIKE:
        return [
            (one.severity, "" if one.step is None else str(one.step), one.message, one.key) for one in alike
        ]
    steps = [one.step for one in alike if one.step is not None]
    between = f"{min(steps)}-{max(steps)}" if steps else ""
    return [(alike[0].severity, between, f"{alike[0].message} ({len(alike)} times)", f"{alike[0].key}, ...")]


def _shown(url: str, report: VerifyReport) -> Iterator[Table | str]:
    yield from findings(report.findings)
    yield from _summary(url, report)


def _summary(url: str, report: VerifyReport) -> list[str]:
    done = {"structure": "", "checksum": " and compared", "decode": " and decoded", "restore": " and proved"}
    read = f", {size(report.bytes_read)} read{done[report.level]}" if report.level != "structure" else ""
    seen = f"{counted(report.states, 'state')}, {counted(report.objects, 'object')}"
    looked = f"{seen}{read} in {report.seconds:.1f} s"
    if report.skipped:
        looked += f"; {report.skipped} objects not looked at"
    deeper, stripped = unseen(url, report), [report.in_part] * bool(report.stripped)
    if report.ok and report.none_left:
        command = (report.none_left.next or "").replace(quote(report.url), url)
        then = f"{report.way_back}. Then: lcstore verify {url}" if report.way_back else f"Next: {command}"
        return [f"Lost: no state is left to restore: {looked}.", then]
    if report.ok and report.can_be_mended:
        said = "As far as was looked at, everything" if deeper or report.skipped else "Everything"
        damaged = f"{report.can_be_mended} {'object is' if report.can_be_mended == 1 else 'objects are'}"
        mended = f"{damaged} damaged or missing, and can be made again.{deeper}"
        return [
            f"{said} can be restored: {looked}. But {mended}",
            *stripped,
            f"Next: lcstore repair {url}",
        ]
    if report.ok and report.lost_pin is not None:
        told = f"All else can be restored: {looked}.{deeper}"
        return [
            f"Lost: a pinned state is not there. {told}",
            *stripped,
            f"Next: lcstore cp COPY {url} --check",
        ]
    if report.ok:
        return [f"Good{', as far as was looked at' * bool(report.skipped)}: {looked}.{deeper}", *stripped]
    begin = "Not read" if report.unread == report.count("error") else "Damaged"
    lines = [f"{begin}: {counted(report.count('error'), 'error')} in {looked}."]
    if report.is_later:
        lines.append("This version does not read what a later one wrote, and repairs nothing beside it.")
    elif report.unread:
        return [
            *lines,
            f"{counted(report.unread, 'object')} could not be read, which says nothing of what they hold. "
            "Let this user read them, or wait for the target: nothing is repaired before that.",
            f"Then: lcstore verify {url}",
        ]
    if report.way_back:
        lines.append(f"{report.way_back}, before any repair. Then: lcstore verify {url}")
    if any(found.is_stray for found in report.findings):
        # Other commands say the same again: nothing is shown or repaired as long as it is there.
        return [*lines, f"Move the files out of the store that are not its own, then: lcstore verify {url}"]
    # A repair makes it a store again, which nothing else opens before.
    headless = any(found.severity == "error" and found.key == STORE_KEY for found in report.findings)
    if report.lost:
        states = counted(len(report.lost), "state")
        lines.append(f"Cannot be restored whole: {states}, of {steps_text(report.lost_ranges)}.")
    elif report.good is not None and not report.is_later and not headless:
        said = "As far as was looked at, every" if deeper or report.skipped else "Every"
        lines.append(f"{said} state that is kept can be restored: none needs what is damaged.")
    lines += stripped
    if report.kept_in_part:
        part = steps_text(report.kept_in_part)
        lines.append(f"Of {part} the rest is there: a restore says by which names=, and a repair keeps it.")
    if report.let_go_in_part:
        part = steps_text(report.let_go_in_part)
        lines.append(
            f"Of {part} something else can be read: a restore says by which names=. A repair lets go of "
            "these states, since they lack weights or buffers, and shows how to save the rest first."
        )
    if report.good is not None:
        look = "" if headless or report.is_later else f" Next: lcstore show {url}@{report.good}"
        lines.append(f"The latest that looks whole is step {report.good}.{look}")
    elif report.states:
        lines.append("No state looks whole.")
    if report.is_later:
        lines.append(f"Next: {report.next}")
    elif not report.way_back:
        if any(found.severity == "error" and found.key != STORE_KEY for found in report.findings):
            lines.append(from_a_copy(url))
        lines.append(f"What a repair would do, and save: lcstore repair {url}")
    return lines
