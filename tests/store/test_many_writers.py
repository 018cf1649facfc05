"""Many processes save to one store, going on from old states, while others compact, retire and collect it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest
import swarm
from swarm import Diary, Where, all_of, digest_of, opened

from lcstore.format import keys
from lcstore.format.records import StoreRecord

pytestmark = pytest.mark.once

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["swarm"])


@pytest.fixture(params=["folder", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Where]:
    """A folder on the disk, and the memory of a server."""
    if request.param == "folder":
        yield "folder", str(tmp_path / "store")
        return
    server = swarm.Server(str(tmp_path / "s"), authkey=b"held", ctx=CONTEXT)
    server.start()
    try:
        yield "server", str(tmp_path / "s")
    finally:
        server.shutdown()


def swarm_over(where: Where, folder: Path, writers: int, commits: int, seconds: float) -> None:
    with opened(where, "a", grace=0) as store:
        store.backend.put(keys.STORE_KEY, StoreRecord(0).to_bytes())
    stops = {kind: folder / f"stop-{kind}" for kind in ("compact", "collect")}
    diaries = {name: Diary(folder / name) for name in ("compact", "collect", *map(str, range(writers)))}
    saving = [
        CONTEXT.Process(target=swarm.write, args=(where, diaries[str(n)].path, n, commits))
        for n in range(writers)
    ]
    upkeep = [
        CONTEXT.Process(target=swarm.maintain, args=(where, diaries[kind].path, stop, kind))
        for kind, stop in stops.items()
    ]
    try:
        for process in (*saving, *upkeep):
            process.start()
        for process in saving:
            process.join(seconds)
        # One after the other: on a busy machine little of it may have come in between.
        for process, stop in zip(upkeep, stops.values(), strict=True):
            stop.touch()
            process.join(120)
    finally:
        for process in (*saving, *upkeep):
            process.kill()
            process.join()
    assert all(diary.read()[-1].get("finished") for diary in diaries.values()), "a process failed"
    look_at(where, diaries, writers * commits)


def look_at(where: Where, diaries: dict[str, Diary], saves: int) -> None:
    acknowledged = {line["node"]: line["digest"] for line in all_of(diaries.values(), "node")}
    retired = {line["retired"] for line in all_of(diaries.values(), "retired")}
    assert len(acknowledged) == saves
    assert retired
    assert any(line["deleted"] for line in all_of(diaries.values(), "deleted"))
    for _ in range(2):
        with opened(where) as store:
            kept = acknowledged.keys() - retired
            assert kept
            assert kept <= {found.node for found in store.states(records=False)}
            wrong = [node for node in kept if digest_of(store.restore(node)) != acknowledged[node]]
            assert not wrong
            store.collect(grace=0)
            report = store.verify(level="checksum")
            assert not [finding for finding in report.findings if finding.severity == "error"]


def test_a_few_processes_lose_nothing(where, tmp_path):
    swarm_over(where, tmp_path, writers=4, commits=20, seconds=120)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_processes_lose_nothing(where, tmp_path):
    swarm_over(where, tmp_path, writers=16, commits=50, seconds=1500)
