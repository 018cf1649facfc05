"""States that several writers saved, as files: tensors of shards are put together, range by range."""

from __future__ import annotations

import io

import numpy as np
import pytest
import zarr
from parted import Group, Host
from states import leaves
from test_parts import Training

import lcstore
from lcstore.filesystem.decoded import boxes_of
from lcstore.filesystem.lcstorefs import LcstoreFileSystem
from lcstore.filesystem.zarrstore import FolderStore
from lcstore.layout import layout as layouts
from lcstore.storage.memory import MemoryBackend


@pytest.fixture
def backend(monkeypatch):
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: 2048)
    training, group = Training(), Group(MemoryBackend.fresh(), [Host("0"), Host("1")])
    for step in range(3):
        training.step()
        group.save(step, training.split())
    return group.backend


def test_files_of_shards_are_those_of_the_whole(backend):
    store = lcstore.open(backend, "r")
    wanted, fs = leaves(store.restore(2, to="numpy")), LcstoreFileSystem(backend)
    chance = np.random.default_rng(0)
    for name, value in wanted.items():
        path = f"2/tensors/{name}.npy"
        data = fs.cat_file(path)
        assert np.load(io.BytesIO(data)).tobytes() == value.tobytes()
        for _ in range(40):
            low, high = sorted(chance.integers(0, len(data) + 1, 2).tolist())
            assert LcstoreFileSystem(backend, held=1 << 14).cat_file(path, low, high) == data[low:high]
    group = store.zarr(2)
    assert isinstance(group.store, FolderStore)
    for name in ("model/tall.weight", "model/wide.weight"):
        assert np.asarray(group[name]).tobytes() == wanted[name].tobytes()
        history = store.zarr_history(name)
        assert isinstance(history, zarr.Array)
        assert history[2].tobytes() == wanted[name].tobytes()


@pytest.mark.parametrize("shape", [(5,), (4, 6), (3, 1, 4), (2, 3, 4, 2), (1, 7), (7, 1)])
def test_boxes_are_the_range_in_order(shape):
    flat = np.arange(np.prod(shape))
    for low in range(flat.size):
        for high in range(low, flat.size + 1):
            boxes = [*boxes_of(shape, low, high)]
            found = [flat.reshape(shape)[tuple(slice(*side) for side in box)].reshape(-1) for box in boxes]
            assert np.concatenate([flat[:0], *found]).tolist() == flat[low:high].tolist()
            assert len(boxes) <= 2 * len(shape)
