"""A `fit` of Keras that is interrupted goes on, and ends where one that was not ends."""

from __future__ import annotations

import pickle
import signal
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
from kit import programs
from kit.around import Gate
from kit.pages import blocks_of

import lcstore
from lcstore import CheckpointManager, InvalidInputError, StorageError
from lcstore.storage.memory import MemoryBackend

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what keras itself imports
    pytest.importorskip("keras_training", reason="keras and a backend", exc_type=ImportError)
    import keras
    from keras_training import EPOCHS, Interrupting, build, data, train

    from lcstore.integrations.keras import LcstoreCallback, ModelState

#: Of what keras does with tensors of torch, once for each.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")

TRAINING = Path(__file__).with_name("keras_training.py")
PAGE = ("docs/keras.md", "python")
#: What the weights of a run that was interrupted once may be away from those of one that was not.
BOUND = 0.1
#: The same as a part of how far training moved them.
MOVED = 0.3


class Interrupted(Exception):
    pass


def interrupt() -> None:
    raise Interrupted


def interrupted(callback, epoch: int = 4, batch: int = 3) -> None:
    with pytest.raises(Interrupted):
        train(build(), callback, Interrupting(epoch, batch, interrupt))
    callback.close()


def run(url: Path, *how: str) -> subprocess.CompletedProcess[str]:
    # On one thread, so that sums are in one order.
    env = {"OMP_NUM_THREADS": "1"}
    return programs.run(TRAINING, url, *how, using=("keras_training",), env=env, quiet=True)


def test_a_run_that_is_killed_ends_where_one_that_is_not_ends(tmp_path):
    killed = run(tmp_path / "run", "kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.latest_step() in (16, 24, 32)  # the save of the last epoch may have been under way
    ended = run(tmp_path / "run")
    assert ended.stdout == f"{[True] * 22}\n", ended.stderr


@pytest.fixture(scope="module")
def uninterrupted():
    model = build()
    return train(model), model.get_weights()


def test_at_the_default_quality_it_ends_near_by(uninterrupted):
    losses, wanted = uninterrupted
    backend = MemoryBackend.fresh()
    interrupted(LcstoreCallback(backend))
    with lcstore.open(backend, "r") as store:
        assert store.steps() == [8, 16, 24, 32]
        assert [store.info(step).metrics["val_loss"] for step in store.steps()] == pytest.approx(losses[:4])
        assert store.info(32).kind == "delta"
        assert store.info(32).metadata == {"epoch": 4}
        roles = {name: role for name, (_, _, role) in store.paths().items() if role != "plain"}
    assert list(roles.values()) == ["weights"] * 2 + ["first_moment"] * 5 + ["second_moment"] * 5
    model = build()
    again = train(model, LcstoreCallback(backend))
    assert len(again) == EPOCHS - 4
    assert again[-1] < losses[3]
    assert again[-1] == pytest.approx(losses[-1], rel=BOUND)
    for one, other, first in zip(model.get_weights(), wanted, build().get_weights(), strict=True):
        away, moved = np.linalg.norm(one - other), np.linalg.norm(other - first)
        assert away < MOVED * moved
        if first.any():  # what begins at zero is nothing but movement
            assert away < BOUND * np.linalg.norm(other)


def test_the_best_metric_is_that_of_all_runs(uninterrupted):
    losses, _ = uninterrupted
    backend = MemoryBackend.fresh()
    checkpoint = LcstoreCallback(backend, policy="lossless", keep="latest:2 | best:1:val_loss")
    assert checkpoint.best is None
    interrupted(checkpoint)
    before = build()
    assert checkpoint.best == pytest.approx(min(losses[:4]))
    assert checkpoint.load_best(before) == 32
    x, y = data()
    assert before.evaluate(x[-60:], y[-60:], verbose=0) == pytest.approx(min(losses[:4]), rel=1e-4)
    assert int(before.optimizer.iterations) == 0  # the weights alone
    later = LcstoreCallback(backend, policy="lossless")
    train(build(), later)
    assert later.best == pytest.approx(min(losses))
    with pytest.raises(InvalidInputError, match="mode="):
        LcstoreCallback(backend, monitor="val_accuracy")


def test_a_run_that_has_ended_trains_no_more_and_the_next_goes_on_as_told():
    backend = MemoryBackend.fresh()
    train(build(), LcstoreCallback(backend), epochs=2)
    model = build()
    assert train(model, LcstoreCallback(backend), epochs=2) == []
    assert int(model.optimizer.iterations) == 16
    assert len(train(model, epochs=1)) == 1  # a `fit` without the callback begins at its beginning
    assert len(train(model, LcstoreCallback(backend), epochs=3)) == 1


def test_the_page_goes_back_in_a_store_of_several_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = [block.code.replace(', keep="latest:5 | best:val_loss"', "") for block in blocks_of(*PAGE)]
    (program,) = (code for code in blocks if "epochs=5" in code)
    (back,) = (code for code in blocks if "again = LcstoreCallback" in code)
    for epochs in (5, 6, 7):
        keras.utils.clear_session()
        space = {}
        exec(program.replace("epochs=5", f"epochs={epochs}"), space)
    with lcstore.open("runs/keras", "r") as store:
        assert [(state.step, state.run) for state in store.states()][4:] == [(65, 1), (78, 2), (91, 3)]
        wanted = store.restore(39)
    for _ in range(2):  # back from where the last one led, too
        exec(back, space)
        assert space["model"].history.epoch == [3, 4, 5, 6, 7]
        with lcstore.open("runs/keras", "r") as store:
            begun = [state.run for state in store.states() if state.step == 39][-1]
            assert store.info().step == 104
            saved = store.restore(39, run=begun)
            assert store.info(39, run=begun).metrics == store.info(39, run=1).metrics
        for part in ("model", "random"):
            assert pickle.dumps(saved[part]) == pickle.dumps(wanted[part])
    keras.utils.clear_session()
    exec(program.replace("epochs=5", "epochs=9"), space)
    assert space["model"].history.epoch == [8]


def test_within_an_epoch_it_saves_when_it_is_due_and_begins_the_epoch_again():
    backend = MemoryBackend.fresh()
    interrupted(LcstoreCallback(backend, every=3), 1, 5)
    with lcstore.open(backend, "r") as store:
        assert store.steps() == [1, 3, 6, 9, 12]
        assert [store.info(step).metadata["epoch"] for step in store.steps()] == [0, 0, 0, 1, 1]
        assert {"loss"} == store.info(12).metrics.keys()
    model = build()
    assert len(train(model, LcstoreCallback(backend, every=100), epochs=2)) == 1
    assert int(model.optimizer.iterations) == 12 + 8
    with lcstore.open(backend, "r") as store:
        assert store.latest_step() == 20  # the end of the last epoch, though it was not due
        assert store.info().metadata == {"epoch": 2}


@pytest.mark.parametrize("batch", [0, 3])
def test_notice_has_the_batch_committed_and_training_ended(batch):
    told = []
    backend = MemoryBackend.fresh()
    notice = Interrupting(1, batch, lambda: told.append(True))
    losses = train(build(), notice, LcstoreCallback(backend, preempted=lambda: bool(told)))
    assert len(losses) == 2  # Keras ends the epoch before its time
    with lcstore.open(backend, "r") as store:
        assert store.latest_step() == 8 + batch
        assert store.info().exact == (batch > 0)
    assert len(train(build(), LcstoreCallback(backend))) == EPOCHS - 1


class Stopping(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == 4


def test_an_epoch_that_was_broken_off_is_begun_again():
    backend = MemoryBackend.fresh()
    train(build(), Stopping(), LcstoreCallback(backend))
    with lcstore.open(backend, "r") as store:
        assert store.latest_step() == 5
        assert store.info().metadata == {"epoch": 0}


def test_batches_of_unknown_number_are_counted():
    x, y = data()
    backend = MemoryBackend.fresh()
    batches = ((x[:32], y[:32]) for _ in range(5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # keras says that the data have ended
        build().fit(batches, epochs=1, callbacks=[LcstoreCallback(backend)], verbose=0)
    with lcstore.open(backend, "r") as store:
        # JAX begins one more, and finds that there are no data for it.
        assert store.latest_step() == (6 if keras.backend.backend() == "jax" else 5)


class Place:
    """Where the data are: something that a program saves besides."""

    def __init__(self) -> None:
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def test_parts_are_saved_and_loaded_besides():
    backend = MemoryBackend.fresh()
    place = Place()
    place.at = 5
    train(build(), LcstoreCallback(backend, parts={"data": place}), epochs=1)
    other = Place()
    train(build(), LcstoreCallback(backend, parts={"data": other}), epochs=1)
    assert other.at == 5
    with pytest.raises(InvalidInputError, match="cannot be called"):
        LcstoreCallback(backend, parts={"random": place})


@pytest.mark.parametrize("epoch", [1, EPOCHS - 1])
def test_a_save_that_fails_is_heard_of(epoch):
    backend = Gate(MemoryBackend.fresh())

    def fail() -> None:
        backend.fails = True

    checkpoint = LcstoreCallback(backend)
    with pytest.raises(StorageError, match="no space"):
        train(build(), checkpoint, Interrupting(epoch, 7, fail))
    backend.fails = False
    checkpoint.close()
    assert len(train(build(), checkpoint)) in (EPOCHS - epoch, EPOCHS - epoch + 1)


@pytest.mark.parametrize("frozen_first", [True, False])
def test_the_best_weights_go_on_where_layers_are_frozen_or_unfrozen(frozen_first):
    def made(seed):
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        base, norm = keras.layers.Dense(5, name="base"), keras.layers.BatchNormalization(name="norm")
        return keras.Sequential(
            [keras.Input((4,)), base, norm, keras.layers.Dense(3, name="head")], name="net"
        )

    url = f"memory://frozen-{frozen_first}"
    first, second = made(0), made(1)
    for model, frozen in ((first, frozen_first), (second, not frozen_first)):
        model.get_layer("base").trainable = not frozen
        model.compile("sgd", "mse")
    checkpoint = LcstoreCallback(url, policy="lossless", monitor="loss")
    first.fit(np.ones((8, 4)), np.ones((8, 3)), epochs=1, verbose=0, callbacks=[checkpoint])
    checkpoint.load_best(second)
    assert [*map(bytes, second.get_weights())] == [*map(bytes, first.get_weights())]
    with pytest.raises(InvalidInputError, match="layers were frozen or unfrozen"):
        second.fit(np.ones((8, 4)), np.ones((8, 3)), epochs=2, verbose=0, callbacks=[checkpoint])


def test_a_second_model_of_the_same_names_draws_on_though_keras_numbers_what_it_draws_from():
    def made():
        layers = [keras.layers.Dense(5, name="one"), keras.layers.Dropout(0.2, name="drop")]
        layers += [keras.layers.GaussianNoise(0.1, name="noise"), keras.layers.Dense(1, name="two")]
        model = keras.Sequential([keras.Input((4,), name="in"), *layers], name="net")
        model.compile(keras.optimizers.Adam(name="adam"), "mse")
        return model

    first = made()
    checkpoint = LcstoreCallback("memory://second-model", policy="lossless", monitor="loss")
    first.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=1, verbose=0, callbacks=[checkpoint])
    second = made()
    checkpoint.load_best(second)
    assert [*map(bytes, second.get_weights())] == [*map(bytes, first.get_weights())]
    second.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=2, verbose=0, callbacks=[checkpoint])


def test_a_weight_that_is_called_as_a_layer_beside_it():
    class Odd(keras.Model):
        def __init__(self):
            super().__init__(name="odd")
            self.own = self.add_weight(name="dense", shape=(3,))
            self.layer = keras.layers.Dense(3, name="dense")

        def call(self, batch):
            return self.layer(batch) + self.own

    model = Odd()
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 3)), epochs=1, verbose=0)
    state = ModelState(model)
    with lcstore.open("memory://odd-names", policy="lossless") as store:
        store.save(0, {"model": state})
        before = [*map(bytes, model.get_weights())]
        model.fit(np.ones((8, 4)), np.ones((8, 3)), epochs=1, verbose=0)
        assert [*map(bytes, model.get_weights())] != before
        store.restore_into(0, {"model": state})
    assert [*map(bytes, model.get_weights())] == before


def test_weights_for_a_model_that_is_not_built_say_so():
    url = "memory://not-built"
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    checkpoint = LcstoreCallback(url, monitor="loss")
    model.fit(np.ones((8, 4)), np.ones((8, 3)), epochs=1, verbose=0, callbacks=[checkpoint])
    with pytest.raises(InvalidInputError, match="no variables yet: build it"):
        checkpoint.load_best(keras.Sequential([keras.layers.Dense(3)]))


@pytest.mark.parametrize(
    ("options", "said"),
    [({"monitor": "accuracy", "mode": "auto"}, "'min' or 'max'"), ({"save_best_only": True}, "no argument")],
)
def test_what_a_callback_does_not_take_is_told_before_training(options, said):
    with pytest.raises((InvalidInputError, TypeError), match=said):
        LcstoreCallback("memory://wrong-options", **options)


def test_another_model_is_refused_and_left_alone():
    backend = MemoryBackend.fresh()
    train(build(), LcstoreCallback(backend), epochs=1)
    smaller = keras.Sequential([keras.Input((64,)), keras.layers.Dense(8)])
    smaller.compile("adam", loss="mse")
    for other in (build("sgd"), smaller):
        before = other.get_weights()
        checkpoint = LcstoreCallback(backend)
        with pytest.raises(InvalidInputError, match=r"nothing is saved for .*clear_session"):
            train(other, checkpoint)
        assert all(np.array_equal(one, two) for one, two in zip(before, other.get_weights(), strict=True))


#: What makes optimizers, and which of their moments may be lossy.
OPTIMIZERS = {
    "adam": (lambda: keras.optimizers.Adam(), {"mu", "nu"}),
    "adamw": (lambda: keras.optimizers.AdamW(use_ema=True, gradient_accumulation_steps=2), {"mu", "nu"}),
    "amsgrad": (lambda: keras.optimizers.Adam(amsgrad=True), {"momentum", "velocity", "hat"}),
    "lion": (lambda: keras.optimizers.Lion(), {"mu"}),
    "momentum": (lambda: keras.optimizers.SGD(momentum=0.9), {"trace"}),
    "rmsprop": (lambda: keras.optimizers.RMSprop(momentum=0.9), {"nu", "momentum"}),
    "averaged": (lambda: keras.optimizers.RMSprop(momentum=0.9, use_ema=True), {"nu"}),
    "centered": (lambda: keras.optimizers.RMSprop(centered=True), set()),
    "nadam": (lambda: keras.optimizers.Nadam(), {"momentum", "velocity"}),
    "lamb": (lambda: keras.optimizers.Lamb(use_ema=True), set()),
    "scaled": (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), {"mu", "nu"}),
}


@pytest.mark.filterwarnings("ignore::lcstore.UnrecognisedWarning")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_moments_are_lossy_where_their_optimizer_is_known(name):
    make, lossy = OPTIMIZERS[name]
    model = build(make())
    model.optimizer.build(model.trainable_variables)
    rng = np.random.default_rng(0)
    for variable in model.optimizer.variables:
        if len(variable.shape) == 2:
            variable.assign(1e-3 * rng.random(variable.shape))
    wanted = [variable.numpy() for variable in model.optimizer.variables]
    with CheckpointManager(MemoryBackend.fresh()) as manager:
        manager.save(0, {"model": ModelState(model)})
        manager.wait_until_finished()
        roles = {path: role for path, (_, _, role) in manager.store.paths().items()}
        moments = [path for path, role in roles.items() if role in ("first_moment", "second_moment")]
        parts = [path.split("/") for path in moments]
        assert all(role == "plain" for path, role in roles.items() if path.endswith("_average"))
        # What has no name of its own here is under Keras's.
        assert {part[3] if part[2] != "other" else part[-1].rpartition("_")[2] for part in parts} == lossy
        for variable in model.optimizer.variables:
            variable.assign(np.zeros(variable.shape))
        manager.resume_into({"model": ModelState(model)})
    for variable, value in zip(model.optimizer.variables, wanted, strict=True):
        back, size = variable.numpy(), float(np.sum(np.square(value)))
        # Coarse, and yet as long along itself.
        assert np.linalg.norm(back - value) <= 1.5 * np.linalg.norm(value)
        assert 0.5 * size <= float(np.sum(back * value)) <= 1.5 * size
        if not lossy:
            assert np.array_equal(variable.numpy(), value)


def by_hand(store: object, steps: int) -> tuple[int | None, list[float], list[np.ndarray]]:
    """Train a fresh model batch by batch, and save after each; return where it began, losses and weights."""
    model, (x, y) = build(), data()
    losses = []
    with CheckpointManager(store, every=1, policy="lossless") as manager:
        state = {"model": ModelState(model), "random": lcstore.RandomState()}
        resumed = manager.resume_into(state)
        for step in range(resumed.step + 1 if resumed else 0, steps):
            losses.append(float(model.train_on_batch(x[step * 32 :][:32], y[step * 32 :][:32])))
            manager.save(step, state)
    return resumed.step if resumed else None, losses, model.get_weights()


def test_a_loop_by_hand_resumes_with_a_model_that_has_not_trained_yet():
    _, wanted, ends = by_hand(MemoryBackend.fresh(), 6)
    backend = MemoryBackend.fresh()
    by_hand(backend, 3)
    began, losses, weights = by_hand(backend, 6)
    assert began == 2
    assert losses == wanted[3:]
    assert all(map(np.array_equal, weights, ends))


def test_variables_that_keras_calls_alike_are_kept_apart():
    def made():
        return build(keras.optimizers.Adafactor(1e-3))

    backend, whole, resumed = MemoryBackend.fresh(), made(), made()
    losses = train(whole, epochs=3)
    train(made(), LcstoreCallback(backend, policy="lossless"), epochs=2)
    assert train(resumed, LcstoreCallback(backend, policy="lossless"), epochs=3) == losses[2:]
    variables = [[np.array(one) for one in model.optimizer.variables] for model in (resumed, whole)]
    assert all(map(np.array_equal, *variables))
    assert len({one.path for one in whole.optimizer.variables}) < len(variables[0])


@pytest.mark.parametrize("method", ["state_dict", "load_state_dict"])
def test_a_model_without_variables_or_optimizer_is_refused_with_what_to_do(method):
    lacking = keras.Sequential([keras.layers.Dense(3)])
    lacking.compile("adam", loss="mse")
    uncompiled = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    for model in (lacking, uncompiled):
        given = [{"optimizer": {}}] * (method == "load_state_dict")
        with pytest.raises(InvalidInputError, match=r"build it .* and compile it before"):
            getattr(ModelState(model), method)(*given)
