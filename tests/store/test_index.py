"""One index: who lists record folders, what is kept of records, and when tags are looked up."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit.around import Around

import lcstore
from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys
from lcstore.format.marks import RetiredRecord, read_retired
from lcstore.format.records import utc_now
from lcstore.index import listing
from lcstore.index.index import Index
from lcstore.index.listing import COLLECTING, READING, Listing
from lcstore.index.resolve import check_run
from lcstore.records.kinds import KINDS, RETIRED, Kind
from lcstore.records.reading import Records, read_all, read_each
from lcstore.storage.memory import MemoryBackend


class Counted(Around):
    """A backend that counts what is listed and read, by the first part of the key."""

    def __init__(self, inner: MemoryBackend) -> None:
        super().__init__(inner)
        self.lists: Counter[str] = Counter()
        self.gets: Counter[str] = Counter()
        self.threads: set[int] = set()

    def list(self, prefix: str, foreign: list[str] | None = None) -> list[str]:
        self.lists[prefix.partition("/")[0]] += 1
        self.threads.add(threading.get_ident())
        return self.inner.list(prefix, foreign)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        self.gets[key.partition("/")[0]] += 1
        return self.inner.get(key, start, end)


def state(number: int) -> dict[str, np.ndarray]:
    return {"a.weight": np.random.default_rng(number).standard_normal((4, 8)).astype(np.float32)}


def marks(backend: MemoryBackend, count: int) -> list[str]:
    """Store some records of nearly one size; return their keys."""
    made = [RetiredRecord("ab" * 16, f"reason {number:04d}", utc_now()) for number in range(count)]
    for mark in made:
        backend.put(mark.key(), mark.to_bytes())
    return [mark.key() for mark in made]


class Answers(MemoryBackend):
    """A backend that answers its reads with some texts in turn."""

    def __init__(self, *texts: bytes) -> None:
        super().__init__("answers")
        self.left = list(texts)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        return self.left.pop(0)


def by_records(backend: MemoryBackend, kind: Kind, key: str) -> RetiredRecord | None:
    try:
        return Records(backend).get(kind, key)
    except CorruptionError:
        return None


def by_listing(backend: MemoryBackend, kind: Kind, key: str) -> RetiredRecord | None:
    (read,) = read_each(backend, kind, [key])
    assert read.nbytes
    return read.record


@pytest.mark.parametrize("read", [by_records, by_listing])
def test_what_is_damaged_is_read_again_and_parsed_again_where_other_bytes_come(read):
    made = RetiredRecord("ab" * 16, "reason", utc_now())
    good = made.to_bytes()
    bad = good.replace(b"reason", b"season")
    parsed = []

    def parse(key: str, data: bytes) -> RetiredRecord:
        parsed.append(data)
        return read_retired(key, data)

    kind = replace(RETIRED, reader=lambda backend: parse)
    for texts, once, known in [
        ((good,), [good], True),
        ((bad, good), [bad, good], True),
        ((bad, bad), [bad], False),
        ((bad, good[:-1]), [bad, good[:-1]], False),
    ]:
        parsed.clear()
        backend = Answers(*texts)
        assert (read(backend, kind, made.key()) == made) is known
        assert parsed == once
        assert not backend.left


def test_records_are_kept_by_bytes_those_used_last():
    backend = Counted(MemoryBackend.fresh())
    found = marks(backend.inner, 40)
    size = len(backend.inner.get(found[0]))
    records = Records(backend, limit=10 * size)
    for key in found:
        records.get(RETIRED, key)
        assert records.nbytes <= 10 * size
        assert records.get(RETIRED, found[0]).reason == "reason 0000"
    assert backend.gets["retired"] == 40  # the first was used all along, and read once
    for key in found[-9:]:
        records.get(RETIRED, key)
    assert backend.gets["retired"] == 40
    records.get(RETIRED, found[20])
    assert backend.gets["retired"] == 41


def test_a_record_past_the_limit_is_kept_alone():
    backend = Counted(MemoryBackend.fresh())
    first, second = marks(backend.inner, 2)
    records = Records(backend, limit=1)
    for key in (first, first, second, second):
        records.get(RETIRED, key)
    assert backend.gets["retired"] == 2
    assert records.nbytes == len(backend.inner.get(second))


def test_a_restore_by_tag_lists_names_once_and_reads_the_tag_once():
    backend = Counted(MemoryBackend.fresh())
    with lcstore.open(backend) as store:
        store.save(0, state(0), tags=["gold"])
        store.save(1, state(1))
        for _ in range(3):
            backend.lists.clear()
            assert store.restore("gold")["a.weight"].shape == (4, 8)
            assert backend.lists == Counter(KINDS.keys() - {keys.LAYOUTS})
        assert backend.gets["names"] == 1


def test_nobody_waits_for_the_record_of_a_tag():
    """The lock of the index is not held while the record of a tag is read."""
    inner = MemoryBackend.fresh()
    with lcstore.open(inner) as store:
        store.save(0, state(0), tags=["gold"])
    reading, done = threading.Event(), threading.Event()

    class Slow(Counted):
        def get(self, key, start=None, end=None):
            if key.startswith("names/"):
                reading.set()
                assert done.wait(20)
            return super().get(key, start, end)

    index = Index(Slow(inner))
    index.refresh(full=True)
    thread = threading.Thread(target=index.resolve, args=("gold",))
    thread.start()
    assert reading.wait(20)
    assert index.resolve(0).step == 0
    index.refresh(full=True)
    done.set()
    thread.join()


def test_a_tag_whose_record_is_damaged_finds_nothing():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        store.save(0, state(0), tags=["gold"])
    (key,) = backend.list(keys.NAMES)
    backend.put(key, backend.get(key).replace(b"gold", b"lead"))
    with lcstore.open(backend, "r") as store, pytest.raises(CorruptionError):
        store.restore("gold")


def test_a_refresh_lists_folders_side_by_side():
    inner = MemoryBackend.fresh()
    with lcstore.open(inner) as store:
        store.save(0, state(0))
    together = threading.Barrier(len(READING[0]), timeout=20)

    class Meeting(Counted):
        def list(self, prefix, foreign=None):
            together.wait()
            return super().list(prefix, foreign)

    with lcstore.open(Meeting(inner), "r", threads=len(READING[0])) as store:
        assert store.steps() == [0]


@pytest.mark.parametrize("there", [False, True])
def test_a_record_that_is_gone_is_a_problem_only_if_it_is_still_listed(there):
    backend = MemoryBackend.fresh()
    found = marks(backend, 3)

    class Gone(Counted):
        def get(self, key, start=None, end=None):
            if key == found[1]:
                raise NotFoundError("no such object", key=key)
            return super().get(key, start, end)

    if not there:
        backend.delete(found[1])
    problems: list[str] = []
    read: list[str] = []
    left = read_all(
        Gone(backend), RETIRED, found, lambda key, _: read.append(key), lambda key, _: problems.append(key)
    )
    assert read == [found[0], found[2]]
    assert problems == ([found[1]] if there else [])
    assert left == {*read, *problems}


def test_a_collector_lists_marks_before_records_and_pins_after_them():
    order = [folder for group in COLLECTING for folder in group]
    assert order.index(keys.CONDEMNED) < order.index(keys.DATA) < order.index(keys.NODES)
    assert order.index(keys.LAYOUTS) < order.index(keys.NODES) < order.index(keys.NAMES)
    assert order.index(keys.RETIRED) < order.index(keys.NODES)
    backend = MemoryBackend.fresh()
    (early,) = marks(backend, 1)

    class Late(Counted):
        def list(self, prefix, foreign=None):
            if prefix == keys.NODES:
                marks(backend, 2)
            return super().list(prefix, foreign)

    taken = Listing.take(Late(backend), COLLECTING)
    assert taken.before[keys.RETIRED] == {early}
    assert set(taken.below(keys.RETIRED)) > {early}


def test_only_the_listing_enumerates_record_folders():
    """Elsewhere nobody lists a folder of records by its name."""
    library = Path(lcstore.__file__).parent
    folders = "|".join(("NODES", "EDGES", "LAYOUTS", "COPIES", "NAMES", "RETIRED", "CONDEMNED"))
    wrong = re.compile(rf"\.list\(\s*(keys\.({folders})|\"({folders.lower()})\")")
    found = [
        str(path.relative_to(library)) for path in library.rglob("*.py") if wrong.search(path.read_text())
    ]
    assert found == []
    assert set(KINDS) == {getattr(keys, name) for name in folders.split("|")}
    assert wrong.search("backend.list(keys.NODES)")
    assert Path(listing.__file__).read_text().count("backend.list(") == 1


def test_a_listed_state_says_what_was_stored_and_measured():
    with lcstore.open(MemoryBackend.fresh()) as store:
        info = store.save(0, {"w": np.ones((8, 8), np.float32)}, metrics={"loss": 1.0})
        (listed,) = store.states()
        assert (listed.bytes_stored, listed.metrics) == (info.bytes_stored, {"loss": 1.0})
        (listed,) = store.states(records=False)
        assert (listed.bytes_stored, listed.metrics) == (None, {})


def test_runs_are_told_while_another_thread_takes_in_a_state():
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, {"w": np.zeros(8, np.float32)})
        graph = store._reader.listed()

    class Busy(set):
        """Where a look at one state comes when another thread adds one."""

        def __contains__(self, node) -> bool:
            latest = next(iter(graph.nodes.values()))
            graph.nodes[f"{len(graph.nodes):032x}"] = replace(latest, node=f"{len(graph.nodes):032x}")
            return super().__contains__(node)

    assert graph.latest(1) is not None  # which is kept, and found under a lock
    graph.hidden = Busy()
    check_run(graph, "memory://", 1)
    assert len(graph.nodes) == 2


def test_records_that_are_read_many_at_a_time_fill_a_quarter_of_the_room():
    backend = Counted(MemoryBackend.fresh())
    found = marks(backend.inner, 8)
    size = backend.size(found[0])
    known = Records(backend, limit=16 * size)
    for _ in range(2):
        read = list(read_each(backend, RETIRED, found, known=known))
        assert [one.record.reason for one in read] == [f"reason {number:04d}" for number in range(8)]
        assert [one.nbytes for one in read] == [size] * 8
    assert known.nbytes == 4 * size
    assert backend.gets["retired"] == 8 + 4


def test_what_is_damaged_is_not_kept_of_many():
    """It may be whole when it is read next."""
    backend = MemoryBackend.fresh()
    (key,) = marks(backend, 1)
    whole = backend.get(key)
    broken = MemoryBackend.fresh({key: whole[:-2]})
    known = Records(backend)
    (read,) = read_each(broken, RETIRED, [key], known=known)
    assert read.record is None
    assert known.peek(key) is None
    (read,) = read_each(backend, RETIRED, [key], known=known)
    assert read.record is not None
