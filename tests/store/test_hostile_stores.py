"""Stores that nobody wrote in good faith: errors of ours, in bounded time and memory, without content."""

from __future__ import annotations

import copy
import json
import math
import time
import tracemalloc

import numpy as np
import pytest
from forged import SECRET, Forge, one_state, text

import lcstore
from lcstore import limits
from lcstore.errors import CorruptionError, LcstoreError, LimitError
from lcstore.format import keys
from lcstore.format.hashing import hash_of
from lcstore.format.records import NodeRecord, record_id
from lcstore.storage.memory import MemoryBackend

BIG = 1 << 36
SECONDS, MEMORY = 5.0, 512 << 20
#: What stands in the place of any value.
ODD = {
    "null": None,
    "true": True,
    "minus one": -1,
    "a float": 1.5,
    "past 64 bits": 10**30,
    "text": f"{SECRET}\x1b[2J",
    "a long text": SECRET * 50_000,
    "a list": [SECRET, 1],
    "an object": {SECRET: SECRET},
    "a deep list": json.loads("[" * 120 + "]" * 120),
}


@pytest.fixture(scope="module")
def objects():
    found = one_state()
    for use in uses(Forge(copy.deepcopy(found)).seal()):
        use()  # what is compiled when it is first used is none of a case's time
    return found


@pytest.fixture
def forge(objects):
    return Forge(copy.deepcopy(objects))


def uses(backend):
    """Yield what a user may do with a store."""
    with lcstore.open(backend, "r") as store:
        yield store.steps
        yield lambda: store.info("latest")
        yield lambda: store.restore("latest")
        yield lambda: store.restore("latest", names="model/zeros")
        yield lambda: store.at("latest").sel["model/w", 3:5]
        yield lambda: store.at("latest").sel["model/zeros", 1:2]
        yield lambda: store.at("latest").bytes_to_read()
        yield lambda: store.best_step("loss", "min")
        yield store.paths
        yield lambda: store.verify("restore")
    with lcstore.open(backend) as store:
        yield lambda: store.resume("latest", on_corrupt="previous")
        yield lambda: store.collect(dry_run=True)
        yield lambda: store.save(9, {"model": {"w": np.ones((4, 4), np.float32)}})


def check(backend, *, seconds=SECONDS, traced=True):
    """Use a store, with an eye on errors, time and memory; return the errors.

    To trace memory takes several times as long as what is traced: who looks at much does one after the other.
    """
    found = []
    if traced:
        tracemalloc.start()
    try:
        for use in uses(backend):
            if traced:
                tracemalloc.reset_peak()
            # Of all threads: much is read by those of a pool.
            before, begin = tracemalloc.get_traced_memory()[0], time.process_time()
            try:
                said = use()
            except LcstoreError as error:
                said = error.with_traceback(None)  # whose frames hold all that was parsed
                found.append(said)
            assert time.process_time() - begin < seconds
            assert tracemalloc.get_traced_memory()[1] - before < MEMORY
            if isinstance(said, LcstoreError):
                assert SECRET not in str(said)
                assert "\x1b" not in str(said)
    finally:
        tracemalloc.stop()
    return found


def test_the_store_that_all_begin_with_is_whole(forge):
    assert not check(forge.seal())


FIELDS = [
    *((name,) for name in ("created", "edge", "features", "format", "kind", "metadata", "metrics", "parent")),
    *((name,) for name in ("run", "run_id", "seq", "software", "stats", "step", "tags")),
    *(("edge", name) for name in ("base", "id", "parts")),
    *(("edge", "parts", 0, name) for name in ("columns", "exact", "layout", "leaves", "leaves_object")),
    *(("edge", "parts", 0, name) for name in ("name", "objects")),
    *(("edge", "parts", 0, "objects", 0), ("edge", "parts", 0, "objects", 0, 0)),
    *(("edge", "parts", 0, "objects", 0, 1), ("edge", "parts", 0, "objects", 0, 2)),
    *(("edge", "parts", 0, "columns", name) for name in ("digest", "grid", "op", "scale", "shift")),
]


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: ".".join(map(str, path)))
def test_odd_values_in_a_record(objects, path):
    odd_ones(objects, path, list(ODD)[FIELDS.index(path) % 4 :: 4])


@pytest.mark.soak
@pytest.mark.parametrize("path", FIELDS, ids=lambda path: ".".join(map(str, path)))
def test_all_odd_values_in_a_record(objects, path):
    odd_ones(objects, path, list(ODD))


def odd_ones(objects, path, names):
    for name in names:
        odd = ODD[name]
        forge = Forge(copy.deepcopy(objects))
        at = forge.record
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = odd
        check(forge.seal())


def tensors(change):
    def do(forge):
        change(forge.layout["tensors"], forge.layout["pools"])

    return do


def shape(number, *sizes):
    def do(forge):
        row = forge.layout["tensors"][number]
        row[2] = list(sizes)
        pool = next(pool for pool in forge.layout["pools"] if pool[0] == row[0])
        size = int(np.prod([float(size) for size in sizes]))
        pool[1] = max(pool[1], -(-size // 1024) * 1024)

    return do


def leaves(*values):
    return lambda forge: forge.part.update(leaves=list(values))


def structure(value):
    return lambda forge: forge.layout.update(structure=value)


def deep(depth):
    found = "tensor"
    for _ in range(depth):
        found = ["list", [found]]
    return found


LAYOUTS = {
    "256 GiB of zeros": shape(1, BIG),
    "256 GiB of weights": shape(0, BIG),
    "256 GiB of moments": shape(3, BIG),
    "2^62 elements": shape(1, 1 << 62),
    "a shape that wraps": shape(1, 1 << 40, 1 << 40),
    "sixty-five dimensions": shape(1, *[1] * 65),
    "a negative size": shape(1, -4),
    "a tensor past its pool": tensors(lambda rows, pools: rows[1].__setitem__(1, 1 << 40)),
    "two tensors in one place": tensors(lambda rows, pools: rows.__setitem__(3, rows[0])),
    "an unknown pool": tensors(lambda rows, pools: rows[1].__setitem__(0, SECRET)),
    "an unknown framework": tensors(lambda rows, pools: rows[1].__setitem__(3, SECRET)),
    "keys of another width": tensors(lambda rows, pools: rows[1].__setitem__(3, "jax-key-rbg")),
    "a row too few": tensors(lambda rows, pools: rows.pop()),
    "a row too many": tensors(lambda rows, pools: rows.append(rows[-1])),
    "a row of nothing": tensors(lambda rows, pools: rows.__setitem__(0, [])),
    "a pool twice": tensors(lambda rows, pools: pools.append(pools[0])),
    "a pool of an unknown name": tensors(lambda rows, pools: pools[1].__setitem__(0, SECRET)),
    "a pool of an unknown dtype": tensors(lambda rows, pools: pools[1].__setitem__(0, f"plain-{SECRET}")),
    "a pool of 2^60": tensors(lambda rows, pools: pools[1].__setitem__(1, 1 << 60)),
    "a pool of nothing": tensors(lambda rows, pools: pools[1].__setitem__(1, 0)),
    "chunks of nothing": tensors(lambda rows, pools: pools[1].__setitem__(2, 0)),
    "chunks of 2^40": tensors(lambda rows, pools: pools[1].__setitem__(2, 1 << 40)),
    "another structure": structure(["dict", [SECRET], ["tensor"]]),
    "a structure of nothing": structure(None),
    "a structure of a text": structure(SECRET),
    "a structure of 70 levels": structure(deep(70)),
    "keys twice": structure(["dict", ["a", "a"], ["tensor", "tensor"]]),
    "more keys than children": structure(["dict", ["a", "b"], ["tensor"]]),
    "an unknown kind": structure([SECRET, [], []]),
    "no leaves": leaves(),
    "a leaf too few": leaves("text"),
    "a leaf too many": leaves("text", 3, SECRET),
    "a leaf of no kind": leaves("text", {SECRET: 1}),
    "a leaf of bad base64": leaves("text", {"bytes": SECRET}),
    "a leaf of a bad integer": leaves("text", {"int": SECRET}),
    "a leaf of lists": leaves("text", [SECRET]),
    "a layout of another format": lambda forge: forge.layout.update(format=SECRET),
    "a layout of another kind": lambda forge: forge.layout.update(kind=SECRET),
    "a layout without an id": lambda forge: forge.layout.pop("id"),
    "a layout with a field too many": lambda forge: forge.layout.update({SECRET: 1}),
    "objects that are not there": lambda forge: forge.chunk_ref(0).__setitem__(1, 2 << 30),
    "an object twice": lambda forge: forge.part["objects"].append(forge.part["objects"][0]),
    "no objects": lambda forge: forge.part["objects"].clear(),
    "no columns": lambda forge: forge.part["columns"].clear(),
    "columns of 3 MB": lambda forge: forge.part["columns"].update(op="AAAA" * 1_000_000),
    "a parent that is not there": lambda forge: forge.record.update(parent="0" * 32),
    "a chunk of nothing": lambda forge: forge.chunk(0, b""),
    "a chunk of noise": lambda forge: forge.chunk(1, bytes(range(256)) * 9),
    "the chunk of another array": lambda forge: forge.chunk(1, forge.chunk_bytes(0)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_leaves_and_objects_that_lie(forge, name):
    LAYOUTS[name](forge)
    found = check(forge.seal())
    assert found
    if name in ("a leaf too few", "a leaf too many", "no leaves"):
        assert any(isinstance(error, CorruptionError) and "plain values" in str(error) for error in found)


def texts(N: int) -> dict[str, bytes]:
    """Texts of about `N` bytes that are no records, or cost much to read."""
    return {
        "lists of nothing": b"[" + b"[]," * (N // 3) + b"[]]",
        "objects of nothing": b"[" + b"{}," * (N // 3) + b"{}]",
        "objects of one key": b"[" + b'{"a":1},' * (N // 8) + b"1]",
        "many keys": b"{" + b",".join(b'"%d":0' % i for i in range(N // 10)) + b"}",
        "one key many times": b"{" + b",".join([b'"k":0'] * (N // 6)) + b"}",
        "numbers": b"[" + b"1," * (N // 2) + b"1]",
        "floats": b"[" + b"1e5," * (N // 4) + b"1]",
        "texts": b"[" + b'"ab",' * (N // 5) + b"1]",
        "deep lists in a row": b"[" + (b"[" * 150 + b"]" * 150 + b",") * (N // 301) + b"1]",
        "brackets that never close": b"[" * N,
        "quotes that never close": b'["' * (N // 2),
        "backslashes": b'"' + b"\\" * N + b'"',
        "escapes": b'"' + b"\\u0041" * (N // 6) + b'"',
        "a number of 8 million digits": b"1" * N,
        "numbers of a thousand digits": b"[" + (b"1" * 1000 + b",") * (N // 1001) + b"1]",
        "a number past a double": b"[1e999]",
        "not a number": b"[NaN]",
        "half a surrogate pair": b'"\\ud800"',
        "not UTF-8": b'"\xff"',
        "emoji": ('"' + "\U0001f600" * (N // 4) + '"').encode(),
        "blanks": b" " * N + b"1",
        "a byte order mark": b"\xef\xbb\xbf1",
        "33 MiB": b" " * (33 << 20),
        "nothing": b"",
    }


TEXTS = texts(1 << 17)


#: 33 MiB are past the limit for a record, so they are not even read; a layout of that size takes its time.
QUICK = [(what, name) for what in ("record", "layout") for name in TEXTS if what + name != "layout33 MiB"]


@pytest.mark.parametrize(("what", "name"), QUICK)
def test_texts_that_are_no_records(forge, what, name):
    assert check(forge.seal(**{what: TEXTS[name]}))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("what", ["record", "layout"])
def test_large_texts_that_are_no_records(forge, what, name):
    backend = forge.seal(**{what: texts(8 << 20)[name]})
    same = MemoryBackend.fresh(backend.snapshot())
    assert check(backend, traced=False)
    assert check(same, seconds=math.inf)


def test_values_of_zeros_are_bounded_by_a_limit_that_can_be_raised(forge, monkeypatch):
    shape(1, 1 << 25)(forge)
    backend = forge.seal()
    monkeypatch.setattr(limits, "MAX_UNSTORED_BYTES", 1 << 26)
    with lcstore.open(backend, "r") as store:
        with pytest.raises(LimitError, match="LCSTORE_MAX_UNSTORED_BYTES"):
            store.restore("latest")
        # A window is as large as the window.
        tracemalloc.start()
        assert not store.at("latest").sel["model/zeros", 1 << 24 : (1 << 24) + 5].any()
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
        tracemalloc.stop()
        assert store.restore("latest", names="model/w")["model"]["w"].any()
        monkeypatch.setattr(limits, "MAX_UNSTORED_BYTES", 1 << 36)
        assert store.restore("latest")["model"]["zeros"].size == 1 << 25


def test_walks_are_bounded_by_what_is_stored_as_restores_are(monkeypatch):
    """From the second state on they took what a layout claims."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none", threads=1) as store:
        for step in range(3):
            store.save(step, {"model": {"w": np.ones((64, 64), np.float32) + step / 100}})
    objects = backend.snapshot()
    last = max(key for key in objects if key.startswith("nodes/"))
    record = json.loads(objects.pop(last))
    (part,) = record["edge"]["parts"]
    layout = json.loads(objects[f"layouts/{part['layout']}.json"])
    ((name, _, chunk),) = layout["pools"]
    data = text(layout | {"pools": [[name, 1 << 26, chunk]]})
    part["layout"] = hash_of(data)
    objects[f"layouts/{part['layout']}.json"] = data
    data = text(record)
    objects[keys.node_key(NodeRecord.from_bytes(data, key=last).name(record_id(data)))] = data
    monkeypatch.setattr(limits, "MAX_UNSTORED_BYTES", 1 << 24)
    with lcstore.open(MemoryBackend.fresh(objects), "r", threads=1) as store:
        for use in (
            lambda: store.restore(2),
            lambda: store.diff(1, 2),
            lambda: list(store.walk([1, 2])),
            lambda: list(store.history("model/w")),
        ):
            with pytest.raises(LimitError):
                use()


def test_walks_from_an_exact_state_on_are_not_taken_for_forged(monkeypatch):
    """What they hold was stored as exact values, and nothing more of what did not change since."""
    backend, weights = MemoryBackend.fresh(), np.random.default_rng(0).standard_normal((256, 256), np.float32)
    with lcstore.open(backend, durability="none", threads=1) as store:
        for step in range(4):
            store.save(step, {"model": {"w.weight": weights, "v.weight": weights + step // 3}, "step": step})
    monkeypatch.setattr(limits, "MAX_UNSTORED_BYTES", 1 << 10)
    with lcstore.open(backend, "r", threads=1) as store:
        for steps in ([0, 1, 2, 3], [1, 2, 3], [2, 3], [3, 1]):
            assert [step for step, _ in store.walk(steps)] == steps
        assert len([*store.history("model/w.weight")]) == 4
        assert len(store.diff(0, 2))


def test_a_layout_of_100_000_tensors_is_read_in_time(forge):
    count = 100_000
    structure = ["dict", [f"layers.{i}.attention.query.weight" for i in range(count)], ["tensor"] * count]
    rows = [["plain-float32", 16 * i, [4, 4], "numpy"] for i in range(count)]
    layout = forge.layout | {
        "structure": structure,
        "tensors": rows,
        "pools": [["plain-float32", 16 * count, 1 << 20]],
    }
    from lcstore.format.hashing import hash_of
    from lcstore.format.layoutfile import read_layout

    data = text(layout)
    begin = time.thread_time()
    assert len(read_layout(f"layouts/{hash_of(data)}.json", data).tensors) == count
    assert time.thread_time() - begin < 4
