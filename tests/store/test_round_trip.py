"""Saving, restoring, resuming: what a user of the store sees."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from states import differing, leaves, same, tracked

import lcstore
from lcstore import ClosedError, ConflictError, InvalidInputError, NotFoundError
from lcstore.dtypes import DTYPE_NAMES, dtype_from_name
from lcstore.storage.memory import MemoryBackend


def test_first_save_is_exact_but_for_moments(tmp_path, run):
    state = run.step()
    with lcstore.open(tmp_path / "s") as store:
        info = store.save(0, state)
        back = store.restore()
    assert info.kind == "anchor"
    assert not info.exact
    assert info.base is None
    assert all("exp_avg" in path for path in differing(state, back))
    assert back["epoch"] == 1
    assert back["rng"] == state["rng"]


@pytest.mark.parametrize("policy", ["small", "balanced", "high", "lossless"])
@pytest.mark.parametrize("shape", [(), (5,), (4, 4), (2, 300, 300)])
def test_a_state_may_be_one_tensor(tmp_path, policy, shape):
    values = np.random.default_rng(0).standard_normal(shape)
    with warnings.catch_warnings(), lcstore.open(tmp_path / "s", policy=policy) as store:
        warnings.simplefilter("ignore", lcstore.UnrecognisedWarning)
        for step in range(3):
            store.save(step, values + step)
    with lcstore.open(tmp_path / "s", policy=policy) as store:
        np.testing.assert_array_equal(store.resume(), values + 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lcstore.UnrecognisedWarning)
            store.save(3, values)
        np.testing.assert_array_equal(store.restore(), values)


def test_deltas_follow_within_an_interval(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    states = [run.step() for _ in range(8)]
    for step, state in enumerate(states):
        info = store.save(step, state)
    assert info.kind == "delta"
    assert 0 < info.error < 2
    assert info.ratio > 5
    back = store.restore(7)
    for path, value in leaves(states[7]).items():
        if path.endswith("weight"):
            moved = np.linalg.norm(value - leaves(states[6])[path])
            assert np.linalg.norm(leaves(back)[path] - value) < 2 * moved
        elif "exp_avg" not in path:
            assert leaves(back)[path].tobytes() == value.tobytes()


def test_every_step_is_the_same_from_another_handle(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    kept = {}
    for step in range(6):
        store.save(step, run.step(), exact=step == 3)
        kept[step] = (tracked(store), store.restore(step))
    other = lcstore.open(tmp_path / "s", "r")
    for step, (track, seen) in kept.items():
        again = other.restore(step)
        assert same(again, seen)
        if step not in (0, 3):
            assert {p: leaves(again)[p].tobytes() for p in track} == track


def test_exact_save_gives_every_bit_and_does_not_disturb_the_track(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    states = [run.step() for _ in range(5)]
    infos = [store.save(step, state, exact=step == 2) for step, state in enumerate(states)]
    assert [info.exact for info in infos] == [False, False, True, False, False]
    assert same(store.restore(2), states[2])
    assert infos[4].bytes_stored < infos[2].bytes_stored / 3


def test_resume_goes_on_from_the_node(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    for step in range(4):
        store.save(step, run.step())
    before = tracked(store)
    other = lcstore.open(tmp_path / "s")
    state = other.resume(2)
    assert state["epoch"] == 3
    info = other.save(3, run.step())
    assert info.base == store.info(2).node
    assert len(other.steps()) == 4
    assert other.info(3).node == info.node  # the newest revision
    assert other.latest_step() == 3
    assert tracked(store) == before


def test_looking_never_moves_the_base(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    for step in range(3):
        last = store.save(step, run.step())
    store.restore(0)
    store.read(1, "model/fc1.weight")
    assert store.save(3, run.step()).base == last.node


def test_keys_select_and_lists_come_in_part_as_dicts(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    store.save(0, run.step())
    model = store.restore(0, names="model/**")
    assert list(model) == ["model"]
    groups = store.restore(0, names=["optim/param_groups/#0/params/#1"])
    assert groups == {"optim": {"param_groups": [{"params": {1: 1}}]}}
    with pytest.raises(NotFoundError, match=r"nothing that matches 'nothing/\*\*'"):
        store.restore(0, names="nothing/**")


def test_read_decodes_a_part(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    for step in range(3):
        store.save(step, run.step())
    whole = store.restore(2)["model"]["embed.weight"]
    for sel in (
        np.s_[:10],
        np.s_[5:7, 3:],
        np.s_[-1],
        np.s_[::2],
        np.s_[:, 4],
        (),
        3,
        np.s_[90:200],
        np.s_[4:2],
    ):
        np.testing.assert_array_equal(store.read(2, "model/embed.weight", sel), whole[sel])
    assert store.read(2, "epoch") == 3
    with pytest.raises(NotFoundError, match="show"):
        store.read(2, "model/absent")
    view = store[2]
    assert "model/embed.weight" in view
    assert view["epoch"] == 3
    np.testing.assert_array_equal(view["model/embed.weight"], whole)
    assert view.info.step == 2
    assert same(view.tree(), store.restore(2))


def test_like_and_dtype(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    state = run.step()
    store.save(0, state)
    half = store.restore(0, dtype="float16", names="model/**")
    assert {v.dtype for v in half["model"].values()} == {np.dtype(np.float16)}
    codes = np.arange(4).astype(ml_dtypes.int4)
    store.save(1, {"codes": codes, "scale": np.ones(2, ml_dtypes.bfloat16)})
    found = store.restore(1, dtype="float16")
    assert (found["codes"].dtype, found["scale"].dtype) == (codes.dtype, np.float16)
    like = {"model": {"fc2.bias": np.zeros(10, np.float64)}, "epoch": 0}
    back = store.restore(0, like=like)
    assert back["model"]["fc2.bias"].dtype == np.float64
    assert back["epoch"] == 1
    with pytest.raises(InvalidInputError, match="absent"):
        store.restore(0, like={"absent": np.zeros(3)})
    with pytest.raises(InvalidInputError, match=r"is 'model/fc2.bias' meant for 'model/fc2.bais'\?"):
        store.restore(0, like={"model": {"fc2.bais": np.zeros(10)}})
    whole = {name: np.zeros(array.shape) for name, array in store.restore(0)["model"].items()}
    with pytest.raises(InvalidInputError, match=r"not stored as such: 'model/fc3.bias'; restore") as refused:
        store.restore(0, like={"model": {**whole, "fc3.bias": np.zeros(10)}})
    assert "meant for" not in str(refused.value)  # each stored name is asked for under its own
    with pytest.raises(InvalidInputError, match=r"shape .* is asked for; leave what does not fit out"):
        store.restore(0, like={"model": {**whole, "fc2.bias": np.zeros(11)}})
    del whole["fc2.bias"]
    assert store.restore(0, like={"model": whole})["model"].keys() == whole.keys()


def test_labels(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    store.save(0, run.step(), metrics={"loss": 1.5}, metadata={"host": "a", "n": [1, None]}, tags=["eval"])
    store.save(5, run.step(), tags=("eval", "Größe 5"))
    store.save(6, run.step())
    assert store.info(0).metrics == {"loss": 1.5}
    assert store.info(0).metadata == {"host": "a", "n": [1, None]}
    assert store.info("eval").step == 5
    assert store.restore("Größe 5")["epoch"] == 2
    for tags in (["latest"], ["12"], "eval", [""], ["a" * 200]):
        with pytest.raises(InvalidInputError):
            store.save(7, run.step(), tags=tags)
    with pytest.raises(InvalidInputError, match="'best' cannot be a tag"):
        store.save(7, run.step(), tags=["best"])
    with pytest.raises(InvalidInputError, match="loss"):
        store.save(7, run.step(), metrics={"loss": "low"})
    with pytest.raises(InvalidInputError, match="metadata"):
        store.save(7, run.step(), metadata={"x": object()})
    assert store.steps() == [0, 5, 6]


def test_who_changes_what_info_gave_changes_no_record(tmp_path):
    with lcstore.open(tmp_path / "s") as store:
        store.save(0, {"epoch": 1}, metadata={"lr": {"steps": [1, 2]}})
        for told in (store.info(0), store.states()[0].info):
            told.metadata["lr"]["steps"].append(3)
        assert store.info(0).metadata == {"lr": {"steps": [1, 2]}}


@pytest.mark.parametrize("step", [-1, 1.5, "3", True, None, 1 << 63])
def test_a_step_is_a_whole_number(tmp_path, run, step):
    with pytest.raises(InvalidInputError, match="step"):
        lcstore.open(tmp_path / "s").save(step, run.step())


def test_modes(tmp_path, run):
    for mode in ("r", "r+"):
        with pytest.raises(NotFoundError, match="no store"):
            lcstore.open(tmp_path / "s", mode)
    store = lcstore.open(tmp_path / "s", "w-")
    assert store.steps() == []
    assert store.latest_step() is None
    with pytest.raises(NotFoundError, match="there is no store at"):
        store.restore()
    store.save(1, run.step())
    with pytest.raises(ConflictError):
        lcstore.open(tmp_path / "s", "w-")
    with pytest.raises(lcstore.ReadOnlyError, match="reading"):
        lcstore.open(tmp_path / "s", "r").save(2, run.step())
    with pytest.raises(lcstore.ReadOnlyError, match="to load a state and save nothing, restore_into"):
        lcstore.open(tmp_path / "s", "r").resume()
    with pytest.raises(NotFoundError, match="1 step from 1 to 1"):
        store.restore(2)
    with pytest.raises(InvalidInputError):
        lcstore.open(tmp_path / "s", "x")
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        store.steps()
    with pytest.raises(ClosedError):
        store.save(2, run.step())


@pytest.mark.parametrize(
    "state",
    [
        {},
        [],
        None,
        3,
        np.arange(5),
        np.float32(2.5),
        {"a": np.zeros((0, 4), np.float32), "weight": np.zeros((4, 0), np.float32)},
        {"weights": {"w": np.zeros((64, 64), np.float32)}},
        {"weights": {"w": np.float64(0), "x/y~#": {0: b"", "0": "", "": [(), {}]}}},
        {"model": {"weight": np.ones((40, 40), np.float64)[:, ::2]}},
        {"model": {"weight": np.asfortranarray(np.arange(600.0).reshape(20, 30))}},
        {"model": {"weight": np.full((32, 32), 1e-42, np.float32)}},
        {"model": {"weight": np.full((32, 32), 3e38, np.float32)}},
        {"model": {"weight": np.array([[np.nan, np.inf], [-np.inf, -0.0]], np.float32)}},
        {"model": {"weight": np.full((32, 32), -0.0, np.float32)}},
        {"flags": np.array([True, False]), "c": np.array([1 + 2j]), "i": np.array([2**63], np.uint64)},
    ],
    ids=lambda state: repr(state)[:40].replace("\n", " "),
)
def test_unusual_states_come_back(tmp_path, state):
    store = lcstore.open(tmp_path / "s")
    for step in range(3):
        store.save(step, state)
        back = store.restore(step)
        if "-0." in repr(state):  # a zero tensor of weights has no sign
            np.testing.assert_equal(back, state)
        else:
            assert same(back, state)
    other = lcstore.open(tmp_path / "s")
    other.resume()
    other.save(3, state)
    np.testing.assert_equal(other.restore(3), state)


def test_what_cannot_be_stored_is_named(tmp_path):
    store = lcstore.open(tmp_path / "s")
    with pytest.raises(InvalidInputError, match="model/hook"):
        store.save(0, {"model": {"hook": lambda: None}})
    assert store.steps() == []


def test_read_only_and_shared_memory_is_not_changed(tmp_path, run):
    state = run.step()
    for value in leaves(state).values():
        value.setflags(write=False)
    store = lcstore.open(tmp_path / "s")
    copies = {path: value.copy() for path, value in leaves(state).items()}
    for step in range(3):
        store.save(step, state)
    assert all(np.array_equal(copies[path], value) for path, value in leaves(state).items())


def test_structure_may_change_between_saves(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    first = run.step()
    store.save(0, {"model": first["model"]})
    store.save(1, run.step())  # an optimizer appears
    grown = run.step()
    grown["model"]["head.weight"] = np.ones((64, 64), np.float32)
    grown["model"]["fc1.weight"] = grown["model"]["fc1.weight"][:100]
    del grown["model"]["fc2.weight"]
    store.save(2, grown)
    grown["model"]["fc2.weight"] = run.weights["fc2.weight"].astype(np.float64)
    store.save(3, grown)
    back = lcstore.open(tmp_path / "s", "r").restore(3)
    assert leaves(back).keys() == leaves(grown).keys()
    for path, value in leaves(grown).items():
        assert leaves(back)[path].dtype == value.dtype
        assert leaves(back)[path].shape == value.shape
        if path.endswith("weight"):
            np.testing.assert_allclose(leaves(back)[path], value, atol=0.02)


def test_memory_target(run):
    store = lcstore.open("memory://round-trip")
    state = run.step()
    store.save(0, state, exact=True)
    assert same(lcstore.open("memory://round-trip", "r").restore(), state)


def test_restore_into(tmp_path, run):
    class Holder:
        def load_state_dict(self, state):
            self.state = state

    store = lcstore.open(tmp_path / "s")
    state = run.step()
    store.save(0, {**state, "vector": np.arange(4.0)})
    model, vector = Holder(), np.zeros(4)
    store.restore_into(0, {"model": model, "vector": vector})
    assert same(model.state, state["model"])
    assert vector.tolist() == [0, 1, 2, 3]
    other = lcstore.open(tmp_path / "s")
    rest = other.resume_into(None, {"model": Holder()})
    assert rest["epoch"] == state["epoch"]
    assert "model" not in rest
    assert other.save(1, {**run.step(), "vector": vector}).kind == "delta"
    with pytest.raises(InvalidInputError, match=r"nothing is saved under .absent."):
        store.restore_into(0, {"absent": Holder()})
    with pytest.raises(InvalidInputError, match="load_state_dict"):
        store.restore_into(0, {"model": 3})


@pytest.mark.parametrize("asked", [{"model/encoder": 0}, {"encoder": 0}, {"model": {"encoder": 0}}])
def test_a_part_of_a_module_is_told_how_to_have(asked, tmp_path):
    class Holder:
        def load_state_dict(self, state):
            self.state = state

    inner = {"encoder": Holder()}
    targets = {key: inner if isinstance(value, dict) else Holder() for key, value in asked.items()}
    with lcstore.open(tmp_path / "s") as store:
        store.save(0, {"model": {"encoder.0.weight": np.ones(3), "head.weight": np.ones(2)}, "epoch": 0})
        with pytest.raises(InvalidInputError, match=r"restore\(step, names='model/encoder\.\*'\)\['model'\]"):
            store.restore_into(0, targets)
        assert [*store.restore(0, names="model/encoder.*")["model"]] == ["encoder.0.weight"]


def test_what_loads_a_state_of_one_object_is_told(tmp_path):
    class Holder:
        def load_state_dict(self, state):
            self.state = state

    with lcstore.open(tmp_path / "s") as store:
        store.save(0, {"weight": np.ones(3)})
        store.save(1, {"model": {"weight": np.ones(3)}})
        cure = r"target\.load_state_dict\(store\.restore\(step\)\)"
        for targets in (Holder(), {"model": Holder()}):
            with pytest.raises(InvalidInputError, match=cure):
                store.restore_into(0, targets)
        with pytest.raises(InvalidInputError, match=r"the state has .model.\."):
            store.restore_into(1, {"net": Holder()})


def test_a_store_has_its_steps(run):
    store = lcstore.open("memory://steps of a store")
    assert list(store) == []
    for step in (20, 10):
        store.save(step, run.step())
    assert list(store) == [10, 20]
    assert np.int64(10) in store
    assert 11 not in store
    assert "10" not in store


def test_a_path_is_a_tuple_or_a_text(tmp_path):
    store = lcstore.open(tmp_path / "s")
    store.save(0, {"a/b": [np.arange(3)]})
    assert store.read(0, "a~1b/#0").tolist() == [0, 1, 2]
    assert store.read(0, ("a/b", 0)).tolist() == [0, 1, 2]


def test_messages_say_what_to_do(tmp_path, run):
    store = lcstore.open(tmp_path / "s")
    store.save(100, run.step())
    with pytest.raises(NotFoundError, match="a step is an integer"):
        store.restore("100")
    store.save(200, run.step(), tags=["gold"])
    for step, near in ((150, "100, 200"), (50, "100"), (900, "200")):
        with pytest.raises(NotFoundError, match=rf"nearest: {near}\)"):
            store.restore(step)
    with pytest.raises(NotFoundError, match="tags 'gold'"):
        store.restore("glod")
    with pytest.raises(NotFoundError, match="several values"):
        store.read(100, "model")
    with pytest.raises(NotFoundError, match="#1"):
        store.read(100, "optim/state/1/step")
    with pytest.raises(InvalidInputError, match="float33"):
        store.restore(100, dtype="float33")
    assert store.restore(100, dtype=np.float64)["model"]["fc1.weight"].dtype == np.float64


@pytest.mark.parametrize("durability", ["default", "none"])
def test_bytes_stored_mean_one_thing(tmp_path, durability):
    with lcstore.open(tmp_path, durability=durability) as store:
        state = {
            "w": np.random.default_rng(0).standard_normal((40, 30)).astype("f4"),
            "b": np.zeros(3),
            "n": 1,
        }
        infos = [store.save(step, state | {"n": step}, exact=step == 1) for step in range(4)]
        assert [store.info(info.step).bytes_stored for info in infos] == [i.bytes_stored for i in infos]
        listed = {found.step: found.info.bytes_stored for found in store.states()}
        assert listed == {info.step: info.bytes_stored for info in infos}
        made = (tmp_path / "lcstore.json").stat().st_size * (1 + (durability == "default"))
        assert sum(info.bytes_stored for info in infos) + made == file_bytes(tmp_path)
        assert store.stats().bytes_stored["total"] == file_bytes(tmp_path)


def file_bytes(folder) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_is_whole_of_a_stripped_state_is_restored_into_targets(tmp_path):
    rng = np.random.default_rng(0)
    with lcstore.open(tmp_path / "run", grace=0) as store:
        for step in (0, 10):
            state = {"model": {"w": rng.standard_normal((64, 64), np.float32)}}
            state["optim"] = {"exp_avg": {"w": 1e-3 * rng.standard_normal((64, 64), np.float32)}}
            store.save(step, {**state, "epoch": step, "optim/": {"lr": 0.1}, "e": {}, "l": [], "**": None})
        wanted = store.restore(0, names="model")["model"]["w"]
        store.retain("latest:9 | strip:optim/**:latest:1")
        target = {"w": np.zeros((64, 64), np.float32)}
        assert store.restore_into(0, {"model": target}) == {
            "epoch": 0, "optim/": {"lr": 0.1}, "e": {}, "l": [], "**": None,
        }  # fmt: skip
        store.restore_into(0, {"model": target, "e": {}})
        np.testing.assert_array_equal(target["w"], wanted)
        moments = {"exp_avg": {"w": np.zeros((64, 64), np.float32)}}
        with pytest.raises(lcstore.NotFoundError, match=r"Restore the rest with .*'model'.* these alone"):
            store.restore_into(0, {"model": target, "optim": moments})
        with pytest.raises(lcstore.InvalidInputError, match="absent"):
            store.restore_into(0, {"absent": target})
        assert store.restore_into(10, {"optim": moments})["model"]["w"].shape == (64, 64)


@pytest.mark.parametrize("first", [np.nan, np.inf])
def test_weights_that_no_grid_held_may_become_of_another_dtype(first):
    weight, other = np.full((16, 16), first, np.float32), np.full((16, 16), 1 + 2j)
    with lcstore.open(MemoryBackend.fresh()) as store:
        values = weight, other, np.ones((16, 16), int), other, np.ones_like(weight)
        for step, value in enumerate(values):
            store.save(step, {"model": {"weight": value}})
            found = store.restore(step)["model"]["weight"]
            assert (found.dtype, found.tobytes()) == (value.dtype, value.tobytes())


@pytest.mark.parametrize("dtype", DTYPE_NAMES)
def test_every_pattern_of_zeros_comes_back(dtype):
    """All of a tensor, its beginning, its end: not every dtype has a 0 that all bits of zero stand for."""
    element = dtype_from_name(dtype)
    states = []
    for filled in (slice(0, 0), slice(3, None), slice(0, 5), slice(0, 0)):
        values = np.zeros(3000 * element.itemsize, np.uint8)
        values[element.itemsize * 2 :][filled] = 1
        states.append(
            {"t": values.view(element), "none": np.zeros(0, element), "k": values[:8].view(np.int64)}
        )
    store = lcstore.open(MemoryBackend.fresh(), policy={"**": "plain"})
    for step, state in enumerate(states):
        store.save(step, state)
    found = [store.restore(step) for step in store.steps()]
    store.compact()
    found += [store.restore(step) for step in store.steps()]
    found += [{"t": store.read(step, "t", sel=np.s_[1:2900])} for step in store.steps()]
    wanted = [*states, *states, *({"t": state["t"][1:2900]} for state in states)]
    for have, want in zip(found, wanted, strict=True):
        assert {name: have[name].tobytes() for name in have} == {n: want[n].tobytes() for n in want}
