"""JSON as records use it: one way to write a value, no surprises when reading anyone's bytes.

Python's own parser takes duplicate keys, NaN and ``1e999``, fails with `RecursionError` on deep nesting and
with `ValueError` on long integers. Here every such input is a `CorruptionError` or a `LimitError` that
names the object.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Final, NamedTuple, NoReturn

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError, LimitError
from lcstore.garbage import garbage_waits
from lcstore.limits import MAX_JSON_DEPTH, MAX_JSON_DIGITS, MAX_JSON_MEMORY, MAX_RECORD_BYTES
from lcstore.state.names import has_surrogates

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_DIGITS: Final = bytes(ord("0") if chr(c) in "0123456789" else ord(" ") for c in range(256))
_LONG_DIGITS: Final = b"0" * (MAX_JSON_DIGITS + 1)
#: What may be a float past the range: one with an exponent, or with more digits than that takes.
_EXPONENT: Final = re.compile(rb"[0-9][eE]")
_RANGE_DIGITS: Final = b"0" * 300
#: Python's collector goes over all that is parsed again and again: of a long text that is most of the time.
_LONG: Final = 1 << 18
#: Bytes that are looked at together.
_BLOCK: Final = 1 << 18


def _by_byte(values: dict[str, int], dtype: str) -> Array:
    table = np.zeros(256, dtype)
    for char, value in values.items():
        table[ord(char)] = value
    return table


_STEPS: Final = _by_byte({"[": 1, "{": 1, "]": -1, "}": -1}, "i1")
#: Bytes that a parser makes, at most, of each of these outside of strings, where a string's last quote stands
#: for it; of the rest it makes as many as there are.
_TAKES: Final = _by_byte({"[": 100, "{": 300, ",": 48, ":": 64, '"': 64}, "i8")


def dumps(value: object) -> bytes:
    """Return the one canonical text of `value`: sorted keys, no blanks, ASCII, exact floats.

    Parameters
    ----------
    value
        Nested dict (string keys), list or tuple, str, int, finite float, bool and None. Subclasses are
        refused, because they would not come back as what they were.

    Raises
    ------
    InvalidInputError
        If `value` has no exact JSON text, is nested deeper than `MAX_JSON_DEPTH`, or has so many parts that
        nobody would read it.
    """
    _check_writable(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(text) > _LONG and outline(text).memory > MAX_JSON_MEMORY:
        raise InvalidInputError(f"a value of {len(text)} bytes of JSON holds too many parts to be read again")
    if _SURROGATE.search(text) and _has_lone_surrogate(value):
        raise InvalidInputError("a text holds half of a surrogate pair, which JSON cannot carry")
    return text


def loads(data: bytes, *, key: str, max_bytes: int = MAX_RECORD_BYTES) -> object:
    """Parse `data` strictly.

    Parameters
    ----------
    data
        The whole object.
    key
        Its key, for messages.
    max_bytes
        The longest text that is parsed.

    Raises
    ------
    CorruptionError
        If `data` is not one JSON value in UTF-8, repeats a key in an object, or holds NaN, an infinity, a
        float out of range or half of a surrogate pair.
    LimitError
        If `data` is too long, nested too deep, would take too much memory, or has an integer of too many
        digits.
    """
    if len(data) > max_bytes:
        raise LimitError(f"JSON of {len(data)} bytes, past the limit of {max_bytes}", key=key)
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptionError(f"not UTF-8: {error.reason} at byte {error.start}", key=key) from error
    if len(data) > _LONG or data.count(b"[") + data.count(b"{") > MAX_JSON_DEPTH:
        found = outline(data)
        if found.depth > MAX_JSON_DEPTH:
            raise LimitError(f"JSON nested deeper than {MAX_JSON_DEPTH}", key=key)
        if found.memory > MAX_JSON_MEMORY:
            raise LimitError(f"{len(data)} bytes of JSON that would take {found.memory} of memory", key=key)
    digits = data.translate(_DIGITS)
    with garbage_waits():
        value = _parse(
            text,
            key,
            long_digits=_LONG_DIGITS in digits,
            floats=_RANGE_DIGITS in digits or _EXPONENT.search(data) is not None,
        )
    if _SURROGATE.search(data) and _has_lone_surrogate(value):
        raise CorruptionError("a text holds half of a surrogate pair", key=key)
    return value


class Outline(NamedTuple):
    """How deep the brackets of a JSON text are nested, and how much memory it takes parsed: at most that."""

    depth: int
    memory: int


def outline(data: bytes) -> Outline:
    """Return what parsing a text comes to, without parsing it."""
    deepest = depth = inside = 0
    memory = 0 if data.isascii() else 3 * len(data)
    outside = np.zeros(256, np.int64)
    if b"\\" in data:
        # Pairs of backslashes first: what is left before a quote then decides whether the quote is escaped.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    for at in range(0, len(data), _BLOCK):
        block = np.frombuffer(data, np.uint8, min(_BLOCK, len(data) - at), at)
        quoted = (np.cumsum(block == ord('"'), dtype=np.uint8) + np.uint8(inside)) & 1
        inside = int(quoted[-1])
        bare = block[quoted == 0]
        outside += np.bincount(bare, minlength=256)
        steps = _STEPS[bare]
        depths = np.cumsum(steps[steps != 0], dtype=np.int64) + depth
        if depths.size:
            deepest, depth = max(deepest, int(depths.max())), int(depths[-1])
    return Outline(deepest, memory + int(outside @ _TAKES))


@cache
def _decoder(long_digits: bool, floats: bool) -> json.JSONDecoder:
    """Return what parses; making it takes as long as a short record."""
    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=_refuse_constant,
        # A call per number is worth its time only where one may be too long.
        parse_float=_finite if floats else None,
        parse_int=_short_int if long_digits else None,
    )


def _parse(text: str, key: str, *, long_digits: bool, floats: bool) -> object:
    try:
        return _decoder(long_digits, floats).decode(text)
    except LcstoreError as error:
        error.key = key
        raise
    except RecursionError as error:
        raise LimitError("JSON nested deeper than this thread's stack allows", key=key) from error
    except json.JSONDecodeError as error:
        raise CorruptionError(f"not JSON: {error.msg} at character {error.pos}", key=key) from None
    except ValueError as error:
        raise CorruptionError("not JSON", key=key) from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise CorruptionError("JSON object with two values for one key")
            seen.add(name)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise CorruptionError(f"JSON with {name}")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise CorruptionError("JSON with a float out of range")
    return value


def _short_int(text: str) -> int:
    if len(text) > MAX_JSON_DIGITS + text.startswith("-"):
        raise LimitError(f"JSON with an integer of {len(text)} digits, past the limit of {MAX_JSON_DIGITS}")
    return int(text)


def _check_writable(value: object) -> None:
    pending: list[tuple[object, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        kind = type(item)
        if kind is dict or kind is list or kind is tuple:
            if depth > MAX_JSON_DEPTH:
                raise InvalidInputError(f"value nested deeper than {MAX_JSON_DEPTH}, or inside itself")
            _push_children(item, depth, pending)
        else:
            _check_scalar(item)


def _push_children(item: object, depth: int, pending: list[tuple[object, int]]) -> None:
    if isinstance(item, dict):
        for name in item:
            if type(name) is not str:
                raise InvalidInputError(f"JSON keys are strings, not {type(name).__name__}: {name!r:.100}")
        pending.extend((child, depth + 1) for child in item.values())
    elif isinstance(item, list | tuple):
        pending.extend((child, depth + 1) for child in item)


def _check_scalar(item: object) -> None:
    kind = type(item)
    if item is None or kind is str or kind is bool:
        return
    if kind is float:
        if not math.isfinite(item):  # type: ignore[arg-type]
            raise InvalidInputError(f"JSON has no {item}")
    elif kind is int:
        if abs(item) >= _TOO_LONG:  # type: ignore[arg-type]
            raise InvalidInputError(f"integer of more than {MAX_JSON_DIGITS} digits")
    else:
        raise InvalidInputError(f"no JSON for {kind.__name__}: {item!r:.100}")


_TOO_LONG: Final = 10**MAX_JSON_DIGITS


def _has_lone_surrogate(value: object) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if has_surrogates(item):
                return True
        elif isinstance(item, dict):
            pending.extend(item)
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)
    return False
