"""Retaining, compacting, collecting beside damage: good states stay, the damaged take nobody's place."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from damaged import merge, state
from states import same

import lcstore
from lcstore.format import keys
from lcstore.read import find
from lcstore.storage.memory import MemoryBackend


def grown(saves=12, durability="none"):
    """A store of some saves, and what each restores to."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability=durability, grace=0) as store:
        for step in range(saves):
            store.save(step, state(step))
        return backend, {step: store.restore(step) for step in range(saves)}


def lose(backend, step, what=".add/c."):
    """Delete the objects of a step's own edge with `what` in their names; return their keys."""
    with lcstore.open(backend, "r") as store:
        folder = keys.edge_folder(store._index.record(store.info(step).node).edge.id)
    lost = [key for key in backend.list(folder) if what in key]
    assert lost
    for key in lost:
        backend.delete(key)
    return lost


@pytest.mark.parametrize("what", [".add/c.", ".set/c."])
def test_retention_does_not_count_what_cannot_be_restored(what):
    backend, seen = grown()
    lose(backend, 9, what)
    broken = {9, 10, 11} if what == ".add/c." else {9}
    with lcstore.open(backend, durability="none") as store:
        report = store.retain("latest:3")
        good = [step for step in seen if step not in broken][-3:]
        assert list(report.kept) == good
        assert any("damaged" in note and "lcstore repair" in note for note in report.notes)
        # What is damaged stays too: a repair decides about that.
        assert set(store.steps()) == {*good, *broken}
        for step in good:
            assert same(store.restore(step), seen[step])


def test_nothing_is_collected_while_a_kept_state_does_not_restore():
    backend, seen = grown()
    with lcstore.open(backend, durability="none", grace=0) as store:
        for step in range(4):
            store.retire(step)
    (key, *_) = lose(backend, 6)
    before = backend.snapshot()
    with lcstore.open(backend, durability="none") as store:
        for dry in (True, False):
            with pytest.raises(lcstore.CorruptionError, match="lcstore repair") as caught:
                store.collect(dry_run=dry)
            assert caught.value.key == key
    assert backend.snapshot() == before
    assert seen


@pytest.mark.parametrize("what", [".add/c.0", ".add/p."])
def test_what_parity_makes_up_for_is_not_damage(what):
    backend, seen = grown(durability="default")
    lose(backend, 9, what)
    with lcstore.open(backend, grace=0) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", lcstore.FallbackWarning)
        report = store.retain("latest:3")
        assert list(report.kept) == [9, 10, 11]
        assert not any("damaged" in note for note in report.notes)
        for _ in range(2):
            store.collect()
        assert store.steps() == [9, 10, 11]
        for step in store.steps():
            assert same(store.restore(step), seen[step])


def test_a_chunk_lost_with_its_parity_is_damage():
    backend, seen = grown(durability="default")
    (key, *_) = lose(backend, 9, ".add/c.0")
    lose(backend, 9, ".add/p.")
    with lcstore.open(backend, grace=0) as store:
        assert list(store.retain("latest:3").kept) == [6, 7, 8]
        with pytest.raises(lcstore.CorruptionError, match="lcstore repair") as caught:
            store.collect()
    assert caught.value.key == key
    assert seen


def test_what_a_way_around_damage_takes_is_not_collected():
    """Steps behind the damage are restored backward from an anchor of a state that is let go of."""
    backend, seen = grown()
    with lcstore.open(backend, durability="none", grace=0) as store:
        merge(store, None, 10)
    lose(backend, 5)
    with lcstore.open(backend, durability="none", grace=0) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", lcstore.FallbackWarning)
        for step in (0, 1, 2, 3, 5, 7, 8, 9, 10):
            store.retire(step)
        for _ in range(2):
            store.collect()
            for step in (4, 6, 11):
                assert same(store.restore(step), seen[step])


def test_resuming_says_how_many_saves_back_a_state_can_be_read():
    backend, seen = grown()
    (key, *_) = lose(backend, 9)
    with lcstore.open(backend, durability="none") as store:
        with pytest.raises(lcstore.CorruptionError, match=r"step 8, 3 saves before, can be read") as caught:
            store.resume()
        assert caught.value.key == key
        assert "on_corrupt='previous'" in caught.value.message
        with pytest.warns(lcstore.FallbackWarning, match=r"step 11 cannot be read .* step 8, 3 saves before"):
            state_of_8 = store.resume(on_corrupt="previous")
        assert same(state_of_8, seen[8])
        assert store.save(12, state(12)).kind == "delta"
    with lcstore.open(backend) as store:
        assert store.resume()["epoch"] == 12


def test_resuming_goes_back_past_what_a_repair_left_in_part():
    """The moments of the latest state are lost and let go of: it is there, and no run can go on from it."""
    backend, seen = grown()
    lose(backend, 11, "first-float32.set/c.")
    with lcstore.open(backend, durability="none") as store:
        assert store.repair(dry_run=False).lost
        assert same(store.restore(names="model/**")["model"], seen[11]["model"])
        with pytest.raises(lcstore.NotFoundError, match="let go"):
            store.resume()
        with pytest.warns(lcstore.FallbackWarning, match=r"step 11 cannot be read .* step 10, 1 save before"):
            assert same(store.resume(on_corrupt="previous"), seen[10])
        with pytest.raises(lcstore.NotFoundError, match="no state 99"):
            store.resume(99, on_corrupt="previous")


def test_restoring_says_what_can_be_read_and_what_to_run():
    backend, _ = grown(saves=3)
    (key,) = lose(backend, 2)
    with lcstore.open(backend, "r", durability="none") as store:
        for ask in (store.restore, lambda at: store.read(at, "model/w")):
            with pytest.raises(
                lcstore.CorruptionError, match=r"`lcstore repair .*` says what is lost"
            ) as caught:
                ask(2)
            assert caught.value.key == key
            assert caught.value.step == 2
        with pytest.raises(
            lcstore.CorruptionError, match="step 1, 1 save before, can be read: on_corrupt='prev"
        ):
            store.restore()


def test_resuming_says_when_nothing_before_can_be_read_either():
    backend, _ = grown(3)
    lose(backend, 0, "/c.")
    with (
        lcstore.open(backend, durability="none") as store,
        pytest.raises(lcstore.CorruptionError, match=r"lcstore repair.*nor can any of the 2 before it"),
    ):
        store.resume()


def test_resuming_says_that_there_are_more_states_to_look_at(monkeypatch):
    monkeypatch.setattr(find, "_LOOKED_AT", 1)
    backend, _ = grown(4)
    lose(backend, 1, "/c.")
    with lcstore.open(backend, durability="none") as store:
        with pytest.raises(lcstore.CorruptionError, match=r"nor can the 1 newest before it.*looks further"):
            store.resume()
        with pytest.warns(lcstore.FallbackWarning):
            assert store.resume(on_corrupt="previous") is not None
        assert store.step == 0


def test_verify_and_repair_know_of_a_way_past_the_state_and_back():
    """Only the state whose own edge is damaged is lost; the others are read from the anchor behind it."""
    backend, seen = grown()
    with lcstore.open(backend, durability="none", grace=0) as store:
        merge(store, None, 10)
    lose(backend, 5, "/c.")
    with lcstore.open(backend, durability="none", grace=0) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", lcstore.FallbackWarning)
        report = store.verify(level="checksum")
        assert not report.ok
        assert report.lost == (5,)
        assert store.repair(dry_run=False).actions
        assert store.verify(level="checksum").ok
        for _ in range(2):
            for step in seen.keys() - {5}:
                assert same(store.restore(step), seen[step])
            assert same(store.read(5, "model/w"), seen[5]["model"]["w"])  # the rest of it is let go of
            store.compact()
            store.collect()


def test_collecting_goes_on_where_a_state_is_only_read_from_behind():
    """The record that it stands on is gone for good; a repair has said so, and can do no more."""
    backend, seen = grown()
    with lcstore.open(backend, durability="none", grace=0) as store:
        merge(store, None, 8)
        store.retire(2)
        backend.delete(keys.node_key(store._index.graph.nodes[store.info(3).base]))
    with lcstore.open(backend, durability="none", grace=0) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", lcstore.FallbackWarning)
        assert {loss.step for loss in store.repair(dry_run=False).lost} == {3, 4, 5, 6, 7}  # their moments
        for _ in range(2):
            store.collect()
            assert store.steps() == [0, 1, *range(3, 12)]
            for step in store.steps():
                assert same(store.restore(step, names="model/**")["model"], seen[step]["model"])


@pytest.mark.parametrize("at", ["latest", "run", "node"])
def test_what_comes_in_the_place_of_a_damaged_state_is_of_its_own_line(at):
    """Another run, which saves into the same store, may have saved since."""
    backend, rng = MemoryBackend.fresh(), np.random.default_rng(0)
    with lcstore.open(backend, durability="none") as a, lcstore.open(backend, durability="none") as b:
        for step in range(3):
            weight = rng.standard_normal((32, 32)).astype(np.float32)
            info = b.save(step, {"model": {"weight": weight}, "of": "b"})
            if step == 0:
                a.save(step + 100, {"model": {"weight": weight}, "of": "a"})
    with lcstore.open(backend, "r") as store:
        run_id = store.info(info.node).run_id
    lose(backend, 2, "/c.")
    how = {"latest": {}, "run": {"run": run_id}, "node": {"at": info.node}}[at]
    with lcstore.open(backend, "r") as store:
        with pytest.warns(lcstore.FallbackWarning, match="this is step 1, 1 save before"):
            back = store.restore(**how, on_corrupt="previous")
        assert back["of"] == "b"


def test_a_run_of_which_nothing_is_left_gives_no_other_one():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as a, lcstore.open(backend, durability="none") as b:
        a.save(0, {"model": {"w": np.ones((32, 32), np.float32)}})
        info = b.save(1, {"model": {"w": np.ones((32, 32), np.float32)}})
    with lcstore.open(backend, "r") as store:
        run_id = store.info(info.node).run_id
    lose(backend, 1, "/c.")
    with lcstore.open(backend, "r") as store:
        with pytest.raises(lcstore.CorruptionError):
            store.restore(run=run_id, on_corrupt="previous")
        for name in (info.node, info.node[:8]):
            with pytest.raises(lcstore.CorruptionError):
                store.restore(name, on_corrupt="previous")
        with pytest.warns(lcstore.FallbackWarning, match=r"this is step 0 of run 1 \(.*\), 1 save before"):
            store.restore(on_corrupt="previous")
