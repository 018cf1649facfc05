"""Which weights stand out: those that stopped, fade, move ever further, outgrow, or began too large."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.report.course import Course
from lcstore.report.growth import GROWTH, outgrown
from lcstore.report.note import Note, joined
from lcstore.report.outsized import outsized

#: States with known movement from which on anything is said.
_LEAST: Final = 4
#: So many states at rest at the end are no accident.
_AT_REST: Final = 3
#: So many times as far as before, beside the others, is too far; so small a part is next to nothing.
_FAR: Final = 8.0
_LITTLE: Final = 1 / 50
#: So small a part, if it lasts and beside the others, is less than layers that train come down to, and more
#: than what weight decay alone moves one by that is dead (measured: decision 0051).
_HARDLY: Final = 1 / 10
#: So many times as far, once, is no chance. The others may follow: those around one that is set anew do.
_ONCE: Final = 30.0
#: So small a part is nothing, whatever the others do: no learning rate falls so far, but a network dies so.
_NOTHING: Final = 1e-6
#: So many times as far is more than movement varies by.
_MORE: Final = 1.5
#: What a tensor used to move by is this quantile of it, so that what began before the middle is seen too.
_USED_TO: Final = 0.25
#: States whose middle is what it moved by shortly before.
_SHORTLY: Final = 8
#: What is kept bit for bit and moves by so small a part of what its like does moves by rounding alone: as
#: biases do before a norm, which takes them out again. In time their gradients are too small for any digit.
_ROUNDING: Final = 1e-4
#: Tensors from which on what the others do counts: learning rates rise and fall for all of them.
_COMPANY: Final = 3


def notes_of(course: Course) -> dict[int, Note]:
    """Return what is to be said of those tensors that stand out, by row."""
    usual, larger = _usual(course.of_weights), outsized(course.alike, course.grid, course.steps)
    usual = usual._replace(rounding=_ROUNDING * _mostly(course.movement[~course.are_weights]))
    are_weights = course.are_weights.tolist()
    each = (_note if of_weights else _note_of_kept for of_weights in are_weights)
    found = {row: joined((larger.get(row), note(course, row, usual))) for row, note in enumerate(each)}
    said = {row: note for row, note in found.items() if note is not None}
    alike = Counter(note.words for row, note in said.items() if are_weights[row])
    layers = sum(are_weights)

    def place(row: int) -> tuple[bool, bool, int, int]:
        # What stopped being a number first is the cause of the rest, unless most layers did.
        ended, note = _until(course.weights[row]), said[row]
        return 2 * alike[note.words] > max(layers, 2), ended is None, ended or 0, next(iter(note.steps), -1)

    return {row: said[row] for row in sorted(said, key=place)}


class _Usual(NamedTuple):
    """By how much tensors move further or less at each state than each mostly does: two thirds of them.

    What a third of them do, as the averages of all weights that are kept beside these, is no exception.

    Attributes
    ----------
    most, least
        Two thirds move no further than `most`, and no less than `least`; 1 where there are too few to tell.
    beside
        What is added where a tensor does something beside them; "" where there are too few.
    hardly
        How small a part of what a tensor used to move by is hardly any, if it lasts and beside them.
    rounding
        What is kept bit for bit and never moves further does so by rounding alone.
    """

    most: Array
    least: Array
    beside: str
    hardly: float = _HARDLY
    rounding: float = 0.0


def _usual(movement: Array) -> _Usual:
    """Return what tensors usually do.

    A state that says it of few has it from those around.
    """
    moves = np.where(np.isfinite(movement) & (movement > 0), movement, np.nan)
    moves = moves[np.isfinite(moves).sum(axis=1) >= _LEAST]
    count = np.isfinite(moves).sum(axis=0)
    known = np.flatnonzero(count >= _COMPANY)
    if not len(known):
        return _Usual(np.ones(movement.shape[1]), np.ones(movement.shape[1]), "")
    parts = np.log(moves[:, known] / np.nanmedian(moves, axis=1, keepdims=True))
    parts, last, states = np.sort(parts, axis=0), count[known] - 1, np.arange(movement.shape[1])
    places = 2 * last // 3, -(-last // 3)
    most, least = (np.interp(states, known, parts[place, np.arange(len(known))]) for place in places)
    return _Usual(np.exp(most), np.exp(least), ", beside the others")


def _mostly(movement: Array) -> float:
    """Return how far tensors move when they do so most: the middle of those that move; 0 where none does."""
    most = np.where(movement > 0, movement, 0).max(axis=1, initial=0)
    return float(np.median(most[most > 0])) if most.any() else 0.0


def _until(kinds: Array) -> int | None:
    """Return the place of the last state where a tensor was coded, if it is kept bit for bit since."""
    if (kinds > 0).any() and kinds[kinds != 0][-1] < 0:
        return int(np.flatnonzero(kinds > 0)[-1])
    return None


def _note(course: Course, row: int, usual: _Usual) -> Note | None:
    last, rest = _until(course.weights[row]), _rest(course, row, usual)
    moves = rest or _moves(course, row, usual)
    if last is None:
        grown = _grown(course, row)
        return joined((moves, grown and (grown if rest else grown + Note(", and may have grown on"))))
    place = last + 1 + int(np.argmax(course.weights[row][last + 1 :] < 0))
    said = f"is kept bit for bit since step {course.steps[place]}: values may be NaN, infinite or too large "
    said += "for a grid" + ", or a rule of the policy says so" * course.rules[place]
    grew = outgrown(course.grid[row], course.steps)
    before = Note("before that, ") + grew.noted(",") if grew.octaves >= GROWTH else None
    return joined((moves, Note(said, steps=(course.steps[place],)), before))


def _note_of_kept(course: Course, row: int, usual: _Usual) -> Note | None:
    """Return what is to be said of a tensor that all states keep bit for bit, as biases and statistics.

    Buffers rest from the beginning, and statistics go on as rates fall: so it has to do something both by
    itself and beside the weights, or have begun to by itself. Biases come down to a fifteenth as they train.
    """
    moved = course.movement[row] > 0
    if moved.sum() < _LEAST or course.movement[row][moved].max() < usual.rounding:
        return None
    most, least = np.maximum(usual.most, 1), np.minimum(usual.least, 1)
    both = usual._replace(most=most, least=least, hardly=_LITTLE)
    said = _rest(course, row, both) or _moves(course, row, both)
    return said or _further(_beside(course, row, usual.most), usual.beside, _FAR / 2)


def _rest(course: Course, row: int, usual: _Usual) -> Note | None:
    """Return that a tensor does not move in the end of what is known of its movement; None where it does."""
    known = np.flatnonzero(np.isfinite(course.movement[row]) | course.jumped[row])
    rest = _at_rest((course.movement[row] > 0) | course.jumped[row], known)
    if len(known) < _LEAST or rest < _AT_REST:
        return None
    if rest == len(known):
        return Note("has never moved")
    last = int(known[-rest - 1])
    since = f"since step {course.steps[last]}"
    fades = _asleep(course, row, usual, 2) or _less(_beside(course, row, usual.least), usual, 2)
    if fades:
        return fades + Note(f", and is not seen to {since}")
    return Note(f"is not seen to move {since}", steps=(course.steps[last + 1],))


def _asleep(course: Course, row: int, usual: _Usual, least: int) -> Note | None:
    """Return that a tensor moved by next to nothing the last `least` times; None where it did not."""
    alone = _beside(course, row, np.ones(len(course.steps)))
    little = alone.moved <= _NOTHING * alone.moved.max(initial=0)
    if (~little).sum() < _LEAST or not little[-least:].all():  # one burst makes nothing of all else
        return None
    change = alone.since(little)
    if change.of_first > _NOTHING:
        return None
    # Where most others go on, it began to sleep when it first stayed behind them.
    beside, began = _beside(course, row, usual.least), alone.places[_begins(little)]
    parts = beside.parts / np.quantile(beside.parts[beside.places < began], 1 - _USED_TO)
    behind = parts <= _limit(parts, usual)
    if behind[-1] and beside.places[_begins(behind)] < began:
        return _hardly(beside.since(behind), usual.beside, beside.falls(behind))
    return _hardly(change)


def _grown(course: Course, row: int) -> Note | None:
    """Return that a tensor has grown; None where it has not, or little is known of it."""
    grew = outgrown(course.grid[row], course.steps)
    if grew.octaves < GROWTH or np.isfinite(course.movement[row]).sum() < _LEAST:
        return None
    return Note("has grown, ") + grew.noted(":")


class _Change(NamedTuple):
    """How a tensor moves in the end, and what it did before the last states, in which it moves alike.

    Attributes
    ----------
    step
        Of the first of the last states.
    times
        How many times as far it moves as it mostly did before, beside the others.
    of_first
        The same, as it did at first: what comes back to that has not slowed down, however long a burst lasts.
    at_once, others_at_once
        How many times as far as shortly before it moves itself at the first of these states, and most others.
    own, others
        The same, at the last of them.
    """

    step: int
    times: float
    of_first: float
    at_once: float
    others_at_once: float
    own: float
    others: float


class _Beside(NamedTuple):
    """How far a tensor moves beside the others, at those states where it does.

    Attributes
    ----------
    places, steps
        Of these states: places on the line.
    moved, others
        How far it moved, and how many times as far as mostly the others did.
    """

    places: Array
    steps: Array
    moved: Array
    others: Array

    @property
    def parts(self) -> Array:
        """How far it moved, the others apart."""
        return self.moved / self.others

    def parts_of(self, quantile: float) -> Array:
        """Return how many times as far as it used to it moves beside the others; none of few states."""
        parts = self.parts
        return parts / np.quantile(parts[:-1], quantile) if len(parts) >= _LEAST else parts[:0]

    def since(self, alike: Array) -> _Change:
        """Return how it moves since the last of the states that are not alike; there has to be one."""
        first, parts = _begins(alike), self.parts
        before = np.median(parts[:first]), np.quantile(parts[:first][:_LEAST], _USED_TO)
        times, of_first = (float(parts[-1] / base) for base in before)
        courses = [(each, np.median(each[:first][-_SHORTLY:])) for each in (self.moved, self.others)]
        at_once = [float(np.median(each[first:][:_SHORTLY]) / base) for each, base in courses]
        at_last = [float(each[-1] / base) for each, base in courses]
        return _Change(int(self.steps[first]), times, of_first, *at_once, *at_last)

    def falls(self, little: Array) -> tuple[int, int] | None:
        """Return the last step at which it moved as shortly before it came to little, and the next one.

        None if it did at once.
        """
        first = _begins(little)
        parts = self.parts[: first + 1]
        base = np.quantile(parts[:-1], 1 - _USED_TO)
        for _ in range(2):  # it may have come to move somewhat less long before
            began = _begins(parts <= base / _MORE)
            base = np.median(parts[:began][-_SHORTLY:])
        return (int(self.steps[began - 1]), int(self.steps[began])) if began < first else None

    def it_is_others(self, change: _Change, said: str) -> Note | None:
        """Return what the others do, where a tensor stands out by that alone; None where they do nothing."""
        parts = self.others * change.others / self.others[-1]
        alike = parts <= 1 / _MORE if change.others < 1 else parts >= _MORE
        if not alike[-1]:
            return None
        step, *_, own, others = self.since(alike)
        since = Note(f"{said} since about step {step}: by the end these move ", steps=(step,))
        return since + _than(others, "shortly before") + Note(", it ") + _times(own)


def _beside(course: Course, row: int, others: Array) -> _Beside:
    moved = course.movement[row]
    places = np.flatnonzero(np.isfinite(moved / others) & (moved > 0))
    return _Beside(places, np.array(course.steps)[places], moved[places], others[places])


def _begins(alike: Array) -> int:
    """Return the place of the first of the last states that are alike."""
    return int(np.flatnonzero(~alike)[-1]) + 1


def _times(growth: float) -> Note:
    if growth >= 1:
        return Note("{} times as far", ((growth,),))
    return Note("{} times less", ((1 / growth,),))


def _than(growth: float, before: str) -> Note:
    return _times(growth) + Note(f" {'as' if growth >= 1 else 'than'} {before}")


def _moves(course: Course, row: int, usual: _Usual) -> Note | None:
    """Return that a tensor moves further or less than it used to, beside the others; None of others."""
    if asleep := _asleep(course, row, usual, _AT_REST):
        return asleep
    known = course.movement[row][np.isfinite(course.movement[row])]
    further, less = _beside(course, row, usual.most), _less(_beside(course, row, usual.least), usual)
    if not known.size or not known[-1]:
        return less
    said = _further(further, usual.beside) or less
    return said or _leapt(further, course.movement[row], usual.beside)


def _further(beside: _Beside, the_others: str, least: float = 0.0) -> Note | None:
    """Return that a tensor moves further, or goes on as the others slow down; None where it does not.

    It has to move `least` times as far by itself as it begins to.
    """
    parts = beside.parts_of(_USED_TO)
    far = _far(parts, the_others)
    if not parts.size or parts[-1] < far:
        return None
    change = beside.since(parts > _MORE)
    if change.times < far or change.at_once < least:  # as before a lull
        return None
    at_once = change.at_once < max(_MORE, 1 / change.others_at_once)  # or it is the others that fell
    if at_once and (change.own < max(_MORE, 1 / change.others) or change.others <= _LITTLE):
        return beside.it_is_others(change, "goes on while most layers have slowed down")
    said = Note("moves ") + _than(change.times, "it used to")
    if change.times < _FAR:
        said += Note(" ({} at most)", ((change.times / parts[-1] * parts.max(),),))
    return said + Note(f"{the_others}, and further since step {change.step}", steps=(change.step,))


def _less(beside: _Beside, usual: _Usual, least: int = 1) -> Note | None:
    """Return that a tensor moves less, or stays behind as the others move further; None where it does not.

    It has to do so the last `least` times that it moves.
    """
    parts = beside.parts_of(1 - _USED_TO)
    limit = _limit(parts, usual)
    if not parts.size or (parts[-least:] > limit).any():
        return None
    little = parts <= limit
    change, began = beside.since(little), beside.since(parts <= 1 / _MORE)
    if max(change.times, change.of_first) > limit:  # as before a burst
        return None
    if began.at_once > 1 / _MORE and (began.own > 1 / _MORE or began.others >= 1 / _LITTLE):
        return beside.it_is_others(began, "stays behind while most layers move further")
    return _hardly(change, usual.beside, beside.falls(little))


def _leapt(beside: _Beside, movement: Array, the_others: str) -> Note | None:
    """Return that a tensor moved far once, as one that is set anew does; None where it did not."""
    parts = beside.parts
    if not the_others or len(parts) <= 2 * _LEAST:
        return None
    place = _LEAST + int(np.argmax(parts[_LEAST:]))
    before, after = parts[max(0, place - _SHORTLY) : place], parts[place + 1 :][:_SHORTLY]
    times = float(parts[place] / np.median(before))
    own = float(beside.moved[place] / np.median(beside.moved[max(0, place - _SHORTLY) : place]))
    most = max(before.max(), after.max(initial=0))
    if not after.size or own < _ONCE or most > parts[place] / _FAR:
        return None
    state, step = int(beside.places[place]), int(beside.steps[place])
    if not np.isfinite(movement[state - 2 : state + 3]).all():  # it may have moved so before
        return None
    alone = Note(f"{the_others}, at step {step} alone", steps=(step,))
    return Note("moved ") + _than(times, "shortly before") + alone


def _far(parts: Array, the_others: str) -> float:
    """Return how many times as far as it used to is too far: half of it after a burst that has not gone."""
    burst = (np.sort(parts)[-_AT_REST:] >= _FAR).all() and (parts[-_AT_REST:] >= _FAR / 2).all()
    return _FAR / 2 if the_others and burst else _FAR


def _limit(parts: Array, usual: _Usual) -> float:
    """Return how small a part of what it used to move by is hardly any."""
    lasts = (parts[-_AT_REST:] <= usual.hardly).all()
    return usual.hardly if usual.beside and lasts else _LITTLE


def _hardly(change: _Change, the_others: str = "", falls: tuple[int, int] | None = None) -> Note:
    """Return that a tensor hardly moves any more, and after which step it began to move less."""
    fell = Note("hardly moves", steps=(change.step,))
    if falls is not None:
        after, begins = falls
        fell = Note("moves less after step {}, and hardly", ((after,),), (begins,))
    since = Note(f" any more since step {change.step}: ")
    return fell + since + _than(change.times, "it used to") + Note(the_others)


def _at_rest(moves: Array, known: Array) -> int:
    """Return at how many of the last of some states nothing moved."""
    moved = np.flatnonzero(moves[known])
    return len(known) - 1 - int(moved[-1]) if len(moved) else len(known)
