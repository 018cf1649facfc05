"""The stores below a place, as ``lcstore ls`` and ``lcstore stats`` show them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from lcstore.errors import InvalidInputError, LcstoreError, NotFoundError, StorageError
from lcstore.terminal.answer import Answer
from lcstore.terminal.bests import Best, By, best_first, best_of, best_table, check_bests, told_best
from lcstore.terminal.table import Table, counted, size

if TYPE_CHECKING:
    from lcstore.read.statistics import Stats
    from lcstore.store.store import Store

#: Stores looked at side by side.
_WORKERS = 8
#: Stores in the folder of another that are told; `--json` tells one more, where there are more.
_MOST_INSIDE = 3
#: Stores of which is told why they could not be looked at; `--json` tells it of all.
_MOST_BROKEN = 20


@dataclass(frozen=True)
class Found:
    """A store: its runs, steps, latest state, and bytes of weights as far as names tell them; its best state.

    When the latest state was saved, its record tells: None where that was not read. With a best state, the
    problem may be of some of the others.
    """

    url: str
    runs: int = 0
    steps: int = 0
    latest_step: int | None = None
    latest_created: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    bytes_weights: int | None = None
    best: Best | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Counted:
    """A store, and what it counts; or why that could not be told."""

    url: str
    stats: Stats | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Held:
    """A store, and its pins; or why these could not be told."""

    url: str
    pins: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None


F = TypeVar("F", Found, Counted, Held)


def below_of(answer: Answer, leave_out: Sequence[str] | None = None, **bounds: int) -> list[str]:
    """Return the stores below the URL (`bounds`: of `stores_below`); none where it is a store itself.

    Folders that cannot be looked into are among them: whoever opens one is told why.

    Raises
    ------
    InvalidInputError
        It is a store itself, and something is to be left out.
    """
    from lcstore.records.kinds import read_store_record

    try:
        read_store_record(answer.backend())
    except NotFoundError:
        found = answer.stores_below(answer.url, sealed=True, **bounds)
        return [] if answer.url in found else found  # its own record is lost: opening it says so
    except StorageError:
        raise  # opening it would ask a target that is away as often once more
    except LcstoreError:
        pass  # opening it says so
    else:
        _tell_inside(answer)
    answer.next = None
    if leave_out:
        raise InvalidInputError(f"{answer.url} is a store: nothing can be left out")
    return []


def _tell_inside(answer: Answer) -> None:
    """Note the stores that lie in the folder of this one: what tends this one passes over them."""
    from lcstore.storage.finding import LOOKS, OWN

    if found := answer.stores_below(answer.url, own=OWN, most=_MOST_INSIDE + 1, looks=LOOKS):
        answer.besides = {"stores_inside": found}
        names = ", ".join(found[:_MOST_INSIDE]) + ", ..." * (len(found) > _MOST_INSIDE)
        answer.note(
            f"Other stores lie in {answer.url}, and are passed over as long as that is a store too: {names}. "
            f"To have them apart: lcstore cp {answer.quoted} TO, then lcstore rm {answer.quoted} --apply, "
            "which leaves them"
        )


def list_stores(answer: Answer, urls: list[str], *, fast: bool, by: By | None) -> None:
    """Show some stores, by names alone if `fast`; exit with status 1 if one of them cannot be listed.

    With `by`, the best state of each is shown, the best store first.
    """
    found = _each(answer, partial(_look, fast, by), Found, urls)
    if by is not None:
        found = best_first(found, by)
        lacking = [one for one in found if one.best is None and one.problem is None]
        known = {name for one in found for name in one.metrics}
        check_bests(answer, by, [one.url for one in lacking], known, some=len(lacking) < len(found))
    shown = _shown(answer, found) if by is None else _shown_bests(answer, found, by)
    answer.give({"url": answer.url, "stores": found}, shown)
    _tell_broken(answer, found, "listed" if by is None else "listed whole")


def count_stores(answer: Answer, urls: list[str]) -> None:
    """Show what some stores take; exit with status 1 if not all of one can be counted."""
    found = _each(answer, _count, Counted, urls)
    stored, condemned = _all_stored(found)
    about = {"url": answer.url, "bytes_stored": stored, "bytes_condemned": condemned, "stores": found}
    answer.give(about, _shown_counts(answer, found))
    _tell_broken(answer, found, "counted whole")


def list_pins(answer: Answer, urls: list[str]) -> None:
    """Show the pins of some stores; exit with status 1 if those of one cannot be listed."""
    found = _each(answer, lambda url, store: Held(url, pins_of(store)), Held, urls)
    answer.give({"url": answer.url, "stores": found}, _shown_pins(answer, found))
    _tell_broken(answer, found, "listed")


def pins_of(store: Store) -> list[dict[str, Any]]:
    """Return the pins of a store, by step: of each who holds it, and which state."""
    return [
        {"step": state.step, "by": by, "node": state.node}
        for state in store.states(records=False)
        for by in state.pinned_by
    ]


def _each(answer: Answer, tell: Callable[[str, Store], F], kind: type[F], urls: list[str]) -> list[F]:
    import lcstore
    from lcstore.jobs.survey import spread

    def look(url: str) -> F:
        try:
            with lcstore.open(url, "r", storage_options=answer.storage_options, threads=1) as store:
                return tell(url, store)
        except LcstoreError as error:
            return kind(url, problem=str(error))

    with answer.progress() as on_progress:
        return list(spread(look, urls, workers=_WORKERS, phase="looking at stores", on_progress=on_progress))


def _tell_broken(answer: Answer, found: list[F], wanted: str) -> None:
    broken = [one for one in found if one.problem is not None]
    if broken:
        answer.note(f"stores that could not be {wanted}: {len(broken)}")
        for one in broken[:_MOST_BROKEN]:
            answer.note(f"{one.url}: {one.problem}")
        raise typer.Exit(1)


def _look(fast: bool, by: By | None, url: str, store: Store) -> Found:
    states = store.states(records=by is not None)
    lost = "" if states or store.states(records=False, retired=True) else lost_of(store)
    if lost:
        return Found(url, problem=_to_verify(url, lost))
    latest = next((state for state in states if state.latest), None)
    info = None if latest is None else latest.info
    if by is None and latest is not None and not fast:
        info = store.info(latest.node)
    nbytes = sum(state.bytes_weights or 0 for state in states)
    steps, runs = len({state.step for state in states}), len({state.run_id for state in states})
    best = None if by is None else best_of(states, by)
    problem = next((one.problem for one in states if one.problem is not None), None)
    wrong = None if problem is None else _to_verify(url, problem)
    step = None if latest is None else latest.step
    created, metrics = (None, {}) if info is None else (info.created, info.metrics)
    return Found(url, runs, steps, step, created, metrics, nbytes or None, best, wrong)


def _count(url: str, store: Store) -> Counted:
    stats = store.stats()
    wrong = next(iter(map(str, stats.unreadable.values())), "")
    wrong = wrong or ("" if stats.states or stats.retired else lost_of(store))
    return Counted(url, stats, _to_verify(url, wrong) if wrong else None)


def _to_verify(url: str, wrong: object) -> str:
    return f"{wrong}. Next: lcstore verify {shlex.quote(url)}"


def lost_of(store: Store) -> str:
    """Return what is said of a store that records no state, if records may be lost; "" of a new one."""
    from lcstore.index.resolve import lost_records

    return lost_records(store.backend)


def _shown_counts(answer: Answer, found: list[Counted]) -> Iterator[Table | str]:
    numbers = ("states", "stored", "on disk", "ratio", "retired", "condemned")
    spare = ("retired", "ratio", "condemned", "on disk")
    shown = Table("store", *numbers, "", right=numbers, spare=spare, one_line=True)
    largest_first = sorted(found, key=lambda one: -_stored(one.stats)[0] if one.stats else 0)
    for one in largest_first:
        shown.row(one.url, *_counts(one.stats), "not all of it" * (one.problem is not None))
    yield shown
    stored, gone = _all_stored(found)
    told = f", {size(gone)} of that condemned" if gone else ""
    disk = [one.stats.bytes_on_disk for one in found if one.stats is not None]
    taken = sum(nbytes or 0 for nbytes in disk)
    told += f", {size(taken)} on the disk" if disk and None not in disk else ""
    yield (
        f"{counted(len(found), 'store')} below {answer.url}: {size(stored)}{told}. "
        f"What a night would leave of each: lcstore maintain {answer.quoted} --keep latest:3"
    )


def _all_stored(found: list[Counted]) -> tuple[int, int]:
    known = [_stored(one.stats) for one in found if one.stats is not None]
    return sum(stored for stored, _ in known), sum(condemned for _, condemned in known)


def _stored(stats: Stats) -> tuple[int, int]:
    besides = stats.orphan_bytes + stats.quarantined_bytes
    return stats.bytes_stored["total"] + besides, stats.condemned_bytes


def _counts(stats: Stats | None) -> tuple[object, ...]:
    if stats is None:
        return ("",) * 6
    stored, condemned = _stored(stats)
    on_disk = "" if stats.bytes_on_disk is None else size(stats.bytes_on_disk)
    ratio = f"{stats.ratio:.1f}x" if stats.bytes_raw["total"] else ""
    return (
        stats.states,
        size(stored),
        on_disk,
        ratio,
        stats.retired or "",
        size(condemned) if condemned else "",
    )


def _shown(answer: Answer, found: list[Found]) -> Iterator[Table | str]:
    numbers = ("runs", "steps", "latest step")
    columns = (*numbers, "saved (UTC)", "its metrics")
    spare = ("its metrics", "runs", "steps", "saved (UTC)")
    shown = Table("store", *columns, "", right=numbers, spare=spare, one_line=True)
    for one in found:
        saved = (one.latest_created or "")[:16].replace("T", " ")
        facts = (one.runs, one.steps, one.latest_step, saved, metrics_text(one.metrics))
        shown.row(one.url, *(("",) * 5 if one.problem else facts), "cannot be listed" if one.problem else "")
    yield shown
    yield (
        f"{counted(len(found), 'store')} below {answer.url}; lcstore stats counts the bytes of each, and "
        "lcstore ls URL lists the states of one."
    )


def _shown_pins(answer: Answer, found: list[Held]) -> Iterator[Table | str]:
    shown = Table("store", "step", "by", "node", right=("step",), brief=True)
    for one in found:
        for pin in one.pins:
            shown.row(one.url, *pin.values())
    holding, places = [len(one.pins) for one in found if one.pins], counted(len(found), "store")
    if holding:
        yield shown
        pins = f"{counted(sum(holding), 'pin')} in {len(holding)} of {places}"
        yield f"{pins} below {answer.url}. To take one away: lcstore unpin URL@STEP"
    else:
        yield f"There are no pins in {places} below {answer.url}. To pin a state: lcstore pin URL@STEP"


def _shown_bests(answer: Answer, found: list[Found], by: By) -> Iterator[Table | str]:
    rows = [(one.url, one.best, _problem_text(one)) for one in found]
    yield best_table("store", rows, by)
    yield f"{counted(len(found), 'store')} below {answer.url}{told_best(found[0].url, found[0].best, by)}"


def _problem_text(one: Found) -> str:
    if one.problem is None:
        return ""
    return "not all of it" if one.steps else "cannot be listed"


def metrics_text(metrics: dict[str, float]) -> str:
    """Return metrics for a cell."""
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
