"""States taken apart and put together again, and structures that storage made up."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import json
import types
import typing
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.errors import CorruptionError, InvalidInputError, LimitError
from lcstore.limits import MAX_TREE_DEPTH
from lcstore.state.frameworks import from_host
from lcstore.state.names import matcher
from lcstore.state.tree import MISSING, flatten, names_in, select, structure_names, unflatten

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.integers(-(2**63), 2**63 - 1)
arrays = st.builds(
    lambda shape, dtype, fill: np.full(shape, fill, dtype),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(["float32", "int8", "bool", "complex64", "uint64"]),
    st.integers(0, 1),
)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
states = st.recursive(
    plain | arrays,
    lambda inner: (
        st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4).map(collections.OrderedDict)
        | st.dictionaries(keys, inner, max_size=4).map(collections.Counter)
        | st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=20,
)


def rebuild(state):
    flat = flatten(state)
    structure = json.loads(json.dumps(flat.structure))
    tensors = [from_host(host.array, host.framework) for _, host in flat.tensors]
    return unflatten(structure, tensors, flat.leaves)


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return one == other


@given(states)
def test_round_trip(state):
    assert same(rebuild(state), state)


@given(states)
def test_structure_paths_are_those_of_the_tensors(state):
    flat = flatten(state)
    tensor_paths, leaf_paths = structure_names(flat.structure)
    assert tensor_paths == [path for path, _ in flat.tensors]
    assert len(leaf_paths) == len(flat.leaves)
    assert len({*tensor_paths, *leaf_paths}) == len(tensor_paths) + len(leaf_paths)


@given(states, st.randoms(use_true_random=False))
def test_select_agrees_with_missing(state, rng):
    flat = flatten(state)
    tensor_paths, leaf_paths = structure_names(flat.structure)
    kept = {path for path in tensor_paths if rng.random() < 0.5} | set(leaf_paths)

    def predicate(path):
        return path in kept or path not in tensor_paths

    chosen = select(flat.structure, predicate)
    values = [host.array for _, host in flat.tensors]
    partly = [value if path in kept else MISSING for path, value in zip(tensor_paths, values, strict=True)]
    selected = unflatten(
        chosen.structure, [values[i] for i in chosen.tensors], [flat.leaves[i] for i in chosen.leaves]
    )
    assert same(selected, unflatten(flat.structure, partly, flat.leaves))
    # What is kept keeps its path.
    assert structure_names(chosen.structure)[0] == [path for path in tensor_paths if path in kept]


@given(states)
def test_selecting_all_changes_nothing(state):
    flat = flatten(state)
    chosen = select(flat.structure, lambda path: True)
    assert chosen.structure == flat.structure
    assert chosen.tensors == list(range(len(flat.tensors)))
    assert chosen.leaves == list(range(len(flat.leaves)))
    assert select(flat.structure, lambda path: False) == (["dict", [], []], [], [])


def test_selected_lists_become_dicts_by_place():
    state = {"layers": [1, 2, {"w": 3}], "odd": collections.OrderedDict(a=(4,), b=5), "none": {}}
    flat = flatten(state)
    chosen = select(flat.structure, matcher(["layers/#[12]/**", "odd/a/**"]))
    back = unflatten(chosen.structure, [], [flat.leaves[i] for i in chosen.leaves])
    assert back == {"layers": {1: 2, 2: {"w": 3}}, "odd": {"a": (4,)}}
    assert type(back["odd"]) is collections.OrderedDict


class Layers(list):
    pass


class Shape(tuple):
    __slots__ = ()


class Options(dict):
    pass


def test_subclasses_come_back_as_what_they_are_made_of():
    state = {
        "list": Layers([1, 2]),
        "tuple": Shape((1, 2)),
        "dict": Options(a=1),
        "ordered": collections.OrderedDict(a=1),
        "counted": collections.Counter({3: 1, 6: 2}),
        "matrix": np.ones((2, 2)).view(np.matrix),
        "big": np.array([1.5, 2.5], ">f4"),
    }
    flat = flatten(state)
    hosts = [from_host(host.array, host.framework) for _, host in flat.tensors]
    back = unflatten(flat.structure, hosts, flat.leaves)
    kinds = [list, tuple, dict, collections.OrderedDict, collections.Counter, np.ndarray, np.ndarray]
    assert [type(value) for value in back.values()] == kinds
    assert back["matrix"].shape == (2, 2)
    assert back["big"].dtype == np.dtype("=f4")
    assert back["big"].tolist() == [1.5, 2.5]


def test_all_missing_gives_an_empty_dict():
    flat = flatten([np.ones(2)])
    assert unflatten(flat.structure, [MISSING], []) == {}


class Point(typing.NamedTuple):
    x: object
    y: object


@dataclasses.dataclass
class Train:
    params: object
    step: int
    apply: object = dataclasses.field(default=print, metadata={"pytree_node": False})
    name: object = dataclasses.field(default=print, metadata={"static": True})


class Stateful:
    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return self.value


class FloatList(list):
    pass


def test_other_containers_come_back_as_plain_ones():
    state = {
        "point": Point(1, [2]),
        "empty": collections.namedtuple("Empty", [])(),
        "train": Train({"w": 1.5}, 3),
        "module": Stateful(collections.OrderedDict(weight=1)),
        "frozen": types.MappingProxyType({"a": 1}),
        "default": collections.defaultdict(list, {1: [2]}),
        "list": FloatList([1.0]),
    }
    back = rebuild(state)
    assert back == {
        "point": {"x": 1, "y": [2]},
        "empty": {},
        "train": {"params": {"w": 1.5}, "step": 3},
        "module": {"weight": 1},
        "frozen": {"a": 1},
        "default": {1: [2]},
        "list": [1.0],
    }
    assert type(back["module"]) is collections.OrderedDict
    assert type(back["default"]) is dict
    assert type(back["list"]) is list


def test_a_state_may_be_one_leaf():
    assert rebuild(3) == 3
    assert rebuild(None) is None
    assert same(rebuild(np.arange(3)), np.arange(3))


def test_a_shared_tensor_is_one_of_two_names():
    weight = np.ones((2, 2))
    flat = flatten({"a": weight, "b": [weight, weight[:]], "c": weight.copy()})
    assert [path for path, _ in flat.tensors] == [("a",), ("c",)]
    assert flat.ties == {("b", 0): ("a",), ("b", 1): ("a",)}
    back = unflatten(flat.structure, [host.array for _, host in flat.tensors], [])
    assert back["a"] is back["b"][0] is back["b"][1]
    assert back["c"] is not back["a"]


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x[1:],
        lambda x: x.T,
        lambda x: x[::-1],
        lambda x: x.reshape(-1),
        lambda x: x.view(np.int64),
        lambda x: x[:, :2],
    ],
)
def test_what_only_overlaps_is_stored_apart(other):
    weight = np.arange(16.0).reshape(4, 4)
    flat = flatten([weight, other(weight)])
    assert len(flat.tensors) == 2
    assert np.array_equal(flat.tensors[1][1].array, other(weight))


def test_values_are_not_tied():
    assert not flatten([np.float32(1)] * 3).ties
    assert not flatten([np.zeros(0)] * 3).ties


def test_an_optimizer_shares_nothing_with_a_model():
    weight = np.ones((2, 2))
    flat = flatten({"model": {"w": weight, "v": weight}, "optim": {"param": weight, "again": weight}})
    assert flat.ties == {("model", "v"): ("model", "w"), ("optim", "again"): ("optim", "param")}


class Fleeting:
    """Gives a new array each time, in the byte order of other machines, so that nothing of it is kept."""

    def __init__(self, number):
        self.number = number

    def state_dict(self):
        return {"x": np.full(5000, self.number, ">f4")}


def test_memory_that_is_used_again_ties_nothing():
    flat = flatten([Fleeting(number) for number in range(40)])
    assert not flat.ties
    assert [host.array[0] for _, host in flat.tensors] == list(range(40))


def test_of_tied_names_the_first_that_is_selected_has_the_tensor():
    x, y = np.ones(3), np.zeros(3)
    flat = flatten({"a": x, "b": y, "c": x, "d": [x, 7]})
    hosts = [host.array for _, host in flat.tensors]
    part = select(flat.structure, lambda path: path[0] in "cd")
    assert part.tensors == [0]
    back = unflatten(part.structure, [hosts[i] for i in part.tensors], [7])
    assert back["c"] is back["d"][0] is x
    assert names_in(part.structure).ties == {("d", 0): ("c",)}
    assert select(flat.structure, lambda path: path == ("c",)).structure == ["dict", ["c"], ["tensor"]]
    missing = unflatten(flat.structure, [MISSING, y], [7])
    assert [*missing] == ["b", "d"]
    assert missing["d"] == {1: 7}


def test_a_tie_may_stand_before_its_tensor():
    structure = ["dict", ["a", "b"], [["tied", ["b"]], "tensor"]]
    back = unflatten(structure, [5], [])
    assert back == {"a": 5, "b": 5}
    part = select(structure, lambda path: True)
    assert part.structure == ["dict", ["a", "b"], ["tensor", ["tied", ["a"]]]]


@pytest.mark.parametrize(
    "tie",
    [
        ["tied"],
        ["tied", "b"],
        ["tied", ["nothing"]],
        ["tied", ["a"]],
        ["tied", ["leaf"]],
        ["tied", []],
        ["tied", [1.5]],
        ["tied", ["b"], 0],
    ],
)
def test_a_tie_to_nothing_is_corrupt(tie):
    structure = ["dict", ["a", "b", "leaf"], [tie, "tensor", "leaf"]]
    for use in (names_in, lambda it: unflatten(it, [1], [2]), lambda it: select(it, lambda path: True)):
        with pytest.raises(CorruptionError):
            use(structure)


def test_numpy_scalars_are_tensors():
    back = rebuild({"a": np.float32(1.5), "b": np.bool_(True)})
    assert type(back["a"]) is np.float32
    assert type(back["b"]) is np.bool_


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "bad",
    [
        {1, 2},
        print,
        int,
        object(),
        Colour.RED,
        bytearray(b"a"),
        Stateful,
        Train,
        Stateful(3),
        range(3),
        np.array(["a"]),
        np.array([None]),
        np.array("2020-01-01", "M8[s]"),
        np.str_("a"),
        np.zeros(2, [("a", "f4")]),
        np.ma.masked_array([1, 2]),
        np.longdouble(1),
    ],
)
def test_what_cannot_be_stored_is_an_error_that_names_the_path(bad):
    with pytest.raises(InvalidInputError, match=r"model/a~1b/#0"):
        flatten({"model": {"a/b": [bad]}})
    with pytest.raises(InvalidInputError, match=r"top of the state"):
        flatten(bad)


@pytest.mark.parametrize("key", [True, 1.5, None, (1, 2), "\ud800", 2**63, np.int64(1), Colour.RED, b"a"])
def test_bad_keys_name_the_path(key):
    with pytest.raises(InvalidInputError, match="'model'"):
        flatten({"model": {key: 1}})


def test_a_failing_state_dict_names_the_path():
    class Broken:
        def state_dict(self):
            raise RuntimeError("not initialised")

    with pytest.raises(InvalidInputError, match=r"'model'.*not initialised"):
        flatten({"model": Broken()})


def test_containers_that_hold_themselves():
    loop = {"a": []}
    loop["a"].append(loop)
    with pytest.raises(InvalidInputError, match="'a/#0' holds itself"):
        flatten(loop)
    stateful = Stateful(None)
    stateful.value = {"self": stateful}
    with pytest.raises(InvalidInputError, match="holds itself"):
        flatten(stateful)


def nested(depth):
    state = 1
    for _ in range(depth):
        state = [state]
    return state


def test_depth_is_limited():
    assert rebuild(nested(MAX_TREE_DEPTH)) == nested(MAX_TREE_DEPTH)
    for depth in (MAX_TREE_DEPTH + 1, 100_000):
        with pytest.raises(LimitError):
            flatten(nested(depth))


def test_shared_lists_cannot_unfold_without_end(monkeypatch):
    monkeypatch.setattr("lcstore.state.tree.MAX_TENSORS", 1000)
    state = [1]
    for _ in range(60):
        state = [state, state]
    with pytest.raises(LimitError):
        flatten(state)


HOSTILE = [
    None,
    3,
    "pickle",
    {},
    [],
    ["dict"],
    ["dict", []],
    ["dict", ["a"], []],
    ["dict", "a", ["leaf"]],
    ["dict", ["a"], "leaf"],
    ["dict", ["a", "a"], ["leaf", "leaf"]],
    ["dict", [True], ["leaf"]],
    ["dict", [1.0], ["leaf"]],
    ["dict", [None], ["leaf"]],
    ["dict", [["a"]], ["leaf"]],
    ["dict", [2**63], ["leaf"]],
    ["dict", ["\ud800"], ["leaf"]],
    ["set", ["leaf"]],
    [["list"], ["leaf"]],
    [{}, ["leaf"]],
    ["list", ["leaf"], []],
    ["list", {"0": "leaf"}],
    ["list", ["leaves"]],
    ["list", [["list"]]],
    ["builtins.eval", ["a"], ["leaf"]],
]


READS = (
    structure_names,
    lambda bad: unflatten(bad, [], [1] * 9),
    lambda bad: select(bad, lambda path: True),
)


@pytest.mark.parametrize("structure", HOSTILE, ids=repr)
def test_hostile_structures(structure):
    before = copy.deepcopy(structure)
    for read in READS:
        with pytest.raises(CorruptionError):
            read(structure)
    assert structure == before


def test_hostile_depth():
    structure = "leaf"
    for _ in range(50_000):
        structure = ["list", [structure]]
    for read in READS:
        with pytest.raises(LimitError):
            read(structure)


@pytest.mark.parametrize(
    ("tensors", "leaves"), [([], [1]), ([1], []), ([1, 2], [1]), ([1], [1, 2]), ([1, MISSING], [1])]
)
def test_counts_must_agree(tensors, leaves):
    with pytest.raises(CorruptionError):
        unflatten(["list", ["tensor", "leaf"]], tensors, leaves)


structures = st.recursive(
    st.sampled_from(["tensor", "leaf", "x", 1, None, True]),
    lambda inner: (
        st.lists(inner | st.sampled_from(["dict", "list", "odict", "counter", "tuple"]), max_size=3)
        | st.tuples(
            st.sampled_from(["dict", "odict", "counter"]),
            st.lists(keys | st.none(), max_size=2),
            st.lists(inner, max_size=2),
        ).map(list)
        | st.tuples(st.sampled_from(["list", "tuple"]), st.lists(inner, max_size=3)).map(list)
        | st.tuples(st.just("tied"), st.lists(st.sampled_from([0, 1, "a"]), max_size=2)).map(list)
    ),
    max_leaves=12,
)


@given(structures)
def test_any_json_is_a_structure_or_corruption(structure):
    try:
        tensors, leaves = structure_names(structure)
    except CorruptionError:
        with pytest.raises(CorruptionError):
            unflatten(structure, [0] * 99, [0] * 99)
        return
    state = unflatten(structure, [np.zeros(1) for _ in tensors], [None] * len(leaves))
    if not names_in(structure).ties:  # these may be written in several ways
        assert flatten(state).structure == structure


def test_a_mapping_that_has_a_key_twice_is_refused_as_what_it_is():
    class Several(Mapping):
        """As those of web libraries are."""

        def __getitem__(self, key):
            return 1

        def __iter__(self):
            return iter(["a", "a"])

        def __len__(self):
            return 2

        def values(self):
            return [1, 2]

    with pytest.raises(InvalidInputError, match=r"options.* has a key twice"):
        flatten({"options": Several()})
