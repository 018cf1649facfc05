"""What stands in the place of a record is damage: it is named, and nothing is collected beside it."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

import lcstore
from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.format import keys

posix = pytest.mark.skipif(sys.platform == "win32", reason="links")


def four(root):
    with lcstore.open(root, durability="none") as store:
        for step in range(4):
            store.save(step, {"model": {"w": np.full((30, 30), step, np.float32)}, "step": step})
        return keys.node_key(store._index.name(store.info(2).node))


def link(path):
    os.rename(path, f"{path.parent.parent}/elsewhere")
    path.symlink_to(f"{path.parent.parent}/elsewhere")


def folder(path):
    path.unlink()
    path.mkdir()


@posix
@pytest.mark.parametrize("replace", [link, folder])
def test_a_link_or_a_directory_for_a_record(tmp_path, replace):
    key = four(tmp_path / "s")
    replace(tmp_path / "s" / key)
    with lcstore.open(tmp_path / "s", durability="none") as store:
        with pytest.raises(CorruptionError) as error:
            store.restore(2)
        assert error.value.key == key
        with pytest.raises(CorruptionError):
            store.collect()
        assert key in {finding.key for finding in store.verify().findings if finding.severity == "error"}
        assert store.restore(1)["step"] == 1


def test_a_name_that_no_record_can_have(tmp_path):
    four(tmp_path / "s")
    (tmp_path / "s/nodes/Thumbs.db").write_bytes(b"x")
    with lcstore.open(tmp_path / "s") as store:
        assert store.restore(2)["step"] == 2
        with pytest.raises(CorruptionError, match="move this file out") as error:
            store.collect()
        assert error.value.key == "nodes/Thumbs.db"
        assert "nodes/Thumbs.db" in {f.key for f in store.verify().findings if f.severity == "error"}


@pytest.mark.parametrize("name", ["nodes/desktop.ini", "edges/x.json", "condemned/x", "retired/x", "names/x"])
def test_a_name_that_could_be_a_record_s_is_an_error_that_names_it(tmp_path, name):
    four(tmp_path / "s")
    (tmp_path / "s" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "s" / name).write_bytes(b"x")
    for ask in (
        lambda store: store.restore(2),
        lambda store: store.restore(2, on_corrupt="previous"),
        lambda store: store.resume(),
    ):
        with (
            lcstore.open(tmp_path / "s") as store,
            pytest.raises(CorruptionError, match="move this file out") as error,
        ):
            ask(store)
        assert error.value.key == name
        assert "before it" not in str(error.value)
    (tmp_path / "s" / name).unlink()
    with lcstore.open(tmp_path / "s") as store:
        assert store.resume(2)["step"] == 2


def test_tags_of_the_promised_length_and_metrics_past_a_float(tmp_path):
    with lcstore.open(tmp_path / "s") as store:
        state = {"step": 1}
        store.save(0, state, tags=["x" * 150, "Ä" * 26])
        assert store.restore("x" * 150) == state
        for tag in ("x" * 151, "Ä" * 27, "B" * 53):
            with pytest.raises(InvalidInputError):
                store.save(1, state, tags=[tag])
        with pytest.raises(InvalidInputError, match="range of a float"):
            store.save(1, state, metrics={"loss": 10**400})
        assert store.steps() == [0]
