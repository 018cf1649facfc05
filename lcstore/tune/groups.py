"""Which tensors share a setting: those of one kind, and of one depth where there are evaluations for it.

Two tensors are of one kind if their names differ in numbers alone. The first and the last layers of a network
are usually the most sensitive. So the first of a kind is split off first, then the last, and then the rest is
halved.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lcstore.errors import InvalidInputError
from lcstore.state.names import Name, format_name, match

_NUMBER = re.compile(r"(\d+)", re.ASCII)
_SPECIAL = re.compile(r"([*?[])")


@dataclass(frozen=True)
class Group:
    """Tensors that share a setting.

    Attributes
    ----------
    globs
        Globs that match the names of these tensors, and no other name of the state.
    names
        The names of the tensors.
    elements
        How many elements they have together.
    """

    globs: tuple[str, ...]
    names: tuple[Name, ...]
    elements: int


def make_groups(sizes: Mapping[Name, int], most: int) -> list[Group]:
    """Return at most so many groups of tensors (elements by name), in the order of the state."""
    kinds: dict[tuple[str, ...], _Bin] = {}
    for name, size in sizes.items():
        pieces = _NUMBER.split(format_name(name))
        kinds.setdefault(tuple(pieces[::2]), _Bin()).add(name, tuple(pieces[1::2]), size)
    bins = list(kinds.values())
    if len(bins) > most:
        bins.sort(key=lambda one: -one.elements)
        rest = [_group(one) for one in bins[most - 1 :]]
        return [*map(_group, bins[: most - 1]), _united(rest)]
    while len(bins) < most:
        open_ = [one for one in bins if one.splits()]
        if not open_:
            break
        widest = max(open_, key=lambda one: (-one.stage, one.elements))
        place = bins.index(widest)
        bins[place : place + 1] = widest.split()
    return [_group(one) for one in bins]


def given_groups(sizes: Mapping[Name, int], globs: Sequence[str], most: int) -> list[Group]:
    """Return the groups that globs of names make, where the first match wins; the rest is one more group."""
    members: dict[str | None, list[Name]] = {}
    for name in sizes:
        glob = next((glob for glob in globs if match(glob, name)), None)
        members.setdefault(glob, []).append(name)
    for glob in globs:
        if glob not in members:
            raise InvalidInputError(f"no tensor that can be tuned is of group {glob!r}")
    if len(members) > most:
        raise InvalidInputError(f"{len(members)} groups take more evaluations than allowed: {most} would do")
    groups = []
    for glob in [*globs, *([None] if None in members else [])]:
        names = tuple(members[glob])
        own = (glob,) if glob is not None else tuple(_escaped(format_name(name)) for name in names)
        groups.append(Group(own, names, sum(sizes[name] for name in names)))
    return groups


@dataclass
class _Bin:
    """Tensors of one kind whose numbers at one place lie in one range."""

    members: list[tuple[Name, tuple[str, ...], int]] = field(default_factory=list)
    stage: int = 0

    def add(self, name: Name, numbers: tuple[str, ...], size: int) -> None:
        self.members.append((name, numbers, size))

    @property
    def elements(self) -> int:
        return sum(size for _, _, size in self.members)

    def splits(self) -> bool:
        return self._place() is not None

    def split(self) -> list[_Bin]:
        place = self._place()
        assert place is not None
        values = sorted({numbers[place] for _, numbers, _ in self.members}, key=_as_number)
        cut = (1, len(values) - 1, len(values) // 2)[min(self.stage, 2)]
        low = set(values[:cut])
        parts = [_Bin(stage=self.stage + 1), _Bin(stage=self.stage + 1)]
        for member in self.members:
            parts[member[1][place] not in low].members.append(member)
        return parts

    def _place(self) -> int | None:
        """Return the place of the first number that is not the same in all names; None if there is none."""
        places = zip(*(numbers for _, numbers, _ in self.members), strict=True)
        return next((i for i, values in enumerate(places) if len(set(values)) > 1), None)


def _group(one: _Bin) -> Group:
    literals = [_escaped(text) for text in _NUMBER.split(format_name(one.members[0][0]))[::2]]
    places = list(zip(*(numbers for _, numbers, _ in one.members), strict=True))
    globs = []
    for numbers in itertools.product(*(cover(set(values)) for values in places)):
        pieces = itertools.chain.from_iterable(itertools.zip_longest(literals, numbers, fillvalue=""))
        globs.append("".join(pieces))
    return Group(tuple(globs), tuple(name for name, _, _ in one.members), one.elements)


def _united(groups: Sequence[Group]) -> Group:
    return Group(
        tuple(glob for group in groups for glob in group.globs),
        tuple(name for group in groups for name in group.names),
        sum(group.elements for group in groups),
    )


def cover(numbers: Iterable[str]) -> list[str]:
    """Return globs that match exactly these texts of digits: ``{"8", "9", "10"}`` gives ``[8-9]``, ``10``."""
    by_length: dict[int, set[str]] = {}
    for number in numbers:
        by_length.setdefault(len(number), set()).add(number)
    return [glob for length in sorted(by_length) for glob in _cover(by_length[length])]


def _cover(numbers: set[str]) -> list[str]:
    if numbers == {""}:
        return [""]
    tails: dict[str, set[str]] = {}
    for number in numbers:
        tails.setdefault(number[0], set()).add(number[1:])
    digits_of: dict[tuple[str, ...], list[str]] = {}
    for digit in sorted(tails):
        digits_of.setdefault(tuple(_cover(tails[digit])), []).append(digit)
    return [f"{_class(digits)}{tail}" for found, digits in digits_of.items() for tail in found]


def _class(digits: Sequence[str]) -> str:
    if len(digits) == 1:
        return digits[0]
    whole = int(digits[-1]) - int(digits[0]) == len(digits) - 1
    return f"[{digits[0]}-{digits[-1]}]" if whole else f"[{''.join(digits)}]"


def _as_number(text: str) -> tuple[int, str, str]:
    stripped = text.lstrip("0")
    return len(stripped), stripped, text


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"[\1]", text)
