"""The best state of each store or run, as ``lcstore ls --best`` shows them: the best first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import typer

from lcstore.errors import NotFoundError
from lcstore.terminal.answer import Answer
from lcstore.terminal.arguments import typed_again, understood
from lcstore.terminal.table import Table, counted

if TYPE_CHECKING:
    from lcstore.index.states import Listed

#: Characters of a value of metadata that a cell has.
_MOST_TEXT: Final = 24
#: Stores or runs without the metric that are told by name.
_MOST_LACKING: Final = 5


class By(NamedTuple):
    """A metric, whether its least (``"min"``) or greatest value is the best, and both as a state's name."""

    metric: str
    mode: str
    state: str


@dataclass(frozen=True)
class Best:
    """The best state of a store or a run: which it is, the value, and what was given with its save."""

    step: int
    node: str
    run: int
    value: float
    metrics: dict[str, float]
    metadata: dict[str, object]


@dataclass(frozen=True)
class BestOfRun:
    """A run, and its best state."""

    run: int
    id: str
    best: Best | None


class _Ranked(Protocol):
    @property
    def best(self) -> Best | None: ...


F = TypeVar("F", bound=_Ranked)
#: What a row is called, its best state, and what is said of it.
Row: TypeAlias = tuple[object, Best | None, str]


def by_of(text: str | None, *, alone: bool) -> By | None:
    """Return what the text of ``--best`` means: ``loss``, ``acc:max``, or a state's name ``best:loss``.

    The best of other states than all those kept would not be the one that this name finds.
    """
    from lcstore.format.labels import split_best

    if text is None:
        return None
    if not alone:
        raise typer.BadParameter("--best goes by all states and their records: no --fast, --limit, --retired")
    state = f"best:{text.removeprefix('best:')}"
    found = understood("--best", split_best, state)
    assert found is not None
    return By(*found, state)


def best_of(states: Sequence[Listed], by: By) -> Best | None:
    """Return the best of some states whose records were read; None where no value is finite."""
    from lcstore.read.metrics import place_of_best

    place = place_of_best(states, by.metric, by.mode)
    info = None if place is None else states[place].info
    if info is None:
        return None
    return Best(info.step, info.node, info.run, info.metrics[by.metric], info.metrics, info.metadata)


def best_first(found: Sequence[F], by: By) -> list[F]:
    """Return what has a best state in the order of its values, then what has none."""
    sign = 1 if by.mode == "min" else -1
    return sorted(found, key=lambda one: (one.best is None, one.best and sign * one.best.value))


def check_bests(
    answer: Answer, by: By, lacking: Sequence[str], known: Collection[str], *, some: bool
) -> None:
    """Note the stores or runs `lacking` the metric; `known` are the metrics that there are.

    Raises
    ------
    NotFoundError
        There are no others than those that lack it, not even `some` damaged ones.
    """
    if not lacking:
        return
    why = f"no state has the metric {by.metric!r} as a finite number"
    if not some:
        answer.next = f"lcstore ls {answer.quoted}"
        others = ", ".join(map(repr, sorted({*known} - {by.metric})))
        raise NotFoundError(f"{why}; there are {others}" if others else why, missing="metric")
    names = ", ".join(lacking[:_MOST_LACKING]) + ", ..." * (len(lacking) > _MOST_LACKING)
    answer.note(f"{why} of these: {names}")


def give_bests(answer: Answer, states: list[Listed], by: By, run: str | None) -> None:
    """Show the best state of each run of a store, the best run first; of one `run` alone, if given."""
    of: defaultdict[tuple[int, str], list[Listed]] = defaultdict(list)
    for state in states:
        of[state.run, state.run_id].append(state)
    found = best_first([BestOfRun(*name, best_of(those, by)) for name, those in sorted(of.items())], by)
    broken = {(state.run, state.run_id) for state in states if state.problem is not None}
    lacking = [f"run {one.run}" for one in found if one.best is None and (one.run, one.id) not in broken]
    known = {name for state in states for name in state.metrics}
    check_bests(answer, by, lacking, known, some=len(lacking) < len(found))

    def shown() -> Iterator[Table | str]:
        rows = [(one.run, one.best, "not all of it" * ((one.run, one.id) in broken)) for one in found]
        yield best_table("run", rows, by)
        yield f"{counted(len(found), 'run')} of {answer.url}{told_best(answer.url, found[0].best, by, run)}"

    answer.give({"url": answer.url, "runs": found}, shown())


def best_table(what: str, rows: Sequence[Row], by: By) -> Table:
    """Return a table of best states, with what differs of metadata: the widest of it is left out first."""
    taken = [what, by.metric, "step"]
    differing = _differing([_texts(best.metadata) for _, best, _ in rows if best is not None])
    columns = {name: f"metadata {name}" if name in taken else name for name in differing}
    spare = [*columns.values()][::-1]
    shown = Table(*taken, *columns.values(), "", right=taken[1:], spare=spare, one_line=True)
    for name, best, note in rows:
        if best is None:
            shown.row(name, *("",) * (2 + len(columns)), note)
            continue
        texts = _texts(best.metadata)
        shown.row(name, f"{best.value:.6g}", best.step, *(texts.get(one, "") for one in columns), note)
    return shown


def told_best(url: str, best: Best | None, by: By, run: str | None = None) -> str:
    """Return the end of a line that names the best state as a command takes it."""
    if best is None:
        return ""
    return f"; the best: lcstore show {Answer(url, False, {}).at(by.state)}{typed_again(run=run)}"


def _differing(those: Sequence[dict[str, str]]) -> list[str]:
    """Return the names of metadata that is not the same everywhere, as cells have it; the narrowest first."""
    names = dict.fromkeys(name for texts in those for name in texts)
    values = {name: {texts.get(name, "") for texts in those} for name in names}
    differing = [name for name in names if len(values[name]) > 1]
    return sorted(differing, key=lambda name: max(map(len, (name, *values[name]))))


def _texts(metadata: dict[str, object]) -> dict[str, str]:
    from lcstore.format.labels import flat

    return {name: _text(value) for name, value in flat(metadata)}


def _text(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."
