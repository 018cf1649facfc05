"""`lcstore demo`, small: a process that is really killed, and what its store gives back."""

from __future__ import annotations

import json
import sys

import pytest
from kit.jsonpage import fields_said
from typer.testing import CliRunner

import lcstore
from lcstore.cli.app import app
from lcstore.cli.commands.look import demo
from lcstore.demo import network

np = pytest.importorskip("numpy")
pytest.importorskip("sklearn")

SMALL = ["--steps", "20", "--every", "5", "--hidden", "16"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict:
    url = str(tmp_path_factory.mktemp("demo") / "run")
    result = CliRunner().invoke(app, ["demo", url, "--json", *SMALL])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_it_dies_and_comes_back(told):
    if sys.platform != "win32":
        assert told["exit_code"] == -9
    assert (told["failed_step"], told["restored_step"], told["lost_steps"]) == (10, 5, 5)
    assert told["saves"] == told["states"] == 5
    assert told["verified"]
    assert told["orphans"] > 0
    assert told["ratio"] == pytest.approx(told["bytes_raw"] / told["bytes_stored"])


def test_the_document_has_the_fields_that_docs_say(told):
    assert told.keys() == fields_said("lcstore demo URL")


def test_it_says_what_the_crash_cost_and_what_whole_states_would_take(told):
    shown = list(demo._shown(told | {"ratio": 4.2, "lost_steps": 5, "every": 5}))
    lines = [line for line, _ in shown[0].lines(80)]
    assert any("torch.save" in line for line in lines)
    (rework,) = (line for line in shown[1:] if "The crash cost" in line)
    assert rework.startswith("The crash cost 5 steps of training")
    assert "one every 21 steps and not every 5" in rework


def test_the_store_is_as_told(told):
    with lcstore.open(told["url"], "r") as store:
        assert store.steps() == [0, 5, 10, 15, 20]
        assert [state.run for state in store.states()] == [1, 1, 2, 2, 2]
        assert store.info(5).metrics == {"loss": told["loss_when_saved"]}
        back = store.restore(5)
        images, labels = network.digits()
        assert network.loss_of(back["model"], images[:768], labels[:768]) == pytest.approx(
            told["loss_after_restore"], rel=1e-5
        )


def test_it_never_mixes_into_what_is_there(told, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    for place in (told["url"], str(tmp_path)):
        result = CliRunner().invoke(app, ["demo", place, *SMALL])
        assert result.exit_code == 1
        assert "is not empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_place_that_dies_with_the_process_is_refused():
    result = CliRunner().invoke(app, ["demo", "memory://demo", *SMALL])
    assert result.exit_code == 1
    assert "another URL" in result.stderr


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["demo", *SMALL])
    assert result.exit_code == 1
    assert "pip install 'lcstore[demo]'" in result.stderr


def test_an_error_in_the_training_process_is_told(tmp_path):
    from lcstore.demo.training import Training

    (tmp_path / "file").write_text("")
    training = Training(str(tmp_path / "file" / "run"), 4, 2, 8, 0)
    with pytest.raises(lcstore.StorageError):
        demo.train(training, lambda *_: None)


def test_the_gradient_is_the_slope_of_the_loss():
    rng = np.random.default_rng(0)
    parameters = {k: v.astype(np.float64) for k, v in network.new_parameters(8, rng).items()}
    images, labels = rng.random((5, 64)), rng.integers(0, 10, 5)
    slopes = network.gradients(parameters, images, labels)
    for name, value in parameters.items():
        moved = parameters | {name: value + 1e-6 * slopes[name]}
        rise = network.loss_of(moved, images, labels) - network.loss_of(parameters, images, labels)
        assert rise == pytest.approx(1e-6 * float((slopes[name] ** 2).sum()), rel=1e-3)


def test_a_training_process_that_fails_is_not_taken_for_a_killed_one(tmp_path):
    from lcstore.demo.training import Training

    training = Training(str(tmp_path / "run"), 4, 2, -1, 0)
    with pytest.raises(lcstore.LcstoreError, match="failed, with exit code 1"):
        demo.train(training, lambda *_: None)
