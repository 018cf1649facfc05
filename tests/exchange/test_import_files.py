"""Files that become states: which, in what order, once each, and what is said of those that cannot."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tracemalloc
from typing import Any

import fsspec
import numpy as np
import pytest
from states import same
from typer.testing import CliRunner

import lcstore
from lcstore import InvalidInputError
from lcstore.cli.app import app
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.steps import step_in
from lcstore.storage.memory import MemoryBackend
from lcstore.write.writer import Writer

pytestmark = pytest.mark.unprotected


def weights(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    first = rng.standard_normal((64, 64)).astype(np.float32)
    return {"fc.weight": first + np.float32(1e-3) * step, "fc.bias": np.full(64, step, np.float32)}


def write(folder, *steps: int, name: str = "checkpoint-{}.npz") -> None:
    folder.mkdir(exist_ok=True)
    for step in steps:
        np.savez(folder / name.format(step), **weights(step))


def outcomes(report) -> list[tuple[int, str]]:
    return [(one.step, one.outcome) for one in report.files]


def commits(url) -> list[int]:
    with lcstore.open(url, "r") as store:
        return sorted(state.step for state in store.states(records=False))


def test_files_become_states_in_the_order_of_their_steps(tmp_path):
    write(tmp_path / "old", 20, 100, 3)
    (tmp_path / "old" / "notes.txt").write_text("mine")
    report = lcstore.import_files(tmp_path / "old", tmp_path / "store", policy="lossless")
    assert outcomes(report) == [(3, "anchor"), (20, "delta"), (100, "delta")]
    assert all(one.bytes_stored for one in report.files)
    with lcstore.open(tmp_path / "store", "r") as store:
        assert store.latest_step() == 100
        assert same(store.restore(20), weights(20))
        said = store.info(20).metadata["imported"]
    file = tmp_path / "old" / "checkpoint-20.npz"
    assert (said["name"], said["bytes"], said["format"]) == (file.name, file.stat().st_size, "npz")


def test_numbers_of_files_become_metrics(tmp_path):
    (tmp_path / "old").mkdir()
    for step, loss in ((10, 2.0), (20, 1.0), (30, 3.0)):
        about = {"val_loss": np.float32(loss), "epoch": np.int64(step // 10), "best": np.bool_(True)}
        np.savez(tmp_path / "old" / f"step{step}.npz", **weights(step), **about)
    url = str(tmp_path / "store")
    call = CliRunner().invoke(
        app, ["import", str(tmp_path / "old"), url, "--metric", "val_loss", "--metric", "epoch"]
    )
    assert call.exit_code == 0, call.output
    with lcstore.open(url, "r") as store:
        assert store.info("best:val_loss").step == 20
        assert store.info(30).metrics == {"val_loss": 3.0, "epoch": 3.0}
    for name in ("los", "best", "fc.weight"):
        with pytest.raises(InvalidInputError, match=f"no number '{name}' is in it.*'val_loss', 'epoch'"):
            lcstore.import_files(tmp_path / "old", tmp_path / "again", metrics=[name])


def test_metrics_are_found_by_paths_below_dicts():
    held = Checkpoint(
        {"stats": {"val": {"loss": 0.5}, "steps": 7}, "done": True, "model": {"w": np.zeros(3)}}
    )
    assert held.numbers(["stats/val/loss", "stats/steps"]) == {"loss": 0.5, "steps": 7.0}
    assert held.numbers([]) == {}
    with pytest.raises(InvalidInputError, match="no number 'done'"):
        held.numbers(["done"])


def test_a_number_that_no_metric_can_be_matters_only_where_it_is_wanted():
    held = Checkpoint({"huge": 10**400, "loss": 0.5, "stats": {"loss": 0.7}})
    assert held.numbers(["loss", "loss"]) == {"loss": 0.5}
    with pytest.raises(InvalidInputError, match="too large to be a metric"):
        held.numbers(["huge"])
    with pytest.raises(InvalidInputError, match="some are equal: 'loss', 'stats/loss'"):
        held.numbers(["loss", "stats/loss"])


@pytest.mark.parametrize("files", ["ck", "ck/*.npz"])
def test_links_to_nothing_are_left_out_and_told(tmp_path, caplog, files):
    (tmp_path / "ck").mkdir()
    for step in (1, 2):
        np.savez(tmp_path / "ck" / f"step_{step}.npz", w=np.full((8, 8), step, np.float32))
    (tmp_path / "ck" / "step_9.npz").symlink_to("step_8.npz")
    (tmp_path / "ck" / "step_3.npz").symlink_to("step_2.npz")
    with caplog.at_level("WARNING", "lcstore"):
        report = lcstore.import_files(tmp_path / files, tmp_path / "store")
    assert [one.step for one in report.files] == [1, 2, 3]
    assert any("step_9.npz is a link to nothing, and left out" in told.message for told in caplog.records)


def test_a_second_run_adds_nothing_and_a_third_what_is_new(tmp_path):
    write(tmp_path / "old", 1, 2)
    lcstore.import_files(tmp_path / "old", tmp_path / "store")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    report = lcstore.import_files(tmp_path / "old", tmp_path / "store")
    assert outcomes(report) == [(1, "there"), (2, "there")]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")} == before
    write(tmp_path / "old", 3)
    shutil.move(tmp_path / "old", tmp_path / "moved")
    report = lcstore.import_files(tmp_path / "moved", tmp_path / "store")
    assert outcomes(report) == [(1, "there"), (2, "there"), (3, "delta")]
    assert commits(tmp_path / "store") == [1, 2, 3]


def test_more_files_are_saved_under_the_policy_of_those_before(tmp_path):
    write(tmp_path / "old", 1, 2)
    assert lcstore.import_files(tmp_path / "old", tmp_path / "store", policy="lossless").policy == "lossless"
    write(tmp_path / "old", 3)
    assert lcstore.import_files(tmp_path / "old", tmp_path / "store").policy == "lossless"
    with lcstore.open(tmp_path / "store", "r") as store:
        assert store.info(3).exact
        assert same(store.restore(3), weights(3))
    assert lcstore.import_files(tmp_path / "old", tmp_path / "another").policy == "balanced"
    assert lcstore.import_files(tmp_path / "old", tmp_path / "store").policy == ""  # nothing was new


@pytest.mark.parametrize("folder", ["checkpoint-{}", "epoch_{}", "step_{}"])
def test_a_folder_for_each_step_with_a_file_in_it(tmp_path, folder):
    (tmp_path / "runs").mkdir()
    for step in (5, 10):
        write(tmp_path / "runs" / folder.format(step), step, name="model.npz")
    report = lcstore.import_files(tmp_path / "runs", tmp_path / "store")
    assert outcomes(report) == [(5, "anchor"), (10, "delta")]


def test_one_that_was_interrupted_goes_on(tmp_path):
    write(tmp_path / "old", *range(5))

    def stop(phase, done, total):
        if (phase, done) == ("import", 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lcstore.import_files(tmp_path / "old", tmp_path / "store", on_progress=stop)
    assert commits(tmp_path / "store") == [0, 1]
    report = lcstore.import_files(tmp_path / "old", tmp_path / "store")
    assert outcomes(report) == [(0, "there"), (1, "there"), (2, "delta"), (3, "delta"), (4, "delta")]


def test_a_broken_file_stops_it_and_those_before_are_there(tmp_path):
    write(tmp_path / "old", 1, 2, 3)
    (tmp_path / "old" / "checkpoint-2.npz").write_bytes(b"no archive")
    with pytest.raises(lcstore.CorruptionError, match=r"checkpoint-2.npz is no whole file of numpy.savez"):
        lcstore.import_files(tmp_path / "old", tmp_path / "store")
    assert commits(tmp_path / "store") == [1]
    os.unlink(tmp_path / "old" / "checkpoint-2.npz")
    assert outcomes(lcstore.import_files(tmp_path / "old", tmp_path / "store"))[-1] == (3, "delta")


def manifest(**fields) -> bytes:
    """Return an archive of numpy in which lcstore is said to have written what a state is made of."""
    file = io.BytesIO()
    np.savez(file, __lcstore__=np.array(json.dumps({"step": 4, "leaves": [], "tensors": [], **fields})))
    return file.getvalue()


DEEP: Any = "leaf"
for _ in range(70):
    DEEP = ["list", [DEEP]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        manifest(format=0),
        manifest(format=99, structure="leaf"),
        manifest(format=0, structure=DEEP, leaves=[1]),
        manifest(format=0, structure="leaf", leaves=[{"int": "x"}]),
    ],
    ids=["empty", "no structure", "of a newer lcstore", "too deep", "a plain value"],
)
def test_broken_files_are_left_out_where_that_is_asked_for(tmp_path, content):
    write(tmp_path / "old", 1, 2, 3, 4)
    (tmp_path / "old" / "checkpoint-2.npz").write_bytes(b"no archive")
    (tmp_path / "old" / "checkpoint-4.npz").write_bytes(content)
    wanted = [(1, "anchor"), (2, "broken"), (3, "delta"), (4, "broken")]
    for _ in range(2):  # the second time, step 2 comes too late
        report = lcstore.import_files(tmp_path / "old", tmp_path / "store", skip_broken=True)
        assert outcomes(report) == wanted
        assert not report.ok
        assert all(
            f"checkpoint-{at}.npz" in one.problem for at, one in enumerate(report.files, 1) if at in (2, 4)
        )
        wanted[:3] = (1, "there"), (2, "late"), (3, "there")
    assert commits(tmp_path / "store") == [1, 3]
    write(tmp_path / "old", 4)
    os.unlink(tmp_path / "old" / "checkpoint-2.npz")
    report = lcstore.import_files(tmp_path / "old", tmp_path / "store", skip_broken=True)
    assert (outcomes(report)[-1], report.ok) == ((4, "delta"), True)


def test_what_was_let_go_of_is_not_imported_again(tmp_path):
    write(tmp_path / "old", 1, 2, 3)
    lcstore.import_files(tmp_path / "old", tmp_path / "store")
    with lcstore.open(tmp_path / "store", "r+") as store:
        store.retire(2)
    assert outcomes(lcstore.import_files(tmp_path / "old", tmp_path / "store"))[1] == (2, "there")


def test_a_file_that_changed_is_a_new_revision(tmp_path):
    write(tmp_path / "old", 1)
    lcstore.import_files(tmp_path / "old", tmp_path / "store")
    os.utime(tmp_path / "old" / "checkpoint-1.npz", (1, 1))
    assert outcomes(lcstore.import_files(tmp_path / "old", tmp_path / "store")) == [(1, "delta")]
    assert commits(tmp_path / "store") == [1, 1]


def test_a_format_is_that_of_all_files_of_a_folder(tmp_path):
    write(tmp_path / "old", 1, 2)
    for file in (tmp_path / "old").iterdir():
        file.rename(file.with_suffix(".dat"))
    report = lcstore.import_files(tmp_path / "old", tmp_path / "store", format="npz")
    assert outcomes(report) == [(1, "anchor"), (2, "delta")]
    with pytest.raises(lcstore.InvalidInputError, match="format is 'nps'"):
        lcstore.import_files(tmp_path / "old", tmp_path / "store", format="nps")


def test_steps_before_those_of_the_store_are_refused_at_once(tmp_path):
    write(tmp_path / "old", 1, 5, 9)
    with lcstore.open(tmp_path / "store") as store:
        store.save(7, {"model": weights(7)})
    with pytest.raises(lcstore.ConflictError, match=r"has step 7, and .*-1.npz is of step 1, before it"):
        lcstore.import_files(tmp_path / "old", tmp_path / "store")
    assert commits(tmp_path / "store") == [7]


def test_a_copy_that_lost_its_times_is_told_of(tmp_path):
    write(tmp_path / "old", 1, 5)
    lcstore.import_files(tmp_path / "old", tmp_path / "store")
    os.utime(tmp_path / "old" / "checkpoint-1.npz", (1, 1))
    with pytest.raises(lcstore.ConflictError, match=r"changed at another time: .*`cp -a`"):
        lcstore.import_files(tmp_path / "old", tmp_path / "store")


def test_a_dry_run_changes_nothing(tmp_path):
    write(tmp_path / "old", 1, 2)
    report = lcstore.import_files(tmp_path / "old", tmp_path / "store", dry_run=True)
    assert outcomes(report) == [(1, "to import"), (2, "to import")]
    assert report.dry_run
    assert not (tmp_path / "store").exists()
    lcstore.import_files(tmp_path / "old/checkpoint-1.npz", tmp_path / "store")
    report = lcstore.import_files(tmp_path / "old", tmp_path / "store", dry_run=True)
    assert outcomes(report) == [(1, "there"), (2, "to import")]
    assert commits(tmp_path / "store") == [1]


def test_globs_urls_and_files_of_other_places(tmp_path):
    write(tmp_path / "old", 1, 2)
    (tmp_path / "old" / "checkpoint-9.txt").write_text("mine")
    fs = fsspec.filesystem("memory")
    fs.put(str(tmp_path / "old"), "/files", recursive=True)
    report = lcstore.import_files(str(tmp_path / "old" / "checkpoint-*"), tmp_path / "one")
    assert outcomes(report) == [(1, "anchor"), (2, "delta")]
    report = lcstore.import_files("memory://files/*.npz", tmp_path / "two", under="model")
    assert [one.url for one in report.files] == [f"memory:///files/checkpoint-{i}.npz" for i in (1, 2)]
    fs.rm("/files", recursive=True)
    with lcstore.open(tmp_path / "one", "r") as one, lcstore.open(tmp_path / "two", "r") as two:
        assert two.restore(2)["model"]["fc.weight"].tobytes() == one.restore(2)["fc.weight"].tobytes()
    with pytest.raises(lcstore.NotFoundError, match="there is no file memory://files"):
        lcstore.import_files("memory://files/*.npz", tmp_path / "two")
    with pytest.raises(lcstore.InvalidInputError, match="cannot be opened"):
        lcstore.import_files("nothing://files", tmp_path / "two")


def test_which_step_and_which_format_can_be_said(tmp_path):
    write(tmp_path, 0, name="final.npz")
    with pytest.raises(lcstore.InvalidInputError, match=r"final.npz has no number .* --step NUMBER"):
        lcstore.import_files(tmp_path / "final.npz", tmp_path / "store")
    report = lcstore.import_files(tmp_path / "final.npz", tmp_path / "store", step=4)
    assert outcomes(report) == [(4, "anchor")]
    shutil.copy(tmp_path / "final.npz", tmp_path / "final")
    (tmp_path / "model.weights.h5").write_bytes(b"HDF")
    with pytest.raises(lcstore.InvalidInputError, match=r"a file of Keras or Flax is loaded by that"):
        lcstore.import_files(tmp_path / "model.weights.h5", tmp_path / "run")
    with pytest.raises(lcstore.InvalidInputError, match=r"ending of .*final tells no format: say it with"):
        lcstore.import_files(tmp_path / "final", tmp_path / "store", step=5)
    report = lcstore.import_files(tmp_path / "final", tmp_path / "store", step=5, format="npz")
    assert outcomes(report) == [(5, "delta")]
    with pytest.raises(lcstore.InvalidInputError, match="format is 'gguf'; it is one of"):
        lcstore.import_files(tmp_path / "final", tmp_path / "store", step=6, format="gguf")


def test_several_files_of_one_step_are_refused(tmp_path):
    write(tmp_path / "old", 1)
    write(tmp_path / "old", 1, name="optim-{}.npz")
    with pytest.raises(lcstore.InvalidInputError, match="are both of step 1: name one of them"):
        lcstore.import_files(tmp_path / "old", tmp_path / "store")
    with pytest.raises(lcstore.InvalidInputError, match="2 files cannot be of one step"):
        lcstore.import_files(tmp_path / "old", tmp_path / "store", step=1)
    report = lcstore.import_files(tmp_path / "old" / "checkpoint*", tmp_path / "store")
    assert outcomes(report) == [(1, "anchor")]


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("runs/checkpoint-500.pt", 500),
        ("runs/checkpoint-500/model.safetensors", 500),
        ("step_1000.safetensors", 1000),
        ("7b/epoch=3-step=1200.ckpt", 1200),
        ("epoch=3-val_loss=0.25.ckpt", 3),
        ("digits2-ep007.pt", 7),
        ("sweep5/deep3-12.pt", 12),
        ("model-7b-iter00010.pt", 10),
        ("global_step20", 20),
        ("0040.npz", 40),
        ("run2/300", 300),
        ("run2/300/model.safetensors", 300),
        ("llama_step12_of_100.pt", 12),
    ],
)
def test_steps_are_read_from_names(path, step):
    assert step_in(path) == step


@pytest.mark.parametrize(
    ("path", "regex", "said"),
    [
        ("runs/final.pt", None, "has no number"),
        ("gpt2-7b.pt", None, "has no number"),
        ("run-7/final.pt", None, "has no number"),
        ("run/model-00001-of-00002.safetensors", None, "several numbers (00001, 00002)"),
        ("99999999999999999999.pt", None, "too large"),
        ("run-5.pt", "run-(", "is no regular expression"),
        ("run-5.pt", "walk-([0-9]+)", "finds nothing"),
        ("run-5.pt", "(run)-", "finds 'run'"),
    ],
)
def test_names_without_a_step_are_refused(path, regex, said):
    with pytest.raises(lcstore.InvalidInputError, match=re.escape(said)):
        step_in(path, regex)


def test_steps_by_a_regular_expression():
    assert step_in("runs/7b/a-5-of-9.pt", r"a-(\d+)") == 5
    assert step_in("runs/7b/a-5-of-9.pt", r"(?<=of-)\d+") == 9


@pytest.mark.parametrize("regex", [None, "checkpoint-([0-9]+)"])
def test_what_tells_no_step_beside_files_that_do_is_left_out_and_named(tmp_path, regex):
    write(tmp_path / "old", 20, 100)
    best, url = tmp_path / "old" / "best.npz", tmp_path / "store"
    np.savez(best, **weights(100))
    for dry_run in (True, False):
        report = lcstore.import_files(tmp_path / "old", url, steps_from=regex, dry_run=dry_run)
        assert [one.step for one in report.files] == [20, 100]
        assert report.left_out == (str(best),)
    assert commits(url) == [20, 100]
    shown = CliRunner().invoke(app, ["import", str(tmp_path / "old"), str(url)])
    assert shown.exit_code == 0
    assert f"Left out, as nothing tells which step they are of: {best}" in shown.stdout
    assert lcstore.import_files(best, url, step=110).left_out == ()
    assert commits(url) == [20, 100, 110]


def test_files_of_which_none_tells_a_step_are_refused(tmp_path):
    for name in ("best", "last"):
        write(tmp_path / "old", 0, name=name + ".npz")
    with pytest.raises(lcstore.InvalidInputError, match=r"best\.npz has no number"):
        lcstore.import_files(tmp_path / "old", tmp_path / "store")


def test_a_store_is_no_file(tmp_path):
    with lcstore.open(tmp_path / "store") as store:
        store.save(1, {"model": weights(1)})
    with pytest.raises(
        lcstore.InvalidInputError, match=r"is a store already: `lcstore cp` .*`lcstore export`"
    ):
        lcstore.import_files(tmp_path / "store", tmp_path / "other")


def test_memory_stays_below_the_file(tmp_path):
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((512, 512)).astype(np.float32) for _ in range(12)]
    moments = {i: {"step": 3, "exp_avg": w, "exp_avg_sq": w * w} for i, w in enumerate(layers)}
    with lcstore.open(tmp_path / "from", policy="lossless", threads=1) as store:
        state = {"model": {f"{i}.weight": w for i, w in enumerate(layers)}, "optim": {"state": moments}}
        store.save(1, state)
        del state, layers, moments
        lcstore.export(store[1], tmp_path / "step1.safetensors")
    tracemalloc.start()
    (one,) = lcstore.import_files(tmp_path / "step1.safetensors", tmp_path / "to", threads=1).files
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert one.nbytes > 36 << 20
    assert peak < 32 << 20, peak


@pytest.mark.parametrize("policy", ["balanced", "lossless"])
def test_a_single_file_is_not_held_for_deltas_to_it(tmp_path, policy, monkeypatch):
    saved, held = Writer.save, []

    def save(writer: Writer, *given: Any, **how: Any) -> Any:
        info = saved(writer, *given, **how)
        held.append(sum(pool.nbytes for pool in writer.track.pools.values()))
        return info

    monkeypatch.setattr(Writer, "save", save)
    write(tmp_path / "old", 1, 2, 3)
    one = tmp_path / "old" / "checkpoint-1.npz"
    lcstore.import_files(one, tmp_path / "one", policy=policy)
    assert held == [0]
    report = lcstore.import_files(tmp_path / "old", tmp_path / "all", policy=policy)
    assert outcomes(report) == [(1, "anchor"), (2, "delta"), (3, "delta")]
    assert all(held[1:])
    more = lcstore.import_files(tmp_path / "old", tmp_path / "one", policy=policy)
    assert outcomes(more) == [(1, "there"), (2, "delta"), (3, "delta")]
    with lcstore.open(tmp_path / "one", "r") as store:
        assert same(store.restore(1), weights(1))


def test_a_file_that_no_store_holds_is_named(tmp_path):
    np.savez(tmp_path / "step1.npz", words=np.array(["a", "b"]))
    with pytest.raises(lcstore.InvalidInputError, match=r"step1.npz: .*'words'"):
        lcstore.import_files(tmp_path / "step1.npz", tmp_path / "store")
    np.savez(tmp_path / "step1.npz", words=np.array([{}], object))
    with pytest.raises(lcstore.InvalidInputError, match="arrays of Python objects, which only running code"):
        lcstore.import_files(tmp_path / "step1.npz", tmp_path / "store")


def test_an_exported_file_that_was_changed_is_refused(tmp_path):
    with lcstore.open(tmp_path / "store") as store:
        store.save(1, {"model": weights(1)})
        lcstore.export(store[1], tmp_path / "step1.npz")
    with np.load(tmp_path / "step1.npz") as held:
        arrays = dict(held)
    said = json.loads(str(arrays.pop("__lcstore__")))
    for changed, match in (
        ({"format": 1}, "newer lcstore"),
        ({"tensors": said["tensors"][:1]}, "more places than there are tensors"),
        ({"tensors": [["no", "float32", "numpy"]]}, "lacks the tensor 'no'"),
        ({"tensors": [[key, "int32", "numpy"] for key, *_ in said["tensors"]]}, "as float32, not int32"),
        ({"tensors": [[key, "float7", "numpy"] for key, *_ in said["tensors"]]}, "dtype 'float7'"),
        ({"tensors": [["x"]]}, "none of its own"),
        ({"leaves": {}}, "none of its own"),
        ({"structure": ["list"]}, "no node"),
    ):
        np.savez(tmp_path / "step1.npz", __lcstore__=np.array(json.dumps(said | changed)), **arrays)
        with pytest.raises(lcstore.LcstoreError, match=match):
            lcstore.import_files(tmp_path / "step1.npz", tmp_path / "new")
    of_others = {"tensors": [[key, dtype, "jax-key-rbg"] for key, dtype, _ in said["tensors"]]}
    np.savez(tmp_path / "step1.npz", __lcstore__=np.array(json.dumps(said | of_others)), **arrays)
    assert outcomes(lcstore.import_files(tmp_path / "step1.npz", tmp_path / "new")) == [(1, "anchor")]


def test_a_dry_run_into_a_backend_names_it(tmp_path):
    """It ended with an error of Python where that held no store."""
    write(tmp_path / "old", 3)
    backend = MemoryBackend.fresh()
    for dry_run, outcome in ((True, "to import"), (False, "anchor"), (True, "there")):
        report = lcstore.import_files(tmp_path / "old", backend, dry_run=dry_run)
        assert (report.url, outcomes(report)) == (backend.url, [(3, outcome)])


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_durability_that_there_is_not_is_refused_first(tmp_path, dry_run):
    np.savez(tmp_path / "step1.npz", w=np.ones(3))
    with pytest.raises(lcstore.InvalidInputError):
        lcstore.import_files(tmp_path / "step1.npz", tmp_path / "store", durability="foo", dry_run=dry_run)
    assert not (tmp_path / "store").exists()


def test_a_path_that_is_a_pattern_is_not_fetched(tmp_path):
    """``run[1].npz`` matches ``run1.npz``, which was imported in its place."""
    fs = fsspec.filesystem("memory")
    for number, name in enumerate(("run1.npz", "run[1].npz")):
        np.savez(tmp_path / "file.npz", w=np.full(3, number, np.float32))
        fs.pipe_file(f"/patterns/{name}", (tmp_path / "file.npz").read_bytes())
    with pytest.raises(lcstore.InvalidInputError, match="patterns"):
        lcstore.import_files("memory://patterns/run[1].npz", tmp_path / "store", step=0)
