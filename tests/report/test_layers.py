"""What is told of tensors: how far they move, how they rest, what their deltas cost, what stands out."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from reported import Layers, save_run

import lcstore
import lcstore.report.gather as gathering
from lcstore.report import layers as looked
from lcstore.report.course import Course
from lcstore.report.gather import gather
from lcstore.report.layers import at_rest
from lcstore.report.leap import leap_of
from lcstore.report.note import Note, shared
from lcstore.report.notes import notes_of as notes_on
from lcstore.report.page import page_of
from lcstore.report.words import verdict
from lcstore.storage.memory import MemoryBackend


def course(movement, grid=None, weights=None, jumped=None) -> Course:
    movement = np.asarray(movement, float)
    grid = np.zeros(movement.shape) if grid is None else np.asarray(grid, float)
    weights = np.ones(movement.shape, np.int8) if weights is None else np.asarray(weights, np.int8)
    jumped = np.zeros(movement.shape, bool) if jumped is None else np.asarray(jumped, bool)
    steps = tuple(range(0, 10 * movement.shape[1], 10))
    return Course(steps, movement, grid, weights, jumped, (False,) * len(steps))


def notes_of(seen: Course) -> dict[int, str]:
    return {row: note.text for row, note in notes_on(seen).items()}


def leap_in(movement, steps) -> str:
    note = leap_of(movement, steps)
    return note.text if note else ""


STEADY = [np.nan, 1, 1.1, 0.9, 1, 1.1, 0.9, 1]


@pytest.mark.parametrize(
    ("movement", "note"),
    [
        (STEADY, None),
        ([np.nan, 0, 0, 0, 0, 0, 0, 0], "has never moved"),
        ([np.nan, 1, 1, 1, 1, 0, 0, 0], "is not seen to move since step 40"),
        ([np.nan, 1, 1, 1, 1, 1, 0, 0], None),
        (
            [np.nan, 1, 1, 1, 1, 1, 1, 20],
            "moves 20 times as far as it used to, beside the others, and further since step 70",
        ),
        (
            [np.nan, 1, 1.1, 0.9, 1, 2, 2, 21],
            "moves 21 times as far as it used to, beside the others, and further since step 50",
        ),
        (
            [np.nan, 1, 1, 1, 1, 1, 1, 0.01],
            "hardly moves any more since step 70: 100 times less than it used to, beside the others",
        ),
        (
            [np.nan, 1, 1, 1, 1, 1, 0.01, 0.01],
            "hardly moves any more since step 60: 100 times less than it used to, beside the others",
        ),
        ([np.nan, np.nan, np.nan, 0, 0, 0, np.nan, np.nan], None),
    ],
)
def test_notes(movement, note):
    said = notes_of(course([movement, STEADY, STEADY, STEADY]))
    assert said == ({} if note is None else {0: note})


def test_what_all_layers_do_is_no_news():
    falling = [np.nan, 1, 1, 1, 1, 0.1, 0.01, 0.001]
    rising = [np.nan, 1, 1, 1, 1, 10, 100, 1000]
    for count in (3, 4):
        assert notes_of(course([falling] * count)) == {}
        assert notes_of(course([rising] * count)) == {}
    assert list(notes_of(course([rising, *[STEADY] * 4]))) == [0]


@pytest.mark.parametrize("layers", [2, 3, 20])
def test_what_most_layers_do_at_once_is_told_of_all(layers):
    """As of a rate that rose forty times: no layer stood out, so a run that diverged was all clear."""
    noise = np.exp(0.2 * np.random.default_rng(0).standard_normal((layers, 60)))
    rate = np.r_[np.linspace(0.05, 1, 15), np.linspace(1, 0.5, 45)]
    steps = range(0, 600, 10)
    assert leap_in(noise * rate, steps) == ""
    said = leap_in(noise * rate * np.where(np.arange(60) >= 40, 40, 1), steps)
    told = re.fullmatch(r"most layers move [2-5]\d(\.\d)? times as far from step 400 on .*", said)
    assert said == "" if layers < 3 else told
    # One update of ten at that rate is in what was saved at 400: that state is no place to go back to.
    rising = np.where(np.arange(60) > 40, 40, np.where(np.arange(60) == 40, 6, 1))
    said = leap_in(noise * rate * rising, steps)
    assert ("from step 400 on" in said) == (layers >= 3)
    assert leap_in(np.full((4, 60), np.nan), steps) == leap_in(noise[:, :5] * 0, steps[:5]) == ""


@pytest.mark.parametrize("saves", [1, 2])
def test_what_most_layers_do_at_one_save_or_two_is_told_as_what_passed(saves):
    """As of a rate that was forty times too high for four steps: nothing was told of it."""
    noise = np.exp(0.2 * np.random.default_rng(0).standard_normal((4, 60)))
    rate, steps = np.linspace(1, 0.2, 60), range(0, 600, 10)
    bad = (np.arange(60) >= 40) & (np.arange(60) < 40 + saves)
    where = "step 400 alone as at any save around it" if saves == 1 else "steps 400 to 410 alone as .* them"
    said = leap_in(noise * rate * np.where(bad, 17, 1), steps)
    assert re.fullmatch(rf"most layers moved 1\d(\.\d)? times as far at {where}", said)
    # It may fade: what begins a save is not all of it.
    fading = np.where(np.arange(60) == 41, 3, np.where(np.arange(60) == 40, 17, 1))
    assert "at steps 400 to 410 alone" in leap_in(noise * rate * fading, steps)
    # A save behind a gap holds more steps, and one at the end may be the first of many.
    later = [*steps[:40], *(step + 170 for step in steps[40:])]
    assert leap_in(noise * rate * np.where(bad, 17, 1), later) == "" or saves == 2
    assert leap_in(noise[:, :41] * np.where(bad, 17, 1)[:41], steps[:41]) == ""
    assert leap_in(noise * rate, steps) == ""


def test_a_schedule_that_begins_anew_is_no_leap_that_passed():
    rates = np.tile(np.linspace(1, 0.02, 12), 5)
    assert "alone" not in leap_in(np.tile(rates, (4, 1)), range(0, 600, 10))


def test_a_rate_that_was_set_too_high_is_told_in_the_verdict(tmp_path):
    layers = Layers()
    with lcstore.open(tmp_path / "run") as store:
        for count in range(16):
            if count == 9:
                layers.factor = dict.fromkeys(layers.names, 40.0)
            store.save(10 * count, layers.step())
    told = " ".join(verdict(gather(lcstore.open(tmp_path / "run", "r"))))
    assert re.search(r"Most layers move [34]\d(\.\d)? times as far from step 90 on as shortly before\.", told)


@pytest.mark.parametrize("end", [1.0, 0.3, 0.1, 0.003, 30.0])
@pytest.mark.parametrize(("factor", "said"), [(15.0, "moves 15 times as far"), (1 / 60, "60 times less")])
def test_a_layer_stands_out_whatever_the_learning_rate_does(end, factor, said):
    rate = end ** np.linspace(0, 1, 40)
    moves = np.tile(rate, (6, 1)) * np.array([[1.0], [0.1], [3.0], [1.0], [2.0], [1.0]])
    moves[4, 30:] *= factor
    moves[:, ::10] = np.nan  # anchors do not say
    moves[1:, 38] = np.nan
    (row, note), *others = notes_of(course(moves)).items()
    assert (row, others) == (4, [])
    assert said in note
    assert "since step 310" in note


def test_what_a_third_of_the_layers_does_is_no_exception():
    # Averages of all weights go on when the learning rate has come to nothing.
    model = np.tile([1.0] * 7 + [0.1, 0.01, 0.001], (5, 1))
    averages = np.tile([1.0] * 7 + [1.0, 0.9, 0.8], (5, 1))
    assert notes_of(course(np.concatenate((model, averages)))) == {}
    assert list(notes_of(course(np.concatenate((model, averages[:2]))))) == [5, 6]


def test_a_layer_that_goes_on_in_a_network_that_stops_moves_no_further():
    stops = [np.nan, *[1, 1.1, 0.9] * 4, *0.6 ** np.arange(1.0, 20), *[7e-5] * 4]
    dead, goes_on = [*stops[:13], *[0] * 23], [*stops[:13], *[0.25] * 23]
    said = notes_of(course([stops, dead, stops, goes_on]))
    assert said == {
        1: "is not seen to move since step 120",
        3: "goes on while most layers have slowed down since about step 130: "
        "by the end these move 14,300 times less than shortly before, it 4 times less",
    }
    steady = [*stops[:13], *[1.2] * 23]
    slows = [*stops[:13], *[0.1] * 23]
    said = notes_of(course([slows, slows, slows, steady]))
    assert list(said) == [3]
    assert said[3].startswith("goes on while most layers have slowed down since about step 130: ")
    assert said[3].endswith("10 times less than shortly before, it 1.2 times as far")


@pytest.mark.parametrize(
    ("falls", "head"),
    [
        # Its gradients double as the loss leaps; that was told as 90 times further, since the others fell.
        (np.maximum(0.02, 0.5 ** np.arange(1, 31)), np.r_[np.full(8, 1.8), np.full(22, 1.0)]),
        # Weight decay alone moves the others on, a fifteenth as far; it was told as 51 times further.
        (np.full(30, 0.066), np.full(30, 2.9)),
    ],
    ids=["it starts at the shock", "its part lasts"],
)
def test_the_head_of_a_network_that_dies_moves_no_further(falls, head):
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal((5, 60)))
    dead, head = np.r_[np.ones(30), falls], np.r_[np.ones(30), head]
    said = notes_of(course(noise * [dead, dead, dead, dead, head]))
    assert said[4].startswith("goes on while most layers have slowed down since about step 300")


@pytest.mark.parametrize("factor", [10, 20, 100])
@pytest.mark.parametrize("shape", ["cosine", "linear"])
def test_a_layer_that_moves_further_at_once_is_told_so_though_the_rate_comes_to_nothing(factor, shape):
    falls = (
        np.linspace(1, 0.002, 50)
        if shape == "linear"
        else (0.5005 + 0.4995 * np.cos(np.linspace(0, 3.1, 50)))
    )
    moves = np.tile(falls, (6, 1))
    moves[2, 30:] *= factor
    note = f"moves {factor} times as far as it used to, beside the others, and further since step 300"
    assert notes_of(course(moves)) == {2: note}
    moves[2, 30:] /= factor**3
    note = (
        f"hardly moves any more since step 300: {factor**2:,.0f} times less than it used to, "
        "beside the others"
    )
    assert notes_of(course(moves)) == {2: note}


def test_a_layer_that_stays_as_it_was_while_the_others_rise_has_not_slowed_down():
    rise = [*STEADY, *[60] * 4]
    said = notes_of(course([rise, rise, rise, [*STEADY, *[1] * 4]]))
    assert said == {
        3: "stays behind while most layers move further since about step 80: "
        "by the end these move 60 times as far as shortly before, it 1 times as far"
    }


def test_movement_is_no_further_than_before_a_lull():
    lull = [np.nan, *[1] * 12, *[0.05] * 6, 1]
    assert notes_of(course([lull, lull])) == {}


def test_few_layers_are_beside_no_others():
    movement = [np.nan, 1, 1, 1, 1, 1, 1, 20]
    note = "moves 20 times as far as it used to, and further since step 70"
    assert notes_of(course([movement, STEADY])) == {0: note}
    assert "beside the others" in notes_of(course([movement, STEADY, STEADY]))[0]


def test_weights_that_grow_or_leave_the_grid():
    grown = notes_of(course([STEADY] * 2, grid=[[0, 0, 0, 0, 0, 1, 2, 4], [0] * 8]))
    said = "its largest weight came to 8 to 32 times what it was at step 0, and may have grown on"
    assert grown == {0: f"has grown, at step 50 at the latest: {said}"}
    left = notes_of(course([STEADY] * 2, weights=[[1, 1, 1, 1, 1, -1, -1, -1], [1] * 8]))
    assert left[0].startswith("is kept bit for bit since step 50: values may be NaN")
    assert list(left) == [0]


def test_what_left_the_grid_first_is_told_first_and_that_it_grew():
    kinds = [[1] * 6 + [-1] * 2, [1] * 8, [1] * 5 + [-1] * 3]
    said = notes_of(course([STEADY] * 3, weights=kinds, grid=[[0] * 8, [0] * 8, [0, 0, 0, 0, 0, 1, 2, 4]]))
    assert list(said) == [2, 0]
    before = "its largest weight came to 8 to 32 times what it was at step 0"
    assert said[2].endswith(f"; before that, at step 50 at the latest, {before}")


def test_what_most_layers_did_is_told_once_and_last(tmp_path):
    rng = np.random.default_rng(0)
    layers = {f"l{place}.weight": 0.02 * rng.standard_normal((64, 64), np.float32) for place in range(6)}
    with lcstore.open(tmp_path / "run") as store:
        for step in range(0, 120, 2):
            for name, weight in layers.items():
                by = 0.0 if name == "l4.weight" and step > 40 else 1.0 if step >= 60 else 1e-4
                weight += np.float32(by) * rng.standard_normal((64, 64), np.float32)
            if step == 100:
                layers |= {name: layer * np.nan for name, layer in layers.items() if name != "l4.weight"}
            store.save(step, layers)
        report = gather(store)
    (told,) = (line for line in verdict(report) if line.startswith("Layers"))
    assert re.fullmatch(
        r"Layers that stand out: l4\.weight is not seen to move since step 40; each of 5 layers "
        r"\(l0\.weight, l1\.weight, l2\.weight, \.\.\.\) is kept bit for bit since step 100: values may be "
        r"NaN, infinite or too large for a grid; before that, at step 60 at the latest, its largest weight "
        r"came to \d+ to \d+ times what it was at step 0\.",
        told,
    )
    assert [note.count for note in report.tensors.notes] == [1, 5]
    assert "each of 5 layers (<code>l0.weight</code>, <code>l1.weight</code>, " in page_of(report)


def test_what_differs_among_layers_that_are_alike_is_told_from_the_least_to_the_most():
    grown = "has grown, at step {} at the latest: its largest weight came to {} times what it was at step {}"
    since = "hardly moves any more since step {}: {} times less than it used to"
    slower, slow = since.format(8, "{}"), since.format(9, "{}")
    notes = [
        ("a", Note(grown, ((990,), (8.0, 32.0), (2,)), (990,))),
        ("b", Note(slower, ((1500.0,),), (8,))),
        ("c", Note(grown, ((1010,), (512.0, 2048.0), (2,)), (1010,))),
        ("d", Note(slow, ((70.0,),), (9,))),
        ("e", Note(slower, ((60.0,),), (8,))),
        ("f", Note(f"moves less after step {{}}, and {slow}", ((5,), (70.0,)), (6,))),
        ("g", Note(f"moves less after step {{}}, and {slow}", ((7,), (60.0,)), (8,))),
    ]
    assert [(note.text, note.names, note.steps) for note in shared(notes)] == [
        (grown.format("990 to 1010", "8 to 2,050", 2), ("a", "c"), (990,)),
        (since.format(8, "60 to 1,500"), ("b", "e"), (8,)),
        (since.format(9, 70), ("d",), (9,)),
        (f"moves less after step 5 to 7, and {since.format(9, '60 to 70')}", ("f", "g"), (6,)),
    ]


def test_growth_counts_from_where_the_grid_was_chosen():
    grid = [3, 3, 5, 5, np.nan, 5, 9, 9]
    said = notes_of(course([STEADY] * 2, grid=[grid, [0] * 8]))[0]
    assert "at step 60 at the latest: its largest weight came to 8 to 32 times what it was at step 20" in said


def test_weights_that_became_larger_at_once_early_in_the_run_are_told():
    leapt = [0.0] * 6 + [5.0] * 34
    said = notes_of(course([[1.0] * 40] * 2, grid=[leapt, [0.0] * 40]))
    assert said == {
        0: "has grown, at step 60 at the latest: its largest weight came to 16 to 64 times what it was "
        "at step 0, and may have grown on"
    }
    for small_at_first in (
        [-5.0] + [0.0] * 39,
        [-5.0] * 4 + [0.0] * 36,
        [*np.repeat([-8, -4, 0], 7), *[0] * 19],
    ):
        assert notes_of(course([[1.0] * 40] * 2, grid=[small_at_first, [0.0] * 40])) == {}


def test_a_layer_that_moved_far_once_is_told():
    leapt = [np.nan, *[1.0, 1.1] * 6, 100, 3, 2, *[1.0, 0.9] * 6]
    others = [[np.nan, *[1.1, 0.9, 1] * 9]] * 3
    said = "moved 82.6 times as far as shortly before, beside the others, at step 130 alone"
    assert notes_of(course([leapt, *others])) == {0: said}
    assert notes_of(course([leapt, *others[:1]])) == {}  # beside nothing
    assert notes_of(course([leapt] * 4)) == {}  # all of them did
    assert notes_of(course([[*leapt[:14], 50, *leapt[15:]], *others])) == {}  # not once
    assert notes_of(course([[*leapt[:13], 20, *leapt[14:]], *others])) == {}
    # In a small network the others follow one that is drawn anew, within that save.
    follow = [[*one[:13], 5, *one[14:]] for one in others]
    leapt[14:16] = [1.1, 1]
    assert "at step 130 alone" in notes_of(course([leapt, *follow]))[0]
    assert notes_of(course([[*leapt[:13], 25, *leapt[14:]], *follow])) == {}
    assert notes_of(course([[np.nan, 1, 100, *[1] * 25], *others])) == {}  # as training begins


@pytest.mark.parametrize("policy", ["balanced", "high", "small"])
def test_a_layer_that_was_set_anew_is_told(policy):
    rng = np.random.default_rng(0)
    layers = {f"l{i}.weight": 0.1 * rng.standard_normal((64, 64), np.float32) for i in range(5)}
    with lcstore.open(MemoryBackend.fresh(), policy=policy) as store:
        for step in range(40):
            for weight in layers.values():
                weight += np.float32(1e-3) * rng.standard_normal((64, 64), np.float32)
            if step == 20:
                layers["l1.weight"] = 0.1 * rng.standard_normal((64, 64), np.float32)
            store.save(step, layers)
        (noted,) = gather(store).tensors.notable
    assert noted.name == "l1.weight"
    assert re.fullmatch(r"moved 1[2-6]\d times as far as shortly before.*, at step 20 alone", noted.note)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_layer_that_comes_as_zeros_has_not_grown(sign):
    rng = np.random.default_rng(0)
    layers = {f"l{i}.weight": 0.1 * rng.standard_normal((64, 64), np.float32) for i in range(4)}
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step in range(30):
            for weight in layers.values():
                weight += np.float32(1e-3) * rng.standard_normal((64, 64), np.float32)
            new = layers["l1.weight"] if step >= 13 else np.float32(sign * 0.0) * np.ones((64, 64))
            store.save(step, layers | ({"new.weight": new.astype(np.float32)} if step >= 10 else {}))
        assert not any("grown" in one.note for one in gather(store).tensors.notable)


def test_a_burst_that_has_not_gone_is_told_with_how_far_it_went():
    """It settled at less than eight times, and a layer whose rate rose forty times was all clear."""
    burst = [*STEADY, 12, 26, 20, *[5] * 6]
    [note] = notes_of(course([burst, *[[np.nan, *[1] * 16]] * 3])).values()
    said = "moves 5 times as far as it used to (26 at most), beside the others, and further since step 80"
    assert note == said
    for goes in ([*STEADY, 12, 26, 20, *[2] * 6], [*STEADY, 12, 26, *[5] * 7], [*STEADY, *[5] * 9]):
        assert notes_of(course([goes, *[[np.nan, *[1] * 16]] * 3])) == {}


def test_a_layer_that_moves_further_and_has_grown_is_told_for_both():
    further = [np.nan, *[1.0] * 7, *[40.0] * 4]
    said = notes_of(
        course([further, *[STEADY + STEADY[1:5]] * 3], grid=[[0] * 9 + [1, 2, 3], *[[0] * 12] * 3])
    )
    moves, grown = said[0].split("; ")
    assert moves == "moves 40 times as far as it used to, beside the others, and further since step 80"
    assert grown.startswith("has grown, at step 90 at the latest")


@pytest.mark.parametrize("others", [0, 3])
def test_the_step_at_which_a_layer_died_stays_as_the_run_goes_on(others):
    fading = [1.0] * 24 + [0.6**n for n in range(1, 60)]
    steady = [[1.0, 1.1, 0.9, 1.0] * 30] * others
    for end in range(34, 80):
        (said,) = notes_of(course([fading[:end], *(row[:end] for row in steady)])).values()
        told = "moves less after step 230, and hardly any more since step "
        assert said.startswith(f"{told}{280 if others else 310}: "), end


@pytest.mark.parametrize("rate", ["constant", "cosine"])
@pytest.mark.parametrize("decay", [0, 0.01, 0.1])
def test_a_layer_that_dies_is_named_with_when_it_did_though_weight_decay_moves_it(decay, rate):
    rng = np.random.default_rng(0)
    weights = {f"l{place}.weight": 0.09 * rng.standard_normal((64, 64), np.float32) for place in range(4)}
    mean, square = ({name: np.zeros((64, 64), np.float32) for name in weights} for _ in range(2))
    with lcstore.open(MemoryBackend.fresh(), durability="none") as store:
        for step in range(401):
            lr = np.float32(1e-3 * (1 if rate == "constant" else 0.5 + 0.5 * np.cos(np.pi * step / 500)))
            for name, weight in weights.items():  # AdamW
                dead = name == "l2.weight" and step > 200
                gradient = np.float32(not dead) * rng.standard_normal((64, 64), np.float32)
                mean[name] += np.float32(0.1) * (gradient - mean[name])
                square[name] += np.float32(0.01) * (gradient**2 - square[name])
                weight -= lr * (mean[name] / np.sqrt(square[name] + 1e-16) + np.float32(decay) * weight)
            if step % 10 == 0:
                store.save(step, {"model": weights})
        (noted,) = gather(store).tensors.notable
    assert noted.name == "model/l2.weight"
    found = re.match(r"moves less after step (\d+), and hardly any more since step (\d+): ", noted.note)
    assert int(found[1]) in (200, 210)
    assert int(found[2]) <= 250


def test_a_layer_that_comes_to_rest_after_it_faded_is_told_since_when_it_did():
    fades = [np.nan, *[1, 1.1, 0.9] * 4, *0.3 ** np.arange(1.0, 4), *[0.02] * 6]
    others = [[np.nan, *[1] * 27]] * 4
    faded = "moves less after step 120, and hardly any more since step 140: 50 times less than it used to, "
    for rests in range(4):
        rows = [[*fades, *[0] * rests], *(row[: len(fades) + rests] for row in others)]
        rest = ", and is not seen to since step 210" * (rests == 3)
        assert notes_of(course(rows)) == {0: f"{faded}beside the others{rest}"}
    stops = [np.nan, *[1] * 12, 0.01, 0, 0, 0]  # between two saves
    assert notes_of(course([stops, *(row[:17] for row in others)])) == {
        0: "is not seen to move since step 130"
    }


def test_a_fall_begins_where_a_layer_last_moved_as_shortly_before():
    slows = np.linspace(1, 0.4, 40)  # beside the others, long before it dies
    noise = 1 + 0.1 * np.sin(np.arange(60.0) ** 2)
    for fall in (0.3, 0.6, 0.8):
        dies = np.concatenate((slows, 0.4 * np.maximum(fall ** np.arange(1, 21), 1e-4))) * noise
        ((row, note),) = notes_of(course([dies, *[noise[::-1]] * 4])).items()
        assert row == 0
        after = int(re.match(r"moves less after step (\d+), and hardly any more since step", note)[1])
        assert 390 <= after <= 410, (fall, note)


def test_a_layer_died_on_a_line_whose_steps_began_anew():
    fading, steady = [1.0] * 24 + [0.6**n for n in range(1, 50)], [1.0, 1.1, 0.9, 1.0] * 20
    seen = course([fading, *[steady[: len(fading)]] * 3])
    steps = tuple(1000 + step if place < 27 else step - 270 for place, step in enumerate(seen.steps))
    (said,) = notes_of(replace(seen, steps=steps)).values()
    assert said.startswith("moves less after step 1230, and hardly any more since step 10: ")


def test_a_network_that_dies_is_told_though_all_of_it_does():
    dead = [np.nan, 1, 1.1, 0.9, 1e-3, 1e-7, 1e-7, 1e-8]
    assert notes_of(course([[*[1e-7] * 4, 0.5, *[1e-7] * 5]] * 4)) == {}  # a burst, and all is as before
    said = notes_of(course([dead] * 4))
    assert list(said) == [0, 1, 2, 3]
    assert said[0].startswith("hardly moves any more since step 50: ")
    assert notes_of(course([dead[:6]] * 4)) == {}  # once is no news
    rest = notes_of(course([[*dead[:7], 0, 0, 0]] * 4))[0]
    assert rest.startswith("hardly moves any more since step 50: ")
    assert rest.endswith(" times less than it used to, and is not seen to since step 60")
    assert notes_of(course([[*dead[:6], 0, 0, 0]] * 4))[0] == "is not seen to move since step 50"


@pytest.mark.parametrize("factor", [1e3, 1e6, 1e12])
@pytest.mark.parametrize("whole", [True, False])
def test_a_layer_that_burst_and_came_back_moves_as_it_did(factor, whole):
    rng = np.random.default_rng(0)
    weights = {f"{name}.weight": 0.1 * rng.standard_normal((32, 32), np.float32) for name in range(4)}
    with lcstore.open(MemoryBackend.fresh(), durability="none") as store:
        for step in range(40):
            for values in weights.values():
                values += np.float32(1e-3) * rng.standard_normal(values.shape, np.float32)
            saved = {**weights, "1.weight": weights["1.weight"].copy()}
            if 10 <= step < 13:
                saved["1.weight"][... if whole else (3, 4)] *= np.float32(factor)
            store.save(step, saved)
        seen = gather(store).tensors
    assert seen.notable == []
    movement = seen.tensors[1].movement
    assert movement[20:] == pytest.approx([np.mean(movement[1:10])] * 20, rel=0.2)
    assert movement[20:] == pytest.approx(seen.tensors[0].movement[20:], rel=0.2)


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("factor", [1e3, 1e9])
def test_a_long_burst_is_not_what_a_layer_used_to_move_by(factor, others):
    burst = [np.nan, 1, 1.1, 0.9, *[factor] * 30, 1, 1, 1.1]
    assert notes_of(course([burst, *[[np.nan, *[1] * 36]] * others])) == {}


@pytest.mark.parametrize("factor", [20.0, 1e6, 1e30])
def test_a_layer_that_burst_and_then_rests(factor):
    rng = np.random.default_rng(0)
    weights = {f"{name}.weight": rng.standard_normal((32, 32), np.float32) for name in range(4)}
    with lcstore.open(MemoryBackend.fresh(), durability="none") as store:
        for step in range(30):
            for name, values in weights.items():
                if name != "1.weight" or step < 20:
                    values += np.float32(1e-3) * rng.standard_normal(values.shape, np.float32)
            if step == 20:
                weights["1.weight"] *= np.float32(factor)
            store.save(step, weights)
        (one,) = gather(store).tensors.notable
    assert one.name == "1.weight"
    assert "is not seen to move since step 20; has grown, at step 20 at the latest: " in one.note
    assert one.note.endswith("times what it was at step 0")


@pytest.mark.parametrize(("per_save", "saves"), [(1.08, 120), (1.15, 105), (1.3, 45)])
def test_what_is_said_of_growth_is_true(per_save, saves):
    rng, largest = np.random.default_rng(0), []
    weights = {f"{name}.weight": rng.standard_normal((32, 32), np.float32) for name in range(4)}
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step in range(saves):
            for values in weights.values():
                values += np.float32(1e-3) * rng.standard_normal(values.shape, np.float32)
            if step > saves * 2 // 3:
                weights["1.weight"] *= np.float32(per_save)
            store.save(step, weights)
            largest.append(float(np.abs(weights["1.weight"]).max()))
        (one,) = gather(store).tensors.notable
    step, least, most, chosen = re.match(
        r"(?:moves .*; )?has grown, at step (\d+) at the latest: its largest weight came to (\d+) to (\d+) "
        r"times what it was at step (\d+)",
        one.note,
    ).groups()
    before = largest[int(chosen)]
    assert largest[int(step)] > 2 * before
    assert float(least) * before <= largest[-1]
    assert any(float(least) * before <= value <= float(most) * before for value in largest)


def test_what_died_or_burst_and_left_the_grid_later_is_told_for_both():
    died = [np.nan, 1, 1, 0, 0, 0, np.nan, np.nan]
    kinds = [[1] * 6 + [-1] * 2, [1] * 8]
    rest, left = notes_of(course([died, STEADY], weights=kinds))[0].split("; ")
    assert rest == "is not seen to move since step 20"
    assert left.startswith("is kept bit for bit since step 60: values may be NaN")
    burst = [np.nan, 1, 1, 1, 2, 10, np.nan, np.nan]
    further, left = notes_of(course([burst, STEADY], weights=kinds))[0].split("; ")
    assert further == "moves 10 times as far as it used to, and further since step 40"
    assert left.startswith("is kept bit for bit since step 60")


@pytest.mark.parametrize(
    ("policies", "broken", "said"),
    [
        ({6: "lossless"}, None, None),
        ({6: "lossless"}, 9, None),
        ({3: "lossless", 6: "balanced"}, 6, "is kept bit for bit since step 60: values may be NaN"),
        ({3: "lossless", 5: "balanced"}, 8, "is kept bit for bit since step 80: values may be NaN"),
        ({6: {"rules": {"model/layers.1.weight": "plain"}}}, None, "or a rule of the policy says so"),
    ],
)
def test_what_a_policy_keeps_exact_is_not_taken_for_broken(tmp_path, policies, broken, said):
    layers = Layers()
    with lcstore.open(tmp_path / "run", policy="balanced") as store:
        for count in range(12):
            policy = policies.get(count, store.policy)
            store.policy = lcstore.Policy(**policy) if isinstance(policy, dict) else policy
            state = layers.step()
            if broken is not None and count >= broken:
                state["model"]["layers.1.weight"] = np.full((64, 64), np.nan, np.float32)
            store.save(10 * count, state)
    with lcstore.open(tmp_path / "run", "r") as store:
        notes = {one.name: one.note for one in gather(store).tensors.tensors if "bit for bit" in one.note}
    assert list(notes) == ([] if said is None else ["model/layers.1.weight"])
    assert said is None or said in notes["model/layers.1.weight"]


def test_rest_is_told_from_rows_that_are_touched_now_and_then():
    moves = [np.nan, 1, 2, 3, 4, 5, 5, 5, 5, 5]
    rows = [np.nan, 1, 1, 2, 2, 2, 3, 3, 4, 4]
    movement = np.array([moves, rows, [0.0] * 10])
    found = at_rest(movement, np.maximum(movement, 4))
    assert found.tolist() == [[False] * 6 + [True] * 4, [False] * 10, [False] * 10]


@pytest.mark.parametrize("policy", ["balanced", "high", "small"])
def test_a_layer_that_flips_between_two_values_is_not_at_rest(policy):
    rng = np.random.default_rng(0)
    layers = {f"l{i}.weight": 0.1 * rng.standard_normal((64, 64), np.float32) for i in range(3)}
    table = rng.standard_normal((4096, 8), np.float32)
    with lcstore.open(MemoryBackend.fresh(), policy=policy) as store:
        for step in range(24):
            for weight in (layers["l0.weight"], layers["l2.weight"]):
                weight += np.float32(1e-3) * rng.standard_normal((64, 64), np.float32)
            sign = np.float32((-1) ** step)
            layers["l1.weight"] += np.float32(0.02) * sign * np.sign(layers["l0.weight"])
            table[::16] += np.float32(0.5) * sign
            store.save(step, {"model": {**layers, "embed.weight": table}})
        seen = gather(store).tensors
    assert seen.notable == []
    moved = {one.name: one.movement for one in seen.tensors}
    for name, most in (("model/l1.weight", 2.0**-1), ("model/embed.weight", 2.0**3)):
        assert min(moved[name][4:]) > 0.01 / most


@pytest.mark.parametrize("policy", ["balanced", "high"])
@pytest.mark.parametrize("factor", [0, 0.5, -1])
def test_a_layer_that_leaps_and_then_rests_does_so_from_the_leap_on(policy, factor):
    rng = np.random.default_rng(3)
    layers = {f"l{i}.weight": 0.1 * rng.standard_normal((64, 64), np.float32) for i in range(3)}
    with lcstore.open(MemoryBackend.fresh(), policy=policy) as store:
        for step in range(0, 100, 5):
            for name, weight in layers.items():
                if name != "l1.weight" or step < 50:
                    weight += np.float32(1e-3) * rng.standard_normal((64, 64), np.float32)
                elif step == 50:
                    weight *= np.float32(factor)
            store.save(step, {"model": layers})
        (noted,) = gather(store).tensors.notable
    assert (noted.name, noted.note) == ("model/l1.weight", "is not seen to move since step 50")


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    rng, url = np.random.default_rng(0), str(tmp_path_factory.mktemp("long") / "run")
    layers = {f"l{place}.weight": rng.standard_normal((32, 32), np.float32) for place in range(4)}
    with lcstore.open(url, threads=1) as store:
        for step in range(230):
            for name, weight in layers.items():
                if name != "l1.weight" or step <= 117:
                    weight += np.float32(1e-3) * rng.standard_normal((32, 32), np.float32)
            if step == 123:
                layers["l2.weight"][0, 0] = np.nan
            store.save(step, {"model": layers})
    return url


def test_steps_are_those_of_saves_in_a_long_run(long_run):
    with lcstore.open(long_run, "r") as store:
        report = gather(store)
    seen = report.tensors
    assert {one.name: one.note.partition(":")[0] for one in seen.notable} == {
        "model/l1.weight": "is not seen to move since step 117",
        "model/l2.weight": "is kept bit for bit since step 123",
    }
    assert (seen.states, seen.looked, seen.late, len(seen.steps)) == (230, 230, 0, 200)
    assert {len(one.movement) for one in seen.tensors} == {len(one.error) for one in seen.tensors} == {200}
    assert "looked at" not in " ".join(verdict(report))


def test_that_a_step_may_be_late_is_told_where_some_states_were_looked_at(long_run, monkeypatch):
    monkeypatch.setattr(gathering, "_MOST_CELLS", 1)
    with lcstore.open(long_run, "r") as store:
        report = gather(store)
    told = "Layers were looked at in 200 of 230 states: steps may be up to 1 save late."
    assert told in verdict(report)
    assert told in page_of(report)
    since = [int(re.search(r"since step (\d+)", one.note)[1]) for one in report.tensors.notable]
    assert sorted(since) in ([116, 123], [117, 123], [116, 124], [117, 124])


def test_movement_and_error_are_those_of_the_run(tmp_path):
    url = str(tmp_path / "run")
    save_run(url, 20)
    with lcstore.open(url, "r") as store:
        report = gather(store)
        largest = np.abs(store.read("latest", "model/layers.0.weight")).max()
    one = next(one for one in report.tensors.tensors if one.name == "model/layers.0.weight")
    # By how far `Layers` moves; the largest weight counts as the next power of two.
    assert one.movement[-1] == pytest.approx(1e-3 / 2 ** np.ceil(np.log2(largest)), rel=0.1)
    assert one.error[-1] == pytest.approx(1.0, rel=0.4)
    assert (one.role, one.shape, one.dtype, one.bytes_raw) == ("weights", (64, 64), "float32", 64 * 64 * 4)
    assert one.ratio > 10


def test_movement_of_a_table_counts_the_rows_that_rest():
    rng, table, moves = np.random.default_rng(0), np.ones((1500, 16), np.float32), []
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, {"embed.weight": table})
        for step in range(1, 12):
            before, table = table, table.copy()
            if step < 10:  # then it is seen to rest
                rows = rng.choice(1500, 100, replace=False)
                table[rows] += np.float32(1e-2) * rng.standard_normal((100, 16), np.float32)
            store.save(step, {"embed.weight": table})
            moves.append(float(np.sqrt(np.square(table - before).mean())))
        (one,) = gather(store).tensors.tensors
    found = 2 ** np.ceil(np.log2(table.max())) * np.array(one.movement[1:], float)
    assert found == pytest.approx(np.array(moves), rel=0.25)  # of a sample


def test_the_bytes_of_deltas_are_divided_among_tensors(tmp_path):
    url = str(tmp_path / "run")
    save_run(url, 2)
    with lcstore.open(url, "r") as store:
        report = gather(store)
    delta = report.states[-1]
    arrays = sum(delta.bytes_stored.get(role, 0) for role in ("weights", "first_moment"))
    shares = sum(one.bytes_delta for one in report.tensors.tensors if one.role in ("weights", "first_moment"))
    # What lies beside the chunks of an array is some hundred bytes of metadata.
    assert 0 <= arrays - shares < 2000
    assert shares > 0


def test_of_many_tensors_the_largest_and_what_stands_out_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(looked, "MOST_TENSORS", 4)
    layers = Layers()
    layers.weights["small.weight"] = np.zeros((20, 20), np.float32) + np.arange(20, dtype=np.float32)
    url = str(tmp_path / "run")
    save_run(url, 8, layers)
    with lcstore.open(url, "r") as store:
        seen = gather(store).tensors
    names = [one.name for one in seen.tensors]
    assert "model/small.weight" in names  # it has never moved
    assert len(names) == 4
    assert seen.left_out == 5
    assert seen.bytes_left_out == 5 * 64 * 64 * 4
    assert [(one.pattern, one.count, one.notable) for one in seen.groups] == [
        ("model/layers.*.weight", 4, 0),
        ("optim/exp_avg/layers.*.weight", 4, 0),
        ("model/small.weight", 1, 1),
    ]


def test_tensors_that_come_and_go_and_change_their_shape(tmp_path):
    url = str(tmp_path / "run")
    rng = np.random.default_rng(0)
    with lcstore.open(url) as store:
        for step in range(6):
            rows = 32 if step < 3 else 64
            state = {"head.weight": rng.standard_normal((rows, 64), dtype=np.float32)}
            if step > 1:
                state["late.weight"] = rng.standard_normal((64, 64), dtype=np.float32)
            store.save(step, {"model": state})
    with lcstore.open(url, "r") as store:
        seen = gather(store).tensors
    head, late = seen.tensors
    assert head.shape == (64, 64)
    assert head.movement[3] is None  # set anew
    assert late.movement[:3] == (None, None, None)
    assert late.movement[-1] is not None


def test_the_line_goes_through_resumed_runs_of_which_much_was_collected():
    backend, layers = MemoryBackend.fresh(), Layers()
    for process in range(4):
        with lcstore.open(backend, grace=0) as store:
            if process:
                store.resume()
            for step in range(50 * process, 50 * process + 50, 10):
                store.save(step, layers.step())
            store.maintain("latest:2 | every:40")
            store.collect()
    with lcstore.open(backend, "r") as store:
        report, kept = gather(store), store.steps()
        assert len(kept) < 10
        assert [step for step in report.tensors.steps if step in kept] == kept
        assert [step for step, _ in store.history("epoch", line="latest")] == kept


@pytest.mark.parametrize("size", [0.05, 1.0, 10.0, 20.0, 100.0])
def test_a_layer_that_is_drawn_anew_is_named_however_large_it_is_then(tmp_path, size):
    layers, rng = Layers(), np.random.default_rng(1)
    with lcstore.open(tmp_path / "run") as store:
        for step in range(0, 300, 10):
            state = layers.step()
            if step == 150:
                weight = state["model"]["layers.2.weight"]
                weight[:] = size * rng.standard_normal(weight.shape)
            store.save(step, state)
    with lcstore.open(tmp_path / "run", "r") as store:
        (one,) = gather(store).tensors.notable
    assert one.name == "model/layers.2.weight"
    assert "at step 150 alone" in one.note
