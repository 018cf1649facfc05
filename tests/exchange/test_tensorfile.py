"""Files of safetensors that others wrote, or broke."""

from __future__ import annotations

import json
import re

import ml_dtypes
import numpy as np
import pytest

import lcstore

pytestmark = pytest.mark.unprotected


def write(path, header, data: bytes = b"", length: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)


def row(dtype: str, shape: list[int], begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def load(path, tmp_path):
    lcstore.import_files(path, tmp_path / "store", step=1)
    with lcstore.open(tmp_path / "store", "r") as store:
        return store.restore(to="numpy"), store.info().metadata


def test_a_file_that_others_wrote(tmp_path):
    a, b = np.arange(6, dtype="<f4"), np.arange(4).astype(ml_dtypes.bfloat16)
    header = {
        "__metadata__": {"format": "pt", "again": "a", "title": "mine"},
        "b": row("BF16", [2, 2], 25, 33),
        "a": row("F32", [2, 3], 1, 25),
        "flag": row("BOOL", [], 0, 1),
        "none": row("F64", [0, 3], 33, 33),
    }
    write(tmp_path / "m.safetensors", header, b"\x01" + a.tobytes() + b.tobytes())  # `a` lies askew
    state, metadata = load(tmp_path / "m.safetensors", tmp_path)
    assert [*state] == ["b", "a", "flag", "none", "again"]
    assert state["a"].tolist() == a.reshape(2, 3).tolist()
    assert state["b"].tobytes() == b.tobytes()
    assert state["b"].dtype == ml_dtypes.bfloat16
    assert state["flag"].shape == ()
    assert state["flag"]
    assert state["none"].shape == (0, 3)
    assert state["again"] is state["a"]
    assert metadata["safetensors"] == {"title": "mine"}


def test_a_tensor_of_nothing_may_not_have_other_dimensions_that_no_array_has(tmp_path):
    write(tmp_path / "m.safetensors", {"w": row("F32", [0, 1 << 62, 1 << 62], 0, 0)})
    with pytest.raises(lcstore.LimitError, match=r"m.safetensors: .*elements of a tensor"):
        load(tmp_path / "m.safetensors", tmp_path)


def test_its_tensors_are_of_torch_unless_it_says_otherwise(tmp_path):
    torch = pytest.importorskip("torch")
    for says, kind in ((None, torch.Tensor), ("pt", torch.Tensor), ("np", np.ndarray)):
        header = {"w": row("F32", [1], 0, 4)} | ({"__metadata__": {"format": says}} if says else {})
        write(tmp_path / "m.safetensors", header, b"\0" * 4)
        lcstore.import_files(tmp_path / "m.safetensors", tmp_path / f"{says}", step=1)
        with lcstore.open(tmp_path / f"{says}", "r") as store:
            assert isinstance(store.restore()["w"], kind)


GOOD = {"w": row("F32", [2], 0, 8)}


@pytest.mark.parametrize(
    ("header", "data", "length", "said"),
    [
        (GOOD, b"\0" * 7, None, "ends after 7 of 8 bytes"),
        (GOOD, b"\0" * 9, None, "1 bytes more than its header says"),
        (GOOD, b"", 1 << 62, "it begins otherwise"),
        (GOOD, b"", 1000, "ends within its header"),
        (GOOD, b"", 0, "it begins otherwise"),
        (b"\xff\xff", b"", None, "its header cannot be right"),
        (b"[" * 5000, b"", None, "its header cannot be right"),
        (b"[1]", b"", None, "another form"),
        (b'{"__metadata__":{"a":1}}', b"", None, "another form"),
        (b'{"__metadata__":[]}', b"", None, "another form"),
        (b'{"w":{},"w":{}}', b"", None, "its header cannot be right"),
        ({"w": 3}, b"", None, "cannot be right"),
        ({"w": row("F32", [2], 4, 12)}, b"\0" * 12, None, "does not begin where the last one ends"),
        ({**GOOD, "v": row("F32", [2], 4, 12)}, b"\0" * 12, None, "does not begin where the last one ends"),
        ({**GOOD, "v": row("F32", [2], 12, 20)}, b"\0" * 20, None, "does not begin where the last one ends"),
        ({"w": row("F32", [3], 0, 8)}, b"\0" * 8, None, "not as many bytes as its shape takes"),
        ({"w": row("F32", [-2], 0, 8)}, b"\0" * 8, None, "cannot be right"),
        ({"w": row("F32", [True, 2], 0, 8)}, b"\0" * 8, None, "cannot be right"),
        ({"w": row("F32", [2.0], 0, 8)}, b"\0" * 8, None, "cannot be right"),
        ({"w": row("F32", [1] * 65, 0, 4)}, b"\0" * 4, None, "cannot be right"),
        ({"w": row("F32", [1 << 62, 1 << 62], 0, 8)}, b"\0" * 8, None, "number of elements of a tensor"),
        ({"w": row("F32", [2], 8, 0)}, b"\0" * 8, None, "not as many bytes"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, b"\0" * 8, None, "cannot be right"),
        ({"w": row("F4", [2], 0, 1)}, b"\0", None, "of dtype 'F4', which no store holds"),
        ({"w": row(["F32"], [2], 0, 8)}, b"\0" * 8, None, "which no store holds"),
    ],
)
def test_a_broken_one_is_answered_in_a_sentence(tmp_path, header, data, length, said):
    write(tmp_path / "m.safetensors", header, data, length)
    with pytest.raises(lcstore.LcstoreError, match=re.escape(said)) as caught:
        load(tmp_path / "m.safetensors", tmp_path)
    assert "m.safetensors" in str(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("data", [b"", b"text, and nothing else\n", b"PK\x03\x04" * 9])
def test_other_files_are_none(tmp_path, data):
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(lcstore.CorruptionError, match="is no file of safetensors"):
        load(tmp_path / "m.safetensors", tmp_path)
