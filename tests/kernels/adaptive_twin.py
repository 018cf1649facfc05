"""The plain twin of the adaptive coder: after the specification, on integers without an end."""

from __future__ import annotations

from collections import defaultdict

WIDEST = (1 << 64) - 1
SEGMENT = 1 << 16


class Odds:
    """The odds of every kind of bit."""

    def __init__(self):
        self.known = defaultdict(lambda: [1 << 23, 0])

    def of(self, kind):
        return 32768 if kind is None else min(max(self.known[kind][0] // 256, 32), 65504)

    def saw(self, kind, bit):
        if kind is not None:
            odds, seen = self.known[kind]
            target = 0 if bit else (1 << 24) - 1
            self.known[kind] = [
                odds + (target - odds) * (655360 // (10 * seen + 16)) // 65536,
                min(seen + 1, 255),
            ]


class Writer(Odds):
    def __init__(self):
        super().__init__()
        self.low, self.width, self.times = 0, WIDEST, 0

    def bit(self, kind, bit):
        bound = (self.width >> 16) * self.of(kind)
        self.low, self.width = (self.low + bound, self.width - bound) if bit else (self.low, bound)
        self.saw(kind, bit)
        if self.width < 1 << 32:
            self.low, self.width, self.times = self.low << 32, self.width << 32, self.times + 1
        return bit

    def to_bytes(self):
        return (-(-self.low >> 32)).to_bytes(4 * (self.times + 1), "big").rstrip(b"\0")


class Reader(Odds):
    def __init__(self, data):
        super().__init__()
        self.data, self.low, self.width, self.times = data, 0, WIDEST, 0
        self.lost = False

    def fraction(self):
        digits = 8 + 4 * self.times
        return int.from_bytes(self.data[:digits].ljust(digits, b"\0"), "big")

    def bit(self, kind, _=None):
        bound = (self.width >> 16) * self.of(kind)
        bit = self.fraction() - self.low >= bound
        self.low, self.width = (self.low + bound, self.width - bound) if bit else (self.low, bound)
        self.saw(kind, bit)
        if self.width < 1 << 32:
            self.low, self.width, self.times = self.low << 32, self.width << 32, self.times + 1
            self.lost |= 8 + 4 * self.times > len(self.data) + 64 and self.fraction() != self.low
        return bit

    def well_ended(self):
        short = len(self.data) <= 4 * (self.times + 1) and not self.data.endswith(b"\0")
        return short and not self.lost and self.fraction() - self.low < 1 << 32


def sign(level):
    return (level > 0) - (level < 0)


def one_level(coder, around, level=0):
    """Write a level, or read one."""
    g, left, second, above, parity = around
    near = (min(abs(left), 2), min(abs(above), 2))
    size, bits = abs(level), 0
    while coder.bit(("count", g, near, min(bits, 11), parity), bits < size.bit_length()):
        bits += 1
        assert bits < 62
    if not bits:
        return 0
    negative = coder.bit(("sign", sign(left), sign(above), sign(second)), level < 0)
    found = 1
    for k in range(bits - 2, -1, -1):
        last = parity if k == 0 else None
        if bits < 8:
            kind = ("bit", bits, found, last)
        elif k >= bits - 3:
            kind = ("bit", bits, found)
        else:
            kind = ("last", bits, parity) if k == 0 else None
        found = 2 * found + coder.bit(kind, (size >> k) & 1)
    return -found if negative else found


def run(coder, levels, stretches, begin, end):
    """Write the levels of a segment, or read them into the list."""
    row = 128
    for first, size, length in stretches:
        low, high = max(first, begin), min(first + size, end)
        columns = [row] * length
        for i in range(low, high):
            left, second, third, above = (
                levels[i - back] if i - back >= low else 0 for back in (1, 2, 3, length)
            )
            parity = (left + second + third) % 2 if i % 4 == 3 else None
            at = (i - low) % length
            g = min((row * columns[at] // 256).bit_length(), 36)
            levels[i] = one_level(coder, (g, left, second, above, parity), levels[i])
            size_now = 256 * min(abs(levels[i]), 65536)
            row += (size_now - row) // 16
            columns[at] += (size_now - columns[at]) // 16


def encode(levels, stretches):
    """Give the stream of each segment."""
    streams = []
    for begin in range(0, len(levels), SEGMENT):
        writer = Writer()
        run(writer, list(map(int, levels)), stretches, begin, min(begin + SEGMENT, len(levels)))
        streams.append(writer.to_bytes())
    return streams


def decode(stream, size, stretches):
    """Give the levels of a stream of a first segment, and whether it ends as it must."""
    levels, reader = [0] * size, Reader(stream)
    run(reader, levels, stretches, 0, size)
    return levels, reader.well_ended()
