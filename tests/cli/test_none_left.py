"""A store that had states and has none is not taken for a new one; one that lost them, not for a good one."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lcstore
from lcstore.cli.app import app
from lcstore.format.marks import RetiredRecord
from lcstore.format.records import utc_now
from lcstore.report.gather import gather
from lcstore.report.words import whole
from lcstore.storage.local import LocalBackend

_SAID = "All was let go of, or lost; 3 states are not deleted yet"


def call(*arguments: object) -> tuple[int, str]:
    """Return the status of a command, and its words in one line."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    url = tmp_path / "run"
    with lcstore.open(url, durability="none") as store:
        for step in (0, 10, 20):
            store.save(step, {"model": {"w": np.full((8, 8), step + 1, np.float32)}})
    return url


@pytest.fixture(params=["data", "nodes"])
def lost(store: Path, request: pytest.FixtureRequest) -> Path:
    """A store of which a repair let go of everything: of no state are values there, or the record."""
    for path in (store / request.param).rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with lcstore.open(store, "r+") as opened:
        assert opened.repair().lost
    return store


def said_of(url: Path) -> str:
    """Return what is said of a store of which no state, or none that was listed, is left."""
    return _SAID if any((url / "nodes").iterdir()) else "All was let go of, or lost"


def test_what_was_lost_is_said_by_every_command(lost: Path) -> None:
    said = said_of(lost)
    status, words = call("verify", lost)
    assert status == 1
    assert said in words
    assert "Good" not in words
    assert f"Next: lcstore ls {lost} --retired" in words
    assert json.loads(CliRunner().invoke(app, ["verify", str(lost), "--json"]).output)["ok"] is False
    for command in ("retain", "maintain"):
        status, words = call(command, lost, "--keep", "latest:3")
        assert said in words
        assert "no state yet" not in words
        assert status == (command == "maintain")
    status, words = call("maintain", lost.parent, "--keep", "latest:3")
    assert (status, "0 good, 1 not" in words, "lcstore repair" in words) == (1, True, False)
    status, words = call("verify", lost.parent)
    assert (status, "0 good, 1 not" in words) == (1, True)
    status, words = call("report", lost, "-o", lost.parent / "page.html")
    assert status == 1
    assert said in words
    assert "no state yet" not in words
    assert "none is left to restore" in words
    assert "lcstore repair" not in words
    assert call("repair", lost, "--apply")[0] == 0, "it has done what it can"


def test_a_loop_that_begins_anew_is_warned_and_one_in_a_new_store_is_not(lost: Path, tmp_path: Path) -> None:
    said = re.escape(said_of(lost)) + f".*`lcstore ls file://{re.escape(str(lost))} --retired`"
    with lcstore.CheckpointManager(lost, every=1, durability="none") as manager:
        for begin in (manager.resume, manager.latest_step, lambda: manager.resume_into({})):
            with pytest.warns(lcstore.FallbackWarning, match=said) as told:
                assert begin() is None
            assert len(told) == 1
        with pytest.raises(lcstore.NotFoundError, match=said):
            manager.restore()
        manager.save(0, {"model": {"w": np.ones((8, 8), np.float32)}})
        manager.wait_until_finished()
        assert manager.latest_step() == 0
    assert call("verify", lost)[0] == 0
    with warnings.catch_warnings(), lcstore.CheckpointManager(tmp_path / "new") as manager:
        warnings.simplefilter("error")
        assert manager.resume() is None
    assert "All was" not in call("verify", tmp_path / "new")[1]


def test_of_what_its_owner_let_go_of_the_same_is_said_and_it_is_no_error(store: Path) -> None:
    """No command lets go of all. Two that run at one time may, each seeing what the other lets go of."""
    with lcstore.open(store, "r") as opened:
        marks = [RetiredRecord(state.node, "by run", utc_now()) for state in opened.states(records=False)]
    for mark in marks:
        path = store / mark.key()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(mark.to_bytes())
    status, words = call("verify", store)
    assert (status, _SAID in words) == (0, True)
    status, words = call("maintain", store, "--keep", "latest:3")
    assert (status, _SAID in words) == (0, True)
    _, words = call("report", store, "-o", store.parent / "page.html")
    assert _SAID in words
    assert "damaged" not in words
    with lcstore.open(store, "r") as opened, pytest.warns(lcstore.FallbackWarning, match=_SAID):
        assert opened.latest_step() is None


@pytest.mark.parametrize("rule", [None, "latest:3", "latest:9 | exact-only:latest:1"])
def test_records_that_were_lost_are_told_and_nothing_is_collected_without_them(
    store: Path, rule: str | None
) -> None:
    if rule is not None:  # as a store is that is maintained every night
        with lcstore.open(store, grace=0) as opened:
            for step in (30, 40, 50):
                opened.save(step, {"model": {"w": np.full((8, 8), step, np.float32)}}, exact=True)
            assert opened.retain(rule).retired
    with lcstore.open(store, "r") as opened:
        saved = {step: opened.restore(step)["model"]["w"] for step in opened.steps()}
    assert call("cp", store, store.parent / "copy")[0] == 0
    (store / "nodes").rename(store / "nodes.bak")
    said = re.compile(
        "No state is recorded, though objects of [346] saves are here: nodes/ was lost or moved"
    )
    status, words = call("verify", store)
    assert (status, bool(said.search(words)), "Good" in words) == (1, True, False)
    assert re.search(r"under another name: move [36] files of nodes.bak/ to nodes/\.", words)
    for command in ("maintain", "retain", "collect"):
        keep = () if command == "collect" else ("--keep", "latest:1")
        for apply in ((), ("--apply",), ("--apply",)):
            status, words = call(command, store, *keep, *apply)
            assert (status, bool(said.search(words))) == (1, True), command
            assert "lcstore repair" not in words, command  # it could not help
    above = store.parent / "runs"
    above.mkdir()
    (above / "lost").symlink_to(store)
    shown = (["cp", store, store.parent / "other"], ["ls", store], ["stats", store])
    for command in (*shown, ["ls", above], ["stats", above]):
        status, words = call(*command)
        assert (status, bool(said.search(words))) == (1, True), command
    status, words = call("maintain", above, "--keep", "latest:3")
    assert (status, f"Next: lcstore cp COPY {above}/lost --check" in words) == (1, True)
    (above / "lost").unlink()
    for command in ("repair", "doctor"):
        status, words = call(command, store)
        assert (status, bool(said.search(words))) == (1, True), command
    assert call("repair", store, "--apply")[0] == 1
    (left,) = json.loads(CliRunner().invoke(app, ["repair", str(store), "--json"]).output)["remaining"]
    assert left["next"] == f"lcstore cp COPY file://{store} --check"
    assert call("ls", f"{store}@10")[0] != 0
    status, words = call("report", store, "-o", store.parent / "page.html")
    assert (status, bool(said.search(words)), "A repair" in words) == (1, True, False)
    with lcstore.open(store, "r") as opened, pytest.warns(lcstore.FallbackWarning, match=said):
        assert opened.latest_step() is None
    assert call("cp", store.parent / "copy", store, "--check")[0] == 0
    assert call("verify", store, "--level", "restore")[0] == 0
    with lcstore.open(store, "r") as opened:
        for step, w in saved.items():
            np.testing.assert_array_equal(opened.restore(step)["model"]["w"], w)
    with lcstore.open(store, "r") as opened, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened.latest_step() == max(saved)


def test_what_may_not_be_read_is_not_called_damaged(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = LocalBackend._get

    def refuse(backend: LocalBackend, key: str, start: int, end: int | None) -> bytes:
        if key.startswith("nodes/"):
            raise PermissionError(13, "Permission denied", key)
        return read(backend, key, start, end)

    monkeypatch.setattr(LocalBackend, "_get", refuse)
    status, words = call("verify", store)
    assert (status, "Damaged" in words, "lcstore repair" in words, "COPY" in words) == (
        1,
        False,
        False,
        False,
    )
    assert "3 objects could not be read, which says nothing of what they hold" in words
    told = json.loads(call("verify", store, "--json")[1])
    assert told["unread"] == 3
    with lcstore.open(store, "r") as opened:
        assert (
            str(opened.verify())
            .partition("objects, ")[2]
            .startswith("3 objects that the target did not give")
        )
        assert whole(gather(opened)).startswith("Not read: 3 objects that the target did not give")
    status, words = call("maintain", store, "--keep", "latest:1", "--apply")
    assert (status, "lcstore repair" in words, "lcstore doctor" in words) == (1, False, True)
    assert call("repair", store, "--apply")[0] == 1
    status, words = call("doctor", store)
    assert (status, "cannot be read. Next: lcstore verify" in words) == (1, True)
    monkeypatch.undo()
    assert call("verify", store, "--level", "restore")[0] == 0


def test_records_that_were_moved_in_part_come_back_before_any_repair(store: Path) -> None:
    (store / "nodes.bak").mkdir()
    for path in sorted((store / "nodes").iterdir())[:2]:
        path.rename(store / "nodes.bak" / path.name)
    for apply in ((), ("--apply",)):
        status, words = call("repair", store, *apply)
        assert (status, "--apply" in words) == (1, False)
        assert (
            "2 missing objects may be there under another name: move 2 files of nodes.bak/ to nodes/" in words
        )
    for path in (store / "nodes.bak").iterdir():
        path.rename(store / "nodes" / path.name)
    assert call("verify", store, "--level", "restore")[0] == 0


def test_a_folder_that_holds_data_of_its_own_is_no_store_that_lost_records(tmp_path: Path) -> None:
    (tmp_path / "data/train").mkdir(parents=True)
    for name in ("b.csv", "train/a.bin", "train/b.bin"):
        (tmp_path / "data" / name).write_bytes(b"1")
    with warnings.catch_warnings(), lcstore.CheckpointManager(tmp_path) as manager:
        warnings.simplefilter("error")
        assert manager.resume() is None


def test_a_first_save_that_was_killed_is_no_sign_of_a_state_and_is_collected(tmp_path: Path) -> None:
    with lcstore.open(tmp_path / "run", durability="none", grace=0) as store:
        store.save(0, {"model": {"w": np.ones((8, 8), np.float32)}})
    for path in (tmp_path / "run/nodes").iterdir():
        path.unlink()
    status, words = call("verify", tmp_path / "run")
    assert (status, "No state is recorded" in words) == (0, False)
    with warnings.catch_warnings(), lcstore.open(tmp_path / "run", grace=0) as store:
        warnings.simplefilter("error")
        assert store.latest_step() is None
        assert store.collect().deleted_objects > 0
    assert not [path for path in (tmp_path / "run/data").rglob("*") if path.is_file()]
