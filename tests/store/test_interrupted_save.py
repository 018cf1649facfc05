"""A save that dies, fails or hears nothing back, at every operation it makes: the state before, or after."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest
from conftest import Run
from states import same, tracked

import lcstore
from lcstore import LcstoreError, StorageError, UnknownOutcomeError
from lcstore.format import keys
from lcstore.graph.graph import Graph
from lcstore.index.index import Index
from lcstore.records.reading import Records
from lcstore.storage.memory import MemoryBackend
from lcstore.testing.faults import Crash, FaultBackend, every_point
from lcstore.write.edgewrite import EdgeWrite

pytestmark = pytest.mark.once

KINDS = ["crash_before", "crash_after", "eio", "enospc", "lost_reply", "lost_request"]


class History:
    """A store with some saves in it, and a handle that is to make one more."""

    def __init__(self, saves: int, fork: bool = False) -> None:
        backend = MemoryBackend.fresh()
        run = Run()
        self.states = [run.step() for _ in range(saves)]
        self.next, self.after = run.step(), run.step()
        store = lcstore.open(backend)
        for step, state in enumerate(self.states):
            store.save(step, state)
        if fork:
            store.resume(saves // 2)
            store.save(saves, self.states[-1])
        self.steps = store.steps()
        self.objects = backend.snapshot()
        self.seen = {step: store.restore(step) for step in self.steps}

    def backend(self) -> MemoryBackend:
        return MemoryBackend.fresh(self.objects)


HISTORIES = {"fresh": History(0), "deep": History(4), "forked": History(4, fork=True)}


def open_at_head(history: History, backend) -> lcstore.Store:
    store = lcstore.open(backend)
    if history.steps:
        store.resume()
    return store


#: What no other case tells: an exact save fails as any other does, and so does one after a fork.
SEVERAL = [
    pytest.param(name, kind, exact, marks=[pytest.mark.soak] if name == "forked" or late else [])
    for name in HISTORIES
    for kind in KINDS
    for exact in (False, True)
    for late in [exact and not kind.startswith("crash")]
]


@pytest.mark.parametrize(("name", "kind", "exact"), SEVERAL)
def test_every_operation(name, kind, exact):
    history = HISTORIES[name]
    new = 100
    handles: list[lcstore.Store] = []

    def save(backend):
        store = open_at_head(history, backend)
        handles.append(store)
        return store.save(new, history.next, exact=exact, tags=["t"])

    points = 0
    for point in every_point(history.backend, save, [kind]):
        points += 1
        backend = point.backend
        lived = [handle for handle in handles if handle.backend is point.faulty]
        # A new process sees the state before or after, and everything that was there.
        other = lcstore.open(backend)
        assert other.steps() in (history.steps, [*history.steps, new])
        landed = new in other.steps()
        if point.error is None:
            assert landed
        for step in history.steps:
            assert same(other.restore(step), history.seen[step])
        assert not other.steps() or other.verify(level="checksum").ok
        node = other.info(new).node if landed else None
        first = other.restore(node) if landed else None
        if isinstance(point.error, Crash):
            # The retry of a new process succeeds.
            retry = open_at_head(history, backend)
            retry.save(new, history.next)
            assert retry.restore(new)["epoch"] == history.next["epoch"]
        elif lived and point.error is not None:
            # The handle that lived on goes on rightly: its retry, then another save.
            store = lived[0]
            store.save(new, history.next, exact=exact)
            store.save(new + 1, history.after)
            seen = lcstore.open(backend, "r").restore(new + 1)
            agree(store, seen)
            assert seen["epoch"] == history.after["epoch"]
        if landed:
            assert same(lcstore.open(backend, "r").restore(node), first)
        last = lcstore.open(backend)
        assert not last.steps() or last.verify(level="checksum").ok
        handles.clear()
    assert points >= (5 if kind == "crash_after" else 8)


def agree(store: lcstore.Store, seen: dict) -> None:
    """What the writer holds as its track is what a reader got."""
    from states import leaves

    values = leaves(seen)
    for path, held in tracked(store).items():
        if store.info().kind == "delta":
            assert values[path].tobytes() == held, path


def test_unknown_outcome_is_settled_by_the_next_save():
    history = HISTORIES["deep"]
    faulty = FaultBackend(history.backend())
    store = open_at_head(history, faulty)
    blind = {"on": True}

    real_get, real_put = faulty.inner.get, faulty.inner.put

    class Half:
        """Puts of records land, but neither the reply nor a read comes through."""

        url, durable, writable = "half", False, True

        def put(self, key, data):
            real_put(key, data)
            if key.startswith("nodes/") and blind["on"]:
                raise UnknownOutcomeError("no reply", key=key)

        def get(self, key, start=None, end=None):
            if key.startswith("nodes/") and blind["on"]:
                raise StorageError("unreachable", key=key)
            return real_get(key, start, end)

        def __getattr__(self, name):
            return getattr(faulty.inner, name)

    store._writer.backend = Half()
    for step, state in ((100, history.next), (101, history.after)):  # the first commit is still open
        with pytest.raises(UnknownOutcomeError) as caught:
            store.save(step, state)
        assert caught.value.step == 100
    blind["on"] = False
    info = store.save(101, history.after)
    assert store.steps() == [*history.steps, 100, 101]  # the first commit was there all along, and counted
    assert info.base == store.info(100).node
    agree(store, lcstore.open(faulty.inner, "r").restore(101))


@contextmanager
def interrupted(backend, comes):
    """Have a Ctrl-C come where an object is about to be stored, by its key."""
    put = backend.put

    def strike(key, data):
        if comes(key):
            raise KeyboardInterrupt
        put(key, data)

    backend.put = strike
    with pytest.raises(KeyboardInterrupt):
        yield
    del backend.put


def test_interrupt_from_the_keyboard_leaves_the_handle_right():
    history = HISTORIES["deep"]
    backend = history.backend()
    store = open_at_head(history, backend)
    before = tracked(store)
    with interrupted(backend, lambda key: key.endswith("c.0")):
        store.save(100, history.next)
    assert tracked(store) == before
    store.save(100, history.next)
    agree(store, lcstore.open(backend, "r").restore(100))


@pytest.mark.parametrize(("left_out", "landed"), [("copies/", True), ("nodes/", False)])
def test_a_copy_that_an_interrupt_left_out_comes_with_the_next_save(left_out, landed):
    """`verify` had told of it until a repair: collectors look at the last record of each run alone."""
    history = HISTORIES["deep"]
    backend = history.backend()
    store = open_at_head(history, backend)
    with interrupted(backend, lambda key: key.startswith(left_out)):
        store.save(100, history.next)
    store.save(101, history.after)
    assert store.verify(level="checksum").is_sound
    assert (100 in store.steps()) is landed
    copied = {keys.parse_copy_key(key) for key in backend.list("copies")}
    nodes = {keys.parse_node_key(key).node for key in backend.list("nodes")}
    assert len(nodes) == len(history.steps) + 1 + landed
    assert nodes == {one for one in copied if keys.ID_RE.fullmatch(one)}


@pytest.mark.parametrize("where", ["Index.add", "Graph.add", "Records.keep", "EdgeWrite.accept"])
@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_once_the_record_is_stored_leaves_the_handle_right(where, after, monkeypatch):
    """Every later save of the handle ended with a `NotFoundError`, or it never saw that state."""
    kinds = {kind.__name__: kind for kind in (Index, Graph, Records, EdgeWrite)}
    kind, name = kinds[where.partition(".")[0]], where.partition(".")[2]
    own = getattr(kind, name)
    store = open_at_head(HISTORIES["deep"], HISTORIES["deep"].backend())

    def struck(self, *args):
        monkeypatch.setattr(kind, name, own)
        if after:
            own(self, *args)
        raise KeyboardInterrupt

    put = store.backend.put

    def armed(key, data):
        put(key, data)
        if key.startswith("copies/"):
            monkeypatch.setattr(kind, name, struck)

    store.backend.put = armed
    with pytest.raises(KeyboardInterrupt):
        store.save(100, HISTORIES["deep"].next)
    del store.backend.put
    for step in (101, 102):
        store.save(step, HISTORIES["deep"].after)
        agree(store, lcstore.open(store.backend, "r").restore(step))
    assert store.steps() == [*HISTORIES["deep"].steps, 100, 101, 102]
    assert store.verify("restore").is_sound


def test_a_retired_base_is_not_built_upon():
    from lcstore.format.marks import RetiredRecord
    from lcstore.format.records import utc_now

    history = HISTORIES["deep"]
    backend = history.backend()
    store = open_at_head(history, backend)
    base = store._writer.head.node
    edge = store._index.record(base).edge.id
    mark = RetiredRecord(base, "gone", utc_now())
    backend.put(mark.key(), mark.to_bytes())
    info = store.save(100, history.next)
    assert info.kind == "anchor"
    for key in backend.list(f"data/{edge}"):
        backend.delete(key)
    assert same(lcstore.open(backend, "r").restore(100), lcstore.open(backend, "r").restore(info.node))
    assert store.save(101, history.after).kind == "delta"


def test_errors_are_ours(tmp_path):
    target = tmp_path / "file"
    target.write_text("not a folder")
    with pytest.raises(LcstoreError):
        lcstore.open(target / "below").save(0, {})


FIRST_SAVE = """
import signal, sys
import numpy as np
import lcstore

class Interrupting:
    '''Has a Ctrl-C come to the process while a module is imported.'''

    left = {where!r}

    def find_spec(self, name, path, target=None):
        if name == self.left:
            self.left = None
            signal.raise_signal(signal.SIGINT)
        return None

signal.signal(signal.SIGINT, signal.default_int_handler)  # as at a terminal: in the background it is ignored
sys.meta_path.insert(0, Interrupting())
store = lcstore.open("memory://interrupted")
state = {{"w.weight": np.ones((64, 64), np.float32)}}
try:
    store.save(0, state)
except KeyboardInterrupt:
    print("interrupted")
print(store.save(1, state).step)
print(np.array_equal(store.restore(1)["w.weight"], state["w.weight"]))
"""


@pytest.mark.parametrize(
    "where", ["numba", "numba.core.types", "numba.core.typing.templates", "numba.np.ufunc"]
)
def test_an_interrupt_of_the_first_save_of_a_process_leaves_no_library_half_loaded(where):
    """As in a notebook, in which the cell is run again: no save of the process worked any more."""
    program = FIRST_SAVE.format(where=where)
    done = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True, text=True)
    assert done.stdout.split() == ["interrupted", "1", "True"], done.stderr
