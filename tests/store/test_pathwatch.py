"""What a save looks at of its path: only what is new of it, and nothing that is known of another."""

from __future__ import annotations

import numpy as np
import pytest

import lcstore
from lcstore.errors import CorruptionError
from lcstore.index.index import Index
from lcstore.storage.memory import MemoryBackend
from lcstore.write.pathwatch import MOST_KEPT_TWICE, MOST_NEAR, MOST_REMOTE, ROUND, PathWatch


@pytest.fixture
def saved():
    backend = MemoryBackend.fresh()
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(backend) as store:
        nodes = [store.save(step, {"weight": weight + step / 100}).node for step in range(4)]
    index = Index(backend)
    index.refresh(full=True)
    return PathWatch(index), nodes


def test_each_edge_is_read_once(saved, monkeypatch):
    watch, nodes = saved
    read, own = [], watch._watch
    monkeypatch.setattr(watch, "_watch", lambda ref: read.append(ref.target) or own(ref))
    for node in nodes:
        assert watch.folders(node)
    assert read == nodes
    assert watch.folders(nodes[1])  # gone back: what is behind it is known no more
    assert not watch.sees(nodes[3])
    assert read == nodes


def test_after_a_record_that_cannot_be_read_nothing_is_known(saved, monkeypatch):
    watch, nodes = saved
    watch.folders(nodes[1])
    assert watch.sees(nodes[1])
    own = watch._watch

    def fail(ref):
        if ref.target == nodes[3]:
            raise CorruptionError("gone")
        return own(ref)

    with monkeypatch.context() as failing:
        failing.setattr(watch, "_watch", fail)
        assert watch.folders(nodes[3]) == []
        assert not any(map(watch.sees, nodes))
    assert watch.folders(nodes[3])
    assert watch.sees(nodes[3])


def test_condemnations_of_other_edges_are_not_looked_into(tmp_path):
    """There may be very many; and a file that some program left among them stops no save."""
    with lcstore.open(tmp_path / "run") as store:
        store.save(0, {"weight": np.zeros(8, np.float32)})
        (tmp_path / "run" / "condemned").mkdir()
        stray = tmp_path / "run" / "condemned" / "desktop.ini"
        stray.write_text("x")
        store.save(1, {"weight": np.ones(8, np.float32)})
        store.save(2, {"weight": np.ones(8, np.float32)})
        stray.unlink()
        assert store.restore(2)["weight"][0] == 1


@pytest.mark.parametrize("most", [MOST_NEAR, MOST_REMOTE, MOST_KEPT_TWICE])
def test_every_edge_of_a_path_that_grows_is_looked_at_again(saved, most):
    """The turn went on by one with each save, as the path did: on a bucket no edge had a second turn."""
    watch, _ = saved
    last = {}
    for length in range(1, 300):
        path = list(range(length))
        last |= dict.fromkeys(watch._next(path, most), length)
        waiting = max(length - last.get(edge, edge) for edge in path)
        assert waiting <= max(ROUND + 2, 0.75 * length)


def test_a_long_path_takes_no_longer_to_look_at():
    """With 33 folders each, a small state took three times as long to save behind a hundred others."""
    with lcstore.open("memory://long-path-watched") as store:
        rng = np.random.default_rng(0)
        weight = rng.standard_normal((64, 64), np.float32)
        for step in range(60):
            weight += np.float32(1e-3) * rng.standard_normal(weight.shape, np.float32)
            store.save(step, {"weight": weight})
        index = store._reader.index
        index.refresh(full=True)
        watch = PathWatch(index)
        assert len(index.path(store.node)) > 30
        assert all(len(watch.folders(store.node)) <= 5 for _ in range(20))
