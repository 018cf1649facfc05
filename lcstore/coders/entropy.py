"""Levels to bits: which coder suits a chunk, and running it.

A sample of the chunk decides. Dense levels go several to a code, sparse ones as run-level tokens, fine ones
one by one; the bits each would take are counted, not guessed. The table is made for the whole chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.bitkernels import huffman, pack, runs, wide
from lcstore.coders import format as f
from lcstore.coders.scratch import scratch_array
from lcstore.coders.signs import GLANCE, agree, turned
from lcstore.coders.small import Small
from lcstore.coders.tables import SYMBOLS, CodeTable, TableCache, optimal_bits

#: A sample is so many pieces of so many levels, spread evenly; of fewer than twice that, it is everything.
_PIECES, _PIECE = 64, 1 << 11
#: Tokens are chosen only where they save this much: they are slower to decode than packed symbols.
_TOKENS_MUST_SAVE = 0.025
#: The wide coder must save this much. It is tried where escapes are this part of the narrow ones' bits ...
_WIDE_MUST_SAVE, _ESCAPES_WEIGH = 0.015, 0.03
#: The byte of each level of 4 bits, and the level of 3 bits that it becomes.
_OF_FOUR = (np.arange(16) + 8) % 16 - 8 & 255
_TO_THREE = np.eye(8, dtype=np.int64)[[0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 6, 7]]


@dataclass(frozen=True)
class Coded:
    """The coded levels of a chunk: everything of a frame that does not depend on what levels stand for.

    The payload is in pieces, put together once, when the frame is. Where narrow coders took the levels,
    `small` has them.
    """

    coder: int
    bits: int = 0
    per: int = 0
    streams: int = 1
    segment: int = f.SEGMENT
    table: bytes = b""
    directory: bytes = b""
    payload: Sequence[Buffer] = ()
    small: Small | None = None
    features: int = 0


def encode_levels(
    levels: Array,
    escapes: Array,
    *,
    entropy: str = "auto",
    cache: TableCache | None = None,
    singles: Array | None = None,
    room: Array | None = None,
) -> Coded | None:
    """Code small levels.

    Parameters
    ----------
    levels
        ``int8[n]``, contiguous; `ESCAPED` where the level is the next of `escapes`.
    escapes
        ``int64[m]``: levels of magnitude above 127, in the order of the elements.
    entropy
        ``"auto"``; ``"pack"`` or ``"runs"`` to force that coder; ``"symbol"`` for one symbol per code.
    cache
        Tables of earlier chunks.
    singles
        How often each level occurs, by its byte, where that is known.
    room
        ``uint8``: memory for the payload, which is fresh where this is too small.

    Returns
    -------
    Coded or None
        None where the levels do not suit these coders (too many escapes): use `encode_wide`.
    """
    if not pack.any_level(levels):
        return Coded(f.ZERO)
    relative = singles is None and agree(spread_pieces(levels, size=GLANCE))  # bytes have no signs
    if relative:
        levels, escapes = turned(levels, escapes)
    picked = spread_pieces(levels)
    counts = count_pairs(picked)
    trials = [*_try_packs(picked, counts, entropy), *_try_runs(picked, counts[0], entropy)]
    for trial in sorted(trials, key=lambda p: p.cost(levels.size)):
        if trial.per == 1 and singles is not None:
            trial = replace(trial, size=levels.size, counts=singles)
        run = _run_pack if trial.per else _run_runs
        coded = run(levels, escapes, trial, cache, room)
        if coded is not None:
            return replace(coded, features=f.RELATIVE) if relative else coded
    return None


@dataclass(frozen=True)
class _Tokens:
    """Levels as run-level tokens: symbols, what their extra bits hold, tokens of each segment."""

    symbols: Array
    extras: Array
    segments: Array

    def counts(self) -> Array:
        """Count the symbols."""
        counts = np.zeros(SYMBOLS, np.int64)
        huffman.histogram(self.symbols, counts)
        if not self.symbols.size:
            counts[runs.END] = 1
        return counts


@dataclass(frozen=True)
class _Trial:
    """A way to code a chunk, tried on `size` of its levels: the bits that they and the table would take.

    What was counted on the way is kept: it holds for the chunk where those levels are all of it.
    """

    bits: int
    per: int
    size: int
    level_bits: float
    table_bytes: int
    counts: Array
    tokens: _Tokens | None = None

    def cost(self, size: int) -> float:
        """Return the bits that `size` levels would take."""
        return self.level_bits * size / self.size + 8 * self.table_bytes


def spread_pieces(array: Array, pieces: int = _PIECES, size: int = _PIECE) -> Array:
    """Return what a coder is chosen by: pieces from all over an array of one dimension, or all of it."""
    if array.size < 2 * pieces * size:
        return array
    stride = array.size // pieces
    return array[: stride * pieces].reshape(pieces, stride)[:, :size].reshape(-1)


def _table(cache: TableCache | None, key: object, counts: Array) -> CodeTable:
    return cache.table(key, counts) if cache is not None else CodeTable.from_counts(counts)


def _try_packs(levels: Array, counts: tuple[Array, Array, Array], entropy: str) -> list[_Trial]:
    if entropy == "runs":
        return []
    singles, threes, fours = counts
    if entropy == "symbol":
        return [_try_pack(levels, 8, 1, singles, singles)]
    twos = _count_symbols(levels, 2, 4)
    return [
        _try_pack(levels, bits, per, of_packing, singles)
        for bits, per, of_packing in ((2, 4, twos), (3, 2, threes), (4, 2, fours), (8, 1, singles))
    ]


def count_pairs(levels: Array) -> tuple[Array, Array, Array]:
    """Count the symbols of one level of 8 bits, two of 3 and two of 4, in as few passes as they need.

    Pairs of 4 bits tell of pairs of 3, and of single levels too where none is escaped.
    """
    fours = _count_symbols(levels, 4, 2)
    square = fours.reshape(16, 16)  # by the second level and by the first
    threes = np.zeros(SYMBOLS, np.int64)
    threes[:64] = (_TO_THREE.T @ square @ _TO_THREE).reshape(-1)
    each = square.sum(axis=0) + square.sum(axis=1)
    if each[8]:
        return _count_symbols(levels, 8, 1), threes, fours
    each[0] -= levels.size % 2  # a level that is missing at the end counts as zero in a pair
    singles = np.zeros(SYMBOLS, np.int64)
    singles[_OF_FOUR] = each
    return singles, threes, fours


def _try_pack(levels: Array, bits: int, per: int, counts: Array, singles: Array) -> _Trial:
    coded, symbols = optimal_bits(counts)
    level_bits = coded + _escape_bits(singles, 1 << (bits - 1))
    return _Trial(bits, per, levels.size, level_bits, symbols // 2, counts)


def _count_symbols(levels: Array, bits: int, per: int) -> Array:
    counts = np.zeros(SYMBOLS, np.int64)
    pack.count_symbols(levels, bits, per, counts)
    return counts


def _escape_bits(singles: Array, least: int) -> float:
    """Return the bits that the side streams take, from the counts of the single levels."""
    return float(singles @ _bits_of_escapes(least))


@lru_cache
def _bits_of_escapes(least: int) -> Array:
    """Return what each byte takes as an escaped level of magnitude `least` or more; 0 for smaller ones."""
    magnitudes = np.abs(np.arange(SYMBOLS).astype(np.uint8).view(np.int8).astype(np.int64))
    magnitudes[128] = 4096 + least  # an escape above 127: its size is not known here
    over = magnitudes - least
    return np.where(over >= 0, 2 * np.floor(np.log2(np.maximum(over, 0) + 1)) + 2, 0)


def _try_runs(levels: Array, singles: Array, entropy: str) -> list[_Trial]:
    if entropy not in ("auto", "runs"):
        return []
    most = levels.size // 2 + 64 if entropy == "auto" else levels.size + levels.size // 4096 + 64
    tokens = _tokenize(levels, most) if np.count_nonzero(levels) <= most else None
    if tokens is None:
        return []
    counts = tokens.counts()
    coded, symbols = optimal_bits(counts)
    extra = np.zeros(SYMBOLS, np.uint8)
    runs.extra_bits(extra)
    level_bits = coded + float(counts @ extra.astype(np.int64))
    level_bits += _escape_bits(singles, runs.LEAST)
    level_bits *= 1 + _TOKENS_MUST_SAVE
    return [_Trial(0, 0, levels.size, level_bits, symbols // 2, counts, tokens)]


def _tokenize(levels: Array, most: int) -> _Tokens | None:
    segments = -(-levels.size // (1 << f.SEGMENT))
    symbols, extras = np.empty(most, np.uint8), np.empty(most, np.uint32)
    counts = np.zeros(segments, np.int64)
    used = runs.tokenize(levels, 1 << f.SEGMENT, symbols, extras, counts)
    return None if used < 0 else _Tokens(symbols[:used], extras[:used], counts)


def _payload(size: int, room: Array | None) -> Array:
    return scratch_array(size, np.uint8) if room is None or room.size < size else room[:size]


def _run_pack(
    levels: Array, escapes: Array, trial: _Trial, cache: TableCache | None, room: Array | None
) -> Coded | None:
    segments = -(-levels.size // (1 << f.SEGMENT))
    streams = 4 if min(levels.size, 1 << f.SEGMENT) // trial.per >= f.FOUR_STREAMS_FROM else 1
    directory = np.zeros((segments, streams + 1), np.uint16)
    payload = _payload(levels.size * 3 // 2 + escapes.size * 16 + 64 * segments + 64, room)
    bits, per = trial.bits, trial.per
    counts = trial.counts if trial.size == levels.size else _count_symbols(levels, bits, per)
    table = _table(cache, (bits, per), counts)
    used = pack.encode_pack(
        levels, escapes, bits, per, streams, 1 << f.SEGMENT, table.codes, payload, directory
    )
    if used < 0:
        return None
    said = f.SEGMENT, table.to_bytes(), directory.tobytes(), [payload[:used].data]
    return Coded(f.PACK, bits, per, streams, *said)


def _run_runs(
    levels: Array, escapes: Array, trial: _Trial, cache: TableCache | None, room: Array | None
) -> Coded | None:
    tokens = trial.tokens if trial.size == levels.size else None
    tokens = tokens or _tokenize(levels, levels.size // 2 + 4096)
    tokens = tokens or _tokenize(levels, levels.size + levels.size // 4096 + 64)
    if tokens is None:
        return None
    table = _table(cache, "runs", tokens.counts())
    segments = tokens.segments.size
    directory = np.zeros((segments, 2), np.uint16)
    payload = _payload(4 * tokens.symbols.size + escapes.size * 16 + 64 * segments + 64, room)
    used = runs.encode_runs(
        *(levels, escapes, 1 << f.SEGMENT, tokens.symbols, tokens.extras, tokens.segments),
        *(table.codes, payload, directory),
    )
    if used < 0:
        return None
    return Coded(f.RUNS, table=table.to_bytes(), directory=directory.tobytes(), payload=[payload[:used].data])


def encode_wide(levels: Array, *, cache: TableCache | None = None) -> Coded:
    """Code levels of any size: ``int32[n]`` or ``int64[n]``, magnitudes below 2**61."""
    counts = _count_wide(levels)
    if counts[0] == levels.size:
        return Coded(f.ZERO)
    return _run_wide(levels, counts, _table(cache, "wide", counts))


def _count_wide(levels: Array) -> Array:
    counts = np.zeros(SYMBOLS, np.int64)
    wide.count_wide(levels, counts)
    return counts


def _wide_bits(counts: Array, table: CodeTable) -> int:
    """Return the bits that levels take whose symbols occur `counts` times."""
    return int(table.bits(counts)) + _extra_bits(counts)


def _extra_bits(counts: Array) -> int:
    extra = np.maximum(np.arange(SYMBOLS) - 16, -4) // 4 + 2
    extra[:16] = 0
    return int(counts @ extra)


def bits_of_zeros(levels: Array) -> int:
    """Return by how many bits the wide coder's codes of levels are longer for the zeros among them."""
    counts = _count_wide(levels)
    rest = counts.copy()
    rest[0] = 0
    if not rest.any():  # a sample that has no other level: beside those elsewhere, a zero takes a bit
        return levels.size
    return optimal_bits(counts)[0] - optimal_bits(rest)[0]


def count_bits(levels: Array) -> float:
    """Return about how many bits levels take, ``int32[n]`` or ``int64[n]``: their entropy."""
    counts = _count_wide(levels)
    used = counts[counts > 0]
    return float(used @ np.log2(used.sum() / used)) + _extra_bits(counts)


def _run_wide(levels: Array, counts: Array, table: CodeTable) -> Coded:
    segments = -(-levels.size // wide.SEGMENT)
    directory = np.zeros((segments, 2), np.uint16)
    payload = scratch_array(_wide_bits(counts, table) // 8 + segments + 1, np.uint8)
    used = wide.encode_wide(levels, wide.SEGMENT, table.codes, payload, directory)
    said = f.WIDE_SEGMENT, table.to_bytes(), directory.tobytes(), [payload[:used].data]
    return Coded(f.WIDE, 0, 0, 1, *said)


def encode_any(levels: Array, *, entropy: str = "auto", cache: TableCache | None = None) -> Coded:
    """Code ``int32[n]`` or ``int64[n]`` levels with whichever coder suits them."""
    small = Small.of(levels)
    coded = None if small is None else encode_small(small, entropy=entropy, cache=cache)
    return encode_wide(levels, cache=cache) if coded is None else coded


def encode_small(small: Small, *, entropy: str = "auto", cache: TableCache | None = None) -> Coded | None:
    """Code levels of which few are large; None where the wide coder is to take them."""
    coded = encode_levels(*small, entropy=entropy, cache=cache)
    if coded is None:
        return None
    coded = replace(coded, small=small)
    if entropy != "auto" or not small.escapes.size:
        return coded
    narrow_bits = 8 * sum(map(len, coded.payload))
    over = np.log2(np.abs(small.escapes.astype(np.float64)) - 126)
    if float(np.sum(2 * np.floor(over) + 2)) < _ESCAPES_WEIGH * narrow_bits:
        return coded
    counts = _count_wide(small.whole())
    bits = optimal_bits(counts)[0] + _extra_bits(counts)
    return None if bits < (1 - _WIDE_MUST_SAVE) * narrow_bits else coded
