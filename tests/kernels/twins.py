"""A plain twin of every kernel: slow, in numpy and Python integers, and written to be read.

A kernel must give what its twin gives, bit for bit. Bit streams are Python integers here, so that no twin
shares a trick with its kernel.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

MASK64 = (1 << 64) - 1


class BitWriter:
    """A stream of bits, the first one least significant."""

    def __init__(self):
        self.value = 0
        self.size = 0

    def put(self, value, bits):
        assert 0 <= value < 1 << bits
        self.value |= value << self.size
        self.size += bits

    def to_bytes(self):
        return self.value.to_bytes((self.size + 7) // 8, "little")


class BitReader:
    def __init__(self, data):
        self.value = int.from_bytes(data, "little")
        self.at = 0

    def take(self, bits):
        value = (self.value >> self.at) & ((1 << bits) - 1)
        self.at += bits
        return value

    def used_bytes(self):
        return (self.at + 7) // 8


def words_of(payload, padding=1 << 12):
    """Lay bytes into words with zeros behind them."""
    words = np.zeros((len(payload) + padding + 7) // 8, np.uint64)
    words.view(np.uint8)[: len(payload)] = np.frombuffer(bytes(payload), np.uint8)
    return words


def put_escape(writer, level, least):
    size = abs(int(level)) - least + 1
    n = size.bit_length() - 1
    writer.put(int(level < 0), 1)
    writer.put(0, n)
    writer.put(1, 1)
    writer.put(size - (1 << n), n)


def take_escape(reader, least):
    negative = reader.take(1)
    n = 0
    while reader.take(1) == 0:
        n += 1
        if n == 62:
            return 0
    size = (reader.take(n) | 1 << n) - 1 + least
    return -size if negative else size


def weight(j):
    w = ((j + 1) * 0x9E3779B97F4A7C15) & MASK64
    return w ^ (w >> 29)


def digest_shard(part, whole, start, words):
    """The digest of a rectangle of a tensor, `words` numbers for each element in the last dimension."""
    total = 0
    for place in np.ndindex(part.shape[:-1]):
        at = np.ravel_multi_index([i + s for i, s in zip(place, start, strict=True)], whole)
        for word in range(words):
            total += digest(part[place][word : word + 1], int(at) * words + word)
    return total & MASK64


def digest(values, start):
    return sum(weight(start + i) * int(v) for i, v in enumerate(values)) & MASK64


RANGE, SPACE = -5, -4


def wrap(values, dtype):
    """Reduce Python integers to a width."""
    bits = 8 * np.dtype(dtype).itemsize
    return np.array([((int(v) + (1 << bits - 1)) % (1 << bits)) - (1 << bits - 1) for v in values], dtype)


def step_size_of(scale):
    return (1, 3, 5, 7)[scale >> 6] << (scale & 63)


def level_of(difference, gain, rounding, kind):
    """Round in the width of the state, as most runs are."""
    exact = kind(kind(difference) * kind(gain))
    return int(exact + np.copysign(kind(rounding), exact))


def far_level_of(difference, step, gain, rounding, kind):
    """Round in float64, and large levels to nearest: in runs that have any."""
    level = int(float(abs(difference)) * float(kind(gain)) + float(kind(rounding)))
    if level > 127:
        level = max(128, (abs(difference) + (step >> 1)) // step)
    return level if difference >= 0 else -level


def advance(state, track, escapes_room, escaped, inverse, limit, step, gain, rounding, start):
    """Give (result, track, levels, escapes, digest); the track as far as it moved."""
    track, levels, escapes = track.copy(), np.zeros(state.size, np.int8), []
    total = 0
    for low in range(0, state.size, 1024):
        high = min(low + 1024, state.size)
        scaled = state[low:high] * inverse
        if not np.all(np.abs(scaled) <= limit):
            return RANGE, track, levels, escapes, total
        wanted = [int(v) for v in np.rint(scaled)]
        differences = [w - int(t) for w, t in zip(wanted, track[low:high], strict=True)]
        coded = [level_of(d, gain, rounding, state.dtype.type) for d in differences]
        if max(map(abs, coded)) > 127:
            if escaped + len(escapes) + high - low > escapes_room:
                return SPACE, track, levels, escapes, total
            coded = [far_level_of(d, step, gain, rounding, state.dtype.type) for d in differences]
        for i, level in enumerate(coded):
            far = abs(level) > 127
            levels[low + i] = -128 if far else level
            if far:
                escapes.append(level)
            total = (total + weight(start + low + i) * level * step) & MASK64
        track[low:high] = wrap(
            [int(t) + v * step for t, v in zip(track[low:high], coded, strict=True)], track.dtype
        )
    return escaped + len(escapes), track, levels, escapes, total


def advance_parts(parts, steps, state, track, room, inverse, limit, rounding, start):
    """Give (result, track, levels, escapes, digest) for parts, each on its own step size."""
    track, levels, escapes, total = track.copy(), np.zeros(state.size, np.int8), [], 0
    for low, high, which in parts:
        result, moved, coded, more, digest = advance(
            state[low:high], track[low:high], room, len(escapes), inverse, limit, steps[which],
            1 / steps[which], rounding, start + low,
        )  # fmt: skip
        track[low:high], levels[low:high] = moved, coded
        escapes, total = escapes + more, (total + digest) & MASK64
        if result < 0:
            return result, track, levels, escapes, total
    return len(escapes), track, levels, escapes, total


def note_sizes(means, unit, floor, ahead, before):
    """Give sizes, what they may shrink to, and how many rows came to nothing."""
    now = np.sqrt(means).astype(means.dtype) * means.dtype.type(unit)
    now = now.astype(np.float32)
    now[~np.isfinite(now)] = np.inf
    zero = now < np.float32(floor)
    least = now.copy()
    if ahead:
        falls = (before > now) & ~zero
        least[falls] *= now[falls] / before[falls]
    gone = zero & (before > 0)
    least[zero], least[gone] = np.inf, 0
    return np.where(zero, np.float32(0), now), least, int(gone.sum())


def misses(state, track, width, chosen, every, inverse):
    """Give the relative errors of rows."""
    value = state.astype(np.float64).reshape(-1, width)[chosen, ::every] * inverse
    left = value - track.astype(np.float64).reshape(-1, width)[chosen, ::every]
    below = np.linalg.norm(value, axis=1)
    return np.divide(np.linalg.norm(left, axis=1), below, out=np.zeros(below.size), where=below > 0)


def add_levels(levels, places, escapes, scales, block, sign, track):
    levels = levels.astype(object)
    levels[places] = escapes
    moves = [int(v) * sign * step_size_of(int(scales[i // block])) for i, v in enumerate(levels)]
    return wrap([int(t) + m for t, m in zip(track, moves, strict=True)], track.dtype)


def to_grid(values, inverse, limit):
    with np.errstate(over="ignore"):
        scaled = values * inverse
    return None if not np.all(np.abs(scaled) <= limit) else [int(v) for v in np.rint(scaled)]


def from_grid(track, scale, dtype):
    return (track.astype(np.float64) * scale).astype(dtype)


def bfloat16_bits(values):
    """Round float64 to bfloat16 once, ties to even: in units of the last place, which end at 2**-133."""
    _, exponents = np.frexp(values)
    unit = np.ldexp(1.0, np.maximum(exponents - 8, -133))
    with np.errstate(over="ignore"):
        rounded = (np.rint(values / unit) * unit).astype(np.float32)
    return (rounded.view(np.uint32) >> 16).astype(np.uint16)


def magnitude(values):
    if not np.all(np.isfinite(values)):
        return np.inf
    return float(np.max(np.abs(values), initial=0))


def code_lengths(counts, limit=12):
    """Package-merge with explicit packages: each is its weight and the symbols in it."""
    used = sorted((int(c), s) for s, c in enumerate(counts) if c)
    lengths = [0] * len(counts)
    if len(used) == 1:
        only = used[0][1]
        lengths[only] = lengths[1 if only == 0 else 0] = 1
        return lengths
    leaves = [(c, [s]) for c, s in used]
    row = leaves
    for _ in range(limit - 1):
        pairs = [(a[0] + b[0], a[1] + b[1]) for a, b in zip(row[0::2], row[1::2], strict=False)]
        row = sorted(leaves + pairs, key=lambda item: item[0])  # stable: leaves first among equals
    for _, symbols in row[: 2 * len(used) - 2]:
        for s in symbols:
            lengths[s] += 1
    return lengths


def written_lengths(lengths):
    """Give the nibbles that lengths are written in, two to a byte; zeros at the end are left out."""
    nibbles = []
    for value, run in itertools.groupby(np.trim_zeros(lengths, "b").tolist()):
        left = len([*run])
        while left:
            some = min(left, 19 if value else 258)
            left -= some
            if value == 0 and some >= 3:
                nibbles += [13, (some - 3) % 16, (some - 3) // 16]
            else:
                nibbles += [value, 14, some - 4] if some >= 4 else [value] * some
    return bytes(low | high << 4 for low, high in itertools.zip_longest(*[iter(nibbles)] * 2, fillvalue=0))


def codes(lengths):
    """Give {symbol: (code in stream order, length)}: canonical codes count up, written from the top."""
    out, code, last = {}, 0, 0
    for length, symbol in sorted((int(n), s) for s, n in enumerate(lengths) if n):
        code <<= length - last
        out[symbol] = (int(f"{code:0{length}b}"[::-1], 2), length)
        code, last = code + 1, length
    return out


def lookup(book, values):
    """Give for each window of 12 bits what it decodes to, and the bits that takes."""
    table, sizes = np.zeros(4096, values.dtype), np.zeros(4096, np.uint8)
    for window in range(4096):
        hits = [(s, n) for s, (code, n) in book.items() if window & ((1 << n) - 1) == code]
        assert len(hits) == 1
        table[window], sizes[window] = values[hits[0][0]], hits[0][1]
    return table, sizes


def join_codes(book, values, per):
    """Give for each window of 12 bits the bytes of all symbols that lie whole in it, and how to move on.

    That is how many bits these are, how many bits of the first symbol, and how many bytes.
    """
    by_code = inverse(book)
    joined, moves = np.zeros((4096, 2), np.uint64), np.zeros((4096, 3), np.int64)
    for window in range(4096):
        at, found = 0, []
        for end in range(1, 13):
            symbol = by_code.get(((window >> at) & ((1 << (end - at)) - 1), end - at))
            if symbol is not None and len(found) < 16 // per:
                found.append((symbol, end))
                at = end
        told = b"".join(int(values[symbol]).to_bytes(8, "little")[:per] for symbol, _ in found)
        joined[window] = np.frombuffer(told.ljust(16, b"\0"), "<u8")
        moves[window] = at, found[0][1], len(told)
    return joined, moves


def take_symbol(reader, by_code):
    code = n = 0
    while (code, n) not in by_code:
        code |= reader.take(1) << n
        n += 1
        if n > 12:
            raise AssertionError("no such code")
    return by_code[code, n]


def inverse(book):
    return {code: symbol for symbol, code in book.items()}


def pack(levels, bits, per):
    """Put `per` levels into each symbol, the first one lowest; what does not fit is the lowest pattern."""
    most = (1 << (bits - 1)) - 1
    symbols = []
    for i in range(0, len(levels), per):
        symbol = 0
        for j, level in enumerate(levels[i : i + per]):
            field = int(level) % (1 << bits) if -most <= level <= most else 1 << (bits - 1)
            symbol |= field << (bits * j)
        symbols.append(symbol)
    return np.array(symbols, np.uint8)


def split_streams(symbols, streams):
    each = -(-len(symbols) // streams)
    return [symbols[j * each : (j + 1) * each] for j in range(streams)]


def encode_pack(levels, escapes, bits, per, streams, segment, book):
    """Give payload and directory."""
    most = (1 << (bits - 1)) - 1
    payload, directory, escapes = b"", [], list(escapes)
    for low in range(0, len(levels), segment):
        part, row = levels[low : low + segment], []
        for symbols in split_streams(pack(part, bits, per), streams):
            writer = BitWriter()
            for symbol in symbols:
                writer.put(*book[int(symbol)])
            payload += writer.to_bytes()
            row.append(len(writer.to_bytes()))
        side = BitWriter()
        for level in part:
            if abs(int(level)) > most:
                put_escape(side, escapes.pop(0) if level == -128 else int(level), most + 1)
        payload += side.to_bytes()
        directory.append([*row, len(side.to_bytes())])
    return payload, np.array(directory, np.uint16).reshape(-1, streams + 1)


END, LEAST = 255, 3


def run_classes():
    """Give (shortest run, extra bits) of each class."""
    classes = [(run, 0) for run in range(16)]
    classes += [((4 + k) << (e - 2), e - 2) for e in range(4, 8) for k in range(4)]
    classes += [((2 + k) << (e - 1), e - 1) for e in range(8, 16) for k in range(2)]
    return classes


def tokenize(levels, segment):
    """Give symbols, extras and how many of them each segment has."""
    classes = run_classes()
    symbols, extras, counts = [], [], []
    for low in range(0, len(levels), segment):
        begin, expected, part = len(symbols), 0, levels[low : low + segment]
        for i in np.flatnonzero(part):
            run = int(i) - expected
            kind = max(c for c, (base, _) in enumerate(classes) if base <= run)
            symbols.append(5 * kind + {1: 0, -1: 1, 2: 2, -2: 3}.get(int(part[i]), 4))
            extras.append(run - classes[kind][0])
            expected = int(i) + 1
        if len(symbols) > begin and expected < len(part):
            symbols.append(END)
            extras.append(0)
        counts.append(len(symbols) - begin)
    return np.array(symbols, np.uint8), np.array(extras, np.uint32), np.array(counts, np.int64)


def encode_runs(levels, escapes, segment, book):
    classes, escapes = run_classes(), list(escapes)
    symbols, extras, counts = tokenize(levels, segment)
    payload, directory, token = b"", [], 0
    for s, count in enumerate(counts):
        main, side, at = BitWriter(), BitWriter(), s * segment
        for symbol, extra in zip(symbols[token : token + count], extras[token : token + count], strict=True):
            main.put(*book[int(symbol)])
            if symbol == END:
                continue
            base, bits = classes[symbol // 5]
            main.put(int(extra), bits)
            at += base + int(extra)
            if symbol % 5 == 4:
                put_escape(side, escapes.pop(0) if levels[at] == -128 else int(levels[at]), LEAST)
            at += 1
        token += count
        payload += main.to_bytes() + side.to_bytes()
        directory.append([len(main.to_bytes()), len(side.to_bytes())])
    return payload, np.array(directory, np.uint16).reshape(-1, 2)


def to_relative(levels, segment):
    """Give levels with their signs beside that of the level before, zeros left out."""
    found, before = [], 1
    for i, level in enumerate(levels):
        before = 1 if i % segment == 0 else before
        found.append(level * before)
        before = (-1 if level < 0 else 1) if level else before
    return found


def from_relative(levels, segment):
    """Give what `to_relative` was given."""
    found, sign = [], 1
    for i, level in enumerate(levels):
        sign = 1 if i % segment == 0 else sign
        found.append(level * sign)
        sign = -sign if level < 0 else sign
    return found


def wide_symbol(level):
    """Give symbol, extra and its bits: the sign is folded into the lowest bit first."""
    z = 2 * level if level >= 0 else -2 * level - 1
    if z < 16:
        return z, 0, 0
    n = z.bit_length() - 3
    return 16 + (n - 2) * 4 + ((z >> n) & 3), z & ((1 << n) - 1), n


def encode_wide(levels, segment, book):
    payload, directory = b"", []
    for low in range(0, len(levels), segment):
        writer = BitWriter()
        for level in levels[low : low + segment]:
            symbol, extra, n = wide_symbol(int(level))
            writer.put(*book[symbol])
            writer.put(extra, n)
        payload += writer.to_bytes()
        directory.append([len(writer.to_bytes()), 0])
    return payload, np.array(directory, np.uint16).reshape(-1, 2)


def turn_left(words):
    bits = 8 * words.itemsize
    return np.array([((int(w) << 1) | (int(w) >> (bits - 1))) % (1 << bits) for w in words], words.dtype)


def split_planes(words, turn):
    words = turn_left(words) if turn else words
    return words.astype(words.dtype.newbyteorder("<")).view(np.uint8).reshape(-1, words.itemsize).T


def linear_levels(values, scales, block, rounding):
    wide = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = np.abs(wide) * np.repeat(scales, block)[: values.size] + rounding
    good = sizes < 2.0**61
    levels = np.trunc(np.where(good, sizes, 0)).astype(np.int64)
    return (0 if good.all() else RANGE), np.where(values < 0, -levels, levels)


def coarse_levels(values, block, shifts, roundings):
    """Levels by blocks, with the exponents and the largest level of each; None where one cannot be."""
    kind, levels, exponents, tops = values.dtype.type, [], [], []
    for low in range(0, values.size, block):
        some = values[low : low + block]
        peak = np.abs(some).max()
        if not np.isfinite(peak):
            return None
        if peak == 0:
            levels, exponents, tops = levels + [0] * some.size, [*exponents, 0], [*tops, 0]
            continue
        octave = max(math.frexp(peak)[1] - 1, np.finfo(kind).minexp - 1)
        scaled = some * kind(math.ldexp(1.0, -octave))
        energy = coarse_energy(scaled, scaled)
        part, power = math.frexp(energy / some.size)
        index = power % 2 * 32 + int((part - 0.5) * 64)
        exponent = octave + power // 2 + int(shifts[index])
        exponent = min(max(exponent, -1022), 1000)
        for lower in range(exponent, max(exponent - 3, -1022) - 1, -1):
            found = coarse_block(some, lower, roundings[index] if lower == exponent else 0.5)
            if found is None or np.abs(found).max() > 127:
                break
            kept = math.ldexp(coarse_energy(scaled, found.astype(kind)), lower - octave) / energy
            if 0.75 < kept < 1.5:
                break
        if found is None:
            return None
        exponent = lower
        levels, exponents, tops = [*levels, *found], [*exponents, exponent], [*tops, np.abs(found).max()]
    return np.array(levels, np.int64), exponents, tops


def coarse_block(values, exponent, rounding):
    kind = values.dtype.type
    first, second = (kind(math.ldexp(1.0, -half)) for half in (exponent // 2, exponent - exponent // 2))
    with np.errstate(over="ignore"):
        sizes = np.abs(values) * first * second + kind(rounding)
    if not sizes.max() < 2.0**61:
        return None
    return np.where(values < 0, -sizes.astype(np.int64), sizes.astype(np.int64))


def coarse_energy(values, others):
    """The sum of products, in 64 strands of the values' own dtype, which are then added up in float64."""
    strands = np.zeros(64, values.dtype)
    for low in range(0, values.size, 64):
        part = values[low : low + 64]
        strands[: part.size] += part * others[low : low + 64]
    total = 0.0
    for strand in strands:
        total += float(strand)
    return total


def linear_values(levels, steps, block, dtype):
    with np.errstate(over="ignore"):
        return (levels.astype(np.float64) * np.repeat(steps, block)[: levels.size]).astype(dtype)


def integer_values(levels, scales, block, dtype):
    return wrap([int(v) * step_size_of(int(scales[i // block])) for i, v in enumerate(levels)], dtype)


def log_levels(patterns, drop, top, block):
    """Give bases and levels, or None."""
    if patterns.size and (patterns.min() < 0 or patterns.max() >= top):
        return None
    most = (top >> drop) - 1
    rounded = [min((int(p) + (1 << (drop - 1))) >> drop, most) for p in patterns]
    rounded = [max(c, 1) if p else 0 for c, p in zip(rounded, patterns, strict=True)]
    bases, levels = [], []
    for low in range(0, len(rounded), block):
        part = rounded[low : low + block]
        used = [c for c in part if c]
        bases.append((min(used) + max(used)) // 2 if used else 0)
        levels += [c - bases[-1] for c in part]
    return np.array(bases, np.int64), np.array(levels, np.int64)


def log_values(levels, drop, top, block, bases, dtype):
    found = [int(v) + int(bases[i // block]) for i, v in enumerate(levels)]
    good = [0 <= c < top >> drop for c in found]
    values = np.array([c << drop if g else 0 for c, g in zip(found, good, strict=True)], dtype)
    return (0 if all(good) else RANGE), values


def bucket_statistics(patterns, mantissa, buckets):
    counts, lows, highs = (
        np.zeros(buckets, np.int64),
        np.zeros(buckets, np.int64),
        np.zeros(buckets, np.int64),
    )
    rests = patterns & patterns.dtype.type((1 << mantissa) - 1)
    which = (patterns >> patterns.dtype.type(mantissa)).astype(np.int64)
    for b in np.unique(which):
        counts[b] = (which == b).sum()
        lows[b], highs[b] = rests[which == b].min(), rests[which == b].max()
    return counts, lows, highs


def common_steps(sums, block):
    """Give log2 of the largest power of two that divides each block; -1 for a block of zeros."""
    steps = []
    for low in range(0, sums.size, block):
        some = [int(v) for v in sums[low : low + block] if v]
        steps.append(min((v & -v).bit_length() - 1 for v in some) if some else -1)
    return np.array(steps, np.int16)


MOST_LEVEL = 1 << 17


def code_of(pattern):
    """Give what is left of the bits of a value with 4 bits of mantissa, and how many are dropped."""
    drop = {4: 19, 8: 48}[pattern.dtype.itemsize]
    return int(pattern) >> drop


def last_code(dtype):
    return {4: 0x7F7FFFFF >> 19, 8: 0x7FEFFFFFFFFFFFFF >> 48}[np.dtype(dtype).itemsize]


def row_roots(values, cols, phase, count):
    """Give the mean fourth roots of rows, or None."""
    if any(np.signbit(v) or not np.isfinite(v) for v in values):
        return None
    rows = []
    for row in range(count):
        some = values[max(row * cols - phase, 0) : (row + 1) * cols - phase]
        total = lanes_of(np.sqrt(np.sqrt(some)))
        rows.append(total / np.count_nonzero(some) if some.any() else 0.0)
    return rows


def column_roots(values, phase, rows, cols):
    """Give the sums of roots by column, and those of what their rows have in the mean."""
    sums, weights = np.zeros((2, cols), values.dtype)
    for i, value in enumerate(values):
        if value:
            row, col = divmod(i + phase, cols)
            sums[col] += np.sqrt(np.sqrt(value))
            weights[col] += values.dtype.type(rows[row])
    return sums, weights


def factored_levels(patterns, phase, rows, columns, step, threshold, below):
    last, levels = last_code(patterns.dtype), []
    for i, pattern in enumerate(patterns):
        row, col = divmod(i + phase, len(columns))
        centre = min(int(rows[row]) + int(columns[col]), last)
        difference = code_of(pattern) - centre
        steps = (abs(difference) + step - threshold) // step
        if difference < 0:
            steps = -steps if -difference >= below else 0
        steps = min(max(steps, -((centre - 1) // step)), (last - centre) // step)
        if pattern == 0:
            levels.append(-1 if centre > 0 else 0)
        else:
            levels.append(steps if steps >= 0 else steps - 1)
    return levels


def offsets(patterns, rows, columns, known, step, threshold, below):
    """Give how far each row is from where all of it comes back as it is, and how much too large it comes."""
    f, last, drop = np.float32, np.float32(last_code(patterns.dtype)), {4: 19, 8: 48}[patterns.itemsize]
    both = []
    for row, part in zip(rows, patterns.reshape(len(rows), len(columns)), strict=True):
        centres, there = np.minimum(row + columns, last), part != 0
        difference = (part >> drop).astype(f) - centres
        steps = np.trunc((abs(difference) + (f(step - threshold) + f(0.5))) * (f(1) / f(step)))
        steps = np.where(difference > 0, steps, np.where(-difference >= below, -steps, f(0)))
        codes = centres + steps * f(step)
        steps = steps + (codes < 1) - (codes > last)
        left = centres - (part >> (drop - 8)).astype(f) * f(2**-8)
        back = left + steps * f(step) + f(0.5)
        more = np.where((steps == 0) & (back >= threshold), f(0), back) - known
        apart = left - known - (left - known)[np.argmax(there)]
        apart = np.where(there, apart - f(step) * np.floor(apart / f(step) + f(0.5)), f(0))
        count = max(1, np.count_nonzero(there))
        mean, squares = lanes_of(apart) / count, lanes_of(apart * apart) / count
        high = float((left - known)[np.argmax(there)]) + mean + 0.5
        if not there.any():
            both.append((0.0, 0.0))
        elif squares - mean * mean < (step / 8) ** 2:
            high -= step * np.floor(high / step + 0.5)
            under = np.floor(((left - known)[there] - high) / step + 0.5)
            lost = np.count_nonzero((under > 0) & (under * step < below))
            both.append((high + step * under.max() if lost and 4 * lost >= count else high, 0.0))
        else:
            both.append((0.0, lanes_of(np.where(there, more, f(0))) / count))
    return np.array(both).reshape(-1, 2).T


def lanes_of(values):
    """Give the sum of values, as of sixteen lanes side by side."""
    lanes = np.append(values, np.zeros(-values.size % 16, values.dtype)).reshape(-1, 16)
    return in_order(np.array([in_order(lane) for lane in lanes.T], np.float64))


def arrange_rows(levels, first, order, segment):
    """Give the levels, those of each whole row within a segment in another order."""
    out, cols = list(levels), len(order)
    for low in range(first, len(out) - cols + 1, cols):
        if low // segment == (low + cols - 1) // segment:
            out[low : low + cols] = [levels[low + place] for place in order]
    return out


def factored_values(levels, places, rows, columns, step, dtype):
    """Give status and bit patterns."""
    drop, last, status, out = {4: 19, 8: 48}[np.dtype(dtype).itemsize], last_code(dtype), 0, []
    for level, place in zip(levels, places, strict=True):
        row, col = divmod(int(place), len(columns))
        steps = int(level) + int(level < 0)
        code = min(int(rows[row]) + int(columns[col]), last) + steps * step
        if code > last or abs(int(level)) > MOST_LEVEL:
            status = RANGE
        out.append((code << drop) + (1 << (drop - 1)) if code > 0 and level != -1 else 0)
    return status, out


def cross(values, cols, phase, rows, places, of_rows):
    """Give the columns at some places of all rows of a matrix, and some of its rows as columns."""
    whole = np.zeros(rows * cols, values.dtype)
    whole[phase : phase + values.size] = values
    matrix = whole.reshape(rows, cols)
    return matrix[:, places], matrix[of_rows].T


def root_mean_square(values):
    with np.errstate(over="ignore"):
        lanes = [values[lane : values.size & ~3 : 4] ** 2 for lane in range(4)]
        lanes[0] = np.append(lanes[0], values[values.size & ~3 :] ** 2)
        a, b, c, d = (in_order(lane) for lane in lanes)
        total = (a + b) + (c + d)
    if 2.0**-900 < total < 2.0**900:
        return np.sqrt(total / values.size)
    top = np.max(np.abs(values), initial=0.0)
    return top * np.sqrt(in_order((values / top) ** 2) / values.size) if top > 0 else 0.0


def in_order(values):
    """Sum up one after the other; numpy adds in pairs."""
    return np.cumsum(values)[-1] if values.size else 0.0


def shares(change, starts, top, hold, least, held):
    parts = np.split(change, starts[1:])
    found = np.minimum([root_mean_square(part) / top for part in parts], 1.0)
    held = np.maximum(found, hold * held)
    return int(np.count_nonzero(held < least)), held


def code_bits(counts, lengths):
    return sum(int(count) * int(length) for count, length in zip(counts, lengths, strict=True))


def entropy(counts):
    total, bits = sum(counts.tolist()), 0.0
    for count in counts[counts > 0].tolist():
        bits += float(count) * math.log2(float(total) / float(count))
    return max(bits, float(total))


def grid_levels(values, inverse, rounding, limit, dtype):
    """The levels, and how many values have none."""
    levels, bad = [], 0
    for value in values.tolist():
        size = abs(value) * inverse + rounding
        fits = size < limit
        bad += not fits
        level = int(size) if fits else 0
        levels.append(-level if value < 0 else level)
    return bad, np.array(levels, dtype)


def difference(levels, shape, axis):
    """Differences along an axis of unsigned integers, which wrap around."""
    return np.diff(levels.reshape(shape), axis=axis, prepend=levels.dtype.type(0)).reshape(-1)


def integrate_around(levels, gone, shape, axis):
    """Sums along an axis that begin anew behind each element that is gone."""
    rows = np.moveaxis(levels.reshape(shape), axis, 0).copy()
    left_out = np.moveaxis(gone.reshape(shape), axis, 0)
    for place in range(1, len(rows)):
        rows[place] = np.where(left_out[place], 0, rows[place] + rows[place - 1])
    return np.moveaxis(rows, 0, axis).reshape(-1)


def interpolation_order(shape):
    """Each point of a grid once: where it is, along which axis it is predicted, and from how far away."""
    seen = {(0,) * len(shape)}
    stride = 1
    while stride < max(shape):
        stride *= 2
    while stride:
        for axis, length in enumerate(shape):
            starts = [range(0, n, stride if a < axis else 2 * stride) for a, n in enumerate(shape)]
            starts[axis] = range(stride, length, 2 * stride)
            for place in itertools.product(*starts):
                assert place not in seen
                seen.add(place)
                yield place, axis, stride
        stride //= 2
    assert len(seen) == math.prod(shape)


def predicted(known, place, axis, stride):
    """The cubic through the four points around one, a line, or the point before it."""

    def at(steps):
        there = list(place)
        there[axis] += steps * stride
        inside = 0 <= there[axis] < known.shape[axis]
        return int(known[tuple(there)]) if inside else None

    before, after, first, last = at(-1), at(1), at(-3), at(3)
    if after is None:
        return before
    if first is None or last is None:
        return (before + after) // 2
    return (9 * (before + after) - first - last + 8) // 16


def interpolate(values, coding, fine, limit, shape, levels):
    """What is restored, in 16ths of a level, the levels, and how many values have none."""
    values, levels = values.reshape(shape) if coding else values, levels.reshape(shape).copy()
    known, bad = np.zeros(shape, levels.dtype), 0

    def visit(place, guess):
        nonlocal bad
        if coding:
            value = float(values[place]) * fine
            fits = abs(value) < limit
            bad += not fits
            levels[place] = math.floor((value - guess) / 16 + 0.5) if fits else 0
        known[place] = guess + 16 * int(levels[place])

    visit((0,) * len(shape), 0)
    for place, axis, stride in interpolation_order(shape):
        visit(place, predicted(known, place, axis, stride))
    return bad, known.reshape(-1), levels.reshape(-1)
