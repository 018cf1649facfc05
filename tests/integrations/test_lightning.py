"""Lightning saves to a store, and goes on from it, as with files of its own. Runs docs/lightning.md too."""

from __future__ import annotations

import argparse
import os
import pickle
import signal
from collections import Counter, OrderedDict
from pathlib import Path
from unittest.mock import Mock

import fsspec
import pytest
from kit import programs
from kit.around import Gate
from kit.pages import blocks_of, run_blocks

import lcstore
from lcstore import FallbackWarning, InvalidInputError, NotFoundError, StorageError
from lcstore.integrations.lightning_pointer import Pointer, pointers_beside, read_pointer, write_pointer
from lcstore.storage.memory import MemoryBackend

pytest.importorskip("lightning")
pytestmark = [pytest.mark.usefixtures("one_thread")] + [
    pytest.mark.filterwarnings(f"ignore::{kind}:{module}")
    for kind in ("UserWarning", "DeprecationWarning", "FutureWarning")
    for module in ("lightning", "lightning_fabric", "pytorch_lightning", "torch", "torchdata", "torchmetrics")
]

LOOP = Path(__file__).with_name("lightning_loop.py")
#: What its loop imports, and what Lightning imports besides once it trains.
USING = ("lightning_loop", *programs.TORCH, "lcstore.integrations.lightning_session")


@pytest.fixture(scope="module")
def torch():
    import torch

    return torch


@pytest.fixture(scope="module")
def loop():
    import lightning_loop

    return lightning_loop


def make(url, **how):
    from lcstore.integrations.lightning import LcstoreCheckpointIO

    return LcstoreCheckpointIO(url, **how)


def checkpoint(torch, step: int, **more) -> dict:
    weight = torch.arange(4096, dtype=torch.float32).reshape(64, 64) / 4096 + step * 1e-3
    return {"epoch": 0, "global_step": step, "state_dict": OrderedDict({"net.weight": weight})} | more


def named(path) -> str:
    from lcstore.integrations.lightning_pointer import read_pointer

    pointer = read_pointer(path)
    assert pointer is not None
    return pointer.node


# Killed, and begun again --------------------------------------------------------------------------------


def start(folder: Path, policy: str, *, background: bool, kill_at: int = -1) -> int:
    given = [folder / "store", folder / "ckpt", policy, background, kill_at, folder / "end.pt"]
    ran = programs.run(LOOP, *given, using=USING)
    assert ran.returncode in (0, -signal.SIGKILL, 143), ran.stderr
    return ran.returncode


@pytest.fixture(scope="module")
def uninterrupted(loop, tmp_path_factory):
    """A run that is not interrupted and saves as Lightning does: its end, and its files."""
    folder = tmp_path_factory.mktemp("files")
    return *loop.fitted(folder, None), folder


def test_a_killed_run_ends_where_it_would_have_ended(torch, uninterrupted, tmp_path):
    trainer, model, _ = uninterrupted
    assert start(tmp_path, "lossless", background=True, kill_at=14) == -signal.SIGKILL
    assert start(tmp_path, "lossless", background=True) == 0
    end = torch.load(tmp_path / "end.pt")
    assert end["step"] == trainer.global_step == 32
    for name, value in model.state_dict().items():
        assert torch.equal(end["model"][name], value), name
    for place, kept in trainer.optimizers[0].state_dict()["state"].items():
        for name, value in kept.items():
            assert torch.equal(end["optim"]["state"][place][name], value), (place, name)


def test_with_loss_it_ends_within_an_interval_or_two(torch, uninterrupted, tmp_path):
    trainer, model, files = uninterrupted
    assert start(tmp_path, "balanced", background=False, kill_at=30) == -signal.SIGKILL
    assert named(tmp_path / "ckpt/last.ckpt") == named(tmp_path / "ckpt/step=28.ckpt")
    assert start(tmp_path, "balanced", background=False) == 0
    end = torch.load(tmp_path / "end.pt")
    assert end["step"] == trainer.global_step
    assert end["loss"] == pytest.approx(float(trainer.callback_metrics["loss"]), rel=0.03)  # measured: 0.9 %
    before = torch.load(files / "step=28.ckpt", weights_only=False)["state_dict"]
    for name in ("net.0.weight", "net.3.weight"):
        value = model.state_dict()[name]
        assert (end["model"][name] - value).norm() < 2 * (value - before[name]).norm()  # measured: 1.3


def test_a_run_that_is_told_to_end_saves_its_step_and_says_that_there_is_more_to_do(torch, tmp_path):
    assert start(tmp_path, "high", background=False, kill_at=14) == 143
    with lcstore.open(tmp_path / "store", "r") as store:
        assert store.steps() == [4, 8, 12, 15], "the step in which SIGTERM came is the last one"
    assert named(tmp_path / "ckpt/last.ckpt") == named(tmp_path / "ckpt/step=15.ckpt")
    assert start(tmp_path, "high", background=False) == 0
    assert torch.load(tmp_path / "end.pt")["step"] == 32


# What is saved and loaded -------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [False, True])
def test_a_checkpoint_comes_back_as_it_was(torch, tmp_path, background):
    norm = torch.nn.BatchNorm1d(8)
    given = {
        "epoch": 3,
        "global_step": 7,
        "pytorch-lightning_version": "2.6.0",
        "state_dict": torch.nn.Sequential(torch.nn.Linear(8, 8), norm).state_dict(),
        "loops": {"fit_loop": {"epoch_progress": {"ready": 1, "done": False}, "states": (1, None, [2.5])}},
        "callbacks": {"EarlyStopping{'monitor': 'a/b'}": {"best_score": torch.tensor(0.5), "wait_count": 1}},
        "optimizer_states": [
            {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"betas": (0.9, 0.99)}]}
        ],
        "lr_schedulers": [{"milestones": Counter({16: 1})}],
        "hyper_parameters": {
            "folder": Path("/data"),
            "args": argparse.Namespace(width=3, dtype=torch.bfloat16),
            "tags": {"a"},
            "device": torch.device("cpu"),
        },
    }
    io = make(tmp_path / "store", policy="lossless", background=background)
    io.save_checkpoint(given, tmp_path / "a.ckpt")
    back = io.load_checkpoint(tmp_path / "a.ckpt")
    weights, kept = back.pop("state_dict"), dict(given)
    expected = kept.pop("state_dict")
    assert repr(back) == repr(kept)
    assert type(back["lr_schedulers"][0]["milestones"]) is Counter
    assert type(weights) is OrderedDict
    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    assert weights._metadata["1"] == expected._metadata["1"] == {"version": 2}
    assert isinstance(io.store.restore(7)["state_dict"]["0.weight"], torch.Tensor)


def test_tensors_go_where_they_are_asked_for(torch, tmp_path):
    io = make(tmp_path / "store")
    io.save_checkpoint(checkpoint(torch, 0), tmp_path / "a.ckpt")

    def meta(storage, location):
        return torch.empty(0, device="meta").untyped_storage() if location == "cpu" else None

    wheres = {
        "cpu": [None, "cpu", {"cuda:0": "cpu"}],
        "meta": ["meta", torch.device("meta"), {"cpu": "meta"}, meta],
    }
    for device, asked in wheres.items():
        for where in asked:
            weights = io.load_checkpoint(tmp_path / "a.ckpt", where)["state_dict"]
            assert weights["net.weight"].device.type == device


def test_what_is_no_data_is_refused_with_its_place_and_a_cure(torch, tmp_path):
    io = make(tmp_path / "store")
    given = checkpoint(torch, 0, hyper_parameters={"loss": torch.nn.functional.mse_loss})
    with pytest.raises(InvalidInputError, match=r"'hyper_parameters/loss'.*ignore="):
        io.save_checkpoint(given, tmp_path / "a.ckpt")
    assert not (tmp_path / "a.ckpt").exists()


def test_files_of_torch_are_loaded_and_removed_as_ever(torch, tmp_path):
    path = tmp_path / "own.ckpt"
    torch.save(checkpoint(torch, 5), path)
    io = make(tmp_path / "store")
    assert io.load_checkpoint(path)["global_step"] == 5
    io.remove_checkpoint(path)
    assert not path.exists()
    with pytest.raises(FileNotFoundError, match=r"own\.ckpt"):
        io.load_checkpoint(path)
    io.save_checkpoint({"weight": torch.ones(3)}, path)  # what Lightning hands from process to process
    assert torch.equal(torch.load(path)["weight"], torch.ones(3))


def test_a_state_is_stored_with_what_is_said_of_it(torch, tmp_path):
    io = make(tmp_path / "store")
    for step in range(3):
        io.save_checkpoint(checkpoint(torch, step), tmp_path / f"{step}.ckpt")
    io.save_checkpoint(checkpoint(torch, 3), tmp_path / "end.ckpt", {"exact": True, "tags": ["end"]})
    assert io.store.info("end").exact
    weights = io.load_checkpoint(tmp_path / "end.ckpt")["state_dict"]
    assert torch.equal(weights["net.weight"], checkpoint(torch, 3)["state_dict"]["net.weight"])


def test_the_same_step_with_other_weights_is_another_state(torch, tmp_path):
    io = make(tmp_path / "store", policy="lossless")
    io.save_checkpoint(checkpoint(torch, 1), tmp_path / "a.ckpt")
    average = checkpoint(torch, 1)
    average["state_dict"]["net.weight"].data[3, 3] += 1  # the version of the tensor is the same
    io.save_checkpoint(average, tmp_path / "b.ckpt")
    io.save_checkpoint(average, tmp_path / "c.ckpt")
    assert named(tmp_path / "a.ckpt") != named(tmp_path / "b.ckpt") == named(tmp_path / "c.ckpt")
    back = io.load_checkpoint(tmp_path / "b.ckpt")["state_dict"]["net.weight"]
    assert torch.equal(back, average["state_dict"]["net.weight"])


def test_it_is_sent_to_another_process_by_what_it_was_given(torch, tmp_path):
    io = make(tmp_path / "store", policy="high", background=True)
    io.save_checkpoint(checkpoint(torch, 1), tmp_path / "a.ckpt")
    other = pickle.loads(pickle.dumps(io))
    io.teardown()
    assert other.store is not io.store
    assert other.store.policy.name == "high"
    assert other.load_checkpoint(tmp_path / "a.ckpt")["global_step"] == 1


# Files that name states ---------------------------------------------------------------------------------


def test_a_state_goes_with_the_last_file_that_names_it(torch, tmp_path):
    io = make(tmp_path / "store")
    for step in range(3):
        io.save_checkpoint(checkpoint(torch, step), tmp_path / f"{step}.ckpt")
        io.save_checkpoint(checkpoint(torch, step), tmp_path / "last.ckpt")
    assert io.store.steps() == [0, 1, 2]
    io.remove_checkpoint(tmp_path / "1.ckpt")
    assert io.store.steps() == [0, 2]
    io.remove_checkpoint(tmp_path / "2.ckpt")
    assert io.store.steps() == [0, 2]  # last.ckpt names it
    io.save_checkpoint(checkpoint(torch, 3), tmp_path / "last.ckpt")
    assert io.store.steps() == [0, 3]
    io.remove_checkpoint(tmp_path / "last.ckpt")
    assert io.store.steps() == [0, 3]  # the latest of a run stays, until another one is
    io.save_checkpoint(checkpoint(torch, 4), tmp_path / "4.ckpt")
    assert io.store.steps() == [0, 4]


def test_another_process_knows_what_files_name(torch, tmp_path):
    io = make(tmp_path / "store")
    for step in range(3):
        io.save_checkpoint(checkpoint(torch, step), tmp_path / f"{step}.ckpt")
    io.save_checkpoint(checkpoint(torch, 2), tmp_path / "last.ckpt")
    os.symlink("1.ckpt", tmp_path / "link.ckpt")
    again = make(tmp_path / "store")
    assert again.load_checkpoint(tmp_path / "last.ckpt")["global_step"] == 2
    again.save_checkpoint(checkpoint(torch, 3), tmp_path / "last.ckpt")
    again.remove_checkpoint(tmp_path / "0.ckpt")
    assert again.store.steps() == [1, 2, 3]  # 2.ckpt names the one that last.ckpt named
    again.remove_checkpoint(tmp_path / "1.ckpt")
    assert again.store.steps() == [2, 3]  # the link leads nowhere now


def test_the_latest_state_of_a_process_goes_too_once_another_went_on_from_it(torch, tmp_path):
    store, files = tmp_path / "store", tmp_path / "ckpt"
    for process in range(3):  # each of them keeps the last two
        io = make(store, background=False)
        if process:
            io.load_checkpoint(files / f"{10 * process}.ckpt")
        io.save_checkpoint(checkpoint(torch, 10 * process + 10), files / f"{10 * process + 10}.ckpt")
        if process:
            io.remove_checkpoint(files / f"{10 * process}.ckpt")
        io.teardown()
    with lcstore.open(store, "r") as opened:
        assert opened.steps() == [30]


def test_a_file_names_its_state_whoever_saves_to_its_store_meanwhile(torch, tmp_path, monkeypatch):
    make(tmp_path / "store", background=False).save_checkpoint(checkpoint(torch, 1), tmp_path / "1.ckpt")
    again, other = (make(tmp_path / "store", background=False) for _ in range(2))
    real = again.store.info

    def info(*asked):
        found = real(*asked)
        if not asked:
            other.save_checkpoint(checkpoint(torch, 7), tmp_path / "7.ckpt")
        return found

    monkeypatch.setattr(again.store, "info", info)
    assert again.load_checkpoint(tmp_path / "1.ckpt")["global_step"] == 1
    assert other.store.latest_step() == 7


def test_a_file_that_was_deleted_by_hand_harms_nobody(torch, tmp_path):
    io = make(tmp_path / "store")
    for step in range(3):
        io.save_checkpoint(checkpoint(torch, step), tmp_path / f"{step}.ckpt")
    (tmp_path / "1.ckpt").unlink()
    assert io.store.restore(1)["global_step"] == 1
    io.remove_checkpoint(tmp_path / "1.ckpt")
    assert io.store.steps() == [0, 2]
    make(tmp_path / "store").remove_checkpoint(tmp_path / "1.ckpt")  # nobody knows what that was


def test_files_that_name_other_stores_are_loaded_and_their_states_left_alone(torch, tmp_path):
    one, other = make(tmp_path / "one"), make(tmp_path / "other")
    for step in range(2):
        one.save_checkpoint(checkpoint(torch, step), tmp_path / f"one-{step}.ckpt")
    other.save_checkpoint(checkpoint(torch, 9), tmp_path / "other.ckpt")
    assert other.load_checkpoint(tmp_path / "one-0.ckpt")["global_step"] == 0
    other.remove_checkpoint(tmp_path / "one-0.ckpt")
    assert one.store.steps() == [0, 1]
    assert not (tmp_path / "one-0.ckpt").exists()


def test_files_may_lie_in_any_target(torch, tmp_path):
    folder = f"memory://{tmp_path.name}/files"
    io = make(tmp_path / "store", background=True)
    for step in range(3):
        io.save_checkpoint(checkpoint(torch, step), f"{folder}/{step}.ckpt")
        io.save_checkpoint(checkpoint(torch, step), f"{folder}/last.ckpt")
    for step in range(2):
        io.remove_checkpoint(f"{folder}/{step}.ckpt")
    assert io.load_checkpoint(f"{folder}/last.ckpt")["global_step"] == 2
    assert io.store.steps() == [2]
    assert named(f"{folder}/2.ckpt") == named(f"{folder}/last.ckpt")


def test_a_store_may_move_and_a_state_may_be_gone(torch, tmp_path):
    io = make(tmp_path / "one")
    for step in range(2):
        io.save_checkpoint(checkpoint(torch, step), tmp_path / f"{step}.ckpt")
    (tmp_path / "one").rename(tmp_path / "two")
    moved = make(tmp_path / "two")
    assert moved.load_checkpoint(tmp_path / "1.ckpt")["global_step"] == 1
    with pytest.raises(NotFoundError, match=r"0.ckpt names node .* was moved.*lcstore ls"):
        make(tmp_path / "three").load_checkpoint(tmp_path / "0.ckpt")


# In the background --------------------------------------------------------------------------------------


def test_until_a_state_is_there_its_file_names_the_one_before_it(torch, tmp_path):
    backend = Gate(MemoryBackend.fresh())
    io = make(backend, background=True)
    io.save_checkpoint(checkpoint(torch, 0), tmp_path / "0.ckpt")
    io.teardown()
    backend.open.clear()
    io.save_checkpoint(checkpoint(torch, 1), tmp_path / "1.ckpt")
    io.remove_checkpoint(tmp_path / "0.ckpt")
    assert named(tmp_path / "1.ckpt") == named(tmp_path / "0.ckpt")  # and it stays until then
    killed = make(backend)
    with pytest.warns(FallbackWarning, match=r"1.ckpt was to be step 1.*this is step 0"):
        assert killed.load_checkpoint(tmp_path / "1.ckpt")["global_step"] == 0
    backend.open.set()
    io.teardown()
    assert not (tmp_path / "0.ckpt").exists()
    assert io.store.steps() == [1]
    assert io.load_checkpoint(tmp_path / "1.ckpt")["global_step"] == 1


def test_a_failure_in_the_background_is_told_once_and_nothing_is_removed_for_it(torch, tmp_path):
    backend = Gate(MemoryBackend.fresh())
    io = make(backend, background=True)
    io.save_checkpoint(checkpoint(torch, 0), tmp_path / "0.ckpt")
    io.teardown()
    backend.open.clear()
    backend.fails = True
    io.save_checkpoint(checkpoint(torch, 1), tmp_path / "1.ckpt")
    io.save_checkpoint(checkpoint(torch, 1), tmp_path / "last.ckpt")
    io.remove_checkpoint(tmp_path / "0.ckpt")
    backend.open.set()
    with pytest.raises(StorageError, match="no space"):
        io.teardown()
    backend.fails = False
    io.teardown()
    assert (tmp_path / "0.ckpt").exists()
    io.save_checkpoint(checkpoint(torch, 1), tmp_path / "1.ckpt")
    assert io.load_checkpoint(tmp_path / "1.ckpt")["global_step"] == 1
    assert io.store.steps() == [0, 1]


def test_a_failure_is_a_note_to_what_is_on_its_way_already(torch, tmp_path):
    backend = Gate(MemoryBackend.fresh())
    io = make(backend, background=True)
    backend.fails = True
    io.save_checkpoint(checkpoint(torch, 0), tmp_path / "0.ckpt")
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        io.teardown()
        assert "no space is left" in error.__notes__[0]
    io.teardown()  # it was told


def test_at_the_end_of_a_program_all_is_saved_and_named(tmp_path):
    code = (
        "import sys, torch\n"
        "from lcstore.integrations.lightning_session import Session\n"
        "session = Session(sys.argv[1] + '/store', {}, background=True)\n"
        "for step in range(2):\n"
        "    session.save({'global_step': step, 'w': torch.ones(8)}, f'{sys.argv[1]}/{step}.ckpt', {})\n"
        "session.remove(sys.argv[1] + '/0.ckpt', print)\n"
    )
    assert programs.run(code, tmp_path, using=USING).returncode == 0
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["1.ckpt"]
    with lcstore.open(tmp_path / "store", "r") as store:
        assert store.steps() == [1]
        assert named(tmp_path / "1.ckpt") == store.info().node


# With a trainer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [False, True])
def test_the_best_are_kept_and_found(torch, loop, tmp_path, background):
    io = make(tmp_path / "store", policy="lossless", background=background)
    how = {"monitor": "loss", "save_top_k": 2, "filename": "{step}-{loss:.3f}"}
    trainer, model = loop.fitted(tmp_path / "ckpt", io, **how)
    saving = trainer.checkpoint_callback
    files = {path.name for path in (tmp_path / "ckpt").iterdir()}
    assert len(files) == 3
    assert {Path(path).name for path in saving.best_k_models} | {"last.ckpt"} == files
    best = io.store.best_step("loss")
    assert saving.best_model_path.startswith(str(tmp_path / f"ckpt/step={best}-"))
    assert io.store.info(best).metrics["loss"] == pytest.approx(float(saving.best_model_score))
    assert set(io.store.steps()) == {io.store.info(named(tmp_path / "ckpt" / name)).step for name in files}
    seen = []
    model.validation_step = lambda batch: seen.append(model.net[0].weight.clone())
    trainer.validate(model, loop.Batches(), ckpt_path="best", weights_only=False, verbose=False)
    assert torch.equal(seen[0], io.store.restore(best)["state_dict"]["net.0.weight"])


@pytest.mark.parametrize("background", [False, True])
def test_what_searches_a_learning_rate_puts_back_every_bit(torch, loop, tmp_path, background):
    """It saves what was trained, trains, and loads it."""
    import lightning as L
    from lightning.pytorch.tuner import Tuner

    class Rated(loop.Model):
        def __init__(self):
            super().__init__()
            self.lr = 1e-3

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=self.lr)

    io, model = make(tmp_path / "store", policy="small", background=background), Rated()
    trainer = L.Trainer(
        accelerator="cpu", max_steps=8, logger=False, plugins=[io], default_root_dir=tmp_path,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    batches = torch.utils.data.DataLoader(
        [(torch.randn(64), torch.randn(64)) for _ in range(64)], batch_size=16
    )
    trainer.fit(model, batches)
    steps, before = io.store.steps(), {name: value.clone() for name, value in model.state_dict().items()}
    assert Tuner(trainer).lr_find(model, batches, num_training=10).results["loss"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert io.store.steps() == steps
    assert not [*tmp_path.glob(".lr_find*")]


@pytest.mark.parametrize("background", [False, True])
def test_last_may_be_a_link(loop, tmp_path, background):
    io = make(tmp_path / "store", background=background)
    loop.fitted(tmp_path / "ckpt", io, save_last="link", save_top_k=1)
    last = tmp_path / "ckpt/last.ckpt"
    assert last.is_symlink()
    assert named(last) == io.store.info(32).node
    assert io.store.steps() == [32]
    io = make(tmp_path / "store")
    trainer, _ = loop.fitted(tmp_path / "ckpt", io, "last", save_last="link", save_top_k=1)
    assert trainer.global_step == 32


def test_an_older_checkpoint_is_a_fork(loop, tmp_path):
    before = make(tmp_path / "store", policy="lossless")
    loop.fitted(tmp_path / "ckpt", before)
    assert [state.step for state in before.store.states()] == [*range(4, 33, 4)]  # each is stored once
    io = make(tmp_path / "store", policy="lossless")
    trainer, _ = loop.fitted(tmp_path / "fork", io, tmp_path / "ckpt/step=24.ckpt")
    assert trainer.global_step == 32
    first = next(state for state in io.store.states() if state.step == 28 and state.run == 2)
    assert io.store.info(first.node).base == named(tmp_path / "ckpt/step=24.ckpt")
    assert named(tmp_path / "ckpt/last.ckpt") != named(tmp_path / "fork/last.ckpt")


def test_pytorch_lightning_has_its_own(torch, tmp_path):
    plugins = pytest.importorskip("pytorch_lightning.plugins.io")
    from lcstore.integrations.pytorch_lightning import LcstoreCheckpointIO

    io = LcstoreCheckpointIO(tmp_path / "store")
    assert isinstance(io, plugins.CheckpointIO)
    io.save_checkpoint(checkpoint(torch, 1), tmp_path / "a.ckpt")
    assert io.load_checkpoint(tmp_path / "a.ckpt")["global_step"] == 1
    torch.save(checkpoint(torch, 5), tmp_path / "own.ckpt")
    assert io.load_checkpoint(tmp_path / "own.ckpt", "cpu", False)["global_step"] == 5


def test_the_blocks_of_the_page_run(tmp_path, monkeypatch):
    pytest.importorskip("torchdata")
    monkeypatch.chdir(tmp_path)
    space = run_blocks(blocks_of("docs/lightning.md", "python"))
    assert space["run"].global_step == 48
    assert [group["lr"] for group in space["slower"].optimizers[0].param_groups] == [1e-5]
    assert space["store"].info("end").exact
    assert (tmp_path / "runs/own.ckpt").stat().st_size > 1 << 17


def test_the_rate_that_the_page_sets_is_what_schedules_go_by(torch, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    schedules = torch.optim.lr_scheduler
    blocks = blocks_of("docs/lightning.md", "python")
    (going_back,) = (at for at, block in enumerate(blocks) if "class Slower" in block.code)
    space = run_blocks([blocks[0], blocks[going_back]])

    def rates(kind, schedule, **how):
        def configured(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [schedule(optimizer)]

        def started(self, *batch):
            seen[self.global_step] = self.optimizers().param_groups[0]["lr"]

        seen = {}
        hooks = {"configure_optimizers": configured, "on_train_batch_start": started}
        model = type("Scheduled", (space[kind],), hooks)()
        space["trainer"](max_epochs=4).fit(model, space["loader"], **how)
        return seen

    for at, schedule in enumerate((
        lambda optimizer: schedules.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)),
        lambda optimizer: schedules.CosineAnnealingLR(optimizer, 8),
    )):  # fmt: skip
        (tmp_path / f"{at}").mkdir()
        monkeypatch.chdir(tmp_path / f"{at}")
        whole = rates("Model", schedule)
        slower = rates("Slower", schedule, ckpt_path="runs/files/step=30.ckpt")
        assert slower == pytest.approx({step: whole[step] / 1e3 for step in range(30, 64)})


def test_a_pointer_for_which_there_is_no_room_leaves_nothing(tmp_path, monkeypatch):
    pointer = Pointer("memory://run", "0" * 32, 5)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            write_pointer(tmp_path / "a.ckpt", pointer)
    assert not [*tmp_path.iterdir()]
    write_pointer(tmp_path / "a.ckpt", pointer)
    assert read_pointer(tmp_path / "a.ckpt") == pointer


def test_what_is_no_pointer_is_passed_over_at_little_cost(tmp_path):
    """Files of other kinds lie beside pointers, some of them large, some nearly alike."""
    fs = fsspec.filesystem("memory")
    fs.pipe({
        "/run/theirs.ckpt": bytes(20 << 20),
        "/run/small.ckpt": bytes(4 << 20),
        "/run/a.ckpt": b'{"lcstore": "checkpoint", "store": "x"}',
    })  # fmt: skip
    pointer = Pointer("memory://run", "0" * 32, 5)
    write_pointer("memory://run/b.ckpt", pointer)
    kind, blocks = type(fs), []

    def opened(self, path, mode="rb", block_size=None, **how):
        blocks.append((path, block_size))
        return open_(self, path, mode, block_size, **how)

    open_ = kind.open
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "open", opened)
        assert [*pointers_beside("memory://run/b.ckpt")] == [pointer]
    fs.rm("/run", recursive=True)
    assert sorted(blocks) == [(f"/run/{name}.ckpt", 1 << 16) for name in ("a", "b", "small")]
