"""An edge is plain Zarr v3: any reader with the codec installed can open it."""

from __future__ import annotations

import json
import warnings

import ml_dtypes
import numpy as np
import pytest
import zarr
from zarr.registry import register_codec

import lcstore
from lcstore.codec.zarr3 import LCZarrCodec
from lcstore.dtypes import pattern_dtype
from lcstore.edges.grid import track_dtype
from lcstore.format.zarrmeta import group_metadata
from lcstore.layout.specs import PoolSpec

register_codec("lcstore.lc", LCZarrCodec)


DTYPES = ["int32", "int64", "float32", "float64", "float16", "bool", "uint16", "complex64"]
#: What arrays of weights and of plain tensors hold integers of.
ON_GRID = ["float32", "float64"]
GRID = {("weights", dtype, op): track_dtype(dtype) for dtype in ON_GRID for op in ("add", "grid")}
BITS = {("plain", dtype, "add"): pattern_dtype(np.dtype(dtype)) for dtype in DTYPES}
INTEGERS = {case: kind for case, kind in (GRID | BITS).items() if kind is not None}
VALUES = [("plain", dtype, op) for dtype in DTYPES for op in ("set", "exact")]


@pytest.mark.parametrize(("role", "dtype", "op"), [*INTEGERS, *VALUES])
def test_templates_are_what_zarr_writes(tmp_path, role, dtype, op):
    group = zarr.open_group(tmp_path, mode="w", zarr_format=3)
    lossless = op == "exact" or (role, op) == ("plain", "add")
    group.create_array(
        f"{role}-{dtype}.{op}",
        shape=(5000,),
        chunks=(2048,),
        dtype=str(INTEGERS.get((role, dtype, op), dtype)),
        serializer=LCZarrCodec(quantizer="lossless" if lossless else "linear"),
        filters=None,
        compressors=None,
        fill_value=0,
        chunk_key_encoding={"name": "default", "separator": "."},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Zarr's own, that its specification does not have this yet
        zarr.consolidate_metadata(tmp_path)
    written = json.loads((tmp_path / "zarr.json").read_text())
    pool = PoolSpec(f"{role}-{dtype}", dtype, 5000, 2048)
    # A store says nothing of what is usual there, as frames say it themselves.
    (codec,) = written["consolidated_metadata"]["metadata"][f"{role}-{dtype}.{op}"]["codecs"]
    codec["configuration"] = codec["configuration"] if lossless else {}
    assert json.loads(group_metadata([(pool, op)])) == written


def test_edges_open_in_zarr(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    rng = np.random.default_rng(0)
    states = []
    for step in range(3):
        state = run.step()
        state["model"]["half.weight"] = rng.standard_normal((70, 30)).astype(ml_dtypes.bfloat16)
        states.append(state)
        store.save(step, state)
    layout = store._writer.track.layout
    pool = store._writer.track.pools["weights-float32"]
    edges = [store._index.record(store.info(step).node).edge.id for step in range(3)]
    groups = [zarr.open_group(tmp_path / "s" / "data" / edge / "0", mode="r") for edge in edges]
    exact = groups[0]["weights-float32.exact"][:]
    for spec in layout.tensors:
        if spec.pool == "weights-float32":
            value = states[0]["model"][spec.name[1]].reshape(-1)
            np.testing.assert_array_equal(exact[spec.offset : spec.offset + spec.size], value)
        if spec.dtype == "bfloat16":
            value = states[0]["model"]["half.weight"].reshape(-1).view(np.uint16)
            stored = groups[0]["weights-bfloat16.exact"][:]
            np.testing.assert_array_equal(stored[spec.offset : spec.offset + spec.size], value)
    added = groups[1]["weights-float32.add"][:] + groups[2]["weights-float32.add"][:]
    assert added.dtype == np.int32
    spec = next(s for s in layout.tensors if s.name == ("model", "fc1.weight"))
    here = slice(spec.offset, spec.offset + spec.size)
    unit = int(store._writer.track.columns.grid[layout.index[spec.name]])
    first = np.rint(exact[here].astype(np.float64) * 2.0**-unit).astype(np.int32)
    np.testing.assert_array_equal(first + added[here], pool[here])


def test_objects_per_save_do_not_grow_with_tensors(tmp_path):
    counts = []
    for tensors in (4, 200):
        store = lcstore.open(tmp_path / str(tensors))
        rng = np.random.default_rng(0)
        state = {
            "model": {
                f"layers.{i}.weight": rng.standard_normal((12, 64)).astype(np.float32) for i in range(tensors)
            }
        }
        store.save(0, state)
        state = {"model": {k: v + 0.001 for k, v in state["model"].items()}}
        counts.append(store.save(1, state).objects)
    assert counts[0] == counts[1] <= 6
