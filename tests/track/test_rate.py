"""Rate control: the error stays what was asked for whatever updates do, still tensors come to rest, and what
is asked for by path, row or budget is kept."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, is_dataclass, replace

import numpy as np
import pytest

import lcstore
from lcstore.dtypes import dtype_name
from lcstore.edges import grid
from lcstore.edges.columns import ADD, KEEP, Columns
from lcstore.errors import InvalidInputError
from lcstore.frames.scales import log2_of
from lcstore.layout.layout import make_layout
from lcstore.state.tree import flatten
from lcstore.storage.memory import MemoryBackend
from lcstore.track import stepsizes
from lcstore.track.budget import Budget
from lcstore.track.known import Known, parts_of
from lcstore.track.policy import PRESETS, Policy
from lcstore.track.samples import positions
from lcstore.track.track import Track

BALANCED = PRESETS["balanced"]


@dataclass
class Follower:
    """Saves states on a bare track, and looks at everything that a reader would get."""

    policy: Policy = BALANCED
    track: Track = field(default_factory=Track)
    size: int = 0
    estimate: float = math.nan

    def save(self, state: dict[str, np.ndarray]) -> Columns:
        reset: set = set()
        flat = flatten(state)
        entries = [
            (path, host.array.shape, dtype_name(host.array.dtype), "weights", host.framework)
            for path, host in flat.tensors
        ]
        layout = make_layout(flat.structure, entries, self.track.layout)
        arrays = [np.ascontiguousarray(a).reshape(-1) for a in state.values()]
        while True:
            anchor = self.track.layout is None
            draft = self.track.draft(layout, arrays, self.policy, anchor=anchor, reset=reset)
            chunks = [] if draft.off_grid else [job() for job in draft.jobs]
            if not draft.off_grid:
                break
            draft.roll_back()
            reset |= {draft.layout.tensors[t].name for t in draft.off_grid}
        self.size = sum(len(chunk.data) for chunk in chunks if chunk is not None)
        self.estimate, _ = draft.tracking()
        draft.commit()
        return draft.columns

    def left(self, name: str, value: np.ndarray) -> np.ndarray:
        """What a reader is off by."""
        index = self.track.layout.index[(name,)]
        spec = self.track.layout.tensors[index]
        held = np.empty(spec.size, np.float64)
        integers = self.track.pools[spec.pool][spec.offset : spec.offset + spec.size]
        grid.from_grid(integers, int(self.track.columns.grid[index]), "float64", held)
        return value.astype(np.float64) - held.reshape(value.shape)


def samples_alone(follower: Follower) -> dict:
    """What a handle that resumes knows of its tensors."""
    return {name: Known(known.sample) for name, known in follower.track.held.known.items()}


def hashes(value: object) -> object:
    """All that a value holds, arrays by their bytes."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if is_dataclass(value):
        value = vars(value)
    return {name: hashes(part) for name, part in value.items()} if isinstance(value, dict) else value


def norm(values: np.ndarray) -> float:
    return float(np.linalg.norm(values.astype(np.float64)))


def walk(rng, shape, scale=1e-3, base=0.1):
    value = rng.standard_normal(shape) * base
    while True:
        yield value.astype(np.float32)
        value = value + rng.standard_normal(shape) * scale


@pytest.mark.parametrize("error", [0.1, 0.35, 0.6, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("octave", [0.0, 0.3, 0.6, 0.9])
def test_the_error_is_the_one_asked_for_wherever_the_scale_lies(error, octave):
    rng = np.random.default_rng(1)
    follower, states = Follower(Policy(error=error)), walk(rng, (200, 150), 1e-3 * 2**octave)
    errors, last = [], None
    for save in range(30):
        now = next(states)
        follower.save({"w": now})
        if save >= 15:
            errors.append(norm(follower.left("w", now)) / norm(now - last))
            assert follower.estimate == pytest.approx(errors[-1], rel=0.1)
        last = now
    assert np.mean(errors) == pytest.approx(error, rel=0.15)


def changes(rng, count):
    """Scales of updates with everything that happens to them, one a save: 0 where nothing moves."""
    scale, made = 1e-3, []
    while len(made) < count:
        what = rng.choice(["steady", "decay", "drop", "restart", "spike", "freeze", "vanish"])
        length = int(rng.integers(3, 40))
        if what == "decay":
            made += [scale := scale * 0.93 for _ in range(length)]
        elif what == "drop":
            made += [scale := scale * 0.1]
        elif what == "restart":
            made += [scale := 1e-3]
        elif what == "spike":
            made += [scale * 100, scale]
        elif what == "freeze":
            made += [0.0] * length
        elif what == "vanish":
            made += [scale * 0.5**i for i in range(length)]
        scale = max(scale, 1e-6)
        made += [scale] * length
    return made[:count]


def soak(seed: int, saves: int) -> None:
    rng = np.random.default_rng(seed)
    follower = Follower()
    value = rng.standard_normal((160, 128)) * 0.1
    now = value.astype(np.float32)
    follower.save({"w": now})
    recent: deque[float] = deque(maxlen=20)  # of the saves that moved it: what rests comes in slowly
    over = judged = still = 0
    for scale in changes(rng, saves):
        value = value * 0.9999 + rng.standard_normal(value.shape) * scale if scale else value
        last, now = now, value.astype(np.float32)
        columns = follower.save({"w": now})
        moved, left = norm(now - last), norm(follower.left("w", now))
        if moved:
            recent.append(moved)
        unit = 2.0 ** int(columns.grid[0])
        ulp = float(np.spacing(np.abs(now).max())) * math.sqrt(now.size)
        assert left <= max(2 * max(recent, default=0.0), ulp, unit * math.sqrt(now.size)), (seed, scale)
        if moved > 8 * ulp:
            judged += 1
            over += left > 2 * moved
        if columns.op[0] == ADD:
            still = 0 if moved else still + 1
            if still > 1:
                assert 8 * follower.size <= now.size
        if still > 70:
            assert columns.op[0] == KEEP
        if columns.op[0] == KEEP:
            assert follower.size == 0
            assert left <= ulp
    assert over <= 0.01 * judged


def test_nothing_that_updates_do_makes_the_error_run_away():
    soak(1, 1000)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
def test_nothing_that_updates_do_makes_the_error_run_away_in_ten_thousand_saves(seed):
    soak(seed, 10_000)


def test_a_tensor_that_rests_is_flushed_costs_nothing_and_goes_on_with_its_step():
    rng = np.random.default_rng(3)
    follower, states = Follower(), walk(rng, (160, 128))
    for _ in range(8):
        now = next(states)
        columns = follower.save({"w": now})
    step = int(columns.shift[0])
    sizes = []
    for _ in range(60):
        columns = follower.save({"w": now})
        sizes.append(8 * follower.size / now.size)
    assert max(sizes) <= 1.0
    assert sizes[-1] == 0
    assert columns.op[0] == KEEP
    assert np.abs(follower.left("w", now)).max() <= np.spacing(np.abs(now).max())
    columns = follower.save({"w": next(states)})
    assert columns.op[0] == ADD
    assert abs(log2_of(int(columns.shift[0])) - log2_of(step)) <= 0.5


def test_a_change_that_the_sample_misses_is_not_lost():
    rng = np.random.default_rng(4)
    follower, states = Follower(), walk(rng, (300, 300))
    for _ in range(3):
        now = next(states)
        follower.save({"w": now})
    for _ in range(60):
        columns = follower.save({"w": now})
    assert columns.op[0] == KEEP
    other = now.copy()
    place = int(np.setdiff1d(np.arange(now.size), positions(now.size))[17])
    other.flat[place] += 0.5
    assert follower.save({"w": other}).op[0] == ADD
    assert abs(follower.left("w", other).flat[place]) < 1e-3


def test_rules_give_paths_their_own_error():
    rng = np.random.default_rng(5)
    policy = Policy(error=2.0, rules={"fine*": {"error": 0.35}, "kept": {"error": None}})
    follower = Follower(policy)
    series = {name: walk(rng, (150, 150)) for name in ("fine.weight", "coarse")}
    last, errors = {}, {name: [] for name in series}
    for save in range(20):
        now = {name: next(states) for name, states in series.items()}
        follower.save(now)
        for name in series if save > 8 else ():
            errors[name].append(norm(follower.left(name, now[name])) / norm(now[name] - last[name]))
        last = now
    assert np.mean(errors["fine.weight"]) == pytest.approx(0.35, rel=0.15)
    assert np.mean(errors["coarse"]) == pytest.approx(2.0, rel=0.2)
    assert policy.role(("kept",), "weights") == "plain"
    assert policy.role(("fine.weight",), "plain") == "plain"
    for rule in ({"error": 100.0}, {"eror": 1.0}, {}):
        with pytest.raises(InvalidInputError, match=r"rule|error"):
            Policy(rules={"a": rule})


@pytest.mark.parametrize("share", [0.2, 1.0, 4.0])
def test_a_budget_is_kept_to(share):
    rng = np.random.default_rng(6)
    states = walk(rng, (256, 256))
    budget = int(0.09 * 65536 * share)
    follower = Follower(Policy(bytes_per_save=budget))
    sizes = []
    for save in range(120):
        follower.save({"w": next(states)})
        if save >= 60:
            sizes.append(follower.size)
    assert np.mean(sizes) == pytest.approx(budget, rel=0.1)


def test_a_budget_that_cannot_be_kept_to_stays_within_bounds():
    rng = np.random.default_rng(7)
    states = walk(rng, (128, 128))
    for budget, bound in ((1, 8.0), (1 << 30, 0.05)):
        follower = Follower(Policy(bytes_per_save=budget))
        for _ in range(40):
            follower.save({"w": next(states)})
        assert follower.track.held.budget.factor == pytest.approx(bound)


def test_after_a_resume_a_budget_begins_where_the_record_ends():
    rng = np.random.default_rng(8)
    states = walk(rng, (256, 256))
    follower = Follower(Policy(bytes_per_save=2000))
    for _ in range(40):
        follower.save({"w": next(states)})
    known = follower.track.held.budget.factor
    follower.track.held = replace(follower.track.held, budget=Budget(), known=samples_alone(follower))
    follower.save({"w": next(states)})
    assert follower.track.held.budget.factor == pytest.approx(known, rel=0.35)


@pytest.mark.parametrize("kwargs", [{"bytes_per_save": 0}, {"bytes_per_save": 10, "error": None}])
def test_budgets_that_make_no_sense(kwargs):
    with pytest.raises(InvalidInputError, match="bytes_per_save"):
        Policy(**kwargs)


def test_rows_whose_updates_are_a_thousand_times_smaller_go_on_tracking():
    rng = np.random.default_rng(9)
    rows, columns = 4096, 64
    scale = np.repeat(10.0 ** -np.arange(4), rows // 4)[:, None]
    value = rng.standard_normal((rows, columns)) * 0.1
    follower, last = Follower(), None
    errors = []
    for save in range(60):
        now = value.astype(np.float32)
        follower.save({"w": now})
        if save >= 40:
            rms = [np.sqrt(np.mean(np.square(a), axis=1)) for a in (follower.left("w", now), now - last)]
            errors.append(rms[0] / rms[1])
        last, value = now, value + rng.standard_normal(value.shape) * scale * 1e-2
    by_row = np.mean(errors, axis=0)
    assert by_row.max() <= 8
    for low in range(0, rows, 1024):
        assert np.mean(by_row[low : low + 1024]) <= 4.5


def test_one_row_in_a_hundred_touched_costs_little_more_than_those_rows():
    rng = np.random.default_rng(10)
    rows, columns, touched = 20_000, 64, 200
    table = rng.standard_normal((rows, columns)).astype(np.float32) * 0.1
    alone = rng.standard_normal((touched, columns)).astype(np.float32) * 0.1
    whole, part = Follower(), Follower()
    whole.save({"w": table})
    part.save({"w": alone})
    sizes = []
    for save in range(30):
        picked = rng.choice(rows, touched, replace=False)
        update = rng.standard_normal((touched, columns)).astype(np.float32) * 1e-3
        table[picked] += update
        alone += update
        whole.save({"w": table.copy()})
        part.save({"w": alone.copy()})
        if save >= 10:
            sizes.append((whole.size, part.size))
    of_table, of_rows = np.mean(sizes, axis=0)
    assert norm(whole.left("w", table)) <= 4 * norm(update)  # what is left in older rows counts
    assert of_table <= 1.5 * of_rows


def test_steps_are_what_scales_say():
    for scale in range(256):
        units = stepsizes.StepSize(scale).units
        assert units == (1, 3, 5, 7)[scale >> 6] << (scale & 63)
        assert log2_of(scale) == pytest.approx(math.log2(units))
    for wanted in np.linspace(-1, 27, 1000):
        found = stepsizes.nearest(float(wanted), 26)
        assert abs(log2_of(found) - min(max(wanted, 0), 26)) <= (0.17 if wanted > 2 else 0.51)


@pytest.mark.parametrize("error", np.geomspace(0.01, 8, 40))
def test_the_error_of_a_step_is_the_inverse_of_the_step_of_an_error(error):
    assert stepsizes.error_of(stepsizes.best(float(error))[0]) == pytest.approx(error, rel=1e-9)


def test_every_block_of_a_tensor_of_any_size_has_a_part():
    for count in (*range(1, 12_000, 7), *range(5_119, 5_130), *range(7_168, 7_180), *range(30_750, 30_760)):
        part_of_block, starts = parts_of(count, positions(count).size)
        assert part_of_block.size == -(-count // 1024)
        assert part_of_block.max(initial=0) < starts.size
        assert starts[0] == 0
        assert (np.diff(starts, append=positions(count).size) > 0).all()


def test_a_draft_that_is_rolled_back_leaves_the_rate_as_it_was():
    follower, rng = Follower(), np.random.default_rng(0)
    value = rng.standard_normal((96, 64))
    for _ in range(4):
        value = value + rng.standard_normal((96, 64)) * 1e-3
        follower.save({"w": value.astype(np.float32)})
    track = follower.track
    before, pools = track.held, {name: pool.copy() for name, pool in track.pools.items()}
    remembered = hashes(before.known[("w",)]._asdict())
    for still in (False, True):
        state = value if still else value + rng.standard_normal((96, 64)) * 1e-3
        flat = [host.array.reshape(-1) for _, host in flatten({"w": state.astype(np.float32)}).tensors]
        for _ in range(3):
            draft = track.draft(track.layout, flat, BALANCED, anchor=False)
            for job in list(draft.jobs):
                job()
            draft.roll_back()
        assert track.held is before
        assert hashes(before.known[("w",)]._asdict()) == remembered
        assert all((track.pools[name] == pool).all() for name, pool in pools.items())


def test_exact_values_are_no_part_of_a_budget():
    def errors(exact_at):
        rng, found = np.random.default_rng(0), []
        weights = rng.standard_normal((256, 256)).astype(np.float32)
        with lcstore.open(MemoryBackend.fresh(), policy=Policy(bytes_per_save=10_000), threads=1) as store:
            for step in range(16):
                weights = weights + rng.standard_normal((256, 256)).astype(np.float32) * np.float32(1e-3)
                found.append(store.save(step, {"model": {"w.weight": weights}}, exact=step == exact_at).error)
        return found[11:]

    assert errors(10) == pytest.approx(errors(None), rel=0.02)


@pytest.mark.parametrize(
    "wrong",
    [{"error": "1"}, {"error": True}, {"rules": {"**": {"error": "0.5"}}}, {"rules": {1: "plain"}},
     {"rules": {"": "plain"}}, {"bytes_per_save": 1.5}, {"bytes_per_save": math.inf}, {"name": "x" * 101}],
)  # fmt: skip
def test_a_policy_of_the_wrong_types_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        Policy(**wrong)
