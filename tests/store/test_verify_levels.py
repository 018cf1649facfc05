"""The levels of verifying, samples and time; and what retired, condemned and redundant parts come to."""

from __future__ import annotations

import math
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from damaged import CREATED, grown, merge, put, restorable, state, with_part

import lcstore
from lcstore import LatestN
from lcstore.check import looker as checking
from lcstore.check.findings import VerifyReport
from lcstore.check.verify import verify
from lcstore.format import keys
from lcstore.format.marks import CondemnedRecord, RetiredRecord
from lcstore.format.records import EdgeRecord, NodeRecord, node_id, read_edge, read_node
from lcstore.graph.paths import TwoWayPaths
from lcstore.storage.memory import MemoryBackend

LEVELS = ("structure", "checksum", "decode", "restore")


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """A store with shortcuts, retired, condemned and pinned states, a fork and an exact value."""
    return grown()


def look(objects: dict[str, bytes], level: str = "checksum", **more: object) -> VerifyReport:
    return verify(MemoryBackend.fresh(objects), level, **more)


def node_at(objects: dict[str, bytes], step: int) -> NodeRecord:
    key = next(key for key in objects if key.startswith(f"nodes/{step:019d}"))
    return read_node(key, objects[key])


def id_at(objects: dict[str, bytes], step: int) -> str:
    return keys.parse_node_key(next(k for k in objects if k.startswith(f"nodes/{step:019d}"))).node


def shortcut_to(objects: dict[str, bytes], step: int) -> EdgeRecord:
    key = next(k for k in objects if k.startswith(f"edges/{id_at(objects, step)}"))
    return read_edge(key, objects[key])


def bad(objects: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return objects | {key: b"?" * len(objects[key]) for key in names}


def without(objects: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {key: data for key, data in objects.items() if key not in names}


def errors(report: VerifyReport) -> list[tuple[str, str | None]]:
    return [(f.check, f.key) for f in report.findings if f.severity == "error"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_whole_store_is_good_at_every_level(objects, level):
    report = look(objects, level)
    assert report.findings == ()
    assert (report.states, report.lost, report.good) == (
        7,
        (),
        45,
    )  # the retired one is none, the pinned one is
    listed = sum(key.startswith("data/") for key in objects)
    assert (report.objects, report.skipped, report.complete) == (listed, 0, True)
    data = sum(len(v) for k, v in objects.items() if k.startswith("data/"))
    assert report.bytes_read == (0 if level == "structure" else data)


@pytest.mark.filterwarnings("ignore::lcstore.errors.FallbackWarning")
def test_lost_is_what_restore_refuses(objects):
    """Also where paths lead over shortcuts, past condemned edges, and where a retired state is damaged."""
    for key in [key for key in objects if key.startswith("data/") and not key.endswith("zarr.json")]:
        damaged = bad(objects, key)
        report = look(damaged)
        refused = []
        with lcstore.open(MemoryBackend.fresh(damaged), "r") as store:
            for step in store.steps():
                try:
                    store.restore(step)
                except lcstore.CorruptionError:
                    refused.append(step)
        assert list(report.lost) == refused, key
        assert not refused or (("object", key) in errors(report))
        if not refused and report.ok:  # nothing that is kept could be had of it
            with_it, without_it = restorable(objects), restorable(damaged)
            assert set(with_it) - set(without_it) <= {id_at(objects, 30)}


def test_damage_of_a_retired_state_matters_where_a_kept_one_stands_on_it(objects):
    edge = node_at(objects, 30).edge.id
    moments = f"data/{edge}/0/first-float32.set/c.0"
    report = look(bad(objects, moments))
    assert report.ok
    assert [(f.severity, f.check, f.key) for f in report.findings] == [("info", "object", moments)]
    delta = f"data/{edge}/0/weights-float32.add/c.0"  # readers take the anchor, but might need it one day
    report = look(bad(objects, delta))
    assert errors(report) == [("object", delta)]
    assert report.lost == ()


def test_a_condemned_object_may_be_gone(objects):
    spare = shortcut_to(objects, 20)
    gone = [ref.key for ref in spare.edge.objects]
    assert look(without(objects, *gone)).findings == ()
    report = look(bad(objects, gone[0]))
    assert [(f.severity, f.key) for f in report.findings] == [("info", gone[0])]
    # Of an edge that a kept state is read over it may not.
    chunk = f"data/{node_at(objects, 60).edge.id}/0/weights-float32.add/c.0"
    mark = CondemnedRecord(node_at(objects, 60).edge.id, id_at(objects, 60), "weights-float32.add", CREATED)
    there = objects | {mark.key(): mark.to_bytes()}
    assert look(there).ok
    report = look(without(there, chunk))
    assert [check for check, _ in errors(report)] == ["state"]
    assert report.lost == (60,)
    assert chunk in report.findings[0].message


def test_readers_keep_off_condemned_edges(objects):
    """What is condemned and gone costs nothing where another path leads to the state."""
    own = node_at(objects, 40).edge
    mark = CondemnedRecord(own.id, id_at(objects, 40), "weights-float32.add", CREATED)
    chunk = f"data/{own.id}/0/weights-float32.add/c.0"
    rest = without(objects, chunk) | {mark.key(): mark.to_bytes()}
    assert look(rest, "restore").ok
    moments = f"data/{own.id}/0/first-float32.set/c.0"  # the shortcut leaves these to the own edge
    report = look(bad(rest, moments))
    assert errors(report) == [("object", moments)]
    assert report.lost == (40,)


def test_what_was_let_go_of_may_be_gone(objects):
    node, record = id_at(objects, 20), node_at(objects, 20)
    exact = [ref.key for ref in record.exact.objects]
    marks = [
        RetiredRecord(node, "", CREATED, "exact"),
        CondemnedRecord(record.edge.id, node, "exact", CREATED),
    ]
    said = {mark.key(): mark.to_bytes() for mark in marks}
    assert not look(without(objects, *exact)).ok
    assert look(without(objects, *exact) | said).ok
    assert look(bad(objects, *exact) | said).ok
    node, edge = id_at(objects, 50), node_at(objects, 50).edge.id
    moments = f"data/{edge}/0/first-float32.set/c.0"
    marks = [
        RetiredRecord(node, "", CREATED, "pool.first-float32"),
        CondemnedRecord(edge, node, "first-float32.set", CREATED),
    ]
    said = {mark.key(): mark.to_bytes() for mark in marks}
    assert look(without(objects, moments) | said).ok
    report = look(without(objects, moments) | {marks[1].key(): marks[1].to_bytes()})
    assert report.lost == (50,)
    assert [check for check, _ in errors(report)] == ["state"]


def test_collected_bases_are_no_damage():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0, durability="none") as store:
        for step in range(6):
            store.save(step, state(step))
        merge(store, None, 4)
        for step in range(4):
            store.retire(step)
        store.collect()
        store.collect()
        for level in LEVELS:
            report = store.verify(level)
            assert report.ok
            assert (report.states, report.lost) == (2, ())


# Deeper levels ----------------------------------------------------------------------------------------------


def reworded(
    objects: dict[str, bytes], record: EdgeRecord, column: str, at: int, to: int
) -> dict[str, bytes]:
    """Change one byte of a shortcut's columns; its record is whole."""
    columns = bytearray(record.edge.columns[column])
    columns[at] = to
    edge = with_part(record.edge, columns=record.edge.columns | {column: bytes(columns)})
    made = replace(record, edge=edge)
    return objects | {keys.edge_key(record.name): made.to_bytes()}


def test_ways_around_condemned_edges_are_looked_for_all_at_once(monkeypatch):
    backend, searches = MemoryBackend.fresh(), []
    with lcstore.open(backend) as store:
        for step in range(30):
            store.save(step, state(step))
        store.retain(LatestN(2))
        store.compact()
        store.collect()  # within its grace: edges are condemned, and there yet
    search = TwoWayPaths._search
    monkeypatch.setattr(TwoWayPaths, "_search", lambda *given: searches.append(1) or search(*given))
    report = verify(backend, "restore")
    assert (report.ok, len(report.findings)) == (True, 0)
    assert len(searches) == 1


def test_a_shortcut_has_to_lead_to_its_target(objects):
    record = shortcut_to(objects, 40)
    key = keys.edge_key(record.name)
    digests = record.edge.columns["digest"]
    for column, to in (("digest", digests[0] ^ 1), ("op", 2), ("op", 4), ("op", 0)):
        for at in range(len(record.edge.columns["op"])):
            spoiled = reworded(objects, record, column, at, to)
            if spoiled[key] == objects[key]:
                continue
            report = look(spoiled, "restore")
            assert key in {where for _, where in errors(report)}, (column, at, to)


def test_every_edge_is_proved(objects):
    """A chunk exchanged for a whole one of another edge decodes, and gives another sum."""
    first, second = (node_at(objects, step) for step in (50, 60))
    chunks = [f"data/{r.edge.id}/0/weights-float32.add/c.0" for r in (first, second)]
    spoiled = dict(objects)
    key = next(k for k in objects if k.startswith(f"nodes/{60:019d}"))
    ref = next(ref for ref in second.edge.objects if ref.key == chunks[1])
    other = next(ref for ref in first.edge.objects if ref.key == chunks[0])
    text = objects[key].replace(ref.hash.encode(), other.hash.encode())
    text = text.replace(
        f'c.0",{ref.nbytes},"{other.hash}'.encode(), f'c.0",{other.nbytes},"{other.hash}'.encode()
    )
    record = NodeRecord.from_bytes(text, key=key)
    del spoiled[key]
    spoiled[keys.node_key(record.name(node_id(text)))] = text
    spoiled[chunks[1]] = objects[chunks[0]]
    assert look(spoiled, "decode").ok
    report = look(spoiled, "restore")
    assert [(f.check, f.step) for f in report.findings if f.severity == "error"] == [("digest", 60)]
    assert "model" in report.findings[0].message
    assert report.lost == (60,)


@pytest.mark.parametrize("level", ["decode", "restore"])
def test_memory_is_bounded_by_chunks(level, monkeypatch):
    """However many chunks and edges there are, each thread decodes one at a time."""
    most, now, lock = [0], [0], threading.Lock()
    decode = checking.decode

    def counted(*args):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        try:
            return decode(*args)
        finally:
            with lock:
                now[0] -= 1

    monkeypatch.setattr(checking, "decode", counted)
    monkeypatch.setattr(checking, "default_threads", lambda: 2)
    backend = MemoryBackend.fresh(grown())
    assert verify(backend, level).ok
    assert 1 <= most[0] <= 2


# Samples and time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_all_slices_together_are_all(objects, level):
    chunk = f"data/{node_at(objects, 60).edge.id}/0/weights-float32.add/c.0"
    damaged = bad(objects, chunk) if level != "structure" else objects | {chunk: b"short"}
    whole = look(damaged, level)
    assert not whole.ok
    reports = [look(damaged, level, sample=(n, 4)) for n in (1, 2, 3, 4)]
    assert sum(report.objects for report in reports) == whole.objects
    assert sum(report.bytes_read for report in reports) == whole.bytes_read
    assert {report.objects + report.skipped for report in reports} == {whole.objects}
    assert all(report.complete for report in reports)
    assert Counter(report.ok for report in reports) == {True: 3, False: 1}
    assert [look(damaged, level, sample=(2, 4)).objects] == [reports[1].objects]


def test_a_sample_proves_whole_edges(objects):
    reports = [look(objects, "restore", sample=(n, 3)) for n in (1, 2, 3)]
    assert all(report.ok for report in reports)


def test_records_and_missing_objects_are_in_every_sample(objects):
    record = next(k for k in objects if k.startswith(f"nodes/{50:019d}"))
    chunk = f"data/{node_at(objects, 60).edge.id}/0/weights-float32.add/c.0"
    for number in range(1, 6):
        report = look(bad(without(objects, chunk), record), sample=(number, 5))
        assert {record, chunk} <= {key for _, key in errors(report)}


def test_it_stops_in_time(objects):
    report = look(objects, "restore", max_seconds=1e-9)
    assert report.ok
    assert not report.complete
    assert report.objects == 0
    assert report.skipped == look(objects).objects
    assert [(f.severity, f.check) for f in report.findings] == [("info", "time")]
    assert str(report.skipped) in report.findings[0].message
    assert look(objects, max_seconds=1e6).complete


@pytest.mark.parametrize("sample", [(0, 4), (5, 4), (1, 0), (-1, -1)])
def test_a_sample_that_is_none(objects, sample):
    with pytest.raises(lcstore.InvalidInputError):
        look(objects, sample=sample)


@pytest.mark.parametrize("seconds", [0, -1, math.nan])
def test_a_time_that_is_none(objects, seconds):
    with pytest.raises(lcstore.InvalidInputError):
        look(objects, max_seconds=seconds)


def test_objects_collected_meanwhile_are_not_missed(objects):
    """Between the listing and the look a collector condemns a shortcut and deletes its objects."""
    spare = shortcut_to(objects, 40)

    class Collected(MemoryBackend):
        def _get(self, key, start, end):
            if key == spare.edge.objects[0].key:
                put(self, CondemnedRecord(spare.edge.id, None, "edge", CREATED))
                for ref in spare.edge.objects:
                    self.delete(ref.key)
            return super()._get(key, start, end)

    report = verify(Collected.fresh(objects), "checksum")
    assert report.ok


def test_states_of_many_kinds_are_proved():
    """Weights of several dtypes, tables, buffers, counts: digests fit at the deepest level."""
    backend = MemoryBackend.fresh()
    rng = np.random.default_rng(0)
    weights = {
        f"w{i}.weight": rng.standard_normal((40, 33)).astype(d) for i, d in enumerate(("f4", "f8", "f2"))
    }
    with lcstore.open(backend, durability="none") as store:
        for step in range(4):
            weights = {k: (v * (1 + 0.001 * step)).astype(v.dtype) for k, v in weights.items()}
            if step == 2:
                weights["new.weight"] = rng.standard_normal((7, 50)).astype(np.float32)
                weights["zero.weight"] = np.zeros((30, 30), np.float32)
            model = {**weights, "mask": rng.random((9, 9)) > 0.5, "z": np.array([1j, 2], np.complex128)}
            store.save(step, {"model": model, "optim": {"state": {0: {"exp_avg": model["w0.weight"] / 9}}}})
        merge(store, None, 3)
        merge(store, 0, 3)
        assert store.verify("restore").findings == ()
