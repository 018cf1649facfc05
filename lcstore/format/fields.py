"""Reading the fields of a record, each checked, each error naming the object and the field."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Container
from datetime import datetime
from typing import Final, TypeVar

from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    LimitError,
    UnsupportedFormatError,
)
from lcstore.format.hashing import hash_of
from lcstore.limits import MAX_RECORD_BYTES
from lcstore.version import SOFTWARE

T = TypeVar("T")

#: Version of every record's format. 0 is the format under development: releases refuse it.
FORMAT: Final = 0
#: Features that a record may require of its reader, and that this version has.
FEATURES: Final[frozenset[str]] = frozenset()

#: Greatest magnitude of an integer among named numbers.
MAX_NUMBER: Final = (1 << 63) - 1

NAME: Final = re.compile("[a-z0-9][a-z0-9_.-]{0,99}")
#: Of what a record holds this alone is printed, where it is as short and plain as versions are.
_WRITER: Final = re.compile("lcstore [0-9a-z.+-]{1,40}")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")
#: JSON has no other word for these, and a loss may well be one of them.
_NOT_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Fields:
    """The fields of one JSON object. Take each once, then call `done`, which refuses any left over."""

    def __init__(self, value: object, *, key: str, where: str = "") -> None:
        self.key = key
        self.where = where
        self.kind = ""
        if not isinstance(value, dict):
            raise self.wrong("", "an object", value)
        self._left: dict[str, object] = dict(value)

    def wrong(self, name: str, expected: str, value: object) -> CorruptionError:
        """Return the error for a field that is not what it must be. What it holds is never printed."""
        field = ".".join(part for part in (self.where, name) if part) or "record"
        return CorruptionError(f"{field} must be {expected}, not this {type(value).__name__}", key=self.key)

    def take(self, name: str) -> object:
        """Return the value of a field that must be there."""
        if name not in self._left:
            raise CorruptionError(f"{'.'.join(filter(None, (self.where, name)))} is missing", key=self.key)
        return self._left.pop(name)

    def has(self, name: str) -> bool:
        """Return whether a field is there that nobody took yet."""
        return name in self._left

    def integer(self, name: str, limit: int) -> int:
        """Return an integer from 0 to `limit`."""
        value = self.take(name)
        if type(value) is not int or value < 0:
            raise self.wrong(name, "a non-negative integer", value)
        if value > limit:
            raise LimitError(f"{name} is past the limit of {limit}", key=self.key)
        return value

    def boolean(self, name: str) -> bool:
        """Return a boolean."""
        value = self.take(name)
        if type(value) is not bool:
            raise self.wrong(name, "true or false", value)
        return value

    def text(self, name: str, limit: int) -> str:
        """Return a text of at most `limit` characters."""
        value = self.take(name)
        if not isinstance(value, str) or len(value) > limit:
            raise self.wrong(name, f"a text of at most {limit} characters", value)
        return value

    def form(self, name: str, form: re.Pattern[str], *others: str) -> str:
        """Return a text of the given form, or one of `others`."""
        value = self.take(name)
        if not isinstance(value, str) or (value not in others and form.fullmatch(value) is None):
            raise self.wrong(name, " or ".join([f"of the form {form.pattern}", *map(repr, others)]), value)
        return value

    def checked(self, name: str, check: Callable[[str], str]) -> str:
        """Return a text that `check` takes."""
        return self._checked(name, self.take(name), check)

    def all_checked(self, name: str, check: Callable[[str], str]) -> tuple[str, ...]:
        """Return a list of texts, each of which `check` takes."""
        return tuple(self._checked(name, value, check) for value in self.items(name))

    def _checked(self, name: str, value: object, check: Callable[[str], str]) -> str:
        if not isinstance(value, str):
            raise self.wrong(name, "a text", value)
        try:
            return check(value)
        except InvalidInputError as error:
            raise CorruptionError(f"{name} holds what it cannot", key=self.key) from error

    def one_of(self, name: str, *values: str) -> str:
        """Return one of a few words."""
        value = self.take(name)
        if not isinstance(value, str) or value not in values:
            raise self.wrong(name, f"one of {', '.join(values)}", value)
        return value

    def time(self, name: str) -> str:
        """Return a moment in ISO 8601, UTC, as the text that it is."""
        value = self.take(name)
        if not isinstance(value, str) or not is_time(value):
            raise self.wrong(name, "a time such as 2026-11-21T05:39:00Z", value)
        return value

    def items(self, name: str) -> list[object]:
        """Return a list."""
        value = self.take(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return value

    def mapping(self, name: str) -> dict[str, object]:
        """Return a JSON object, whatever it holds."""
        value = self.take(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object", value)
        return value

    def nullable(self, name: str, read: Callable[[str], T]) -> T | None:
        """Return None where the field is null, and what `read` makes of it otherwise."""
        if self._left.get(name, ...) is None:
            self._left.pop(name)
            return None
        return read(name)

    def number(self, name: str) -> int | float:
        """Return a number, which may be infinite or NaN."""
        value = self.take(name)
        found = _number(value)
        if found is None:
            raise self.wrong(name, "a number", value)
        return found

    def numbers(self, name: str, counts: Container[str] = ()) -> dict[str, int | float]:
        """Return named numbers, infinities and NaN among them but for those that are `counts`."""
        found: dict[str, int | float] = {}
        for label, value in self.mapping(name).items():
            number = _number(value)
            if number is None:
                raise self.wrong(name, "named numbers", value)
            if label in counts and (type(number) is not int or number < 0):
                raise self.wrong(f"{name}.{label}", "a non-negative integer", value)
            found[label] = number
        return found

    def columns(self, name: str) -> dict[str, bytes]:
        """Return named strings of bytes, base64 in JSON."""
        found: dict[str, bytes] = {}
        for label, value in self.mapping(name).items():
            if NAME.fullmatch(label) is None:
                raise self.wrong(name, f"labelled by {NAME.pattern}", label)
            if not isinstance(value, str):
                raise self.wrong(f"{name}.{label}", "base64", value)
            found[label] = self._unbase64(f"{name}.{label}", value)
        return found

    def _unbase64(self, name: str, value: str) -> bytes:
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.wrong(name, "base64", value) from error
        # Unused low bits and odd padding would give one value several spellings.
        if base64.b64encode(data).decode() != value:
            raise self.wrong(name, "canonical base64", value)
        return data

    def done(self) -> None:
        """Refuse fields that nobody took."""
        if self._left:
            raise CorruptionError(f"{self.where or 'record'} has an unknown field", key=self.key)


def _number(value: object) -> int | float | None:
    """Return the number that a JSON value stands for; None if it is none."""
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    if type(value) is float or (type(value) is int and abs(value) <= MAX_NUMBER):
        return value
    return None


def _writer(value: object) -> str:
    """Return what wrote a record, in brackets, if it names a version of lcstore."""
    software = value.get("software") if isinstance(value, dict) else None
    if not isinstance(software, str) or not _WRITER.fullmatch(software):
        return ""
    return f" (written by {software}, and this is {SOFTWARE})"


def open_fields(value: object, *, kind: str | tuple[str, ...], key: str) -> Fields:
    """Return the fields of a record of this kind, if its format and required features are ours."""
    fields = Fields(value, key=key)
    number = fields.take("format")
    if type(number) is not int or number < 0:
        raise fields.wrong("format", "a non-negative integer", number)
    if number != FORMAT:
        raise UnsupportedFormatError(
            f"another format than {FORMAT}, which this lcstore reads{_writer(value)}: upgrade lcstore",
            key=key,
        )
    features = fields.items("features")
    if not all(isinstance(feature, str) for feature in features):
        raise fields.wrong("features", "a list of texts", features)
    if not FEATURES.issuperset(map(str, features)):
        known = f"needs features that are not known{_writer(value)}: upgrade lcstore"
        raise UnsupportedFormatError(known, key=key)
    fields.kind = fields.one_of("kind", *((kind,) if isinstance(kind, str) else kind))
    return fields


def header(kind: str) -> dict[str, object]:
    """Return the fields with which every record begins."""
    return {"format": FORMAT, "features": [], "kind": kind}


def record_id(data: bytes) -> str:
    """Return the id of a record: the first half of the hash of its bytes, in hex."""
    return hash_of(data)[:32]


def written(data: bytes, read: Callable[..., object]) -> bytes:
    """Return `data` if `read` takes it: what could not be read back is refused before it is stored."""
    if len(data) > MAX_RECORD_BYTES:
        raise InvalidInputError(f"record of {len(data)} bytes, past the limit of {MAX_RECORD_BYTES}")
    try:
        read(data, key="a new record")
    except InvalidInputError:
        raise
    except LcstoreError as error:
        raise InvalidInputError(f"not a valid record: {error.message}") from error
    return data


def columns_to_json(columns: dict[str, bytes]) -> dict[str, str]:
    """Return columns as JSON has them."""
    return {name: base64.b64encode(data).decode() for name, data in columns.items()}


def numbers_to_json(numbers: dict[str, float] | dict[str, int | float]) -> dict[str, int | float | str]:
    """Return numbers as JSON has them; NaN and infinities become words."""
    found: dict[str, int | float | str] = {}
    for name, value in numbers.items():
        if type(value) is not int and type(value) is not float:
            raise InvalidInputError(f"{name!r:.100} must be an int or a float, not {type(value).__name__}")
        found[name] = value if type(value) is int or math.isfinite(value) else str(value)
    return found


def is_time(text: str) -> bool:
    """Return whether `text` is a moment as records write it."""
    if _TIME.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
