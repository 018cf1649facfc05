"""Groups of tensors: every tensor in one, and globs that match it and no other."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.errors import InvalidInputError
from lcstore.state.names import match
from lcstore.tune.groups import cover, given_groups, make_groups

NUMBERS = st.sets(st.integers(0, 130).map(str) | st.text("0123456789", min_size=1, max_size=3), min_size=1)
PARTS = st.sampled_from(
    ["a", "w1", "layers.0.w", "layers.12.w", "layers.3.w", "[x]", "e.1.w2", "e.3.w2", 0, 7]
)


def prefix_free(sizes: dict[tuple[str | int, ...], int]) -> dict[tuple[str | int, ...], int]:
    """Return the names that no other lies below: what holds others is no tensor."""
    return {
        name: size
        for name, size in sizes.items()
        if not any(n[: len(name)] == name for n in sizes if n != name)
    }


SIZES = st.dictionaries(
    st.lists(PARTS, min_size=1, max_size=3).map(tuple), st.integers(1, 1000), min_size=1
).map(prefix_free)


@given(NUMBERS, st.text("0123456789", min_size=1, max_size=4))
def test_covering_globs_match_these_numbers_and_no_others(numbers, other):
    globs = cover(numbers)
    assert all(any(fnmatchcase(number, glob) for glob in globs) for number in numbers)
    assert any(fnmatchcase(other, glob) for glob in globs) == (other in numbers)


def test_whole_ranges_take_few_globs():
    assert cover(map(str, range(27))) == ["[0-9]", "1[0-9]", "2[0-6]"]
    assert cover({"8", "9", "10"}) == ["[8-9]", "10"]


@given(SIZES, st.integers(1, 12))
def test_every_tensor_is_in_one_group_and_its_globs_find_it_alone(sizes, most):
    groups = make_groups(sizes, most)
    assert len(groups) <= most
    assert sorted(map(str, (p for g in groups for p in g.names))) == sorted(map(str, sizes))
    for group in groups:
        assert group.elements == sum(sizes[path] for path in group.names)
        found = {path for path in sizes if any(match(glob, path) for glob in group.globs)}
        assert found == set(group.names)


def test_depth_is_split_off_first_last_and_in_halves():
    sizes = {("model", f"layers.{i}.up.weight"): 100 for i in range(12)} | {("model", "tok.weight"): 50}
    globs = [group.globs for group in make_groups(sizes, 5)]
    assert globs == [
        ("model/layers.0.up.weight",),
        ("model/layers.[1-5].up.weight",),
        ("model/layers.[6-9].up.weight", "model/layers.10.up.weight"),
        ("model/layers.11.up.weight",),
        ("model/tok.weight",),
    ]
    assert len(make_groups(sizes, 100)) == 13


def test_groups_of_the_user():
    sizes = {("m", name): 10 for name in ("a.weight", "b.weight", "c.weight")}
    groups = given_groups(sizes, ["m/a*", "m/[ab]*"], 3)
    assert [group.names for group in groups] == [(path,) for path in sizes]
    with pytest.raises(InvalidInputError, match="'m/x'"):
        given_groups(sizes, ["m/x"], 3)
    with pytest.raises(InvalidInputError, match="2 would do"):
        given_groups(sizes, ["m/a*", "m/b*"], 2)
