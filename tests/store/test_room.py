"""Objects that writers of this version do not make, and that a store may hold: parity, and second copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from damaged import merge, with_part
from states import same

import lcstore
from lcstore.errors import NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef
from lcstore.format.records import node_id, read_node
from lcstore.storage.memory import MemoryBackend


@pytest.fixture
def backend() -> MemoryBackend:
    """A store of three states, the last with parity of an array, and all records and layouts stored twice."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as store:
        for step in range(3):
            weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
            store.save(step, {"model": {"a.weight": weight * np.float32(1 + step * 1e-3)}})
    (key,) = (key for key in backend.list(keys.NODES) if keys.parse_node_key(key).step == 2)
    record = read_node(key, backend.get(key))
    (chunk,) = (ref for ref in record.edge.objects if ref.key.endswith(".add/c.0"))
    data = backend.get(chunk.key)
    parity = ObjectRef.of(chunk.key.replace("/c.0", "/p.0"), data)
    backend.put(parity.key, data)
    record = replace(record, edge=with_part(record.edge, objects=(*record.edge.objects, parity)))
    name = record.name(node_id(record.to_bytes()))
    assert name.nbytes == keys.parse_node_key(key).nbytes  # a path does not read it
    backend.delete(key)
    backend.put(keys.node_key(name), record.to_bytes())
    for key in (*backend.list(keys.NODES), *backend.list(keys.LAYOUTS), keys.STORE_KEY):
        what = key if key == keys.STORE_KEY else key.partition("/")[2].removesuffix(".json")
        what = keys.parse_node_key(key).node if key.startswith(keys.NODES) else what
        backend.put(keys.copy_key(what), backend.get(key))
    return backend


@pytest.mark.parametrize("level", ["structure", "checksum", "decode", "restore"])
def test_it_is_known(backend, level):
    with lcstore.open(backend) as store:
        report = store.verify(level)
        assert report.ok
        assert [finding for finding in report.findings if finding.check != "store"] == []
        assert store.stats().orphans == 0
        assert store.repair().ok
        store.restore(2)


def test_lost_parity_harms_no_state(backend):
    (key,) = (key for key in backend.list(keys.DATA) if "/p." in key)
    backend.delete(key)
    with lcstore.open(backend) as store:
        report = store.verify("restore")
        assert report.ok
        assert [(f.severity, f.key) for f in report.findings if f.check == "object"] == [("warning", key)]
        assert (report.lost, report.good) == ((), 2)
        store.restore(2)
        assert store.repair().ok


def test_collecting_sweeps_it(backend):
    with lcstore.open(backend) as store:
        expected = store.restore(2)
        nodes = [store.info(step).node for step in range(3)]
        merge(store, None, 2)  # what was added to step 1 is not read any more
        for step in range(2):
            store.retire(step)
        for _ in range(3):
            store.collect()
        assert store.steps() == [2]
        left = backend.list(keys.COPIES)
        assert [keys.copy_key(node) in left for node in nodes] == [False, False, True]
        assert keys.copy_key(keys.STORE_KEY) in left
        assert not any("/p." in key or ".add/" in key for key in backend.list(keys.DATA))
        assert store.verify("restore").ok
        assert same(store.restore(2), expected)


def test_a_copy_is_no_commit(backend):
    with lcstore.open(backend) as store:
        node = store.info(1).node
        backend.delete(keys.node_key(store._index.name(node)))
    with lcstore.open(backend, "r") as store:
        assert 1 not in store.steps()
        with pytest.raises(NotFoundError):
            store.restore(node)
