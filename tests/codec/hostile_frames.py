"""A catalogue of frames that nobody wrote in good faith. Each must be refused."""

from __future__ import annotations

import struct

import numpy as np
from frame_builder import matrices, matrix, nibbles, one_code, packed, samples, take_apart

from lcstore.coders import format as f
from lcstore.coders.tables import CodeTable

SAMPLES = samples()
PACK, RUNS, WIDE = (take_apart(SAMPLES[name]) for name in ("escapes", "runs", "wide"))
ZERO, LOG, EXPONENT = (take_apart(SAMPLES[name]) for name in ("zero", "log", "exponent"))
PLANES, BYTES, RAW = (take_apart(SAMPLES[name]) for name in ("planes", "bytes", "raw"))
KINDS, FAR, GAPS = (take_apart(SAMPLES[name]) for name in ("kinds", "far", "gaps"))
FACTORED = take_apart(SAMPLES["factored"])
BLOCKS, INTEGERS = (take_apart(SAMPLES[name]) for name in ("blocks", "integers"))
FLOAT16, FLOAT64, INT8, INT32, INT64, UINT8 = (
    f.DTYPES.index(n) for n in ("float16", "float64", "int8", "int32", "int64", "uint8")
)


def table(*symbols):
    """Give the table of the two symbols, one bit each."""
    lengths = np.zeros(256, np.uint8)
    lengths[list(symbols)] = 1
    return CodeTable.from_lengths(lengths).to_bytes()


def plane(frame):
    """Wrap one frame as both planes of a lossless frame of uint16."""
    data = frame.to_bytes()
    return PLANES.but(
        count=frame.count,
        directory=struct.pack("<2Q", len(data), len(data)),
        payload=data + data,
        parameter=0,
    )


def kinds(frame, *others):
    """Give a frame of kinds that holds other frames in the place of its parts; None: the part as it is."""
    at, parts = 0, []
    for size, other in zip(frame.parts(), [*others, *[None] * 3], strict=False):
        parts.append(frame.payload[at : at + size] if other is None else other.to_bytes())
        at += size
    parts += [other.to_bytes() for other in others[len(parts) :]]
    lengths = struct.pack(f"<{len(parts)}Q", *map(len, parts))
    return frame.but(directory=lengths, payload=b"".join(parts))


def part(frame, number):
    """Give a part of a frame of kinds."""
    begin = sum(frame.parts()[:number])
    return take_apart(frame.payload[begin : begin + frame.parts()[number]])


def gaps(*runs, **fields):
    """Give a frame of gaps with other runs."""
    return GAPS.but(directory=struct.pack(f"<{len(runs)}Q", *runs), **fields)


def nested(depth):
    frame = RAW.but(count=4, payload=b"abcd")
    for _ in range(depth):
        frame = plane(frame).but(dtype=UINT8)
    return plane(frame)


def directory(*rows):
    return np.array(rows, "<u2").tobytes()


def every(n, streams=4):
    return directory(*[[1] * streams + [0]] * n)


OVER_FULL = nibbles(1, 1, 1)
UNDER_FULL = nibbles(2, 2, 2)
TWO = table(0, 1)

#: Codes of factors near 1.0 in float32, whose last code is 4079; in units of 2 as the parameter is 16.
NEAR_1, NONE = one_code(1016), one_code(0)


def one_matrix(at=0, size=300, cols=20, phase=0, rows=NEAR_1, columns=NONE, **lengths):
    """Give a frame of zero levels around one matrix."""
    section = matrices(matrix(at, size, cols, phase, rows, columns, **lengths))
    return ZERO.but(quantizer=f.FACTORED, parameter=16, scales=section)


def zeros(count):
    """Give a frame of bytes that are all zero."""
    return ZERO.but(count=count, dtype=UINT8, quantizer=f.LOSSLESS, scales=b"").to_bytes()


def sorted_(section):
    """Give a frame of zero levels with a scales section of its own."""
    return one_matrix().but(quantizer=f.SORTED, scales=section)


def factored():
    """Give frames whose matrices lie. What they start from decodes: see the tests."""
    good = matrix(0, 300, 20, 0, NEAR_1, NONE)
    big, most = 1 << 62, (1 << 64) - 1
    two = [matrix(0, 160, 20, 0, NEAR_1, NONE), matrix(160, 140, 20, 0, NEAR_1, NONE)]
    frames = {
        "a step of zero": one_matrix().but(parameter=0),
        "no word of matrices": one_matrix().but(scales=b""),
        "half a count of matrices": one_matrix().but(scales=b"\1\0\0"),
        "4 billion matrices": one_matrix().but(scales=matrices(good, count=(1 << 32) - 1)),
        "a matrix less than it says": one_matrix().but(scales=matrices(good, count=2)),
        "a matrix more than it says": one_matrix().but(scales=matrices(good, count=0)),
        "half a matrix": one_matrix().but(scales=matrices(good[:39])),
        "bytes behind the matrices": one_matrix().but(scales=matrices(good) + b"\0"),
        "the same matrix twice": one_matrix().but(scales=matrices(good, good)),
        "matrices out of order": one_matrix().but(scales=matrices(*two[::-1])),
        "matrices that overlap by one": one_matrix().but(
            scales=matrices(two[0], matrix(159, 141, 20, 0, NEAR_1, NONE))
        ),
        "a matrix of nothing": one_matrix(size=0),
        "a matrix behind the frame": one_matrix(at=300, size=20),
        "a matrix that ends behind the frame": one_matrix(at=1),
        "a matrix that wraps": one_matrix(at=most, size=301),
        "a matrix of 2^64 - 1 elements": one_matrix(size=most),
        "rows of no elements": one_matrix(cols=0),
        "rows of one element": one_matrix(cols=1),
        "rows of seven elements": one_matrix(cols=7),
        "rows longer than the matrix": one_matrix(cols=301),
        "rows of 2^62": one_matrix(cols=big),
        "rows of 2^64 - 1": one_matrix(cols=most),
        "rows of 2^62 that end here": one_matrix(cols=big, phase=big - 1),
        "a long row in a large frame": one_matrix(size=1 << 20, cols=(1 << 20) // 6 + 1).but(count=1 << 20),
        "a phase of a whole row": one_matrix(phase=20),
        "a phase of 2^64 - 1": one_matrix(phase=most),
        "a phase that needs a row more": one_matrix(phase=1, rows=b"\3" + bytes(2 * 15)),
        "codes of one row too few": one_matrix(rows=b"\3" + bytes(2 * 14)),
        "codes of one row too many": one_matrix(rows=b"\3" + bytes(2 * 16)),
        "codes of one column too few": one_matrix(columns=b"\3" + bytes(2 * 19)),
        "no codes of rows": one_matrix(rows=b""),
        "no codes of columns": one_matrix(columns=b""),
        "codes of rows of 4 GiB": one_matrix(row_bytes=(1 << 32) - 1),
        "codes of columns of 4 GiB": one_matrix(column_bytes=(1 << 32) - 1),
        "codes of rows that take those of columns": one_matrix(row_bytes=6, column_bytes=0),
        "codes of columns that take one byte less": one_matrix(column_bytes=2),
        "a run of rows of 4 billion": one_matrix(
            rows=struct.pack("<BIhI", f.SCALES_RUNS, 1, 2032, (1 << 32) - 1)
        ),
        "a row farther from 0 than codes are": one_matrix(rows=one_code(16377)),
        "a column farther from 0 than codes are": one_matrix(columns=one_code(-16377)),
        "a row farther from 0 than 16 bits": one_matrix(rows=one_code(32767)),
        "levels past infinity": FACTORED.but(
            scales=packed(matrices(matrix(0, 300, 20, 0, one_code(2040), NONE)))
        ),
        "no word of order": one_matrix().but(quantizer=f.SORTED, scales=b""),
        "an order that there is not": sorted_(packed(matrices(good), 2)),
        "matrices that are not coded": sorted_(b"\0" + matrices(good)),
        "matrices that end too soon": sorted_(packed(matrices(good)[:-1])),
        "matrices that are floats": sorted_(b"\0" + SAMPLES["zero"]),
        "matrices that are levels": sorted_(b"\0" + ZERO.but(dtype=UINT8).to_bytes()),
        "matrices that are words": sorted_(b"\0" + SAMPLES["planes"]),
        "matrices of more bytes than values": sorted_(b"\0" + zeros((1 << 12) + 1201)),
        "as many bytes of no matrices as of values": sorted_(b"\0" + zeros(1 << 26)).but(count=1 << 24),
        "sorted rows of wide levels": WIDE.but(
            quantizer=f.SORTED, parameter=16, scales=packed(matrices(good), 1)
        ),
        "a level of sorted rows that is too large": PACK.but(
            quantizer=f.SORTED, parameter=16, scales=packed(matrices(good), 1)
        ),
        "wide levels past the last": WIDE.but(
            quantizer=f.FACTORED,
            parameter=255,
            scales=matrices(matrix(0, 300, 20, 0, NEAR_1, NONE)),
        ),
    }
    for name in ("float16", "int32", "int64", "uint8", "bool", "complex64", "complex128", "float8_e4m3fn"):
        frames[f"second moments of {name}"] = one_matrix().but(dtype=f.DTYPES.index(name))
    return frames


FRAMES = {
    # what a frame claims
    "2^60 elements": ZERO.but(count=1 << 60),
    "2^64 - 1 elements": ZERO.but(count=(1 << 64) - 1),
    "more elements than its bytes can say": ZERO.but(count=1 << 30),
    "elements whose bytes wrap": ZERO.but(count=1 << 61, dtype=FLOAT64),
    "raw elements whose bytes wrap": RAW.but(count=1 << 62, dtype=INT32, payload=b""),
    "packed elements without a directory": PACK.but(count=1 << 20),
    "one element too many": PACK.but(count=PACK.count + 70_000),
    "a bad dtype": ZERO.but(dtype=len(f.DTYPES)),
    "a bad quantizer": ZERO.but(quantizer=len(f.QUANTIZERS)),
    "a bad coder": ZERO.but(coder=8),
    "a reserved byte": ZERO.but(reserved=1),
    "an unknown feature": ZERO.but(features=1 << 15),
    "relative signs of zeros": ZERO.but(features=f.RELATIVE),
    "relative signs of the wide coder": WIDE.but(features=f.RELATIVE),
    "relative signs of bytes": BYTES.but(features=f.RELATIVE),
    "relative signs of planes": PLANES.but(features=f.RELATIVE),
    "relative signs and an unknown feature": RUNS.but(features=f.RELATIVE | 2),
    "a later version": ZERO.but(version=1),
    "another magic": ZERO.but(magic=b"LCG"),
    # sections
    "section lengths that wrap to the right sum": PACK.but(lengths=(0, 0, 0, (1 << 64) - 1)),
    "section lengths of 4 GiB": PACK.but(lengths=((1 << 32) - 1,) * 3 + (0,)),
    "a payload longer than the frame": PACK.but(
        lengths=(3, len(PACK.table), len(PACK.directory), len(PACK.payload) + 1)
    ),
    "bytes behind the payload": PACK.but(
        lengths=(3, len(PACK.table), len(PACK.directory), len(PACK.payload) - 1)
    ),
    "sections shifted into each other": PACK.but(
        lengths=(4, len(PACK.table) - 1, len(PACK.directory), len(PACK.payload))
    ),
    # tables
    "an over-full code": PACK.but(table=OVER_FULL),
    "an under-full code": PACK.but(table=UNDER_FULL),
    "an empty code": PACK.but(table=b""),
    "a code length of 255": PACK.but(table=nibbles(15, 15)),
    "a code of one symbol": PACK.but(table=nibbles(1)),
    "a repeat of nothing": PACK.but(table=nibbles(14, 3)),
    "a run of zeros cut off": PACK.but(table=nibbles(1, 1, 13)),
    "a repeat cut off": PACK.but(table=nibbles(1, 14)),
    "a table too long": PACK.but(table=TWO + bytes(200)),
    "a table of 4 MiB": PACK.but(table=TWO + bytes(4 << 20)),
    "symbols past the last": PACK.but(table=nibbles(13, 15, 15, 1, 1)),
    "a table of nothing but zeros": PACK.but(table=nibbles(13, 15, 15)),
    # coders
    "a packing that there is not": PACK.but(bits=5, per=1),
    "symbols of 0 bits": PACK.but(bits=0, per=0),
    "symbols wider than a byte": PACK.but(bits=8, per=4),
    "three streams": PACK.but(streams=3),
    "no streams": PACK.but(streams=0),
    "segments of one element": PACK.but(segment=0),
    "segments of 2^255": PACK.but(segment=255),
    "wide segments": WIDE.but(segment=f.SEGMENT),
    "packed runs": RUNS.but(bits=2, per=4),
    "runs in four streams": RUNS.but(streams=4),
    "zeros with a payload": ZERO.but(payload=b"x"),
    "zeros with a table": ZERO.but(table=TWO),
    "zeros with a directory": ZERO.but(directory=bytes(4)),
    "zeros with a packing": ZERO.but(bits=8, per=1),
    "blocks of one element": ZERO.but(block=0),
    "blocks of 2^255": ZERO.but(block=255),
    "blocks past a segment": WIDE.but(block=13),
    # directories
    "a directory of half an entry": PACK.but(directory=PACK.directory + b"\0"),
    "a directory too short": PACK.but(directory=PACK.directory[:-2]),
    "a directory too long": PACK.but(directory=PACK.directory + bytes(2)),
    "a directory that says less than there is": PACK.but(payload=PACK.payload + b"\0"),
    "a directory that says more than there is": PACK.but(payload=PACK.payload[:-1]),
    "a directory of 65535": PACK.but(directory=b"\xff" * len(PACK.directory)),
    "streams swapped": PACK.but(directory=PACK.directory[2:] + PACK.directory[:2]),
    "a side stream that takes from its stream": PACK.but(
        directory=directory([len(PACK.payload) - 1, 1])[: len(PACK.directory)]
    ),
    # streams
    "streams that run on": PACK.but(payload=bytes(len(PACK.payload))),
    "streams of ones": PACK.but(payload=b"\xff" * len(PACK.payload)),
    "a stream of nothing": PACK.but(
        count=1 << 16, table=TWO, payload=b"", directory=directory([0, 0, 0, 0, 0]), streams=4, bits=8, per=1
    ),
    "a stream with a byte to spare": PACK.but(
        count=8, table=TWO, payload=b"\0\0", directory=directory([2, 0]), streams=1, bits=8, per=1
    ),
    "escapes that are not there": PACK.but(
        count=4, table=table(0, 170), payload=b"\1", directory=directory([1, 0]), streams=1, bits=2, per=4
    ),
    "an escape without an end": PACK.but(
        count=4,
        table=table(0, 170),
        payload=b"\1" + bytes(64),
        directory=directory([1, 64]),
        streams=1,
        bits=2,
        per=4,
    ),
    "an escape at the end of the payload": PACK.but(
        count=4, table=table(0, 170), payload=b"\1\2", directory=directory([1, 1]), streams=1, bits=2, per=4
    ),
    "a side stream that nothing escapes to": PACK.but(
        count=4, table=table(0, 170), payload=b"\0\0", directory=directory([1, 1]), streams=1, bits=2, per=4
    ),
    "a run past the segment": RUNS.but(table=table(75, 80), payload=b"\0" * 8, directory=directory([8, 0])),
    "a token that there is not": RUNS.but(table=table(240, 254), payload=b"\0", directory=directory([1, 0])),
    "tokens behind the end": RUNS.but(table=table(0, 255), payload=b"\1\0\0", directory=directory([3, 0])),
    "tokens without an end": RUNS.but(table=table(0, 1), payload=b"\0", directory=directory([1, 0])),
    "tokens that run on": RUNS.but(table=table(70, 71), payload=b"\0", directory=directory([1, 0]), count=17),
    "a wide symbol that there is not": WIDE.but(
        table=table(252, 255), payload=bytes(38), directory=directory([38, 0])
    ),
    "a wide side stream": WIDE.but(directory=directory([len(WIDE.payload) - 1, 1])),
    # scales
    "no scales": PACK.but(scales=b""),
    "scales of an unknown layout": PACK.but(scales=b"\4\0\0"),
    "one scale too short": PACK.but(scales=b"\0\0"),
    "a step of 2^-32768": PACK.but(scales=struct.pack("<Bh", f.SCALES_ONE, -32768)),
    "a step of 2^1001": PACK.but(scales=struct.pack("<Bh", f.SCALES_ONE, 1001)),
    "a shift of 63": INTEGERS.but(scales=struct.pack("<Bh", f.SCALES_ONE, 63)),
    "a negative shift": INTEGERS.but(scales=struct.pack("<Bh", f.SCALES_ONE, -1)),
    "4 billion scale runs": PACK.but(scales=struct.pack("<BI", f.SCALES_RUNS, (1 << 32) - 1)),
    "a scale run of 4 billion blocks": PACK.but(
        scales=struct.pack("<BIhI", f.SCALES_RUNS, 1, 0, (1 << 32) - 1)
    ),
    "scale runs that wrap": BLOCKS.but(
        scales=struct.pack("<BI2h2I", f.SCALES_RUNS, 2, 0, 0, (1 << 32) - 1, 7)
    ),
    "scale runs that say too little": PACK.but(scales=struct.pack("<BIhI", f.SCALES_RUNS, 1, 0, 0)),
    "dense scales past 16 bits": BLOCKS.but(scales=struct.pack("<Bh", f.SCALES_DENSE, 32767) + b"\1" * 7),
    "dense scales too few": BLOCKS.but(scales=struct.pack("<Bh", f.SCALES_DENSE, 0) + b"\1"),
    "plain scales too many": PACK.but(scales=struct.pack("<B", f.SCALES_PLAIN) + bytes(4)),
    # quantizers
    "linear bytes": PACK.but(dtype=INT8),
    "linear complex numbers": PACK.but(dtype=f.DTYPES.index("complex64")),
    "linear float8": PACK.but(dtype=f.DTYPES.index("float8_e4m3fn")),
    "logarithmic integers": LOG.but(dtype=INT32),
    "8 bits of mantissa": LOG.but(parameter=8),
    "a base below zero": LOG.but(scales=struct.pack("<Bh", f.SCALES_ONE, -1)),
    "a base past infinity": LOG.but(scales=struct.pack("<Bh", f.SCALES_ONE, 32767)),
    "codes below zero": LOG.but(scales=struct.pack("<Bh", f.SCALES_ONE, 0)),
    "no bucket values": EXPONENT.but(scales=b""),
    "half a bucket value": EXPONENT.but(scales=EXPONENT.scales[:-1]),
    "too few bucket values": EXPONENT.but(scales=bytes(4)),
    "129 bucket values": EXPONENT.but(scales=bytes(4 * 129)),
    "a bucket value that is not a number": EXPONENT.but(scales=EXPONENT.scales[:-4] + b"\xff" * 4),
    "a zero that is not zero": EXPONENT.but(scales=b"\0\0\x80\x3f" + EXPONENT.scales[4:]),
    "integers in buckets": EXPONENT.but(dtype=INT32),
    # matrices of second moments
    **factored(),
    # lossless frames
    "planes of a quantizer": PLANES.but(quantizer=f.LINEAR),
    "raw floats of a quantizer": RAW.but(quantizer=f.LOG),
    "lossless frames with scales": BYTES.but(scales=b"\0\0\0"),
    "planes with a table": PLANES.but(table=TWO),
    "an exact float that is packed": BYTES.but(dtype=FLOAT16),
    "raw floats of which half of one is missing": RAW.but(
        dtype=FLOAT16, count=RAW.count // 2, payload=RAW.payload[:-1]
    ),
    "raw floats with a directory": RAW.but(dtype=FLOAT16, count=RAW.count // 2, directory=bytes(16)),
    "zeros of wide values with a turn": ZERO.but(quantizer=f.LOSSLESS, scales=b"", parameter=3),
    "one plane of two": PLANES.but(directory=PLANES.directory[:8], payload=PLANES.payload[:8]),
    "four planes of two": PLANES.but(directory=PLANES.directory + bytes(16)),
    "planes that are longer than the payload": PLANES.but(directory=struct.pack("<2Q", 1 << 40, 5)),
    "planes whose lengths wrap": PLANES.but(
        directory=struct.pack("<2Q", (1 << 64) - 10, len(PLANES.payload) + 10)
    ),
    "planes that overlap": PLANES.but(directory=struct.pack("<2Q", 60, len(PLANES.payload) - 60)),
    "planes turned by two": PLANES.but(parameter=2),
    "planes of nothing": PLANES.but(count=0, directory=bytes(16), payload=b""),
    "planes that hold planes": nested(1),
    "planes that hold planes that hold planes": nested(6),
    "planes of too many elements": plane(RAW.but(count=4, payload=b"abcd")).but(count=5),
    "planes of 2^40 elements": plane(RAW.but(count=4, payload=b"abcd")).but(count=1 << 40),
    "planes of other dtypes": plane(RAW.but(count=4, payload=b"abcd", dtype=INT8)),
    "planes of levels": plane(ZERO.but(count=4)),
    "planes of wide levels": plane(WIDE.but(quantizer=f.LOSSLESS, dtype=UINT8, scales=b"")),
    "planes that hold kinds": plane(KINDS.but(dtype=UINT8)),
    # integers by their kinds
    "planes that hold gaps": plane(GAPS.but(dtype=UINT8)),
    "gaps of nothing": GAPS.but(count=0),
    "gaps without runs": GAPS.but(directory=b""),
    "gaps without a word": GAPS.but(directory=GAPS.directory[:-8]),
    "gaps without the last run": GAPS.but(directory=GAPS.directory[:-16]),
    "gaps of a byte more": GAPS.but(directory=GAPS.directory + b"\0"),
    "gaps of a parameter": GAPS.but(parameter=1),
    "gaps of a quantizer": GAPS.but(quantizer=f.LINEAR),
    "gaps with a table": GAPS.but(table=TWO),
    "gaps with scales": GAPS.but(scales=b"\0\0\0"),
    "gaps that end behind the frame": gaps(80, 300, 300, 9, count=688),
    "gaps whose runs wrap": gaps((1 << 64) - 80, 300, 300, 9),
    "gaps of a run of nothing": gaps(80, 300, 300, 9, 1, 0),
    "gaps of nothing between runs": gaps(80, 300, 0, 9),
    "gaps with an element more": gaps(80, 301, 300, 9),
    "gaps of another dtype": GAPS.but(dtype=INT32),
    "gaps around levels": GAPS.but(payload=PACK.but(count=309, dtype=GAPS.dtype).to_bytes()),
    "gaps around gaps": GAPS.but(payload=gaps(0, 309, count=309).to_bytes()),
    "gaps around bytes": GAPS.but(payload=GAPS.payload + b"\0"),
    "kinds of floats": KINDS.but(dtype=FLOAT64),
    "kinds of bytes": KINDS.but(dtype=UINT8),
    "kinds of other integers": KINDS.but(dtype=INT32),
    "kinds of nothing": KINDS.but(count=0),
    "kinds of more elements": KINDS.but(count=KINDS.count + 1),
    "kinds of a quantizer": KINDS.but(quantizer=f.LINEAR),
    "kinds with a table": KINDS.but(table=TWO),
    "kinds with scales": KINDS.but(scales=b"\0\0\0"),
    "kinds of no parts": KINDS.but(directory=b"", payload=b""),
    "kinds of four parts": kinds(FAR, None, None, None, RAW),
    "kinds of levels alone": KINDS.but(
        directory=KINDS.directory[:8], payload=KINDS.payload[: KINDS.parts()[0]]
    ),
    "kinds shifted by all their bits": KINDS.but(parameter=64),
    "kinds that are longer than the payload": KINDS.but(directory=struct.pack("<2Q", 1 << 40, 5)),
    "kinds whose levels are not integers": kinds(KINDS, part(KINDS, 0).but(dtype=FLOAT64)),
    "kinds whose levels are narrower": kinds(KINDS, part(KINDS, 0).but(dtype=INT32)),
    "kinds whose levels are raw": kinds(
        KINDS, RAW.but(count=part(KINDS, 0).count, dtype=INT64, payload=bytes(8 * part(KINDS, 0).count))
    ),
    "kinds with one level more": kinds(KINDS, part(KINDS, 0).but(count=part(KINDS, 0).count + 1)),
    "kinds that are no bytes": kinds(KINDS, None, part(KINDS, 1).but(dtype=INT8)),
    "kinds that are kinds": kinds(KINDS, None, KINDS),
    "a kind of three": kinds(KINDS, None, RAW.but(count=KINDS.count, payload=b"\3" * KINDS.count)),
    "far ones of no kind": kinds(KINDS, None, None, part(FAR, 2)),
    "a far kind, and none listed": FAR.but(
        directory=FAR.directory[:16], payload=FAR.payload[: sum(FAR.parts()[:2])]
    ),
    "far ones that are levels": kinds(FAR, None, None, ZERO.but(count=part(FAR, 2).count, dtype=INT64)),
    "far ones of another width": kinds(FAR, None, None, part(FAR, 2).but(dtype=INT32, payload=bytes(4))),
    "a far one more": kinds(FAR, None, None, part(FAR, 2).but(count=2, payload=bytes(16))),
    "a plane with a broken checksum": PLANES.but(payload=PLANES.payload[:-1] + b"\xfe"),
    "an escape that is not a byte": PACK.but(
        count=4,
        dtype=UINT8,
        quantizer=f.LOSSLESS,
        bits=2,
        per=4,
        streams=1,
        scales=b"",
        table=table(0, 128),
        directory=directory([1, 5]),
        payload=b"\1" + b"\0\0\x10\0\0",
    ),
}
