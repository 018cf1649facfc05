"""The pieces that names in a store are made of, and how one is checked."""

from __future__ import annotations

import re
from typing import Final

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.graph.refs import ROOT
from lcstore.layout.qualified import stem_of

#: What is said of a name that means nothing. People have to move the file: no command knows whose it is.
STRAY: Final = "lcstore gives no such name: move this file out of the store"
#: What is said of the folder of another store.
OTHER: Final = "another store lies in this one, and is not looked at: keep them apart"
ID: Final = "[0-9a-f]{32}"
COUNT: Final = "(?:0|[1-9][0-9]{0,18})"
PART: Final = "(?:0|[1-9][0-9]{0,4})"
POOL: Final = "[a-z0-9][a-z0-9_-]{0,79}"
ID_RE: Final = re.compile(ID)
#: As much of an id as names it, where no other begins so.
_BEGINNING_RE: Final = re.compile("[0-9a-f]{8,31}")
RUN_ID_RE: Final = re.compile("[0-9a-f]{8}")
#: A step or a run as people write it, zeros before it included. What has more digits is no such number.
_NUMBER_RE: Final = re.compile("[0-9]{1,19}")
DIGEST_RE: Final = re.compile("[0-9a-f]{64}")
PART_RE: Final = re.compile(PART)
#: A pool as layouts of several parts name it: part 0 is not said.
QUALIFIED_RE: Final = re.compile(rf"(?:[1-9][0-9]{{0,4}}/)?{POOL}")


def is_id(text: str) -> bool:
    """Return whether `text` has the form of a node's, edge's or record's id."""
    return ID_RE.fullmatch(text) is not None


def is_number(text: str) -> bool:
    """Return whether `text` has the form of a step, or of the number of a run."""
    return _NUMBER_RE.fullmatch(text) is not None


def is_beginning(text: str) -> bool:
    """Return whether `text` has the form of the beginning of an id: 8 characters or more."""
    return _BEGINNING_RE.fullmatch(text) is not None


def stem(pool: str) -> str:
    """Return a pool without the part that it is of; `InvalidInputError` if it cannot be one."""
    return stem_of(check_text("pool", pool, QUALIFIED_RE))


def match(form: re.Pattern[str], key: str) -> re.Match[str]:
    """Return the pieces of a key; `CorruptionError` if it has not this form."""
    found = form.fullmatch(key)
    if found is None:
        raise CorruptionError(STRAY, key=key)
    return found


def check_number(what: str, value: int, limit: int) -> int:
    """Return `value`, or raise `InvalidInputError` if it is no number from 0 to `limit`."""
    if type(value) is not int or not 0 <= value <= limit:
        raise InvalidInputError(f"{what} must be an integer from 0 to {limit}, not {value!r:.100}")
    return value


def check_text(what: str, value: str, form: re.Pattern[str]) -> str:
    """Return `value`, or raise `InvalidInputError` if it has not the form of `what`."""
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise InvalidInputError(f"not a {what}: {value!r:.100}")
    return value


def check_base(base: str) -> None:
    """Raise `InvalidInputError` if `base` is neither a node's id nor the root."""
    if base != ROOT:
        check_text("base id", base, ID_RE)
