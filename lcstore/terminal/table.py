"""Tables of text, as wide as their words and no wider than the terminal: no word that fits is broken."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final, TypeGuard

from lcstore.storage.masking import printable as printable
from lcstore.units import counted as counted
from lcstore.units import shape_text as shape_text
from lcstore.units import size as size

#: A longer word may be broken where there is no room for it: a node's id never is, a tensor's name may be.
_LONGEST_WORD: Final = 48
_GAP: Final = "  "
#: What is copied from a message to a shell: between backquotes, or all that follows a colon.
_COMMAND: Final = re.compile(r"`[^`]+`|(?<=: )lcstore .+$")
#: An id, of which eight digits tell it from others nearly always.
_ID: Final = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{24}\b")
#: A space that nothing is folded at.
_JOINT: Final = "\xa0"
#: In the place of items that have no room.
_MORE: Final = ", ..."
#: Bits of an integer that Python writes as digits: 4,300 of these by default.
_MOST_BITS: Final = 14_000


class Table:
    """Rows of cells under a header.

    Parameters
    ----------
    columns
        What the header says.
    right
        The columns of numbers: they stand at the right and are never folded.
    spare
        The columns that are left out of a narrow terminal, the first one first; empty ones go before them.
    title
        A line above.
    header
        Whether the header is shown.
    one_line
        Whether each row is one line: of a cell that has no room, the first items are shown.
    brief
        Whether ids are cut to their beginnings where a row has no room.
    """

    def __init__(
        self,
        *columns: str,
        right: Sequence[str] = (),
        spare: Sequence[str] = (),
        title: str | None = None,
        header: bool = True,
        one_line: bool = False,
        brief: bool = False,
    ) -> None:
        self.one_line = one_line
        self.brief = brief
        self.columns = columns
        self.right = [name in right for name in columns]
        self.spare = [columns.index(name) for name in spare]
        self.title = title
        self.header = header
        self.rows: list[tuple[list[str], str | None]] = [(list(columns), "bold")] * header

    def row(self, *cells: object, style: str | None = None) -> None:
        """Add a row; no cell reaches the terminal's control codes."""
        self.rows.append((["" if cell is None else printable(str(cell)) for cell in cells], style))

    def lines(self, width: int | None = None) -> Iterator[tuple[str, str | None]]:
        """Yield each line and its style, for a terminal of `width` characters (None: any number)."""
        if self.title is not None:
            yield self.title, None
        if self.brief and width is not None and _room(dict(enumerate(self._whole())), width) < 0:
            self.rows = [([_ID.sub(r"\1...", cell) for cell in cells], style) for cells, style in self.rows]
        widths = self._widths(width)
        for cells, style in self.rows:
            fitted = shortened if self.one_line else folded
            columns = [fitted(cells[place], wide) for place, wide in widths.items()]
            for parts in zip_longest(*columns, fillvalue=""):
                padded = map(self._padded, parts, widths, widths.values())
                yield _GAP.join(padded).rstrip(), style
        missing = [self.columns[place] for place in self.spare if place not in widths and self._filled(place)]
        if missing:
            told = f"Not shown: {', '.join(missing)}. --json has all."
            yield from ((line, "dim") for line in folded(told, width or len(told)))

    def _filled(self, place: int) -> bool:
        return any(cells[place] for cells, _ in self.rows[self.header :])

    def _least(self, cell: str) -> int:
        """Return how narrow the column of a cell may be."""
        if self.one_line:
            first, comma, _ = cell.partition(", ")
            return len(first) + len(_MORE) * bool(comma)
        return max(len(word) for word in cell.split() or [""])

    def _padded(self, text: str, place: int, width: int) -> str:
        return text.rjust(width) if self.right[place] else text.ljust(width)

    def _columns(self) -> list[tuple[str, ...]]:
        return list(zip(*(cells for cells, _ in self.rows), strict=True))

    def _whole(self) -> list[int]:
        """Return how wide each column would like to be."""
        return [max(len(line) for cell in cells for line in cell.split("\n")) for cells in self._columns()]

    def _widths(self, width: int | None) -> dict[int, int]:
        """Return the columns that are shown, and the width of each."""
        columns = self._columns()
        whole = self._whole()
        widths = dict(enumerate(whole))
        if width is None or _room(widths, width) >= 0:
            return widths
        empty = [place for place in widths if not self._filled(place)]
        for place, cells in enumerate(columns):
            if not self.right[place]:
                widths[place] = min(max(map(self._least, cells)), _LONGEST_WORD)
        for place in dict.fromkeys([*empty, *self.spare]):
            if _room(widths, width) < 0:
                del widths[place]
        # What room is left goes to the columns that miss the least; where none is, long words are broken.
        for place in sorted(widths, key=lambda place: whole[place] - widths[place]):
            widths[place] += min(whole[place] - widths[place], max(_room(widths, width), 0))
        while _room(widths, width) < 0 and max(widths.values()) > 1:
            widths[max(widths, key=lambda place: widths[place])] -= 1
        return widths


def _room(widths: dict[int, int], width: int) -> int:
    """Return how many characters of a line are left; negative where they do not suffice."""
    return width - sum(widths.values()) - len(_GAP) * (len(widths) - 1)


def folded(text: str, width: int) -> list[str]:
    """Return a text in lines of at most `width` characters, folded between words."""
    if len(text) <= width and "\n" not in text:
        return [text]
    lines = (textwrap.wrap(line, max(width, 1), break_on_hyphens=False) or [""] for line in text.split("\n"))
    return [part for line in lines for part in line]


def prose(text: str, width: int | None) -> list[str]:
    """Return a text in lines, folded between words (None: one line); a command in it stays in one piece."""
    if width is None or len(text) <= width:
        return [text]
    joined = _COMMAND.sub(lambda found: found[0].replace(" ", _JOINT), text)
    lines = textwrap.wrap(joined, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_JOINT, " ") for line in lines]


def shortened(text: str, width: int) -> list[str]:
    """Return a list of items, or as many of them as fit into one line of `width` characters."""
    if len(text) <= width:
        return [text]
    items = text.split(", ")
    for count in range(len(items) - 1, 0, -1):
        some = ", ".join(items[:count]) + _MORE
        if len(some) <= width:
            return [some]
    return [f"{text[: max(width - 3, 0)]}..."[:width]]


def is_huge(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer of more digits than Python writes: hexadecimal ones it does."""
    return isinstance(value, int) and value.bit_length() > _MOST_BITS


def brief(value: object, most: int) -> str:
    """Return what Python calls a value, in `most` characters or fewer."""
    text = hex(value) if is_huge(value) else repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def brief_ids(nodes: list[str]) -> dict[str, str]:
    """Return as much of each id as names it: a number alone would be a step."""
    begun = Counter(node[:size] for node in nodes for size in range(8, 33))

    def names(text: str) -> bool:
        return begun[text] == 1 and not text.isdigit()

    return {node: next(filter(names, (node[:size] for size in range(8, 33))), node) for node in nodes}
