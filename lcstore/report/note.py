"""A note on what stands out, as data: its words, the numbers in them, and where to look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

from lcstore.report.facts import SharedNote

#: Tensors that a note names.
MOST_NAMED: Final = 3
#: One number, or the least and the most of several. Those that are no integers are told in three digits.
Numbers: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Note:
    """What stands out.

    Attributes
    ----------
    words
        What is to be said, with ``{}`` in the place of each of `varies`: the same for all of one fate.
    varies
        What differs among layers of one fate: how many times as far or as large, which save found a grid used
        up and since when it was chosen, and after which save a layer moved less.
    steps
        Of the first states at which something is otherwise, in the order of the words.
    """

    words: str
    varies: tuple[Numbers, ...] = ()
    steps: tuple[int, ...] = ()

    def __add__(self, other: Note) -> Note:
        """Return a note that says this, and goes on with the other."""
        return Note(self.words + other.words, self.varies + other.varies, self.steps + other.steps)

    @property
    def text(self) -> str:
        """The words with their numbers."""
        return self.words.format(*(" to ".join(dict.fromkeys(map(_text, each))) for each in self.varies))


def joined(notes: Iterable[Note | None]) -> Note | None:
    """Return one note that says all of some; None where there is none."""
    told = [note for note in notes if note is not None]
    return reduce(lambda one, other: one + Note("; ") + other, told) if told else None


def shared(notes: Iterable[tuple[str, Note]]) -> tuple[SharedNote, ...]:
    """Return the notes of tensors by name as one for each fate, in the order in which these begin."""
    found: defaultdict[str, dict[str, Note]] = defaultdict(dict)
    for name, note in notes:
        found[note.words][name] = note
    return tuple(map(_shared, found.values()))


def _shared(alike: Mapping[str, Note]) -> SharedNote:
    """Return what notes of one fate say, by name, with the least and the most of each number."""
    notes = [*alike.values()]
    varies = zip(*(note.varies for note in notes), strict=True)
    spans = tuple((min(map(min, each)), max(map(max, each))) for each in varies)
    steps = tuple(map(min, zip(*(note.steps for note in notes), strict=True)))
    return SharedNote(Note(notes[0].words, spans).text, len(notes), tuple(alike)[:MOST_NAMED], steps)


def _text(number: float) -> str:
    return _rounded(number) if isinstance(number, float) else str(number)


def _rounded(number: float) -> str:
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if 1000 <= rounded < 1e9 else f"{number:.3g}"
