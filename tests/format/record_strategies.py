"""Hypothesis strategies for names and records."""

from __future__ import annotations

from hypothesis import strategies as st

from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, ExactBody, ObjectRef, PartBody
from lcstore.format.markkeys import TAG_KINDS, CondemnedName, RetiredName, TagName
from lcstore.format.marks import CondemnedRecord, RetiredRecord, TagRecord
from lcstore.format.records import EdgeRecord, NodeRecord
from lcstore.graph.refs import ROOT, EdgeName, NodeName
from lcstore.layout.qualified import qualified
from lcstore.limits import MAX_CHUNK_BYTES, MAX_STEP


def hexes(count: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=count // 2, max_size=count // 2).map(bytes.hex)


ids = hexes(32)
bases = st.just(ROOT) | ids
pools = st.from_regex("[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True)
tags = st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable() and len(text.encode()) < 48)
steps = st.integers(0, MAX_STEP)
runs = st.integers(0, keys.MAX_RUN)
seqs = st.integers(0, keys.MAX_SEQ)

node_names = st.builds(NodeName, steps, runs, hexes(8), seqs, ids, bases, st.integers(0, keys.MAX_BYTES))
edge_names = st.builds(EdgeName, ids, bases, ids, st.integers(0, keys.MAX_BYTES))
tag_names = st.builds(TagName, st.sampled_from(TAG_KINDS), tags, seqs, st.none() | ids, ids)
whats = st.sampled_from(["state", "exact"]) | pools.map("pool.{}".format)
arrays = st.builds("{}.{}".format, pools, st.sampled_from(keys.OPS))
scopes = st.sampled_from(["edge", "exact", "path"]) | arrays
retired_names = st.builds(RetiredName, ids, whats, ids)
condemned_names = st.builds(CondemnedName, ids, st.none() | ids, scopes, ids)

times = st.datetimes().map(lambda moment: moment.isoformat() + "Z")
columns = st.dictionaries(
    st.from_regex("[a-z0-9][a-z0-9_.-]{0,10}", fullmatch=True), st.binary(max_size=20), max_size=3
)
numbers = st.integers(-(1 << 60), 1 << 60) | st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@st.composite
def object_refs(draw: st.DrawFn, edge: str, part: str) -> ObjectRef:
    op = draw(st.sampled_from(keys.OPS))
    key = draw(
        st.sampled_from([keys.group_key(edge, part), keys.leaves_key(edge, part)])
        | st.tuples(pools, st.integers(0, 1 << 40), st.sampled_from([keys.chunk_key, keys.parity_key])).map(
            lambda of: of[2](edge, qualified(part, of[0]), op, of[1])
        )
    )
    return ObjectRef(key, draw(st.integers(0, MAX_CHUNK_BYTES)), draw(hexes(64)))


def objects(edge: str, part: str) -> st.SearchStrategy[tuple[ObjectRef, ...]]:
    return st.lists(object_refs(edge, part), max_size=4, unique_by=lambda ref: ref.key).map(tuple)


@st.composite
def part_bodies(draw: st.DrawFn, edge: str, name: str, own: bool, exact: bool) -> PartBody:
    stored, values = draw(objects(edge, name)), draw(columns)
    if not own:
        return PartBody(name, stored, values)
    in_record = draw(st.booleans())
    return PartBody(
        name,
        stored,
        values,
        layout=draw(hexes(64)),
        exact=draw(st.builds(ExactBody, objects(edge, name), columns)) if exact else None,
        leaves=draw(st.lists(json_values, max_size=3)) if in_record else None,
        leaves_object=None if in_record else draw(st.none() | object_refs(edge, name)),
    )


@st.composite
def edge_bodies(draw: st.DrawFn, own: bool) -> EdgeBody:
    edge, exact = draw(ids), draw(st.booleans())
    names = draw(st.just({0}) | st.sets(st.integers(0, 99_999), min_size=1, max_size=3))
    parts = [draw(part_bodies(edge, str(name), own, exact)) for name in sorted(names)]
    return EdgeBody(edge, draw(bases), tuple(parts))


@st.composite
def node_records(draw: st.DrawFn) -> NodeRecord:
    return NodeRecord(
        step=draw(steps),
        run=draw(runs),
        run_id=draw(hexes(8)),
        seq=draw(seqs),
        parent=draw(st.none() | ids),
        created=draw(times),
        edge=draw(edge_bodies(own=True)),
        metrics=draw(st.dictionaries(texts, st.floats(allow_nan=False), max_size=3)),
        metadata=draw(st.dictionaries(texts, json_values, max_size=3)),
        tags=tuple(draw(st.lists(tags, max_size=2))),
        stats=draw(st.dictionaries(texts, numbers, max_size=3)),
        software=draw(texts),
    )


edge_records = st.builds(
    EdgeRecord, ids, edge_bodies(own=False), times, st.dictionaries(texts, numbers, max_size=3), texts
)
tag_records = st.builds(TagRecord, tags, st.none() | ids, seqs, times, st.sampled_from(TAG_KINDS))
retired_records = st.builds(RetiredRecord, ids, texts, times, whats)
condemned_records = st.builds(CondemnedRecord, ids, st.none() | ids, scopes, times)
