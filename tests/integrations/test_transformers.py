"""Trainer saves through lcstore, is killed or stopped, and goes on as if it had not been."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from kit import programs

import lcstore
from lcstore import InvalidInputError, StorageError
from lcstore.storage.memory import MemoryBackend

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from safetensors import SafetensorError  # noqa: E402
from trainer_run import digest, disturb, logged, model_of, trainer_of  # noqa: E402
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerState  # noqa: E402
from transformers.trainer_pt_utils import safe_globals  # noqa: E402

from lcstore.integrations import processes, trainer_files  # noqa: E402
from lcstore.integrations.processes import check_unsharded  # noqa: E402
from lcstore.integrations.trainer_files import state_of, write_folder  # noqa: E402
from lcstore.integrations.transformers import LcstoreCallback  # noqa: E402

#: Small models have too few weights for the names to be looked at, and gain nothing.
pytestmark = [
    pytest.mark.filterwarnings("ignore::lcstore.UnrecognisedWarning"),
    pytest.mark.usefixtures("one_thread"),
]
EPOCH = 7
STEPS = 3 * EPOCH


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody interrupted."""
    trainer = trainer_of(tmp_path_factory.mktemp("whole"))
    trainer.train()
    return trainer


class Stops(TrainerCallback):
    """Ctrl-C in the midst of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_optimizer_step(self, args, state, control, **parts):
        if state.global_step == self.step:
            raise KeyboardInterrupt


def interrupted(folder: Path, at: int, callback: LcstoreCallback, **options):
    """Train until after a step, and again, all new; return the second Trainer, and where it began."""
    with pytest.raises(KeyboardInterrupt):
        trainer_of(folder, callback, Stops(at), **options).train()
    trainer = trainer_of(folder, callback, model=model_of(seed=5), **options)
    begin = callback.checkpoint(trainer.args.output_dir)
    disturb()
    trainer.train(resume_from_checkpoint=begin)
    return trainer, Path(begin).name


def start(folder: Path, policy: str, ends: str, at: int) -> int:
    script, using = Path(__file__).with_name("trainer_run.py"), ("trainer_run", *programs.TORCH)
    env = {"OMP_NUM_THREADS": "1"}
    return programs.run(script, folder, policy, ends, at, using=using, env=env).returncode


def test_a_run_that_is_killed_ends_as_one_that_was_not(tmp_path, whole):
    assert start(tmp_path, "lossless", "SIGKILL", 11) == -signal.SIGKILL
    assert start(tmp_path, "lossless", "never", 0) == 0
    told = json.loads((tmp_path / "lossless.json").read_text())
    assert "checkpoint-" in told["begin"]
    assert told["logged"] == logged(whole)
    assert told["digest"] == digest(whole)
    assert not [*(tmp_path / "out").iterdir()]  # what Trainer resumed from is gone
    with lcstore.open(tmp_path / "lossless", "r") as store:
        assert store.latest_step() == STEPS
        runs = {store.info(step).run for step in store.steps()}
        assert len(runs) == 2


def test_a_run_whose_machine_is_taken_away_commits_its_step(tmp_path, whole):
    assert start(tmp_path, "lossless", "SIGTERM", 9) == -signal.SIGTERM
    with lcstore.open(tmp_path / "lossless", "r") as store:
        assert store.latest_step() == 10
    callback = LcstoreCallback(tmp_path / "lossless", every=100, policy="lossless")
    trainer = trainer_of(tmp_path, callback)
    trainer.train(resume_from_checkpoint=callback.checkpoint(tmp_path))
    assert logged(trainer) == logged(whole)
    assert digest(trainer) == digest(whole)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("at", [2, 6, 14])
def test_a_run_goes_on_from_any_step(tmp_path, whole, at):
    """Within an epoch, right after an evaluation, and between two epochs."""
    callback = LcstoreCallback(tmp_path / "run", every=at, background=False, policy="lossless")
    trainer, begin = interrupted(tmp_path, at + 1, callback)
    assert begin == f"checkpoint-{at}"
    assert logged(trainer) == logged(whole)
    assert digest(trainer) == digest(whole)


def test_what_an_epoch_logs_and_its_evaluation_changes_is_kept(tmp_path):
    options = {
        "logging_strategy": "epoch",
        "eval_strategy": "epoch",
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "lr_scheduler_kwargs": {"patience": 0},
        "metric_for_best_model": "eval_loss",
        "warmup_steps": 0,
        "include_num_input_tokens_seen": True,  # each entry has a time then
    }
    plain = trainer_of(tmp_path, **options)
    plain.train()
    callback = LcstoreCallback(tmp_path / "run", every=EPOCH, policy="lossless")
    trainer, begin = interrupted(tmp_path, 2 * EPOCH + 1, callback, **options)
    assert begin == "checkpoint-14"
    assert len({entry["learning_rate"] for entry in logged(plain) if "loss" in entry}) > 1
    assert logged(trainer) == logged(plain)
    assert digest(trainer) == digest(plain)
    assert trainer.state.best_metric == plain.state.best_metric


def test_between_two_logs_the_mean_is_over_fewer_steps(tmp_path):
    each = trainer_of(tmp_path, logging_steps=1)
    each.train()
    callback = LcstoreCallback(tmp_path / "run", every=5, background=False, policy="lossless")
    trainer, begin = interrupted(tmp_path, 5, callback)
    assert begin == "checkpoint-5"
    losses = [
        {entry["step"]: entry["loss"] for entry in logged(one) if "loss" in entry} for one in (trainer, each)
    ]
    assert losses[0][6] == losses[1][6]
    assert losses[0][8] == pytest.approx((losses[1][7] + losses[1][8]) / 2)
    assert digest(trainer) == digest(each)


def test_the_default_policy_stays_near(tmp_path, whole):
    callback = LcstoreCallback(tmp_path / "run", every=2)
    trainer, _ = interrupted(tmp_path, 11, callback)
    pairs = [
        (one["loss"], other["loss"])
        for one, other in zip(logged(trainer), logged(whole), strict=True)
        if "loss" in one
    ]
    print(max(abs(one - other) for one, other in pairs), pairs)
    assert max(abs(one - other) for one, other in pairs) < 0.05  # 0.022; they fall by 0.3


def test_the_end_is_saved_and_a_longer_run_goes_on_from_it(tmp_path):
    options = {"lr_scheduler_type": "constant", "eval_strategy": "no"}
    plain = trainer_of(tmp_path, **options)
    plain.train()

    def train(epochs: int):
        callback = LcstoreCallback(tmp_path / "run", every=1000, policy="lossless")
        trainer = trainer_of(tmp_path, callback, num_train_epochs=epochs, **options)
        begin = callback.checkpoint(trainer.args.output_dir)
        trainer.train(resume_from_checkpoint=begin)
        return trainer, begin

    assert train(2)[1] is None
    trainer, begin = train(2)  # it is over
    assert begin.endswith("checkpoint-14")
    assert trainer.state.global_step == 14
    trainer, _ = train(3)
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.steps() == [1, 14, 21]
    assert logged(trainer) == logged(plain)
    assert digest(trainer) == digest(plain)


def test_the_step_that_trainer_takes_after_the_end_is_not_saved(tmp_path):
    def train(most: int) -> list[int]:
        callback = LcstoreCallback(tmp_path / "run", every=1, policy="lossless")
        trainer = trainer_of(tmp_path, callback, max_steps=most, eval_strategy="no")
        trainer.train(resume_from_checkpoint=callback.checkpoint(trainer.args.output_dir))
        with lcstore.open(tmp_path / "run", "r") as store:
            return store.steps()

    assert train(5) == train(5) == train(5) == [1, 2, 3, 4, 5]
    assert train(7) == [1, 2, 3, 4, 5, 6, 7]


def test_metrics_are_those_since_the_save_before(tmp_path):
    callback = LcstoreCallback(tmp_path / "run", every=2)
    trainer_of(tmp_path, callback, num_train_epochs=1).train()
    with lcstore.open(tmp_path / "run", "r") as store:
        found = {step: set(store.info(step).metrics) for step in store.steps()}
        loss = {"loss", "grad_norm", "learning_rate"}
        assert found == {
            1: set(),
            2: loss,
            4: {*loss, "eval_loss"},
            6: {*loss, "eval_loss"},
            7: {"eval_loss"},
        }
        assert store.best_step("eval_loss") in (4, 6, 7)


def test_any_state_may_be_gone_back_to(tmp_path):
    callback = LcstoreCallback(tmp_path / "run", every=2)
    trainer_of(tmp_path, callback, num_train_epochs=1).train()
    assert callback.checkpoint(tmp_path, "best:learning_rate:max").endswith("checkpoint-4")
    assert callback.checkpoint(tmp_path, 2, run=1).endswith("checkpoint-2")
    assert [path.name for path in (tmp_path / "lcstore-resume").iterdir()] == ["checkpoint-2"]
    callback.close()


@pytest.mark.parametrize("to", ["saved", "numpy"])
def test_a_state_that_was_saved_without_torch_is_gone_on_from(tmp_path, to):
    callback = LcstoreCallback(tmp_path / "run", every=2, policy="lossless")
    trainer_of(tmp_path, callback, max_steps=4).train()
    callback.close()
    script = (
        "import sys, lcstore\n"
        "with lcstore.open(sys.argv[1], 'r+') as store:\n"
        "    store.save(3, store.rewind(2, to=sys.argv[2]))\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "run"), to], check=True, timeout=240)
    callback = LcstoreCallback(tmp_path / "run", every=2, policy="lossless")
    trainer = trainer_of(tmp_path, callback, model=model_of(seed=5), max_steps=4)
    begin = callback.checkpoint(tmp_path)
    assert begin.endswith("checkpoint-3")
    trainer.train(resume_from_checkpoint=begin)
    assert trainer.model.lm_head.weight is trainer.model.transformer.wte.weight


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path):
    callback = LcstoreCallback(tmp_path / "run", every=2, policy="lossless")
    trainer, _ = interrupted(tmp_path, 4, callback, max_steps=6)
    assert trainer.model.lm_head.weight is trainer.model.transformer.wte.weight
    with lcstore.open(tmp_path / "run", "r") as store:
        model = store.restore()["model"]
    assert model["lm_head.weight"] is model["transformer.wte.weight"]
    assert torch.equal(model["lm_head.weight"], trainer.model.lm_head.weight)


def test_what_is_written_of_a_state_is_a_model_for_from_pretrained(tmp_path):
    callback = LcstoreCallback(tmp_path / "run", every=2, policy="lossless")
    trainer = trainer_of(tmp_path, callback)
    trainer.train()
    callback = LcstoreCallback(tmp_path / "run")
    folder = callback.checkpoint(tmp_path / "c")
    callback.close()
    again = type(trainer.model).from_pretrained(folder)
    assert again.config.n_embd == trainer.model.config.n_embd
    mine = trainer.model.state_dict()
    assert all(torch.equal(tensor, mine[name]) for name, tensor in again.state_dict().items())


def test_checkpoints_of_trainers_own_beside_a_store_are_told_of(tmp_path, caplog):
    trainer_of(tmp_path / "a", LcstoreCallback(tmp_path / "one", every=4)).train()
    assert "checkpoints of its own" not in caplog.text
    trainer_of(
        tmp_path / "b", LcstoreCallback(tmp_path / "two", every=4), save_strategy="steps", save_steps=4
    ).train()
    assert "Trainer writes checkpoints of its own besides" in caplog.text


def adapted(seed: int):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True, r=4)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of how peft asks a model of transformers
        return peft.get_peft_model(model_of(), lora)


def test_adapters_are_saved_without_what_they_adapt(tmp_path):
    whole = trainer_of(tmp_path, model=adapted(1))
    whole.train()
    callback = LcstoreCallback(tmp_path / "run", every=2, policy="lossless")
    with pytest.raises(KeyboardInterrupt):
        trainer_of(tmp_path, callback, Stops(9), model=adapted(1)).train()
    trainer = trainer_of(tmp_path, callback, model=adapted(5))
    trainer.train(resume_from_checkpoint=callback.checkpoint(tmp_path))
    assert logged(trainer) == logged(whole)
    assert digest(trainer) == digest(whole)
    with lcstore.open(tmp_path / "run", "r") as store:
        assert all("lora_" in name for name in store.restore()["model"])


def test_imported_adapters_are_gone_on_from(tmp_path):
    """Trainer's own folders name adapters otherwise than the model does."""
    whole = trainer_of(tmp_path / "a", model=adapted(1), save_strategy="steps", save_steps=4)
    whole.train()
    folder = tmp_path / "a" / "out" / "checkpoint-8"
    lcstore.import_files(folder, tmp_path / "run", policy="lossless")
    callback = LcstoreCallback(tmp_path / "run", every=100)
    trainer = trainer_of(tmp_path / "b", callback, model=adapted(5))
    trainer.train(resume_from_checkpoint=callback.checkpoint(tmp_path / "b"))
    assert digest(trainer) == digest(whole)
    with lcstore.open(tmp_path / "run") as store:  # the same step, of which nothing says what it holds
        imported = store.info(8).node
        store.save(8, store.resume(8))
    for at, written in ((imported, "adapter_model.safetensors"), (8, "model.safetensors")):
        callback = LcstoreCallback(tmp_path / "run", every=100)
        assert (Path(callback.checkpoint(tmp_path / "c", at)) / written).exists()
        callback.close()


@pytest.mark.parametrize(("hook", "at", "last"), [("on_optimizer_step", 4, 5), ("on_prediction_step", 6, 6)])
def test_notice_by_a_function_ends_the_training(tmp_path, whole, hook, at, last):
    """Within a step it ends with that step, and during an evaluation without another one."""
    told = []
    callback = LcstoreCallback(tmp_path / "run", every=100, policy="lossless", preempted=lambda: bool(told))

    def tell(_args, state, _control, **_parts):
        if state.global_step == at:
            told.append(True)

    tells = TrainerCallback()
    setattr(tells, hook, tell)
    trainer = trainer_of(tmp_path, callback, tells)
    trainer.train()
    assert trainer.state.global_step == last
    told.clear()
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.latest_step() == last
    trainer = trainer_of(tmp_path, callback)
    trainer.train(resume_from_checkpoint=callback.checkpoint(tmp_path))
    if last % 2 == 0:  # else the mean loss between two logs is of the part behind the end
        assert logged(trainer) == logged(whole)
    assert digest(trainer) == digest(whole)
    trainer.evaluate()  # with no training under way, nobody is asked
    assert callback._manager is None


@pytest.mark.parametrize("strategy", ["steps", "epoch"])
def test_there_is_no_time_for_an_evaluation(tmp_path, strategy):
    callback = LcstoreCallback(tmp_path / "run", every=100, preempted=lambda: True)
    trainer = trainer_of(tmp_path, callback, eval_strategy=strategy, eval_steps=1)
    trainer.train()
    assert trainer.state.global_step == 1
    assert not any("eval_loss" in entry for entry in logged(trainer))
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.info(1).exact


class Full(MemoryBackend):
    """A target whose disk is full after a while."""

    def put(self, key, data):
        if "000000000000006" in key:
            raise StorageError("the disk is full", key=key)
        super().put(key, data)


@pytest.mark.parametrize(("every", "background"), [(2, True), (2, False), (6, True)])
def test_a_failed_save_is_heard(tmp_path, every, background):
    callback = LcstoreCallback(Full("full"), every=every, background=background)
    with pytest.raises(StorageError, match="full"):
        trainer_of(tmp_path, callback, max_steps=6).train()
    callback.close()


def test_the_scaler_and_the_generator_of_a_gpu_are_files_that_trainer_reads(tmp_path):
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    state = state_of(TrainerState(), model=model, optimizer=optimizer, lr_scheduler=schedule)
    with lcstore.open(tmp_path / "run") as store:
        store.save(
            1, state | {"random": state["random"].state_dict() | {"cuda": [np.arange(8, dtype=np.uint8)]}}
        )
        write_folder(tmp_path / "folder", store.restore(), {})
    assert torch.load(tmp_path / "folder" / "scaler.pt")["scale"] == 8.0
    with safe_globals():
        found = torch.load(tmp_path / "folder" / "rng_state.pth")
    assert found["cuda"].tolist() == list(range(8))
    assert torch.equal(found["cpu"], torch.get_rng_state())


def test_a_folder_for_which_there_is_no_room_is_an_error_of_storage(tmp_path, monkeypatch):
    callback = LcstoreCallback(tmp_path / "run", every=2)
    trainer_of(tmp_path, callback, max_steps=2).train()
    with monkeypatch.context() as full:
        full.setattr(trainer_files, "save_file", Mock(side_effect=SafetensorError("No space left on device")))
        with pytest.raises(StorageError, match=r"could not write: .*No space left"):
            callback.checkpoint(tmp_path)
    assert callback.checkpoint(tmp_path).endswith("checkpoint-2")
    callback.close()


def test_only_the_first_process_saves(tmp_path):
    class Other(TrainerCallback):
        def on_train_begin(self, args, state, control, **parts):
            state.is_world_process_zero = False

    callback = LcstoreCallback(tmp_path / "run", every=1)
    trainer_of(tmp_path, Other(), callback, max_steps=2).train()
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_kept_is_refused(tmp_path):
    class Shard(torch.nn.Linear):
        def parameters(self, recurse=True):
            yield type("DTensor", (), {"full_tensor": None})()

    check_unsharded([torch.nn.Linear(1, 1)])
    with pytest.raises(InvalidInputError, match="sharded saving is not there yet"):
        check_unsharded([Shard(1, 1)])
    callback = LcstoreCallback(tmp_path / "run")
    trainer = trainer_of(
        tmp_path,
        callback,
        EarlyStoppingCallback(),
        metric_for_best_model="eval_loss",
        restore_callback_states_from_checkpoint=True,
    )
    with pytest.raises(InvalidInputError, match="restore_callback_states_from_checkpoint=False"):
        trainer.train()


def test_a_state_of_another_loop_is_refused(tmp_path):
    with lcstore.open(tmp_path / "run") as store:
        store.save(3, {"model": model_of()})
    callback = LcstoreCallback(tmp_path / "run")
    with pytest.raises(InvalidInputError, match="not saved by LcstoreCallback"):
        callback.checkpoint(tmp_path)
    callback.close()


def test_wrong_options_are_refused_before_training(tmp_path):
    trainer = trainer_of(tmp_path, LcstoreCallback(tmp_path / "run", every="often"))
    with pytest.raises(InvalidInputError):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize("error", [StorageError("the disk is full"), None])
def test_all_processes_hear_of_what_the_first_failed_with(monkeypatch, error):
    """They wait for it: without a word they did so until a time of half an hour was over."""
    sent = []

    def of_rank(rank, make):
        def broadcast(told):
            told[:] = sent[0] if rank else told
            sent.append([*told])

        monkeypatch.setattr(processes, "are_several", lambda: True)
        monkeypatch.setattr(processes, "rank", lambda: rank)
        monkeypatch.setattr(processes.torch.distributed, "broadcast_object_list", broadcast)
        return processes.of_the_first(make)

    first = Mock(return_value="made", side_effect=error)
    for rank in (0, 1):
        if error is None:
            assert of_rank(rank, first) == "made"
        else:
            with pytest.raises(StorageError, match="the disk is full"):
                of_rank(rank, first)
    assert first.call_count == 1


def test_a_save_stores_what_was_logged_since_the_last_one(tmp_path):
    """It stored the whole log, so saves grew with the length of the run."""
    state, model = TrainerState(log_history=[]), model_of()
    optimizer = torch.optim.SGD(model.parameters())
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    numbers, stored = random.Random(0), []
    with lcstore.open(tmp_path / "store", durability="none") as store:
        for step in range(40):
            state.log_history += [
                {"step": 50 * step + at, "loss": numbers.random(), "learning_rate": numbers.random()}
                for at in range(50)
            ]
            kept = state_of(state, model=model, optimizer=optimizer, lr_scheduler=schedule)
            stored.append(store.save(step, {"trainer": kept["trainer"], "log": kept["log"]}).bytes_stored)
        back = store.restore()
        assert json.loads(trainer_files._trainer_state(back))["log_history"] == state.log_history
        assert json.loads(trainer_files._trainer_state({"trainer": back["trainer"]})).keys() >= {
            "global_step"
        }
    assert np.median(stored[20:]) < 2 * np.median(stored[5:20])
    assert max(np.median(stored[5:20]), np.median(stored[20:])) < 12_000
