"""What commands share: the store that they open, progress, one answer, and errors as one line."""

from __future__ import annotations

import json
import logging
import re
import shlex
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import typer

from lcstore.errors import FallbackWarning, InvalidInputError, LcstoreError, NotFoundError, StorageError
from lcstore.format.keyforms import STRAY
from lcstore.terminal.arguments import split_at, storage_options
from lcstore.terminal.packages import broken_numcodecs
from lcstore.terminal.printing import console_of, plain, print_all, print_styled, until_unread
from lcstore.terminal.table import Table, counted
from lcstore.version import UPGRADE

if TYPE_CHECKING:
    from rich.progress import TaskID

    from lcstore.jobs.survey import OnProgress
    from lcstore.storage.backend import Backend
    from lcstore.store.store import Store

#: What to run next, by kind of error.
_NEXT = {
    "not-found": "lcstore ls {url}",
    "corruption": "lcstore verify {url}",
    "truncated": "lcstore verify {url}",
    "limit": "lcstore verify {url}",
    "unsupported-format": UPGRADE,
    "storage": "lcstore doctor {url}",
    "unknown-outcome": "lcstore doctor {url}",
}
_MOST_STORES = 5
#: Warnings of damage that cost nothing that are shown one by one.
_MOST_FALLBACKS = 3
#: An exit status above this one tells of a signal that ended the command.
_SIGNALS = 128
#: What `lcstore.filesystem` opens: a state, perhaps a path in it, and where the store is.
_OF_STATE = re.compile(r"lcstore://(?P<state>[^/:]*)(?:/.*)?::(?P<store>.+)")


def told(
    kind: str, message: str, next: str | None = None, error: LcstoreError | None = None
) -> dict[str, Any]:
    """Return the document that a command prints which fails, perhaps of an error."""
    about = {name: getattr(error, name, None) for name in ("key", "step", "missing", "reason")}
    return {"ok": False, "error": {"kind": kind, "message": message} | about | {"next": next}}


class Answer:
    """A command's dealings with its store and its user.

    Attributes
    ----------
    url, storage_options
        The target.
    as_json
        Whether the answer is one JSON document.
    next
        The command to run next if this one fails, where it is not the usual one for the error.
    """

    def __init__(self, url: str, as_json: bool, options: dict[str, Any]) -> None:
        self.url = url
        self.as_json = as_json
        self.storage_options = options
        self.next: str | None = None
        #: The URL as the store says it: errors name that, and people typed the other.
        self.told: str | None = None
        #: What the document says besides, whatever the answer is.
        self.besides: dict[str, Any] = {}
        #: What the document says besides if a signal ends the command.
        self.so_far: dict[str, Any] = {}

    @property
    def quoted(self) -> str:
        """The URL as a shell takes it."""
        return shlex.quote(self.url)

    def at(self, state: object) -> str:
        """Return the name of a state of the store as a shell takes it."""
        joined = f"{self.url}@{state}"
        if split_at(joined) == (self.url, state):
            return shlex.quote(joined)
        return f"{self.quoted} --at {shlex.quote(str(state))}"

    @contextmanager
    def store(self, *, writable: bool = False, threads: int | None = None) -> Iterator[Store]:
        """Open the store, for reading unless it is to be `writable`; close it at the end."""
        import lcstore

        self.next = f"lcstore doctor {self.quoted}"
        mode: Literal["r", "r+"] = "r+" if writable else "r"
        with self.finding():
            store = lcstore.open(self.url, mode, storage_options=self.storage_options, threads=threads)
        self.next, self.told = None, store.url
        with store:
            yield store

    @contextmanager
    def finding(self) -> Iterator[None]:
        """Have an error that there is no store say what there is in its place."""
        try:
            yield
        except NotFoundError as error:
            from lcstore.storage.finding import MARKER

            # There is no bucket, or another object is gone: it says so.
            if isinstance(error.__cause__, StorageError) or error.key not in (None, MARKER):
                raise
            raise NotFoundError(f"{self.url}: {self._no_store()}", missing="store") from error

    def whole(self, instead: str) -> None:
        """Refuse a URL that names a state, for what is done to a whole store.

        `instead` is what may be run in its place, where ``{store}`` and ``{state}`` stand for the two.
        """
        names_a_state = self._names_a_state()
        if names_a_state:
            store = shlex.quote(self.url.rpartition("@")[0])
            self.next = instead.format(store=store, state=self.quoted)
            raise InvalidInputError(f"{self.url}: {names_a_state}")

    def _names_a_state(self) -> str:
        """Return what is said of a URL that names a state, not a store; nothing where it does not."""
        store, mark, state = self.url.rpartition("@")
        if not mark or not store or "/" in state or self.stores_below(store, levels=0, most=1) != [store]:
            return ""
        self.next = f"lcstore show {self.quoted}"
        return f"it names a state; this command takes the store alone, {store}"

    def backend(self) -> Backend:
        """Open the target alone, as `verify` and `repair` do: a damaged store cannot always be opened."""
        from lcstore.storage.patient import patient
        from lcstore.storage.targets import open_backend

        self.next = f"lcstore doctor {self.quoted}"
        backend = patient(open_backend(self.url, self.storage_options), None, None)
        self.told = backend.url
        return backend

    @contextmanager
    def progress(self, words: str | None = None) -> Iterator[OnProgress]:
        """Show a progress bar for each thing that is being done; with `words`, one bar for all of it."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = console_of(sys.stderr)
        bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console, transient=True, disable=self.as_json or not console.is_terminal,
        )  # fmt: skip
        tasks: dict[str, TaskID] = {}

        def on_progress(phase: str, done: int, total: int) -> None:
            name = words or phase
            if name not in tasks:
                tasks[name] = bar.add_task(name)
            bar.update(tasks[name], completed=done, total=total)

        with bar:
            if words is not None:
                tasks[words] = bar.add_task(words, total=None)
            yield on_progress

    def give(self, facts: Any, shown: Iterable[Table | str], **more: Any) -> None:
        """Print the answer.

        Parameters
        ----------
        facts, more
            What ``--json`` prints as one document: a dict or a dataclass, and further entries. Its ``url`` is
            what was typed.
        shown
            Tables and lines for people. It is not gone through where the answer is JSON.
        """
        text = ""
        if self.as_json:
            document = plain(facts) | plain(more) | plain(self.besides)
            if self.told and document.get("url") in (self.told, self.told.removeprefix("file://")):
                document["url"] = plain(self.url)  # without what is secret in it
            text = json.dumps(document, indent=2)
        with until_unread(text):
            if self.as_json:
                print(text)
            else:
                print_all(shown)

    def note(self, text: str) -> None:
        """Print something besides the answer, on stderr."""
        print_styled(text, "yellow", sys.stderr)

    def interrupted(self) -> None:
        """Say that a signal has ended the command: on stderr, and in the document if one was asked for."""
        said = "Interrupted. What was stored is not lost: the same command goes on, or begins anew."
        if self.as_json:
            self.give(told("interrupted", said) | self.so_far, ())
        self.note(said)

    def fail(self, error: LcstoreError) -> None:
        """Show an error: one line on stderr, and the JSON document if one was asked for."""
        usual = _NEXT.get(error.kind, "")
        step = usual if self.next is None or error.kind == "unsupported-format" else self.next
        if error.message == STRAY:  # it says all there is to do, and no command can
            step = ""
        step = step.replace("{url}", self.quoted)
        error.message = self.named(error.message)
        # The error may name that very command, with options that show what it is about.
        found = re.search(rf"`({re.escape(step)} [^`]+)`", error.message) if step else None
        step = step if found is None else found[1]
        if self.as_json:
            self.give(told(error.kind, error.message, step or None, error), ())
        hint = f" Next: {step}" if step and "`lcstore " not in error.message else ""
        said = " ".join(str(error).split())
        end = "" if said.endswith((".", "?")) else "."
        print_styled(f"lcstore: {said}{end}{hint}", "red", sys.stderr)

    def named(self, message: str) -> str:
        """Return a message with the store called what the user called it, in its commands, too."""
        from lcstore.check.findings import with_store

        return with_store(message if self.told is None else message.replace(self.told, self.url), self.url)

    def stores_below(self, url: str, **bounds: Any) -> list[str]:
        """Return the stores below a URL, as far as the target lists folders."""
        from lcstore.storage.finding import stores_below

        try:
            return stores_below(url, self.storage_options, **bounds)
        except LcstoreError:
            return []

    def _no_store(self) -> str:
        """Return what there is instead: people name the folder of all runs by mistake."""
        names_a_state = self._names_a_state()
        if names_a_state:
            return names_a_state
        from lcstore.index.resolve import headless
        from lcstore.storage.finding import FEW_LOOKS

        if lacks := headless(self.backend()):
            self.next = f"lcstore verify {self.quoted}"
            return lacks
        below = self.stores_below(self.url, levels=2, most=_MOST_STORES + 1, looks=FEW_LOOKS)
        if not below:
            return self._nearest()
        self.next = f"lcstore ls {self.quoted}"
        names = ", ".join(below[:_MOST_STORES]) + ", ..." * (len(below) > _MOST_STORES)
        every = "`ls`, `stats`, `verify`, `cp`, `maintain`, `collect` and `unretire`"
        return f"there is no store here, but below: {names} ({every} take all that are below)"

    def _nearest(self) -> str:
        """Return what may have been meant by a URL where there is nothing."""
        from lcstore.index.resolve import near
        from lcstore.records.kinds import is_store

        meant = near(self.url, self.storage_options)
        if not meant:
            backend = self.backend()
            is_store(backend)  # a missing bucket lists as an empty one does, and is told by what reads
            begins = " (the first save of a training run makes one)" * backend.writable
            return f"there is no store here: check the URL{begins}"
        self.next = f"lcstore ls {shlex.quote(meant[0])}"
        return f"there is no store here, but beside it is {', '.join(meant)}"


class _Hints(logging.Handler):
    """Notes each hint of the log once."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Note a hint."""
        text = record.getMessage()
        if text not in self._told:
            self._told.add(text)
            self._answer.note(self._answer.named(text))


@contextmanager
def _warnings(answer: Answer) -> Iterator[None]:
    """Note each warning; of damage that cost nothing the first few, and then how many more there were."""
    found = 0

    def note(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        nonlocal found
        found += issubclass(category, FallbackWarning)
        if found <= _MOST_FALLBACKS or not issubclass(category, FallbackWarning):
            answer.note(f"Warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = note
        try:
            yield
        finally:
            if found > _MOST_FALLBACKS:
                more = counted(found - _MOST_FALLBACKS, "more warning")
                names_them = f"`lcstore verify {answer.quoted}` names each object"
                answer.note(f"Warning: there were {more} like these: {names_them}")


@contextmanager
def _hints(answer: Answer) -> Iterator[None]:
    log, handler = logging.getLogger("lcstore.hints"), _Hints(answer)
    before = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _check_store(url: str) -> None:
    """Refuse the URL of a file that is made of a state, naming the state as commands do."""
    found = _OF_STATE.fullmatch(url)
    if found is not None:
        state = f"@{unquote(found['state'])}" if found["state"] else ""
        raise InvalidInputError(
            f"{url} names a file that is made of a state; commands take the store, and a state as "
            f"{shlex.quote(found['store'] + state)}"
        )


@contextmanager
def answering(
    url: str, as_json: bool, options: str | None = None, pairs: list[str] | None = None
) -> Iterator[Answer]:
    """Yield the `Answer` of a command.

    An `LcstoreError` becomes one line and exit status 1. A warning becomes one line: a line of this program
    would say nothing to the user. So does a hint of the log, and a signal such as Ctrl-C, with an exit
    status of 128 and its number.
    """
    answer = Answer(url, as_json, storage_options(options, pairs))
    with _warnings(answer), _hints(answer):
        try:
            _check_store(url)
            yield answer
        except (LcstoreError, ValueError) as error:
            known = error if isinstance(error, LcstoreError) else broken_numcodecs()
            if known is None:
                raise
            answer.fail(known)
            raise typer.Exit(1) from None
        except (KeyboardInterrupt, SystemExit) as stop:
            status = 128 + signal.SIGINT if isinstance(stop, KeyboardInterrupt) else stop.code
            if not isinstance(status, int) or status <= _SIGNALS:  # nobody reads on
                raise
            answer.interrupted()
            raise typer.Exit(status) from None
