"""`lcstore cp` and `lcstore rm`: whole stores."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from kit.commands import call, document
from kit.looks import contents

import lcstore
from lcstore.storage.memory import memory_names


@pytest.fixture
def url(tmp_path: Path) -> str:
    with lcstore.open(tmp_path / "a run", threads=1) as store:
        for step in (0, 10, 20):
            store.save(step, {"w": np.full((8, 8), step, np.float32)})
    return str(tmp_path / "a run")


def test_a_copy_is_the_same_and_the_next_one_passes_it_over(url, tmp_path):
    target = str(tmp_path / "b run")
    result = call("cp", url, target)
    assert result.exit_code == 0
    assert "Copied: 3 states" in result.stdout
    assert contents(target) == contents(url)
    assert call(*shlex.split(result.stdout.rpartition("lcstore ")[2])).exit_code == 0
    again = document("cp", url, target)
    assert (again["objects"], again["passed_over"]) == (0, len(contents(url)))
    told = call("cp", url, target).stdout
    assert f" 0 B; {len(contents(url))} objects were there already" in told
    assert "already (their lengths agree; `--check` compares hashes)." in told
    assert "hashes checked" not in told


def test_states_that_only_the_copy_has_kept_are_told_apart(url, tmp_path):
    target = str(tmp_path / "copy")
    assert call("cp", url, target).exit_code == 0
    shutil.rmtree(Path(url) / "data")  # a state of zeros has nothing there
    assert call("repair", url, "--apply").exit_code == 1
    with lcstore.open(url, "r+") as store:
        store.save(30, {"w": np.full((8, 8), 30, np.float32)})
    told = call("cp", url, target)
    assert "Copied: 2 states" in told.stdout
    assert "2 states of which a repair of the store let go, or of parts of which, stay there" in told.stdout
    again = document("cp", url, target)
    assert (again["states"], again["ok"]) == (2, True)


def test_a_state_that_the_copy_let_go_of_comes_back_by_the_command_that_is_named(url, tmp_path):
    target = str(tmp_path / "copy")
    call("cp", url, target)
    with lcstore.open(target, "r+") as store:
        node = store.states()[0].node
        store.retire(node)
    said = call("cp", url, target).stdout
    assert "by a rule" not in said  # it was let go of by its name
    assert f"lcstore pin {target}@NODE" in said
    assert call("pin", f"{target}@{node}").exit_code == 0
    assert "Let go of" not in call("cp", url, target).stdout


def test_counts_tell_states_that_were_let_go_of(url, tmp_path):
    with lcstore.open(url, "r+") as store:
        store.retire(10)
    report = document("cp", url, str(tmp_path / "copy"))
    assert (report["states"], report["retired"]) == (2, 1)
    assert "2 states, 1 that were let go of" in call("cp", url, str(tmp_path / "copy")).stdout
    assert "retired ones too" in call("rm", url).stdout


def test_a_damaged_store_is_mended_by_a_copy_before_a_repair_and_not_after_it(tmp_path):
    url, copy = str(tmp_path / "a run"), str(tmp_path / "copy")
    with lcstore.open(url, threads=1, durability="none") as store:
        for step in (0, 10, 20):
            store.save(step, {"w": np.full((8, 8), step + 1, np.float32)})
    call("cp", url, copy)
    for path in Path(url, "data").rglob("c.0"):
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        path.write_bytes(data)
    repaired = shutil.copytree(url, str(tmp_path / "repaired"))
    advice = call("verify", url, "--level", "checksum").stdout.partition("lcstore cp ")[2].splitlines()[0]
    assert shlex.split(advice) == ["COPY", url, "--check"]
    told = call("cp", *shlex.split(advice.replace("COPY", shlex.quote(copy)))).stdout
    assert "lengths and hashes checked, 3 of them in the place of damaged ones; " in told
    assert " objects were there already (their hashes agree)." in told
    assert call("verify", url, "--level", "checksum").exit_code == 0

    call("repair", repaired, "--apply")
    result = call("cp", copy, repaired, "--check")
    assert result.exit_code == 1
    assert "Copied: 0 states" in result.stdout
    assert "which no copy takes back: 3 more states. " in result.stdout
    said, new = result.stdout.splitlines()[2].split("empty place: lcstore ")[1], str(tmp_path / "new")
    assert "Copied: 3 states" in call(*shlex.split(said.replace(" TO", f" {shlex.quote(new)}"))).stdout
    report = document("cp", copy, repaired, status=1)
    assert (report["ok"], report["states"], report["let_go"]) == (False, 0, 3)


def test_a_copy_to_what_holds_another_store_is_refused(url, tmp_path):
    with lcstore.open(tmp_path / "other", threads=1) as store:
        store.save(0, {"w": np.ones((8, 8), np.float32)})
    before = contents(str(tmp_path / "other"))
    result = call("cp", url, str(tmp_path / "other"))
    assert result.exit_code == 1
    assert "holds another store" in result.stderr
    assert contents(str(tmp_path / "other")) == before


def test_a_copy_that_would_be_gone_with_the_command_is_refused(url):
    refused = call("cp", url, "memory://gone")
    assert refused.exit_code == 2
    assert "lasts as long as its process" in refused.output
    assert memory_names(re.compile("gone/.*")) == []


def test_each_target_has_options_of_its_own(url):
    assert call("cp", url, f"{url}-2", "--to-options", "{").exit_code == 2
    result = call("cp", url, f"{url}-2", "--to-options", '{"anon": true}')
    assert result.exit_code == 1
    assert f"{url}-2 takes no storage options" in result.stderr
    assert f"{url} takes no storage options" in call("cp", url, f"{url}-2", "-o", "anon=true").stderr


def test_nothing_to_copy(tmp_path):
    result = call("cp", str(tmp_path / "none"), str(tmp_path / "target"))
    assert result.exit_code == 1
    assert "there is no store" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_of_stores_is_told_before_anything_about_the_target(url, tmp_path):
    for target in (tmp_path / "target", Path(url) / "inside"):
        with pytest.raises(lcstore.NotFoundError, match=f"Below it are {url}$"):
            lcstore.copy(tmp_path, target)


def test_rm_shows_first_and_then_deletes(url):
    Path(url, "notes.txt").write_text("mine")
    before = contents(url)
    shown = call("rm", url)
    assert shown.exit_code == 0
    for words in ("3", "0 to 20", "would be left: notes.txt", "Nothing was changed"):
        assert words in shown.stdout
    assert contents(url) == before
    command = shlex.split(shown.stdout.rpartition("lcstore ")[2])
    assert command == ["rm", url, "--apply"]
    report = document(*command)
    assert (report["states"], report["objects"]) == (3, len(before) - 1)
    assert contents(url) == {"notes.txt": b"mine"}
    assert call("rm", url).exit_code == 1


@pytest.mark.parametrize("form", ["{}", "{}/", "{}/.", "file://{}"])
def test_rm_refuses_a_link_to_a_store(url, tmp_path, form):
    (tmp_path / "link").symlink_to(url)
    before = contents(url)
    result = call("rm", form.format(tmp_path / "link"), "--apply")
    assert result.exit_code in (1, 2)
    assert f"lcstore rm '{url}'" in " ".join(result.stderr.split())
    assert contents(url) == before
    (tmp_path / "above").symlink_to(tmp_path)
    assert call("rm", str(tmp_path / "above" / "a run"), "--apply").exit_code == 0
    assert not Path(url).exists()


def test_rm_takes_the_folder_along_where_nothing_is_left(url, tmp_path):
    assert call("rm", url, "--apply").exit_code == 0
    assert not list(tmp_path.iterdir())


def test_a_state_is_no_whole_store(url, tmp_path):
    before = contents(url)
    for arguments in (
        ("export", "cp", f"{url}@20", str(tmp_path / "copy")),
        ("retire", "rm", f"{url}@20", "--apply"),
        ("untag", "untag", f"{url}@20", "good"),
    ):
        meant, *arguments = arguments
        result = call(*arguments)
        assert result.exit_code == 1
        assert "it names a state" in result.stderr
        named = url if meant == "untag" else f"{url}@20"
        assert f"Next: lcstore {meant} {shlex.quote(named)}" in result.stderr
    result = call("cp", url, str(tmp_path / "copy@3"))
    assert result.exit_code == 2
    assert not (tmp_path / "copy@3").exists()
    assert contents(url) == before


@pytest.mark.parametrize("arguments", [["cp"], ["cp", "x"], ["rm"], ["rm", "x", "y"]])
def test_wrong_usage(arguments):
    assert call(*arguments).exit_code == 2


def test_rm_of_several_stores_names_the_loop(url):
    """A shell completes a glob to many."""
    before = contents(url)
    result = call("rm", url, f"{url} 2", "--apply", "--json")
    assert result.exit_code == 2
    said = json.loads(result.stdout)["error"]["message"]
    assert f'for url in {shlex.quote(url)} ...; do lcstore rm "$url"; done' in said
    assert contents(url) == before
