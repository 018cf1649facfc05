"""What commands share on their way out: tables, progress, one JSON document, and errors as one line."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from lcstore.errors import LcstoreError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

#: What to run next, by kind of error.
_NEXT = {
    "not-found": "lcstore ls {url}",
    "corruption": "lcstore verify {url}",
    "truncated": "lcstore verify {url}",
    "limit": "lcstore verify {url}",
    "unsupported-format": "pip install --upgrade lcstore",
    "storage": "lcstore doctor {url}",
    "unknown-outcome": "lcstore doctor {url}",
}
_WIDE = 200
_LONG = 1000


class Answer:
    """Where a command's answer goes: tables for people, or one JSON document.

    Attributes
    ----------
    next
        The command to run next if this one fails, where it is not the usual one for the error.
    """

    def __init__(self, url: str, as_json: bool) -> None:
        self.url = url
        self.as_json = as_json
        self.next: str | None = None

    @property
    def quoted(self) -> str:
        """The URL as a shell takes it."""
        return shlex.quote(self.url)

    @property
    def console(self) -> Console:
        """The console for people, on stdout; as wide as it likes when it is not a terminal."""
        return _console(stderr=False)

    def document(self, value: Any) -> None:
        """Print the JSON document."""
        print(json.dumps(plain(value), indent=2))

    def note(self, text: str) -> None:
        """Say something besides the answer, on stderr."""
        _line(text, "yellow")

    def fail(self, error: LcstoreError) -> None:
        """Show an error: one line on stderr, and the JSON document if one was asked for."""
        step = self.next if self.next is not None else _NEXT.get(error.kind, "")
        step = step.replace("{url}", self.quoted)
        if self.as_json:
            about = {"kind": error.kind, "message": error.message, "key": error.key, "step": error.step}
            self.document({"error": about | {"next": step or None}})
        hint = f" Next: {step}" if step and "`lcstore " not in error.message else ""
        _line(f"lcstore: {' '.join(str(error).split())}.{hint}", "red")


@contextmanager
def answering(url: str, as_json: bool) -> Iterator[Answer]:
    """Give a command its `Answer`; an `LcstoreError` becomes one line and exit status 1."""
    answer = Answer(url, as_json)
    try:
        yield answer
    except LcstoreError as error:
        answer.fail(error)
        raise typer.Exit(1) from None


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    # Made anew each time: tests, and callers of this as a library, put other streams in place.
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else _WIDE)


def _line(text: str, style: str) -> None:
    """Print one line on stderr, whatever its length."""
    console = _console(stderr=True)
    console.print(printable(text), style=style, highlight=False, markup=False, soft_wrap=True)


def table(*columns: str, right: tuple[str, ...] = (), title: str | None = None) -> Table:
    """Return an empty table; the columns in `right` hold numbers."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def print_rows(
    answer: Answer, columns: tuple[str, ...], rows: list[tuple[object, ...]], *, right: tuple[str, ...]
) -> None:
    """Print a table; one that is very long as plain lines, which takes a hundredth of the time."""
    if len(rows) <= _LONG:
        shown = table(*columns, right=right)
        for cells in rows:
            row(shown, *cells)
        answer.console.print(shown)
        return
    texts = [columns, *([printable("" if cell is None else str(cell)) for cell in cells] for cells in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        cells_ = zip(columns, text, widths, strict=True)
        print("   ".join(c.rjust(w) if name in right else c.ljust(w) for name, c, w in cells_).rstrip())


def print_lines(answer: Answer, lines: Iterable[str]) -> None:
    """Print plain lines, whatever their length."""
    for line in lines:
        answer.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def row(to: Table, *cells: object, style: str | None = None) -> None:
    """Add a row; no cell is taken for markup, and none reaches the terminal's control codes."""
    from rich.text import Text

    to.add_row(*(Text(printable("" if cell is None else str(cell))) for cell in cells), style=style)


def progress(quiet: bool) -> Progress:
    """Return a progress bar on stderr; not shown where `quiet`, or when that is not a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = _console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True, disable=quiet or not console.is_terminal,
    )  # fmt: skip


def printable(text: str) -> str:
    """Return `text` with whatever could steer a terminal struck out: it may come from a stranger's store."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def size(nbytes: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024 or unit == "TiB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError


def plain(value: Any) -> Any:
    """Return `value` as JSON can say it: what is no finite number is a text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    return repr(value)
