"""Which state a name means where several runs save to one store."""

from __future__ import annotations

import math
import re
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import lcstore
from lcstore import FallbackWarning, InvalidInputError, NotFoundError
from lcstore.format import keys
from lcstore.format.records import StoreRecord
from lcstore.storage.memory import MemoryBackend


def state(number: int) -> dict[str, object]:
    return {"x": np.full(3, number), "n": number}


def test_the_latest_of_a_handle_that_saves_is_its_own():
    backend = MemoryBackend.fresh()
    one, two = lcstore.open(backend), lcstore.open(backend)
    one.save(10, state(1))
    assert two.restore()["n"] == 1  # it has saved nothing yet
    two.save(20, state(2))
    one_again = lcstore.open(backend)
    for store, own in ((one, 1), (two, 2)):
        assert store.restore()["n"] == store.restore("latest")["n"] == own
        assert store.latest_step() == store.info().step == 10 * own
        assert store.at()["n"] == own
        assert store.read("latest", "n") == own
    assert one_again.restore()["n"] == 2
    assert one_again.restore(run=1)["n"] == 1
    assert one_again.latest_step() == 20


def test_a_run_is_named_by_number_or_id():
    backend = MemoryBackend.fresh()
    first, second = lcstore.open(backend), lcstore.open(backend)
    first.save(10, state(1), metrics={"loss": 1.0})
    first.save(20, state(2), metrics={"loss": 3.0})
    second.save(10, state(3), metrics={"loss": 2.0})
    run_id = first.info(20).run_id
    with lcstore.open(backend) as store:
        assert store.restore(10)["n"] == 3  # the newest revision, whichever run saved it
        assert store.restore(10, run=1)["n"] == store.restore(10, run=run_id)["n"] == 1
        assert store.steps(run=1) == [10, 20]
        assert store.steps(run=2) == [10]
        assert store.latest_step(run=1) == 20
        assert store.at(run=run_id).step == 20
        assert store.restore("best:loss", run=2)["n"] == 3
        assert store.resume(10, run=1)["n"] == 1
        assert store.save(30, state(4)).base == first.at(10, run=1).node
        assert store.read(10, "n", run=1) == 1
        assert store.info(10, run=1).run_id == run_id
        assert (store.best_step("loss"), store.best_step("loss", run=1)) == (10, 10)
        assert store.best_step("loss", "max", run=1) == 20
        assert store.diff(10, 20, run=1).values == {"n": (1, 2)}
        assert [one.step for one in store.states(run=1)] == [10, 20]
        for ask in (store.restore, store.latest_step, store.info, store.states):
            with pytest.raises(
                NotFoundError, match=rf"no run 9.* are 1 \({run_id}\), 2 \(\w+\), 3 \(\w+\); `lcstore ls"
            ):
                ask(run=9)
        with pytest.raises(NotFoundError, match=r"no state 20 "):
            store.restore(20, run=2)
        with pytest.raises(InvalidInputError, match="names one state"):
            store.restore(store.info(10).node, run=2)


def test_a_run_is_named_wherever_a_state_is_labelled_or_let_go_of():
    backend = MemoryBackend.fresh()
    nodes = {}
    for run in (1, 2):
        with lcstore.open(backend) as one:
            for step in (10, 20):
                nodes[run, step] = one.save(step, {**state(step), f"run{run}": run}).node
    with lcstore.open(backend) as store:
        run_id = store.info(run=1).run_id
        assert "run1" in store.paths(10, run=1) | store.leaves(10, run=run_id)
        store.tag("base", 10, run=1)
        assert store.tags() == {"base": nodes[1, 10]}
        assert store.pin(10, by="fig", run=run_id) == nodes[1, 10]
        assert store.pin(10) == nodes[2, 10]
        assert (store.unpin(10, run=2), store.unpin(10, "fig", run=1)) == (1, 1)
        assert [store.retire(10, run=run).node for run in (1, 2)] == [nodes[1, 10], nodes[2, 10]]
        (back,) = store.unretire(10, run=1).brought_back
        assert back.node == nodes[1, 10]
        store.retire(10, run=1)
        assert store.pin(10, run=1) == nodes[1, 10]
        with pytest.raises(NotFoundError, match="no state 30 in run 2"):
            store.pin(30, run=2)
        with pytest.raises(InvalidInputError, match="names one state"):
            store.tag("b", nodes[1, 20], run=2)
        with pytest.raises(InvalidInputError, match="run"):
            store.unretire(run=1)


def test_the_best_state_by_name():
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step, loss in ((0, 3.0), (1, 1.0), (2, math.nan), (3, 2.0)):
            store.save(step, state(step), metrics={"loss": loss, "eval:acc": -loss, "val/loss": loss})
        assert store.restore("best:loss")["n"] == store.at("best:loss").step == 1
        assert store.restore("best:loss:max")["n"] == 0
        assert store.restore("best:eval:acc:max")["n"] == store.restore("best:val/loss")["n"] == 1
        assert [step for step, _ in store.walk(["best:loss", 3], names="n")] == [1, 3]
        store.tag("gold", "best:loss")
        assert store.restore("gold")["n"] == 1
        with pytest.raises(InvalidInputError, match="by which metric"):
            store.restore("best")
        with pytest.raises(NotFoundError, match=r"no step has a metric 'los'; there are 'eval:acc', 'loss'"):
            store.restore("best:los")
        for name in ("best", "best:loss"):
            with pytest.raises(InvalidInputError, match="cannot be a tag"):
                store.tag(name, 1)


def test_the_best_state_may_be_of_any_run():
    backend = MemoryBackend.fresh()
    for run, losses in enumerate(((3.0, 1.0), (5.0, 4.0), (2.0, 9.0)), 1):
        with lcstore.open(backend) as store:
            for step, loss in enumerate(losses):
                store.save(step, {"n": 10 * run + step}, metrics={"loss": loss})
    with lcstore.open(backend, "r") as store:
        assert store.restore("best:loss")["n"] == 11
        assert store.restore("best:loss:max")["n"] == 31
        assert store.info("best:loss").run == 1
        assert [store.restore("best:loss", run=run)["n"] for run in (1, 2, 3)] == [11, 21, 30]
        assert store.best_step("loss", run=3) == 0


def test_tags_agree_everywhere():
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, state(0), tags=("a", "both"))
        store.save(1, state(1), tags=("both",))
        store.tag("later", 0)
        store.untag("a")
        nodes = {step: store.info(step).node for step in (0, 1)}
        now = {0: ("both", "later"), 1: ("both",)}  # a tag on several states finds the last one that got it
        assert {step: store.info(step).tags for step in (0, 1)} == now
        assert {found.step: found.tags for found in store.states()} == now
        assert {found.step: found.info.tags for found in store.states()} == now
        assert store.tags() == {"later": nodes[0], "both": nodes[1]}
        assert store[0].info.tags == now[0]


def test_a_tag_that_no_state_has_is_not_taken_away_in_silence():
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, state(0), tags=("paper",))
        with pytest.raises(lcstore.NotFoundError, match=r"no tag 'papr' in .*; the nearest is 'paper': "):
            store.untag("papr")
        store.untag("paper")
        with pytest.raises(lcstore.NotFoundError, match="no tag 'paper'"):
            store.untag("paper")


def test_tags_of_states_that_go_are_named_and_say_how_these_come_back():
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step in range(4):
            store.save(step, state(step), tags=("paper",) if step == 1 else ())
        node = store.info(1).node
        for dry_run in (True, False):
            report = store.retain("latest:2", dry_run=dry_run)
            assert [note for note in report.notes if "tags of states that go: 'paper'." in note]
        with pytest.raises(lcstore.NotFoundError, match=f"step 1, .* was retired, .*`lcstore pin .*@{node}`"):
            store.restore("paper")
        store.pin(node)
        assert store.info("paper").node == node


def test_a_log_tells_what_was_done(caplog):
    with lcstore.open(MemoryBackend.fresh(), grace=0) as store, caplog.at_level("INFO", "lcstore"):
        info = store.save(7, state(0))
        store.restore(7)
        store.resume(7)
        store.save(8, state(1))
        told = [record.getMessage() for record in caplog.records]
        assert [line.split(": ")[1].split(" ")[0] for line in told] == [
            "saved",
            "restored",
            "resumed",
            "saved",
        ]
        assert all(store.url in line and "step 7" in line and info.node in line for line in told[:3])
        caplog.clear()
        store.retain("latest:1", dry_run=True)
        store.collect(dry_run=True)
        assert not caplog.records
        store.maintain("latest:1")
        store.retire(store.save(9, state(2)).base)
        store.repair()
        told = [record.getMessage().split(": ")[1].split(" ")[0] for record in caplog.records]
        assert told[:4] == ["collected", "retained", "compacted", "verified"]
        assert told[-3:] == ["saved", "retired", "repaired"]


def test_a_step_that_a_run_does_not_have_is_told_of_that_run():
    backend = MemoryBackend.fresh()
    for steps in ((90, 100, 110), (50, 99)):
        with lcstore.open(backend) as store:
            for step in steps:
                store.save(step, {"n": step})
    with lcstore.open(backend, "r") as reader, pytest.raises(lcstore.NotFoundError) as told:
        reader.info(100, run=2)
    said = str(told.value)
    assert f"no state 100 in run 2 of {backend.url}; it holds 2 steps from 50 to 99 (nearest: 99)" in said
    assert f"lcstore ls {backend.url} --run 2" in said


def test_a_step_that_may_have_been_deleted_is_told_as_such():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as store:
        for step in range(0, 60, 10):
            store.save(step, {"n": step})

        def said(at):
            with pytest.raises(lcstore.NotFoundError) as told:
                store.info(at)
            return str(told.value)

        assert "let go of" not in said(25)
        before = store.at(30).node
        store.retain("latest:1 | every:20")
        store.compact()
        store.collect()
        assert store.steps() == [0, 20, 40, 50]
        which = "states were let go of here and are deleted: the output of the night that did it says which"
        assert f"no state 30 in {backend.url}; {which}; it holds 4 steps" in said(30)
        assert "let go of" not in said(60)
        assert "it was let go of, and is deleted; " in said(before)
        assert "let go of" not in said("0" * 32)


def test_a_state_that_is_empty_is_told_to_have_nothing():
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(7, {})
        with pytest.raises(
            lcstore.InvalidInputError, match=r"under 'model': the state has nothing in it\. It"
        ):
            store.resume_into(None, {"model": {"w": np.zeros(2)}})


def test_long_saves_and_restores_tell_how_far_they_are():
    told: list[tuple[str, int, int]] = []

    def note(*progress: object) -> None:
        told.append(progress)

    rng = np.random.default_rng(0)
    tree = {f"w{i}.weight": rng.standard_normal((300, 300)).astype("f4") for i in range(5)}
    with lcstore.open(MemoryBackend.fresh()) as store:
        for use, phase in (
            (lambda: store.save(0, tree, on_progress=note), "save"),
            (lambda: store.save(1, tree, exact=True, on_progress=note), "save"),
            (lambda: store.restore(0, on_progress=note), "restore"),
            (lambda: store.resume(1, on_progress=note), "resume"),
        ):
            told.clear()
            use()
            total = told[-1][2]
            assert told[-1] == (phase, total, total)
            assert all(one[0] == phase and 0 < one[1] <= one[2] for one in told)


def test_a_handle_for_reading_says_so(tmp_path):
    with lcstore.open(tmp_path) as store:
        store.save(0, state(0))
    with lcstore.open(tmp_path, "r") as store:
        for use in (
            lambda: store.save(1, state(1)),
            lambda: store.retire(0),
            lambda: store.collect(),
            lambda: store.resume(0),
        ):
            with pytest.raises(lcstore.ReadOnlyError, match="mode 'a' or 'r\\+'"):
                use()
        assert store.collect(dry_run=True)


def test_there_is_no_latest_step_where_nothing_can_be_restored():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        for step in range(3):
            store.save(step, state(step + 1))
        for key in [key for key in backend.list("data") if "zarr" not in key]:
            backend.delete(key)
        store.repair()
    with lcstore.open(backend) as store:
        assert store.steps() == []
        with pytest.warns(FallbackWarning, match="3 states are not deleted yet"):
            assert store.latest_step() is None
    with lcstore.open(backend) as store:
        store.save(7, state(7))
        assert store.latest_step() == store.restore()["n"] == 7
        store.pin(7)
    with lcstore.open(backend, "r") as store:
        assert store.latest_step() == 7


def test_a_run_that_is_begun_beside_others_is_told_of_once():
    backend = MemoryBackend.fresh()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with lcstore.open(backend) as store:
            store.save(0, state(0))
            store.save(10, state(1))
        with lcstore.open(backend) as store:
            store.resume()
            store.save(20, state(2))
    with lcstore.open(backend) as store:
        with pytest.warns(lcstore.BesideWarning, match=r"run 3 begins anew at step 5.*steps 0 to 20.*resume"):
            store.save(5, state(3))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.save(6, state(4))


def beside(late: int) -> MemoryBackend:
    """Two runs that went on from one state: the first saved again after the second had ended."""
    backend = MemoryBackend.fresh()
    first = lcstore.open(backend)
    for step in (0, 10):
        first.save(step, state(step))
    with lcstore.open(backend) as second:
        second.resume()
        second.save(20, state(7))
        second.save(30, state(8))
    for step in range(20, 20 + late):
        first.save(step, state(step))
    first.close()
    return backend


def test_of_runs_beside_each_other_the_latest_is_of_the_one_that_committed_more():
    with lcstore.open(beside(3)) as store:
        with pytest.warns(lcstore.BesideWarning, match=r"step 22 of run 1.*step 30 before that.*run='\w+'"):
            store.resume()
        assert store.step == store.latest_step() == 22
        assert store.restore()["n"] == 22
        store.save(40, state(9))
        assert store.latest_step() == 40


def test_resuming_tells_of_a_run_that_saved_later():
    with lcstore.open(beside(1)) as store:
        with pytest.warns(lcstore.BesideWarning, match=r"step 30 of run 2.*step 20 after") as told:
            store.resume()
        store.resume(re.search(r"state, '(\w+)'", str(told[0].message))[1])
        assert store.step == 20
        assert store.save(41, state(9)).step == 41
    with lcstore.open(store._backend, "r") as reader:
        assert reader.latest_step() == 41  # later than all that was there


def told_while_saving(backend, *, resumed: bool) -> list[list[str]]:
    """What two handles that save in turns are warned of, each by itself."""
    if resumed:
        with lcstore.open(backend) as store:
            store.save(0, state(0))
    told = [[], []]
    handles = [lcstore.open(backend), lcstore.open(backend)]
    for handle in handles if resumed else ():
        handle.resume()
    for step in range(1, 20):
        for handle, words in zip(handles, told, strict=True):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                handle.save(step, state(step))
            words += [str(one.message) for one in caught if one.category is lcstore.BesideWarning]
    return told


@pytest.mark.parametrize("resumed", [False, True])
def test_two_that_save_beside_each_other_are_told_once(resumed):
    first, second = told_while_saving(MemoryBackend.fresh(), resumed=resumed)
    assert ["two processes train beside each other" in text for text in first] == [True]
    later = [text for text in second if "begins anew" not in text]
    assert ["two processes train beside each other" in text for text in later] == [True]
    assert len(second) == (1 if resumed else 2)


def test_one_that_comes_back_after_an_hour_is_told_at_its_next_save(monkeypatch):
    """A machine that hung: a second one took its place, and both had long looks ahead."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as first, lcstore.open(backend) as second:
        for step in range(5):
            first.save(step, state(step))
        later = time.time() + 3600
        monkeypatch.setattr("lcstore.store.otherruns.time", SimpleNamespace(time=lambda: later))
        second.resume()
        for step in range(5, 15):
            second.save(step, state(step))
        with pytest.warns(lcstore.BesideWarning, match=r"run 2 .* train beside each other"):
            first.save(5, state(5))


def test_one_that_saves_alone_is_told_nothing():
    backend = MemoryBackend.fresh()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for begin in (0, 20):
            with lcstore.open(backend) as store:
                if begin:
                    store.resume()
                for step in range(begin, begin + 20):
                    store.save(step, state(step))
                store.retire(begin + 3)
                store.collect()


def test_a_run_before_it_that_is_brought_back_is_none_beside_it(monkeypatch):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as first:
        for step in range(4):
            first.save(step, state(step))
    with lcstore.open(backend) as second:
        second.resume()
        second.save(4, state(4))
        second.retain("latest:1")
    with warnings.catch_warnings(), lcstore.open(backend) as store:
        warnings.simplefilter("error")
        store.resume()
        store.save(5, state(5))
        store.unretire()
        assert 2 in store.steps()
        later = time.time() + 3600
        monkeypatch.setattr("lcstore.store.otherruns.time", SimpleNamespace(time=lambda: later))
        store.save(6, state(6))


def test_one_that_rewinds_is_not_told_of_itself():
    with warnings.catch_warnings(), lcstore.open(MemoryBackend.fresh()) as store:
        warnings.simplefilter("error")
        for begin in (0, 3, 6):
            if begin:
                store.rewind(begin)
            for step in range(begin + 1, begin + 9):
                store.save(step, state(step))
        assert len({info.run for info in store.states()}) == 3


def test_a_run_is_named_wherever_one_goes_on():
    backend = beside(1)
    for go_on in ("resume_into", "rewind_into", "restore_into"):
        with lcstore.open(backend) as store:
            ids = {name.run: name.run_id for name in store._index.refresh(full=True).nodes.values()}
            for run, number in ((1, 20), (2, 8)):
                assert getattr(store, go_on)("latest", {}, run=ids[run])["n"] == number
    with lcstore.open(backend) as store:
        store.rewind("latest", run=1)
        assert store.step == 20
    with lcstore.CheckpointManager(backend, every=1) as manager:
        assert manager.resume(run=1).step == 20
        assert manager.resume_into({}, run=2).step == 30


def test_a_step_is_that_of_the_own_run():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as one, lcstore.open(backend) as other:
        for step in range(3):
            one.save(step, state(step))
            other.save(step, state(50 + step))
        for step in range(3):
            assert one.restore(step)["n"] == step
            assert one.info(step).run_id == one._index.own_run
            assert other.info(step).run_id == other._index.own_run


def test_a_step_that_is_not_above_the_one_before_is_told_of_once():
    with lcstore.open(MemoryBackend.fresh()) as store:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in (10, 20):
                store.save(step, state(step))
            store.resume(10)
            store.save(10, state(3))  # what was resumed is another's
        with pytest.warns(lcstore.StepWarning, match=r"step 5 was saved after step 10"):
            store.save(5, state(4))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert store.save(5, state(5)).step == 5


@pytest.mark.parametrize("save", [lcstore.Store.save, lambda *what: lcstore.Store.save_async(*what).result()])
@pytest.mark.parametrize(
    "begin",
    [
        lcstore.Store.resume,
        lcstore.Store.go_on_from,
        lambda store: store.resume("latest", run=1),
        lambda store: store.resume_into("latest", {}, run=1),
        lambda store: store.go_on_from(None, run=1),
    ],
)
def test_a_counter_that_begins_anew_in_a_new_process_is_told_of(begin, save):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        store.save(35, state(1))
    with lcstore.open(backend) as store:
        begin(store)
        with pytest.warns(lcstore.StepWarning, match=r"step 0 was saved after step 35, which was resumed"):
            save(store, 0, state(2))


@pytest.mark.parametrize(
    ("begin", "step"),
    [
        *((begin, 0) for begin in (lcstore.Store.resume, lcstore.Store.rewind, lcstore.Store.go_on_from)),
        (lambda store, step: None, 0),
        (lambda store, step: store.resume(), 35),  # the end of a loop, saved again
    ],
)
def test_a_step_that_is_no_higher_is_meant_where_a_state_was_named_or_an_end_is_saved_again(begin, step):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        store.save(35, state(1))
    with lcstore.open(backend) as store, warnings.catch_warnings():
        warnings.simplefilter("error", lcstore.StepWarning)
        begin(store, 35)
        store.save(step, state(2), tags=["final"])


def test_weights_that_are_not_finite_are_told_of_once():
    weight = np.ones((64, 64), np.float32)
    with lcstore.open(MemoryBackend.fresh()) as store:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(2):
                store.save(step, {"model": {"fc.weight": weight + step, "other.weight": weight}})
            # Too large for its grid, and finite.
            store.save(2, {"model": {"fc.weight": weight, "other.weight": weight * np.float32(3e38)}})
        weight[3, 5] = np.nan
        with pytest.warns(lcstore.NotFiniteWarning, match="step 3: values of 'model/fc.weight' are not"):
            store.save(3, {"model": {"fc.weight": weight, "other.weight": weight[:3]}})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.save(4, {"model": {"fc.weight": weight, "other.weight": weight * np.float32(np.inf)}})
            for step in range(5, 9):  # it went back to a state before, and diverges again
                store.save(step, {"model": {"fc.weight": np.ones_like(weight), "other.weight": weight[:3]}})
        with pytest.warns(lcstore.NotFiniteWarning, match="step 9: values of 'model/fc.weight' are not"):
            store.save(9, {"model": {"fc.weight": weight, "other.weight": weight[:3]}})
        assert np.array_equal(store.restore(3)["model"]["fc.weight"], weight, equal_nan=True)


def test_values_too_large_for_a_grid_that_become_nan_are_told_of():
    weight = np.full((64, 64), 3e38, np.float32)
    with lcstore.open(MemoryBackend.fresh()) as store:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(3):
                store.save(step, {"model": {"fc.weight": weight * np.float32(step / 2)}})
        assert store._writer.plain
        with pytest.warns(lcstore.NotFiniteWarning, match="step 3: values of 'model/fc.weight' are not"):
            store.save(3, {"model": {"fc.weight": weight * np.float32(np.inf)}})


def test_a_lossless_run_is_told_of_values_that_are_not_finite():
    weight = np.ones((64, 64), np.float32)
    with lcstore.open(MemoryBackend.fresh(), policy="lossless") as store:
        store.save(0, {"model": {"fc.weight": weight}})
        with pytest.warns(
            lcstore.NotFiniteWarning, match="step 1: values of 'model/fc.weight' are not"
        ) as told:
            store.save(1, {"model": {"fc.weight": weight * np.float32(np.nan)}})
        assert "until two saves after" not in str(told[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.save(2, {"model": {"fc.weight": weight * np.float32(np.nan)}})


@pytest.mark.parametrize("first", [True, False])
def test_of_weights_that_are_not_finite_nothing_else_is_said(first):
    """They are kept bit for bit for their values, and not for their names."""
    weight = np.ones((128, 256), np.float32)
    backend = MemoryBackend.fresh()
    if not first:
        with lcstore.open(backend) as store:
            store.save(0, {"params": {"l0": {"kernel": weight}}})
    with lcstore.open(backend) as store:
        if not first:
            store.resume()
        with pytest.warns() as caught:
            store.save(1, {"params": {"l0": {"kernel": np.full_like(weight, np.nan)}}})
    assert [one.category for one in caught] == [lcstore.NotFiniteWarning]


def test_a_number_that_two_runs_took_at_once_is_refused():
    backend = MemoryBackend.fresh()
    handles = [lcstore.open(backend) for _ in range(2)]
    for handle in handles:  # each has listed before the other has saved
        handle._writer.run = 1
    for number, handle in enumerate(handles):
        handle.save(number, state(number))
    with lcstore.open(backend, "r") as store:
        ids = {name.run_id for name in store._index.refresh().nodes.values()}
        assert len(ids) == 2
        with pytest.raises(InvalidInputError, match="2 runs that began at the same time") as caught:
            store.restore("latest", run=1)
        assert all(repr(one) in str(caught.value) for one in ids)
        with pytest.raises(InvalidInputError, match="2 runs that began at the same time"):
            store.latest_step(run=1)
        assert store.latest_step() in (0, 1)
        assert {store.at("latest", run=one).step for one in ids} == {0, 1}


def test_where_there_is_no_store_yet_it_is_said(tmp_path):
    with lcstore.open(tmp_path / "new") as store:
        for ask in (store.restore, store.info, store.at):
            with pytest.raises(NotFoundError, match="there is no store at"):
                ask()
        assert store.latest_step() is None
    backend = MemoryBackend.fresh()
    backend.put(keys.STORE_KEY, StoreRecord().to_bytes())
    with lcstore.open(backend) as store, pytest.raises(NotFoundError, match="it holds none"):
        store.restore()


def test_wrong_arguments_are_told_by_what_they_are():
    with lcstore.open(MemoryBackend.fresh()) as store:
        with pytest.raises(InvalidInputError, match=r"not a dict: save\(step, state\)"):
            store.save(state(0), 0)
        with pytest.raises(InvalidInputError, match=r"not 'final'.*Names are for tags"):
            store.save("final", state(0))
        for metrics in (3.0, 0, [], np.ones(2)):
            with pytest.raises(InvalidInputError, match=r"give a dict, \{'loss': 1\.5\}"):
                store.save(0, state(0), metrics=metrics)
        with pytest.raises(InvalidInputError, match=r"metric 'loss' is the text '1\.5'"):
            store.save(0, state(0), metrics={"loss": "1.5"})
        for wrong in (-1, 2.5):
            with pytest.raises(InvalidInputError, match=rf"'latest', a tag or a node id, not {wrong}"):
                store.restore(wrong)
        store.save(np.int64(3), state(0), metrics={"loss": 1.0})
        store.save(np.array(4), state(1), metrics={"loss": 2.0})
        assert [(one.step, one.metrics) for one in store.states()] == [(3, {"loss": 1.0}), (4, {"loss": 2.0})]
        assert store.states(records=False)[0].metrics == {}
        with pytest.raises(InvalidInputError, match="rule"):
            store.retain(3)


def test_a_step_of_two_runs_says_which_was_taken(caplog):
    backend = MemoryBackend.fresh()
    nodes = []
    for number in (1, 2):
        with lcstore.open(backend) as store:
            nodes.append(store.save(10, state(number)).node)
            store.save(20 + number, state(number))
    with lcstore.open(backend, "r") as store, caplog.at_level("INFO", "lcstore.hints"):
        assert store.read(10, "n") == 2
        assert caplog.messages == [
            f"{store.url}: step 10 was saved 2 times; this is node {nodes[1]} of run 2. By id there is also "
            f"{nodes[0]} (run 1)"
        ]
        caplog.clear()
        store.retire(10, dry_run=True)
        assert [f"this is node {nodes[1]} of run 2" in one for one in caplog.messages] == [True]
        caplog.clear()
        store.read(10, "n", run=1), store.read(nodes[0], "n"), store.read(21, "n"), store.restore()
        assert caplog.messages == []
    with lcstore.open(backend) as store, caplog.at_level("INFO", "lcstore.hints"):
        store.pin(10), store.tag("a", 10), store.unpin(10)
        assert [f"this is node {nodes[1]} of run 2" in one for one in caplog.messages] == [True] * 3
        caplog.clear()
        store.pin(10, run=1), store.tag("a", 10, run=1), store.unpin(10, run=1), store.pin(21)
        assert caplog.messages == []
