"""A counter is the same counter as a plain number and as a tensor without dimensions."""

from __future__ import annotations

import numpy as np
import pytest

import lcstore


def _given(state, like):
    store = lcstore.open("memory://numbers-" + np.random.default_rng().bytes(8).hex())
    store.save(0, state)
    return store.resume(like=like)


@pytest.mark.parametrize(
    ("stored", "like", "expected"),
    [
        (np.int32(7), 0, 7),
        (np.array(7, np.uint64), 0, 7),
        (np.array(2**64 - 1, np.uint64), 0, 2**64 - 1),
        (np.float32(0.5), 0.0, 0.5),
        (np.array(3, np.int8), 0.0, 3.0),
        (np.array(True), False, True),
        (np.complex64(1 + 2j), 0j, 1 + 2j),
        (7, np.zeros((), np.int32), np.int32(7)),
        (7, np.zeros((), np.float32), np.float32(7)),
        (0.5, np.zeros((), np.float32), np.float32(0.5)),
        (True, np.zeros((), bool), np.bool_(True)),
    ],
)
def test_either_is_given_for_the_other(stored, like, expected):
    given = _given({"step": stored}, {"step": like})["step"]
    assert given == expected
    assert np.asarray(given).dtype == np.asarray(expected).dtype
    assert isinstance(given, type(like))


@pytest.mark.parametrize(
    ("stored", "like", "said"),
    [
        (np.float32(0.5), 0, "more than precision"),
        (np.float32(0.5), False, "more than precision"),
        (np.array([7]), 0, "single int"),
        (300, np.zeros((), np.uint8), "do not fit"),
        (2**70, np.zeros((), np.int64), "past 64 bits"),
        (7, np.zeros((2,), np.int64), "shape"),
        (0.5, np.zeros((), np.int64), "more than precision"),
        (np.int32(7), "seven", "not stored as such"),
        (np.int32(7), None, "not stored as such"),
        ("seven", np.zeros((), np.int32), "not stored as such"),
    ],
)
def test_nothing_is_lost_without_a_word(stored, like, said):
    with pytest.raises(lcstore.InvalidInputError, match=rf"step.*{said}|{said}.*step"):
        _given({"step": stored}, {"step": like})
