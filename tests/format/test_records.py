"""Records: exact round trips, and no damage that reads as a record or as anything but an error of ours."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_strategies import (
    condemned_records,
    edge_records,
    json_values,
    node_records,
    retired_records,
    tag_records,
)

from lcstore.durability import NAMED, Durability
from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    LimitError,
    TruncatedError,
    UnsupportedFormatError,
)
from lcstore.format import keys, markkeys
from lcstore.format.bodies import EdgeBody, ExactBody, ObjectRef, PartBody
from lcstore.format.fields import record_id
from lcstore.format.marks import (
    CondemnedRecord,
    RetiredRecord,
    TagRecord,
    read_condemned,
    read_retired,
    read_tag,
)
from lcstore.format.records import EdgeRecord, NodeRecord, StoreRecord, node_id, read_edge, read_node, utc_now

EDGE, NODE, PARENT = "e" * 32, "1" * 32, "2" * 32
REF = ObjectRef.of(keys.chunk_key(EDGE, "weights-float32", "add", 0), b"chunk")
SHARED = ((REF, ObjectRef.of(keys.group_key(EDGE), b"{}")), {"op": b"\x01\x00", "grid": b""})
OWN_PART = PartBody(
    "0",
    *SHARED,
    layout="a" * 64,
    exact=ExactBody(
        (ObjectRef.of(keys.chunk_key(EDGE, "weights-float32", "exact", 0), b"exact"),), {"crc": b"abc"}
    ),
    leaves=[1, "x", None, {"float": "nan"}],
)
EXAMPLE = NodeRecord(
    step=1000,
    run=2,
    run_id="0a1b2c3d",
    seq=7,
    parent=PARENT,
    created="2026-11-21T05:39:00.000Z",
    edge=EdgeBody(EDGE, PARENT, (OWN_PART,)),
    metrics={"loss": 1.25, "diverged": math.inf},
    metadata={"note": "é", "nested": [{"a": 1}]},
    tags=("eval", "Größe 2"),
    stats={"raw_bytes": 1 << 40, "seconds": 0.5},
    software="lcstore 0.1",
)
SHORTCUT = EdgeBody(EDGE, PARENT, (PartBody("0", *SHARED),))
EDGE_EXAMPLE = EdgeRecord(NODE, SHORTCUT, EXAMPLE.created, {"seconds": 1.5}, "lcstore 0.1")


def node_key_of(record):
    return keys.node_key(record.name(node_id(record.to_bytes())))


KINDS = {
    "node": (node_records(), node_key_of, read_node),
    "edge": (edge_records, lambda record: keys.edge_key(record.name), read_edge),
    "tag": (tag_records, lambda record: record.key(), read_tag),
    "retired": (retired_records, lambda record: record.key(), read_retired),
    "condemned": (condemned_records, lambda record: record.key(), read_condemned),
}
EXAMPLES = {
    "node": EXAMPLE,
    "edge": EDGE_EXAMPLE,
    "tag": TagRecord("gold", NODE, 3, EXAMPLE.created),
    "retired": RetiredRecord(NODE, "policy", EXAMPLE.created),
    "condemned": CondemnedRecord(EDGE, None, "weights-float32.add", EXAMPLE.created),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_record_survives_its_bytes(kind, data):
    records, key_of, read = KINDS[kind]
    record = data.draw(records)
    body, key = record.to_bytes(), key_of(record)
    assert read(key, body) == record
    assert type(record).from_bytes(body, key=key).to_bytes() == body


@pytest.mark.parametrize("kind", KINDS)
def test_every_proper_prefix_is_corruption(kind):
    record, (_, key_of, read) = EXAMPLES[kind], KINDS[kind]
    body, key = record.to_bytes(), key_of(record)
    for end in range(len(body)):
        with pytest.raises(CorruptionError):
            read(key, body[:end])
        with pytest.raises(CorruptionError):
            type(record).from_bytes(body[:end], key=key)


@pytest.mark.parametrize("kind", KINDS)
def test_every_single_bit_flip_is_corruption(kind):
    record, (_, key_of, read) = EXAMPLES[kind], KINDS[kind]
    body, key = bytearray(record.to_bytes()), key_of(record)
    for bit in range(8 * len(body)):
        body[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError) as caught:
            read(key, bytes(body))
        assert caught.value.key == key
        body[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_under_the_name_of_another_is_corruption(kind):
    record, (_, key_of, read) = EXAMPLES[kind], KINDS[kind]
    other = dataclasses.replace(record, created="2027-01-01T00:00:00Z")
    if kind == "edge":
        other = dataclasses.replace(record, target=PARENT)
    with pytest.raises(CorruptionError):
        read(key_of(record), other.to_bytes())
    with pytest.raises(CorruptionError):
        read("nodes/x.json", record.to_bytes())


def test_a_name_that_contradicts_its_body_is_corruption():
    body = EXAMPLE.to_bytes()
    name = EXAMPLE.name(node_id(body))
    for field, value in {
        "step": 1,
        "run": 3,
        "run_id": "0" * 8,
        "seq": 8,
        "base": "root",
        "nbytes": 1,
    }.items():
        with pytest.raises(CorruptionError, match="contradicts"):
            read_node(keys.node_key(dataclasses.replace(name, **{field: value})), body)


HOSTILE_VALUES = [
    None, True, False, 0, -1, 1 << 63, 1 << 64, 10**999, 0.5, -0.0, 1e308, "", "x", "../../etc/passwd",
    "root", "\u0000", "f" * 32, "F" * 32, "f" * 64, "é" * 300, "NaN", "nan", [], [[]], [1],
    ["a", 1, "b"], {}, {"a": 1}, {"a": {}}, {"../x": "AA=="}, {"op": "AB=="}, {"op": "A"},
    [["zarr.json", -1, "f" * 64]], [["zarr.json", 1 << 40, "f" * 64]], [["../zarr.json", 1, "f" * 64]],
    [["zarr.json", True, "f" * 64]], [["zarr.json", 1, "F" * 64]], [["zarr.json", 1, "f" * 64]] * 2,
    "2026-13-01T00:00:00Z", "2026-01-01T00:00:00",
]  # fmt: skip


def paths_of(value, above=()):
    yield above
    if isinstance(value, dict):
        for name, child in value.items():
            yield from paths_of(child, (*above, name))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from paths_of(child, (*above, index))


def with_value(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_value(copy[path[0]], path[1:], new)
    return copy


def resealed(kind, value):
    """The bytes of a forger, who can compute hashes too."""
    if kind not in ("edge", "store") or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    value = {name: child for name, child in value.items() if name != "_hash"}
    rest = json.dumps(value, sort_keys=True, separators=(",", ":"))[1:]
    return b'{"_hash":"%s",%s' % (blake3(rest.encode()).hexdigest().encode(), rest.encode())


def read_or_refuse(record, body):
    """A record whose bytes are these again, or an error of ours."""
    refusal = None
    try:
        found = type(record).from_bytes(body, key="nodes/x")
    except LcstoreError as error:
        refusal = error
    if refusal is not None:
        assert refusal.key == "nodes/x"
        assert not isinstance(refusal, InvalidInputError)
        return None
    found.to_bytes()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_values_in_every_field_are_refused_or_harmless(kind):
    record = EXAMPLES[kind]
    value = json.loads(record.to_bytes())
    value.pop("_hash", None)
    refused = 0
    for path in paths_of(value):
        for hostile in HOSTILE_VALUES:
            refused += read_or_refuse(record, resealed(kind, with_value(value, path, hostile))) is None
    assert refused > len(HOSTILE_VALUES) * len(value) / 2


@pytest.mark.parametrize("name", ["bytes_besides", "bytes_raw", "exact", "record_copies", "tensors"])
@pytest.mark.parametrize("count", ["inf", "nan", -1, 0.5])
def test_what_a_save_counts_is_a_whole_number(name, count):
    record = EXAMPLES["node"]
    value = json.loads(record.to_bytes())
    value["stats"][name] = 3
    assert read_or_refuse(record, resealed("node", value)) is not None
    value["stats"][name] = count
    assert read_or_refuse(record, resealed("node", value)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_unknown_fields_are_refused(kind):
    record = EXAMPLES[kind]
    value = json.loads(record.to_bytes())
    value.pop("_hash", None)
    for path in paths_of(value):
        inner = value
        for part in path:
            inner = inner[part]
        if not isinstance(inner, dict) or path[:1] in (("metadata",), ("metrics",), ("stats",)):
            continue
        if path[-1:] == ("columns",) or "leaves" in path:
            continue
        for name in inner:
            less = {other: child for other, child in inner.items() if other != name}
            assert read_or_refuse(record, resealed(kind, with_value(value, path, less))) is None
        more = inner | {"surprise": 1}
        assert read_or_refuse(record, resealed(kind, with_value(value, path, more))) is None


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_random_damage_raises_only_errors_of_ours(kind, data):
    record = EXAMPLES[kind]
    body = bytearray(record.to_bytes())
    chance = random.Random(data.draw(st.integers(0, 1 << 32)))
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(body))
        stop = min(len(body), start + chance.randint(0, 8))
        body[start:stop] = bytes(chance.choices(b'0123456789abcdef"{}[]:,.-\\u\xff', k=chance.randint(0, 8)))
    read_or_refuse(record, bytes(body))


@given(st.sampled_from(sorted(KINDS)), json_values)
def test_any_json_raises_only_errors_of_ours(kind, value):
    read_or_refuse(EXAMPLES[kind], resealed(kind, value))


@pytest.mark.parametrize("kind", [*KINDS, "store"])
def test_newer_formats_and_features_ask_for_an_upgrade(kind):
    record = StoreRecord() if kind == "store" else EXAMPLES[kind]
    value = json.loads(record.to_bytes())
    for change in ({"format": 1}, {"format": 10**300}, {"features": ["holograms"]}):
        # Whatever else changed: an old reader cannot know what a newer record looks like.
        newer = resealed(kind, value | change | {"unheard": "of"})
        with pytest.raises(UnsupportedFormatError, match="upgrade lcstore"):
            type(record).from_bytes(newer, key="k")
    for change in ({"format": -1}, {"format": "0"}, {"format": False}, {"features": [1]}, {"features": None}):
        with pytest.raises(CorruptionError):
            type(record).from_bytes(resealed(kind, value | change), key="k")


@pytest.mark.parametrize("change", [{"format": 1}, {"features": ["holograms"]}])
def test_a_newer_record_tells_what_wrote_it_if_that_can_be_printed(change):
    record = EXAMPLES["node"]
    value = json.loads(record.to_bytes()) | change
    told = (
        ("lcstore 7.1.0rc1", r"\(written by lcstore 7\.1\.0rc1, and this is lcstore "),
        ("a\x1b[2J", None),
    )
    for software, words in (*told, (None, None), ("x" * 500, None)):
        with pytest.raises(UnsupportedFormatError) as caught:
            type(record).from_bytes(resealed("node", value | {"software": software}), key="k")
        assert bool(re.search(words or "written by", str(caught.value))) == bool(words)
        assert "upgrade lcstore" in str(caught.value)


def test_a_record_of_another_kind_is_refused():
    for kind, record in EXAMPLES.items():
        for other, example in EXAMPLES.items():
            if other != kind:
                with pytest.raises(CorruptionError):
                    type(record).from_bytes(example.to_bytes(), key="k")


def changed(**fields):
    """An edge whose only part has other fields."""
    return {"edge": EdgeBody(EDGE, PARENT, (dataclasses.replace(OWN_PART, **fields),))}


def empty(name):
    return PartBody(name, layout="b" * 64, leaves=[])


BAD_RECORDS = {
    "negative step": {"step": -1},
    "step that is no integer": {"step": 1.5},
    "bad run id": {"run_id": "xyz"},
    "bad parent": {"parent": "root"},
    "bad layout": changed(layout="a" * 32),
    "bad time": {"created": "yesterday"},
    "time that does not exist": {"created": "2026-02-30T00:00:00Z"},
    "object of another edge": {"edge": EdgeBody("d" * 32, "root", (OWN_PART,))},
    "object outside data": changed(objects=(ObjectRef("nodes/x", 1, "0" * 64),)),
    "object of another part": changed(objects=(ObjectRef(keys.group_key(EDGE, "1"), 1, "0" * 64),)),
    "object under no known name": changed(objects=(ObjectRef(f"data/{EDGE}/0/x", 1, "0" * 64),)),
    "object twice": changed(objects=(REF, REF)),
    "object of negative length": changed(objects=(dataclasses.replace(REF, nbytes=-1),)),
    "bad column": changed(columns={"Op": b""}),
    "no part": {"edge": EdgeBody(EDGE, PARENT, ())},
    "a part without a layout": changed(layout=None),
    "a part twice": {"edge": EdgeBody(EDGE, PARENT, (OWN_PART, OWN_PART))},
    "parts out of order": {"edge": EdgeBody(EDGE, PARENT, (empty("10"), empty("9")))},
    "a part of no number": {"edge": EdgeBody(EDGE, PARENT, (empty("one"),))},
    "a part of two spellings": {"edge": EdgeBody(EDGE, PARENT, (empty("00"),))},
    "one part with an exact value": {"edge": EdgeBody(EDGE, PARENT, (OWN_PART, empty("1")))},
    "NaN in metadata": {"metadata": {"x": math.nan}},
    "bytes in metadata": {"metadata": {"x": b""}},
    "metric that is no number": {"metrics": {"loss": "low"}},
    "metric that is a boolean": {"metrics": {"loss": True}},
    "metric past what floats hold": {"metrics": {"loss": (1 << 53) + 1}},
    "empty tag": {"tags": ("",)},
    "tag with a newline": {"tags": ("a\nb",)},
    "leaves twice": changed(leaves=[1], leaves_object=ObjectRef.of(keys.leaves_key(EDGE), b"x")),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_what_could_not_be_read_back_is_not_written(name):
    with pytest.raises(InvalidInputError):
        dataclasses.replace(EXAMPLE, **BAD_RECORDS[name]).to_bytes()


def test_a_record_past_the_limit_is_not_written():
    with pytest.raises(InvalidInputError, match="past the limit"):
        dataclasses.replace(EXAMPLE, **changed(leaves=["x" * (64 << 20)])).to_bytes()


def test_metrics_that_are_not_finite_survive():
    record = dataclasses.replace(
        EXAMPLE, metrics={"a": math.nan, "b": math.inf, "c": -math.inf, "d": -0.0, "e": 3}
    )
    found = NodeRecord.from_bytes(record.to_bytes(), key="k").metrics
    assert list(map(repr, found.values())) == ["nan", "inf", "-inf", "-0.0", "3.0"]


def test_the_store_record_is_the_same_bytes_whoever_writes_it():
    assert StoreRecord().to_bytes() == (
        b'{"_hash":"973e338aeb68907baf4b576cb7c5f7439b62d3c7c24b939555400196105197ac",'
        b'"features":[],"format":0,"grace_seconds":86400,"kind":"store"}'
    )
    for durability in (None, *NAMED.values(), Durability("all", anchor_every=7)):
        record = StoreRecord(60, durability)
        assert StoreRecord.from_bytes(record.to_bytes()) == record
    for grace in (-1, 1 << 40, 0.5, True):
        with pytest.raises(InvalidInputError):
            StoreRecord(grace).to_bytes()
    good = {"parity": "kept", "copies": True, "anchor_ratio": 8.0, "anchor_every": None}
    for bad in ({"parity": "some"}, {"anchor_ratio": -1}, {"anchor_every": 0}, {"copies": 1}, {"more": 1}):
        body = {"features": [], "format": 0, "grace_seconds": 1, "kind": "store", "durability": good | bad}
        with pytest.raises(CorruptionError):
            StoreRecord.from_bytes(resealed("store", body))
    with pytest.raises(LimitError):
        StoreRecord.from_bytes(
            resealed("store", {"features": [], "format": 0, "grace_seconds": 99999999999, "kind": "store"})
        )


def test_a_node_s_id_is_the_hash_of_its_record():
    body = EXAMPLE.to_bytes()
    assert node_id(body) == record_id(body) == blake3(body).hexdigest()[:32]
    assert EXAMPLE.name(node_id(body)).nbytes == EXAMPLE.edge.path_nbytes == 5 < EXAMPLE.edge.nbytes == 7


def test_an_object_is_what_was_committed_or_an_error_names_it():
    assert REF.check(b"chunk") == b"chunk"
    for wrong, error in (
        (b"chun", TruncatedError),
        (b"", TruncatedError),
        (b"chunk.", CorruptionError),
        (b"chonk", CorruptionError),
    ):
        with pytest.raises(error) as caught:
            REF.check(wrong)
        assert caught.value.key == REF.key


def stored_apart(*parts):
    """An example whose parts are objects of their own, and what is stored of them."""
    stored, there = [], {}
    for part in parts:
        data = part.to_bytes(EDGE)
        ref = ObjectRef.of(keys.part_key(EDGE, part.name), data)
        stored.append(dataclasses.replace(part, stored=ref))
        there[ref.key] = data
    return dataclasses.replace(EXAMPLE, edge=EdgeBody(EDGE, PARENT, tuple(stored))), there


def test_a_part_may_be_an_object_of_its_own():
    second = PartBody("3", (), {"op": b"\x02"}, layout="b" * 64, exact=ExactBody(), leaves=[])
    record, there = stored_apart(OWN_PART, second)
    body, key = record.to_bytes(), node_key_of(record)
    assert len(body) < len(EXAMPLE.to_bytes())
    found = read_node(key, body, lambda refs: [there[ref.key] for ref in refs])
    assert found == record
    assert found.edge.columns["op"] == b"\x01\x00\x02"
    assert found.layout == f"0:{'a' * 64},3:{'b' * 64}"
    assert {part.stored for part in record.edge.parts} < {*record.objects}
    with pytest.raises(CorruptionError) as caught:
        read_node(key, body)
    assert caught.value.key in there
    one, other = there.values()
    with pytest.raises(CorruptionError, match="not the one that its name promises"):
        read_node(key, body, lambda refs: [other, one])
    of_another = second.to_bytes("d" * 32)
    with pytest.raises(CorruptionError, match="not the one that its name promises"):
        read_node(key, body, lambda refs: [one, of_another])


def test_objects_that_chunks_are_rebuilt_from_cost_no_path():
    parity = ObjectRef.of(keys.parity_key(EDGE, "weights-float32", "add", 0), b"chunk")
    record = dataclasses.replace(EXAMPLE, **changed(objects=(REF, parity)))
    assert record.edge.path_nbytes == 5
    assert record.edge.nbytes == 10
    assert keys.parse_data_key(parity.key).parity == 0


def test_condemnations_say_what_they_condemn():
    for record, scope in (
        (CondemnedRecord(EDGE, NODE, "edge", EXAMPLE.created), (None, True)),
        (CondemnedRecord(EDGE, NODE, "exact", EXAMPLE.created), (None, False)),
        (CondemnedRecord(EDGE, None, "weights-f4.add", EXAMPLE.created), ("weights-f4", True)),
        (CondemnedRecord(EDGE, NODE, "first-f4.set", EXAMPLE.created), ("first-f4", False)),
        (CondemnedRecord(EDGE, NODE, "first-f4.add", EXAMPLE.created), ("first-f4", True)),
        (CondemnedRecord(EDGE, NODE, "weights-f4.set", EXAMPLE.created), ("weights-f4", False)),
        (CondemnedRecord(EDGE, NODE, "w.grid", EXAMPLE.created), ("w", True)),
        (CondemnedRecord(EDGE, NODE, "w.exact", EXAMPLE.created), ("w", True)),
        (CondemnedRecord(EDGE, NODE, "path", EXAMPLE.created), (None, True)),
    ):
        name = markkeys.parse_condemned_key(record.key())
        assert (name.pool, name.blocks) == scope
        assert (name.edge, name.node, name.scope) == (record.edge, record.node, record.scope)
        assert read_condemned(record.key(), record.to_bytes()) == record
    for scope in ("", "state", "a", "a.b", "pool.a", "A.set"):
        with pytest.raises(InvalidInputError):
            CondemnedRecord(EDGE, NODE, scope, EXAMPLE.created).to_bytes()
        with pytest.raises(InvalidInputError):
            markkeys.condemned_key(markkeys.CondemnedName(EDGE, NODE, scope, EDGE))


def test_retirements_say_what_they_let_go():
    for what, pool in (("state", None), ("exact", None), ("pool.first-float32", "first-float32")):
        record = RetiredRecord(NODE, "old", EXAMPLE.created, what)
        assert markkeys.parse_retired_key(record.key()).pool == pool
        assert read_retired(record.key(), record.to_bytes()) == record
    for what in ("", "edge", "pool.", "pool.A", "first-float32"):
        with pytest.raises(InvalidInputError):
            RetiredRecord(NODE, "old", EXAMPLE.created, what).to_bytes()
        with pytest.raises(InvalidInputError):
            markkeys.retired_key(markkeys.RetiredName(NODE, what, NODE))


def test_now_is_a_time_that_records_take():
    assert dataclasses.replace(EXAMPLE, created=utc_now()).to_bytes()
