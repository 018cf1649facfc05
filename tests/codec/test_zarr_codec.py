"""The codec inside Zarr: v2 compressor and filter, v3 serializer, found by name in a fresh process."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from lcstore.codec import LCCodec
from lcstore.codec.zarr3 import LCZarrCodec
from lcstore.errors import CorruptionError, InvalidInputError

SHAPE, CHUNKS = (70, 50), (32, 20)


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def create(store=None, **options):
    return zarr.create_array(
        store=MemoryStore() if store is None else store, shape=SHAPE, chunks=CHUNKS, **options
    )


def reopened(array):
    return zarr.open_array(array.store, mode="r")


# v2


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_v2_compressor_keeps_its_bound(values, order):
    codec = LCCodec(max_error=1e-2)
    array = create(dtype="float32", zarr_format=2, compressors=codec, filters=None, order=order)
    array[:] = values
    back = reopened(array)
    assert np.abs(back[:] - values).max() <= 1e-2
    np.testing.assert_array_equal(back[3:40, 7], back[:][3:40, 7])
    assert back.metadata.order == order
    assert back.nbytes_stored() < 0.5 * values.nbytes


@pytest.mark.parametrize(
    ("serializer", "is_exact"),
    [
        ({"name": "lcstore.lc"}, True),
        ({"name": "lcstore.lc", "configuration": {}}, True),
        (LCZarrCodec(), True),
        ({"name": "lcstore.lc", "configuration": {"quantizer": "lossless"}}, True),
        ({"name": "lcstore.lc", "configuration": {"bits": 8}}, False),
        (LCZarrCodec(bits=8), False),
        (LCZarrCodec(quantizer="linear"), False),
    ],
)
def test_a_v3_serializer_that_is_told_no_error_loses_nothing(values, serializer, is_exact):
    array = create(dtype="float32", serializer=serializer, compressors=None)
    for _ in range(2):  # opened again, it codes as before
        array[:] = values
        array = zarr.open_array(array.store, mode="r+")
        assert (array[:].tobytes() == values.tobytes()) == is_exact
        assert np.abs(array[:] - values).max() < 0.1


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float64", "complex64"])
def test_a_v2_compressor_takes_other_dtypes(dtype):
    values = (np.arange(np.prod(SHAPE)) % 100).reshape(SHAPE).astype(dtype)
    array = create(dtype=dtype, zarr_format=2, compressors=LCCodec("lossless"), filters=None)
    array[:] = values
    np.testing.assert_array_equal(reopened(array)[:], values)


def test_a_v2_compressor_refuses_the_other_byte_order(values):
    """Zarr v2 would take the bytes that come back for big-endian ones."""
    array = create(dtype=">f4", zarr_format=2, compressors=LCCodec(), filters=None)
    with pytest.raises(InvalidInputError, match="order"):
        array[:] = values


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_v2_filter_before_another_compressor(values, order):
    from numcodecs import Zstd

    array = create(
        dtype="float32", zarr_format=2, filters=[LCCodec(step_size=2.0**-7)], compressors=Zstd(), order=order
    )
    array[:] = values
    assert np.abs(reopened(array)[:] - values).max() <= 2.0**-8


BFLOAT16 = {"max_error": 0.05, "logical": "bfloat16"}


@pytest.mark.parametrize(
    "how",
    [
        {"zarr_format": 2, "compressors": LCCodec(**BFLOAT16), "filters": None},
        {"serializer": LCZarrCodec(**BFLOAT16), "compressors": None},
    ],
    ids=["v2", "v3"],
)
def test_bfloat16_through_its_bits(values, how):
    wanted = values.astype(ml_dtypes.bfloat16)
    array = create(dtype="uint16", **how)
    array[:] = wanted.view(np.uint16)
    back = reopened(array)[:].view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.abs(back - wanted.astype(np.float32)).max() <= 0.05
    assert array.nbytes_stored() < 0.8 * wanted.nbytes


# v3


@pytest.mark.parametrize("by", ["object", "dict"])
def test_a_v3_serializer_keeps_its_bound(values, by):
    codec = LCZarrCodec(max_error=1e-2)
    array = create(dtype="float32", serializer=codec if by == "object" else codec.to_dict(), compressors=None)
    array[:] = values
    back = reopened(array)
    assert np.abs(back[:] - values).max() <= 1e-2
    assert back.nbytes_stored() < 0.5 * values.nbytes
    codecs = back.metadata.to_dict()["codecs"]
    assert [dict(c) for c in codecs] == [{"name": "lcstore.lc", "configuration": {"max_error": 0.01}}]
    assert json.loads(json.dumps(codecs)) == [dict(c) for c in codecs]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "float16", "float64", "complex128"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_v3_serializer_takes_other_dtypes(dtype, order):
    values = (np.arange(np.prod(SHAPE)) % 100).reshape(SHAPE).astype(dtype)
    array = create(
        dtype=dtype, serializer=LCZarrCodec(quantizer="lossless"), compressors=None, config={"order": order}
    )
    array[:] = np.asarray(values, order="F")
    np.testing.assert_array_equal(reopened(array)[:], values)


def test_a_v3_serializer_inside_shards(values):
    array = zarr.create_array(
        store=MemoryStore(),
        shape=SHAPE,
        chunks=(8, 10),
        shards=(32, 20),
        dtype="float32",
        serializer=LCZarrCodec(step_size=2.0**-7),
        compressors=None,
    )
    array[:] = values
    array[5:9, 3:17] = 1.5
    values[5:9, 3:17] = 1.5
    back = reopened(array)
    assert np.abs(back[:] - values).max() <= 2.0**-8
    np.testing.assert_array_equal(back[5:9, 3:17], 1.5)


def test_a_v3_serializer_before_another_compressor_and_after_a_transpose(values):
    from zarr.codecs import TransposeCodec, ZstdCodec

    array = create(
        dtype="float32",
        filters=[TransposeCodec(order=(1, 0))],
        serializer=LCZarrCodec(step_size=2.0**-7),
        compressors=[ZstdCodec()],
    )
    array[:] = values
    assert np.abs(reopened(array)[:] - values).max() <= 2.0**-8


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": LCCodec()},
        {"compressors": [LCCodec()]},
        {"compressors": {"name": "lcstore.lc", "configuration": {"max_error": 0.01}}},
        {"compressors": LCZarrCodec(max_error=0.01)},
        {"filters": [LCCodec()]},
        {"serializer": LCCodec()},
    ],
    ids=str,
)
def test_the_wrong_place_in_v3_is_answered_with_the_right_one(options):
    with pytest.raises(
        (TypeError, InvalidInputError), match=r"Zarr v3 takes as serializer=.*compressors=None"
    ):
        create(dtype="float32", **options)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [2, 3])
def test_smooth_chunks_are_predicted_along_their_axes(version, order):
    values = np.add.outer(np.sin(np.arange(70) / 9), np.cos(np.arange(50) / 7)).astype(np.float32)
    values[:9, :9] = np.nan
    if version == 2:
        how = {"zarr_format": 2, "filters": None, "compressors": LCCodec(max_error=1e-3), "order": order}
    else:
        how = {"serializer": LCZarrCodec(max_error=1e-3), "compressors": None, "config": {"order": order}}
    array = create(dtype="float32", fill_value=np.nan, **how)
    array[:] = values
    back = reopened(array)
    np.testing.assert_array_equal(np.isnan(back[:]), np.isnan(values))
    assert np.nanmax(np.abs(back[:] - values)) <= 1e-3
    assert back.nbytes_stored() < 0.3 * values.nbytes


def test_v3_arrays_of_no_dimensions():
    array = zarr.create_array(
        store=MemoryStore(),
        shape=(),
        dtype="float64",
        serializer=LCZarrCodec(step_size=0.5),
        compressors=None,
    )
    array[...] = 2.5
    assert reopened(array)[()] == 2.5


def test_chunks_that_were_never_written_are_the_fill_value():
    array = create(dtype="float32", serializer=LCZarrCodec(), compressors=None, fill_value=7.0)
    array[:32, :20] = 1
    assert reopened(array)[0, 0] == 1
    assert reopened(array)[69, 49] == 7


def chunk_key(array):
    return next(k for k in array.store._store_dict if k.startswith("c"))


@pytest.mark.parametrize("damage", ["flip", "cut", "other dtype", "too many", "too few", "one"])
def test_damage_to_a_chunk_is_an_error(values, damage):
    array = create(dtype="float32", serializer=LCZarrCodec(step_size=0.01), compressors=None)
    array[:] = values
    key = chunk_key(array)
    data = bytearray(array.store._store_dict[key].to_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "cut":
        del data[-5:]
    else:
        shapes = {"too many": (33, 20), "too few": (31, 20), "one": (1,)}
        wrong = np.ones(shapes.get(damage, CHUNKS), np.float64 if damage == "other dtype" else np.float32)
        data = bytearray(LCCodec().encode(wrong))
    array.store._store_dict[key] = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(bytes(data))
    with pytest.raises(CorruptionError):
        reopened(array)[:]


def test_the_v3_codec_is_a_value():
    codec = LCZarrCodec({"step_size": 0.5})
    assert codec == LCZarrCodec(step_size=0.5) == LCZarrCodec.from_dict(codec.to_dict())
    assert hash(codec) == hash(LCZarrCodec(step_size=0.5))
    assert codec != LCZarrCodec(step_size=0.25)
    with pytest.raises(InvalidInputError):
        LCZarrCodec(step_size=-1.0)


# found by name, as an installed package is


ROOT = Path(__file__).parents[2]
READ = """
import sys
import numpy as np, zarr, numcodecs
assert not any(name.startswith("lcstore") for name in sys.modules)
v2 = zarr.open_array(sys.argv[1] + "/v2", mode="r")[:]
v3 = zarr.open_array(sys.argv[1] + "/v3", mode="r")[:]
wanted = np.load(sys.argv[1] + "/values.npy")
assert np.abs(v2 - wanted).max() <= 0.01 and np.abs(v3 - wanted).max() <= 0.01
made = zarr.create_array(
    store=zarr.storage.MemoryStore(), shape=(4,), dtype="float32", compressors=None,
    serializer={"name": "lcstore.lc", "configuration": {"step_size": 0.5}},
)
made[:] = np.float32([0.4, 1.1, -2.6, 0])
assert made[:].tolist() == [0.5, 1.0, -2.5, 0.0]
assert numcodecs.get_codec({"id": "lcstore.lc", "step_size": 0.5}).step_size == 0.5
print("found")
"""


def installed():
    return any(
        point.name == "lcstore.lc" for point in importlib.metadata.entry_points(group="numcodecs.codecs")
    )


def pretend_to_install(folder):
    """Write the metadata that an installation would, with the entry points that the project declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = folder / "lcstore-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lcstore\nVersion: 0\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def test_both_codecs_are_found_in_a_fresh_process(tmp_path, values):
    zarr.create_array(
        store=tmp_path / "v2",
        shape=SHAPE,
        chunks=CHUNKS,
        dtype="float32",
        zarr_format=2,
        compressors=LCCodec(max_error=0.01),
        filters=None,
    )[:] = values
    zarr.create_array(
        store=tmp_path / "v3",
        shape=SHAPE,
        chunks=CHUNKS,
        dtype="float32",
        serializer=LCZarrCodec(max_error=0.01),
        compressors=None,
    )[:] = values
    np.save(tmp_path / "values.npy", values)
    path = os.environ.get("PYTHONPATH", "")
    if not installed():
        if not (ROOT / "pyproject.toml").is_file():
            pytest.skip(
                "the package is not installed, and there is no project file that declares its entry points"
            )
        site = tmp_path / "site"
        site.mkdir()
        pretend_to_install(site)
        path = os.pathsep.join([str(site), str(ROOT), path])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "found\n"
