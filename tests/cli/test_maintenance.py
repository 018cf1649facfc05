"""Maintenance from the command line, and everything that its documentation tells a user to type."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.commands import call, document
from kit.pages import blocks_of

import lcstore
from lcstore.compaction import compact
from lcstore.report.gather import gather
from lcstore.storage import targets
from lcstore.storage.local import LocalBackend
from lcstore.terminal.table import size
from lcstore.track.policy import PRESETS, settled

EVERY = ("compact", "collect", "retain", "retire", "tag", "untag", "pin", "unpin")
KEEP = "latest:3 | every:100"
KEPT = [0, 100, 200, 270, 280, 290]


def fill(url: Path, grace: float | str | None = None) -> str:
    """Save 30 steps: 0, 10, ... 290."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((256, 64), dtype=np.float32)
    with lcstore.open(url, grace=grace, policy=settled(PRESETS["balanced"])) as store:
        for step in range(0, 300, 10):
            weights = weights + random.standard_normal(weights.shape, dtype=np.float32) * np.float32(0.01)
            moment = {"exp_avg": weights * np.float32(0.1)}
            store.save(
                step, {"model": {"w.weight": weights}, "optim": {"state": {0: moment}}, "epoch": step},
                metrics={"loss": abs(step - 150)}, tags=["eval"] if step % 50 == 0 else (),
            )  # fmt: skip
    return str(url)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A store without a grace, and one with a grace of a day; to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    return {"run": fill(folder / "run", grace=0), "slow": fill(folder / "slow")}


@pytest.fixture
def run(filled: dict[str, str], tmp_path: Path) -> str:
    return shutil.copytree(filled["run"], str(tmp_path / "a run"))


@pytest.fixture
def slow(filled: dict[str, str], tmp_path: Path) -> str:
    return shutil.copytree(filled["slow"], str(tmp_path / "slow"))


def steps(url: str, *options: str) -> list[int]:
    return [state["step"] for state in document("ls", url, *options)["states"]]


def node_of(url: str, step: int) -> str:
    return next(s["node"] for s in document("ls", url, "--retired")["states"] if s["step"] == step)


def everything(url: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(url).rglob("*") if path.is_file()}


def values(url: str) -> dict[int, bytes]:
    with lcstore.open(url, "r") as store:
        return {step: store.read(step, "model/w.weight").tobytes() for step in store.steps()}


@pytest.mark.parametrize("exact", [False, True])
def test_a_compaction_is_advised_for_what_it_gains(exact, tmp_path):
    """A restore of an exact state does not go along its path, and so gains nothing by a compaction."""
    url, random = str(tmp_path / "run"), np.random.default_rng(0)
    weights = random.standard_normal((128, 128), dtype=np.float32)
    with lcstore.open(url, policy="lossless") as store:
        for step in range(8):
            weights = weights + random.standard_normal(weights.shape, dtype=np.float32) * np.float32(0.001)
            store.save(step, {"w.weight": weights}, exact=exact and step == 7)
    assert ("restoring the latest reads" in call("stats", url).stdout) is not exact
    for command in (["compact", url, "--dry-run"], ["compact", url]):
        told = " ".join(call(*command).stdout.split())
        now, then = re.search(r"restoring the latest reads (\S+ \S+) -> (\S+ \S+)", told).groups()
        assert (now == then) is exact


def test_what_restoring_the_latest_reads_is_never_nothing(tmp_path):
    with lcstore.open(tmp_path / "run") as store:
        store.save(0, {"n": 1})
    assert "restoring the latest" not in call("compact", str(tmp_path / "run"), "--dry-run").stdout


def test_compact_and_collect_leave_what_is_kept_as_it_was(run):
    before = values(run)
    retained = document("retain", run, "--keep", "latest:3", "--keep", "EveryNSteps(100)", "--apply")
    assert len(retained["retired"]) == 24
    report = document("compact", run)
    assert report["added"] == report["planned"] > 0
    assert report["longest_after"] < report["longest_before"] == 30
    assert steps(run) == KEPT
    size = document("stats", run)["bytes_stored"]["total"]
    assert document("collect", run, "--apply")["deleted_states"] > 0
    assert document("stats", run)["bytes_stored"]["total"] < size
    assert values(run) == {step: before[step] for step in KEPT}
    assert call("verify", run, "--level", "checksum").exit_code == 0


def test_showing_a_plan_changes_nothing(run):
    before = everything(run)
    for arguments in (
        ["compact", run, "--dry-run"],
        ["retain", run, "--keep", KEEP],
        ["retire", f"{run}@150"],
        ["collect", run],
    ):
        assert call(*arguments).exit_code == 0
        assert call(*arguments, "--json").exit_code == 0
    assert everything(run) == before


def test_compact_says_what_it_did(run):
    call("retain", run, "--keep", KEEP, "--apply")
    result = call("compact", run, "--dry-run")
    assert "Nothing was changed" in result.stdout
    command = shlex.split(result.stdout.rpartition("lcstore ")[2])
    result = call(*command)
    assert result.exit_code == 0
    assert "30 -> " in result.stdout
    assert f"lcstore collect {shlex.quote(run)}" in result.stdout
    assert "0 planned" in call("compact", run).stdout


@pytest.mark.parametrize("command", ["retain", "maintain"])
def test_a_store_that_stays_above_its_budget_is_noted(run, command):
    shown = call(command, run, "--keep", "budget:20KB").stdout
    assert "Note: Budget('20kB') counts the data of the states that it keeps" in " ".join(shown.split())
    assert "Note: " not in call(command, run, "--keep", "budget:1GB").stdout
    told = document(command, run, "--keep", "budget:20KB")
    assert "Budget('20kB')" in (told.get("retained") or told)["notes"][-1]


def test_compact_keeps_to_its_budget(run):
    everything_ = document("compact", run, "--dry-run")
    bounded = document("compact", run, "--max-bytes", "10kB", "--max-seconds", "1h", "--workers", "1")
    assert bounded["bytes_written"] < everything_["bytes_written"]
    assert 0 < bounded["planned"] < everything_["planned"]
    late = document("compact", run, "--max-seconds", "0s")
    assert late["added"] == 0 < late["planned"]
    assert "The time ran out" in call("compact", run, "--max-seconds", "0s").stdout


@pytest.mark.parametrize("most", [3_000, 12_000, 30_000])
def test_no_more_is_written_than_a_budget_says_records_counted(run, most):
    before = everything(run)
    report = document("compact", run, "--max-bytes", str(most))
    more = {key: data for key, data in everything(run).items() if key not in before}
    assert sum(map(len, more.values())) <= report["bytes_written"] <= most
    assert report["added"] + len(report["skipped"]) == report["planned"]
    assert bool(more) == (report["added"] > 0)
    assert all("more than is left of the bytes" in why for _, why in report["skipped"])
    assert call("verify", run, "--level", "checksum").exit_code == 0


def test_what_a_budget_leaves_of_a_plan_is_shown(run):
    nothing = call("compact", run, "--max-bytes", "10", "--dry-run").stdout
    assert "Nothing within --max-bytes 10." in nothing
    assert "is compact" not in nothing
    shown = call("compact", run, "--max-bytes", "10kB", "--dry-run").stdout
    report = document("compact", run, "--max-bytes", "10kB", "--dry-run")
    assert f"{report['planned']} planned" in shown
    assert "to be written, about" in shown
    command = shlex.split(shown.rpartition("lcstore ")[2])
    assert command == ["compact", run, "--max-bytes", "10kB"]
    assert document(*command)["planned"] == report["planned"]


@pytest.mark.parametrize("command", ["compact", "retire"])
def test_a_rule_given_to_what_takes_none_is_told_where_it_belongs(command, run):
    result = call(command, run, "--keep", KEEP)
    assert result.exit_code == 2
    assert "lcstore retain" in " ".join(result.stderr.replace("│", " ").split())
    assert steps(run) == list(range(0, 300, 10))


def test_what_an_interrupted_save_left_is_counted_in_bytes(tmp_path):
    url = tmp_path / "s"
    with lcstore.open(url, grace=0) as store:
        store.save(0, {"epoch": 0, "w": np.ones(10)})
        left = "data/" + "5" * 32 + "/0/plain-float64.set/c.0"
        store.backend.put(left, b"12345")
        shown = store.collect(dry_run=True)
        done = store.collect()
    assert (shown.deleted_objects, shown.deleted_bytes) == (1, 5)
    assert (done.deleted_objects, done.deleted_bytes) == (1, 5)
    assert not (url / left).exists()


@pytest.mark.parametrize(
    "arguments", [["compact", "{}", "--dry-run"], ["collect", "{}"], ["retain", "{}", "--keep", KEEP],
                  ["retire", "{}@150"]],
)  # fmt: skip
def test_every_dry_run_shows_what_becomes_of_the_bytes(arguments, run):
    words = [word.format(run) for word in arguments]
    told = document(*words)["forecast"]
    there = sum(len(data) for data in everything(run).values())
    assert told["bytes_now"] == pytest.approx(there, rel=0.02)
    assert told["bytes_compacted"] > told["bytes_now"]
    assert told["bytes_collected"] < told["bytes_compacted"]
    shown = call(*words).stdout
    lines = ["now", "once compacted, about", "once collected after that, about"]
    if told["bytes_without"] < told["bytes_collected"]:
        lines += ["once collected, not compacted"]
    for line in lines:
        assert line in shown


def test_a_dry_run_says_where_the_disk_lacks_room(run, monkeypatch):
    place = str(Path(run).parent)

    def shown():
        return (call("maintain", url, "--keep", KEEP).stdout for url in (run, place))

    assert all("lacks room" not in text for text in shown())
    monkeypatch.setattr(compact, "bytes_free", lambda backend: 4096)
    alone, below = shown()
    assert "room for a compaction" in alone
    assert "The disk lacks room for all of that" in alone
    assert f"lacks room to compact 1 store: {run}. Make some first: lcstore stats {place}" in below


def test_a_night_names_the_stores_in_which_the_disk_lacked_room(run, monkeypatch):
    place = str(Path(run).parent)
    shutil.copytree(run, f"{place}/an other")
    monkeypatch.setattr(compact, "bytes_free", lambda backend: 4096)
    told = call("maintain", place, "--keep", KEEP, "--apply")
    assert told.exit_code == 1
    full = f"The disk lacked room in 2 stores: {run}, {place}/an other. Make some, then do the same again"
    assert f"{full}: lcstore stats {place}" in told.stdout
    assert f"Next: lcstore cp {shlex.quote(run)} TO" in told.stdout


def test_a_dry_run_says_where_the_disk_lacks_room_for_records(run, monkeypatch):
    def shown():
        words = ("--keep", KEEP, "--max-bytes", "0")
        alone, below = (call("maintain", place, *words).stdout for place in (run, str(Path(run).parent)))
        return " ".join(alone.split()), " ".join(below.split())

    assert all("for the records" not in text for text in shown())
    assert document("retain", run, "--keep", KEEP)["forecast"]["lacking"] == 0
    monkeypatch.setattr(targets, "bytes_free", lambda backend: 4096)
    told = document("retain", run, "--keep", KEEP)
    # Two blocks are for the records of a collection.
    assert told["forecast"]["lacking"] == 4096 * (len(told["retired"]) + 1)
    alone, below = shown()
    assert f"The disk lacks {size(told['forecast']['lacking'])} for the records" in alone
    assert f"lacks room for the records that let go of states in 1 store: {run}. Make" in below
    # Where nothing goes, no record does.
    assert document("retain", run, "--keep", "latest:999")["forecast"]["lacking"] == 0


def test_a_dry_run_says_where_this_user_may_change_nothing(run, monkeypatch):
    closed, access = str(Path(run) / "nodes"), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != closed and access(path, mode))
    assert document("retain", run, "--keep", KEEP)["forecast"]["closed"] == closed
    alone = call("maintain", run, "--keep", KEEP).stdout
    below = call("maintain", str(Path(run).parent), "--keep", KEEP).stdout
    assert f"This user may change nothing in {closed}" in " ".join(alone.split())
    assert f"This user may change nothing in 1 store of these, the first at {closed}" in " ".join(
        below.split()
    )
    monkeypatch.undo()
    assert document("retain", run, "--keep", KEEP)["forecast"]["closed"] == ""


def test_what_was_done_is_not_foretold(run):
    assert document("retain", run, "--keep", KEEP, "--apply")["forecast"] is None
    assert "once compacted" not in call("compact", run).stdout


def test_space_of_a_dead_run_is_free_at_once(slow):
    call("retain", slow, "--keep", KEEP, "--apply")
    words = ["collect", slow, "--grace", "0", "--run-is-dead"]
    refused = call(*words, "--apply")
    assert refused.exit_code == 1
    assert "may be alive" in refused.stderr
    shown = call(*words)
    assert shown.exit_code == 0
    assert "Note: now --apply would be refused: the run may be alive" in shown.stdout
    assert "once compacted" in shown.stdout
    assert call("collect", slow, "--grace", "0", "--apply").exit_code == 1
    for path in Path(slow).rglob("*"):
        os.utime(path, (1e9, 1e9))
    shown = call(*words).stdout
    assert "Nothing was saved for" in shown
    command = shlex.split(shown.rpartition("lcstore ")[2])
    assert command[1:] == [*words[1:], "--apply"]
    assert document(*command)["deleted_objects"] > 0
    assert document("collect", slow)["waiting"] == 0


def test_collect_waits_for_the_grace(slow):
    call("retain", slow, "--keep", KEEP, "--apply")
    would = call("collect", slow)
    assert "24 h" in would.stdout
    assert f"lcstore collect {shlex.quote(slow)} --apply" in would.stdout
    longer = call("collect", slow, "--grace", "48h").stdout
    assert "48 h" in longer
    assert f"lcstore collect {shlex.quote(slow)} --grace 48h --apply" in longer
    assert "24 h" in call("collect", slow, "--apply").stdout
    stats = document("stats", slow)
    assert stats["retired"] == 24
    assert stats["condemned"] > 0
    assert 0 < stats["condemned_bytes"] < stats["bytes_stored"]["total"]
    assert document("collect", slow, "--apply")["condemned"] == 0
    assert steps(slow, "--retired") == list(range(0, 300, 10))


def test_what_was_let_go_of_is_counted_as_that_with_its_exact_value(tmp_path):
    url, rng = str(tmp_path / "run"), np.random.default_rng(0)
    with lcstore.open(url, grace=0, durability="none", threads=1) as store:
        for step in range(4):
            store.save(step, {"weights": rng.standard_normal((64, 64)).astype(np.float32)}, exact=True)
        value = store.stats().bytes_stored["exact"] // 3
        store.retain("every:3")
        stored = store.stats().bytes_stored
        assert stored["exact"] == pytest.approx(value, rel=0.01)
        assert stored["retired"] > 2 * value
        store.retain("exact-only:tagged:none")
        stored, before = store.stats().bytes_stored, stored
        assert stored["exact"] == 0
        assert stored["retired"] == before["retired"] + before["exact"]
        store.compact()
        assert store.collect().deleted_bytes >= stored["retired"]
        assert store.stats().bytes_stored["retired"] == 0


def test_what_was_stripped_is_counted_as_raw_no_more(tmp_path):
    url = str(tmp_path / "run")
    with lcstore.open(url, grace=0, threads=1) as store:
        for step in range(4):
            moments = {"state": {"#0": {"exp_avg": np.full(4096, step + 1.0, np.float32)}}}
            store.save(step, {"model": {"w": np.ones(4096, np.float32)}, "optim": moments})
        raw = store.stats().bytes_raw
        assert raw["total"] == 4 * 2 * 4096 * 4
        store.retain("latest:9 | strip:optim/**:latest:1")
        without = raw["total"] - 3 * 4096 * 4  # the latest is whole
        assert store.stats().bytes_raw == {
            "anchor": 4096 * 4, "delta": without - 4096 * 4, "total": without
        }  # fmt: skip
    with lcstore.open(url, "r") as store:
        (layout,) = store.backend.list("layouts")
        (tmp_path / "run" / layout).write_bytes(b"?")
        for copy in (tmp_path / "run" / "copies").rglob("*"):
            copy.is_file() and copy.unlink()
        found = store.stats()
        assert layout in found.unreadable
        assert found.bytes_raw == raw


def test_nothing_to_collect(run):
    for apply in ([], ["--apply"]):
        said = call("collect", run, *apply).stdout
        assert "Nothing to collect" in said
        assert "lcstore compact" not in said


@pytest.fixture
def chained(tmp_path):
    """The URL of a store that collects at once, of which all but the last state were let go."""
    rng, weight = np.random.default_rng(0), np.zeros((64, 64), np.float32)
    with lcstore.open(tmp_path / "chained", grace=0, durability="none", threads=1) as store:
        for step in range(8):
            weight = weight + rng.standard_normal(weight.shape).astype(np.float32)
            store.save(step, {"model": {"weight": weight}})
        assert store.retain("latest:1").retired
    return str(tmp_path / "chained")


def test_where_kept_states_need_what_was_let_go_of_a_collect_says_what_frees_it(chained):
    for apply in ([], ["--apply"]):
        report = document("collect", chained, *apply)
        assert (report["deleted_objects"], report["kept_states"], report["retired_states"]) == (0, 1, 7)
        said = call("collect", chained, *apply).stdout
        assert "Nothing to collect: kept states need all that is there." in said
        assert f"First: lcstore compact {chained}" in said
        assert f"lcstore cp {chained} TO; then lcstore rm {chained} --apply" in said
    assert call("compact", chained).exit_code == 0
    assert document("collect", chained, "--apply")["retired_states"] == 0
    assert steps(chained, "--retired") == [7]


def test_where_no_compaction_frees_what_was_let_go_of_none_is_advised(tmp_path):
    url, rng = str(tmp_path / "run"), np.random.default_rng(0)
    one, other = rng.standard_normal((2, 128, 128)).astype(np.float32)

    def moved(weight):
        return weight + rng.standard_normal(weight.shape).astype(np.float32)

    with lcstore.open(url, grace=0, durability="none", threads=1) as store:
        store.save(0, {"weights": {"one": one, "other": other}})
        # Two states come from step 1: its edge is stored once, and merged with theirs it would be twice.
        one = moved(one)
        store.save(1, {"weights": {"one": one, "other": other}})
        store.save(2, {"weights": {"one": one, "other": moved(other)}})
        store.rewind(1)
        store.save(3, {"weights": {"one": one, "other": moved(other)}})
        store.retire(1)
        store.compact()
        store.collect()
        assert store.stats().retired == 1
        assert store.compact(dry_run=True).planned == 0
        assert gather(store).forecast.can_be_freed == 0
    for apply in ([], ["--apply"]):
        said = call("collect", url, *apply).stdout
        assert "Nothing more can be freed: kept states are read over 1 state let go of" in said
        assert "lcstore compact" not in said
        assert "lcstore cp" not in said
    assert "1 state, over which kept states are read: nothing can be freed" in call("stats", url).stdout


def test_a_retired_state_is_hidden_and_a_pin_brings_it_back(run):
    shown = call("retire", f"{run}@150", "--reason", "spike")
    assert "Nothing was changed" in shown.stdout
    assert 150 in steps(run)
    result = call(*shlex.split(shown.stdout.rpartition("lcstore ")[2]))
    assert result.exit_code == 0
    assert 150 not in steps(run)
    assert 150 in steps(run, "--retired")
    assert call("show", f"{run}@150").exit_code == 1
    assert document("stats", run)["states"] == 29
    pin = shlex.split(result.stdout.rpartition("lcstore ")[2])
    assert document("show", pin[1])["retired"]
    assert "is back" in call(*pin, "--by", "alice").stdout
    assert document("show", f"{run}@150")["pinned_by"] == ["alice"]
    assert "pinned" in call("ls", run).stdout
    assert "hidden again" in call("unpin", f"{run}@150").stdout
    assert 150 not in steps(run)


def test_it_is_too_late_to_pin_what_is_being_collected(slow):
    node = node_of(slow, 150)
    call("retain", slow, "--keep", KEEP, "--apply")
    call("collect", slow, "--apply")
    assert "being collected" in call("ls", slow, "--retired").stdout
    result = call("pin", f"{slow}@{node}")
    assert result.exit_code == 1
    assert "too late" in result.stderr
    assert node not in [pin["node"] for pin in document("pin", slow)["pins"]]


@pytest.mark.parametrize("apply", [[], ["--apply"]])
def test_what_is_pinned_is_not_retired_before_it_is_unpinned(run, apply):
    call("pin", f"{run}@150")
    result = call("retire", f"{run}@150", *apply)
    assert result.exit_code == 1
    command = result.stderr.split("`")[1]
    assert command == f"lcstore unpin {shlex.quote(run + '@150')}"
    assert call(*shlex.split(command)[1:]).exit_code == 0
    assert call("retire", f"{run}@150", "--apply").exit_code == 0


def test_the_latest_of_a_run_goes_once_the_run_was_rewound(run):
    result = call("retire", f"{run}@290", "--apply")
    assert result.exit_code == 1
    assert "store.rewind(step)" in result.stderr
    with lcstore.open(run) as store:
        store.save(285, store.rewind(280))
    assert call(*shlex.split(result.stderr.split("`")[1])[1:]).exit_code == 0
    assert 290 not in steps(run)


def test_states_of_one_step_are_told_apart_by_their_runs(run):
    with lcstore.open(run) as store:
        store.resume(270)
        other = store.save(280, {"other": np.zeros(3)}).node
        store.save(285, {"other": np.zeros(3)})
    shown = call("retire", f"{run}@280").stdout
    assert f"Step 280 of run 2 (node {other}) would be hidden" in shown
    named = next(line for line in shown.splitlines() if line.startswith("Run 1 saved step 280 too"))
    assert call("show", shlex.split(named.rpartition(": ")[2])[0]).exit_code == 0
    table = call("retain", run, "--keep", "latest:1").stdout.splitlines()
    assert table[0].split()[:2] == ["step", "run"]
    assert sorted(line.split()[1] for line in table if line.split()[:1] == ["280"]) == ["1", "2"]
    shown = call("retire", run, "--run", "1", "--after", "270", "--run-is-dead").stdout
    result = call(*shlex.split(shown.rpartition("lcstore ")[2]))
    assert "28 states of the run kept, 2 retired" in result.stdout
    assert steps(run) == [*range(0, 290, 10), 285]


def test_of_two_runs_the_wrong_one_goes_with_its_latest_state(run):
    with lcstore.open(run) as other:
        for step in (7, 17):
            info = other.save(step, {"other": np.zeros(3)})
        run_id = other.info(info.node).run_id
    refused = call("retire", f"{run}@17").stderr
    assert refused.count("`") == 4
    named = refused.split("`")[3]
    after = ["--after", "7", "--run-is-dead", "--apply"]
    assert shlex.split(named) == ["lcstore", "retire", run, "--run", run_id, *after]
    shown = call("retire", run, "--run", run_id, "--reason", "twice")
    assert "may be alive" in shown.stdout
    assert 17 in steps(run)
    assert "--run-is-dead" in call("retire", run, "--run", "2", "--apply").stderr
    shown = call("retire", run, "--run", run_id, "--reason", "begun twice", "--run-is-dead")
    assert "0 states of the run would be kept, 2 would be retired." in shown.stdout
    result = call(*shlex.split(shown.stdout.rpartition("lcstore ")[2]))
    assert "0 states of the run kept, 2 retired" in result.stdout
    assert steps(run) == list(range(0, 300, 10))
    assert "the only states" in call("retire", run, "--run", "1", "--run-is-dead").stderr
    said = call("retire", run, "--run", "2").stderr
    assert "its runs are 1 (" in said
    assert call(*shlex.split(said.split("`lcstore ")[1].partition("`")[0])).exit_code == 0


def test_a_rule_lets_go_of_nothing_that_is_pinned_or_the_latest(run):
    call("pin", f"{run}@150")
    call("retain", run, "--keep", "latest:1", "--apply")
    assert steps(run) == [150, 290]


def test_retain_says_what_keeps_each(run):
    keep = "latest:2 | best:1:loss | strip:optim/**:latest:1 | exact-only:latest:1"
    result = call("retain", run, "--keep", keep)
    for word in ("LatestN(2)", "BestN(1, 'loss')", "latest of its run", "without first-float32", "--apply"):
        assert word in result.stdout
    report = document("retain", run, "--keep", keep, "--apply")
    assert report["kept"] == [150, 280, 290]
    assert steps(run) == [150, 280, 290]
    assert len(document("retain", run, "--keep", keep)["retired"]) == 0


@pytest.mark.parametrize("kept", [3, 30])
def test_only_whole_states_are_said_to_come_back_and_those_do(slow, kept):
    with lcstore.open(slow, "r") as store:
        whole = {step: store.restore(step) for step in store.steps()}
    said = call("retain", slow, "--keep", f"latest:{kept} | strip:optim/**:latest:1", "--apply").stdout
    assert "Pools that are stripped, and exact values that are let go of, do not come back." in said
    assert ("What is retired is hidden now" in said) == ("To bring one back" in said) == (kept == 3)
    if kept == 3:
        named = said.split("To bring one back")[1].partition(": lcstore ")[2].splitlines()[0]
        assert "such as step 260:" in said
        assert call(*shlex.split(named)).exit_code == 0
        with lcstore.open(slow, "r") as store:
            back = store.restore(260)
        np.testing.assert_array_equal(back["model"]["w.weight"], whole[260]["model"]["w.weight"])
        moment = back["optim"]["state"][0]["exp_avg"]
        np.testing.assert_array_equal(moment, whole[260]["optim"]["state"][0]["exp_avg"])
    with (
        lcstore.open(slow, "r") as store,
        pytest.raises(lcstore.NotFoundError, match=r"the rest with names=\['model', 'epoch'\]"),
    ):
        store.restore(280)


def test_a_policy_for_a_metric_that_no_state_has(run):
    result = call("retain", run, "--keep", "best:1:accuracy:max", "--apply")
    assert result.exit_code == 1
    assert "'loss'" in result.stderr
    assert steps(run) == list(range(0, 300, 10))


def test_tags(run):
    assert document("tag", run)["tags"]["eval"]["step"] == 250
    assert "before" not in call("tag", f"{run}@20", "gold").stdout
    assert "(it found step 20 before)" in call("tag", f"{run}@30", "gold").stdout
    assert document("tag", run)["tags"]["gold"] == {
        "step": 30, "node": node_of(run, 30), "steps": [20, 30],
    }  # fmt: skip
    assert document("show", f"{run}@gold")["tags"] == ["gold"]
    assert "gold" in call("tag", run).stdout
    assert document("untag", run, "gold")["steps"] == [20, 30]
    assert "gold" not in document("tag", run)["tags"]
    assert "gold" not in call("ls", run).stdout
    result = call("untag", run, "gold")
    assert result.exit_code == 1
    assert "there is no tag" in result.stderr


def test_a_tag_with_a_slash_is_found_as_the_command_says(run):
    remote = "memory://tags/with-a-slash"
    with lcstore.open(remote) as store:
        store.save(20, {"step": 20})
    for url, said in ((run, shlex.quote(f"{run}@exp/one")), (remote, f"{remote} --at exp/one")):
        found = call("tag", f"{url}@20", "exp/one").stdout.split("it is found by: lcstore ")[1]
        assert found.strip() == f"show {said}"
        assert document(*shlex.split(found))["step"] == 20
    for command in (
        ("diff", f"{run}@exp/one", "@50"),
        ("pin", f"{run}@exp/one"),
        ("unpin", f"{run}@exp/one"),
    ):
        assert call(*command).exit_code == 0
    assert "there is no state 'exp/two'" in call("show", f"{run}@exp/two").stderr


def test_pins_of_all_stores_below_a_place_are_listed(tmp_path):
    for name in ("a", "b", "c"):
        with lcstore.open(tmp_path / name, threads=1) as store:
            store.save(10, {"n": 1})
            if name != "b":
                store.pin(10, by="paper")
    shown = call("pin", str(tmp_path)).stdout
    assert re.search(rf"^{tmp_path}/a +10 +paper +[0-9a-f]+$", shown, re.MULTILINE)
    assert f"2 pins in 2 of 3 stores below {tmp_path}. To take one away: lcstore unpin URL@STEP" in shown
    told = {
        one["url"]: [pin["by"] for pin in one["pins"]] for one in document("pin", str(tmp_path))["stores"]
    }
    assert told == {f"{tmp_path}/a": ["paper"], f"{tmp_path}/b": [], f"{tmp_path}/c": ["paper"]}
    (tmp_path / "b" / "lcstore.json").write_text("{")
    (tmp_path / "b" / "copies" / "lcstore.json").unlink()
    broken = call("pin", str(tmp_path))
    assert broken.exit_code == 1
    assert "stores that could not be listed: 1" in broken.stderr
    assert "2 pins in 2 of 3 stores" in broken.stdout


def test_a_night_that_a_target_refuses_names_the_command_that_looks_why(tmp_path, monkeypatch):
    with lcstore.open(tmp_path / "a run", threads=1) as store:
        store.save(0, {"n": 0})
        store.save(10, {"n": 1})
    put = LocalBackend.put

    def refuse(backend: LocalBackend, key: str, data: Any) -> Any:
        if key.startswith("retired/"):
            raise lcstore.StorageError("could not write: permission denied", key=key, reason="denied")
        return put(backend, key, data)

    monkeypatch.setattr(LocalBackend, "put", refuse)
    step = f"Next: lcstore doctor {shlex.quote(f'{tmp_path}/a run')}"
    for place in (tmp_path, tmp_path / "a run"):
        told = call("maintain", str(place), "--keep", "latest:1", "--apply")
        assert told.exit_code == 1
        assert step in told.stdout + told.stderr


def test_pins_of_several(run):
    for who in ("alice", "bob"):
        assert document("pin", f"{run}@20", "--by", who)["by"] == who
    assert [pin["by"] for pin in document("pin", run)["pins"]] == ["alice", "bob"]
    assert call("unpin", f"{run}@20", "--by", "carol").exit_code == 1
    assert document("unpin", f"{run}@20", "--by", "bob")["deleted"] == 1
    assert "alice" in call("pin", run).stdout
    alone = document("unpin", f"{run}@20")
    assert (alone["deleted"], len(alone["by"])) == (1, 1)
    for who in ("alice", "bob"):
        call("pin", f"{run}@20", "--by", who)
    call("pin", f"{run}@20")
    assert "3 pins (without a name, of 'alice', of 'bob')" in call("unpin", f"{run}@20").stdout
    assert "no pins" in call("pin", run).stdout


def test_stats_recommend_no_compaction_that_helps_nothing(tmp_path):
    url, rng = str(tmp_path / "small"), np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(url) as store:
        for step in range(4):
            weight = weight + np.float32(1e-3) * rng.standard_normal((64, 64), dtype=np.float32)
            store.save(step, {"model": {"w.weight": weight}})
        store.retain("latest:2")
        forecast = store.forecast()
    assert forecast.bytes_collected > forecast.bytes_without
    assert document("stats", url)["compaction"]["planned"] > 0
    assert "lcstore compact" not in call("stats", url).stdout


def test_stats_say_what_a_compaction_would_do(run):
    plan = document("stats", run)["compaction"]
    assert plan["longest_after"] < plan["longest_before"] == 30
    assert "compaction" in call("stats", run).stdout
    call("compact", run)
    assert "compaction" not in call("stats", run).stdout


def test_a_short_grace_is_refused(slow):
    result = call("collect", slow, "--grace", "1h", "--apply")
    assert result.exit_code == 1
    assert "86400 s" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["compact"], ["retain", "x"], ["retain", "x", "--keep", "foo:3"],
     ["compact", "x", "--max-bytes", "10 parsec"], ["compact", "x", "--max-seconds", "soon"],
     ["compact", "x", "--workers", "0"], ["collect", "x", "--grace", "soon"],
     ["collect", "x", "--run-is-dead"], ["retire", "x"], ["retire", "x@1", "--run", "2"],
     ["retire", "x@1", "--run-is-dead"],
     ["retire", "x@1", "--keep", "latest:3"], ["tag", "x@1"], ["tag", "x", "y"], ["untag", "x"],
     ["tag", "x@1", "latest"], ["unpin", "x"], ["pin", "x", "--by", "y"]],
)  # fmt: skip
def test_wrong_usage(arguments):
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [["compact", "{}"], ["collect", "{}"], ["retire", "{}@1"], ["retain", "{}", "--keep", "latest:1"],
     ["tag", "{}"], ["tag", "{}@1", "gold"], ["untag", "{}", "gold"], ["pin", "{}"], ["pin", "{}@1"],
     ["unpin", "{}@1"]],
)  # fmt: skip
def test_no_store(arguments, tmp_path):
    result = call(*(word.format(tmp_path / "none") for word in arguments))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "lcstore doctor" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", EVERY)
def test_help(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout


def snippets(language: str) -> list[str]:
    return [block.code for block in blocks_of("docs/maintenance.md", language)]


def test_the_commands_of_the_document(filled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("runs/gpt", "sweep/a", "sweep/b"):
        shutil.copytree(filled["slow"], Path(place))
    lines = [line for snippet in snippets("sh") for line in snippet.splitlines() if line]
    assert len(lines) > 10
    # Showing comes before doing, and bringing a state back before the collect that makes it too late.
    does = [("--apply" in line) * (1 + bool(re.search("collect|maintain", line))) for line in lines]
    order = {line: max(how, "pin runs/gpt@270" in line) for line, how in zip(lines, does, strict=True)}
    order |= {line: -1 for line in lines if "e1d30bf9" in line}  # the run is none of the latest states kept
    lines.sort(key=order.__getitem__)
    with lcstore.open("runs/eve") as eve:
        for step in range(3):
            eve.save(step, {"w": np.zeros(3)}, metrics={"acc": step / 3})
    with lcstore.open("runs/gpt") as other:
        run_id = other.info(other.save(5, {"other": np.zeros(3)}).node).run_id
    for line in lines:
        if "--run" in line:
            for path in Path().rglob("*"):
                os.utime(path, (1e9, 1e9))
        words = shlex.split(line)
        assert words[0] == "lcstore"
        words = [run_id if word == "e1d30bf9" else word for word in words]
        result = call(*words[1:])
        assert result.exit_code == 0, (line, result.output)


def test_the_nightly_line_of_the_document(filled, tmp_path):
    shutil.copytree(filled["slow"], tmp_path / "runs" / "gpt")
    (line,) = snippets("cron")
    command = " ".join(line.split()[5:]).replace("/data", shlex.quote(str(tmp_path)))
    command = command.replace("/opt/lcstore/bin/lcstore", f"{shlex.quote(sys.executable)} -m lcstore.cli")
    command = re.sub(r"(?<!\\)%.*", "", command).replace(r"\%", "%")  # as cron does

    def night(status: int) -> dict[str, Any]:
        done = subprocess.run(["sh", "-c", command], timeout=120, env=_environment(), capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")
        written = max((tmp_path / "runs").glob("maintenance-????-??-??.json"))
        told: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
        assert told["ok"] == (not status)
        return told

    told = night(0)
    assert told["collected"]["kept_states"] == 30
    assert told["compacted"]["added"] > 0
    (tmp_path / "runs" / "gpt" / "lcstore.json").unlink()
    assert list(night(1)["problems"]) == ["verify"]
    logged = (tmp_path / "runs" / "maintenance.log").read_text(encoding="utf-8")
    assert "Warning: the store's own record is damaged or missing" in logged


def test_the_python_of_the_document(filled, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(filled["slow"], Path("runs/gpt"))
    first, *others, below, _ = snippets("python")  # tests/cluster runs the last one
    space: dict[str, Any] = {}
    exec(compile(first, "first snippet", "exec"), space)
    assert "states would go" in capsys.readouterr().out
    for other in others:
        if "run_is_dead" in other:
            for path in Path("runs").rglob("*"):
                os.utime(path, (1e9, 1e9))
        exec(compile(other, "snippet", "exec"), space)
    with lcstore.open("runs/gpt", "r") as store:
        assert store.info(210).run > store.info(290).run  # rewound
    shutil.copytree(filled["run"], tmp_path / "runs" / "sweep" / "small")
    (tmp_path / "runs" / "notes").mkdir()
    capsys.readouterr()
    exec(compile(below, "snippet", "exec"), space)
    assert [Path(one.url).name for one in space["tended"] if one.ok] == ["gpt", "small"]
    assert capsys.readouterr().out == ""
    bad = next((tmp_path / "runs" / "gpt" / "nodes").iterdir())
    bad.write_bytes(b"{}")
    shutil.rmtree(tmp_path / "runs" / "gpt" / "copies")
    exec(compile(below, "snippet", "exec"), space)
    assert [Path(one.url).name for one in space["tended"] if one.ok] == ["small"]
    assert bad.name in capsys.readouterr().out


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(lcstore.__file__).parents[1])}


def test_of_many_states_neighbours_that_go_alike_are_one_row(tmp_path):
    url = str(tmp_path / "run")
    with lcstore.open(url, durability="none") as store:
        for step in range(70):
            store.save(step, {"x": np.float32(step)})
    shown = call("retain", url, "--keep", "latest:3 | every:40").stdout
    assert re.search(r"^ *1-39 +goes +39 states: --json has each$", shown, re.MULTILINE)
    assert re.search(r"^ *40 +kept +EveryNSteps\(40\) +[0-9a-f]{32}$", shown, re.MULTILINE)
    assert len(shown.splitlines()) < 25
    assert len(document("retain", url, "--keep", "latest:3 | every:40")["retired"]) == 65


def test_a_compaction_without_time_reports_what_restores_cost_as_before(slow: str) -> None:
    with lcstore.open(slow) as store:
        planned = store.compact(dry_run=True)
        assert planned.planned > 0
        assert planned.latest_after is not None
        assert planned.latest_before is not None
        assert planned.latest_after < planned.latest_before
        done = store.compact(max_seconds=0)
        assert (done.added, done.latest_after) == (0, planned.latest_before)
        done = store.compact()
        assert (done.added > 0, done.latest_after) == (True, store.compact(dry_run=True).latest_before)


def test_damage_that_no_state_needs_stops_a_copy_until_it_is_condemned_as_the_message_says(
    slow: str, tmp_path: Path
) -> None:
    with lcstore.open(slow) as store:
        store.retain("latest:3")
        store.compact()
    for victim in sorted(Path(slow, "data").rglob("c.*")):
        whole = victim.read_bytes()
        victim.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        if call("verify", slow, "--level", "checksum").exit_code == 0:
            break
        victim.write_bytes(whole)
    refused = " ".join(call("cp", slow, str(tmp_path / "copy")).output.split())
    assert f"is passed over after `lcstore collect {slow} --apply`" in refused
    assert call("collect", slow, "--apply").exit_code == 0
    assert call("cp", slow, str(tmp_path / "copy")).exit_code == 0
