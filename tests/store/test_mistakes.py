"""What is typed wrongly is told with what was meant."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import warnings
from functools import partial

import numpy as np
import pytest

import lcstore
from lcstore import InvalidInputError, NotFoundError
from lcstore.edges import frames
from lcstore.storage.memory import MemoryBackend
from lcstore.track import coding
from lcstore.write import writer

STATE = {"model": {"w": np.ones((8, 8), np.float32)}}


@pytest.fixture
def store() -> lcstore.Store:
    store = lcstore.open(MemoryBackend.fresh())
    store.save(100, STATE, metrics={"acc": 0.5})
    return store


@pytest.mark.parametrize("typed", ["mx", "maxx", "maximum"])
def test_the_way_that_is_best_is_told_where_it_is_mistyped(store, typed):
    with pytest.raises(InvalidInputError, match="say 'best:acc:max'"):
        store.restore(f"best:acc:{typed}")


def test_what_goes_by_name_is_told(store):
    with pytest.raises(TypeError, match=r"Store.save\(\) too many .*; given by name: metrics=, "):
        store.save(1, STATE, {"acc": 1.0})


@pytest.mark.parametrize(
    ("given", "said"),
    [({"metadata": "abc"}, "metadata is 'abc': give a dict"), ({"metadata": [1]}, r"metadata is \[1\]: give"),
     ({"tags": None}, "tags is None: give a list"), ({"tags": "a"}, "tags is 'a': give a list")],
)  # fmt: skip
def test_labels_of_another_kind_are_refused(store, given, said):
    with pytest.raises(InvalidInputError, match=said):
        store.save(101, STATE, **given)
    assert store.steps() == [100]


def test_an_array_names_no_state(store):
    with pytest.raises(InvalidInputError, match="not a ndarray"):
        store.restore(np.arange(3))


def test_methods_are_looked_for_in_the_package():
    for name, method in (("load", "restore"), ("save", "save"), ("verify", "verify")):
        with pytest.raises(AttributeError, match=rf"a store has it, lcstore.open\(url\).{method}$"):
            getattr(lcstore, name)
    with pytest.raises(AttributeError, match=r"no attribute 'opne'$"):
        lcstore.opne  # noqa: B018
    for method in lcstore._METHODS:
        assert callable(getattr(lcstore.Store, method))


def test_a_module_of_the_library_is_imported_before_the_store():
    code = "from lcstore import limits, units; import sys; assert 'lcstore.store' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("exact", ["yes", None, 2])
def test_exact_is_yes_or_no(store, exact):
    for save in (store.save, store.save_async):
        with pytest.raises(InvalidInputError, match=f"exact is {exact!r}; it is True or False"):
            save(200, STATE, exact=exact)
    with pytest.raises(InvalidInputError, match=r"skip_below is '1'"):
        store.save(200, STATE, skip_below="1")
    assert store.steps() == [100]


def test_a_number_for_a_policy_is_an_error():
    with pytest.raises(InvalidInputError, match=r"policy is 0.5; .*: Policy\(error=0.5\)$"):
        lcstore.open(MemoryBackend.fresh(), policy=0.5)
    with pytest.raises(InvalidInputError, match=r"rule '\*\*/w' gives 0.5; .*: {'error': 0.5}$"):
        lcstore.open(MemoryBackend.fresh(), policy={"**/w": 0.5})
    with pytest.raises(InvalidInputError, match=r"every bit is kept as 'plain'"):
        lcstore.open(MemoryBackend.fresh(), policy={"**/w": "exact"})


def test_arguments_in_another_order(store):
    target = {"model": {"w": np.zeros((8, 8), np.float32)}}
    for load in (store.restore_into, store.resume_into, store.rewind_into):
        with pytest.raises(InvalidInputError, match=r"given as int.*before them: \(100, {'model': ...}\)"):
            load(target, 100)
    store.save(200, STATE | {"optim": {"step": 1}, "rng": np.arange(3)})
    with pytest.raises(InvalidInputError, match=r"under 'optimizer' \(is 'optim' meant\?\): .* 'rng'\. It"):
        store.restore_into(200, target | {"optimizer": {"step": np.zeros(1)}})
    with pytest.raises(InvalidInputError, match=r"not a dict; to load into objects: restore_into\("):
        store.restore(target)
    with pytest.raises(InvalidInputError, match=r"not a StepInfo: give its \.node"):
        store.restore(store.info())
    with pytest.raises(InvalidInputError, match=r"a name is text .* not 100"):
        store.read("model/w", 100)
    with pytest.raises(InvalidInputError, match=r"export\(store\[step\], file\) writes a state, not a Store"):
        lcstore.export(store, "file.npz")
    with pytest.raises(InvalidInputError, match=r"threads is '2'"):
        lcstore.open(MemoryBackend.fresh(), threads="2")


def test_best_of_several_or_without_a_direction(store):
    with pytest.raises(InvalidInputError, match=r"'best:3:acc:max' or 'best:3:acc:min'"):
        store.retain("best:3:acc")
    with pytest.raises(InvalidInputError, match=r"'best:acc:max' or 'best:acc:min'"):
        store.restore("best:acc")
    with pytest.raises(
        InvalidInputError, match=r"'best:3:acc:max' is a retention rule, .* one is 'best:acc:max'"
    ):
        store.restore("best:3:acc:max")
    with pytest.raises(InvalidInputError, match=r"latest:3 meant"):
        store.retain("3")


def test_sizes_and_times_are_texts_too(store):
    assert store.compact(max_bytes="10kB", max_seconds="2h").planned == 0
    with pytest.raises(InvalidInputError, match=r"unknown unit 'x'"):
        store.compact(max_seconds="2x")


def test_the_folder_of_all_runs_is_no_store(tmp_path):
    for name in "ab":
        lcstore.open(tmp_path / "runs" / name).save(0, STATE)
    with pytest.raises(NotFoundError, match=r"Below it are .*runs/a, .*runs/b$"):
        lcstore.open(tmp_path / "runs", "r")
    with pytest.raises(NotFoundError, match=r"creates one$"):
        lcstore.open(tmp_path / "none", "r")
    with pytest.raises(NotFoundError, match=r"creates one\. Beside it is .*/runs$"):
        lcstore.open(tmp_path / "run", "r")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("interval", "every="), ("save_interval_steps", "every="), ("max_to_keep", "keep='latest:3'"),
     ("polcy", "policy="), ("directory", "the first one")],
)  # fmt: skip
def test_arguments_of_other_managers(name, meant):
    with pytest.raises(TypeError, match=f"takes no argument '{name}'; it takes {meant}"):
        lcstore.CheckpointManager(MemoryBackend.fresh(), **{name: 10})


@pytest.mark.parametrize("wrong", ["device", "map_location"])
@pytest.mark.parametrize("method", ["restore", "resume", "restore_into", "resume_into"])
def test_a_device_is_told_where_it_goes(store, method, wrong):
    with pytest.raises(TypeError, match=rf"^Store.{method}\(\) got .*'{wrong}'; `to=` .* .to\(device\)$"):
        getattr(store, method)(100, **{"targets": {}} if "into" in method else {}, **{wrong: "cuda"})


@pytest.mark.parametrize("method", ["restore_into", "resume_into", "rewind_into"])
def test_targets_alone_are_told_that_the_state_comes_first(store, method):
    with pytest.raises(TypeError, match=rf"'targets'; the state comes first.*: {method}\(None, {{'model': m"):
        getattr(store, method)({"model": np.zeros(3)})


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda store: store.history("a", start=3), "steps=range"),
        (lambda store: store.restore_into(0, {}, names="a"), r"\{'model': \{'head.weight'.*takes names="),
        (lambda store: store.save(1, {}, policy="high"), r"open\(url, policy='high'\)"),
        (lambda store: store.save(1, {}, metric=1.0), r"metrics=\{'loss': 1.0\}"),
        (lambda store: store.restore(metric="loss"), "'best:loss'"),
        (lambda store: store.save({"a": 1}), r"the step comes first: save\(100"),
        (lambda store: store.retain(latest=2), "retain\\('latest:3"),
        (lambda store: lcstore.open("memory://named", quality="high"), "policy='high'"),
        (lambda store: lcstore.open("memory://named", run="a"), "lcstore ls URL --runs"),
        (lambda store: lcstore.CheckpointManager("memory://named", run="a"), "lcstore ls URL --runs"),
        (lambda store: lcstore.Store("memory://named"), r"lcstore.open\(url\)"),
    ],
)
def test_arguments_that_people_look_for_are_answered(store, call, hint):
    with pytest.raises(TypeError, match=f"; .*{hint}"):
        call(store)


def test_an_open_store_in_the_place_of_a_url_is_told_what_to_give(store):
    for opens in (lcstore.open, lcstore.CheckpointManager):
        with pytest.raises(lcstore.InvalidInputError, match=r"give store\.url"):
            opens(store)


def test_what_other_tools_call_the_same_is_told():
    store = lcstore.open(MemoryBackend.fresh())
    for name, instead in (
        ("delete", "retire"), ("load", "restore"), ("get", "restore"), ("export", "lcstore.export"),
        ("metrics", r"s\.metrics\) for"), ("open", "lcstore.open"), ("gc", "collect"),
    ):  # fmt: skip
        with pytest.raises(AttributeError, match=rf"'Store' .* no attribute '{name}'; instead: .*{instead}"):
            getattr(store, name)
    with pytest.raises(AttributeError, match=r"no attribute 'stpes'$"):
        store.stpes  # noqa: B018
    assert not hasattr(store, "load_state_dict")


def test_a_report_is_written_of_an_open_store(tmp_path):
    with pytest.raises(InvalidInputError, match=r"open store, not 'runs/a': lcstore.open"):
        lcstore.write_report("runs/a", tmp_path / "page.html")


@pytest.mark.parametrize("durability", ["default", "none"])
@pytest.mark.parametrize("moved", [False, True])
def test_a_store_that_goes_while_a_run_saves_is_told_of_and_begun_anew(tmp_path, moved, durability):
    url, rng = tmp_path / "run", np.random.default_rng(0)
    states = [{"model": {"weight": rng.standard_normal((64, 64)).astype(np.float32)}} for _ in range(6)]
    with lcstore.open(url, grace="1h", durability=durability) as store:
        for step in range(3):
            store.save(step, states[step])
        url.rename(tmp_path / "elsewhere") if moved else shutil.rmtree(url)
        with pytest.warns(lcstore.DamageWarning, match="is gone, with all that was saved in it"):
            store.save(3, states[3])
        for step in (4, 5):
            store.save(step, states[step])  # without a warning
    assert (url / "lcstore.json").is_file()
    assert (url / "copies/lcstore.json").is_file() == (durability == "default")
    with lcstore.open(url, "r") as store:
        assert [state.step for state in store.states()] == [3, 4, 5]
        report = store.verify("restore")
    assert report.ok, report.findings
    for _ in range(2):  # the second passes over what is there
        lcstore.copy(url, tmp_path / "backup")
    with lcstore.open(tmp_path / "backup", "r") as store:
        assert [state.step for state in store.states()] == [3, 4, 5]
        assert store.verify("restore").ok
    assert json.loads((url / "lcstore.json").read_text())["grace_seconds"] == 3600
    if moved:
        with lcstore.open(tmp_path / "elsewhere", "r") as store:
            assert store.latest_step() == 2


@pytest.mark.parametrize("at", [None, 1])
@pytest.mark.parametrize("saved", [0, 2])
def test_a_save_that_a_collector_took_for_an_interrupted_one_lets_go_of_nothing_else(
    tmp_path, monkeypatch, at, saved
):
    url, rng = tmp_path / "run", np.random.default_rng(0)
    states = [{"model": {"weight": rng.standard_normal((64, 64)).astype(np.float32)}} for _ in range(8)]
    with lcstore.open(url) as store:
        for step in range(3):
            store.save(step, states[step])
    taken, is_taken_away = [True], writer.is_taken_away
    monkeypatch.setattr(
        writer, "is_taken_away", lambda *given: bool(taken and taken.pop()) or is_taken_away(*given)
    )
    with lcstore.open(url) as store, warnings.catch_warnings():
        warnings.simplefilter("error", lcstore.DamageWarning)
        store.resume(at)
        for step in range(3, 3 + saved):
            store.save(step, states[step])
        taken[:] = [True]
        store.save(7, states[7])
        assert not taken
    with lcstore.open(url, "r") as store:
        assert [state.step for state in store.states()] == [0, 1, 2, *range(3, 3 + saved), 7]
        assert store.verify("restore").ok


QUIET = {
    "weights that move alike": lambda step: {"model": {"weight": np.full((64, 64), step, np.float32)}},
    "weights that rest": lambda step: {"model": {"weight": np.eye(64, dtype=np.float32)}, "step": step},
    "an array that rests": lambda step: {"a": np.arange(5), "step": step},
    "nothing but numbers": lambda step: {"step": step},
}


@pytest.mark.parametrize("kind", QUIET)
@pytest.mark.parametrize("kept_twice", [False, True])
def test_states_of_which_nothing_is_stored_miss_their_store_too(kind, kept_twice):
    """A bucket is looked at in turns, so a few saves may pass before that is seen."""
    backend = MemoryBackend.fresh()
    if kept_twice:
        backend._url = "s3://bucket/run"
    with lcstore.open(backend, durability="none") as store:
        for step in range(6):
            store.save(step, QUIET[kind](step))
        for key in backend.snapshot():
            backend.delete(key)
        later = partial(all, (store.save(step, QUIET[kind](step)) for step in range(6, 14)))
        with pytest.warns(lcstore.DamageWarning, match="is gone, with all that was saved in it"):
            later()
    with lcstore.open(backend, "r") as store:
        assert store.latest_step() == 13
        assert store.verify("restore").ok or kept_twice
        restored = store.restore(13)
    wanted = QUIET[kind](13)
    if "model" in wanted:  # weights may be an interval behind
        np.testing.assert_allclose(restored["model"]["weight"], wanted["model"]["weight"], atol=1)
    else:
        np.testing.assert_equal(restored, wanted)


def test_a_place_with_states_that_is_no_store_is_told_from_one_without(tmp_path):
    with lcstore.open(tmp_path / "run") as store:
        store.save(0, {"model": {"weight": np.ones((8, 8), np.float32)}})
    for name in ("lcstore.json", "copies/lcstore.json"):
        (tmp_path / "run" / name).unlink()
    with pytest.raises(lcstore.NotFoundError, match=r"lcstore\.json is missing here, and so is its"):
        lcstore.open(tmp_path / "run", "r")
    with pytest.raises(lcstore.NotFoundError, match="the first save in mode 'a' creates one"):
        lcstore.open(tmp_path / "none", "r")


@pytest.mark.parametrize("when", ["the first save", "an exact one", "a delta"])
@pytest.mark.parametrize("policy", ["balanced", "lossless"])
def test_arrays_that_change_while_they_are_saved_harm_no_later_save(when, policy):
    """Their own state may be torn: that is told nowhere else, so let what follows be whole."""
    rng, stop = np.random.default_rng(0), threading.Event()
    weight = rng.standard_normal((1500, 1000)).astype(np.float32)
    buffer = rng.integers(0, 100, 1 << 20)
    state = {"model": {"weight": weight}, "buffer": buffer}

    def change():
        chance = np.random.default_rng(1)
        while not stop.is_set():
            weight[chance.integers(0, 1500, 200)] += np.float32(0.5)
            buffer[chance.integers(0, buffer.size, 5000)] += 1

    with lcstore.open(MemoryBackend.fresh(), policy=policy, durability="none") as store:
        if when != "the first save":
            store.save(0, state)
        changing = threading.Thread(target=change)
        changing.start()
        try:
            for step in range(1, 4):
                store.save(step, state, exact=when == "an exact one")
        finally:
            stop.set()
            changing.join()
        for step in range(4, 7):
            weight += np.float32(0.01)
            store.save(step, state)
            back = store.restore(step)
            np.testing.assert_array_equal(back["buffer"], buffer)
            if policy == "lossless":
                np.testing.assert_array_equal(back["model"]["weight"], weight)
        assert store.verify("restore").ok


class Refusing(MemoryBackend):
    """Memory that refuses what is put after an array has changed, as often as it is told to."""

    refuse = False

    def _put(self, key, data):
        if self.refuse and key.startswith("nodes/"):
            self.refuse = False
            raise OSError(5, "Input/output error")
        super()._put(key, data)


@pytest.mark.parametrize("undone", ["a failed save", "weights off their grid"])
@pytest.mark.parametrize("policy", ["balanced", "lossless"])
def test_a_way_back_goes_by_what_was_coded_and_not_by_arrays_that_changed(monkeypatch, undone, policy):
    rng, backend = np.random.default_rng(0), Refusing.fresh()
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    buffer = rng.integers(0, 100, 1 << 16)
    state = {"model": {"weight": weight}, "buffer": buffer}
    coded = coding.Coder.code_patterns

    def changing(self, *given):
        made = coded(self, *given)
        buffer[::7] += 3  # as another thread would
        return made

    with lcstore.open(backend, policy=policy, durability="none", threads=1) as store:
        for step in range(2):
            store.save(step, state)
            buffer[::5] += 1
        monkeypatch.setattr(coding.Coder, "code_patterns", changing)
        if undone == "a failed save":
            backend.refuse = True
            with pytest.raises(lcstore.StorageError):
                store.save(2, state)
        else:
            weight[0, 0] = np.nan
            store.save(2, state)
            weight[0, 0] = 0
        monkeypatch.undo()
        for step in range(3, 6):
            buffer[::5] += 1
            store.save(step, state)
            np.testing.assert_array_equal(store.restore(step)["buffer"], buffer)
        assert store.verify("restore").ok


def test_moments_that_do_not_fit_and_change_meanwhile_are_restored(monkeypatch):
    rng = np.random.default_rng(0)
    moments = rng.standard_normal((64, 64)).astype(np.float32)
    moments[0, 0] = np.inf
    state = {"optim": {"state": {0: {"exp_avg": moments, "exp_avg_sq": moments**2}}, "param_groups": []}}
    encode = frames.encode_lossless

    def changing(values):
        data = encode(values)
        moments[1:] += 1
        return data

    monkeypatch.setattr(frames, "encode_lossless", changing)
    with lcstore.open(MemoryBackend.fresh(), durability="none") as store:
        for step in range(3):
            store.save(step, state)
            store.restore(step)
        assert store.verify("restore").ok


@pytest.mark.parametrize(
    "sel", [100, "x", np.s_[::0], np.s_[0, 0, 0], np.s_["a":"b"], np.s_[:2, 8], [1, 8], np.ones(3, bool)]
)
def test_an_index_that_does_not_fit_is_told_with_the_shape(store, sel):
    for read in (partial(store.read, 100), store[100].read):
        with pytest.raises(InvalidInputError, match=r"'model/w' has the shape \(8, 8\)") as caught:
            read("model/w", sel)
        assert isinstance(caught.value, IndexError)  # as numpy has it
