"""`lcstore repair`, and what `lcstore verify` takes besides."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from kit.commands import call, document
from kit.looks import contents

import lcstore
from lcstore.format.keyforms import STRAY
from lcstore.track.policy import PRESETS, settled


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    url = tmp_path_factory.mktemp("repair") / "a run"
    with lcstore.open(url, durability="none") as store:
        for step in (0, 10, 20):
            store.save(
                step, {"model": {"w": np.full((8, 8), step, np.float32)}}, tags=["last"] * (step == 20)
            )
    return url


@pytest.fixture
def broken(saved: Path, tmp_path: Path) -> Path:
    """A copy of the store whose last record is damaged."""
    url = tmp_path / "broken"
    shutil.copytree(saved, url)
    record = next((url / "nodes").glob(f"{20:019d}*"))
    record.write_bytes(record.read_bytes()[:-1])
    return url


@pytest.mark.parametrize(
    "name", ["edges/notes.txt", "edges/My notes.txt", "nodes/notes.txt", "retired/n.txt"]
)
def test_a_stray_file_is_to_be_moved_out_whatever_command_meets_it(saved, tmp_path, name):
    url = tmp_path / "stray"
    shutil.copytree(saved, url)
    (url / name).parent.mkdir(exist_ok=True)
    (url / name).write_text("mine")
    for command in (["verify"], ["repair"], ["collect"], ["cp", str(tmp_path / "copy")]):
        result = call(command[0], str(url), *command[1:])
        assert result.exit_code == 1
        assert "move this file out of the store" in result.output
        assert not {"lcstore show", "lcstore repair"} & set(re.findall("lcstore [a-z]+", result.output))
    found = document("verify", str(url), status=1)["findings"]
    assert [(one["key"], one["next"]) for one in found] == [(name, None)]
    if " " not in name:  # reading passes over what no key can be
        told = document("show", str(url), status=1)["error"]
        assert (told["message"], told["key"], told["next"]) == (STRAY, name, None)


def test_nothing_is_missed_of_states_that_no_kept_one_needs(tmp_path):
    url = tmp_path / "run"
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(url, durability=lcstore.Durability(parity="all")) as store:
        for step in (0, 10, 20):
            store.save(step, {"model": {"w": weights * (1 + step / 1000)}})
        store.rewind(10)
        store.save(30, {"model": {"w": weights * 1.03}})
        nodes = {state.step: state.node for state in store.states()}
        store.retire(20)
        store.retire(0)
    for step in (0, 20):
        (url / "copies" / f"{nodes[step]}.json").unlink()
    for parity in url.glob("data/*/0/*/p.*"):
        parity.unlink()
    told = document("verify", str(url), status=1)["findings"]
    # Steps 10 and 30 are restored over the edge of step 0; nothing is over that of step 20.
    assert {one["step"] for one in told if one["check"] == "rebuild"} == {0, 10, 30}
    assert [one["key"] for one in told if one["check"] == "copy"] == [f"copies/{nodes[0]}.json"]
    assert all(one["severity"] == "info" for one in told if one["step"] == 20)


def test_what_is_lost_of_states_that_were_let_go_of_is_no_loss_and_told_so(tmp_path):
    url = tmp_path / "run"
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(url, durability="none", policy=settled(PRESETS["balanced"])) as store:
        for step in range(0, 90, 10):
            store.save(step, {"model": {"w": weights * (1 + step / 1000)}})
        for step in range(20, 80, 10):
            store.retire(step)
        store.compact()
    records = {step: next((url / "nodes").glob(f"{step:019d}*")).read_bytes() for step in (10, 50)}
    edges = {step: json.loads(record)["edge"]["id"] for step, record in records.items()}
    shutil.rmtree(url / "data" / edges[50])
    told = call("verify", str(url)).stdout
    assert "Damaged: 1 error" in told
    assert "As far as was looked at, every state that is kept can be restored: none needs what is dam" in told
    shutil.rmtree(url / "data" / edges[10])
    assert "can be restored: none" not in call("verify", str(url)).stdout


def test_a_repair_that_would_leave_nothing_says_what_to_do_first(saved, tmp_path, broken):
    url = tmp_path / "lost"
    shutil.copytree(saved, url)
    for layout in (url / "layouts").iterdir():
        layout.unlink()
    advice = "A copy of the store brings back what it has, before any repair: lcstore cp COPY {} --check"
    assert f"No state would be left. {advice.format(url)}" in call("repair", str(url)).stdout
    assert f"No state looks whole.\n{advice.format(url)}" in call("verify", str(url)).stdout
    partly = call("repair", str(broken)).stdout
    assert "No state would be left" not in partly
    assert advice.format(broken) in partly
    assert advice.format(broken) in call("verify", str(broken)).stdout


def test_nothing_to_repair(saved):
    before = contents(saved)
    result = call("repair", str(saved), "--apply")
    assert result.exit_code == 0
    assert "Nothing to repair at level checksum: 3 states" in result.stdout
    assert "Nothing to repair: 3 states" in call("repair", str(saved), "--level", "restore").stdout
    assert contents(saved) == before


def test_what_a_deeper_look_would_repair_is_repaired_by_the_command_it_names(broken):
    said = " ".join(call("repair", str(broken), "--level", "restore").stdout.split())
    assert f"To do it: lcstore repair {broken} --level restore --apply" in said
    assert f"To do it: lcstore repair {broken} --apply" in " ".join(
        call("repair", str(broken)).stdout.split()
    )


def test_it_shows_what_becomes_of_the_bytes_where_that_is_known(saved, broken, tmp_path):
    assert document("repair", str(saved))["forecast"]["bytes_now"] > 0
    assert document("repair", str(broken), status=1)["forecast"] is None
    url = tmp_path / "flipped"
    shutil.copytree(saved, url)
    chunk = max((url / "data").rglob("c.0"), key=lambda path: path.stat().st_size)
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    told = document("repair", str(url), status=1)["forecast"]
    assert 0 < told["bytes_collected"] < told["bytes_now"]


def test_it_says_before_it_does(broken):
    before = contents(broken)
    result = call("repair", str(broken))
    assert result.exit_code == 1
    assert "Nothing was changed" in result.stdout
    assert "--apply" in result.stdout
    assert "latest of run 1" in result.stdout
    assert contents(broken) == before
    said = document("repair", str(broken), status=1)
    assert (said["ok"], said["dry_run"], said["latest"]) == (False, True, 10)
    assert [(loss["step"], loss["what"]) for loss in said["lost"]] == [(20, "state")]


def test_it_does_and_is_done(broken):
    assert call("repair", str(broken), "--apply").exit_code == 1
    assert call("verify", str(broken), "--level", "restore").exit_code == 0
    assert document("repair", str(broken), "--apply")["actions"] == []
    (aside,) = (broken / "quarantine" / "nodes").iterdir()
    told = document("stats", str(broken))
    assert (told["quarantined"], told["quarantined_bytes"]) == (1, aside.stat().st_size)
    assert "set aside by a repair: yours to delete" in call("stats", str(broken)).stdout
    with lcstore.open(broken) as store:
        assert store.steps() == [0, 10]
        store.resume()
        store.save(30, {"model": {"w": np.ones((8, 8), np.float32)}})


def test_a_store_that_cannot_be_opened_is_repaired(broken):
    (broken / "lcstore.json").write_bytes(b"{")
    with pytest.raises(lcstore.CorruptionError):
        lcstore.open(broken)
    call("repair", str(broken), "--apply")
    with lcstore.open(broken) as store:
        assert store.latest_step() == 10


@pytest.mark.parametrize("level", ["structure", "checksum", "decode", "restore"])
def test_every_level(saved, broken, level):
    assert document("verify", str(saved), "--level", level)["level"] == level
    assert document("verify", str(broken), "--level", level, status=1)["lost"] == [20]
    assert "lcstore repair" in call("verify", str(broken), "--level", level).stdout
    assert document("repair", str(broken), "--level", level, status=1)["level"] == level


def test_samples_and_time(saved):
    whole = document("verify", str(saved), "--level", "checksum")
    parts = [document("verify", str(saved), "--level", "checksum", "--sample", f"{n}/3") for n in (1, 2, 3)]
    assert sum(part["objects"] for part in parts) == whole["objects"]
    short = document("verify", str(saved), "--level", "restore", "--max-seconds", "0.001")
    assert short["objects"] + short["skipped"] == whole["objects"]
    assert short["complete"] == (short["skipped"] == 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sample", "0/3"],
        ["--sample", "4/3"],
        ["--sample", "3"],
        ["--sample", "a/b"],
        ["--max-seconds", "0"],
    ],
)
def test_wrong_usage(saved, arguments):
    assert call("verify", str(saved), *arguments).exit_code == 2


def test_no_store(tmp_path):
    result = call("repair", str(tmp_path / "none"), "--apply")
    assert result.exit_code == 1
    assert "there is no store" in result.stderr
    assert not (tmp_path / "none").exists()


def test_damage_that_costs_nothing_yet_is_told_and_mended(tmp_path):
    url = tmp_path / "a run"
    with lcstore.open(url) as store:
        for step in range(3):
            store.save(step, {"model": {"w": np.full((8, 8), step + 1.5, np.float32)}})
    chunk = max(url.glob("data/*/0/weights-float32.exact/c.0"))
    chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    found = call("verify", str(url), "--level", "checksum")
    assert found.exit_code == 1
    assert "Everything can be restored" in found.stdout
    assert f"Next: lcstore repair '{url}'" in found.stdout
    found = call("verify", str(tmp_path), "--level", "checksum")
    assert found.exit_code == 1
    assert f"Next: lcstore verify --level checksum '{url}'" in found.stdout
    assert call("repair", str(url)).exit_code == 1
    assert call("repair", str(url), "--apply").exit_code == 0
    assert call("repair", str(url), "--apply").exit_code == 0
    found = call("verify", str(url), "--level", "checksum")
    assert found.exit_code == 0
    assert "1 object that a repair set aside" in found.stdout


def test_a_level_that_reads_no_bytes_says_no_more_than_it_saw(saved, tmp_path):
    url = tmp_path / "run"
    with lcstore.open(url) as store:
        for step in range(3):
            store.save(step, {"model": {"w": np.full((8, 8), step + 1.5, np.float32)}})
    max(url.glob("data/*/0/weights-float32.exact/c.0")).unlink()
    hint = f"For every byte: lcstore verify {url} --level checksum"
    told = " ".join(call("verify", str(url)).stdout.split())
    assert "As far as was looked at, everything can be restored" in told
    assert hint in told
    told = " ".join(call("verify", str(url), "--level", "checksum").stdout.split())
    assert ". Everything can be restored" not in told
    assert "As far as" not in told
    assert "For every byte" not in told


def test_verify_takes_the_same_times_as_other_commands(saved):
    assert document("verify", str(saved), "--max-seconds", "2h")["complete"]
    assert call("verify", str(saved), "--max-seconds", "soon").exit_code == 2


def test_a_state_without_its_moments_is_no_whole_one(tmp_path):
    url, rng = tmp_path / "run", np.random.default_rng(0)
    with lcstore.open(url, durability="none") as store:
        for step in (0, 10):
            w, m = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
            store.save(step, {"model": {"w.weight": w}, "optim": {"state": {0: {"exp_avg": m}}}})
    assert "in part" not in call("ls", str(url)).stdout
    chunk = max(url.glob("data/*/0/first-float32.set/c.0"), key=lambda path: path.stat().st_mtime_ns)
    chunk.write_bytes(bytes(chunk.stat().st_size))
    assert call("repair", str(url), "--apply").exit_code == 1
    lines = call("ls", str(url)).stdout.splitlines()
    assert ["in part" in line for line in lines] == [False, False, True]
    assert [state["without"] for state in document("ls", str(url))["states"]] == [[], ["first-float32"]]
    assert "first-float32: let go of, or lost to damage" in call("show", f"{url}@10").stdout
    with lcstore.open(url, "r") as store, pytest.raises(lcstore.NotFoundError, match="lost to damage"):
        store.restore(10)


def test_a_repair_that_loses_a_state_says_so_by_its_status(broken):
    assert call("repair", str(broken), "--apply").exit_code == 1
    assert call("repair", str(broken), "--apply").exit_code == 0


def _of_report(url: Path, tmp_path: Path) -> str:
    return " ".join(call("report", str(url), "-o", str(tmp_path / "r.html")).stdout.split())


def test_after_a_repair_that_keeps_states_in_part_it_is_told_which(tmp_path):
    """All that is promised is there, so it is good; that the latest does not restore by itself is told."""
    url = tmp_path / "run"
    rng = np.random.default_rng(0)
    with lcstore.open(url) as store:
        for step in range(4):
            arrays = [rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2)]
            store.save(
                step, {"model": {"weight": arrays[0]}, "optim": {"state": {0: {"exp_avg": arrays[1]}}}}
            )
        assert store.verify().stripped == ()
        edge = store._index.record(store.info(3).node).edge.id
    for chunk in (url / "data" / edge).glob("0/first-*/c.*"):
        chunk.unlink()
    call("repair", str(url), "--apply")
    told = " ".join(call("verify", str(url)).stdout.split())
    assert "Good: 4 states" in told
    assert "Of step 3 a part was let go of" in told
    assert "the latest whole one is step 2." in told
    report = document("verify", str(url))
    assert (report["stripped"], report["good"], report["lost"]) == ([[3, 3]], 2, [])
    assert "Of step 3 a part was let go of" in _of_report(url, tmp_path)
    kept = [path for path in (url / "copies").iterdir() if path.is_file()]
    kept[0].write_bytes(b"{")
    told = [" ".join(call("verify", str(url)).stdout.split()), _of_report(url, tmp_path)]
    assert ["can be restored" in text and "Of step 3 a part was let go of" in text for text in told] == [
        True
    ] * 2
    with lcstore.open(url) as store:
        edge = store._index.record(store.info(1).node).edge.id
    shutil.rmtree(url / "data" / edge)
    told = [" ".join(call("verify", str(url)).stdout.split()), _of_report(url, tmp_path)]
    for text in told:
        assert "amaged" in text
        assert "Of step 3 a part was let go of" in text


def test_what_is_let_go_of_is_refused_with_what_is_left(tmp_path):
    url = tmp_path / "run"
    with lcstore.open(url) as store:
        for step in range(2):
            arrays = [np.full((32, 32), step + 1, np.float32) for _ in range(2)]
            store.save(
                step, {"model": {"weight": arrays[0]}, "optim": {"state": {0: {"exp_avg": arrays[1]}}}}
            )
        edge = store._index.record(store.info(1).node).edge.id
    for chunk in (url / "data" / edge).glob("0/first-*/c.*"):
        chunk.unlink()
    call("repair", str(url), "--apply")
    refused = call("export", str(url), str(tmp_path / "x.npz"))
    assert refused.exit_code == 1
    assert "names='model' (a GLOB on the command line)" in " ".join(refused.stderr.split())
    assert call("export", str(url), str(tmp_path / "x.npz"), "model").exit_code == 0


def _with_a_replay_buffer(url, steps=4):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    replay = rng.integers(0, 9, (steps, 500))
    with lcstore.open(url, durability="none") as store:
        for step in range(steps):
            weight = weight + np.float32(1e-3) * rng.standard_normal(weight.shape).astype(np.float32)
            store.save(step, {"model": {"weight": weight}, "replay": replay[step]})
        edge = store._index.record(store.info(2).node).edge.id
    for chunk in (url / "data" / edge).glob("0/weights-float32.*/c.*"):
        chunk.unlink()
    return replay


def test_what_is_left_of_a_state_without_its_weights_is_told_and_can_be_saved(tmp_path):
    """A repair lets go of such states: nothing said of them beforehand may promise more."""
    url = tmp_path / "run"
    replay = _with_a_replay_buffer(url)
    told = " ".join(call("verify", str(url)).stdout.split())
    assert "a repair keeps it" not in told
    assert "Of steps 2 to 3 something else can be read: a restore says by which names=. A repair lets" in told
    report = document("verify", str(url), status=1)
    assert (report["lost_ranges"], report["kept_in_part"]) == ([[2, 3]], [])
    assert report["let_go_in_part"] == [[2, 3]]
    shown = call("repair", str(url)).stdout
    assert shown.count("names='replay'") == 3  # of each of the two, and how to save that
    lost = document("repair", str(url), status=1)["lost"]
    assert [(one["step"], one["what"], one["rest"]) for one in lost] == [
        (step, "state", "names='replay'") for step in (2, 3)
    ]
    (said,) = re.findall(r"lcstore\.open\(.*\)", shown)
    for apply in ((), ("--apply",)):
        call("repair", str(url), *apply)
        np.testing.assert_array_equal(eval(said)["replay"], replay[3])
    with lcstore.open(url, "r") as store:
        assert store.latest_step() == 1
    assert call("collect", str(url)).exit_code == 0


def test_a_listing_and_a_pin_say_the_same_of_what_a_repair_let_go_of(tmp_path):
    url = tmp_path / "run"
    _with_a_replay_buffer(url)
    call("repair", str(url), "--apply")
    states = document("ls", str(url), "--retired")["states"]
    assert [state["condemned"] for state in states] == [False, False, True, True]
    for state in states[2:]:
        result = call("pin", f"{url}@{state['node']}")
        assert result.exit_code == 1
        assert "it is too late to pin" in result.stderr
    with lcstore.open(url) as store, pytest.raises(lcstore.NotFoundError) as caught:
        store.restore(3)
    assert "lcstore pin" not in str(caught.value)
    assert "--retired` says whether" in str(caught.value)


def test_a_folder_of_stores_is_not_made_one(saved, broken, tmp_path):
    """A store in the place of all runs would hide them, and maintenance would find nothing to do."""
    above = tmp_path / "runs"
    shutil.copytree(saved, above / "a")
    shutil.copytree(broken, above / "b")
    for arguments in ([], ["--apply"]):
        result = call("repair", str(above), *arguments)
        assert result.exit_code == 1
        assert "no store here, but below" in result.stderr
        assert str(above / "b") in result.stderr
    assert sorted(path.name for path in above.iterdir()) == ["a", "b"]
    assert len(document("verify", str(above), status=1)["stores"]) == 2


@pytest.mark.parametrize("inside", ["", "data", "nodes"])
def test_other_folders_are_not_made_stores(saved, tmp_path, inside):
    folder = tmp_path / "copied" / inside
    shutil.copytree(saved, tmp_path / "copied") if inside else folder.mkdir()
    (folder / "a.txt").write_text("a")
    for command in (["verify"], ["repair"], ["repair", "--apply"]):
        result = call(*command, str(folder))
        assert result.exit_code == 1
        assert "there is no store here" in result.stderr
    assert not (folder / "lcstore.json").exists()
