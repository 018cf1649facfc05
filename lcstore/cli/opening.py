"""Opening a store to look at it, or to maintain it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lcstore.cli.output import Answer, progress
from lcstore.errors import NotFoundError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from lcstore.store.store import Store

_MOST_SHOWN = 5


@contextmanager
def opened(
    answer: Answer, options: dict[str, Any], *, writable: bool = False, threads: int | None = None
) -> Iterator[Store]:
    """Open the store at the URL of `answer`, for reading unless it is to be `writable`."""
    import lcstore

    answer.next = f"lcstore doctor {answer.quoted}"
    try:
        mode: Literal["r", "r+"] = "r+" if writable else "r"
        store = lcstore.open(answer.url, mode, storage_options=options, threads=threads)
    except NotFoundError as error:
        below = _stores_below(answer.url)
        if below:
            answer.next = f"lcstore ls {shlex.quote(below[0])}"
            what = (
                f"there is no store here, but there are {len(below)} in it: {', '.join(below[:_MOST_SHOWN])}"
            )
            what += ", ..." if len(below) > _MOST_SHOWN else ""
        else:
            what = "there is no store here: check the URL (the first save of a training run makes one)"
        raise NotFoundError(f"{answer.url}: {what}") from error
    answer.next = None
    with store:
        yield store


def _stores_below(url: str) -> list[str]:
    """Return the stores in a local folder, as one names the folder of all runs by mistake."""
    folder = Path(url)
    try:
        return sorted(str(found.parent) for found in folder.glob("*/lcstore.json"))
    except OSError:
        return []


@contextmanager
def reading(answer: Answer, words: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for reading records."""
    with progress(answer.as_json) as bar:
        task = bar.add_task(words, total=None)

        def on_progress(_: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield on_progress


@contextmanager
def reading_phases(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for each thing that is being done; none where `quiet`."""
    with progress(quiet) as bar:
        tasks: dict[str, TaskID] = {}

        def on_progress(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase)
            bar.update(tasks[phase], completed=done, total=total)

        yield on_progress
