"""Handles in use: several threads, forks, closing, loading that fails; and what a save leaves in memory."""

from __future__ import annotations

import ast
import copy
import gc
import os
import pickle
import re
import threading
import warnings
import weakref

import ml_dtypes
import numpy as np
import pytest
from states import same, tracked

import lcstore
from lcstore import (
    ClosedError,
    CorruptionError,
    InvalidInputError,
    StorageError,
    UnknownOutcomeError,
    UnrecognisedWarning,
)
from lcstore.format import keys
from lcstore.read.resolved import Resolved
from lcstore.storage.memory import MemoryBackend
from lcstore.testing.faults import Fault, FaultBackend
from lcstore.track import fusedpass as advance


def weights(array):
    return {"model": {"a.weight": array}}


def head_of(store):
    return store._writer.head.node


# Threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_save_and_restore_at_once(threads, run):
    """While one thread saves, others restore what is acknowledged, each time the same."""
    store = lcstore.open(MemoryBackend.fresh(), threads=threads)
    store.save(0, run.step())
    nodes = [store.info().node]
    failures: list[BaseException] = []
    done = threading.Event()

    def look():
        first: dict[str, object] = {}
        rng = np.random.default_rng(threading.get_ident())
        try:
            while not done.is_set():
                node = nodes[int(rng.integers(len(nodes)))]
                back = store.restore(node)
                assert same(back, first.setdefault(node, back))
                assert back["epoch"] in store.leaves(node).values()
                assert store.latest_step() is not None
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for step in range(1, 25):
        nodes.append(store.save(step, run.step(), exact=step % 5 == 0).node)
    done.set()
    for reader in readers:
        reader.join()
    assert not failures, failures
    assert store.verify(level="checksum").ok


def test_saves_from_two_threads_make_one_chain(run):
    store = lcstore.open(MemoryBackend.fresh())
    states = [run.step() for _ in range(12)]

    def save(first):
        for step in range(first, 12, 2):
            store.save(step, states[step])

    both = [threading.Thread(target=save, args=(first,)) for first in (0, 1)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert store.steps() == list(range(12))
    assert sum(store.info(step).base is None for step in range(12)) == 1
    assert all(store.restore(step)["epoch"] == step + 1 for step in range(12))


def test_an_old_listing_hides_nothing_that_is_known(run):
    """A listing that was begun before a commit, and ends after it, does not take the commit away."""
    backend = MemoryBackend.fresh()
    store = lcstore.open(backend)
    store.save(0, run.step())
    other = lcstore.open(backend)
    listing, saved = threading.Event(), threading.Event()
    real = backend.list

    def slow(prefix, foreign=None):
        found = real(prefix, foreign)
        if prefix == keys.NODES and not listing.is_set():
            listing.set()
            assert saved.wait(10)
        return found

    backend.list = slow
    thread = threading.Thread(target=store.steps)
    thread.start()
    assert listing.wait(10)
    own = store.save(1, run.step()).node
    foreign = other.save(2, run.step()).node
    assert store.steps() == [0, 1, 2]
    saved.set()
    thread.join()
    assert {own, foreign} <= set(store._index.graph.nodes)


def test_a_node_that_is_deleted_while_it_is_read_is_an_error_of_ours(run):
    backend = MemoryBackend.fresh()
    store = lcstore.open(backend, durability="none")
    for step in range(3):
        store.save(step, run.step())
    reader = lcstore.open(backend, "r")
    state = Resolved(reader._reader, reader._index.refresh().at_step(2))
    wanted = state.node.everything
    backend.delete(keys.node_key(reader._index.graph.at_step(1)))
    reader.steps()
    with pytest.raises(CorruptionError, match="step 2") as caught:
        state.values(wanted)
    assert caught.value.step == 2


# The end of a handle ----------------------------------------------------------------------------------------


def test_closing_waits_for_a_save(run):
    backend = MemoryBackend.fresh()
    store = lcstore.open(backend)
    store.save(0, run.step())
    real, begun = backend.put, threading.Event()

    def slow(key, data):
        begun.set()
        threading.Event().wait(0.02)
        real(key, data)

    backend.put = slow
    outcome: list[object] = []
    thread = threading.Thread(target=lambda: outcome.append(store.save(1, run.step()).step))
    thread.start()
    begun.wait(10)
    store.close()
    thread.join()
    assert outcome == [1]
    for use in (lambda: store.save(2, {}), store.restore, store.steps, store.resume, store.info):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(ClosedError):
        store._executor.submit(print)
    assert lcstore.open(backend).steps() == [0, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_is_told_to_open_the_store_itself(run):
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, run.step())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork where threads run
        child = os.fork()
    if child == 0:
        refused = 0
        for use in (store.restore, lambda: store.save(1, {}), store.resume):
            try:
                use()
            except ClosedError:
                refused += 1
        store.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert store.save(1, run.step()).kind == "delta"


def test_a_handle_is_not_copied():
    store = lcstore.open("memory://not-copied")
    for make in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InvalidInputError, match="memory://not-copied"):
            make(store)


def test_the_number_of_threads_is_checked():
    for threads in (0, -1):
        with pytest.raises(InvalidInputError, match="threads"):
            lcstore.open(MemoryBackend.fresh(), threads=threads)


# Going on ---------------------------------------------------------------------------------------------------


class Picky:
    """Takes no state."""

    def load_state_dict(self, state):
        raise RuntimeError("size mismatch")


def test_weights_that_no_name_tells_are_told_of_once():
    """Whoever gives them other names gets a fortieth of what was promised, and is to know why."""
    big = {"w": [np.ones((512, 512), np.float32), np.ones((512, 300), np.float32)], "epoch": 1}
    store = lcstore.open(MemoryBackend.fresh())
    with pytest.warns(UnrecognisedWarning, match=r"1\.7 MB .*100%.*'w/#0', 'w/#1'\..*policy=") as told:
        store.save(0, big)
    (rules,) = re.findall(r"policy=(\{.*?\})", str(told[0].message))
    ruled = lcstore.open(MemoryBackend.fresh(), policy=ast.literal_eval(rules))
    ruled.save(0, big)
    assert {role for shape, _, role in ruled.paths().values() if len(shape) > 1} == {"weights"}
    store.save(1, big)
    for policy in ({"w/**": "plain"}, {"w/**": "weights"}, "lossless"):
        lcstore.open(MemoryBackend.fresh(), policy=policy).save(0, big)
    lcstore.open(MemoryBackend.fresh()).save(0, {"model": {"weight": np.ones((600, 600))}, **big})


@pytest.mark.parametrize(("model", "warns"), [("m", True), ("model", False)])
def test_weights_that_are_called_as_moments_are_told_of_beside_moments_too(model, warns):
    weight = {"layer": {"kernel": np.ones((256, 256), np.float32)}}
    store = lcstore.open(MemoryBackend.fresh())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        store.save(0, {model: weight, "opt_state": {"mu": weight, "nu": weight}})
    assert [f"'{model}/layer/kernel'" in str(one.message) for one in told] == [True] * warns


def test_moments_below_no_optimizer_are_not_to_be_ruled_weights():
    """A second moment that comes back as weights do would end a run; where it is known as one, it is safe."""
    weight, *moments = ({"kernel": np.full((256, 256), value, np.float32)} for value in (1, 2, 3))
    moments = dict(zip("mv", moments, strict=True))
    with pytest.warns(UnrecognisedWarning, match=r"'optimizer': .*'m/kernel' and its like") as told:
        lcstore.open(MemoryBackend.fresh()).save(0, {"params": weight, **moments})
    assert "policy=" not in str(told[0].message)
    with pytest.warns(UnrecognisedWarning) as told:
        lcstore.open(MemoryBackend.fresh()).save(0, {"q": weight["kernel"], **moments})
    assert "Save weights under names" in str(told[0].message)
    assert "policy={'q': 'weights'}" in str(told[0].message)
    lcstore.open(MemoryBackend.fresh()).save(0, {"params": weight, "optimizer": moments})


@pytest.mark.parametrize("key", ["opt_state/0/{}/d/kernel", "['opt_state'][0].{}['d']['kernel']"])
def test_moments_of_a_flattened_tree_are_not_to_be_ruled_weights(key):
    weight, mu, nu = (np.full((256, 256), value, np.float32) for value in (1, 2, 3))
    store = lcstore.open(MemoryBackend.fresh())
    with pytest.warns(UnrecognisedWarning, match="Save the tree itself, .* not keys as .*opt_state") as told:
        store.save(0, {"params/d/kernel": weight, key.format("mu"): mu, key.format("nu"): nu})
    assert "policy=" not in str(told[0].message)
    assert sorted(role for _, _, role in store.paths().values()) == ["plain", "plain", "weights"]


def test_a_rule_that_is_proposed_matches_whatever_the_names_are():
    state = {f"layers[{i}]*['x?']": np.full((512, 512), i, np.float32) for i in range(3)}
    with pytest.warns(UnrecognisedWarning) as told:
        lcstore.open(MemoryBackend.fresh()).save(0, state)
    said = re.search(r"policy=(\{.*?: 'weights'\})", str(told[0].message))
    assert said is not None
    store = lcstore.open(MemoryBackend.fresh(), policy=ast.literal_eval(said[1]))
    store.save(0, state)
    assert {role for _, _, role in store.paths().values()} == {"weights"}


def test_moments_below_an_optimizer_are_not_told_where_to_be():
    arrays = [np.full((256, 256), value, np.float32) for value in range(4)]
    adan = dict(zip(("exp_avg", "exp_avg_sq", "exp_avg_diff", "seen"), arrays, strict=True))
    for state in ({"optimizer": {"state": {0: adan}}}, dict(zip("qkvm", arrays, strict=True))):
        with pytest.warns(UnrecognisedWarning) as told:
            lcstore.open(MemoryBackend.fresh()).save(0, state)
        assert "below no optimizer" not in str(told[0].message)


def test_what_an_optimizer_keeps_is_not_to_be_ruled_weights():
    """A rule that the warning shows is safe to take over."""
    kept = {field: np.ones((512, 512), np.float32) for field in ("square_avg", "grad_avg")}
    state = {"optim": {"state": {0: kept}}}
    with pytest.warns(UnrecognisedWarning, match=r"2\.1 MB .*'optim/state/#0/grad_avg'.*'plain'") as told:
        lcstore.open(MemoryBackend.fresh()).save(0, state)
    assert "policy=" not in str(told[0].message)
    with pytest.warns(UnrecognisedWarning, match="2 tensors that an optimizer keeps be weights.*NaN"):
        lcstore.open(MemoryBackend.fresh(), policy={"optim/**": "weights"}).save(0, state)
    layers = {"theta": {f"layers.{n}.q": np.ones((128, 128), np.float32) for n in range(9)}}
    with pytest.warns(UnrecognisedWarning) as told:
        lcstore.open(MemoryBackend.fresh()).save(0, layers)
    assert "policy={'theta/layers.[0-9]*.q': 'weights'}" in str(told[0].message)


def test_a_rule_that_is_for_nothing_is_told_of():
    """It may have been meant to keep something exactly."""
    store = lcstore.open(MemoryBackend.fresh(), policy={"ema/**": "plain", "emma/**": "plain"})
    with pytest.warns(UnrecognisedWarning, match=r"policy's 'emma/\*\*'$"):
        store.save(0, {"ema": {"weight": np.ones((4, 4))}})


def test_a_resume_that_fails_moves_nothing(run):
    store = lcstore.open(MemoryBackend.fresh())
    for step in range(3):
        store.save(step, run.step())
    head, before = head_of(store), tracked(store)
    for use in (
        lambda: store.resume_into(0, {"absent": np.zeros(3)}),
        lambda: store.resume_into(0, {"model": Picky()}),
        lambda: store.resume(0, to="nothing"),
        lambda: store.resume(0, dtype="nothing"),
        lambda: store.resume(0, like={"absent": np.zeros(3)}),
    ):
        with pytest.raises((lcstore.LcstoreError, RuntimeError)):
            use()
        assert head_of(store) == head
        assert tracked(store) == before
    assert store.save(3, run.step()).base == head


def test_arrays_are_filled_only_with_what_fits():
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, {"one": np.ones(1), "many": np.arange(5.0), "tree": {"a": 1}})
    many, wrong = np.zeros(5), np.zeros(5)
    for target in (wrong, np.zeros(1, np.int8)):
        with pytest.raises(InvalidInputError, match="one"):
            store.restore_into(0, {"many": many, "one": target})
    with pytest.raises(InvalidInputError, match="tree"):
        store.restore_into(0, {"many": many, "tree": wrong})
    assert not many.any()
    store.restore_into(0, {"many": many})
    assert many.tolist() == [0, 1, 2, 3, 4]


def test_nests_of_arrays_are_filled():
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, {"model": {"a": np.ones(2), "b": [np.arange(3.0)], "n": 7}, "epoch": 3})
    a, b = np.zeros(2), np.zeros(3)
    rest = store.restore_into(0, {"model": {"a": a, "b": [b]}})
    assert (a.tolist(), b.tolist()) == ([1, 1], [0, 1, 2])
    assert rest == {"model": {"n": 7}, "epoch": 3}
    a[:] = 0
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    repeated = np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,))
    for wrong, words in (
        ({"a": a, "b": [np.zeros(4)]}, "does not go into"),
        ({"a": a, "b": [frozen]}, "read-only"),
        ({"a": a, "b": [repeated]}, "share memory"),
        ({"a": a, "c": np.zeros(2)}, "model/c"),
        ({"a": a, "b": [b, b]}, "a list of 2 is given for 'model/b'; 1 values"),
        ({"a": a, "n": np.zeros(())}, "not an array"),
        ({"a": a, "n": "text"}, "load_state_dict"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            store.restore_into(0, {"model": wrong})
        assert not a.any()
    with pytest.raises(InvalidInputError, match="give a dict"):
        store.restore_into(0, Picky())


@pytest.mark.parametrize("dtype", ["i1", "<i4", ">i4", "u1"])
def test_integers_that_a_given_array_cannot_hold_are_refused_and_others_fill_it(dtype):
    store = lcstore.open(MemoryBackend.fresh())
    saved = {
        "far": np.array([2**31 + 5, 300, 0]),
        "near": np.array([127, 1, 0]),
        "few": np.array([200], "u2"),
    }
    store.save(0, {name: array.astype("u8") if dtype == "u1" else array for name, array in saved.items()})
    for fill in (store.restore_into, store.resume_into):
        far, near = np.zeros(3, dtype), np.zeros(3, dtype)
        with pytest.raises(InvalidInputError, match=r"does not go into .* do not fit"):
            fill(0, {"near": near, "far": far})
        assert not near.any()
        fill(0, {"near": near})
        assert near.tolist() == [127, 1, 0]
    few = np.zeros(1, dtype)
    if dtype == "i1":
        with pytest.raises(InvalidInputError, match=r"does not go into .* do not fit"):
            store.restore_into(0, {"few": few})
    else:
        store.restore_into(0, {"few": few})
        assert few.tolist() == [200]


def test_integers_of_four_bits_take_no_more_than_they_hold():
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, {"far": np.array([300, 1]), "near": np.array([7, 1]), "part": np.array([1.5, 1])})
    few = np.zeros(2, ml_dtypes.int4)
    for name in ("far", "part"):
        with pytest.raises(InvalidInputError, match="does not go into"):
            store.restore_into(0, {name: few})
    store.restore_into(0, {"near": few})
    assert few.tolist() == [7, 1]
    half = np.zeros(2, ml_dtypes.bfloat16)
    store.restore_into(0, {"part": half})
    assert half.tolist() == [1.5, 1]


def test_rows_of_a_tensor_without_elements():
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, weights(np.zeros((3, 0), np.float32)))
    assert store.read(0, "model/a.weight", slice(0, 2)).shape == (2, 0)
    assert store.read(0, "model/a.weight", 1).shape == (0,)


# Saves that do not end well ---------------------------------------------------------------------------------


def agrees(store):
    """What the writer holds is what another process reads."""
    values = lcstore.open(store.backend, "r").restore(head_of(store))["model"]
    for path, held in tracked(store).items():
        assert values[path.removeprefix("model/")].tobytes() == held


def chain(states, **options):
    store = lcstore.open(MemoryBackend.fresh(), **options)
    for step, state in enumerate(states):
        store.save(step, {"model": state["model"]})
    return store


@pytest.mark.parametrize("way_back", [True, False])
def test_a_chunk_that_cannot_be_made_a_frame_is_taken_back_or_not_built_upon(run, monkeypatch, way_back):
    """Short of memory after the track has moved; and for the way back too: no reader has such a track."""
    store = chain([run.step(), run.step()])
    before = tracked(store)

    def fail(*args, **options):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(advance, "frame_of_levels", fail)
        if not way_back:
            patch.setattr(advance.Advance, "undo", fail)
        with pytest.raises(MemoryError):
            store.save(2, {"model": run.step()["model"]})
    assert not way_back or tracked(store) == before
    kinds = [store.save(step, {"model": run.step()["model"]}).kind for step in (3, 4)]
    assert kinds == ["delta" if way_back else "anchor", "delta"]
    agrees(store)


def test_an_interrupt_between_the_commit_and_the_handle(run, monkeypatch):
    """The record is there, the handle does not know: it stands on nothing now, and says everything anew."""
    store = chain([run.step(), run.step()])

    def interrupted(pending):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store._writer, "accept", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.save(2, {"model": run.step()["model"]})
    assert store.save(3, {"model": run.step()["model"]}).kind == "anchor"
    assert store.save(4, {"model": run.step()["model"]}).kind == "delta"
    agrees(store)
    assert store.verify(level="checksum").ok
    for step in store.steps():
        store.restore(step)


def test_condemned_that_cannot_be_listed_is_no_promise(run):
    """The node is there, but not acknowledged: the caller hears that the outcome is open."""
    faulty = FaultBackend(
        MemoryBackend.fresh(), {lambda o: o.name == "list" and o.key == keys.CONDEMNED: Fault("eio")}
    )
    store = lcstore.open(faulty)
    with pytest.raises(UnknownOutcomeError, match="save again") as caught:
        store.save(7, run.step())
    assert isinstance(caught.value, StorageError)
    assert caught.value.step == 7
    assert store.save(8, run.step()).kind == "delta"
    assert store.steps() == [7, 8]


def test_very_large_float64_weights():
    """Their update scale is past what a record's float32 holds."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((40, 40)) * 1e200
    store = lcstore.open(MemoryBackend.fresh())
    for step, move in enumerate([0, 1e-3, 2e-3, 2e-3, 2e-3, 4e-3]):
        state = base * (1 + move)
        store.save(step, weights(state))
        np.testing.assert_allclose(store.restore(step)["model"]["a.weight"], state, rtol=0, atol=1e198)
    agrees(store)


# Memory -----------------------------------------------------------------------------------------------------


def test_a_save_lets_go_of_the_state(run):
    """Without waiting for the garbage collector: a host copy of a model on a device is large."""
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, run.step())
    gc.collect()
    gc.disable()
    try:
        state = run.step()
        state["model"]["fc1.weight"] = state["model"]["fc1.weight"].copy()
        gone = weakref.ref(state["model"]["fc1.weight"])
        store.save(1, state)
        del state
        assert gone() is None
    finally:
        gc.enable()


def test_a_place_inside_a_store_is_refused(tmp_path):
    state = {"model": {"a.weight": np.zeros((8, 8), np.float32)}}
    with lcstore.open(tmp_path / "run") as store:
        store.save(0, state)
    for inside in (tmp_path / "run" / "sub", tmp_path / "run" / "data" / "inner"):
        with pytest.raises(InvalidInputError, match="lies inside the store"):
            lcstore.open(inside)
        with pytest.raises(InvalidInputError, match="lies inside the store"):
            lcstore.copy(tmp_path / "run", inside)
        assert not inside.exists()
    lcstore.copy(tmp_path / "run", tmp_path / "beside")
    with pytest.raises(InvalidInputError, match=r"the store .* lies in "):
        lcstore.open(tmp_path)
    with pytest.raises(InvalidInputError, match=r"state '3' of the store .*run: open that"):
        lcstore.open(tmp_path / "run@3")
    with lcstore.open(tmp_path / "me@home") as store:  # no store is called me
        store.save(0, state)


def test_a_first_save_that_is_tried_again_leaves_a_store_that_was_made_meanwhile():
    backend = MemoryBackend.fresh()
    fails = {lambda op: op.name == "put" and op.key == keys.STORE_KEY: Fault("eio", 1)}
    with lcstore.open(FaultBackend(backend, fails), grace=0) as store:
        with pytest.raises(StorageError):
            store.save(0, {"w": np.ones(3)})
        with lcstore.open(backend, grace="24h") as other:
            other.save(0, {"w": np.zeros(3)})
            made = backend.get(keys.STORE_KEY)
        store.save(1, {"w": np.ones(3)})
        assert backend.get(keys.STORE_KEY) == made
        assert store.latest_step() == 1


def test_a_grace_for_a_store_that_is_there_is_told_of(caplog):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace="1h") as store:
        store.save(0, {"x": np.zeros(3)})
    for grace, told in (("1h", 0), ("2h", 1)):
        caplog.clear()
        with lcstore.open(backend, grace=grace):
            assert len([one for one in caplog.records if "keeps the grace of 3600 s" in one.message]) == told


def test_a_store_that_was_made_since_it_was_opened_keeps_its_own_grace():
    backend = MemoryBackend.fresh()
    late = lcstore.open(backend, grace=0, durability="none")
    with lcstore.open(backend, grace="1h") as first:
        first.save(0, {"x": np.zeros(3)})
    record = backend.get(keys.STORE_KEY)
    with late:
        late.save(1, {"x": np.zeros(3)})
    assert backend.get(keys.STORE_KEY) == backend.get(keys.copy_key(keys.STORE_KEY)) == record
    assert late._writer.grace == 3600
    with lcstore.open(backend, "r") as store:
        assert store.verify("checksum").ok


class Beside:
    """A backend in which something happens once, before or after the record of the store is put."""

    def __init__(self, inner, happens, *, first):
        self._inner, self._happens, self._first = inner, [happens], first

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def put(self, key, data):
        happens = self._happens.pop() if key == keys.STORE_KEY and self._happens else lambda: None
        for act in (happens, lambda: self._inner.put(key, data))[:: 1 if self._first else -1]:
            act()


def begun_together(*, first, durability=None, **other):
    """Return a place that two handles make a store: one saves while the other is about to, or just did."""
    backend = MemoryBackend.fresh()
    there = lcstore.open(backend, grace="1h", durability="default")
    happens = lambda: there.save(0, {"x": np.zeros(3)})  # noqa: E731
    here = lcstore.open(Beside(backend, happens, first=first), durability=durability, **other)
    here.save(1, {"x": np.ones(3)})
    return backend, here, there


@pytest.mark.parametrize("other", [{"grace": "2h"}, {}, {"grace": "2h", "durability": "none"}], ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_two_that_begin_a_store_in_one_moment_go_on_with_its_grace(first, other):
    """Each kept its own, and the second copy could be of the other one: it was called damaged."""
    backend, *handles = begun_together(first=first, **other)
    for step, store in enumerate(handles, 2):
        with store:
            store.save(step, {"x": np.ones(3)})
    with lcstore.open(backend, "r") as store:
        assert {one._writer.grace for one in handles} == {store._writer.grace}
        assert store.verify().is_sound
    assert backend.get(keys.STORE_KEY) == backend.get(keys.copy_key(keys.STORE_KEY))


@pytest.mark.parametrize("first", [True, False])
def test_two_that_begin_a_store_in_one_moment_store_one_copy(first):
    backend, *_ = begun_together(first=first, grace="2h", durability="default")
    assert backend.get(keys.STORE_KEY) == backend.get(keys.copy_key(keys.STORE_KEY))


@pytest.mark.parametrize("found", [b"{", None], ids=["damaged", "gone"])
def test_a_save_goes_on_where_nothing_tells_who_made_the_store(found):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace="1h", durability="none") as store:
        store.save(0, {"x": np.zeros(3)})
        backend.delete(keys.STORE_KEY)
        if found is not None:
            backend.put(keys.STORE_KEY, found)
        assert store.save(1, {"x": np.ones(3)}).kind == "delta"
        assert store._writer.grace == 3600


def test_a_tag_and_a_step_in_the_wrong_order():
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(3, {"x": np.zeros(3)})
        with pytest.raises(InvalidInputError, match=r"tag\(name, step\)"):
            store.tag(3, "gold")


def test_a_stray_file_among_the_data_is_left_alone():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as store:
        for step in range(3):
            store.save(step, {"x": np.full(3, step)})
        backend.put("data/notes.txt", b"mine")
        report = store.maintain("latest:1")
        assert report.ok, report.problems
        assert store.maintain("latest:1").collected.deleted_objects
        assert backend.get("data/notes.txt") == b"mine"
        assert store.steps() == [2]


def test_rules_that_match_nothing_are_told_of_where_the_policy_is_set_later():
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, {"model": {"fc.weight": np.ones((64, 64), np.float32)}})
        store.policy = {"model/fcc.*": "plain"}
        with pytest.warns(UnrecognisedWarning, match=r"policy's 'model/fcc\.\*'"):
            store.save(1, {"model": {"fc.weight": np.ones((64, 64), np.float32)}})
