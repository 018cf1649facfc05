"""Strict JSON: exact round trips, one spelling, and no input that raises anything but an error of ours."""

from __future__ import annotations

import json
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import json_values

from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError, LimitError
from lcstore.format.strictjson import dumps, loads, outline
from lcstore.limits import MAX_JSON_DEPTH, MAX_JSON_DIGITS


def same(one, other):
    """Equality that tells -0.0 from 0.0, and True from 1."""
    return repr(one) == repr(other) or (isinstance(one, dict) and sorted_repr(one) == sorted_repr(other))


def sorted_repr(value):
    if isinstance(value, dict):
        return "{" + ",".join(f"{name!r}:{sorted_repr(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(sorted_repr, value)) + "]"
    return repr(value)


@given(json_values)
def test_round_trip_is_exact(value):
    text = dumps(value)
    assert sorted_repr(loads(text, key="k")) == sorted_repr(value)
    assert dumps(loads(text, key="k")) == text
    assert text.isascii()


@given(st.dictionaries(st.text("ab\u00e9", max_size=3), st.integers()), st.randoms())
def test_one_value_has_one_spelling(value, chance):
    items = list(value.items())
    chance.shuffle(items)
    assert dumps(dict(items)) == dumps(value)


HOSTILE = {
    "duplicate key": b'{"a":1,"a":2}',
    "duplicate key, escaped": b'{"a":1,"\\u0061":2}',
    "duplicate key, deep": b'[{"x":{"a":1,"b":2,"a":1}}]',
    "NaN": b"[NaN]",
    "Infinity": b"Infinity",
    "-Infinity": b'{"a":-Infinity}',
    "float out of range": b"[1e999]",
    "float out of range, negative": b"-1e400",
    "trailing data": b"{} {}",
    "trailing byte": b"{}\0",
    "nothing": b"",
    "blanks": b"  \n",
    "bad UTF-8": b'"\xff"',
    "overlong UTF-8": b'"\xc0\xaf"',
    "UTF-8 surrogate": b'"\xed\xa0\x80"',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "lone surrogate": b'["\\ud800"]',
    "lone surrogate, key": b'{"\\uDFFF":1}',
    "control character": b'"a\nb"',
    "single quotes": b"{'a':1}",
    "trailing comma": b"[1,]",
    "leading zero": b"01",
    "plus": b"+1",
    "hex": b"0x10",
    "comment": b"1 // one",
    "bare word": b"nul",
    "unbalanced": b"[" * 100,
    "unbalanced, other way": b"]" * 100,
    "mixed brackets": b"[}",
}
TOO_MUCH = {
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep, unbalanced": b"[" * 100_000,
    "deep behind an escape": b'["\\"",' + b"[" * 200 + b"]" * 200 + b"]",
    "just too deep": b"[" * (MAX_JSON_DEPTH + 1) + b"]" * (MAX_JSON_DEPTH + 1),
    "4,301 digits": b"9" * 4_301,
    "4,301 digits, negative": b"[-" + b"1" * 4_301 + b"]",
    "just too many digits": b"1" * (MAX_JSON_DIGITS + 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_strict_json_is_corruption(name):
    with pytest.raises(CorruptionError) as caught:
        loads(HOSTILE[name], key="nodes/x")
    assert caught.value.key == "nodes/x"


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_a_limit(name):
    began = time.process_time()
    with pytest.raises(LimitError) as caught:
        loads(TOO_MUCH[name], key="nodes/x")
    assert caught.value.key == "nodes/x"
    assert time.process_time() - began < 1


def test_length_is_limited_before_anything_is_read():
    with pytest.raises(LimitError):
        loads(b'"' + b"x" * 100 + b'"', key="k", max_bytes=101)
    assert loads(b'"' + b"x" * 100 + b'"', key="k", max_bytes=102) == "x" * 100


def test_depth_is_limited_even_where_python_would_recurse(monkeypatch):
    deep = b"[" * 5_000 + b"]" * 5_000
    sys.setrecursionlimit(limit := sys.getrecursionlimit())
    assert limit < 5_000
    with pytest.raises(LimitError):
        loads(deep, key="k")


def test_what_is_just_allowed_is_read():
    deep = b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH
    assert dumps(loads(deep, key="k")) == deep
    assert loads(b"-" + b"1" * MAX_JSON_DIGITS, key="k") == -int("1" * MAX_JSON_DIGITS)
    # A run of digits inside a text is no integer.
    assert loads(b'["' + b"1" * 5_000 + b'", 7]', key="k") == ["1" * 5_000, 7]


@pytest.mark.parametrize("text", ["[" * 500, "]{" * 300, '\\"[[{' * 200, "\\" * 501, '"' * 99 + "[" * 200])
def test_brackets_inside_texts_do_not_count(text):
    assert loads(dumps({text: [text]}), key="k") == {text: [text]}
    assert outline(dumps({text: [text]})).depth == 2


@given(json_values)
def test_nesting_is_never_underestimated(value):
    def depth(item):
        if isinstance(item, dict):
            return 1 + max(map(depth, item.values()), default=0)
        return 1 + max(map(depth, item), default=0) if isinstance(item, list) else 0

    text = dumps([value] + [[]] * MAX_JSON_DEPTH)
    assert outline(text).depth == max(2, 1 + depth(value))


@given(st.binary(max_size=60) | st.text('[]{}",:0129e-.\\unltrfas ', max_size=60).map(str.encode))
def test_any_bytes_give_a_value_or_an_error_of_ours(data):
    try:
        value = loads(data, key="k")
    except LcstoreError:
        return
    assert same(value, json.loads(data))


@given(json_values, st.data())
def test_every_prefix_is_refused_or_is_another_value(value, data):
    text = dumps([value])
    for end in range(len(text)):
        with pytest.raises(CorruptionError):
            loads(text[:end], key="k")


class Text(str):
    pass


LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), {1: 2}, {None: 1}, {True: 1}, b"bytes", {1, 2}, object(), Text("x"),
        {Text("x"): 1}, "\ud800", {"\udfff": 1}, LOOP, 10**MAX_JSON_DIGITS, -(10**MAX_JSON_DIGITS), 1j,
        [[float("-inf")]],
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_json_cannot_hold_is_refused_when_writing(value):
    with pytest.raises(InvalidInputError):
        dumps({"a": [value]})


def test_the_deepest_value_that_is_written_can_be_read():
    value: object = 1
    for _ in range(MAX_JSON_DEPTH):
        value = [value]
    assert loads(dumps(value), key="k") == value
    with pytest.raises(InvalidInputError):
        dumps([value])
