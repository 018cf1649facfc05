"""`lcstore maintain`: one command for every night."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from kit.clocks import put_forward
from kit.commands import call, document
from kit.looks import contents, steps

import lcstore
from lcstore.places import below
from lcstore.terminal.table import size

KEEP = "latest:2 | every:40"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    url, random = tmp_path_factory.mktemp("maintain") / "a run", np.random.default_rng(0)
    weights = random.standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(url, grace=0, threads=1) as store:
        for step in range(0, 100, 10):
            weights = weights + random.standard_normal((64, 64)).astype(np.float32) * np.float32(0.01)
            store.save(step, {"model": {"w.weight": weights}})
    return url


@pytest.fixture
def url(saved: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(saved, tmp_path / "a run"))


@pytest.mark.filterwarnings("ignore::lcstore.NotFiniteWarning")
def test_a_night_says_which_state_stays_as_the_last_that_is_finite(url):
    with lcstore.open(url) as store:
        weights = store.resume()["model"]["w.weight"]
        for step in range(100, 150, 10):
            store.save(step, {"model": {"w.weight": weights * np.float32(np.nan)}})
    for more, would in ([], "would be "), (["--apply"], ""):
        said = call("maintain", url, "--keep", "latest:2", *more)
        assert said.exit_code == 0
        assert f"3 states {would}kept, 12 {would}retired" in said.stdout
        assert "Note: step 90 stays" in said.stdout
        assert "step 90 stays" in call("retain", url, "--keep", "latest:2").stdout
    assert steps(url) == [90, 130, 140]


def test_it_shows_first_and_does_what_it_showed(url):
    before = contents(url)
    shown = call("maintain", url, "--keep", KEEP)
    assert shown.exit_code == 0
    assert contents(url) == before
    would = "4 states would be kept, 6 would be retired"
    for words in (would, "once collected after that", "Verified: 10 states"):
        assert words in shown.stdout
    command = shlex.split(shown.stdout.rpartition("lcstore ")[2])
    assert command[-1] == "--apply"
    done = document(*command)
    assert done["ok"]
    assert (len(done["retained"]["retired"]), done["collected"]["deleted_objects"]) == (6, 0)
    assert done["compacted"]["added"] == done["compacted"]["planned"]
    assert steps(url) == [0, 40, 80, 90]
    again = document(*command)
    assert again["collected"]["deleted_objects"] > 0
    assert again["retained"]["retired"] == []
    call(*command)
    quiet = call("maintain", url, "--keep", KEEP).stdout
    assert "Nothing to do." in quiet
    assert "--apply" not in quiet
    assert call("verify", url, "--level", "restore").exit_code == 0


def test_what_is_shown_is_within_its_bounds_and_done_by_the_command_that_it_names(url):
    unbound = document("maintain", url, "--keep", KEEP)
    most = unbound["compacted"]["bytes_written"] * 6 // 10
    how = "maintain", url, "--keep", KEEP, "--max-bytes", f"{most} B", "--max-seconds", "1h", "--workers", "1"
    shown = call(*how).stdout
    assert "up to " in shown
    command = shlex.split(shown.rpartition("lcstore ")[2])
    assert command == [*how, "--apply"]
    told = document(*how)
    forecast, written = told["forecast"], told["compacted"]["bytes_written"]
    assert 0 < written <= most
    assert forecast["bytes_compacted"] - forecast["bytes_now"] == written
    assert 0 < document(*command)["compacted"]["bytes_written"] <= most
    below = call("maintain", str(Path(url).parent), *how[2:]).stdout
    assert below.rstrip().endswith(f"{shlex.join(how[4:])} --apply")


def test_each_part_is_reported(url):
    done = call("maintain", url, "--keep", KEEP, "--apply", "--max-bytes", "1MB", "--max-seconds", "1h")
    verified = "Verified: 4 states", f"For every byte: lcstore verify {shlex.quote(url)} --level checksum"
    for words in ("deleted", "4 states kept, 6 retired", "most edges for a restore", *verified):
        assert words in done.stdout


def test_a_night_says_that_its_time_ran_out(url):
    bounds = "maintain", url, "--keep", KEEP, "--max-seconds"
    assert "The time ran out" in call(*bounds, "0s", "--apply").stdout
    assert "The time ran out" not in call(*bounds, "1h").stdout
    assert "The time ran out" not in call(*bounds, "1h", "--apply").stdout


@pytest.mark.parametrize("apply", [[], ["--apply"]])
def test_damage_is_status_1_and_lets_nothing_go(url, apply):
    bad = next(Path(url, "nodes").iterdir())
    bad.write_bytes(b"{}")
    shutil.rmtree(Path(url, "copies"))
    before = contents(url)
    result = call("maintain", url, "--keep", KEEP, *apply)
    assert result.exit_code == 1
    assert "collect failed" in result.stderr
    assert "verify failed" in result.stderr
    assert bad.name in result.stderr
    assert contents(url) == before
    told = document("maintain", url, "--keep", KEEP, *apply, status=1)
    assert not told["ok"]
    assert list(told["problems"]) == ["collect", "verify"]
    assert told["retained"] is None


def aged(url: Path, hours: float) -> None:
    """Have what is condemned be so for longer."""
    for path in (url / "condemned").iterdir():
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 3600 * hours))


def test_a_dry_run_tells_what_goes_now_and_when_the_rest_goes(tmp_path, monkeypatch):
    random, url = np.random.default_rng(0), tmp_path / "a"
    weight = np.zeros((64, 64), np.float32)
    with lcstore.open(url, grace="6h", threads=1) as store:
        for step in range(4):
            weight = weight + random.standard_normal((64, 64)).astype(np.float32)
            store.save(step, {"model": {"w.weight": weight}})

    def told() -> list[str]:
        """Return what `collect` and `maintain` say of the store, and `maintain` of all below its folder."""
        keep = ("--keep", "latest:1")
        said = (
            call("collect", str(url)),
            call("maintain", str(url), *keep),
            call("maintain", str(tmp_path), *keep),
        )
        return [" ".join(one.stdout.split()) for one in said]

    def shown(command: str) -> tuple[int, int, int]:
        keep = ("--keep", "latest:1") if command == "maintain" else ()
        report = document(command, str(url), *keep)
        report = report.get("collected", report)
        return report["deleted_bytes"], report["waiting_bytes"], report["condemned"]

    assert "is condemned by a run an eighth of the grace later" in told()[2]
    with lcstore.open(url, "r+") as store:
        store.retain("latest:1")
        store.compact()
    assert (shown("maintain")[2], shown("collect")[2] > 0) == (0, True)  # it may be brought back yet
    _, alone, below = told()
    assert "let go of lately: spared, so that `lcstore unretire` can bring them back" in alone
    assert "let go of lately: spared, so that they can be brought back" in below
    put_forward(monkeypatch, 3600)
    assert not any("let go of lately" in said for said in told())
    for command in ("maintain", "collect"):
        freed, waiting, condemned = shown(command)
        assert (freed, waiting > 0, condemned > 0) == (0, True, True)
    collect, alone, below = told()
    first = f"{size(waiting)} go later: a run with --apply condemns them, and one that runs 6 h after that"
    assert first in alone
    assert first in collect
    assert f"{size(waiting)} more go a grace after they are condemned" in below
    done = document("collect", str(url), "--apply")
    assert (done["deleted_bytes"], done["waiting_bytes"], done["condemned"]) == (0, waiting, condemned)
    aged(url, 1)
    assert shown("maintain") == shown("collect") == (0, waiting, 0)
    later = f"{size(waiting)} go later: they are condemned, and all old enough in 5 h"
    assert all(later in said for said in told()[:2])
    aged(url, 5)
    assert shown("maintain") == shown("collect") == (waiting, 0, 0)
    collect, alone, below = told()
    assert "go later" not in collect + alone
    aged(url, -24 * 40)  # a clock was wrong as they were condemned, and was set right
    for said in told()[:2]:
        assert f"{size(waiting)} go later: they are condemned, and all old enough in 40 days" in said
        assert "The time of a condemnation lies 40 days ahead: a clock was wrong, or is" in said
    aged(url, 24 * 40)
    assert f"{size(waiting)} 0 0 1 store" in below
    assert "more go" not in below
    assert document("collect", str(url), "--apply")["deleted_bytes"] == waiting


def test_a_dry_run_below_a_prefix_tells_the_bytes_of_each_store_and_of_all(tmp_path):
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        with lcstore.open(tmp_path / name, threads=1) as store:
            for step in range(4):
                weight = random.standard_normal((64, 64)).astype(np.float32)
                store.save(
                    step, {"model": {"w.weight": weight}}, metrics={"loss": 1.0} if name == "a" else None
                )
    keep = ("--keep", "latest:1 | best:1:loss")
    alone = [document("maintain", str(tmp_path / name), *keep)["forecast"] for name in ("a", "b")]
    told = [one["report"]["forecast"] for one in document("maintain", str(tmp_path), *keep)["stores"]]
    # What is free on the disk is another number a moment later.
    assert all(one.pop("room") > 0 for one in (*alone, *told))
    assert told == alone
    said = " ".join(call("maintain", str(tmp_path), *keep).stdout.split())
    now, merged, later, without = (
        sum(one[f"bytes_{when}"] for one in alone) for when in ("now", "compacted", "collected", "without")
    )
    once = f"about {size(merged)} once compacted, and {size(later)} once collected after that"
    assert f"In all {size(now)} now, {once}." in said
    assert ("would be left: `--max-bytes 0`" in said) is (without < later)
    assert re.search(rf"Note: \S*{tmp_path.name}/b: .*no state has", said)
    assert "In all" not in call("maintain", str(tmp_path), *keep, "--apply").stdout
    keep = ("--keep", "best:1:loss")
    said = " ".join(call("maintain", str(tmp_path), *keep).stdout.split())
    known = size(document("maintain", str(tmp_path / "a"), *keep)["forecast"]["bytes_now"])
    assert f"In the 1 store of 2 whose bytes are known, {known} now" in said


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("apply", [[], ["--apply"]])
@pytest.mark.filterwarnings("default::lcstore.FallbackWarning")
@pytest.mark.parametrize("what", ["chunk", "short", "record", "store"])
def test_damage_that_can_be_made_again_is_no_good_night(url, what, apply, below):
    """All of it is done, and it says as `verify` does that something is damaged, and what mends it."""
    of_anchor = max(Path(url, "data").rglob("weights*/c.0"), key=lambda path: path.stat().st_size)
    hit = {  # what no collect takes away
        "chunk": of_anchor,
        "short": of_anchor,
        "record": next(Path(url, "nodes").iterdir()),
        "store": Path(url, "lcstore.json"),
    }[what]
    data = bytearray(hit.read_bytes())
    hit.unlink()
    if what == "short":
        hit.write_bytes(data[: len(data) // 2])
    elif what == "record":
        data[200] ^= 4
        hit.write_bytes(data)
    place = str(Path(url).parent) if below else url
    assert call("verify", place).exit_code == 1
    told = document("maintain", place, "--keep", "every:10", *apply, status=1)
    report = told["stores"][0]["report"] if below else told
    assert not told["ok"]
    assert [report["compacted"] is None, report["forecast"] is None] == [False, bool(apply)]
    shown = call("maintain", place, "--keep", "every:10", *apply)
    assert shown.exit_code == 1
    assert "1 object to be made again" in " ".join(shown.output.split())
    assert f"Next: lcstore repair {shlex.quote(url)}" in shown.output
    assert call("repair", url, "--apply").exit_code == 0
    assert call("maintain", place, "--keep", "every:10", *apply).exit_code == 0


@pytest.mark.parametrize("below", [False, True])
def test_bytes_that_flipped_are_told_with_what_mends_them(url, below):
    for path in (Path(url) / "data").rglob("*.*/c.0"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    for path in (Path(url) / "data").rglob("p.*"):
        path.unlink()
    place = str(Path(url).parent) if below else url
    result = call("maintain", place, "--keep", KEEP, "--apply")
    assert result.exit_code == 1
    assert f"Next: lcstore repair {shlex.quote(url)}" in result.output
    told = document("maintain", place, "--keep", "latest:1", "--apply", status=1)
    why = told["stores"][0]["problem"] if below else told["problems"]["compact"]
    assert re.search(r"hash differs .*: run `lcstore repair [^`]*` \[step \d+, object 'data/", why)


@pytest.mark.parametrize("command", [("maintain", "--keep", KEEP), ("collect",)], ids=["maintain", "collect"])
def test_commands_that_an_error_names_can_be_pasted(url, command):
    """They lacked the store."""
    for folder in ("nodes", "copies"):
        for path in Path(url, folder).glob("*.json"):
            if path.name != "lcstore.json":
                path.write_bytes(path.read_bytes()[:-9])
    for place in [url, str(Path(url).parent)] if command[0] == "maintain" else [url]:
        result = call(command[0], place, *command[1:], "--json")
        assert result.exit_code == 1
        assert re.search(rf"run `lcstore repair '(file://)?{url}'`", result.output)
        assert not re.search(r"`lcstore \w+`", result.output)


def test_parts_that_go_of_states_are_not_counted_as_states(url):
    keep = ("--keep", f"{KEEP} | strip:model/**:latest:1")
    retained = document("maintain", url, *keep)["retained"]["retired"]
    states, parts = (sum((one["what"] == "state") is whole for one in retained) for whole in (True, False))
    assert (states, parts) == (6, 3)
    row = call("maintain", str(Path(url).parent), *keep).stdout.splitlines()[1].split()
    assert row[-2] == str(states)


def test_a_store_without_the_metric_keeps_all_and_says_so_while_others_are_tended(tmp_path):
    for name, metrics in (("acc", {"acc": 0.5}), ("loss", {"loss": 1.0}), ("none", None)):
        with lcstore.open(tmp_path / name, threads=1) as store:
            for step in range(3):
                store.save(step, {"w": np.zeros(3)}, metrics=metrics)
    told = document("maintain", str(tmp_path), "--keep", "best:acc:max", "--apply", status=1)
    problems = {Path(one["url"]).name: one["problem"] for one in told["stores"]}
    assert problems == {
        "acc": None,
        "loss": "nothing is let go of: no state has the metric 'acc'; the metrics there are: 'loss'",
        "none": "the rule names no state to keep: no state has the metric 'acc'; the metrics there are: none",
    }
    assert [len(steps(str(tmp_path / name))) for name in problems] == [1, 3, 3]


def test_a_night_tells_the_tags_of_each_store_that_go_and_what_stores_say_alike_once(tmp_path):
    """Of all notes the first alone was shown, and tagged states went unsaid."""
    for name in ("a", "b", "c", *(f"tagged{number:02}" for number in range(12))):
        with lcstore.open(tmp_path / name, threads=1) as store:
            for step in range(3):
                store.save(step, {"w": np.zeros(3)})
            if name.startswith("tagged"):
                store.tag(f"gold {name}", 1)
    out = call("maintain", str(tmp_path), "--keep", "latest:1 | best:loss").stdout
    notes = [line for line in out.splitlines() if line.startswith("Note: ")]
    (metric,) = (note for note in notes if "no state has the metric 'loss'" in note)
    assert f"{tmp_path}/a and 14 more: no state" in metric
    tags = [note for note in notes if "tags of states that go" in note]
    assert [f"'gold tagged{number:02}'" in note for number, note in enumerate(tags)] == [True] * 10 + [False]
    assert tags[-1] == "Note: tags of states that go: so in 2 other stores (--json)"


def test_stores_that_are_left_out_are_tended_by_lines_of_their_own(tmp_path):
    for name, metric in (("a", "loss"), ("eve/b", "acc"), ("eve/sub/c", "acc"), ("evelyn", "loss")):
        with lcstore.open(tmp_path / name, threads=1) as store:
            for step in range(3):
                store.save(step, {"w": np.zeros(3)}, metrics={metric: 1.0})
    rest = ("maintain", str(tmp_path), "--keep", "best:loss")
    for globs in (["eve"], ["eve/"], ["eve/*"], ["*/b", "*/c"]):
        told = document(*rest, *(word for glob in globs for word in ("--leave-out", glob)))
        assert [Path(one["url"]).name for one in told["stores"]] == ["a", "evelyn"]
    again = call(*rest, "--leave-out", "eve", "--leave-out", "*/c").stdout.split("To do it: ")[1]
    assert call(*shlex.split(again)[1:]).exit_code == 0
    assert call("maintain", str(tmp_path / "eve"), "--keep", "best:acc:max", "--apply").exit_code == 0
    assert [len(steps(str(tmp_path / name))) for name in ("a", "evelyn", "eve/b", "eve/sub/c")] == [1] * 4


def test_what_is_left_out_is_named_as_a_shell_completes_it_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "eve/b", "x[1]"):
        with lcstore.open(f"runs/{name}", threads=1) as store:
            store.save(0, {"w": np.zeros(3)})

    def left(place, glob):
        told = document("maintain", place, "--keep", "latest:1", "--leave-out", glob)
        return {Path(one["url"]).name for one in told["stores"]}

    for place in ("runs", "./runs/", str(tmp_path / "runs"), f"file://{tmp_path}/runs"):
        for glob in (
            "eve",
            "./eve/",
            f"{tmp_path}/runs/eve",
            f"file://{tmp_path}/runs/eve",
            f"{place.rstrip('/')}/eve/*",
            "./runs/eve/b",
        ):
            assert left(place, glob) == {"a", "x[1]"}
        assert left(place, "x[1]") == {"a", "b"}
    (tmp_path / "runs" / "runs").mkdir()
    shutil.copytree(tmp_path / "runs" / "eve", tmp_path / "runs" / "runs" / "eve" / "c")
    assert left("runs", "runs/eve") == {"a", "b", "x[1]"}  # the path below the place comes first
    error = document("maintain", "runs", "--keep", "latest:1", "--leave-out", "eve/bb", status=1)["error"]
    assert error["message"].endswith(": give a path below it, as 'eve/b'")
    error = document("maintain", "runs/a", "--keep", "latest:1", "--leave-out", "b", status=1)["error"]
    assert "give a path" not in error["message"]
    error = document("maintain", "runs", "--keep", "latest:1", "--leave-out", "/elsewhere/aa", status=1)[
        "error"
    ]
    assert error["message"].endswith("as 'a'")


def test_the_outer_one_of_stores_in_each_other_is_left_out_by_its_own_path(tmp_path, url):
    outer = shutil.copytree(url, tmp_path / "outer")
    shutil.copytree(url, outer / "inner")
    for path in (".", str(outer), "outer"):
        with contextlib.chdir(tmp_path if path == "outer" else outer):
            tended = lcstore.maintain_below(outer, "latest:1", leave_out=[path], dry_run=True)
        assert [Path(one.url).name for one in tended] == ["inner"]


def test_what_would_be_left_out_has_to_be_there(tmp_path, url):
    """A name that is mistyped would have a store tended by a rule that is not its own."""
    shutil.copytree(url, tmp_path / "runs" / "a")
    rest = ("--keep", "latest:1", "--apply", "--leave-out", "b", "--leave-out", "a")
    runs = str(tmp_path / "runs")
    error = document("maintain", runs, *rest, status=1)["error"]
    none = f"no store below {runs} is called 'b', so none is left out by that"
    assert error["message"] == f"{none}: give a path below it, as 'a'"
    assert error["next"] == f"lcstore ls {runs}"
    error = document("maintain", url, *rest, status=1)["error"]
    assert error["message"] == f"{url} is a store: nothing can be left out"
    assert len(steps(url)) == len(steps(str(tmp_path / "runs" / "a"))) > 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["--keep", "newest:3"], ["--keep", "best:3"], ["--keep", "latest:1", "--max-bytes", "x"]],
)
def test_wrong_usage(arguments):
    assert call("maintain", "x", *arguments).exit_code == 2


def test_a_night_that_is_cut_off_tells_what_it_found(tmp_path, saved, caplog):
    for name in ("a", "b", "c"):
        shutil.copytree(saved, tmp_path / "runs" / name)
        for record in [*Path(tmp_path, "runs", name, "nodes").iterdir()]:
            record.write_bytes(b"damaged")

    def cut(phase: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with caplog.at_level("WARNING", "lcstore"), pytest.raises(KeyboardInterrupt):
        lcstore.verify_below(tmp_path / "runs", on_progress=cut)
    (told,) = [record.getMessage() for record in caplog.records]
    about, bad = told.split("; of those that were done, not good: ")
    assert about.endswith("runs: cut off after 2 of 3 stores")
    assert len({*bad.split(", ")} & {str(tmp_path / "runs" / name) for name in "abc"}) == 2


@pytest.mark.parametrize(
    "command", [["verify", "{}"], ["maintain", "{}", "--keep", "latest:1"], ["cp", "{}", "{}-copies"]]
)
def test_a_command_that_is_cut_off_gives_what_came_of_the_stores_before(
    command, tmp_path, saved, monkeypatch
):
    for name in ("a", "b", "c"):
        shutil.copytree(saved, tmp_path / "runs" / name)
    whole = below.carried_out

    def cut(tasks, client):
        yield from islice(whole(tasks, client), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(below, "carried_out", cut)
    told = document(*(word.format(tmp_path / "runs") for word in command), status=130)
    assert (told["ok"], told["error"]["kind"]) == (False, "interrupted")
    done = {Path(one["url"]).name for one in told["stores"] if one["ok"] and one["report"]}
    assert len(done & {"a", "b", "c"}) == 2


def test_no_store(tmp_path):
    result = call("maintain", str(tmp_path / "none"), "--keep", "latest:1", "--apply")
    assert result.exit_code == 1
    assert not list(tmp_path.iterdir())


def test_a_foreign_file_is_for_no_repair(url, tmp_path):
    Path(url, "nodes", "READ ME").write_text("not a record")
    assert "no repair can mend" in call("repair", url).stdout
    for of in (url, str(tmp_path)):
        result = call("maintain", of, "--keep", KEEP)
        assert result.exit_code == 1
        assert "move this file out of the store" in result.output
        assert f"Next: lcstore verify {shlex.quote(url)}" in result.output
        assert "lcstore repair" not in result.output
    assert "Move the files out of the store that are not its own" in call("verify", url).stdout


def test_a_store_that_is_deleted_while_a_night_goes_on_is_told_as_such(tmp_path):
    """It was told that the first save creates one."""
    for name in ("a", "b"):
        with lcstore.open(tmp_path / name, threads=1) as store:
            store.save(0, {"n": 0})

    def delete(one: below.Tended[lcstore.MaintainReport]) -> None:
        for name in {"a", "b"} - {Path(one.url).name}:
            shutil.rmtree(tmp_path / name, ignore_errors=True)

    tended = lcstore.maintain_below(tmp_path, "latest:1", on_done=delete)
    assert all(one.ok for one in tended)
    (gone,) = (one for one in tended if one.is_gone)
    assert "was a store when this began, and is gone: moved or deleted meanwhile" in gone.wrong


def test_a_store_that_is_deleted_meanwhile_fails_no_night_and_all_of_them_do(tmp_path, monkeypatch):
    """There is nothing to mend; where all are gone, the disk may be."""
    tend = below._tended

    def first(url, *how):
        if "gone" in Path(url).name:
            shutil.rmtree(url)
        return tend(url, *how)

    monkeypatch.setattr(below, "_tended", first)
    for names, status in ((("gone", "stays"), 0), (("gone1", "gone2"), 1)):
        place = tmp_path / str(status)
        for name in names:
            with lcstore.open(place / name, threads=1) as store:
                store.save(0, {"n": 0})
        result = call("maintain", str(place), "--keep", "latest:1", "--apply")
        assert result.exit_code == status, result.output
        assert "is gone: moved or deleted meanwhile" in " ".join(result.output.split())
        said = "1 good, 0 not, 1 gone" if not status else "0 good, 2 not"
        assert f"2 stores below {place}: {said}." in " ".join(result.output.split())
