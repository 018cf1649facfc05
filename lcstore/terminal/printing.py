"""Tables, lines and JSON, printed: as wide as the terminal is, and in colours where there is one."""

from __future__ import annotations

import errno
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from lcstore.storage.masking import without_secrets
from lcstore.terminal.table import Table, is_huge, printable, prose

#: What says that nothing more can be written.
_FULL: Final = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])

if TYPE_CHECKING:
    from rich.console import Console


def print_all(shown: Iterable[Table | str]) -> None:
    """Print tables and lines; an empty line sets a table apart."""
    after: Table | str = ""
    for one in shown:
        if after and (isinstance(one, Table) or isinstance(after, Table)):
            print()
        if isinstance(one, Table):
            _print_table(one)
        else:
            print(*prose(printable(one), width_of(sys.stdout)), sep="\n")
        after = one


@contextmanager
def until_unread(document: str = "") -> Iterator[None]:
    """Print as long as someone reads: `| head` has read enough, and what was found out stays as it is.

    Where nothing can be printed, as on a full disk, that is said on stderr, with the `document` if there is
    one: it may be all that tells what was done.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _print_nowhere()
    except SystemExit as end:
        if end.code != 1:  # a signal; 1 is what rich makes of a pipe that nobody reads
            raise
        _print_nowhere()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _print_nowhere()
        follows = ", which follows" * bool(document)
        said = f"lcstore: {error.strerror}: the answer could not be written{follows}. The command has ended."
        with suppress(OSError):
            print_styled(said, "red", sys.stderr)
            print(document, end="\n" * bool(document), file=sys.stderr)
        raise SystemExit(1) from None


def _print_nowhere() -> None:
    """Let what is left in the buffer go nowhere, or the end of the process would fail to write it."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def width_of(stream: Any) -> int | None:
    """Return how many characters go in a line of a stream; None where that is no terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def _print_table(table: Table) -> None:
    for text, style in table.lines(width_of(sys.stdout)):
        if style is None:
            print(text)
        else:
            print_styled(text, style, sys.stdout)


def print_styled(text: str, style: str, stream: Any) -> None:
    """Print a text, folded between words where it is too long for a terminal."""
    for line in prose(printable(text), width_of(stream)):
        console_of(stream).print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def console_of(stream: Any) -> Console:
    """Return what prints to a stream with styles."""
    from rich.console import Console

    # Made anew each time: tests, and callers of this as a library, put other streams in place.
    return Console(file=stream, emoji=False)


def plain(value: Any) -> Any:
    """Return `value` as JSON can say it: what is no finite number is a text, and so is a huge integer."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if is_huge(value):
        return hex(value)
    if value is None or isinstance(value, bool | int):
        return value
    return without_secrets(str(value) if isinstance(value, str | Exception) else repr(value))
