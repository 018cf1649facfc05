"""Of two loops that were begun in one store by mistake, all of the wrong one is let go of."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import pytest
from damaged import state
from kit.interleave import Scene, explore
from meetings import opened
from states import same

import lcstore
from lcstore import ConflictError, InvalidInputError, NotFoundError
from lcstore.storage.memory import MemoryBackend

pytestmark = pytest.mark.once


def two_loops(saves: int = 4) -> tuple[MemoryBackend, list[str]]:
    """Two runs, each from its own root, one step at a time; and the nodes of the second, the wrong one."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as right, lcstore.open(backend, grace=0) as wrong:
        for step in range(saves):
            right.save(step, state(step))
            wrong.save(10 * step, state(50 + step), tags=["first"] if step == 0 else ())
        return backend, [one.node for one in wrong.states() if one.run == 2]


def let_go(store: lcstore.Store, run: int | str = 2) -> lcstore.RetireReport:
    return store.retire_run(run, "wrong loop", run_is_dead=True)


def resumed_without_a_warning(backend: MemoryBackend, run: int | None = None) -> int | None:
    with opened(backend) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        store.resume(run=run)
        return store.step


def test_who_resumes_hears_that_an_experiment_took_over_from_a_line_that_had_come_further():
    backend = MemoryBackend.fresh()
    with opened(backend) as job:
        for step in range(0, 200, 10):
            job.save(step, state(step))
    with opened(backend) as experiment:
        experiment.resume(50)
        for step in (60, 70):
            experiment.save(step, state(-step))
    with opened(backend) as again:
        with pytest.warns(lcstore.BesideWarning, match=r"run 1 had come to step 190"):
            again.resume()
        assert again.step == 70
    assert resumed_without_a_warning(backend, run=1) == 190  # as the warning says
    with opened(backend) as experiment:
        experiment.resume(run=2)
        experiment.save(200, state(-200))
    assert resumed_without_a_warning(backend) == 200  # the experiment has come further now


def test_a_run_of_its_own_that_came_further_is_neither_warned_of_nor_hides_what_is():
    backend = MemoryBackend.fresh()
    with opened(backend) as other:
        other.save(500, state(500))
    with opened(backend) as job:
        for step in (0, 10, 20):
            job.save(step, state(step))
    assert resumed_without_a_warning(backend) == 20  # run 1 has nothing to do with it
    with opened(backend) as experiment:
        experiment.resume(0)
        experiment.save(5, state(5))
    with opened(backend) as again, pytest.warns(lcstore.BesideWarning, match=r"run 2 had come to step 20"):
        again.resume()


def test_the_wrong_run_goes_with_its_latest_state():
    backend, nodes = two_loops()
    with lcstore.open(backend) as store:
        run_id = store.info(nodes[-1]).run_id
        with pytest.raises(InvalidInputError, match=rf"latest state of run 2.* --run {run_id} --after 20 "):
            store.retire(30)
        report = store.retire_run(run_id, run_is_dead=True, dry_run=True)
        assert {one.node for one in report.retired} == set(nodes)
        assert len(store.states()) == 8
        assert let_go(store, run_id).retired[0].reason == "wrong loop"
        assert store.steps() == [0, 1, 2, 3]
        with pytest.raises(NotFoundError, match="no run 2"):
            let_go(store)
        store.pin(nodes[-1])  # until it is collected, all can be brought back
        assert store.steps() == [0, 1, 2, 3, 30]
        store.unpin(nodes[-1])
        for _ in range(2):
            store.collect()
        assert len(store.states(retired=True)) == 4
        assert same(store.restore(3)["model"], store.restore()["model"])
        assert store.verify(level="decode").ok


def test_only_the_end_of_a_run_that_went_wrong_goes():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as store:
        for step in range(6):
            store.save(step, state(step))
        good = store.restore(2)
        bad = [one.node for one in store.states() if one.step > 2]
    with lcstore.open(backend, grace=0) as store:
        store.resume(2)
        for step in (3, 4):
            store.save(step, state(70 + step))
        seen = {step: store.restore(step) for step in (3, 4)}
        with pytest.raises(NotFoundError, match=r"run 1 of .* has no state after step 5"):
            store.retire_run(1, after=5, run_is_dead=True)
        report = store.retire_run(1, after=2, run_is_dead=True)
        assert [one.node for one in report.retired] == bad
        assert report.kept == (0, 1, 2)
        assert {*report.kept_by.values()} == {("not after step 2",)}
        for _ in range(2):
            store.collect()
        assert store.steps() == [0, 1, 2, 3, 4]
        assert same(store.restore(2), good)
        assert all(same(store.restore(step), there) for step, there in seen.items())
        assert store.verify(level="decode").ok


def test_pinned_states_stay_and_are_named_and_tags_that_go_are_too():
    backend, nodes = two_loops()
    with lcstore.open(backend) as store:
        store.pin(nodes[2])
        report = let_go(store)
        assert (report.kept, report.kept_by) == ((20,), {nodes[2]: ("pinned",)})
        assert [one.step for one in report.retired] == [0, 10, 30]
        assert "'first'" in report.notes[0]
        for _ in range(2):
            store.collect()
        assert store.restore(nodes[2])["epoch"] == state(52)["epoch"]
        store.unpin(nodes[2])
        assert [one.step for one in let_go(store).retired] == [20]


def test_the_latest_state_stays_where_it_is_pinned():
    backend, nodes = two_loops()
    with lcstore.open(backend) as store:
        store.pin(nodes[-1])
        let_go(store)
        store.unpin(nodes[-1])
        with pytest.raises(InvalidInputError, match="latest state of run 2"):
            store.retire(nodes[-1])


def test_states_that_stand_on_it_are_not_harmed():
    backend, nodes = two_loops()
    with lcstore.open(backend) as store:
        store.resume(nodes[2])
        upon = store.save(100, state(7))
        assert upon.base == nodes[2]
        wanted = store.restore(100)
    with lcstore.open(backend) as store:
        let_go(store)
        for _ in range(2):
            store.collect()
        assert same(store.restore(100)["model"], wanted["model"])
        assert store.verify(level="decode").ok


def test_what_is_left_of_a_store_stays():
    backend, nodes = two_loops()
    with lcstore.open(backend) as store:
        let_go(store, 1)
        for run in (2, store.info(nodes[0]).run_id):
            with pytest.raises(InvalidInputError, match="the only states"):
                let_go(store, run)
        assert len(store.states()) == 4


def test_a_run_does_not_go_where_only_damaged_states_would_be_left():
    backend, nodes = two_loops()
    with lcstore.open(backend) as store:
        theirs = {store.info(node).node for node in nodes}
        edges = {record.edge.id for node, record in store._index.shown().items() if node not in theirs}
        for key in [*backend.list("data")]:
            if key.split("/")[1] in edges:
                backend.delete(key)
        with pytest.raises(InvalidInputError, match="the only states"):
            let_go(store)


def test_a_run_without_a_name_and_a_number_of_two():
    backend = MemoryBackend.fresh()
    handles = [lcstore.open(backend) for _ in range(2)]
    for handle in handles:  # each has listed before the other has saved
        handle._writer.run = 1
    for number, handle in enumerate(handles):
        handle.save(number, state(number))
    with lcstore.open(backend) as store:
        with pytest.raises(InvalidInputError, match="2 runs that began at the same time"):
            let_go(store, 1)
        with pytest.raises(InvalidInputError, match="name the run"):
            let_go(store, None)
        let_go(store, store.info(0).run_id)
        assert store.steps() == [1]


def states_of(url: Path, run: int) -> list[lcstore.Listed]:
    with lcstore.open(url, "r") as store:
        return [one for one in store.states() if one.run == run]


@pytest.mark.parametrize(("ago", "apart", "alive"), [(700, 400, True), (900, 400, False), (50, 1, True)])
def test_a_run_that_saved_lately_stays_whatever_the_other_does(tmp_path, ago, apart, alive):
    with lcstore.open(tmp_path / "run") as right, lcstore.open(tmp_path / "run") as wrong:
        for step in range(3):
            right.save(step, state(step))
            wrong.save(10 + step, state(step))
    for back, name in enumerate(reversed(states_of(tmp_path / "run", 2))):
        moment = time.time() - ago - back * apart
        (path,) = (tmp_path / "run" / "nodes").glob(f"*-{name.seq:08d}-{name.node}-*")
        os.utime(path, (moment, moment))
    with lcstore.open(tmp_path / "run", "r+") as store:
        told = "\n".join(store.retire_run(2, dry_run=True).notes)
        assert ("may be alive" in told) == alive
        if alive:
            with pytest.raises(ConflictError, match="--run-is-dead"):
                store.retire_run(2)
            assert len(store.states()) == 6
        assert len(store.retire_run(2, run_is_dead=alive).retired) == 3


@pytest.mark.parametrize("looks", [False, True])
def test_a_writer_that_is_alive_after_all_goes_on_with_an_anchor(looks):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as right, lcstore.open(backend, grace=0) as wrong:
        right.save(0, state(0))
        for step in range(3):
            wrong.save(step, state(50 + step))
        with lcstore.open(backend) as other:
            let_go(other)
            for _ in range(2 * looks):
                other.collect(grace=0)
        if looks:
            wrong.steps()
        info = wrong.save(3, state(53))
        assert (info.kind, info.base) == ("anchor", None)
        assert wrong.save(4, state(54)).kind == "delta"
    with lcstore.open(backend) as store:
        for _ in range(2):
            store.collect()
        assert store.steps() == [0, 3, 4]
        assert store.restore(4)["epoch"] == state(54)["epoch"]
        assert store.verify(level="decode").ok


def scene() -> Scene:
    """The wrong run saves on while it is let go of and collected."""
    backend, nodes = two_loops(2)
    wrong = lcstore.open(backend, threads=1)
    wrong.resume(nodes[-1])
    wrong.save(30, state(3))

    def through(actor):
        guard = wrong._writer._guard
        wrong._writer.backend = guard.backend = guard._watch.backend = wrong._index.backend = actor
        return wrong

    def saving(actor):
        return through(actor).save(40, state(4)).node

    def letting_go(actor):
        with opened(actor) as store:
            report = let_go(store, 3)
            for _ in range(2):
                store.collect(grace=0)
            return {one.node for one in report.retired}

    def check(outcomes):
        assert [outcome.error for outcome in outcomes.values()] == [None, None]
        kept = dict.fromkeys({outcomes["writer"].value} - outcomes["collector"].value, 4)
        kept[through(backend).save(50, state(5)).node] = 5
        with opened(backend) as reader:
            for _ in range(2):
                assert {node: reader.restore(node)["epoch"] for node in kept} == kept
                reader.collect(grace=0)
            assert reader.verify(level="checksum").ok
            assert reader.restore(1)["epoch"] == state(1)["epoch"]

    return Scene(backend, {"writer": saving, "collector": letting_go}, check)


@pytest.mark.filterwarnings("ignore::lcstore.DamageWarning")  # all of its run is let go of and deleted
def test_no_order_of_a_save_and_letting_go_loses_what_is_acknowledged():
    found = explore(scene, 60, samples=40)
    assert found.schedules + found.cut_short + found.sampled >= 60
