"""The specification of frames says what the code does: its tables, and its example."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from frame_builder import encode_factored, take_apart, unpacked

from lcstore import limits
from lcstore.codec import LCCodec
from lcstore.codec.factored import Part
from lcstore.codec.predicted import encode_predicted
from lcstore.codec.predictors import Predictor
from lcstore.coders import format as f
from lcstore.coders.stepsize import StepSize
from lcstore.kernels import factored

DOC = Path(__file__).parents[2] / "docs" / "format" / "frame.md"
pytestmark = pytest.mark.skipif(not DOC.is_file(), reason="the documentation is not beside the tests")


@pytest.fixture(scope="module")
def text():
    return DOC.read_text()


@pytest.fixture(scope="module")
def examples(text):
    return [bytes.fromhex(found) for found in re.findall(r"```text\n([0-9a-f\s]+)```", text)]


@pytest.fixture(scope="module")
def example(examples):
    return examples[0]


def wanted():
    values = np.zeros(64, np.float32)
    values[[0, 3, 4, 20, 63]] = [0.5, -0.5, 0.5, 1.0, -4.5]
    return values


def test_the_example_decodes(example):
    np.testing.assert_array_equal(LCCodec().decode(example), wanted())


def test_the_example_is_what_is_written(example):
    assert LCCodec(step_size=0.5, entropy="runs").encode(wanted()) == example


def moments():
    values = np.full((8, 8), 2.0**-20, np.float32)
    values[:, 3], values[7, 4], values[2, 5] = 2.0**-16, 2.0**-17, 0
    return values.reshape(-1)


def test_the_sorted_example_is_what_is_written_and_what_comes_back(examples):
    assert encode_factored(moments(), [Part(0, 64, 8, 0)], 16) == examples[1]
    assert unpacked(take_apart(examples[1])) == examples[2]
    back = LCCodec().decode(examples[1]).reshape(8, 8)
    assert (back[2, 5], back[7, 4], back[0, 0]) == (0, 1.03125 * 2.0**-17, 1.03125 * 2.0**-20)
    np.testing.assert_array_equal(back == 0, moments().reshape(8, 8) == 0)


def field():
    values = 0.75 * np.add.outer(np.arange(4), 2 * np.arange(8)).astype(np.float32)
    values[1, 2], values[2, 5] = np.nan, values[2, 5] + 2.25
    return values


def test_the_predicted_example_is_what_is_written_and_what_comes_back(text, examples):
    made = encode_predicted(field().reshape(-1), StepSize(-1, 128), Predictor((4, 8), (1, 1)))
    assert made == examples[3]
    np.testing.assert_array_equal(LCCodec().decode(examples[3]).reshape(4, 8), field())
    rows = re.findall(
        r"^\| ([-0-9. ]+) \| ([-0-9. ]+) \| ([-0-9. ]+) \|$", text.split("as coded")[1], re.MULTILINE
    )
    coded, columns, levels = (
        np.array([[np.nan if n == "." else int(n) for n in row[i].split()] for row in rows]) for i in range(3)
    )
    np.testing.assert_array_equal(levels * np.float32(0.75), field())
    np.testing.assert_array_equal(np.nancumsum(columns, axis=1)[~np.isnan(levels)], levels[~np.isnan(levels)])
    part = take_apart(examples[3])
    first = LCCodec().decode(part.payload[: part.parts()[0]])
    np.testing.assert_array_equal(first, coded[~np.isnan(coded)])


def test_the_tables_of_the_examples_hold_their_bytes(text, examples):
    assert len(examples) == 4
    for table, example in zip(text.split("| bytes | meaning |")[1:], examples, strict=True):
        rows = table.split("\n\n")[0]
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
    assert "0 lossless, 1 linear, 2 exponent, 3 logarithmic, 4 factored, 5 predicted, 6 sorted" in text
    assert f.QUANTIZERS == (f.LOSSLESS, f.LINEAR, f.EXPONENT, f.LOG, f.FACTORED, f.PREDICTED, f.SORTED)
    assert tuple(range(7)) == f.QUANTIZERS
    lasts = f"The last code is {factored.LAST_4} or {factored.LAST_8}"
    assert lasts in text
    assert (factored.DROP_4, factored.DROP_8, factored.MOST, factored.ZERO) == (19, 48, 1 << 17, -1)
    assert "0 zero, 1 pack, 2 runs, 3 wide, 4 planes, 5 raw, 6 kinds, 7 gaps |" in text
    assert (*f.CODED, *f.COMPOSITE, f.RAW, f.ZERO) == (1, 2, 3, 4, 6, 7, 5, 0)
    assert (limits.MAX_FRAME_ELEMENTS, limits.MAX_UNSTATED_BYTES >> 20) == (1 << 40, 64)
    assert limits.MAX_UNSTATED_EXPANSION == 4096
