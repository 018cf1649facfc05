"""Where tensors lie: places that stay, pools that grow, and layouts that storage made up."""

from __future__ import annotations

import copy
import itertools
import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcstore.dtypes import LOSSY_DTYPES
from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    LimitError,
    UnsupportedFormatError,
)
from lcstore.format.parity import COVERED
from lcstore.layout import layoutjson
from lcstore.layout.layout import Layout, make_layout
from lcstore.layout.poolmap import Piece, PieceColumns
from lcstore.layout.shards import Shard
from lcstore.layout.specs import ALIGN, chunk_elements, is_optimizer_pool
from lcstore.limits import MAX_POOL_ELEMENTS

GIB = 1 << 30


def build(tensors, parent=None, *, fresh=False):
    """Make a layout of a flat dict: name to (shape, dtype, role)."""
    structure = ["dict", list(tensors), ["tensor"] * len(tensors)]
    entries = [((name,), shape, dtype, role, "numpy") for name, (shape, dtype, role) in tensors.items()]
    return make_layout(structure, entries, parent, fresh=fresh)


def places(layout):
    return {spec.name[0]: (spec.pool, spec.offset) for spec in layout.tensors}


def assert_sound(layout):
    """The layout is one that `from_json` accepts, and that comes back the same."""
    back = Layout.from_json(json.loads(json.dumps(layout.to_json())))
    assert back == layout
    assert back.to_json() == layout.to_json()
    assert list(back.pools) == list(layout.pools)
    for spec in layout.tensors:
        pool = layout.pools[spec.pool]
        assert spec.offset % pool.align == 0
        assert spec.offset + spec.size <= pool.size
        assert (spec.dtype, spec.role) == (pool.dtype, pool.role)


def test_plain_tensors_that_lie_apart_go_on_where_they_are():
    """As they did before, at multiples of 16 elements; a pool of little but gaps is laid out afresh."""
    tensors = {"a": ((30,), "float32", "plain"), "b": ((17,), "float32", "plain"), "c": ((), "bool", "plain")}
    value = build(tensors).to_json()
    value["pools"] = [["plain-float32", 64, 1 << 20], ["plain-bool", 16, 4 << 20]]
    value["tensors"][1][1] = 32
    before = Layout.from_json(json.loads(json.dumps(value)))
    grown = build(tensors | {"d": ((5,), "float32", "plain")}, before)
    assert_sound(grown)
    assert [places(grown)[name] for name in "abd"] == [("plain-float32", at) for at in (0, 32, 64)]
    assert {name: pool.size for name, pool in grown.pools.items()} == {"plain-float32": 69, "plain-bool": 1}


shapes = st.lists(st.integers(0, 40), max_size=3).map(tuple)
kinds = st.one_of(
    st.tuples(
        st.sampled_from(sorted(LOSSY_DTYPES)), st.sampled_from(["weights", "first_moment", "second_moment"])
    ),
    st.tuples(st.sampled_from(["float32", "int64", "bool", "uint8", "float8_e5m2"]), st.just("plain")),
)
specs = st.tuples(shapes, kinds).map(lambda drawn: (drawn[0], *drawn[1]))
trees = st.dictionaries(st.sampled_from("abcdefgh"), specs, max_size=8)


@given(st.lists(trees, min_size=1, max_size=4), st.booleans())
def test_a_line_of_layouts(history, fresh):
    layout = None
    for tree in history:
        parent, layout = layout, build(tree, layout)
        assert_sound(layout)
        assert {spec.name[0]: (spec.shape, spec.dtype, spec.role) for spec in layout.tensors} == tree
        for name, pool in layout.pools.items():
            used = sum(-(-s.size // pool.align) * pool.align for s in layout.tensors if s.pool == name)
            assert 2 * used >= pool.size
        if parent is None:
            continue
        # A pool that is smaller than it was, or gone, was laid out afresh: nothing goes on from what it held.
        now = {name: pool.size for name, pool in layout.pools.items()}
        afresh = {name for name, pool in parent.pools.items() if now.get(name, 0) < pool.size}
        for name, place in places(layout).items():
            before = parent.index.get((name,))
            same = before is not None and parent.entries[before] == layout.entries[layout.index[(name,)]]
            there = int(layout.goes_on_from(parent)[layout.index[(name,)]])
            if place[0] in afresh:
                assert there == -1
            elif same:
                assert place == places(parent)[name]
                assert there == before
            elif place[0] in parent.pools:
                # New tensors stay clear of everything that the parent's pools ever held.
                assert place[1] >= parent.pools[place[0]].size
                assert there == -1
        for name, pool in layout.pools.items():
            assert name not in parent.pools or parent.pools[name].chunk == pool.chunk
    assert build(history[-1], layout) is layout
    anchor = build(history[-1], layout, fresh=True)
    assert anchor == build(history[-1])


def test_names_and_alignment_of_pools():
    structure = [
        "dict",
        ["model", "opt"],
        [["dict", list("abcdef"), ["tensor"] * 6], ["dict", list("mvs"), ["tensor"] * 3]],
    ]
    kinds = [
        (("model", "a"), (3, 5), "float32", "weights"),
        (("model", "b"), (1025,), "float32", "weights"),
        (("model", "c"), (2, 2), "bfloat16", "weights"),
        (("model", "d"), (3,), "float32", "plain"),
        (("model", "e"), (), "bool", "plain"),
        (("model", "f"), (17,), "float32", "plain"),
        (("opt", "m"), (3, 5), "float32", "first_moment"),
        (("opt", "v"), (3, 5), "float32", "second_moment"),
        (("opt", "s"), (), "float32", "plain"),
    ]
    layout = make_layout(structure, [(*kind, "torch") for kind in kinds])
    assert [(spec.pool, spec.offset) for spec in layout.tensors] == [
        ("weights-float32", 0),
        ("weights-float32", ALIGN),
        ("weights-bfloat16", 0),
        ("plain-float32", 0),
        ("plain-bool", 0),
        ("plain-float32", 3),
        ("first-float32", 0),
        ("second-float32", 0),
        ("plain_optim-float32", 0),
    ]
    assert layout.pools["weights-float32"].size == 3 * ALIGN
    assert layout.pools["plain-float32"].size == 3 + 17
    assert layout.pools["weights-bfloat16"].storage_dtype == "uint16"
    assert [name for name, pool in layout.pools.items() if is_optimizer_pool(pool.stem)] == [
        "first-float32",
        "second-float32",
        "plain_optim-float32",
    ]
    spec = layout.tensors[layout.index["model", "b"]]
    assert (spec.size, spec.itemsize, spec.nbytes) == (1025, 4, 4100)
    assert_sound(layout)


def test_a_framework_may_change_without_a_move():
    structure = ["list", ["tensor", "tensor"]]
    entries = [((0,), (2, 2), "float32", "weights", "torch"), ((1,), (2, 2), "float32", "weights", "torch")]
    before = make_layout(structure, entries)
    after = make_layout(structure, [(*entry[:4], "numpy") for entry in entries], before)
    assert after is not before
    assert places(after) == places(before)
    assert {spec.framework for spec in after.tensors} == {"numpy"}


def test_a_plain_value_that_comes_or_goes_is_another_layout():
    before = make_layout(["dict", ["w"], ["tensor"]], [(("w",), (2,), "int8", "plain", "numpy")])
    after = make_layout(
        ["dict", ["w", "n"], ["tensor", "leaf"]], [(("w",), (2,), "int8", "plain", "numpy")], before
    )
    assert after != before
    assert places(after) == places(before)


def test_removed_tensors_leave_holes_until_they_are_most_of_a_pool():
    both = {"a": ((1024,), "float32", "weights"), "b": ((1024,), "float32", "weights")}
    before = build(both)
    without = build({"b": both["b"]}, before)
    assert places(without) == {"b": ("weights-float32", 1024)}
    again = build(both, without)
    assert places(again) == {"a": ("weights-float32", 2048), "b": ("weights-float32", 1024)}
    assert places(build({"b": both["b"]}, again, fresh=True)) == {"b": ("weights-float32", 0)}
    assert places(build({"b": both["b"]}, again)) == {"b": ("weights-float32", 0)}
    assert build({}, before).pools == {}


def test_a_tensor_that_grows_all_the_time_does_not_grow_its_pool_for_ever():
    layout, moved = None, 0
    for count in range(1, 401):
        tree = {"grows": ((100 * count,), "float32", "weights"), "stays": ((50_000,), "float32", "weights")}
        parent, layout = layout, build(tree, layout)
        pool = layout.pools["weights-float32"]
        assert pool.size <= 2 * (100 * count + 50_000 + 2 * ALIGN)
        if parent is not None and layout.goes_on_from(parent)[layout.index[("stays",)]] < 0:
            moved += 1
    assert 1 <= moved <= 100  # each time after as much had been set anew as there is


def test_a_shard_keeps_its_place_while_it_is_the_same_one():
    def of(start):
        entry = (("w",), (8, 16), "float32", "weights", "numpy", Shard((32, 16), (start, 0)))
        return lambda parent=None: make_layout(["dict", ["w"], ["tensor"]], [entry], parent)

    before = of(8)()
    assert_sound(before)
    assert of(8)(before) is before
    moved = of(16)(before)
    assert_sound(moved)
    assert places(moved) != places(before)
    assert moved.places_in(before).tolist() == [-1]
    with pytest.raises(InvalidInputError, match="within"):
        of(25)()


def test_no_tensors_at_all():
    layout = make_layout("leaf", [])
    assert layout.tensors == ()
    assert layout.pools == {}
    assert_sound(layout)


@pytest.mark.parametrize(
    ("size", "dtype", "nbytes"),
    [
        (0, "float32", 4 << 20),
        (1 << 20, "float32", 4 << 20),
        (8 << 20, "float32", 8 << 20),
        (8 << 20, "bool", 4 << 20),
        (1 << 30, "float32", 64 << 20),
        (16 * GIB // 4, "float32", 64 << 20),
        (64 * GIB // 2, "bfloat16", 256 << 20),
        (1024 * GIB // 4, "float32", 512 << 20),
    ],
)
def test_chunks(size, dtype, nbytes):
    chunk = chunk_elements(size, dtype)
    assert chunk % 1024 == 0
    assert chunk * {"bool": 1, "bfloat16": 2, "float32": 4}[dtype] == nbytes


@pytest.mark.parametrize(
    ("mib", "chunk", "count"),
    [
        (1, 1, 1),
        (8, 1, 8),
        (64, 8, 8),
        (128, 16, 8),
        (192, 16, 12),  # a first save holds four of them or so beside the track
        (200, 200 / 13, 13),
        (256, 16, 16),
        (512, 32, 16),
        (1024, 64, 16),
        (4096, 64, 64),
    ],
)
def test_chunks_of_a_pool_with_parity(mib, chunk, count):
    size = (mib << 20) // 4
    found = chunk_elements(size, "float32", covered=True)
    assert chunk <= found * 4 / (1 << 20) < chunk + 1 / 256
    assert -(-size // found) == count


@given(st.integers(1, 1024 << 18))
def test_one_parity_covers_all_chunks_of_a_new_pool_below_a_gibibyte(size):
    chunk = chunk_elements(size, "float32", covered=True)
    assert -(-size // chunk) <= COVERED
    assert chunk * 4 <= max(16 << 20, -(-size * 4 // COVERED) + 4096)


@given(st.integers(0, MAX_POOL_ELEMENTS), st.sampled_from(["bool", "float16", "float32", "complex128"]))
def test_every_chunk_is_one_that_from_json_accepts(size, dtype):
    size -= size % ALIGN
    name = f"plain-{dtype}"
    value = make_layout("leaf", []).to_json() | {"pools": [[name, size, chunk_elements(size, dtype)]]}
    assert Layout.from_json(value).pools[name].size == size


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ((("b",), (2,), "float32", "plain", "numpy"), InvalidInputError),
        ((("a",), (2,), "int32", "weights", "numpy"), InvalidInputError),
        ((("a",), (2,), "float8_e5m2", "first_moment", "numpy"), InvalidInputError),
        ((("a",), (2,), "float32", "bias", "numpy"), InvalidInputError),
        ((("a",), (2,), "float99", "plain", "numpy"), UnsupportedFormatError),
        ((("a",), (1,) * 65, "float32", "plain", "numpy"), LimitError),
        ((("a",), (1 << 40, 1 << 40), "float32", "plain", "numpy"), LimitError),
        ((("a",), (-1,), "float32", "plain", "numpy"), LimitError),
    ],
)
def test_entries_are_checked(entry, error):
    with pytest.raises(error):
        make_layout(["dict", ["a"], ["tensor"]], [entry])


def test_a_pool_may_not_outgrow_its_limit():
    half = ((MAX_POOL_ELEMENTS // 2 + 1,), "float32", "weights")
    build({"a": half})
    with pytest.raises(LimitError):
        build({"a": half, "b": half})


def stored():
    layout = build(
        {
            "a": ((3, 5), "float32", "weights"),
            "b": ((1025,), "float32", "weights"),
            "c": ((0, 3), "float32", "weights"),
            "d": ((4,), "int8", "plain"),
        }
    )
    return layout.to_json()


def change(*keys_and_value):
    *keys, last, new = keys_and_value

    def apply(value):
        for key in keys:
            value = value[key]
        value[last] = new

    return apply


HOSTILE = {
    "kind": change("kind", "node"),
    "no list of tensors": change("tensors", {}),
    "no list of pools": change("pools", None),
    "structure": change("structure", ["dict", ["a"], ["tensor"]]),
    "structure with one path twice": change("structure", ["dict", ["a", "a", "c", "d"], ["tensor"] * 4]),
    "a field too many": lambda value: value.update(extra=1),
    "a field too few": lambda value: value.pop("pools"),
    "pool twice": lambda value: value["pools"].append(value["pools"][0]),
    "pool row": change("pools", 0, ["weights-float32", 3072]),
    "pool name": change("pools", 0, 0, "bias-float32"),
    "pool name is a path": change("pools", 0, 0, "../weights-float32"),
    "pool name is no text": change("pools", 0, 0, 7),
    "lossy pool of integers": change("pools", 0, 0, "weights-int8"),
    "pool size not aligned": change("pools", 0, 1, 3073),
    "pool too small": change("pools", 0, 1, 2048),
    "pool size is a float": change("pools", 0, 1, 3072.0),
    "pool size is a boolean": change("pools", 1, 1, True),
    "chunk of zero": change("pools", 0, 2, 0),
    "chunk not aligned": change("pools", 0, 2, 1025),
    "row": change("tensors", 0, ["weights-float32", 0, [3, 5]]),
    "row is a dict": change("tensors", 0, {}),
    "unknown pool": change("tensors", 0, 0, "weights-float64"),
    "pool is a list": change("tensors", 0, 0, []),
    "overlap": change("tensors", 1, 1, 0),
    "offset not aligned": change("tensors", 0, 1, 16),
    "offset past the end": change("tensors", 0, 1, 3072),
    "offset of nothing past the end": change("tensors", 2, 1, 4096),
    "negative offset": change("tensors", 0, 1, -1024),
    "offset is a float": change("tensors", 0, 1, 0.0),
    "offset is huge": change("tensors", 0, 1, 1 << 80),
    "shape too large for its pool": change("tensors", 1, 2, [4096]),
    "shape overlaps the next": change("tensors", 0, 2, [1025]),
    "negative shape": change("tensors", 0, 2, [-3, -5]),
    "shape is no list": change("tensors", 0, 2, 15),
    "shape of booleans": change("tensors", 0, 2, [True]),
    "shape of texts": change("tensors", 0, 2, ["3"]),
    "framework": change("tensors", 0, 3, "pickle"),
    "framework is a list": change("tensors", 0, 3, []),
    "scalar with dimensions": change("tensors", 3, 3, "numpy-scalar"),
}


@pytest.mark.parametrize("apply", HOSTILE.values(), ids=HOSTILE)
def test_hostile_layouts(apply):
    value = copy.deepcopy(stored())
    apply(value)
    with pytest.raises(CorruptionError):
        Layout.from_json(value)


@pytest.mark.parametrize(
    "apply",
    [
        change("pools", 0, 1, 1 << 60),
        change("pools", 0, 1, -1024),
        change("pools", 0, 2, 1 << 40),
        change("tensors", 2, 2, [0, 1 << 60, 1 << 60]),
        change("tensors", 0, 2, [1] * 65),
        change("tensors", 0, 2, [1 << 40] * 60),
    ],
)
def test_layouts_past_the_limits(apply):
    value = copy.deepcopy(stored())
    apply(value)
    with pytest.raises(LimitError):
        Layout.from_json(value)


@pytest.mark.parametrize(
    "apply",
    [
        change("format", 1),
        change("format", "0"),
        change("format", None),
        change("format", False),
        change("pools", 0, 0, "weights-float7"),
    ],
)
def test_layouts_of_another_format(apply):
    value = copy.deepcopy(stored())
    apply(value)
    with pytest.raises(UnsupportedFormatError):
        Layout.from_json(value)


@pytest.mark.parametrize("value", [None, [], "layout", 3, {}, {"kind": "layout"}])
def test_what_is_no_layout(value):
    with pytest.raises(LcstoreError):
        Layout.from_json(value)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)


def spots(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from spots(item, (*path, key))


def changed(value, chosen, new):
    *path, last = chosen
    inner = value
    for key in path:
        inner = inner[key]
    inner[last] = new


def outcome(act):
    try:
        return act()
    except LcstoreError as error:
        return type(error), str(error)


@settings(max_examples=300)
@given(st.data())
def test_rows_read_together_are_what_they_are_one_by_one(data):
    layout = Layout.from_json(stored())
    rows = copy.deepcopy(stored()["tensors"])
    spot = data.draw(st.sampled_from([spot for spot in spots(rows) if spot]))
    changed(
        rows, spot, data.draw(junk | st.sampled_from(["weights-float32", "plain-int8", "torch", 0, 3, [4]]))
    )
    paths = layout.names.tensors

    def one_by_one():
        return tuple(
            [layoutjson._read_tensor(row, path, layout.pools) for row, path in zip(rows, paths, strict=True)]
        )

    def together():
        return layoutjson._read_tensors(rows, paths, layout.pools)

    assert outcome(together) == outcome(one_by_one)


def test_rows_that_are_right_are_read_at_once():
    layout = Layout.from_json(stored())
    assert layoutjson._read_at_once(stored()["tensors"], layout.names.tensors, layout.pools) == layout.tensors


@settings(max_examples=300)
@given(st.data())
def test_a_changed_layout_is_sound_or_refused(data):
    value = copy.deepcopy(stored())
    changed(value, data.draw(st.sampled_from([spot for spot in spots(value) if spot])), data.draw(junk))
    try:
        layout = Layout.from_json(value)
    except LcstoreError:
        return
    spans = sorted((spec.pool, spec.offset, spec.offset + spec.size) for spec in layout.tensors if spec.size)
    for (pool, _, end), (other, start, _) in itertools.pairwise(spans):
        assert pool != other or end <= start
    assert all(end <= layout.pools[pool].size for pool, _, end in spans)
    assert all(math.prod(size or 1 for size in spec.shape) <= MAX_POOL_ELEMENTS for spec in layout.tensors)
    assert layout.to_json() == value


def test_new_moments_of_one_length_lie_side_by_side():
    moments = {}
    for layer, length in enumerate((64, 32, 64)):
        moments[f"w{layer}"] = ((40, 64), "float32", "second_moment")
        moments[f"b{layer}"] = ((length,), "float32", "second_moment")
    layout = build(moments)
    at = {name: offset // ALIGN for name, (_, offset) in places(layout).items()}
    assert at == {"w0": 0, "w1": 3, "w2": 6, "b1": 9, "b0": 10, "b2": 11}
    assert [spec.name[0] for spec in layout.tensors] == [*moments]
    assert_sound(layout)
    more = build({**moments, "b3": ((32,), "float32", "second_moment")}, layout)
    assert {**places(more), "b3": None} == {**places(layout), "b3": None}


def test_thousands_of_tensors_are_quick():
    tree = {f"layers.{i}.weight": ((4, 4), "float32", "weights") for i in range(5000)}
    layout = build(tree)
    value = json.loads(json.dumps(layout.to_json()))
    start = time.process_time()
    assert build(tree, layout) is layout
    assert Layout.from_json(value) == layout
    # Measured at some 25 ms together; the bound only catches something quadratic.
    assert time.process_time() - start < 1.0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 5)), max_size=12),
    st.integers(0, 80),
    st.integers(0, 40),
)
def test_pieces_within_are_what_each_element_says(shapes, low, size):
    pieces, at = [], 0
    for tensor, (gap, count, first) in enumerate(shapes):
        pieces.append(Piece(tensor, first, at + gap, count))
        at += gap + count
    columns = PieceColumns.of(reversed(pieces))
    assert [*columns] == pieces
    high = low + size
    inside = columns.within(low, high)
    assert all(piece.size > 0 for piece in inside)
    found = {p.at + i: (p.tensor, p.first + i) for p in inside for i in range(p.size)}
    assert sorted(found) == [at for begin, end in inside.runs() for at in range(begin, end)]
    every = {p.at + i: (p.tensor, p.first + i) for p in pieces for i in range(p.size)}
    assert found == {place: what for place, what in every.items() if low <= place < high}
