"""A run that went astray goes on from an earlier step, as a run of its own."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from damaged import state
from kit.interleave import Scene, explore
from meetings import collecting, opened
from states import same

import lcstore
from lcstore.errors import StorageError, UnknownOutcomeError
from lcstore.format import keys, markkeys
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import FaultBackend

pytestmark = pytest.mark.once


def astray(saves=6):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as store:
        for step in range(saves):
            store.save(step, state(step))
        return backend, [store.info(step).node for step in range(saves)]


def test_the_run_that_went_astray_may_be_let_go_of():
    backend, _ = astray()
    with lcstore.open(backend) as store:
        with pytest.raises(lcstore.InvalidInputError, match=r"store\.rewind\(step\)"):
            store.retire(5)
        assert store.rewind(2)["epoch"] == 2
        # Nothing has changed before the first commit.
        with pytest.raises(lcstore.InvalidInputError, match="latest state of run 1"):
            store.retire(5)
        info = store.save(3, state(30))
        assert info.kind == "delta"
        assert store.info(3).run == 2
        assert store.retain("latest:1").kept == (3,)
        assert store.at(None).step == 3
        for _ in range(2):
            store.collect()
        assert same(store.restore(3)["model"], store.restore()["model"])
        assert store.steps() == [3]
        assert store.verify(level="decode").ok


def test_a_rewind_that_fails_leaves_the_handle_where_it_was():
    """The last listing of it failed, and the next save was a delta to the earlier state in the old run."""
    failed = 0
    for number in range(60):
        backend, _ = astray()
        left = [None]  # operations until one fails

        def strikes(asked, left=left):
            left[0] = None if left[0] is None else left[0] - 1
            return left[0] == -1

        faulty = FaultBackend(backend, {strikes: "eio"})
        with lcstore.open(faulty, threads=1) as store:
            store.resume()
            before, left[0] = (store.node, store._writer.run_id), number
            try:
                store.rewind(2)
            except StorageError:
                failed += 1
                assert (store.node, store._writer.run_id) == before
        if not faulty.struck:
            break
    assert failed > 3


def test_one_record_says_of_a_run_that_another_took_its_place():
    """Each of its states had one: a rewind far back stored thousands, one after another, within a save."""
    backend, nodes = astray(12)
    with lcstore.open(backend) as store:
        store.resume(7)
        store.save(8, state(80))
        branch = store.info(8).node
        store.rewind(2)
        store.save(3, state(30))
        marks = {markkeys.parse_retired_key(key).node for key in backend.list("retired")}
        assert marks == {nodes[-1], branch}
        assert store.retain("latest:1").kept == (3,)


def test_who_resumes_is_not_sent_back_to_what_a_rewind_left_behind():
    backend, _ = astray()
    with lcstore.open(backend) as store:
        store.rewind(2)
        store.save(3, state(30))
    with lcstore.open(backend) as again, warnings.catch_warnings():
        warnings.simplefilter("error")
        again.resume()
        assert again.step == 3


def test_an_experiment_is_told_of_though_what_it_began_upon_was_collected():
    backend, _ = astray(20)
    with lcstore.open(backend, grace=0) as store:
        store.resume(5)
        for step in (6, 7, 8):
            store.save(step, state(step))
        store.retain("latest:1 | every:10")
        for _ in range(2):
            store.compact()
            store.collect()
        assert store.steps() == [0, 8, 10, 19]
    with lcstore.open(backend) as again, pytest.warns(lcstore.BesideWarning, match="had come to step 19"):
        again.resume()


def test_what_a_fork_took_the_place_of_is_protected_again_once_the_fork_is_let_go_of():
    backend, nodes = astray()
    with lcstore.open(backend, grace=0) as store:
        store.rewind(2)
        for step in (3, 4):
            store.save(step, state(30 + step))
        store.rewind(nodes[1])  # and a second one, which took the place of both
        store.save(9, state(9))
    with lcstore.open(backend, grace=0) as store:
        store.retire_run(3, run_is_dead=True, dry_run=True)
        assert nodes[5] in store._index.marks.superseded
        report = store.retire_run(3, run_is_dead=True)
        # The first fork is still there, and has the place of what came after step 2.
        assert not [note for note in report.notes if "run 1" in note]
        assert store._index.marks.superseded == {nodes[5], report.retired[0].node}
        report = store.retire_run(2, run_is_dead=True)
        assert [note for note in report.notes if "step 5 stays as the latest of run 1 again" in note]
        assert store.latest_step() == 5
        with pytest.raises(lcstore.InvalidInputError, match="latest state of run 1"):
            store.retire(5)
        assert store.retain("every:2").kept == (0, 2, 4, 5)
        for _ in range(2):
            store.collect()
        assert store.steps() == [0, 2, 4, 5]
        assert store.verify(level="decode").ok


def test_a_rewound_run_that_saves_nothing_takes_no_place():
    backend, _ = astray()
    with lcstore.open(backend) as store:
        store.rewind(2)
        store.resume(5)
        store.save(6, state(6))
        assert store.retain("latest:1").kept == (5, 6)
        with pytest.raises(lcstore.InvalidInputError, match="latest state of run"):
            store.retire(6)


def test_only_what_was_saved_upon_the_state_is_superseded():
    backend, nodes = astray()
    with lcstore.open(backend) as store:
        store.resume(1)
        store.save(100, state(100))
    with lcstore.open(backend) as store:
        store.rewind(2)
        store.save(3, state(30))
        assert set(store._index.refresh(full=True).nodes) >= set(nodes)
        assert store._index.marks.superseded == {nodes[5]}
        with pytest.raises(lcstore.InvalidInputError, match="latest state of run"):
            store.retire(100)


@pytest.mark.parametrize("begin", ["resume", "go_on_from"])
def test_a_job_that_is_preempted_often_keeps_what_its_rule_says(begin):
    backend = MemoryBackend.fresh()
    for process in range(12):
        with lcstore.open(backend, grace=0) as store:
            if process:
                getattr(store, begin)()
            for step in range(3 * process, 3 * process + 3):
                store.save(step, state(step))
            store.retain("latest:2 | every:30")
            store.collect()
    with lcstore.open(backend) as store:
        assert store.steps() == [0, 30, 34, 35]
        assert store.restore(34)["epoch"] == 34
        assert store.verify(level="decode").ok
        with pytest.raises(lcstore.InvalidInputError, match="latest state of run"):
            store.retire(35)


@pytest.mark.parametrize("collects", [False, True])
def test_no_older_state_takes_the_place_of_an_end_that_went(collects):
    backend, loss = MemoryBackend.fresh(), [5, 3, 4, 6, 3.5, 4.5, 5, 1, 3]
    for process in range(3):
        with lcstore.open(backend, grace=0) as store:
            if process:
                store.resume()
            for step in range(3 * process, 3 * process + 3):
                store.save(step, state(step), metrics={"loss": loss[step]})
            store.retain("latest:1 | best:loss")  # of the first two processes step 1 is the best
            for _ in range(2 * collects):
                store.compact()
                store.collect()
    with lcstore.open(backend, grace=0) as store:
        assert store.retain("latest:1 | best:loss").kept == (7, 8)
        for _ in range(2):
            store.collect()
        assert store.steps() == [7, 8]
        assert store.verify(level="decode").ok


def test_what_goes_over_with_an_end_is_given_back_with_the_run_that_took_its_place():
    backend, _ = astray()
    with lcstore.open(backend, grace=0) as store:
        store.resume()
        for step in (6, 7):
            store.save(step, state(step))
        store.retain("latest:1 | every:4")
        for _ in range(2):
            store.compact()
            store.collect()
        assert store.steps() == [0, 4, 7]
        assert store.retain("latest:1", dry_run=True).kept == (7,)
        report = store.retire_run(2, run_is_dead=True)
        assert [note for note in report.notes if "step 4 stays as the latest of run 1 again" in note]
        assert store.retain("latest:1").kept == (4,)
        with pytest.raises(lcstore.InvalidInputError, match="latest state of run 1"):
            store.retire(4)


def test_a_state_that_is_named_and_gone_on_from_stays_the_latest_of_its_run():
    backend, _ = astray()
    for at, run in ((5, None), (None, 1)):  # two experiments upon what was trained
        with lcstore.open(backend) as store:
            store.resume(at, run=run)
            for step in (100, 101):
                store.save(step, state(step))
            assert store.retain("latest:1", dry_run=True).kept[0] == 5


def test_the_latest_of_a_run_is_kept_again_once_the_one_that_went_on_is_let_go_of():
    backend, nodes = astray()
    with lcstore.open(backend) as store:
        store.resume()
        for step in (6, 7):
            store.save(step, state(step))
        store.resume()  # its own
        store.save(8, state(8))
        store._index.refresh(full=True)
        assert store._index.marks.superseded == {nodes[5]}
        report = store.retire_run(2, run_is_dead=True)
        assert [note for note in report.notes if "step 5 stays as the latest of run 1 again" in note]
        assert nodes[5] not in store._index.marks.superseded
        with pytest.raises(lcstore.InvalidInputError, match="latest state of run 1"):
            store.retire(5)


def test_a_run_that_is_alive_after_all_keeps_its_latest_state():
    backend, _ = astray()
    with lcstore.open(backend, grace=0) as old, lcstore.open(backend) as new:
        old.resume(5)
        old.save(6, state(6))
        new.resume()
        new.save(7, state(7))
        old.retain("latest:1")
        for _ in range(2):
            new.collect(grace=0)
        old.save(8, state(8))
        new.save(9, state(9))
        assert old.retain("latest:1").kept == (5, 8, 9)
        for step in (8, 9):
            assert old.restore(step)["epoch"] == step
        assert old.verify(level="decode").ok


def scene():
    """The old writer is alive and saves on; its head was superseded, is let go of, and is being collected."""
    backend, nodes = astray(3)
    old = lcstore.open(backend, threads=1)
    old.resume()
    head = old.save(3, state(3)).node
    with opened(backend) as new:
        new.rewind(1)
        new.save(2, state(20))
    store = old

    def saving(actor):
        guard = store._writer._guard
        store._writer.backend = guard.backend = guard._watch.backend = actor
        store._index.backend = actor
        return store.save(4, state(4)).node

    def check(outcomes):
        assert outcomes["writer"].error is None
        refused = outcomes[
            "collector"
        ].error  # without a grace it takes objects of a save under way for left over
        assert refused is None or "nothing is collected while" in str(refused)
        with opened(backend) as reader:
            for _ in range(2):
                assert reader.restore(outcomes["writer"].value)["epoch"] == 4
                reader.collect(grace=0)
            assert reader.verify(level="checksum").ok
            assert nodes[0] in reader._index.graph.nodes

    return Scene(backend, {"writer": saving, "collector": collecting(2, retire=head)}, check)


def test_no_order_of_the_old_writer_and_a_collector_loses_what_is_acknowledged():
    found = explore(scene, 60, samples=40)
    assert found.schedules + found.cut_short + found.sampled >= 60


def test_rewinding_into_objects_begins_a_run_too():
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step in range(3):
            store.save(step, {"model": {"w": np.full(4, step)}, "n": step})
        model = {"w": np.zeros(4, np.int64)}
        assert store.rewind_into(1, {"model": model}) == {"n": 1}
        assert model["w"].tolist() == [1] * 4
        store.save(2, {"model": {"w": np.full(4, 9)}, "n": 9})
        assert store.restore()["n"] == 9
        with pytest.raises(lcstore.InvalidInputError):
            store.rewind_into(1, {"model": {"w": np.zeros(5)}})
        assert sorted(store.retain("latest:1").kept) == [2]


class Meanwhile(FaultBackend):
    """Calls something before a record of a state is stored; no condemnation can be listed after that."""

    def __init__(self, inner, happens):
        super().__init__(inner)
        self.happens, self.cut_off = happens, False

    def put(self, key, data):
        if key.startswith(f"{keys.NODES}/") and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
            self.cut_off = True
        super().put(key, data)

    def list(self, prefix, foreign=None):
        if self.cut_off and prefix == keys.CONDEMNED:
            raise StorageError("the network is down", key=prefix)
        return super().list(prefix, foreign)


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.filterwarnings("ignore::lcstore.BesideWarning")
def test_a_save_that_was_left_open_does_not_stand_on_what_was_collected(lists):
    """Though the program has listed its states since, and so has seen that its base is gone."""
    inner = MemoryBackend.fresh()
    backend = Meanwhile(inner, None)
    with lcstore.open(backend, grace=0, durability="none") as store:
        for step in range(3):
            store.save(step, state(step))
        with lcstore.open(inner, "r+") as other:
            other.rewind(0)
            other.save(100, state(0))
            other.retain("latest:1")
            other.compact()

            def collect() -> None:
                while any(keys.parse_node_key(key).step == 2 for key in inner.list(keys.NODES)):
                    other.collect()

            backend.happens = collect
            with pytest.raises(UnknownOutcomeError, match="could not be listed"):
                store.save(3, state(3))
        backend.cut_off = False
        if lists:
            assert 100 in store.steps()
        seen = {step: store.restore(step) for step in (4, 5) if store.save(step, state(step))}
        assert store.info(4).kind == "anchor"
    with lcstore.open(inner, "r") as store:
        assert store.steps() == [4, 5, 100]
        assert all(same(store.restore(step), value) for step, value in seen.items())


def test_a_handle_that_goes_on_from_another_run_begins_a_run():
    """As a member of a population does that takes the weights of a better one."""
    backend = MemoryBackend.fresh()
    with warnings.catch_warnings(), lcstore.open(backend) as one, lcstore.open(backend) as other:
        warnings.simplefilter("ignore", lcstore.BesideWarning)
        for step in range(2):
            left, good = one.save(step, state(step)), other.save(step, state(50 + step))
        one.resume(good.node)
        assert one.retain("latest:1", dry_run=True).kept == (1, 1)  # nothing changes before the first commit
        for step in (2, 3):
            one.save(step, state(60 + step))
            other.save(step, state(50 + step))
        assert (one.info(2).run, one.info(2).base) == (3, good.node)
        assert one.info(3).run == 3
        # The end that it left is no more kept for being the latest of its run: nobody saves to that again.
        one._index.refresh(full=True)
        assert one._index.marks.superseded == {left.node}
        one.retain("latest:1")
        assert [(found.step, found.run) for found in one.states()] == [(3, 2), (3, 3)]


def test_a_handle_that_goes_back_in_its_own_run_begins_no_other():
    with lcstore.open(MemoryBackend.fresh()) as store:
        node = store.save(0, state(0)).node
        store.save(1, state(1))
        store.resume(node)
        store.save(2, state(2))
        assert store.info(2).run == 1
