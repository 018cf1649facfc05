"""Maintenance by a Dask cluster of two processes: the plan and the bytes are those of one process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from cluster.clustered import copied, fill, shortcuts, states
from kit.pages import blocks_of
from states import same
from typer.testing import CliRunner, Result

import lcstore
from lcstore import CorruptionError, InvalidInputError, StorageError
from lcstore.cli.app import app
from lcstore.cluster.tasks import Task, carried_out
from lcstore.format import keys
from lcstore.graph import newest
from lcstore.storage.memory import MemoryBackend
from lcstore.terminal import scheduler

distributed = pytest.importorskip("distributed", reason="Dask is not installed")

KEEP = "latest:2 | every:8"
#: What workers go by: they are processes of their own.
FREE_READS = newest.FREE_READS


@pytest.fixture(autouse=True, scope="module")
def _as_workers_plan() -> Iterator[None]:
    with patch.object(newest, "FREE_READS", FREE_READS):
        yield


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as two,
        distributed.Client(two, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("cluster") / "run")


@pytest.fixture(scope="module")
def serial(saved: Path) -> Path:
    """The store, compacted by this process."""
    url = copied(saved, "serial")
    with lcstore.open(url, "r+", threads=1) as store:
        assert store.compact().added > 8
    return url


def call(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result


def compact(url: Path, client: Any, **how: Any) -> lcstore.CompactReport:
    with lcstore.open(url, "r+", threads=1) as store:
        return store.compact(client=client, **how)


# One store --------------------------------------------------------------------------------------------------


def test_the_same_edges_with_the_same_bytes(saved, serial, client):
    url, told = copied(saved, "cluster"), []
    report = compact(url, client, on_progress=lambda *what: told.append(what))
    merged = shortcuts(serial)
    assert shortcuts(url) == merged
    assert report.added == report.planned == len(merged)
    assert told[-1][0] == "merging"
    assert told[-1][1] == told[-1][2]
    assert compact(url, client).planned == 0
    assert same(states(url), states(saved))
    with lcstore.open(url, "r") as store:
        assert store.verify("restore").ok


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(saved, serial, client):
    url, killed = copied(saved, "killed"), []

    def kill(phase: str, done: int, total: int) -> None:
        if not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    report = compact(url, client, on_progress=kill)
    assert killed
    assert report.added == report.planned
    assert shortcuts(url) == shortcuts(serial)
    assert same(states(url), states(saved))
    client.wait_for_workers(2, timeout=60)


def test_nothing_is_begun_after_the_time(saved, client):
    url = copied(saved, "late")
    report = compact(url, client, max_seconds=1e-9)
    assert (report.added, shortcuts(url)) == (0, {})
    assert report.planned


def test_an_interruption_leaves_nothing_to_the_cluster(saved, client):
    def interrupt(*what: Any) -> None:
        raise KeyboardInterrupt

    url = copied(saved, "interrupted")
    with pytest.raises(KeyboardInterrupt):
        compact(url, client, on_progress=interrupt)
    assert len(shortcuts(url)) >= 1
    compact(url, client)
    assert same(states(url), states(saved))


@pytest.mark.parametrize("level", ["structure", "checksum", "decode", "restore"])
def test_the_same_is_found(serial, client, level):
    url, told = copied(serial, f"look-{level}"), []
    with lcstore.open(url, "r") as store:
        good = store.verify(level, lambda *what: told.append(what), client=client)
        assert good.ok
        assert (good.objects, good.bytes_read) == (
            store.verify(level).objects,
            store.verify(level).bytes_read,
        )
        assert ("objects", good.objects, good.objects) in told
    chunks = sorted((url / "data").rglob("c.0"))
    chunks[0].unlink()
    chunks[len(chunks) // 2].write_bytes(b"no frame")
    with lcstore.open(url, "r") as store:
        here, there = store.verify(level), store.verify(level, client=client)
        assert here.findings
        assert there.findings == here.findings
        assert (there.lost, there.objects) == (here.lost, here.objects)
        part = store.verify(level, client=client, sample=(1, 3))
        assert part.skipped == store.verify(level, sample=(1, 3)).skipped > 0


def test_what_several_tasks_see_of_an_edge_is_added_up(serial, client, monkeypatch):
    from lcstore.check import objects

    monkeypatch.setattr(objects, "_BATCH_OBJECTS", 2)
    with lcstore.open(serial, "r") as store:
        assert store.verify("restore", client=client).ok


def test_damage_is_said_as_here(saved, client):
    url = copied(saved, "damaged")
    with lcstore.open(url, "r") as store:
        record = store._index.refresh(full=True) and store._index.record(store.info(3).node)
    for path in (url / keys.edge_folder(record.edge.id)).rglob("*.add"):
        for part in path.iterdir():
            part.write_bytes(b"no frame")
    with pytest.raises(CorruptionError):
        compact(url, client)
    with pytest.raises(CorruptionError):
        compact(url, None)


def test_damage_that_a_worker_gets_around_is_told_here(saved, client):
    url = copied(saved, "around")
    with lcstore.open(url, "r") as store:
        record = store._index.refresh(full=True) and store._index.record(store.info(3).node)
    part = next((url / keys.edge_folder(record.edge.id)).rglob("*.add/c.0"))
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    with lcstore.open(url, "r+") as store, pytest.warns(lcstore.FallbackWarning, match="it was rebuilt"):
        report = store.maintain("latest:100", client=client)
    assert report.compacted.added > 8
    assert not report.ok
    assert "damage was met on the way" in report.problems["verify"].message


def test_a_task_that_failed_is_tried_again(client, tmp_path):
    """Whatever the first worker could not reach, another may."""
    task = Task("count", tmp_path.as_uri(), Second(tmp_path / "tried"))
    assert list(carried_out([task], client)) == [(0, 2)]


class Second:
    """Succeeds when it is tried the second time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, inputs: Any) -> int:
        if self.path.exists():
            return 2
        self.path.touch()
        raise StorageError("the first try")


def test_a_task_that_takes_its_workers_along_is_a_failure_of_that_task(tmp_path):
    """The workers are those of another cluster: Dask may start a lost one anew, or close it."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as two,
        distributed.Client(two, set_as_default=False) as client,
    ):
        client.run_on_scheduler(allow_no_failures)
        task = Task("lose", tmp_path.as_uri(), end_the_process)
        with pytest.raises(StorageError, match="several workers were lost during lose"):
            list(carried_out([task], client))


def allow_no_failures(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = 0


def end_the_process(inputs: Any) -> int:
    os._exit(1)


def test_what_other_processes_do_not_see_is_refused(client):
    with lcstore.open(MemoryBackend.fresh(), threads=1) as store:
        for step in range(4):
            store.save(step, {"w": np.full(99, step)})
        with pytest.raises(InvalidInputError, match="in the memory of this process"):
            store.maintain("latest:1", client=client)
        with pytest.raises(InvalidInputError, match="in the memory of this process"):
            store.verify(client=client)
        assert store.steps() == [0, 1, 2, 3]


# Many stores ------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Twenty small stores, of which one cannot be opened, and one has lost a state."""
    first = fill(tmp_path / "runs" / "00", count=12, rows=8)
    for number in range(1, 20):
        copied(first, f"{number:02d}")
    for name in ("lcstore.json", "copies/lcstore.json"):
        (tmp_path / "runs" / "07" / name).write_text("{")
    for chunk in (tmp_path / "runs" / "11" / "data").rglob("*.add/*"):
        chunk.unlink()
    return tmp_path / "runs"


@pytest.mark.parametrize("there", [True, False])
def test_every_store_is_maintained_whatever_becomes_of_another(runs, client, there):
    told = []
    tended = lcstore.maintain_below(
        runs, KEEP, client=client if there else None, on_progress=lambda *what: told.append(what)
    )
    assert [one.url for one in tended] == [str(runs / f"{number:02d}") for number in range(20)]
    assert [Path(one.url).name for one in tended if not one.ok] == ["07", "11"]
    assert tended[7].report is None
    assert "lcstore.json" in str(tended[7].problem)
    assert "verify" in tended[11].report.problems
    assert told[-1] == ("stores", 20, 20)
    for one in tended:
        if one.ok:
            assert one.report.compacted.added == one.report.compacted.planned
            with lcstore.open(one.url, "r") as store:
                assert store.steps() == [0, 8, 10, 11]
    found = lcstore.verify_below(runs, "checksum", client=client if there else None)
    assert [Path(one.url).name for one in found if not one.ok] == ["07", "11"]
    assert found[0].report.level == "checksum"


def test_by_the_command_line(runs, client):
    address = client.scheduler.address
    shown = call("maintain", str(runs), "--keep", KEEP, "--scheduler", address, status=1).stdout
    assert "20 stores below" in shown
    assert "18 good, 2 not" in shown
    assert "verify failed" in shown
    command = shown.rpartition("lcstore ")[2].split("'")
    assert command[0].split()[:2] == ["maintain", str(runs)]
    assert command[-1].split() == ["--scheduler", address, "--apply"]
    done = call("maintain", str(runs), "--keep", KEEP, "--scheduler", address, "--apply", "--json", status=1)
    stores = {Path(one["url"]).name: one for one in json.loads(done.stdout)["stores"]}
    assert stores["03"]["ok"]
    assert len(stores["03"]["report"]["retained"]["retired"]) == 8
    assert stores["07"]["report"] is None
    looked = call("verify", str(runs), "--scheduler", address, status=1).stdout
    assert "18 good, 2 not" in looked
    one = str(runs / "03")
    assert "Good" in call("verify", one, "--level", "restore", "--scheduler", address).stdout
    assert "0 planned, 0 added" in call("compact", one, "--scheduler", address).stdout
    assert "Verified" in call("maintain", one, "--keep", KEEP, "--apply", "--scheduler", address).stdout


def test_the_python_of_the_document(saved, runs, client, monkeypatch):
    monkeypatch.chdir(runs.parent)
    copied(saved, "gpt").rename(runs / "gpt")
    block = blocks_of("docs/maintenance.md", "python")[-1].code
    space: dict[str, Any] = {"lcstore": lcstore}
    exec(compile(block.replace("tcp://head:8786", client.scheduler.address), "block", "exec"), space)
    assert len([one for one in space["tended"] if one.ok]) == 19
    assert shortcuts(runs / "gpt")


def test_where_there_is_no_store(tmp_path):
    with pytest.raises(lcstore.NotFoundError, match="there is no store at"):
        lcstore.maintain_below(tmp_path, KEEP)


# The scheduler ----------------------------------------------------------------------------------------------


def test_a_scheduler_that_does_not_answer_is_said_soon(saved, monkeypatch):
    monkeypatch.setattr(scheduler, "_SECONDS", 1)
    said = call("verify", str(saved), "--scheduler", "tcp://127.0.0.1:9", status=1).stderr
    assert "no Dask scheduler answers at tcp://127.0.0.1:9 within 1 s" in said
    assert "Next: dask scheduler" in said
    assert "is no address" in call("verify", str(saved), "--scheduler", "here", status=1).stderr


def test_dask_that_is_not_installed_is_said(saved, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    said = call("compact", str(saved), "--scheduler", "tcp://127.0.0.1:9", status=1).stderr
    assert "pip install 'lcstore[cluster]'" in said


def test_a_cluster_without_a_worker_ends_in_time(saved):
    url = copied(saved, "nobody")
    none = distributed.LocalCluster(n_workers=0, dashboard_address=":0", processes=False)
    with none, distributed.Client(none, set_as_default=False) as client:
        report = compact(url, client, max_seconds=0.3)
    assert (report.added, report.planned > 0) == (0, True)


def test_a_worker_that_sees_no_store_stops_the_compaction_alone(saved, client, monkeypatch):
    url = copied(saved, "unseen")
    blind = InvalidInputError("a worker sees nothing at file:///run")
    monkeypatch.setattr("lcstore.compaction.compact.carried_out", raising(blind))
    monkeypatch.setattr("lcstore.check.objects.carried_out", raising(blind))
    with lcstore.open(url, "r+", threads=1) as store:
        report = store.maintain("latest:2", client=client, level="checksum")
    assert report.retained.retired
    assert report.problems == {"compact": blind, "verify": blind}


def raising(error):
    def raises(*_: Any, **__: Any) -> None:
        raise error

    return raises


def test_a_cluster_that_goes_away_is_said(saved):
    url = copied(saved, "alone")
    two = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", processes=False)
    with (
        distributed.Client(two, set_as_default=False, timeout=5) as client,
        pytest.raises(StorageError, match="the cluster was lost"),
    ):
        compact(url, client, on_progress=lambda *what: two.close())
    assert same(states(url), states(saved))
