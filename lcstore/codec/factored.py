"""Frames of second moments: levels around what is nearly a row's factor times a column's.

This file has the bytes of such frames; `lcstore.kernels.factored` has the loops over their values.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.factorcodes import CODES, Levelling, set_right
from lcstore.coders import format as f
from lcstore.coders.entropy import encode_wide
from lcstore.coders.rowsort import Matrix, Part, encode_sorted
from lcstore.coders.small import Small
from lcstore.coders.tables import TableCache
from lcstore.dtypes import working_dtype
from lcstore.errors import CorruptionError
from lcstore.frames.bytelevels import frame_of_bytes
from lcstore.frames.decode import Span
from lcstore.frames.fill import working
from lcstore.frames.frame import Frame, Framed, framed, parse_frame
from lcstore.frames.lossless import decode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.frames.scales import pack_scales, unpack_scales
from lcstore.kernels import factored as kernels

#: The smallest of float16 would round to zero.
DTYPES: Final = frozenset({"bfloat16", "float32", "float64"})
#: A level is 0 up to this part of a step size: a slightly wide zero costs little and saves bits. Below the
#: centre it is 0 for longer where it matters little that what was small comes back larger.
_THRESHOLD, _BELOW = 0.6, 1.5
#: What comes back 8 times too large under a root is held back enough: wider step sizes leave it at that.
_MOST_BELOW: Final = 6 * CODES
#: Factors are whole numbers of an eighth of a step size or so: bits that a step size has more.
_OF_STEP: Final = 4
#: Codes of rows and columns are at most so far from 0: a whole number of any unit.
_FARTHEST: Final = 32752
#: A matrix of fewer rows or columns gains nothing from factors of columns; its rows are taken to be so long.
_LEAST, _PLAIN_ROW = 8, 1024
#: A part that touches so many rows has at least so many elements for each column; see `_check_part`.
_PER_COLUMN: Final = _LEAST - 2
_COUNT, _PIECE = struct.Struct("<I"), struct.Struct("<QQQQII")
#: Codes of one column that changes nothing.
_NO_COLUMNS: Final = np.zeros(1, np.int16)
#: What a frame says of its matrices has at most so many bytes more than its values.
_SPARE: Final = 1 << 12


def encode_factored(
    values: Pieces,
    parts: Sequence[Part],
    step_size: int,
    *,
    even: bool = True,
    cache: TableCache | None = None,
) -> Framed | None:
    """Code values that are not negative; zero stays zero, and nothing else becomes zero.

    Parameters
    ----------
    values
        Floats; zero outside of the parts.
    parts
        In rising order.
    step_size
        Step size of the levels, in sixteenths of an octave: 1 to 255.
    even
        Whether what comes back too large is as bad as what comes back too small. If not, it may be 1.5 step
        sizes too large, of 6 octaves at most, in matrices with factors of columns, where 0.6 is the rule.

    Returns
    -------
    Framed or None
        None where a value is negative (-0.0 is) or not finite, and for ``float16``: use another frame.
    """
    if values.dtype.name not in DTYPES:
        return None
    stacks = [*_stacks(parts)]
    section = [_COUNT.pack(len(stacks))]
    matrices, made, unit = [], _Levels(values.size, step_size, even), _unit(step_size)
    for stack in stacks:
        wide = stack.of(values)
        factors = _fit(wide, stack, unit, _levelling(step_size, even or stack.plain))
        if factors is None:
            return None
        matrices.append(Matrix(stack.part, *factors))
        made.add(matrices[-1], _patterns(wide), stack.plain)
        packed = [pack_scales(codes // unit) for codes in factors]
        section += [_PIECE.pack(*stack.part, *map(len, packed)), *packed]
    coded, is_sorted = encode_sorted(made.small, matrices, cache)
    if coded is None:
        every = _Levels(values.size, step_size, even, values.size)
        coded = encode_wide(_all_levels(values, stacks, matrices, every), cache=cache)
    return framed(
        coded,
        count=values.size,
        dtype=values.dtype,
        quantizer=f.SORTED,
        scales=_packed(b"".join(section), is_sorted),
        parameter=step_size,
    )


def _packed(section: bytes, is_sorted: bool) -> bytes:
    """Return what a frame says of its matrices, coded by how each byte differs from the one before."""
    steps = np.diff(np.frombuffer(section, np.uint8), prepend=np.uint8(0))
    return b"".join([bytes([is_sorted]), *frame_of_bytes(steps)])


def _unpack(frame: Frame) -> tuple[memoryview, bool]:
    """Return what a frame says of its matrices, and whether rows are sorted."""
    data = frame.scales
    if frame.quantizer == f.FACTORED:  # as it was before
        return data, False
    if not len(data) or data[0] > (frame.coder != f.WIDE):
        raise CorruptionError("a factored frame does not say whether its rows are sorted")
    most = frame.count * frame.dtype.itemsize + _SPARE
    inner = parse_frame(data[1:], expected=most, shorter=True, proved=frame.proved)
    if inner.quantizer != f.LOSSLESS or inner.dtype != np.uint8:
        raise CorruptionError("a factored frame's matrices are not listed as bytes")
    return np.cumsum(decode_lossless(inner), dtype=np.uint8).data, bool(data[0])


def _patterns(wide: Array) -> Array:
    """Return the bits of values in their working dtype, as integers."""
    return wide.view(f"i{wide.itemsize}")


class _Stack(NamedTuple):
    """What is coded as one matrix: a part, or several, each of which is the beginning of a row."""

    part: Part  # the matrix
    filled: int  # how much of a row holds values
    plain: bool  # whether columns have no factors

    def of(self, values: Pieces) -> Array:
        """Return the values of the matrix, in their working dtype; zero where a row is not filled."""
        at, size, cols, _ = self.part
        if self.filled == cols:
            return working(values.between(at, at + size))
        out = np.zeros(size, values.dtype)
        for low in range(0, size, cols):
            out[low : low + self.filled] = values.between(at + low, at + low + self.filled)
        return working(out)


class _Levels:
    """Levels as the narrow coders take them: all of them at full width would be as large as the values.

    Large ones are in `found`; `room` is memory for all.
    """

    def __init__(self, size: int, step_size: int, even: bool, most: int | None = None) -> None:
        self.room, self.found = Small.room(size), 0
        if most is not None:  # so many large ones, whether that suits the narrow coders or not
            self.room = self.room._replace(escapes=np.empty(most, np.int64))
        self._step_size, self._even = step_size, even

    @property
    def small(self) -> Small | None:
        """The levels; None where too many are large."""
        levels, escapes = self.room
        return Small(levels, escapes[: self.found]) if self.found <= escapes.size else None

    def add(self, matrix: Matrix, patterns: Array, plain: bool) -> None:
        """Make the levels of a part from the bits of its values; parts come in rising order.

        Without factors of columns, more lies far below its centre: none of that may come back much larger.
        """
        part = matrix.part
        into = self.room.levels[part.at : part.at + part.size], self.room.escapes[self.found :]
        rule = part.phase, matrix.rows, matrix.columns, *_levelling(self._step_size, self._even or plain)
        self.found += kernels.factored_levels(patterns, *rule, *into)


def _all_levels(values: Pieces, stacks: list[_Stack], matrices: list[Matrix], made: _Levels) -> Array:
    """Return the levels as they are, for those who take large ones."""
    for stack, matrix in zip(stacks, matrices, strict=True):
        made.add(matrix, _patterns(stack.of(values)), stack.plain)
    return Small(made.room.levels, made.room.escapes[: made.found]).whole()


def _levelling(step_size: int, even: bool) -> Levelling:
    above = max(1, round(_THRESHOLD * step_size))
    below = max(above, min(round(_BELOW * step_size), _MOST_BELOW))
    return Levelling(step_size, above, above if even else below)


def _stacks(parts: Iterable[Part]) -> Iterator[_Stack]:
    """Yield the matrices that parts are coded as; single rows of one length, a whole row apart, are one.

    So are moments of biases: each by itself would take more bytes to say where it lies than its levels do.
    """
    for _, run in groupby(enumerate(map(_suited, parts)), _in_line):
        (_, first), *others = run
        size = first.part.size + len(others) * _PLAIN_ROW
        yield first._replace(part=Part(first.part.at, size, _PLAIN_ROW, 0)) if others else first


def _in_line(numbered: tuple[int, _Stack]) -> Hashable:
    """Return what single rows that can be one matrix have in common."""
    number, (part, filled, plain) = numbered
    return (filled, part.at - number * _PLAIN_ROW) if plain and part.size == filled else number


def _suited(part: Part) -> _Stack:
    """Return the rows and columns that a part is coded by."""
    if part.cols >= _LEAST and part.rows >= _LEAST:
        return _Stack(part, part.cols, False)
    cols = min(part.size, _PLAIN_ROW)
    return _Stack(Part(part.at, part.size, cols, 0), cols, True)


def _unit(step_size: int) -> int:
    """Return the codes that factors are whole numbers of: finer ones would not make levels any smaller."""
    return 1 << max(0, step_size.bit_length() - _OF_STEP)


def _fit(wide: Array, stack: _Stack, unit: int, by: Levelling) -> tuple[Array, Array] | None:
    """Fit the codes of rows and columns; None where a value has no code."""
    part, filled, plain = stack
    rows, few = np.empty(part.rows), 0 if plain else part.cols
    sums, weights = np.zeros(few, wide.dtype), np.zeros(few, wide.dtype)
    others = kernels.fit_roots(wide, _patterns(wide), part.cols, part.phase, rows, sums, weights)
    if others < 0:
        return None
    one, last = (kernels.ONE_4, kernels.LAST_4) if wide.itemsize == 4 else (kernels.ONE_8, kernels.LAST_8)
    codes = np.clip(one + _octaves(rows), 1, last)
    ratios = np.clip(_octaves(sums / np.where(sums > 0, weights, 1)), -_FARTHEST, _FARTHEST)
    of_rows = unit * np.rint(codes / unit)
    of_columns = np.zeros(1) if plain else unit * np.rint(ratios / unit)
    of_rows, of_columns = set_right(_patterns(wide), part, filled, others, of_rows, of_columns, unit, by)
    of_rows, of_columns = (np.clip(some, -_FARTHEST, _FARTHEST) for some in (of_rows, of_columns))
    if plain:
        codes, empty = np.where(rows > 0, of_rows, 0).astype(np.int16), np.arange(part.cols) >= filled
        return codes, np.where(empty, -np.max(codes), 0).astype(np.int16)
    # Where all values are zero, no centre above 0 remains, whatever the other factor.
    empty_row = -np.max(of_columns, initial=0, where=sums > 0)
    empty_column = -np.max(of_rows, initial=0, where=rows > 0)
    return (
        np.where(rows > 0, of_rows, empty_row).astype(np.int16),
        np.where(sums > 0, of_columns, empty_column).astype(np.int16),
    )


def _octaves(roots: Array) -> Array:
    """Return by how many codes what fourth roots are of lies above 1; anything of 0."""
    return 4 * CODES * np.log2(np.where(roots > 0, roots, 1))


class FactoredFiller:
    """Turns the levels of a factored frame into values."""

    def __init__(self, frame: Frame) -> None:
        if frame.dtype.name not in DTYPES:
            raise CorruptionError(f"a factored frame cannot hold {frame.dtype}")
        if not frame.parameter:
            raise CorruptionError("a factored frame's step size is zero")
        self.dtype = frame.dtype
        self.wide = working_dtype(frame.dtype)
        self.step_size = frame.parameter
        section, self._is_sorted = _unpack(frame)
        self.matrices = _matrices(frame, section)
        self.starts = [m.part.at for m in self.matrices]
        self.ends = [m.part.at + m.part.size for m in self.matrices]

    def in_order(self, span: Span) -> Span:
        """Return the levels of a span where their elements are."""
        start, levels, places, values = span.start, span.levels, span.places, span.values
        if not self._is_sorted:
            return span
        levels[places] = values.astype(np.int8)
        if (levels[places] != values).any():
            raise CorruptionError("a level of sorted rows is too large")
        for matrix in self._between(start, start + levels.size):
            matrix.sort(levels, start, back=True)
        return Span(start, levels, places[:0], values[:0])

    def run(self, start: int, levels: Array, out: Array) -> None:
        """Fill `out` with the values of neighbours."""
        same = self.wide == self.dtype
        values = out if same else np.empty(levels.size, self.wide)
        patterns = values.view(f"i{self.wide.itemsize}")
        filled = 0
        for matrix in self._between(start, start + levels.size):
            part = matrix.part
            low, high = max(part.at, start), min(part.at + part.size, start + levels.size)
            here = slice(low - start, high - start)
            patterns[filled : here.start] = 0
            filled = here.stop
            first = part.phase + low - part.at
            factors = matrix.rows, matrix.columns, self.step_size
            self._check(kernels.factored_values(levels[here], first, *factors, patterns[here]))
        patterns[filled:] = 0
        if not same:
            out[:] = values.astype(self.dtype, copy=False)

    def few(self, places: Array, levels: Array) -> Array:
        """Return the values of scattered elements, in rising order."""
        values = np.zeros(levels.size, self.wide)
        patterns = values.view(f"i{self.wide.itemsize}")
        for matrix in self._between(int(places[0]), int(places[-1]) + 1):
            part = matrix.part
            here = slice(*np.searchsorted(places, (part.at, part.at + part.size)))
            from_row = places[here] + (part.phase - part.at)
            # Each is a row of one column, whose code is its own centre.
            codes = matrix.rows[from_row // part.cols].astype(np.int64) + matrix.columns[from_row % part.cols]
            factors = codes, _NO_COLUMNS, self.step_size
            self._check(kernels.factored_values(levels[here], 0, *factors, patterns[here]))
        return values.astype(self.dtype, copy=False)

    def _between(self, low: int, high: int) -> list[Matrix]:
        """Return the matrices that have any of the elements ``low:high``."""
        return self.matrices[bisect_right(self.ends, low) : bisect_left(self.starts, high)]

    @staticmethod
    def _check(status: int) -> None:
        if status < 0:
            raise CorruptionError("a level of the frame stands for no value")


def _matrices(frame: Frame, data: memoryview) -> list[Matrix]:
    if len(data) < _COUNT.size:
        raise CorruptionError("a factored frame says nothing of its matrices")
    (count,) = _COUNT.unpack_from(data)
    at, end, unit = _COUNT.size, 0, _unit(frame.parameter)
    found = []
    for _ in range(count):
        if len(data) < at + _PIECE.size:
            raise CorruptionError("a factored frame's matrices do not fit its section")
        *numbers, row_bytes, column_bytes = _PIECE.unpack_from(data, at)
        part = Part(*numbers)
        _check_part(part, end, frame.count)
        codes, both = data[at + _PIECE.size :], row_bytes + column_bytes
        rows, columns = (codes[:row_bytes], part.rows), (codes[row_bytes:both], part.cols)
        found.append(Matrix(part, _unpacked(*rows, unit), _unpacked(*columns, unit)))
        at += _PIECE.size + both
        end = part.at + part.size
    if at != len(data):
        raise CorruptionError("a factored frame's section is not as long as its matrices")
    return found


def _unpacked(data: memoryview, count: int, unit: int) -> Array:
    """Read the codes of rows or columns."""
    units = unpack_scales(data, count)
    if units.size and max(-int(units.min()), int(units.max())) * unit > _FARTHEST:
        raise CorruptionError("a factored frame's rows or columns have codes that there are not")
    return units * np.int16(unit)


def _check_part(part: Part, end: int, count: int) -> None:
    """Check a part before anything is made of it: what it claims bounds what its factors take."""
    if not end <= part.at < part.at + part.size <= count:
        raise CorruptionError("a factored frame's matrices overlap, are empty, or lie outside of it")
    most = min(part.size, max(_PLAIN_ROW, part.size // _PER_COLUMN))
    if not min(part.size, _LEAST) <= part.cols <= most or part.phase >= part.cols:
        raise CorruptionError("a factored frame's matrix has rows that it cannot have")
