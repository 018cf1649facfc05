"""Notes that say the same of several tensors, but for numbers, put together as one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from lcstore.report.facts import SharedNote

#: Tensors that a note names.
MOST_NAMED: Final = 3
#: What differs among layers that had the same fate: how many times as far or as large, since its grid was
#: chosen when, which save found that grid used up, and after which it moved less.
_NUMBER: Final = r"[\d.]+(?:e[+-]?\d+)?"
_VARIES: Final = re.compile(
    rf"{_NUMBER}(?: to {_NUMBER})?(?= times| at the latest)"
    r"|(?:(?<=it was at step )|(?<=moves less after step ))\d+"
)


def fate_of(note: str) -> str:
    """Return a note without the numbers that differ among layers of the same fate."""
    return _VARIES.sub("*", note)


def shared(notes: Iterable[tuple[str, str]]) -> tuple[SharedNote, ...]:
    """Return the notes of tensors by name as one for each fate, in the order in which these begin."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, note in notes:
        found[fate_of(note)][name] = note
    return tuple(
        SharedNote(_together([*alike.values()]), len(alike), tuple(alike)[:MOST_NAMED])
        for alike in found.values()
    )


def _together(notes: list[str]) -> str:
    """Return what several notes of one fate say, with the least and the most of each number."""
    each = zip(*([found.split(" to ") for found in _VARIES.findall(note)] for note in notes), strict=True)
    spans = iter([_span([number for ends in numbers for number in ends]) for numbers in each])
    return _VARIES.sub(lambda _: next(spans), notes[0])


def _span(numbers: list[str]) -> str:
    return " to ".join(dict.fromkeys((min(numbers, key=float), max(numbers, key=float))))
