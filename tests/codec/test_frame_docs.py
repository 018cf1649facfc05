"""The specification of frames says what the code does: its tables, and its example."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from lcstore import limits
from lcstore.codec import LCCodec
from lcstore.codec import format as f
from lcstore.kernels import bits

DOC = Path(__file__).parents[2] / "docs" / "format" / "frame.md"
pytestmark = pytest.mark.skipif(not DOC.is_file(), reason="the documentation is not beside the tests")


@pytest.fixture(scope="module")
def text():
    return DOC.read_text()


@pytest.fixture(scope="module")
def example(text):
    return bytes.fromhex(re.search(r"```text\n([0-9a-f\s]+)```", text)[1])


def wanted():
    values = np.zeros(64, np.float32)
    values[[0, 3, 4, 20, 63]] = [0.5, -0.5, 0.5, 1.0, -4.5]
    return values


def test_the_example_decodes(example):
    np.testing.assert_array_equal(LCCodec().decode(example), wanted())


def test_the_example_is_what_is_written(example):
    assert LCCodec(step=0.5, entropy="runs").encode(wanted()) == example


def test_the_table_of_the_example_holds_its_bytes(text, example):
    rows = text.split("| bytes | meaning |")[1].split("\n\n")[0]
    cells = [row.split("|")[1] for row in rows.splitlines() if "`" in row]
    shown = "".join(re.findall(r"`([0-9a-f ]+)`", "".join(cells)))
    assert bytes.fromhex(shown) == example


def test_the_header_is_as_documented(text):
    rows = re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", text, re.MULTILINE)
    offsets = [int(offset) for offset, _, _ in rows]
    sizes = [int(size) for _, size, _ in rows]
    assert offsets == np.cumsum([0, *sizes])[:-1].tolist()
    assert sum(sizes) == f.HEADER.size == 48
    kinds = re.findall(r"3s|[BHIQ]", f.HEADER.format)
    assert sizes == [struct.calcsize("<" + kind) for kind in kinds]
    assert offsets[3] == f.CHECKED_FROM


def test_the_codes_are_as_documented(text):
    listed = dict(re.findall(r"(\d+) `((?:float|bfloat|u?int|bool|complex)\w*)`", text))
    assert [listed[str(i)] for i in range(len(listed))] == list(f.DTYPES)
    assert "0 exact, 1 linear, 2 exponent, 3 logarithmic" in text
    assert (f.EXACT, f.LINEAR, f.EXPONENT, f.LOG) == (0, 1, 2, 3)
    assert "0 zero, 1 pack, 2 runs, 3 wide, 4 planes, 5 raw" in text
    assert (f.ZERO, f.PACK, f.RUNS, f.WIDE, f.PLANES, f.RAW) == (0, 1, 2, 3, 4, 5)
    assert f"{bits.PADDING:,} zero bytes" in text
    assert (limits.MAX_FRAME_ELEMENTS, limits.MAX_UNSTATED_BYTES >> 20) == (1 << 40, 128)
    assert limits.MAX_UNSTATED_EXPANSION == 4096
