"""What a record tells of a policy."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.index.recorded import numbers_of, policy_of_numbers, told_of
from lcstore.track.policy import PRESETS, Policy

NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**63), 2**63)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_come_back_by_name(name):
    assert policy_of_numbers(numbers_of(PRESETS[name])) == (PRESETS[name], False)
    assert told_of(numbers_of(PRESETS[name])) == name


def test_numbers_of_ones_own_come_back():
    policy = Policy(0.5, 2.0, None, name="mine")
    found = policy_of_numbers(numbers_of(policy))
    assert found == (Policy(0.5, 2.0, None, name="custom"), False)
    assert told_of(numbers_of(policy)) == "error 0.5, first moments 2 bits, second moments exact"


@pytest.mark.parametrize(
    "more",
    [{"rules": {"a": "plain"}}, {"bytes_per_save": 1000}, {"row_error": None}, {"weighted": True}],
    ids=lambda more: next(iter(more)),
)
def test_what_numbers_do_not_tell_is_told_of(more):
    stats = numbers_of(Policy(**more))
    found = policy_of_numbers(stats)
    assert found is not None
    assert found[1]
    assert (told_of(stats) or "").endswith(", with rules or bounds of its own")


def test_records_of_before_do_not_tell():
    assert policy_of_numbers({"bytes_raw": 3}) is None
    assert told_of({}) is None


@given(st.dictionaries(st.sampled_from([*numbers_of(Policy())]), NUMBERS))
def test_any_numbers_are_a_policy_or_none(stats):
    found = policy_of_numbers(stats)
    if found is not None:
        assert isinstance(found[0], Policy)
        assert found[0].error is None or math.isfinite(found[0].error)
