"""Saves of tables of which the caller says which rows have changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from states import same

import lcstore
from lcstore.format import keys
from lcstore.staging.touched import union
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Fault, FaultBackend
from lcstore.track.policy import PRESETS, settled
from lcstore.track.samples import positions

ROWS, WIDTH = 3000, 32
PATH = "model/table.weight"


class Table:
    """A table of which every save moves a few rows, beside a matrix that moves as a whole."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.table = self.rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
        self.other = self.rng.standard_normal((64, 64)).astype(np.float32)

    def step(self, rows: object) -> dict:
        chosen = self.table[rows]
        self.table = self.table.copy()
        self.table[rows] = chosen + self.rng.standard_normal(chosen.shape).astype(np.float32) * np.float32(
            1e-2
        )
        self.other = self.other + self.rng.standard_normal((64, 64)).astype(np.float32) * np.float32(1e-3)
        return {"model": {"table.weight": self.table, "out.weight": self.other}, "step": 1}


def begin() -> tuple[lcstore.Store, Table]:
    """A store with an anchor and a delta, and the table."""
    made = Table()
    store = lcstore.open(MemoryBackend.fresh(), threads=2, policy=settled(PRESETS["balanced"]))
    store.save(0, made.step([0]))
    store.save(1, made.step(np.arange(ROWS)))
    return store, made


@pytest.fixture
def begun():
    store, made = begin()
    with store:
        yield store, made


def test_only_the_rows_named_move(begun):
    store, made = begun
    before = store.restore(1)["model"]["table.weight"]
    for step in range(2, 12):
        rows = made.rng.choice(ROWS, 40, replace=False)
        store.save(step, made.step(rows), touched={PATH: rows})
        after = store.restore(step)["model"]["table.weight"]
        assert set(np.flatnonzero((after != before).any(axis=1))) <= set(rows)
        assert np.abs(after[rows] - made.table[rows]).max() < 0.03
        before = after
    assert store.verify(level="restore").ok


@pytest.mark.parametrize(
    "given",
    [
        lambda rows: rows,
        lambda rows: [int(row) for row in rows[::-1]] * 2,
        lambda rows: rows - ROWS,
        lambda rows: np.isin(np.arange(ROWS), rows),
    ],
)
def test_rows_are_numbers_in_any_order_or_a_mask(begun, given):
    rows, seen = np.array([3, 4, 5, 900, 2999]), []
    for (store, made), named in ((begun, given(rows)), (begin(), rows)):
        store.save(2, made.step(rows), touched={PATH: named})
        assert not same(store.restore(2), store.restore(1))
        seen.append(store.restore(2))
        store.close()
    assert same(*seen)


def test_no_row_costs_nothing_and_leaves_what_was_there(begun):
    store, made = begun
    info = store.save(2, made.step([]), touched={PATH: []})
    assert info.bytes_stored < 64 * 64  # the other matrix alone
    assert same(*(store.restore(step)["model"]["table.weight"] for step in (1, 2)))


def test_rows_that_changed_and_are_not_named_are_noticed(begun):
    store, made = begun
    state = made.step(np.arange(1500))
    objects = store.backend.snapshot()
    for rows in ([], [7], np.arange(1000)):
        with pytest.raises(lcstore.InvalidInputError, match=r"touched leaves out .*table\.weight"):
            store.save(2, state, touched={PATH: rows})
    assert store.backend.snapshot().keys() == objects.keys()
    assert store.save(2, state, touched={PATH: np.arange(1500)}).kind == "delta"
    assert np.abs(store.restore(2)["model"]["table.weight"] - made.table).max() < 0.06


def test_an_anchor_and_an_exact_save_hold_all_rows():
    made = Table()
    with lcstore.open(MemoryBackend.fresh()) as store:
        first = made.step([1])
        store.save(0, first, touched={PATH: [1]})
        assert same(store.restore(0), first)
        store.save(1, made.step([2]))
        last = made.step([3])
        store.save(2, last, exact=True, touched={PATH: [3]})
        assert same(store.restore(2), last)


def test_a_row_that_is_not_finite_leaves_its_grid_as_ever(begun):
    store, made = begun
    state = made.step([5])
    state["model"]["table.weight"][5, 3] = np.inf
    store.save(2, state, touched={PATH: [5]})
    assert same(store.restore(2)["model"]["table.weight"], state["model"]["table.weight"])


@pytest.mark.parametrize(
    "touched",
    [{"model/none": [1]}, {PATH: [ROWS]}, {PATH: [-ROWS - 1]}, {PATH: [1.5]}, {PATH: [[1]]}, {PATH: [True]}],
)
def test_what_names_no_rows_is_refused(begun, touched):
    store, made = begun
    with pytest.raises(lcstore.InvalidInputError, match="touched"):
        store.save(2, made.step([1]), touched=touched)
    assert store.steps() == [0, 1]


def test_after_a_resume_rows_count_from_what_was_restored(begun):
    store, made = begun
    made.table = store.resume(1)["model"]["table.weight"]
    store.save(2, made.step([8]), touched={PATH: [8]})
    back = store.restore(2)["model"]["table.weight"]
    assert set(np.flatnonzero((back != store.restore(1)["model"]["table.weight"]).any(axis=1))) == {8}


@pytest.mark.parametrize("lost_by", ["skipping", "failing", "a timeout"])
@pytest.mark.parametrize("is_told", [True, False])
def test_rows_of_a_save_that_did_not_come_about_count_with_the_next(lost_by, is_told):
    made, broken = Table(), [False]
    faulty = FaultBackend(MemoryBackend.fresh(), {lambda _: broken[0]: Fault("eio")})
    with lcstore.open(faulty, threads=1) as store:
        store.save(0, made.step([0]))
        store.save(1, made.step(np.arange(100)))
        sampled = set((positions(ROWS * WIDTH) // WIDTH).tolist())
        unseen = next(row for row in range(ROWS - 1, 0, -1) if row not in sampled)
        other = made.other
        state = made.step([unseen])
        state["model"]["out.weight"] = made.other = other
        touched = {PATH: [unseen]} if is_told else None  # anything may have changed
        if lost_by == "skipping":
            assert store.save(2, state, touched=touched, skip_below=0.5).kind == "skipped"
        elif lost_by == "a timeout":  # of a store that is not waited for: at once, and nothing was asked
            with pytest.raises(lcstore.InvalidInputError, match="is not waited for"):
                store.save_async(2, state, touched=touched, timeout=3)
            touched = {PATH: [5, unseen]}
        else:
            broken[0] = True
            with pytest.raises(lcstore.StorageError):
                store.save(2, state, touched=touched)
            broken[0] = False
        store.save(3, made.step([5]), touched=touched if lost_by == "a timeout" else {PATH: [5]})
        assert store.steps()[-1] == 3
        back = store.restore(3)["model"]["table.weight"]
        assert np.abs(back[[5, unseen]] - made.table[[5, unseen]]).max() < 0.03


@given(*[st.lists(st.integers(0, 60), max_size=12).map(sorted)] * 2)
def test_a_union_of_ranges_holds_what_either_holds(one, other):
    both = [np.array(cuts[: len(cuts) // 2 * 2], np.int64).reshape(-1, 2) for cuts in (one, other)]
    both = [ranges[ranges[:, 0] < ranges[:, 1]] for ranges in both]
    made = union(*both)
    assert elements(made) == elements(both[0]) | elements(both[1])
    assert (made[1:, 0] > made[:-1, 1]).all()
    assert (made[:, 0] < made[:, 1]).all()


def elements(ranges: np.ndarray) -> set[int]:
    return {at for low, high in ranges.tolist() for at in range(low, high)}


def test_rows_of_saves_that_were_left_open_count():
    """The first commit lands with its rows; those of a save that could not settle it count with the next."""
    made, blind = Table(), [False]
    faulty = FaultBackend(
        MemoryBackend.fresh(),
        {
            lambda op: blind[0] and op.name == "put" and op.key.startswith(keys.NODES): Fault(
                "lost_request", None
            )
        },
    )
    with lcstore.open(faulty, threads=1, policy=settled(PRESETS["balanced"])) as store:
        store.save(0, made.step([0]))
        store.save(1, made.step(np.arange(100)))
        sampled = set((positions(ROWS * WIDTH) // WIDTH).tolist())
        rows = [row for row in range(ROWS - 1, 0, -1) if row not in sampled][:3]
        blind[0] = True
        for step, row in zip((2, 3), rows, strict=False):
            state = made.step([row])
            made.table[row] += 1
            with pytest.raises(lcstore.UnknownOutcomeError):
                store.save(step, state, touched={PATH: [row]})
        blind[0] = False
        store.save(4, made.step([rows[2]]), touched={PATH: [rows[2]]})
        assert store.steps()[-2:] == [2, 4]
        back = store.restore(4)["model"]["table.weight"]
        assert np.abs(back[rows] - made.table[rows]).max() < 0.1
        before = store.restore(2)["model"]["table.weight"]
        assert np.abs(before[rows[0]] - made.table[rows[0]]).max() < 0.1
        assert np.abs(before[rows[1]] - made.table[rows[1]]).max() > 0.9
