"""States as hierarchies of zarr, and one tensor through all of them as an array."""

from __future__ import annotations

import json
import pickle
import threading
import time
import warnings

import fsspec
import ml_dtypes
import numpy as np
import pytest
import zarr
from kit.requests import FarBackend, in_series
from saved import Saved
from states import leaves

import lcstore
from lcstore.errors import InvalidInputError, NotFoundError, ReadOnlyError
from lcstore.filesystem import zarrnodes
from lcstore.filesystem.quoting import quoted
from lcstore.filesystem.tensorfiles import shown_dtype
from lcstore.filesystem.turns import Turns
from lcstore.filesystem.zarrnodes import chunk_shape
from lcstore.format import keys
from lcstore.layout import layout as layouts
from lcstore.state.names import parse_name
from lcstore.storage.memory import MemoryBackend


@pytest.fixture
def small(monkeypatch):
    """Chunks so small that tensors have several, here and in Zarr."""
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: 1024)
    monkeypatch.setattr(zarrnodes, "_CHUNK_BYTES", 1500)


@pytest.fixture
def store(tmp_path, small):
    run = Saved()
    with lcstore.open(tmp_path / "s") as store:
        for step in range(3):
            store.save(
                step, run.state(step), metrics={"loss": 2.0 - step, "step": 7, "val/acc": float("nan")}
            )
        yield store


def check_all(group: zarr.Group, wanted: dict[str, np.ndarray]) -> None:
    arrays = {path: node for path, node in group.members(max_depth=None) if isinstance(node, zarr.Array)}
    assert len(arrays) == len(wanted)
    for name, value in wanted.items():
        array = arrays["/".join(quoted(parse_name(name)))]
        found = np.asarray(array[...])
        assert array.shape == value.shape
        assert found.dtype == array.dtype == shown_dtype(value.dtype.name)
        np.testing.assert_array_equal(found, value.astype(found.dtype))
        assert (array.attrs["name"], array.attrs["dtype"]) == (name, value.dtype.name)
        assert len({*array.metadata.dimension_names}) == value.ndim


def test_a_state_is_a_group(store):
    wanted = leaves(store.restore(1, to="numpy"))
    group = store.zarr(1)
    assert group.read_only
    check_all(group, wanted)
    info = store.info(1)
    assert group.attrs["step"] == 1
    assert group.attrs["node"] == info.node
    assert group.attrs["metrics"] == {"loss": 1.0, "step": 7.0, "val/acc": None}
    weight = group["model/fc.weight"]
    assert weight.chunks == (4, 90)
    assert (weight[3:9, 5::7] == wanted["model/fc.weight"][3:9, 5::7]).all()
    check_all(pickle.loads(pickle.dumps(group)), wanted)
    assert store.zarr().attrs["step"] == store.zarr("latest").attrs["step"] == 2


def test_the_same_lies_in_the_filesystem(store):
    wanted = leaves(store.restore(1, to="numpy"))
    url = f"lcstore://1/zarr::{store.url}"
    group = zarr.open_group(url, mode="r")
    check_all(group, wanted)
    assert zarr.open_array(f"lcstore://1/zarr/model/fc.weight::{store.url}", mode="r").shape == (70, 90)
    check_all(zarr.open_group(url, mode="r", use_consolidated=False), wanted)


def test_files_are_those_that_the_metadata_names(store):
    fs = fsspec.filesystem("lcstore", url=store.url)
    found = fs.find("1/zarr/model")
    sizes = {path: fs.info(path)["size"] for path in found}
    assert sizes["1/zarr/model/fc.weight/c.17.0"] == 4 * 90 * 4  # the last chunk is as long as the others
    assert [path for path in found if "/empty/" in path] == ["1/zarr/model/empty/zarr.json"]
    assert "1/zarr/model/scalar/c" in found
    for path in found:
        assert len(fs.cat_file(path)) == sizes[path]
    for name in ("c.18.0", "c.0.1", "c.0", "c.00.0", "c.-1.0", "c.x.0", "c", "d.0.0"):
        assert not fs.exists(f"1/zarr/model/fc.weight/{name}")


def test_only_the_chunks_that_are_asked_for_are_decoded(small):
    class Counting(MemoryBackend):
        read: list[str] = []  # noqa: RUF012

        def get(self, key, start=None, end=None):
            if keys.is_data_key(key) and "/c." in key:
                self.read.append(key)
            return super().get(key, start, end)

    rng = np.random.default_rng(0)
    with lcstore.open(Counting.fresh()) as store:
        store.save(0, {"model": {"fc.weight": rng.standard_normal((128, 64)).astype(np.float32)}})
        Counting.read.clear()
        weight = store.zarr(0)["model/fc.weight"]
        assert Counting.read == []
        found = weight[3:5]
        assert 0 < len({*Counting.read}) <= 2
        assert found.tobytes() == store.read(0, "model/fc.weight")[3:5].tobytes()


def test_nothing_is_written(store):
    group = store.zarr(1)
    with pytest.raises((ValueError, ReadOnlyError)):
        group["model/fc.weight"][0] = 0
    with pytest.raises((ValueError, ReadOnlyError)):
        group.create_group("more")
    with pytest.raises(ReadOnlyError, match="save"):
        group.store.with_read_only(False)
    with pytest.raises(NotFoundError, match="nearest"):
        store.zarr(77)


@pytest.mark.parametrize(
    ("shape", "size", "chunk"),
    [
        ((), 4, []),
        ((0,), 4, [1]),
        ((5, 0, 3), 4, [5, 1, 3]),
        ((10,), 4, [10]),
        ((3 << 20,), 4, [1 << 20]),
        ((1000, 1 << 19), 4, [2, 1 << 19]),
        ((7, 3, 1 << 21), 4, [1, 1, 1 << 20]),
        ((7, 3, 100), 4, [7, 3, 100]),
        ((2, 1 << 30), 8, [1, 1 << 19]),
    ],
)
def test_chunks_are_runs_of_elements(shape, size, chunk):
    assert chunk_shape(shape, size) == chunk


# Through time ---------------------------------------------------------------------------------------------


def test_a_history_is_an_array(store):
    array = store.zarr_history("model/fc.weight")
    assert (array.shape, array.chunks) == ((3, 70, 90), (1, 70, 90))
    for place in (2, 0, 1):
        assert array[place].tobytes() == store.read(place, "model/fc.weight").tobytes()
    assert (array[:, 4] == np.stack([store.read(step, "model/fc.weight", 4) for step in range(3)])).all()
    assert array.attrs["steps"] == [0, 1, 2]
    assert array.attrs["nodes"] == [store.info(step).node for step in range(3)]
    assert array.attrs["metrics"] == {"loss": [2, 1, 0], "step": [7, 7, 7], "val/acc": [None] * 3}
    assert array.metadata.dimension_names == ("step", "fc.weight:0", "fc.weight:1")
    beside = zarr.open_group(array.store, mode="r")
    assert beside["step"][:].tolist() == [0, 1, 2]  # and not the metric of that name
    assert beside["loss"][:].tolist() == [2, 1, 0]
    assert np.isnan(beside["val~1acc"][:]).all()
    there = pickle.loads(pickle.dumps(array))
    assert there[1:].tobytes() == array[1:].tobytes()


def test_a_tensor_that_is_called_step_leaves_the_steps():
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step in (3, 5):
            store.save(step, {"optim": {"step": np.float32(step + 1)}, "step": np.float32(step + 2)})
        for name, called, more in (("optim/step", "optim.step", 1), ("step", "value", 2)):
            array = store.zarr_history(name)
            assert array[:].tolist() == [3.0 + more, 5.0 + more]
            group = zarr.open_group(array.store, mode="r")
            assert sorted(group.array_keys()) == sorted({"step", called})
            assert group["step"][:].tolist() == [3, 5]


def test_threads_that_read_a_history_together_go_over_each_edge_about_once():
    far = FarBackend(MemoryBackend.fresh(), 0)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(far) as saved:
        for step in range(40):
            weight = weight + np.float32(1e-2) * rng.standard_normal((64, 64), dtype=np.float32)
            saved.save(step, {"model": {"weight": weight}})
    far.seconds = 0.02
    with lcstore.open(far, "r") as read:
        array = read.zarr_history("model/weight")
        with far.counted() as log:
            found = array[:]
        asked, series = len(log), in_series(log)
        for part in (slice(None), slice(5, 40)):  # again, and from an earlier place
            with far.counted() as log:
                array[part]
            assert in_series(log) < 25
        far.seconds = 0
        assert all((found[step] == value).all() for step, value in read.history("model/weight"))
    assert asked < 60
    assert series < 20


def test_of_those_that_wait_the_first_place_has_its_turn():
    turns, order, begun = Turns(), [], threading.Barrier(7)

    def take(place: int) -> None:
        begun.wait()
        with turns.at(place):
            order.append(place)

    threads = [threading.Thread(target=take, args=(place,)) for place in (9, 2, 7, 0, 4, 6)]
    with turns.at(5) as before:
        assert before < -1
        for thread in threads:
            thread.start()
        begun.wait()
        while len(turns._waiting) < 6:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == [0, 2, 4, 6, 7, 9]


@pytest.mark.parametrize(
    "name", ["model/half.weight", "model/scalar", "model/empty", "dtypes/int4", "odd/~1/inside"]
)
def test_histories_of_any_tensor(store, name):
    array = store.zarr_history(name, range(1, 3))
    wanted = np.stack([np.asarray(store.read(step, name, to="numpy")) for step in (1, 2)])
    assert array.shape == wanted.shape
    np.testing.assert_array_equal(array[:], wanted.astype(array.dtype))


def test_states_without_the_tensor_are_passed_over(tmp_path):
    shapes = [(4, 4), None, (3, 3), (4, 4), (4, 4)]
    with lcstore.open(tmp_path / "s", policy="lossless") as store:
        for step, shape in enumerate(shapes):
            tensors = {} if shape is None else {"w": np.full(shape, step, np.float32)}
            store.save(
                step, {"model": {**tensors, "other": np.zeros(3)}}, metrics={"loss": 1} if step == 3 else {}
            )
        store.save(5, {"model": {"w": np.full((4, 4), 5, ml_dtypes.bfloat16)}})
        assert store.zarr_history("model/w").attrs["steps"] == [5]
        array = store.zarr_history("model/w", range(5))
        assert array.attrs["steps"] == [0, 3, 4]
        assert array.attrs["metrics"] == {"loss": [None, 1.0, None]}
        assert array[:, 0, 0].tolist() == [0, 3, 4]
        assert store.zarr_history("model/w", [4, 0])[:, 0, 0].tolist() == [4, 0]
        with pytest.raises(NotFoundError, match="model/w"):
            store.zarr_history("model/w", [0, 1])
        with pytest.raises(InvalidInputError, match=r"float32\[3, 3\].*step 2.*float32\[4, 4\].*step 4"):
            store.zarr_history("model/w", [2, 4])
        with pytest.raises(NotFoundError, match="none of these 1 states"):
            store.zarr_history("model/w", range(1, 2))
        for near, nearest in (("model/wt", "'model/w'"), ("w", "'model/w'"), ("model/*", "several values")):
            with pytest.raises(NotFoundError, match=f"none of these 6 states .*{nearest}"):
                store.zarr_history(near)
        with pytest.raises(NotFoundError):
            store.zarr_history("model/w", [99])


def test_a_plain_value_is_said_to_be_one(tmp_path):
    with lcstore.open(tmp_path / "s") as store:
        store.save(0, {"model": {"w": np.ones((4, 4), np.float32)}, "lr": 0.1})
        with pytest.raises(NotFoundError, match=r"a plain value, which history\('lr'\) gives"):
            store.zarr_history("lr")
        assert [*store.history("lr")] == [(0, 0.1)]


def test_states_that_let_go_of_the_tensor_are_passed_over(tmp_path, run):
    with lcstore.open(tmp_path / "s") as store:
        for step in range(4):
            store.save(step, run.step())
        store.retain(lcstore.LatestN(9) | lcstore.Strip("optim/**", after=lcstore.LatestN(2)))
        name = "optim/state/#0/exp_avg"
        array = store.zarr_history(name)
        assert array.attrs["steps"] == [2, 3]
        assert array.attrs["runs"] == [1, 1]
        assert array[0].tobytes() == store.read(2, name).tobytes()
        with pytest.raises(NotFoundError, match="let go"):
            store.zarr_history(name, [1, 2])


def test_histories_in_order_cost_an_edge_each(tmp_path):
    rng, weight = np.random.default_rng(0), np.zeros((64, 64), np.float32)
    with lcstore.open(tmp_path / "s", durability="none") as store:
        for step in range(12):
            weight = weight + rng.standard_normal(weight.shape).astype(np.float32) * np.float32(1e-3)
            store.save(step, {"model": {"w.weight": weight}})
        array = store.zarr_history("model/w.weight")
        with zarr.config.set({"async.concurrency": 1}):
            array[:]
        assert array.store._made_of[1]._walker.edges_applied <= 2 * 12


def test_xarray_opens_them(store):
    xarray = pytest.importorskip("xarray")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = xarray.open_zarr(store.zarr_history("model/fc.weight").store, chunks=None)
        assert history["step"].values.tolist() == [0, 1, 2]
        assert history["fc.weight"].sel(step=1).values.tobytes() == store.read(1, "model/fc.weight").tobytes()
        assert history["loss"].values.tolist() == [2, 1, 0]
        model = xarray.open_dataset(f"lcstore://1/zarr/model::{store.url}", engine="zarr", chunks=None)
        assert model["fc.weight"].values.tobytes() == store.read(1, "model/fc.weight").tobytes()
        assert {"fc.weight", "half.weight", "bias", "scalar", "empty"} == {*model.variables}


def test_metadata_is_strict_json(store):
    def refuse(text: str) -> None:
        raise AssertionError(text)

    fs = fsspec.filesystem("lcstore", url=store.url)
    for path in (
        "1/zarr/zarr.json",
        "1/zarr/model/zarr.json",
        "1/zarr/model/fc.weight/zarr.json",
        "1/metadata.json",
    ):
        json.loads(fs.cat_file(path), parse_constant=refuse)
