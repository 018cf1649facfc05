"""Plain values are kept exactly, and every value has one form."""

from __future__ import annotations

import enum
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.state.leaves import decode_leaf, encode_leaf, is_leaf

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.binary(max_size=40)
)


def bits(value):
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, complex):
        return struct.pack(">dd", value.real, value.imag)
    return value


@given(scalars)
@example(-0.0)
@example(math.nan)
@example(-math.nan)
@example(math.inf)
@example(5e-324)
@example(2**53)
@example(-(2**53) - 1)
@example(10**6000)
@example("\ud83d\ude00")
@example("\ud800")
@example(complex(math.nan, -0.0))
def test_round_trip_through_json(value):
    back = decode_leaf(json.loads(json.dumps(encode_leaf(value), allow_nan=False)))
    assert type(back) is type(value)
    assert bits(back) == bits(value)


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value", [Colour.RED, np.float64(1), np.str_("a"), [], {}, object(), bytearray(b"a")]
)
def test_other_types_are_refused(value):
    assert not is_leaf(value)
    with pytest.raises(InvalidInputError):
        encode_leaf(value)


@pytest.mark.parametrize(
    "value",
    [
        2**53 + 1,
        math.nan,
        math.inf,
        "\ud800",
        [],
        {},
        {"int": "0x1"},
        {"int": "123456789012345678901234567890"},
        {"int": "0x0123456789abcdef0123"},
        {"int": "0X123456789ABCDEF01"},
        {"int": 7},
        {"int": "0x" + "f" * 20 + "\n"},
        {"float": "1.5"},
        {"float": "NaN"},
        {"float": "7ff8000000000000"},
        {"float": "3ff0000000000000"},
        {"float": None},
        {"float": ["nan"]},
        {"bytes": "YQ"},
        {"bytes": "YR=="},
        {"bytes": "Y Q=="},
        {"bytes": 3},
        {"bytes": "é"},
        {"str": "YQ=="},
        {"str": "/w=="},
        {"complex": [1, 2]},
        {"complex": [1.0]},
        {"complex": [{"complex": [0.0, 0.0]}, 0.0]},
        {"complex": 1.0},
        {"complex": {"a": 1.0, "b": 1.0}},
        {"pickle": "gASVAAA="},
        {"int": "0x20000000000001", "float": "nan"},
        {1: 2},
        b"a",
    ],
)
def test_hostile_leaves(value):
    with pytest.raises(CorruptionError):
        decode_leaf(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["int", "float", "bytes", "str", "complex", "x"]), inner, max_size=2
        )
    ),
    max_leaves=6,
)


@given(json_values)
def test_decoding_anything_gives_a_value_of_one_form_or_corruption(value):
    try:
        leaf = decode_leaf(value)
    except CorruptionError:
        return
    assert encode_leaf(leaf) == value
