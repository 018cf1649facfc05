"""Stores that were made once, by the version of their name, are read by all versions after it.

Where one of these tests fails, what is stored has got another meaning: the library is to be mended, or the
number of the format is to be raised. The stores here are never made anew.
"""

import json
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from kit.given import all_given, given

import lcstore

STORES = Path(__file__).parent / "stores"

pytestmark = pytest.mark.parametrize("name", sorted(path.stem for path in STORES.glob("*.zip")))


def unpacked(name, folder):
    with zipfile.ZipFile(STORES / f"{name}.zip") as packed:
        packed.extractall(folder)
    return folder


def expected(name):
    return json.loads((STORES / f"{name}.json").read_text())


def check(store, name):
    """See that each state gives what it gave, bit for bit, and that nothing else is said of it."""
    found = all_given(store)
    for node, said in expected(name).items():
        assert found[node] == said


def test_every_state_comes_back_as_it_did(name, tmp_path):
    with lcstore.open(unpacked(name, tmp_path), "r") as store:
        report = store.verify("restore")
        assert not report.findings
        assert report.complete
        assert all_given(store).keys() == expected(name).keys()
        check(store, name)


def test_training_goes_on(name, tmp_path):
    with lcstore.open(unpacked(name, tmp_path), durability=lcstore.Durability()) as store:
        state = store.resume(to="numpy")
        before = state["model"]["a.weight"]
        weights = state["model"]["a.weight"] = before + np.float32(0.01)
        assert store.save(1000, state).kind == "delta"
        saved = given(store.restore(1000))
        store.compact()
        check(store, name)
        assert given(store.restore(1000)) == saved
        off = store.read(1000, "model/a.weight") - weights
        assert np.linalg.norm(off) < np.linalg.norm(weights - before)
        assert not store.verify("restore").findings


def test_it_is_read_where_it_lies_in_an_archive(name):
    with lcstore.open(f"zip://::file://{STORES}/{name}.zip", "r") as store:
        check(store, name)


def test_parity_and_second_copies_are_of_use(name, tmp_path):
    folder = unpacked(name, tmp_path)
    chunks = [path for path in folder.glob("data/*/*/*/c.0") if path.with_name("p.0").exists()]
    records = [path for path in folder.glob("[nle]*/*.json") if copy_of(path).exists()]
    for path in [*chunks, *records]:
        path.write_bytes(path.read_bytes()[:-1])
    assert chunks
    assert {path.parent.name for path in records} == {"nodes", "layouts", "edges"}
    with lcstore.open(folder, "r") as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", lcstore.FallbackWarning)
        check(store, name)


def copy_of(path):
    """Return where the second copy of a record lies: by the whole name, or by a node's id alone."""
    named = path.stem.split("-")[3] if path.parent.name == "nodes" else path.stem
    return path.parents[1] / "copies" / f"{named}.json"
