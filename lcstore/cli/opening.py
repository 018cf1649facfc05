"""Opening a store to look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lcstore.cli.output import Answer, progress
from lcstore.errors import NotFoundError

if TYPE_CHECKING:
    from lcstore.store.store import Store


@contextmanager
def opened(answer: Answer, options: dict[str, Any]) -> Iterator[Store]:
    """Open the store at the URL of `answer`, for reading."""
    import lcstore

    answer.next = f"lcstore doctor {answer.quoted}"
    try:
        store = lcstore.open(answer.url, "r", storage_options=options)
    except NotFoundError as error:
        what = "there is no store here: check the URL (the first save of a training run makes one)"
        raise NotFoundError(f"{answer.url}: {what}") from error
    answer.next = None
    with store:
        yield store


@contextmanager
def reading(answer: Answer, words: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for reading records."""
    with progress(answer.as_json) as bar:
        task = bar.add_task(words, total=None)

        def on_progress(_: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield on_progress
