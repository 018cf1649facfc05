"""One table of step sizes per tensor: the finest that anything asks for, cut as the fused pass needs it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from test_rate import Follower, hashes, walk
from test_rows import table

from lcstore.track.decide import decide
from lcstore.track.smallrows import worst
from lcstore.track.stepsizes import StepSize
from lcstore.track.steptable import OWN_THRESHOLD, Needs, StepTable, make_table

USUAL = StepSize(12, 0.7)
OWN = StepSize(0, OWN_THRESHOLD)


def drawn(seed: int, width: int, *, rests: bool, small: bool) -> tuple[int, np.ndarray | None, Needs | None]:
    """Elements of a tensor, by how many octaves updates ask for less, and what its rows ask for."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 400))
    count = rows * width
    octaves = rng.integers(0, 15, -(-count // 1024)).astype(np.int16) if rests else None
    allowed = 2.0 ** rng.uniform(0, 16, rows)
    allowed[rng.random(rows) < 0.5] = np.inf
    needs = Needs(allowed, width, worst(USUAL, width), worst(OWN, width)) if small else None
    return count, octaves, needs


def by_element(made: StepTable, count: int) -> list[StepSize]:
    return [made.sizes[made.which[i // made.block]] for i in range(count)]


tables = st.builds(
    drawn,
    st.integers(0, 1 << 30),
    st.sampled_from([1, 3, 16, 100, 1500]),
    rests=st.booleans(),
    small=st.booleans(),
)


@given(tables)
def test_every_block_has_the_finest_step_size_that_anything_asks_for(asked):
    count, octaves, needs = asked
    made = make_table(USUAL, count, octaves, needs)
    assert made.which.size == -(-count // made.block)
    for i, step in enumerate(by_element(made, count)):
        most = USUAL.finer(int(octaves[i // 1024])).units if octaves is not None else USUAL.units
        assert step.units <= most
        if needs is not None:
            factor = needs.own if step.threshold == OWN_THRESHOLD else needs.usual
            assert factor * step.units <= needs.allowed[i // needs.width] or step.units == 1
    if needs is None and octaves is None:
        assert made.sizes == (USUAL,)


@given(tables, st.data())
def test_pieces_are_cut_where_step_sizes_change_and_nowhere_left_out(asked, data):
    count, octaves, needs = asked
    made = make_table(USUAL, count, octaves, needs)
    first = 1024 * data.draw(st.integers(0, (count - 1) // 1024))
    size = data.draw(st.integers(1, count - first))
    ranges = None
    if data.draw(st.booleans()):
        cuts = sorted(data.draw(st.sets(st.integers(-5, size + 5), max_size=12)))
        ranges = np.array(cuts[: len(cuts) // 2 * 2], np.int64).reshape(-1, 2)
    wanted = np.full(size, ranges is None)
    for low, high in ranges if ranges is not None else ():
        wanted[max(low, 0) : max(high, 0)] = True
    seen, each = np.zeros(size, bool), by_element(made, count)[first : first + size]
    for low, high, which in made.parts(first, size, ranges):
        assert low < high
        assert not seen[low:high].any()
        seen[low:high] = True
        assert all(step == made.sizes[which] for step in each[low:high])
    assert (seen == wanted).all()
    scales = np.broadcast_to(made.scales(first, size, 32), -(-size // 32))
    assert scales.tolist() == [each[i].scale for i in range(0, size, 32)]


def test_deciding_changes_nothing_and_decides_the_same_again():
    rng = np.random.default_rng(0)
    series, follower = {"a": table(rng, 300), "b": walk(rng, (64, 48))}, Follower()
    for _ in range(5):
        follower.save({name: next(states) for name, states in series.items()})
    track = follower.track
    arrays = [next(states).reshape(-1) for states in series.values()]
    made = track.draft(track.layout, arrays, follower.policy, anchor=False)
    before = hashes(remembered(track.held.known))
    one, other = (decide(track.held, made.coder.asked) for _ in range(2))
    assert hashes(remembered(track.held.known)) == before
    assert one.columns.to_bytes() == other.columns.to_bytes() == made.columns.to_bytes()
    assert hashes(remembered(one.known)) == hashes(remembered(other.known)) != before
    assert [*one.tables] == [0, 1]
    assert all(hashes(one.tables[t]) == hashes(other.tables[t]) for t in one.tables)


def remembered(known) -> dict:
    return {name: of._asdict() for name, of in known.items()}
