"""A loop of Accelerate is stopped or killed, and goes on: each sample comes once, to the last bit."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from kit import programs

import lcstore
from lcstore import InvalidInputError

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

from accelerate_run import EPOCHS, Numbers, train  # noqa: E402

from lcstore.integrations.accelerate import Batches, parts_of  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::lcstore.UnrecognisedWarning"),
    pytest.mark.usefixtures("one_thread"),
]
#: 23 samples, two to the batch, two batches to the step.
EPOCH = 6
SEEDABLE = {"dataloader_config": accelerate.DataLoaderConfiguration(use_seedable_sampler=True)}


def same_end(first, second, whole):
    """Check that two runs, one after the other, are the one that was not interrupted."""
    done = len(whole["told"]) - len(second["told"])
    assert first["told"][:done] == whole["told"][:done]
    assert second["told"] == whole["told"][done:]
    assert second["digest"] == whole["digest"]


@pytest.mark.parametrize("how", [{}, {"own_generator": True}, SEEDABLE], ids=["global", "own", "seedable"])
@pytest.mark.parametrize("stop_at", [1, 3, EPOCH, EPOCH + 2, 2 * EPOCH])
def test_a_run_goes_on_in_the_midst_of_an_epoch_and_between_two(tmp_path, how, stop_at):
    whole = train(None, **how)
    first = train(tmp_path / "run", stop_at=stop_at, **how)
    second = train(tmp_path / "run", **how)
    assert second["begin"] == stop_at
    assert len(second["told"]) < len(whole["told"])
    same_end(first, second, whole)


def test_each_sample_comes_once_per_epoch(tmp_path):
    told = train(tmp_path / "run", stop_at=8)["told"] + train(tmp_path / "run")["told"]
    for epoch in range(EPOCHS):
        seen = sorted(place for of, places, _ in told if of == epoch for place in places)
        assert seen == list(range(23))


def test_a_run_may_be_stopped_again_and_again(tmp_path):
    whole = train(None)
    told = []
    for stop_at in (2, 4, 5, 7, 12, -1):
        last = train(tmp_path / "run", stop_at=stop_at)
        told += last["told"]
    assert told == whole["told"]
    assert last["digest"] == whole["digest"]


def test_a_run_that_is_killed_ends_as_one_that_was_not(tmp_path):
    def start(stop_at: int) -> int:
        script, using = Path(__file__).with_name("accelerate_run.py"), ("accelerate_run", *programs.TORCH)
        env = {"OMP_NUM_THREADS": "1"}
        return programs.run(script, tmp_path / "run", stop_at, using=using, env=env).returncode

    assert start(9) == -signal.SIGKILL
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.latest_step() in (8, 9)
    assert start(-1) == 0
    second = json.loads((tmp_path / "run.json").read_text())
    assert second["begin"] in (8, 9)
    whole = train(None)
    same_end(whole, second, whole)


def test_the_default_policy_stays_near(tmp_path):
    whole = train(None)
    train(tmp_path / "run", stop_at=9, policy="balanced")
    second = train(tmp_path / "run", policy="balanced")
    pairs = list(zip(second["told"], whole["told"][-len(second["told"]) :], strict=True))
    assert all(one[:2] == other[:2] for one, other in pairs)
    assert max(abs(one[2] - other[2]) for one, other in pairs) < 0.02  # 0.007, of losses from 0.5 to 0.04


def test_an_epoch_that_is_left_goes_on():
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, shuffle=True)
    batches = Batches(accelerate.Accelerator(cpu=True).prepare(loader))
    assert len(batches) == 12
    seen = []
    for places, _ in batches:
        seen += places.tolist()
        if len(seen) == 6:
            break
    for places, _ in batches:
        seen += places.tolist()
    assert sorted(seen) == list(range(23))
    assert batches.epoch == 1
    assert sum(len(places) for places, _ in batches) == 23


def test_what_does_not_know_its_place_is_refused():
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(torch.utils.data.DataLoader(Numbers()))
    with pytest.raises(InvalidInputError, match=r"Batches\(loader\)"):
        parts_of(accelerator, data=loader)
    loader.use_stateful_dataloader = True
    with pytest.raises(InvalidInputError, match="use_stateful_dataloader"):
        Batches(loader)
    single = accelerator.prepare(torch.utils.data.DataLoader(Numbers(), batch_size=None))
    with pytest.raises(InvalidInputError, match="single samples"):
        Batches(single)


def test_parts_are_what_was_prepared_and_what_every_loop_has():
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(2, 2)
    parts = parts_of(accelerator, model=torch.compile(model, backend="eager"), ema=torch.nn.Linear(2, 2))
    assert set(parts) == {"model", "ema", "random"}
    assert parts["model"] is model
