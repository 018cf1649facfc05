"""What people try in their first hours, and what they are told."""

from __future__ import annotations

import errno
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import lcstore
from lcstore.cli.app import app
from lcstore.maintain.sizing import Forecast
from lcstore.storage.targets import open_backend
from lcstore.terminal.foreseen import foreseen
from lcstore.terminal.target import _made


def call(*arguments: str) -> Result:
    """Run a command as a shell would."""
    return CliRunner().invoke(app, list(arguments))


def said(*arguments: str) -> str:
    """Return what a command that fails says, on one line."""
    result = call(*arguments)
    assert result.exit_code != 0, result.output
    return re.sub(r"[\s│]+", " ", result.output)


def states(count: int) -> list[dict[str, Any]]:
    """Return the states of a walk at random."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((256, 256)).astype(np.float32)
    found = []
    for number in range(count):
        weight = weight + rng.standard_normal(weight.shape).astype(np.float32) * np.float32(1e-3)
        found.append({"model": {"fc.weight": weight}, "epoch": number})
    return found


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of steps 0, 10, ... 50, of which the last is exact."""
    where = str(tmp_path / "run")
    with lcstore.open(where) as store:
        for number, state in enumerate(states(6)):
            store.save(10 * number, state, metrics={"loss": 1 / (number + 1)}, exact=number == 5)
    return where


def test_an_exact_state_has_no_error_until_its_exact_value_is_let_go_of(url):
    with lcstore.open(url) as store:
        assert store.info(40).error > 0
        for info in (store.info(50), store.states()[-1].info):
            assert (info.exact, info.error, info.row_error) == (True, None, None)
        saved = store.save(60, states(7)[-1], exact=True)
        assert saved.exact
        assert saved.error is None
        assert "error" not in str(saved)
        store.retain("latest:99 | exact-only:latest:1")
        for info in (store.info(50), store.states()[-2].info):
            assert not info.exact
            assert info.error > 0
    shown = call("show", f"{url}@60").stdout
    assert "every bit comes back" in shown
    assert "checkpoint intervals" not in shown
    assert "worst row" not in shown
    listed = {one["step"]: one for one in json.loads(call("ls", url, "--json").stdout)["states"]}
    assert listed[60]["error"] is None
    assert listed[40]["error"] > 0


def test_a_save_that_is_as_large_as_the_first_says_why(url):
    moved, grown = states(7)[-1], {"head.weight": np.ones((64, 64), np.float32)}
    with lcstore.open(url) as store:
        store.resume()
        usual = store.save(60, moved)
        moved["model"]["fc.weight"][3] = 1e6
        large = store.save(70, moved | grown)
        assert store.at(70).set_anew() == ["model/fc.weight", "head.weight"]
    assert (usual.set_anew, large.set_anew) == (0, 2)
    assert large.bytes_stored > 10 * usual.bytes_stored
    assert ", 2 tensors set anew, in" in str(large)
    assert "set anew" not in str(usual)
    shown = call("show", f"{url}@70", "--json").stdout
    assert json.loads(shown)["set_anew"] == ["model/fc.weight", "head.weight"]
    why = "2 of its tensors, new, moved too far for a delta, or laid out afresh: model/fc.weight, head.weight"
    assert why in call("show", f"{url}@70").stdout
    assert "set anew" not in call("show", f"{url}@60").stdout
    assert json.loads(call("show", f"{url}@0", "--json").stdout)["set_anew"] == []


def test_a_layer_that_has_not_moved_is_not_said_to_have_moved_too_far(tmp_path):
    url, rng = str(tmp_path / "run"), np.random.default_rng(0)
    layers = {f"{name}.weight": rng.standard_normal((64, 64), np.float32) for name in "abc"}
    with lcstore.open(url) as store:
        store.save(0, layers)
        store.save(1, {name: layer * (np.nan if name < "c" else 1) for name, layer in layers.items()})
    why = "1 of its tensors, new, moved too far for a delta, or laid out afresh: c.weight"
    assert why in call("show", f"{url}@1").stdout


def commands_in(text: str) -> list[list[str]]:
    """Return the commands that a message names, as arguments."""
    return [shlex.split(found)[1:] for found in re.findall("`(lcstore [^`]+)`", text)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_save_to_the_wrong_store_is_undone_by_the_command_that_the_first_refusal_names(url, count):
    with lcstore.open(url) as store:
        for step in range(990, 990 + 10 * count, 10):
            store.save(step, {"other": np.zeros(3)})
    refused = said("retire", f"{url}@{step}")
    done = call(*commands_in(refused)[-1])
    assert done.exit_code == 0, done.output
    with lcstore.open(url) as store:
        assert store.steps() == [0, 10, 20, 30, 40, 50, *range(990, step, 10)]


def test_a_state_that_no_pin_brings_back_is_saved_by_the_command_that_the_refusal_names(
    url, tmp_path, monkeypatch
):
    with lcstore.open(url) as store:
        before = store.restore(40)["model"]["fc.weight"]
        gone = store.states()[-2].node
        store.retain("latest:1")
        store.compact()
        store.collect()
    monkeypatch.chdir(tmp_path)
    for refused in (said("pin", f"{url}@{gone}"), said("pin", f"{url}@40"), said("show", f"{url}@40")):
        (export,) = [found for found in commands_in(refused) if found[0] == "export"]
        done = call(*export)
        assert done.exit_code == 0, done.output
        lcstore.import_files("state.safetensors", "again", step=40, policy="lossless")
        with lcstore.open("again") as again:
            np.testing.assert_array_equal(again.restore()["model"]["fc.weight"], before)
        (tmp_path / "state.safetensors").unlink()
        lcstore.remove("again")


def test_what_would_take_more_than_the_state_is_not_offered(url):
    with lcstore.open(url) as store:
        for step in (70, 60):
            store.save(step, {"other": np.zeros(3)})
    assert "--run-is-dead" not in said("retire", f"{url}@60")


def test_who_imports_and_exports_is_told_what_is_lossy(tmp_path):
    for number, state in enumerate(states(3)):
        np.savez(tmp_path / f"step{number}.npz", **{"model.fc.weight": state["model"]["fc.weight"]})
    files = sorted(map(str, tmp_path.glob("*.npz")))
    done = call("import", *files, str(tmp_path / "lossy"))
    assert (
        "By the policy balanced, 2 of them are lossy. To keep every bit: import into a store of its own"
        in done.stdout
    )
    done = call("import", *files, str(tmp_path / "whole"), "--policy", "lossless")
    assert done.exit_code == 0
    assert "lossy." not in done.stdout
    told = call("export", f"{tmp_path}/lossy@2", str(tmp_path / "out.npz")).stdout
    assert re.search(r"The state was saved lossy: weights are off by \d\.\d\d checkpoint intervals\.", told)
    assert "lossy" not in call("export", f"{tmp_path}/whole@2", str(tmp_path / "all.npz")).stdout.replace(
        str(tmp_path), ""
    )


def test_the_anchor_that_a_save_adds_is_told_beside_its_own_bytes(tmp_path):
    durability = lcstore.Durability(anchor_every=2)
    with lcstore.open(tmp_path / "run", durability=durability) as store:
        saved = [store.save(number, state) for number, state in enumerate(states(5))]
        assert [info.bytes_beside > 0 for info in saved] == [False, False, True, False, True]
        for info in saved:
            own = store.info(info.step).bytes_stored
            assert info.bytes_stored - info.bytes_beside == own
            assert f" {own:,} bytes for" in str(info)
            beside = f"an anchor beside it, {info.bytes_beside:,} bytes"
            assert (beside in str(info)) == (info.bytes_beside > 0)


def test_what_collected_states_leave_does_not_read_like_damage(tmp_path):
    where = str(tmp_path / "run")
    with lcstore.open(where, grace=0) as store:
        store.save(0, {"other": np.zeros(3)})
    with lcstore.open(where) as store:
        store.save(1, {"model": np.ones(3)})
        store.retire_run(1, run_is_dead=True)
        store.collect()
    told = call("verify", where)
    assert told.exit_code == 0
    assert "left by collected states, or of a save under way: harmless" in " ".join(told.stdout.split())
    with lcstore.open(where) as store:
        store.collect()
        assert not [found for found in store.verify().findings if found.check == "orphan"]


def test_a_resume_that_does_not_fit_names_the_state_and_where_others_are(url):
    with lcstore.open(url) as store:
        store.save(1000, {"weight": np.zeros(3), "bias": np.zeros(3)})
        node = store.info(1000).node
    targets = {"model": {"fc.weight": np.zeros((256, 256), np.float32)}}
    with lcstore.open(url) as store:
        for load in (store.resume_into, store.restore_into):
            with pytest.raises(lcstore.InvalidInputError, match="nothing is saved under 'model'") as caught:
                load(None, targets)
            assert f"step 1000 of run 2, node {node}" in str(caught.value)
            assert "`lcstore ls` lists the others" in str(caught.value)
        store.resume_into(50, targets)
        assert targets["model"]["fc.weight"].any()


def test_who_looks_for_a_metric_among_tensors_is_told_where_it_is(url):
    with lcstore.open(url) as store:
        looks = [lambda: [*store.history("loss")], lambda: store.read(50, "loss"), lambda: store[50]["loss"]]
        for look in looks:
            with pytest.raises(lcstore.NotFoundError, match="a metric") as caught:
                look()
        found = eval(re.search(r"\[\(.*\]", str(caught.value))[0], {"store": store})
        assert [step for step, _ in found] == [0, 10, 20, 30, 40, 50]
        assert found[1][1] == 0.5


def test_a_retired_state_is_brought_back_by_its_step(url):
    call("retire", f"{url}@20", "--apply")
    told = said("show", f"{url}@20")
    done = call(*commands_in(told)[0])
    assert "for as long as it stays pinned" in told
    assert "It was retired, and is back as long as it is pinned: unpin hides it again." in done.stdout
    with lcstore.open(url) as store:
        assert store.states()[2].pinned_by == ("",)
        store.retire(30)
        assert store.pin(30) == store.info(30).node
        with pytest.raises(lcstore.NotFoundError, match="no state 31"):
            store.pin(31)


def test_what_is_only_shown_says_would(url):
    with lcstore.open(url) as store:
        store.compact()

        def reports(*, dry_run: bool) -> list[object]:
            found = [
                store.retain("latest:3 | exact-only:every:20", dry_run=dry_run),
                store.retire(40, dry_run=dry_run),
                store.compact(dry_run=dry_run),
                store.collect(dry_run=dry_run),
                store.repair(dry_run=dry_run),
            ]
            return [*found, *found[0].retired]

        shown = [*map(str, reports(dry_run=True))]
        assert [text for text in shown if not text.startswith("would be ")] == []
        assert "3 states kept, 3 let go of, and 1 part of states" in shown[0]
        done = "\n".join(map(str, reports(dry_run=False)))
        assert "would" not in done
        assert "things" not in done


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (
            "maintain {url} --keep latest:3 --grace 0s",
            "lcstore collect {url} --grace 0 --run-is-dead --apply",
        ),
        ("ls {url} --sort loss", "lcstore ls {url} --best METRIC"),
        ("stats {url} --sort bytes", "--json, which prints all"),
        ("show {url} --step 50", "name the state after the store: {url}@STEP"),
        ("pin --run 1 {url}", "lcstore ls {url} --retired --run RUN"),
        (
            "undo {url}@20",
            "lcstore unretire {url}@20 brings it back",
        ),
        ("restore {url}@20", "lcstore.open('{url}').restore(STEP)"),
        ("tag {url} 50 gold", "A state is named so: lcstore tag {url}@50 gold"),
        ("retire {url} 50 --apply", "A state is named so: lcstore retire {url}@50 --apply"),
        ("ls {url} --all", "--retired"),
        ("verify {url} --level full", "restore: every edge leads to the values committed"),
        ("report {url} page.html", "lcstore report {url} -o FILE"),
        ("export {url}@50 a.npz --names model/**", "lcstore export {url}@50 FILE 'model/**'"),
        ("collect {url} --grace 0 --apply", "Next: lcstore collect {url} --grace 0 --run-is-dead --apply"),
        ("cp {url} {other}", "`lcstore export` and `lcstore import` add single states"),
        ("retain {url} --keep latest:1 --yes", "--apply"),
        ("retain {url} --keep latest:1 --dry-run", "leave --apply out"),
        ("import old", "after them the store: lcstore import FILES... STORE"),
    ],
)
def test_options_that_people_look_for_are_answered(tmp_path, typed, hint):
    """By the command to type, in which the store is named as it was typed."""
    url, other = short_urls(tmp_path)
    assert hint.format(url=url) in said(*typed.format(url=url, other=other).split())


def short_urls(folder: Path) -> list[str]:
    """Return two stores of a state each, with names so short that no line of a message breaks them."""
    for name in "ab":
        with lcstore.open(f"memory://{folder.name[-8:]}/{name}") as store:
            store.save(50, {"name": name})
    return [f"memory://{folder.name[-8:]}/{name}" for name in "ab"]


def test_a_store_that_is_named_before_its_files_is_told_the_right_order(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        np.savez(f"step{number}.npz", weight=np.zeros(3))
    for first in ("run", "new"):
        told = said("import", first, "step0.npz", "step1.npz")
        assert f"lcstore import step0.npz step1.npz {first}" in told
    assert call("import", "step0.npz", "step1.npz", "new").exit_code == 0
    assert call("import", "step*.npz", "new").exit_code == 0


def test_the_runs_of_a_store_are_listed(url, tmp_path):
    with lcstore.open(url) as store:
        for step in (70, 80):
            store.save(step, {"other": np.zeros(3)})
    runs = json.loads(call("ls", url, "--runs", "--json").stdout)["runs"]
    assert [(one["run"], one["states"], one["first_step"], one["last_step"]) for one in runs] == [
        (1, 6, 0, 50),
        (2, 2, 70, 80),
    ]
    with lcstore.open(url, "r") as store:
        assert store.steps(run=runs[1]["id"]) == [70, 80]
    assert call("ls", url, "--runs").stdout.split()[:7] == [
        "run",
        "id",
        "states",
        "first",
        "step",
        "last",
        "step",
    ]
    (found,) = json.loads(call("ls", str(tmp_path), "--json").stdout)["stores"]
    assert found["runs"] == 2
    told = call("retire", url, "--run", "2", "--run-is-dead", "--apply").stdout
    assert re.search(r"70 +2 +goes", told)


def test_what_a_difference_is_not_a_number_for_is_counted(tmp_path):
    url = str(tmp_path / "run")
    weight = np.ones((64, 64), np.float32)
    with lcstore.open(url) as store:
        store.save(0, {"model": {"fc.weight": weight}})
        weight[:3] = np.nan
        store.save(1, {"model": {"fc.weight": weight}})
        for a, b in ((0, 1), (1, 0)):
            found = store.diff(a, b)
            assert (found.total.nans, found["model/fc.weight"].nans) == (192, 192)
        assert store.diff(1, 1).total.nans == 0
    assert "192 NaN" in call("diff", f"{url}@0", "@1").stdout


@pytest.mark.parametrize("signal", [KeyboardInterrupt(), SystemExit(143)])
def test_a_signal_is_told_in_one_line_and_in_the_document(url, tmp_path, monkeypatch, signal):
    def interrupted(*_: object, **__: object) -> None:
        raise signal

    monkeypatch.setattr("lcstore.places.whole.copy", interrupted)
    status = 143 if isinstance(signal, SystemExit) else 130
    result = call("cp", url, str(tmp_path / "copy"))
    assert result.exit_code == status
    assert result.stdout == ""
    assert result.stderr.startswith("Interrupted. What was stored is not lost")
    result = call("cp", url, str(tmp_path / "copy"), "--json")
    assert result.exit_code == status
    told = json.loads(result.stdout)
    assert (told["ok"], told["error"]["kind"]) == (False, "interrupted")


def test_the_best_by_a_mode_in_other_words_is_told_how_to_write_it(url):
    with lcstore.open(url) as store:
        for mode, meant in (("maximum", "max"), ("minimize", "min")):
            with pytest.raises(lcstore.InvalidInputError, match=f"say 'best:loss:{meant}'$"):
                store.restore(f"best:loss:{mode}")


def test_what_a_forecast_says_of_a_compaction_names_it(url):
    with lcstore.open(url) as store:
        store.compact()
    shown = call("retire", f"{url}@20").stdout
    assert "More than now" not in shown
    forecast = Forecast(bytes_now=10, bytes_compacted=20, bytes_collected=15, bytes_without=12)
    assert "A compaction would add more than it frees" in [*foreseen(forecast)][1]
    assert len([*foreseen(forecast)]) == 2  # without one it would be more than now, too


def test_a_forecast_says_what_would_be_left_without_merged_edges_where_states_go():
    """Of a few states that stay merges take more than what goes frees, though all is less than now."""
    forecast = Forecast(bytes_now=3200, bytes_compacted=5400, bytes_collected=3000, bytes_without=2500)
    *_, first, without = foreseen(forecast)
    assert str(first).startswith("More at first")
    assert "2.4 KiB would be left" in str(without)
    assert "`--max-bytes 0`" in str(without)
    assert len([*foreseen(replace(forecast, bytes_without=3100))]) == 2


def test_plain_weights_are_said_to_hardly_shrink(tmp_path):
    state = {"thing": np.random.default_rng(0).random((512, 512), np.float32)}
    with (
        lcstore.open(tmp_path / "run") as store,
        pytest.warns(lcstore.UnrecognisedWarning, match="kept bit for bit, and so hardly shrink"),
    ):
        store.save(0, state)


def test_the_command_that_brings_a_state_back_names_that_state(tmp_path):
    url = str(tmp_path / "run")
    for run in range(2):
        with lcstore.open(url) as store:
            for step in range(3):
                store.save(step, {"n": 10 * run + step})
    shown = call("retain", url, "--keep", "latest:1", "--apply").stdout
    (command,) = re.findall(r"lcstore (pin \S+@[0-9a-f]{32})", shown)
    assert call(*command.split()).exit_code == 0
    with lcstore.open(url, "r") as store:
        assert command.rpartition("@")[2] in {one.node for one in store.states()}


def test_the_runs_say_where_they_began_once_what_lay_between_is_collected(tmp_path):
    url, rng, weight = str(tmp_path / "run"), np.random.default_rng(0), np.zeros((64, 64), np.float32)
    for first in (0, 50, 100):
        with lcstore.open(url, grace=0) as store:
            if first:
                store.resume()
            for step in range(first, first + 50, 10):
                weight = weight + rng.standard_normal(weight.shape, np.float32)
                store.save(step, {"weight": weight})
            store.maintain("latest:2 | every:40")
    runs = json.loads(call("ls", url, "--runs", "--json").stdout)["runs"]
    told = [(one["run"], one["from_run"], one["from_step"]) for one in runs]
    assert told == [(1, None, None), (2, 1, 40), (3, 2, 90)]
    assert [one["from_is"] for one in runs] == [None, "before", "retired"]
    with lcstore.open(url, grace=0) as store:
        store.maintain("latest:1 | every:80")
        store.maintain("latest:1 | every:80")
    *_, run = json.loads(call("ls", url, "--runs", "--json").stdout)["runs"]
    assert (run["from_run"], run["from_step"], run["from_is"]) == (2, 80, "before")
    assert call("ls", url, "--runs").stdout.splitlines()[-1].endswith("80 or later")


def test_the_runs_say_where_they_began_though_that_was_let_go_of(url):
    with lcstore.open(url) as store:
        store.rewind(30)
        store.save(40, states(1)[0])
    with lcstore.open(url, "r+") as store:
        store.retire(30)
    run = json.loads(call("ls", url, "--runs", "--json").stdout)["runs"][1]
    assert (run["from_run"], run["from_step"], run["from_is"]) == (1, 30, "retired")
    assert call("ls", url, "--runs").stdout.splitlines()[2].endswith("30, let go of")


def test_the_runs_say_from_which_state_a_fork_went_on(url):
    with lcstore.open(url) as store:
        store.rewind(20)
        store.save(30, states(1)[0])
    runs = json.loads(call("ls", url, "--runs", "--json").stdout)["runs"]
    assert [(one["run"], one["from_run"], one["from_step"]) for one in runs] == [(1, None, None), (2, 1, 20)]
    lines = call("ls", url, "--runs").stdout.splitlines()
    assert lines[2].split()[-2:] == ["1", "20"]
    with lcstore.open(url, "r") as store:
        later = next(state.node for state in store.states() if (state.step, state.run) == (30, 2))
        first = store.info(30, run=1).node
    told = " ".join(call("diff", f"{url}@30", "@30", "--run", "1").stderr.split())
    assert f"both are one state; by id there is also @{later}" in told
    told = call("diff", f"{url}@{first}", f"@{later}").stdout.splitlines()[0]
    assert told.endswith(f"step 30 (run 1, node {first[:8]}) to 30 (run 2, node {later[:8]})")
    assert call("diff", f"{url}@20", f"@{later}").stdout.splitlines()[0].endswith("step 20 to 30")
    assert "one state" not in call("diff", f"{url}@20", f"@{later}").stderr
    assert "one state" not in call("diff", f"{url}@40", "@40").stderr


def test_a_folder_that_may_not_be_entered_is_not_taken_for_one_to_be_made(tmp_path, monkeypatch):
    stat = Path.stat

    def refused(self, **how):
        if self.is_relative_to(tmp_path / "locked"):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return stat(self, **how)

    monkeypatch.setattr(Path, "stat", refused)
    assert _made(open_backend(str(tmp_path / "locked" / "run"), {})) == []
    assert _made(open_backend(str(tmp_path / "new" / "run"), {})) == [tmp_path / "new/run", tmp_path / "new"]
