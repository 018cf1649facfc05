"""Numbers and names as a report writes them, and what it says first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from lcstore.index.gone import all_gone
from lcstore.report.facts import SharedNote, StoreReport, TensorsSeen
from lcstore.report.series import wrong_in
from lcstore.report.suspects import apart, began_anew, named_in, not_finite_since
from lcstore.storage.masking import printable
from lcstore.storage.traits import can_be_written
from lcstore.units import counted, size


def middle(text: str, most: int) -> str:
    """Return a name in so many characters or fewer, its middle left out: both ends tell layers apart."""
    text = printable(text)
    end = (most - 3) * 2 // 3
    return text if len(text) <= most else f"{text[: most - 3 - end]}...{text[-end:]}"


def verdict(report: StoreReport) -> list[str]:
    """Return what matters most, in sentences: how much there is, how small, and whether it is whole."""
    stats, lost = report.stats, report.verified.unrecorded
    if lost is not None:
        first = f"{lost.message}."
    elif not stats.states:
        new = "The store has no state yet: a training run has still to save into it."
        first = f"{all_gone(stats.retired)}." if stats.retired or report.verified.none_left else new
    else:
        kept = f"{counted(stats.states, 'state')} of {counted(stats.steps, 'step')}"
        first = f"{kept} in {size(stats.bytes_stored['total'])}"
        full = f"as full saves ({size(stats.bytes_raw['total'])})"
        first += (
            f": {stats.ratio:.3g} times smaller than {full}."
            if stats.ratio > 1
            else f", no less than {full}."
        )
    sentences = [first, whole(report)] if report.verified.ok else [whole(report), first]
    return [*sentences, *_gone_wrong(report), *_standing_out(report)]


def whole(report: StoreReport) -> str:
    """Return in a sentence whether everything is there."""
    verified, part = report.verified, f" {report.verified.in_part}".rstrip()
    if verified.unread and verified.unread == verified.count("error"):
        return f"Not read: {verified.wrong}.{part}"
    if not verified.ok:
        lost, errors = counted(len(verified.lost), "state"), counted(verified.count("error"), "error")
        return f"The store is damaged: {errors}; {lost} cannot be restored.{part}"
    if verified.unrecorded:
        return "Which states there were, no record tells: none is left to restore."
    if verified.none_left:
        return "A repair let go of states that were lost to damage, and none is left to restore."
    if verified.can_be_mended:
        damaged = counted(verified.can_be_mended, "damaged or missing object")
        return f"Every state can be restored. To be made again: {damaged}.{part}"
    if verified.lost_pin:
        return f"A pinned state is not there. Every other state can be restored.{part}"
    return f"Nothing is missing, by every record and the length of every object.{part}"


def _gone_wrong(report: StoreReport) -> list[str]:
    """Return which metrics of kept states went wrong, as the loss of a run that diverged."""
    wrong = wrong_in(report.looked_at)
    found = [f"{middle(name, 60)} is {note.text}" for name, note in wrong.items()]
    return [
        *([f"Metrics: {_first(found)}."] if found else []),
        *not_finite_since(report.looked_at),
        *began_anew(report.looked_at),
    ]


def _standing_out(report: StoreReport) -> list[str]:
    notes, leap, line = report.tensors.notes, report.tensors.leap, line_words(report.tensors)
    told = [f"{leap[0].upper()}{leap[1:]}."] if leap else []
    if notes:
        found = _first([f"{_of_whom(note)} {note.text}" for note in notes])
        told.append(f"Layers that stand out: {found}.")
    return [*told, *line, *_sampled(report.tensors)] if told else line


def _of_whom(note: SharedNote) -> str:
    names = ", ".join(middle(name, 60) for name in note.names)
    more = ", ..." * (note.count > len(note.names))
    return names if note.count == 1 else f"each of {note.count:,} layers ({names}{more})"


def line_words(seen: TensorsSeen) -> list[str]:
    """Return of which run the layers are, where others came to another end."""
    if not seen.beside:
        return []
    others = "another one ends" if seen.beside == 1 else f"{seen.beside:,} others end"
    looks = f"--run looks at the layers of {'it' if seen.beside == 1 else 'one of them'}"
    return [f"Layers are of the line to run {seen.run} ({seen.run_id}): {others} elsewhere, and {looks}."]


def _sampled(seen: TensorsSeen) -> list[str]:
    """Return that steps of what stands out may be late, where not all states were looked at."""
    if not seen.late:
        return []
    looked = f"{seen.looked:,} of {seen.states:,} states"
    return [f"Layers were looked at in {looked}: steps may be up to {counted(seen.late, 'save')} late."]


def _first(found: Sequence[str]) -> str:
    """Return the first three of what was found, and how many more there are."""
    return "; ".join([*found[:3], *([f"and {len(found) - 3} more"] if len(found) > 3 else [])])


def next_commands(report: StoreReport) -> list[tuple[str, str]]:
    """Return what to run next, and why."""
    url, found, writes = shlex.quote(report.url), [], can_be_written(report.url)
    if lost := report.verified.unrecorded or report.verified.lost_pin:
        found.append((lost.next or "", "brings back the records that a copy has"))
    elif report.verified.none_left:
        found.append((f"lcstore ls {url} --retired", "lists the states that are not deleted yet"))
    if report.verified.is_later:
        found.append((report.verified.next, "reads what a later version wrote"))
    elif not report.verified.ok or report.verified.can_be_mended:
        found.append((f"lcstore repair {url}", "shows what a repair would do, and save"))
    if report.verified.ok and (pair := apart(report)):
        first, second = pair
        why = f"compares the saves of steps {first.step} and {second.step}: by the second, that is seen"
        found.append((f"lcstore diff {url}@{named_in(report, first)} @{named_in(report, second)}", why))
    if report.verified.ok and report.costs.planned:
        longest = max((one.edges or 0 for one in report.costs.states), default=0)
        then = max((one.edges_compacted or 0 for one in report.costs.states), default=0)
        less = f": the longest restore goes over {then} edges, not {longest}" if then < longest else ""
        if writes:
            found.append((f"lcstore compact {url} --dry-run", f"shows what a compaction would do{less}"))
        else:
            found.append((f"lcstore cp {url} TO", f"makes a copy, in which a compaction can be done{less}"))
    stuck = report.forecast is not None and report.forecast.can_be_freed <= 0
    if report.stats.retired and not stuck and writes:
        found.append((f"lcstore collect {url}", "shows what of retired states can be deleted"))
    if report.verified.ok:
        found.append((f"lcstore verify {url} --level checksum", "looks at every byte, not at lengths alone"))
    return found
