"""Levels to bits: which coder suits a chunk, and running it.

A sample of the chunk decides. Dense levels go several to a code, sparse ones as run-level tokens, fine ones
one by one; the bits each would take are counted, not guessed. The table is made for the whole chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lcstore.arrays import Array
from lcstore.codec import format as f
from lcstore.codec.tables import SYMBOLS, CodeTable, TableCache
from lcstore.kernels import huffman, pack, runs, wide

#: A sample is so many pieces of so many levels, spread evenly; of fewer than twice that, it is everything.
_PIECES, _PIECE = 64, 1 << 12
#: Tokens are chosen only where they save this much: they are slower to decode than packed symbols.
_TOKENS_MUST_SAVE = 0.015


@dataclass(frozen=True)
class Coded:
    """The coded levels of a chunk: everything of a frame that does not depend on what levels stand for."""

    coder: int
    bits: int = 0
    per: int = 0
    streams: int = 1
    segment: int = f.SEGMENT
    table: bytes = b""
    directory: bytes = b""
    payload: bytes | memoryview = b""


def encode_levels(
    levels: Array, escapes: Array, *, entropy: str = "auto", cache: TableCache | None = None
) -> Coded | None:
    """Code small levels.

    Parameters
    ----------
    levels
        ``int8[n]``, contiguous; -128 where the level is the next of `escapes`.
    escapes
        ``int64[m]``: levels of magnitude above 127, in the order of the elements.
    entropy
        ``"auto"``; ``"pack"`` or ``"runs"`` to force that coder; ``"symbol"`` for one symbol per code.
    cache
        Tables of earlier chunks.

    Returns
    -------
    Coded or None
        None where the levels do not suit these coders (too many escapes): use `encode_wide`.
    """
    if not pack.any_level(levels):
        return Coded(f.ZERO)
    picked = _sample(levels)
    plans = _plan_packs(picked, entropy) + _plan_runs(picked, entropy)
    for plan in sorted(plans, key=lambda p: p.cost):
        run = _run_runs if plan.per == 0 else _run_pack
        coded = run(levels, escapes, plan, plan.size == levels.size, cache)
        if coded is not None:
            return coded
    return None


@dataclass(frozen=True)
class _Plan:
    """A coder and the bits that it would take, from the counts of its symbols among `size` levels."""

    bits: int
    per: int
    counts: Array
    cost: float
    size: int
    tokens: _Tokens | None = None


def _sample(levels: Array) -> Array:
    """Give the levels by which a coder is chosen: some pieces from all over, or all of them."""
    if levels.size < 2 * _PIECES * _PIECE:
        return levels
    stride = levels.size // _PIECES
    return levels[: stride * _PIECES].reshape(_PIECES, stride)[:, :_PIECE].reshape(-1)


def _table(cache: TableCache | None, key: object, counts: Array) -> CodeTable:
    return cache.table(key, counts) if cache is not None else CodeTable.from_counts(counts)


def _plan_packs(levels: Array, entropy: str) -> list[_Plan]:
    if entropy == "runs":
        return []
    singles = _count_symbols(levels, 8, 1)
    packings = f.PACKINGS if entropy != "symbol" else ((8, 1),)
    return [_plan_pack(levels, bits, per, singles) for bits, per in packings]


def _plan_pack(levels: Array, bits: int, per: int, singles: Array) -> _Plan:
    counts = singles if per == 1 else _count_symbols(levels, bits, per)
    table = CodeTable.from_counts(counts)
    cost = table.bits(counts) + 8 * len(table.to_bytes()) + _escape_bits(singles, 1 << (bits - 1))
    return _Plan((bits, per), bits, per, counts, cost)


def _count_symbols(levels: Array, bits: int, per: int) -> Array:
    symbols = np.empty(-(-levels.size // per), np.uint8)
    pack.pack(levels, bits, per, symbols)
    counts = np.zeros(SYMBOLS, np.int64)
    huffman.histogram(symbols, counts)
    return counts


def _escape_bits(singles: Array, least: int) -> float:
    """Give the bits that the side streams take, from the counts of the single levels."""
    magnitudes = np.abs(np.arange(SYMBOLS).astype(np.uint8).view(np.int8).astype(np.int64))
    magnitudes[128] = 4096 + least  # an escape above 127: its size is not known here
    over = magnitudes - least
    each = np.where(over >= 0, 2 * np.floor(np.log2(np.maximum(over, 0) + 1)) + 2, 0)
    return float(singles @ each)


def _plan_runs(levels: Array, entropy: str) -> list[_Plan | None]:
    if entropy not in ("auto", "runs"):
        return []
    most = levels.size // 2 + 64 if entropy == "auto" else levels.size + levels.size // 4096 + 64
    tokens = _tokenize(levels, most)
    if tokens is None:
        return []
    symbols, _extras, _counts = tokens
    counts = np.zeros(SYMBOLS, np.int64)
    huffman.histogram(symbols, counts)
    if not counts.any():
        counts[runs.END] = 1
    table = CodeTable.from_counts(counts)
    extra = np.zeros(SYMBOLS, np.uint8)
    runs.extra_bits(extra)
    escaped = int(counts[runs.LEVELS - 1 : runs.END : runs.LEVELS].sum())
    cost = (
        table.bits(counts)
        + float(counts @ extra.astype(np.int64))
        + 8 * len(table.to_bytes())
        + 5.0 * escaped
    )
    return [_Plan("runs", 0, 0, counts, cost * (1 + _TOKENS_MUST_SAVE))]


def _tokenize(levels: Array, most: int) -> tuple[Array, Array, Array] | None:
    segments = -(-levels.size // (1 << f.SEGMENT))
    symbols, extras = np.empty(most, np.uint8), np.empty(most, np.uint32)
    counts = np.zeros(segments, np.int64)
    used = runs.tokenize(levels, 1 << f.SEGMENT, symbols, extras, counts)
    return None if used < 0 else (symbols[:used], extras[:used], counts)


def _run_pack(levels: Array, escapes: Array, segments: int, plan: _Plan, table: CodeTable) -> Coded | None:
    streams = 4 if min(levels.size, 1 << f.SEGMENT) // plan.per >= f.FOUR_STREAMS_FROM else 1
    directory = np.zeros((segments, streams + 1), np.uint16)
    payload = np.empty(levels.size * 3 // 2 + escapes.size * 16 + 64 * segments + 64, np.uint8)
    used = pack.encode_pack(
        levels, escapes, plan.bits, plan.per, streams, 1 << f.SEGMENT, table.codes, payload, directory
    )
    if used < 0:
        return None
    return Coded(
        f.PACK,
        plan.bits,
        plan.per,
        streams,
        table=table.to_bytes(),
        directory=directory.tobytes(),
        payload=payload[:used].data,
    )


def _run_runs(levels: Array, escapes: Array, segments: int, table: CodeTable) -> Coded | None:
    tokens = _tokenize(levels, levels.size // 2 + 4096) or _tokenize(levels, levels.size + segments + 64)
    if tokens is None:
        return None
    symbols, extras, counts = tokens
    directory = np.zeros((segments, 2), np.uint16)
    payload = np.empty(4 * symbols.size + escapes.size * 16 + 64 * segments + 64, np.uint8)
    used = runs.encode_runs(
        levels, escapes, 1 << f.SEGMENT, symbols, extras, counts, table.codes, payload, directory
    )
    if used < 0:
        return None
    return Coded(f.RUNS, table=table.to_bytes(), directory=directory.tobytes(), payload=payload[:used].data)


def encode_wide(levels: Array, *, cache: TableCache | None = None) -> Coded:
    """Code levels of any size: ``int64[n]``, magnitudes below 2**61."""
    if not levels.any():
        return Coded(f.ZERO)
    counts = np.zeros(SYMBOLS, np.int64)
    wide.count_wide(levels, counts)
    table = cache.table("wide", counts) if cache is not None else CodeTable.from_counts(counts)
    segments = -(-levels.size // wide.SEGMENT)
    directory = np.zeros((segments, 2), np.uint16)
    payload = np.empty(levels.size * 10 + 64 * segments, np.uint8)
    used = wide.encode_wide(levels, wide.SEGMENT, table.codes, payload, directory)
    return Coded(
        f.WIDE,
        segment=f.WIDE_SEGMENT,
        table=table.to_bytes(),
        directory=directory.tobytes(),
        payload=payload[:used].data,
    )


def encode_any(levels: Array, *, entropy: str = "auto", cache: TableCache | None = None) -> Coded:
    """Code ``int64[n]`` levels with whichever coder suits them."""
    narrow = np.clip(levels, -128, 127).astype(np.int8)
    far = np.abs(levels) > 127
    escapes = levels[far]
    if escapes.size <= levels.size // 64 + 16:
        narrow[far] = -128
        coded = encode_levels(narrow, escapes, entropy=entropy, cache=cache)
        if coded is not None:
            return coded
    return encode_wide(levels, cache=cache)
