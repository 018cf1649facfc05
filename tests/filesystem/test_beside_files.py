"""Files of states that are damaged, and files in other processes."""

from __future__ import annotations

import os
import pickle

import fsspec
import numpy as np
import pytest
from states import leaves

import lcstore
from lcstore.errors import CorruptionError, FallbackWarning
from lcstore.filesystem.lcstorefs import GoneError, LcstoreFileSystem
from lcstore.layout import layout as layouts
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend

WEIGHT = "tensors/model/embed.weight.npy"


@pytest.fixture
def url(tmp_path, run):
    """A store of three steps."""
    with lcstore.open(tmp_path / "s") as store:
        for step in (0, 10, 20):
            store.save(step, run.step())
    return str(tmp_path / "s")


def test_what_is_damaged_is_told_and_the_rest_is_read(tmp_path, monkeypatch, run):
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: 2048)
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        store.save(0, run.step())
        wanted = leaves(store.restore(0, to="numpy"))
    fs = LcstoreFileSystem(backend)
    data = [key for key in backend.list("data") if "weights-float32" in key and "/c." in key]
    backend.delete(data[0])
    outcomes = {}
    for name in ("embed", "fc1", "fc2"):
        path = f"0/tensors/model/{name}.weight.npy"
        try:
            assert np.load(fs.open(path)).tobytes() == wanted[f"model/{name}.weight"].tobytes()
            outcomes[name] = "read"
        except CorruptionError as error:
            assert error.key == data[0]
            outcomes[name] = "damaged"
    assert {*outcomes.values()} == {"read", "damaged"}
    with pytest.raises(CorruptionError, match="repair"):
        fs.cat_file("0/state.safetensors")


def test_another_path_is_taken_around_damage(run):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        for step in range(40):
            store.save(step, {"model": run.step()["model"]})
        store.compact()
        wanted = store.read(39, "model/embed.weight").tobytes()
    fs = LcstoreFileSystem(backend)
    ends = fs._states.named("39").snapshot.using(lambda state: [ref.edge for ref in state.path])
    shortcut = next(edge for edge in ends if edge is not None)
    data = lcstore.open(backend, "r").at(39).using(lambda state: state.reader.index.edge(shortcut).edge.id)
    for key in [key for key in backend.list("data") if data in key]:
        backend.delete(key)
    with pytest.warns(FallbackWarning, match="another path"):
        assert np.load(fs.open(f"39/{WEIGHT}")).tobytes() == wanted


def test_workers_have_the_states_that_were_found(url, run):
    fs = fsspec.filesystem("lcstore", url=url)
    wanted = fs.cat_file(f"latest/{WEIGHT}")
    with lcstore.open(url) as store:
        store.save(30, run.step())
    there = pickle.loads(pickle.dumps(fs))
    assert there.cat_file(f"latest/{WEIGHT}") == wanted  # the same for all of them
    assert there.exists("30/metadata.json")
    file = pickle.loads(pickle.dumps(fs.open(f"10/{WEIGHT}")))
    assert file.read() == fs.cat_file(f"10/{WEIGHT}")
    with lcstore.open(url) as store:
        alone = pickle.loads(pickle.dumps(LcstoreFileSystem(store[10])))
    assert alone.cat_file(f"latest/{WEIGHT}") == fs.cat_file(f"10/{WEIGHT}")
    opened = pickle.loads(pickle.dumps(fsspec.open(f"lcstore://10/{WEIGHT}::file://{url}")))
    with opened as file:
        assert np.load(file).shape == (96, 32)


def test_what_is_sent_lists_nothing(url, monkeypatch):
    fs = LcstoreFileSystem(url)
    wanted = fs.cat_file(f"10/{WEIGHT}")
    there = pickle.loads(pickle.dumps(fs))
    listed: list[str] = []
    monkeypatch.setattr(LocalBackend, "_list", lambda self, prefix: listed.append(prefix) or [])
    assert there.cat_file(f"10/{WEIGHT}") == wanted
    assert listed == []
    assert there.ls("") == []
    assert listed != []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_forks_read_on(url):
    fs = LcstoreFileSystem(url)
    with fs.open(f"10/{WEIGHT}") as file:
        wanted = file.read()
        child = os.fork()
        if child == 0:
            try:
                file.seek(0)
                good = file.read() == wanted == fs.cat_file(f"10/{WEIGHT}") and fs.exists("0/metadata.json")
            finally:
                os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_goes_to_another_process_though_a_state_beside_it_was_collected(tmp_path, run):
    url = tmp_path / "s"
    with lcstore.open(url, grace=0) as store:
        for step in range(12):
            store.save(step, run.step())
        fs = LcstoreFileSystem(str(url))
        fs.ls("1")
        wanted, sent = fs.cat_file(f"11/{WEIGHT}"), pickle.dumps(fs)
        store.retain("latest:1")
        store.compact()
        while store.collect().deleted_objects:
            pass
        there = pickle.loads(sent)
        assert there.cat_file(f"11/{WEIGHT}") == wanted
        with pytest.raises(GoneError):
            there.cat_file(f"1/{WEIGHT}")
