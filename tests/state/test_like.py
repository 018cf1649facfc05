"""The containers of one tree around the values of another."""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
import typing

import numpy as np
import pytest

from lcstore.errors import InvalidInputError, LimitError
from lcstore.state.like import fill_like


class Adam(typing.NamedTuple):
    count: object
    mu: object


@dataclasses.dataclass(frozen=True)
class Train:
    params: object
    opt: object
    apply: object = dataclasses.field(default=print, metadata={"static": True})


class Abstract:
    shape = (2,)
    dtype = np.dtype("float32")


def test_containers_keep_their_types():
    like = {
        "train": Train({"w": Abstract()}, (Adam(0, [np.zeros(1)]), ())),
        "frozen": types.MappingProxyType({"a": 1}),
        "ordered": collections.OrderedDict(b=2),
        "default": collections.defaultdict(list, {"c": 3}),
    }
    seen = {}
    fill_like(like, seen.__setitem__)
    assert list(seen) == [
        *[("train", "params", "w"), ("train", "opt", 0, "count"), ("train", "opt", 0, "mu", 0)],
        *[("frozen", "a"), ("ordered", "b"), ("default", "c")],
    ]
    filled = fill_like(like, lambda path, leaf: path)
    assert filled["train"] == Train(
        {"w": ("train", "params", "w")},
        (Adam(("train", "opt", 0, "count"), [("train", "opt", 0, "mu", 0)]), ()),
    )
    assert filled["train"].apply is print
    assert type(filled["frozen"]) is types.MappingProxyType
    assert type(filled["ordered"]) is collections.OrderedDict
    assert filled["default"] == {"c": ("default", "c")}
    assert filled["default"].default_factory is list


def test_the_leaf_is_given_to_the_filler():
    leaf = Abstract()
    assert fill_like([leaf], lambda path, obj: obj)[0] is leaf


def test_what_is_no_tensor_is_an_error_that_names_the_path():
    with pytest.raises(InvalidInputError, match="'a/#0'"):
        fill_like({"a": [object()]}, lambda path, leaf: leaf)


def test_a_circle_ends():
    loop = []
    loop.append(loop)
    with pytest.raises(LimitError):
        fill_like(loop, lambda path, leaf: leaf)


def test_objects_with_a_state_dict_become_what_it_returns():
    @dataclasses.dataclass
    class Module:
        weight: object

        def state_dict(self):
            return collections.OrderedDict(w=self.weight)

    back = fill_like({"model": Module(1)}, lambda path, leaf: leaf + 1)
    assert back == {"model": collections.OrderedDict(w=2)}
    assert type(back["model"]) is collections.OrderedDict


def test_a_named_tuple_may_have_a_constructor_of_its_own():
    class Pair(Adam):
        def __new__(cls, both):
            return super().__new__(cls, both, both)

    back = fill_like([Pair(1)], lambda path, leaf: leaf + 1)
    assert type(back[0]) is Pair
    assert back[0] == (2, 2)


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True}])
def test_a_dataclass_is_filled_with_what_is_stored_and_makes_nothing_of_it(options):
    @dataclasses.dataclass(**options)
    class Derived:
        x: object
        y: object = dataclasses.field(default=0, init=False)
        kept: object = dataclasses.field(default="kept", metadata={"static": True})

        def __post_init__(self):
            object.__setattr__(self, "x", 2 * self.x)

    obj = Derived(1)
    made = fill_like({"a": obj}, lambda path, leaf: path[1])["a"]
    assert (type(made), made.x, made.y, made.kept) == (Derived, "x", "y", "kept")
    assert (obj.x, obj.y) == (2, 0)


def test_a_dataclass_makes_anew_what_it_makes_of_its_fields():
    @dataclasses.dataclass
    class Scaled:
        x: object

        def __post_init__(self):
            self.half = self.x / 2
            self.x = None

    made = fill_like(Scaled(2), lambda path, leaf: 8)
    assert (made.x, made.half) == (8, 4)


def test_a_dataclass_keeps_what_is_no_field_of_it():
    class Base:
        __slots__ = ("__weakref__", "seen")

    @dataclasses.dataclass(slots=True)
    class Part(Base):
        x: object

        def __init__(self):
            self.x = 1

    @dataclasses.dataclass
    class Problem(Exception):
        x: object

    obj, problem = Part(), Problem(1)
    obj.seen = 7
    made = fill_like([obj, problem], lambda path, leaf: leaf + 1)
    assert (made[0].x, made[0].seen, type(made[1]), made[1].x) == (2, 7, Problem, 2)


def test_a_dataclass_that_makes_itself_of_something_else_is_filled():
    @dataclasses.dataclass(frozen=True)
    class Linear:
        weight: object
        bias: object

        def __init__(self, size):
            for name in ("weight", "bias", "note"):
                object.__setattr__(self, name, size)

        @functools.cached_property
        def both(self):
            return (self.weight, self.bias)

    obj = Linear(4)
    assert obj.both == (4, 4)
    made = fill_like(obj, lambda path, leaf: path[0])
    assert made.both == ("weight", "bias")
    assert made.note == 4


def test_a_dataclass_that_cannot_be_made_is_named():
    @dataclasses.dataclass
    class Fixed:
        x: object

        @property
        def x(self):
            return 1

        @x.setter
        def x(self, value):
            if value != 1:
                raise AttributeError("x is 1")

    with pytest.raises(InvalidInputError, match=r"no .*Fixed can be made for 'a' of the like tree: x is 1"):
        fill_like({"a": Fixed(1)}, lambda path, leaf: 2)
