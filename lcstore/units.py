"""Durations, sizes and numbers of things as people write and read them: ``6h``, ``10GB``, ``2 steps``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Final

from lcstore.errors import InvalidInputError

_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_ALSO: Final = {"sec": "s", "m": "min", "hour": "h", "hours": "h", "day": "d", "days": "d", "week": "w",
                "weeks": "w", "": "s"}  # fmt: skip
_DECIMAL: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_BINARY: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
_BYTES: Final = {unit.lower(): size for unit, size in (_DECIMAL | _BINARY).items()} | {"": 1}
#: Digits are few, so that no text turns into a number that takes long to handle.
_NUMBER: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]{0,5})", re.ASCII)
#: Names that are told, of many.
SHOWN: Final = 3
#: Ranges of steps that are told.
_MOST_RANGES: Final = 20


def parse_seconds(text: str) -> float:
    """Return the seconds of a duration: ``"90s"``, ``"15min"``, ``"6h"``, ``"1.5d"``, ``"2w"``."""
    number, unit = _split(text, "duration", "90s, 15min, 6h, 1d or 2w")
    scale = _SECONDS.get(_ALSO.get(unit, unit))
    if scale is None:
        raise InvalidInputError(f"unknown unit {unit!r} in {text!r}; known are {', '.join(_SECONDS)}")
    return whole(float(number * scale))


def format_seconds(seconds: float) -> str:
    """Return the shortest text that `parse_seconds` turns into `seconds`; "" where it has no whole unit."""
    fitting = [unit for unit, scale in _SECONDS.items() if seconds % scale == 0]
    return f"{int(seconds // _SECONDS[fitting[-1]])}{fitting[-1]}" if fitting else ""


def parse_bytes(text: str) -> int:
    """Return the bytes of a size: ``"10GB"`` (powers of 1000), ``"1.5 TiB"`` (powers of 1024), ``"512"``."""
    number, unit = _split(text, "size", "500MB, 10GB or 1.5TiB")
    scale = _BYTES.get(unit)
    if scale is None:
        known = ", ".join([*_DECIMAL, *_BINARY])
        raise InvalidInputError(f"unknown unit {unit!r} in {text!r}; known are {known}")
    return int(number * scale)


def format_bytes(nbytes: int) -> str:
    """Return the shortest text that `parse_bytes` turns into exactly `nbytes`."""
    units = sorted((_DECIMAL | _BINARY).items(), key=lambda unit: unit[1])
    texts = [f"{nbytes // scale}{unit}" for unit, scale in units if nbytes % scale == 0]
    return min(reversed(texts), key=len)


def whole(number: float) -> float:
    """Return `number`, as an int where it is one, so that equal numbers have one text."""
    return int(number) if number == int(number) else number


def _split(text: str, what: str, examples: str) -> tuple[Decimal, str]:
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        raise InvalidInputError(f"{text!r:.100} is no {what}; write {examples}")
    return Decimal(found[1]), found[2].lower()


def counted(count: int, what: str) -> str:
    """Return a number of things, as text: ``1 step``, ``2 steps``."""
    return f"{count} {what}{'s' * (count != 1)}"


def steps_text(ranges: Sequence[tuple[int, int]]) -> str:
    """Return ranges of steps as text: ``steps 10 to 40, 70``."""
    shown = [f"{first} to {last}" if last > first else str(first) for first, last in ranges[:_MOST_RANGES]]
    one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"step{'s' * (not one)} {', '.join(shown)}" + ", ..." * (len(ranges) > _MOST_RANGES)


def listed(names: Collection[str]) -> str:
    """Return the first of some names, and how many more there are: ``'a', 'b', 'c' and 2 more``."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, [*names][:SHOWN])) + more


def shape_text(shape: Sequence[int]) -> str:
    """Return the shape of a tensor, as text."""
    return "x".join(map(str, shape)) or "scalar"


def size(nbytes: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024 or unit == "TiB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError
