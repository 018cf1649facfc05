"""The stores below a place, as ``maintain``, ``collect``, ``verify`` and others tell what came of each."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from lcstore.errors import CorruptionError, InvalidInputError, StorageError
from lcstore.terminal.answer import Answer
from lcstore.terminal.broughtback import ANEW
from lcstore.terminal.collection import NOTHING, goes, is_stuck, refusal
from lcstore.terminal.table import Table, counted, size

if TYPE_CHECKING:
    from lcstore.check.findings import VerifyReport
    from lcstore.copying.copy import CopyReport
    from lcstore.maintain.collected import CollectReport
    from lcstore.maintain.unretire import UnretireReport
    from lcstore.places.below import Tended
    from lcstore.store.nightly import MaintainReport

_MOST_SHOWN = 100
#: Notes of one kind, as of tags of states that go, which differ from store to store.
_MOST_ALIKE = 10


def tell_maintained(
    answer: Answer, tended: Sequence[Tended[MaintainReport]], again: str, left_out: str
) -> None:
    """Tell what maintenance did; exit with status 1 where it failed in a store.

    Parameters
    ----------
    tended
        What came of each store.
    again
        What does it, where it was only shown.
    left_out
        What was left out, as it is typed.
    """

    def cells(report: MaintainReport) -> tuple[object, ...]:
        collected, retained, compacted = report.collected, report.retained, report.compacted
        seen = report.forecast
        bytes_ = ("", "") if seen is None else (size(seen.bytes_now), size(seen.bytes_collected))
        return (
            *(bytes_ if again else ()),
            "" if collected is None else size(collected.deleted_bytes),
            "" if retained is None else retained.states_let_go,
            "" if compacted is None else compacted.planned if report.dry_run else compacted.added,
        )

    sizes = ("now", "then, about", "to be freed") if again else ("freed",)
    columns = (*sizes, "retired", "edges")

    def then(one: Tended[MaintainReport]) -> str:
        return _asks(one) if one.report is None else one.report.next

    _tell(answer, tended, columns, cells, then, again, more=[*_of_all(tended, answer, bool(again), left_out)])


def _of_all(
    tended: Sequence[Tended[MaintainReport]], answer: Answer, dry_run: bool, left_out: str
) -> Iterator[str]:
    """Yield what is said of all stores together: bytes, what parts of a rule passed over, when bytes go."""
    of = {one.url: one.report for one in tended if one.report is not None}
    known = {url: report.forecast for url, report in of.items() if report.forecast is not None}
    reports, seen = [*of.values()], [*known.values()]
    largest = f"lcstore stats {answer.quoted}"  # has the largest on top
    if seen:
        now, merged = sum(one.bytes_now for one in seen), sum(one.bytes_compacted for one in seen)
        later, without = sum(one.bytes_collected for one in seen), sum(one.bytes_without for one in seen)
        some = f"the {counted(len(seen), 'store')} of {len(tended)} whose bytes are known,"
        where = "all" if len(seen) == len(tended) else some
        once = f"about {size(merged)} once compacted, and {size(later)} once collected after that"
        yield f"In {where} {size(now)} now, {once}."
        if without < later:
            yield (
                f"Without merged edges, which keep restores short, {size(without)} would be left: "
                "`--max-bytes 0`."
            )
        short = _named(url for url, one in known.items() if not one.has_room)
        if short:
            yield f"The disk lacks room to compact {short}. Make some first: {largest}"
        few = _named(url for url, one in known.items() if one.lacking)
        if few:
            these = f"{few}. Make some first, or not all states may go: {largest}"
            yield f"The disk lacks room for the records that let go of states in {these}"
        closed = [one.closed for one in seen if one.closed]
        if closed:
            these = f"{counted(len(closed), 'store')} of these, the first at {closed[0]}"
            yield f"This user may change nothing in {these}: with --apply, they end in an error."
    notes = [(report.url, note) for report in reports if report.retained for note in report.retained.notes]
    yield from _noted(notes)
    full = _named(url for url, report in of.items() if report.is_short_of_room)
    if full:
        yield f"The disk lacked room in {full}. Make some, then do the same again: {largest}"
    freed = sum(report.collected.deleted_bytes for report in reports if report.collected)
    if not dry_run:
        yield f"Freed: {size(freed)} in all."
        if any(report.retained and report.retained.states_let_go for report in reports):
            undo = f"lcstore unretire {answer.quoted} --since 12h{left_out}"
            yield f"To bring states back before the next run: {undo}"
    spared = sum(report.collected.spared_states for report in reports if report.collected)
    if spared:
        yield f"{counted(spared, 'state')} let go of lately: spared, so that they can be brought back."
    waiting = sum(report.collected.waiting_bytes for report in reports if report.collected)
    if waiting:
        column = "To be freed is what goes now. " * dry_run
        yield f"{column}{size(waiting)} more go a grace after they {'are' if dry_run else 'were'} condemned."
    if dry_run and any(report.retained and report.retained.retired for report in reports):
        yield (
            "What is let go of now is condemned by a run an eighth of the grace later (3 h of a day), "
            "and freed by one a grace after that."
        )


def _named(urls: Iterable[str]) -> str:
    """Return some stores by number and name, as many names as a line is read for; "" where there are none."""
    found = sorted(urls)
    more = ", ... (--json has all)" * (len(found) > _MOST_ALIKE)
    return f"{counted(len(found), 'store')}: {', '.join(found[:_MOST_ALIKE])}{more}" if found else ""


def tell_collected(
    answer: Answer, tended: Sequence[Tended[CollectReport]], given: str, *, dry_run: bool
) -> None:
    """Tell what a collection freed; exit with status 1 where it failed in a store.

    Parameters
    ----------
    tended
        What came of each store.
    given
        The options, as they are typed.
    dry_run
        Whether it was only shown.
    """

    command = f"lcstore collect {answer.quoted}{given}"
    is_refused = "--grace" in given and "--run-is-dead" not in given

    def cells(report: CollectReport) -> tuple[object, ...]:
        waiting = size(report.waiting_bytes) if report.waiting else ""
        return size(report.deleted_bytes), waiting, report.deleted_states

    def then(one: Tended[CollectReport]) -> str:
        if is_refused and isinstance(one.problem, InvalidInputError):  # too short for a run that may live
            return f"{command} --run-is-dead{' --apply' * (not dry_run)}"
        return "lcstore verify {url}" if isinstance(one.problem, CorruptionError) else _asks(one)

    some = any(one.report is not None and goes(one.report) for one in tended)
    columns = ("to be freed" if dry_run else "freed", "later", "states")
    again = f"{command} --apply"
    more = [*_of_collections(answer, tended, again, dry_run=dry_run)]
    _tell(answer, tended, columns, cells, then, again if dry_run and some else "", more=more)


def _of_collections(
    answer: Answer, tended: Sequence[Tended[CollectReport]], again: str, *, dry_run: bool
) -> Iterator[str]:
    """Yield what is said of all collections together: bytes, when the rest goes, what frees more."""
    reports = {one.url: one.report for one in tended if one.report is not None}
    if reports and not any(map(goes, reports.values())):
        yield NOTHING
    elif reports:
        freed = size(sum(report.deleted_bytes for report in reports.values()))
        gone = counted(sum(report.deleted_states for report in reports.values()), "state")
        yield f"{'To be freed' if dry_run else 'Freed'}: {freed} in all, {gone}."
    refused = [(url, said) for url, report in reports.items() if (said := refusal(report))]
    full = "no room: a later collect condemns what else goes"
    yield from _noted(refused + [(url, full) for url, report in reports.items() if report.uncondemned])
    lost = sum(report.condemned_states for report in reports.values())
    if dry_run and lost:
        back = f"`lcstore unretire {answer.quoted}` can bring back {counted(lost, 'state')} of that"
        yield f"Until a run with --apply, {back}, and none later."
    waiting = sum(report.waiting_bytes for report in reports.values())
    if waiting:
        yield f"{size(waiting)} more go a grace after they {'are' if dry_run else 'were'} condemned."
    if any(map(is_stuck, reports.values())):
        shows = f"lcstore maintain {answer.quoted} --keep RULE"
        yield f"Kept states are read over some that were let go of. What a compaction frees of that: {shows}"
    if not dry_run and any(report.waiting for report in reports.values()):
        yield f"Then: {again}"


def tell_unretired(answer: Answer, tended: Sequence[Tended[UnretireReport]], again: str) -> None:
    """Tell what came back; exit with status 1 where a store failed, or a part came too late.

    Where it was only shown, `again` does it.
    """

    def cells(report: UnretireReport) -> tuple[object, ...]:
        return len(report.brought_back), len(report.too_late) or ""

    def then(one: Tended[UnretireReport]) -> str:
        return _asks(one) if one.report is None else "lcstore ls {url} --retired"

    reports = [one.report for one in tended if one.report is not None]
    back = sum(len(report.brought_back) for report in reports)
    more = [f"{counted(back, 'state')} {'would come back' if again else 'brought back'} in all. {ANEW}."]
    notes = [(report.url, note) for report in reports for note in report.notes]
    more += _noted(notes)
    columns = ("would come back" if again else "brought back", "too late")
    _tell(answer, tended, columns, cells, then, again if back else "", more=more)


def _noted(notes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the notes of stores by their kind, as what they begin with tells it; what several say, once."""
    kinds: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
    for url, note in notes:
        kinds[note.partition(":")[0]].setdefault(note, []).append(url)
    for kind, said in kinds.items():
        for note, (url, *others) in islice(said.items(), _MOST_ALIKE):
            yield f"Note: {url}{f' and {len(others)} more' * bool(others)}: {note}"
        if len(said) > _MOST_ALIKE:
            yield f"Note: {kind}: so in {counted(len(said) - _MOST_ALIKE, 'other store')} (--json)"


def tell_verified(answer: Answer, tended: Sequence[Tended[VerifyReport]]) -> None:
    """Tell what was found; exit with status 1 where anything is damaged."""

    def cells(report: VerifyReport) -> tuple[object, ...]:
        return report.states, report.objects, size(report.bytes_read)

    def then(one: Tended[VerifyReport]) -> str:
        if one.report is not None and one.report.is_later:
            return one.report.next
        level = "structure" if one.report is None else one.report.level  # less would not find the same again
        return "lcstore verify {url}" if level == "structure" else f"lcstore verify --level {level} {{url}}"

    empty = sum(one.report is not None and not one.report.states for one in tended)
    more = [f"{empty} {'has' if empty == 1 else 'have'} no states."] if empty else []
    _tell(answer, tended, ("states", "objects", "read"), cells, then, more=more)


def tell_copied(answer: Answer, tended: Sequence[Tended[CopyReport]], target: str) -> None:
    """Tell what was copied to below `target`, which is quoted; exit with status 1 where a store was not."""

    def cells(report: CopyReport) -> tuple[object, ...]:
        return report.states, report.older or "", size(report.nbytes), report.objects, report.passed_over

    def then(one: Tended[CopyReport]) -> str:
        # What else stands in the way is told by the error, and is mostly of the target.
        return "lcstore verify --level checksum {url}" if isinstance(one.problem, CorruptionError) else ""

    copied = [one.report.nbytes for one in tended if one.report is not None]
    more = [f"Copied: {size(sum(copied))}. To look at them: lcstore ls {target}"] if copied else []
    columns = ("states", "older", "copied", "objects", "there already")
    _tell(answer, tended, columns, cells, then, more=more)


def _tell(
    answer: Answer,
    tended: Sequence[Tended[Any]],
    columns: tuple[str, ...],
    cells: Callable[[Any], tuple[object, ...]],
    then: Callable[[Any], str],
    again: str = "",
    *,
    more: Sequence[str] = (),
) -> None:
    """Print a row for each store, those with a problem first; exit with status 1 if there is one.

    A store that was deleted meanwhile is told, and is no problem. Where all are gone, their disk may be.
    `then` returns the command, of ``{url}``, that goes on with such a store; `more` is said of all besides.
    What is done `again` is told where it can be done to any.
    """
    problems = {one.url: _problem(one) for one in tended}
    gone = [one for one in tended if one.is_gone]
    failed = [one for one in tended if not one.ok or len(gone) == len(tended)]
    gone = [one for one in gone if one not in failed]
    good = [one for one in tended if one not in failed and one not in gone]

    def shown() -> Iterator[Table | str]:
        table = Table("store", *columns, "problem", right=columns, spare=columns, brief=True)
        for one in (failed + gone + good)[:_MOST_SHOWN]:
            style = "red" if one in failed else None
            facts = ("",) * len(columns) if one.report is None else cells(one.report)
            table.row(one.url, *facts, answer.named(problems[one.url]), style=style)
        yield table
        if len(tended) > _MOST_SHOWN:
            yield f"... and {len(tended) - _MOST_SHOWN} more: --json has them all"
        counts = f"{len(good)} good, {len(failed)} not{f', {len(gone)} gone' * bool(gone)}"
        yield f"{counted(len(tended), 'store')} below {answer.url}: {counts}."
        yield from filter(None, more)
        steps = (then(one).replace("{url}", shlex.quote(one.url)) for one in failed if then(one))
        yield from (f"Next: {step}" for step in islice(steps, 1))
        if again:
            yield f"Nothing was changed. To do it: {again}" if good else "Nothing was changed."

    stores = [*map(_document, tended)]
    answer.give({"url": answer.url, "ok": not failed, "stores": stores}, shown())
    if failed:
        raise typer.Exit(1)


def _asks(one: Tended[Any]) -> str:
    """Return the command, of ``{url}``, that looks why a target failed; "" where it did not."""
    from lcstore.check.findings import DOCTOR

    return DOCTOR if isinstance(one.problem, StorageError) else ""


def each_below(answer: Answer, do: Callable[..., list[Tended[Any]]], **how: Any) -> list[Tended[Any]]:
    """Return what `do` makes of each store below the URL; a command cut off gives what came so far."""
    done: list[dict[str, Any]] = []
    answer.so_far = {"stores": done}
    with answer.progress() as on_progress:
        return do(answer.url, on_progress=on_progress, on_done=lambda one: done.append(_document(one)), **how)


def _document(one: Tended[Any]) -> dict[str, Any]:
    problem = _problem(one)
    said = {"ok": one.ok, "problem": problem or None, "is_gone": one.is_gone}
    return {"url": one.url, **said, "report": one.report}


def _problem(one: Tended[Any]) -> str:
    from lcstore.check.findings import with_store

    return with_store(one.wrong, one.url)
