"""Names: what is built can be parsed, what is parsed has one spelling, nothing leads out of a store."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from record_strategies import (
    condemned_names,
    edge_names,
    hexes,
    ids,
    node_names,
    pools,
    retired_names,
    tag_names,
    tags,
)

from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError, LimitError
from lcstore.format import keys, markkeys
from lcstore.graph.refs import EdgeName, NodeName
from lcstore.limits import MAX_KEY_CHARS, MAX_NAME_CHARS, MAX_STEP
from lcstore.storage import safekeys
from lcstore.testing.conformance import HOSTILE_KEYS

stems = edge_names.map(keys.edge_key).map(keys.edge_stem)
KINDS = {
    "node": (node_names, keys.node_key, keys.parse_node_key),
    "edge": (edge_names, keys.edge_key, keys.parse_edge_key),
    "tag": (tag_names, markkeys.tag_key, markkeys.parse_tag_key),
    "retired": (retired_names, markkeys.retired_key, markkeys.parse_retired_key),
    "condemned": (condemned_names, markkeys.condemned_key, markkeys.parse_condemned_key),
    "layout": (hexes(64), keys.layout_key, keys.parse_layout_key),
    "copy": (hexes(64) | ids | stems | st.just(keys.STORE_KEY), keys.copy_key, keys.parse_copy_key),
}
PARSERS = [parse for _, _, parse in KINDS.values()] + [keys.parse_data_key]
ALPHABET = string.ascii_lowercase + string.digits + "._~-"


def plainly_a_key(text: str) -> bool:
    """The rule for keys, written as naively as it can be."""
    if len(text) > MAX_KEY_CHARS:
        return False
    return all(
        part
        and len(part) <= MAX_NAME_CHARS
        and all(char in ALPHABET for char in part)
        and part[0] not in ".-"
        and part[-1] != "."
        for part in text.split("/")
    )


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_name_survives_its_key(kind, data):
    names, build, parse = KINDS[kind]
    name = data.draw(names)
    key = build(name)
    assert parse(key) == name
    assert safekeys.validate_key(key) == key


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_damaged_key_is_refused_or_is_the_one_spelling_of_another_name(kind, data):
    names, build, parse = KINDS[kind]
    key = build(data.draw(names))
    at = data.draw(st.integers(0, len(key) - 1))
    damaged = key[:at] + data.draw(st.text(max_size=2)) + key[at + data.draw(st.integers(0, 2)) :]
    refused = None
    try:
        name = parse(damaged)
    except (CorruptionError, LimitError) as error:
        refused = error.key
    assert refused == damaged if refused is not None else build(name) == damaged


@given(st.text() | st.text(ALPHABET + "/", max_size=40))
@example("a" * MAX_NAME_CHARS)
@example("a" * (MAX_NAME_CHARS + 1))
@example("b/" + "a" * (MAX_NAME_CHARS + 1) + "/b")
@example("/".join(["a" * 63] * 8))
@example("/".join(["a" * 64] * 8))
@example("a\n")
def test_keys_are_exactly_what_the_rule_says(text):
    assert safekeys.is_key(text) == plainly_a_key(text)


@pytest.mark.parametrize("key", [*HOSTILE_KEYS, None, 3, b"a"])
def test_hostile_keys_are_refused(key):
    with pytest.raises(InvalidInputError):
        safekeys.validate_key(key)
    with pytest.raises(InvalidInputError):
        safekeys.safe_join("/root", key)


@given(st.text())
def test_no_parser_takes_arbitrary_text(text):
    for parse in PARSERS:
        with pytest.raises(LcstoreError):
            parse(text)


names = pools | st.builds("{}/{}".format, st.integers(1, 99_999), pools)


@given(ids, names, st.sampled_from(keys.OPS), st.integers(0, keys.MAX_BYTES))
def test_data_keys(edge, pool, op, index):
    parity = keys.parse_data_key(keys.parity_key(edge, pool, op, index))
    assert parity == keys.DataName(edge, pool, op, None, index)
    assert markkeys.array_scope(pool, op) == f"{pool.rpartition('/')[2]}.{op}"
    assert keys.part_name(keys.chunk_key(edge, pool, op, index)) == (pool.rpartition("/")[0] or "0")
    assert keys.parse_data_key(keys.chunk_key(edge, pool, op, index)) == keys.DataName(edge, pool, op, index)
    assert keys.parse_data_key(keys.group_key(edge)) == keys.DataName(edge, None, None, None)
    for key in (keys.chunk_key(edge, pool, op, index), keys.leaves_key(edge)):
        assert key.startswith(keys.edge_folder(edge) + "/")
        assert safekeys.is_key(key)


@given(tags, tags)
def test_different_tags_differ_on_a_target_that_folds_case(one, other):
    names = (markkeys.TagName("tag", tag, 0, None, "0" * 32) for tag in (one, other))
    first, second = map(markkeys.tag_key, names)
    assert first.lower() == first
    assert (first == second) == (one == other)


@given(st.lists(node_names, max_size=10))
def test_keys_of_nodes_sort_by_step_run_and_seq_within_a_run(names):
    for one in names:
        for other in names:
            if one.step != other.step:
                assert (keys.node_key(one) < keys.node_key(other)) == (one.step < other.step)


GOOD = NodeName(step=1, run=1, run_id="0" * 8, seq=1, node="1" * 32, base="root", nbytes=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", -1), ("step", MAX_STEP + 1), ("step", True), ("step", 1.0), ("run", keys.MAX_RUN + 1),
        ("seq", keys.MAX_SEQ + 1), ("nbytes", MAX_STEP + 1), ("run_id", "0"), ("run_id", "G" * 8),
        ("node", "1" * 31),
        ("node", "A" * 32), ("node", "../x"), ("base", "roots"), ("base", ""), ("base", None),
        ("node", "1" * 32 + "\n"),
    ],
)  # fmt: skip
def test_a_name_that_cannot_be_one_gets_no_key(field, value):
    values = {
        name: getattr(GOOD, name) for name in ("step", "run", "run_id", "seq", "node", "base", "nbytes")
    }
    with pytest.raises(InvalidInputError):
        keys.node_key(NodeName(**(values | {field: value})))


def test_numbers_past_63_bits_in_a_name_are_refused():
    with pytest.raises(LimitError):
        keys.parse_node_key(keys.node_key(GOOD).replace("0" * 18 + "1", "9" * 19))
    with pytest.raises(LimitError):
        keys.parse_edge_key(
            keys.edge_key(EdgeName("1" * 32, "root", "2" * 32, 7)).replace("-7.", "-" + "9" * 19 + ".")
        )


def test_digits_of_other_scripts_are_no_digits():
    with pytest.raises(CorruptionError):
        keys.parse_node_key(keys.node_key(GOOD).replace("000001", "00000\u0661"))


@pytest.mark.parametrize("tag", ["", "a\nb", "x" * 151, "é" * 60, 3, "\ud800", "\x00"])
def test_what_cannot_be_a_tag(tag):
    with pytest.raises(InvalidInputError):
        markkeys.tag_key(markkeys.TagName("tag", tag, 0, None, "0" * 32))


@pytest.mark.parametrize("text", ["~61", "~zz", "~ff", "a~", "~0a"])
def test_a_tag_has_one_spelling(text):
    with pytest.raises(CorruptionError):
        markkeys.parse_tag_key(f"names/tag-{text}-00000000-none-{'0' * 32}.json")


@pytest.mark.parametrize(
    "pool",
    ["", "a.b", "A", "a/b", "-a", "x" * 81, None, "0/a", "01/a", "100000/a", "1/", "1/1/a"],
)
def test_what_cannot_be_a_pool(pool):
    for build in (lambda: keys.chunk_key("0" * 32, pool, "add", 0), lambda: markkeys.pool_of(pool)):
        with pytest.raises(InvalidInputError):
            build()
    with pytest.raises(InvalidInputError):
        keys.chunk_key("0" * 32, "weights", "subtract", 0)
    with pytest.raises(InvalidInputError):
        markkeys.condemned_key(markkeys.CondemnedName("0" * 32, None, f"{pool}.set", "0" * 32))


def test_the_longest_names_are_keys():
    longest = NodeName(MAX_STEP, keys.MAX_RUN, "f" * 8, keys.MAX_SEQ, "f" * 32, "f" * 32, keys.MAX_BYTES)
    assert safekeys.is_key(keys.node_key(longest))
    assert safekeys.is_key(keys.chunk_key("f" * 32, "p" * 80, "exact", keys.MAX_BYTES))
