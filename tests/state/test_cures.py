"""What cannot be stored is refused, and the message says what to store instead: that can be stored."""

from __future__ import annotations

import argparse
import datetime
import decimal
import enum
import random
import types
from collections import deque
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from lcstore.errors import InvalidInputError
from lcstore.state.tree import flatten


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Count(int):
    pass


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (argparse.Namespace(lr=0.1, layers=[1, 2]), "vars(x)"),
        (types.SimpleNamespace(lr=0.1), "vars(x)"),
        (Path("runs/gpt"), "str(x)"),
        (Colour.RED, "x.value"),
        (Level.HIGH, "x.value"),
        (Colour.RED, "x.name"),
        (np.random.default_rng(0), "x.bit_generator.state"),
        (np.random.PCG64(0), "x.state"),
        (np.random.Generator(np.random.MT19937(0)), "x.bit_generator.state"),
        (np.random.RandomState(0), "x.get_state(legacy=False)"),
        (random.Random(0), "x.getstate()"),
        ({1, 2}, "sorted(x)"),
        (deque([1]), "list(x)"),
        (range(3), "list(x)"),
        (datetime.timedelta(1), "x.total_seconds()"),
        (datetime.datetime(2026, 1, 1), "x.isoformat()"),
        (decimal.Decimal("0.1"), "str(x)"),
        (np.dtype("f4"), "str(x)"),
        (bytearray(b"a"), "bytes(x)"),
        (slice(1, 2), "(x.start, x.stop, x.step)"),
        (Count(3), "int(x)"),
    ],
)
def test_the_message_says_what_can_be_stored(x, said):
    with pytest.raises(InvalidInputError, match="at 'here' cannot be stored: store") as caught:
        flatten({"here": x})
    assert said in caught.value.message
    flatten({"here": eval(said, {"x": x})})


def test_of_a_deque_it_says_what_suits_many_entries():
    """A replay buffer that is stored as a list takes several times what its arrays do."""
    with pytest.raises(InvalidInputError, match=r"store list\(x\), or of many entries .* \(np\.stack\)"):
        flatten({"replay": deque([(np.zeros(4), 1)])})


def test_all_that_cannot_be_stored_is_named_at_once():
    args = argparse.Namespace(out=Path("runs"), level=Level.HIGH, lr=0.1)
    odd = {
        "args": args,
        "words": np.array(["a"]),
        "w": np.ones(3),
        "code": len,
        "at": datetime.date(2026, 1, 1),
    }
    with pytest.raises(InvalidInputError) as caught:
        flatten(odd)
    said = caught.value.message.split("; ")
    assert [one.split("'")[1] for one in said[:-1]] == ["args", "args/out", "args/level", "words", "code"]
    assert said[0].startswith("an argparse.Namespace at 'args' cannot be stored: store vars(x)")
    assert said[-1] == "and 1 more such value"
    with pytest.raises(InvalidInputError, match=r"at 'x' cannot be stored: store str\(x\)$"):
        flatten({"x": Path("a"), "y": 1})
    args.itself = args
    with pytest.raises(InvalidInputError, match="holds itself"):
        flatten(args)


@pytest.mark.parametrize("code", [len, lambda: 0, Path, Path().exists])
def test_code_is_refused(code):
    with pytest.raises(InvalidInputError, match="code is no data"):
        flatten([code])


def test_generators_go_on_from_the_states_that_the_messages_name():
    for made in (np.random.default_rng(1), np.random.Generator(np.random.MT19937(1))):
        kept = made.bit_generator.state
        flatten(kept)
        expected = made.random(3)
        made.bit_generator.state = kept
        assert (made.random(3) == expected).all()


@pytest.mark.parametrize(
    "x",
    [
        np.array(["a", "bc"]),
        np.array([b"a"]),
        np.array(["a", "bc"], np.dtypes.StringDType()),
        np.array([1, "a", None], object),
        np.array(["2026-11-23"], "datetime64[D]"),
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")]),
    ],
)
def test_arrays_of_no_numbers(x):
    with pytest.raises(InvalidInputError, match=r"\(store .*\)$") as caught:
        flatten({"here": x})
    flatten({"here": eval(caught.value.message.rpartition("(store ")[2][:-1], {"x": x})})


@pytest.mark.parametrize(
    ("dtype", "said"),
    [([("float0", "V")], "leave it out"), (ml_dtypes.int2, "to int8"), (ml_dtypes.uint2, "to uint8")],
)
def test_arrays_of_numbers_that_none_can_hold(dtype, said):
    with pytest.raises(InvalidInputError, match=rf"cannot be stored \([^()]*{said}\)$"):
        flatten({"here": np.zeros(2, dtype)})


def test_of_torch():
    torch = pytest.importorskip("torch")
    made = torch.Generator()
    for x, said in (
        (made, "x.get_state()"),
        (torch.float32, "str(x)"),
        (torch.device("cpu"), "str(x)"),
    ):
        with pytest.raises(InvalidInputError, match="cannot be stored: store") as caught:
            flatten([x])
        assert said in caught.value.message
        flatten([eval(said, {"x": x})])


@pytest.mark.parametrize(
    "key", [True, 1.5, None, (1, 2), "a\ud800", 2**63, np.int64(1), np.str_("a"), Colour.RED, b"\xff"]
)
def test_a_key_that_cannot_be_stored_is_told_what_can(key):
    with pytest.raises(InvalidInputError, match="64-bit integers, so write ") as caught:
        flatten({"model": {key: 1}})
    said = caught.value.message.rpartition("write ")[2].removesuffix(", or a name of yours")
    flatten({"model": {eval(said, {"key": key}): 1}})
