"""Ranges of files: which chunks are decoded for them, and how often."""

from __future__ import annotations

import io
import threading
from collections import Counter

import numpy as np
import pytest
from counting import Counting
from states import leaves

import lcstore
from lcstore.filesystem.lcstorefs import LcstoreFileSystem
from lcstore.layout import layout as layouts


@pytest.fixture
def deep(monkeypatch):
    """A state of several tensors in chunks of 16 KiB, six deltas deep."""
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: 4096)
    backend, rng = Counting.fresh(), np.random.default_rng(0)
    model = {f"l{i}.weight": rng.standard_normal((200, 100)).astype(np.float32) for i in range(3)}
    model["norm.weight"] = np.ones(100, np.float32)
    with lcstore.open(backend) as store:
        for step in range(7):
            for name, value in model.items():
                model[name] = value + np.float32(1e-3) * rng.standard_normal(value.shape).astype(np.float32)
            store.save(step, {"model": dict(model), "optim": {"m": rng.standard_normal((200, 100))}})
        whole = leaves(store.restore(6, to="numpy"))
    backend.counted("read")
    return backend, whole


@pytest.mark.parametrize(
    "path", ["6/state.safetensors", "6/tensors/model/l1.weight.npy", "6/zarr/model/l1.weight/c.0.0"]
)
def test_a_range_decodes_two_chunks_of_each_edge_at_most(deep, path):
    backend, _ = deep
    size = LcstoreFileSystem(backend).info(path)["size"]
    backend.counted("read")
    for start in range(0, size - 64, size // 7):
        fs = LcstoreFileSystem(backend)
        fs.cat_file(path, start, start + 64)
        chunks = backend.counted("read")
        per_edge = Counter(key.split("/")[1] for key in {*chunks})
        assert len(chunks) == len({*chunks})
        assert max(per_edge.values(), default=0) <= 2
        # One chunk's worth of bytes lies in two chunks at the most.
        fs.invalidate_cache()
        fs.cat_file(path, start, start + 4096)
        assert max(Counter(key.split("/")[1] for key in {*backend.counted("read")}).values(), default=0) <= 2


def test_headers_and_sizes_decode_nothing(deep):
    backend, whole = deep
    fs = LcstoreFileSystem(backend)
    assert fs.du("6") > sum(value.nbytes for value in whole.values())
    fs.cat_file("6/state.safetensors", 0, 300)
    fs.cat_file("6/tensors/model/l1.weight.npy", 0, 128)
    fs.cat_file("6/metadata.json")
    fs.cat_file("6/zarr/zarr.json")
    assert backend.counted("read") == []


def test_who_reads_on_has_no_chunk_decoded_twice(deep):
    backend, _ = deep
    fs = LcstoreFileSystem(backend, held=1 << 17)
    whole = LcstoreFileSystem(backend).cat_file("6/state.safetensors")
    once = Counter(backend.counted("read"))
    found = io.BytesIO()
    with fs.open("6/state.safetensors") as file:
        while block := file.read(1000):
            found.write(block)
    assert found.getvalue() == whole
    assert Counter(backend.counted("read")) == once
    assert max(once.values()) == 1


def test_threads_that_want_one_chunk_decode_it_once(deep):
    backend, whole = deep
    fs = LcstoreFileSystem(backend)
    fs.info("6/tensors/model/l1.weight.npy")
    backend.counted("read")
    found: list[bytes] = []
    gate = threading.Barrier(8)

    def read() -> None:
        gate.wait()
        found.append(fs.cat_file("6/tensors/model/l1.weight.npy"))

    threads = [threading.Thread(target=read) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len({*found}) == 1
    assert np.load(io.BytesIO(found[0])).tobytes() == whole["model/l1.weight"].tobytes()
    assert max(Counter(backend.counted("read")).values()) == 1
