"""Shards of a tensor: whether they make it up, and how layouts of several parts are joined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.errors import CorruptionError
from lcstore.layout.join import join, leaf_places
from lcstore.layout.layout import make_layout
from lcstore.layout.shards import MAX_CUT_DIMS, Shard, box_of, misfit, overlap, within
from lcstore.state.tree import flatten


@st.composite
def cut(draw, box, depth=3):
    """Cut a box into boxes, at random."""
    axis = draw(st.integers(0, len(box) - 1))
    low, high = box[axis]
    if depth == 0 or high - low < 2 or draw(st.booleans()):
        return [box]
    at = draw(st.integers(low, high))
    halves = [(*box[:axis], side, *box[axis + 1 :]) for side in ((low, at), (at, high))]
    return [one for half in halves for one in draw(cut(half, depth - 1))]


@given(st.data())
def test_what_is_wrong_with_boxes_is_what_counting_says(data):
    whole = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    boxes = data.draw(cut(box_of(whole)))
    if data.draw(st.booleans()):  # another box, or one less, or one that is moved
        boxes = boxes[data.draw(st.integers(0, 1)) :]
        more = tuple(tuple(sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in whole)
        boxes += [more] * data.draw(st.integers(0, 1))
    counts = np.zeros(whole, int)
    for box in boxes:
        counts[tuple(slice(low, high) for low, high in box)] += 1
    empty = any(low == high for box in boxes for low, high in box)
    good = bool((counts == 1).all())
    if boxes and not (good and empty):
        assert (misfit(whole, boxes) is None) == good
    if boxes and not empty and counts.min() and not good:
        assert misfit(whole, boxes) == "overlap"


def test_shards_in_too_many_dimensions_are_refused():
    whole = (2,) * (MAX_CUT_DIMS + 1)
    assert "dimensions" in misfit(whole, [tuple((0, 1) for _ in whole)])


def test_boxes():
    assert overlap(((0, 4), (2, 5)), ((3, 9), (0, 3))) == ((3, 4), (2, 3))
    assert overlap(((0, 4),), ((4, 5),)) is None
    assert within(((3, 4),), ((1, 9),)) == (slice(2, 3),)
    assert Shard((8, 4, 6), (2, 0, 0)).runs((3, 4, 6)) == ([72], [192], [48])
    assert Shard((8, 4, 6), (2, 1, 0)).runs((3, 2, 6)) == ([3, 12], [8, 24], [2, 6])
    assert Shard((8, 4), (0, 0)).fits((8, 4))
    assert not Shard((8, 4), (0, 0)).fits((8,))
    assert not Shard((8, 4), (1, 0)).fits((8, 4))


def part(state, shards=None, roles="weights"):
    """The layout of a nested dict, with some of its tensors shards."""
    flat = flatten(state)
    entries = [
        (name, host.array.shape, str(host.array.dtype), roles, host.framework, (shards or {}).get(name))
        for name, host in flat.tensors
    ]
    return make_layout(flat.structure, entries)


def rows(count, start, of=8):
    return {("w",): Shard((of, 3), (start, 0))}, np.zeros((count, 3), np.float32)


def test_a_joined_layout_has_the_tensors_of_all_parts():
    first, upper = rows(5, 0)
    second, lower = rows(3, 5)
    one = part({"a": {"x": np.zeros((2, 2), np.float32)}, "w": upper, "lr": 1.0}, first)
    other = part({"w": lower, "a": {"y": np.zeros(4, np.float32)}, "seed": 3}, second)
    found = join([("0", one), ("7", other)])
    assert [spec.name for spec in found.wholes] == [("a", "x"), ("a", "y"), ("w",)]
    assert [spec.shape for spec in found.wholes] == [(2, 2), (4,), (8, 3)]
    assert found.shards == ((0,), (3,), (1, 2))
    assert list(found.pools) == ["weights-float32", "7/weights-float32"]
    assert found.pools["7/weights-float32"].role == "weights"
    assert leaf_places(found) == [[(0, 0)], [(1, 0)]]
    values = {0: np.zeros(4), 1: np.arange(15.0), 2: np.arange(15, 24.0), 3: np.ones(4)}
    np.testing.assert_array_equal(found.put_together(values, [2])[2], np.arange(24.0))
    again = join([("0", one), ("7", part({"w": lower, "b": np.zeros(2, np.float32)}, second))])
    assert again.places_in(found).tolist() == [0, 1, 2, -1]
    assert join([("0", part({"x": upper}))]).parts == ()
    assert [p.name for p in join([("2", part({"x": upper}))]).parts] == ["2"]


WRONG = {
    "overlap": (rows(5, 0), rows(4, 4)),
    "leave gaps": (rows(5, 0), rows(2, 5)),
    "other shapes": (rows(5, 0), rows(3, 5, of=9)),
    "other shapes or dtypes": (rows(5, 0), (rows(3, 5)[0], np.zeros((3, 3), np.float64))),
}


@pytest.mark.parametrize("what", WRONG)
def test_shards_that_do_not_make_up_their_tensor_are_refused(what):
    (first, upper), (second, lower) = WRONG[what]
    parts = [("0", part({"w": upper}, first)), ("1", part({"w": lower}, second))]
    with pytest.raises(CorruptionError, match=what):
        join(parts)
    with pytest.raises(CorruptionError, match="gaps"):  # a lone shard is not the tensor
        join(parts[:1])


def test_a_tensor_that_two_parts_have_is_refused():
    both = part({"w": np.zeros((3, 3), np.float32)})
    with pytest.raises(CorruptionError, match="overlap"):
        join([("0", both), ("1", both)])


@pytest.mark.parametrize(
    "other", [{"a": 1}, {"a": [np.zeros(2)]}, {"a": {"x": 1}}, {"a": np.zeros(2)}, {"a": [1, 2, 3]}]
)
def test_parts_whose_containers_contradict_each_other_are_refused(other):
    with pytest.raises(CorruptionError, match="part"):
        join([("0", part({"a": [1, 2]}, roles="plain")), ("1", part(other, roles="plain"))])
