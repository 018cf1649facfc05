"""What a user says about a state besides the state, and refusing what no record can keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from operator import index
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from lcstore.errors import InvalidInputError
from lcstore.format import keyforms, markkeys
from lcstore.format.strictjson import dumps
from lcstore.limits import MAX_STEP
from lcstore.retention.base import mode_of

#: How a state is named: a step, "latest" or None, "best:loss", a tag, a node's id or its beginning.
At: TypeAlias = int | str | None

#: How a run is named: its number, or its id.
Run: TypeAlias = int | str | None

#: What is given for a damaged state: an error, or the state before it.
OnCorrupt: TypeAlias = Literal["raise", "previous"]

#: Tags that would be taken for something else.
_RESERVED_TAGS: Final = frozenset({"latest", "best", "root"})
_BEST: Final = "best:"
_MODES: Final = ("min", "max")
#: What people write for these.
_LIKE_MODES: Final = ("maximum", "maximize", "minimum", "minimize")


@dataclass
class Labels:
    """What a user says about a state besides the state."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()


def flat(tree: Mapping[str, Any], joint: str = ".", before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of metadata or another tree by name, those of a mapping within as ``optim.lr``."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, joint, f"{before}{name}{joint}")
        else:
            yield f"{before}{name}", value


def check_tag(tag: str) -> str:
    """Return a tag, or raise `InvalidInputError` where it cannot be one."""
    markkeys.check_tag(tag)
    if tag in _RESERVED_TAGS or tag.startswith(_BEST) or tag.isdigit() or keyforms.is_id(tag):
        raise InvalidInputError(
            f"{tag!r} cannot be a tag: {', '.join(map(repr, sorted(_RESERVED_TAGS)))}, "
            "'best:METRIC', numbers and node ids mean something else"
        )
    return tag


def check_step(step: object) -> int:
    """Return a training step, or raise `InvalidInputError`."""
    number = None if isinstance(step, bool | np.bool_) else _integer(step)
    if number is None or not 0 <= number <= MAX_STEP:
        what = repr(step)[:100] if isinstance(step, int | float | str) else f"a {type(step).__qualname__}"
        raise InvalidInputError(
            f"a step is an integer from 0 to 2**63 - 1, not {what}: save(step, state). Names are for tags"
        )
    return number


def _integer(value: object) -> int | None:
    """Return what is an integer, of whichever library, as Python's."""
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} is {value!r:.100}; it is one of {', '.join(choices)}")


def check_at(at: object) -> At:
    """Return what names a state, or raise `InvalidInputError`."""
    if isinstance(at, str) and at == _BEST[:-1]:
        raise InvalidInputError(
            "say by which metric a state is the best: 'best:loss', or 'best:accuracy:max'"
        )
    if at is None or isinstance(at, str):
        return at
    try:
        return check_step(at)
    except InvalidInputError as error:
        # What holds tensors fills lines, and says nothing.
        shown = repr(at)[:100] if isinstance(at, int | float | tuple) else f"a {type(at).__qualname__}"
        if isinstance(getattr(at, "node", None), str):  # of what `states` and `save` return
            shown += ": give its .node"
        elif isinstance(at, Mapping) or hasattr(at, "load_state_dict"):
            shown += "; to load into objects: restore_into('latest', {'model': model})"
        raise InvalidInputError(
            f"a state is named by its step (an integer, 0 or more), 'latest', a tag or a node id, not {shown}"
        ) from error


def split_best(at: object) -> tuple[str, str] | None:
    """Return metric and mode of ``"best:loss"`` (the least) or ``"best:accuracy:max"``; None for others.

    Raises as `mode_of` does.
    """
    if not isinstance(at, str) or not at.startswith(_BEST):
        return None
    metric = at.removeprefix(_BEST)
    count, colon, one = metric.partition(":")
    if colon and count.isdigit():
        raise InvalidInputError(
            f"{at!r:.100} is a retention rule, which may name several states; one is {_BEST + one!r:.100}"
        )
    before, _, mode = metric.rpartition(":")
    meant = [mode[:3]] if mode in _LIKE_MODES else get_close_matches(mode, _MODES, n=1, cutoff=0.8)
    if before and meant and mode not in _MODES:
        raise InvalidInputError(f"{at!r:.100}: say {_BEST + before + ':' + meant[0]!r:.100}")
    return (before, mode) if before and mode in _MODES else (metric, mode_of(metric, None))


def check_labels(
    metrics: Mapping[str, float] | None, metadata: Mapping[str, Any] | None, tags: Sequence[str]
) -> Labels:
    """Refuse what a record cannot keep, before anything is written."""
    numbers = {}
    if metrics is not None and not isinstance(metrics, Mapping):
        raise InvalidInputError(f"metrics is {metrics!r:.100}: give a dict, {{'loss': 1.5}}")
    given: Mapping[str, Any] = {} if metrics is None else metrics
    for name, value in given.items():
        if isinstance(value, str | bytes):
            raise InvalidInputError(f"metric {name!r} is the text {value!r:.100}, and no number")
        try:
            # Losses are often given as they are: torch warns of a float that forgets the graph behind it.
            detach = getattr(value, "detach", None)
            numbers[str(name)] = float(value if detach is None else detach())
        except OverflowError as error:
            message = f"metric {name!r} is past the range of a float: give inf, if meant"
            raise InvalidInputError(message) from error
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"metric {name!r} is {value!r:.100}, which is no number") from error
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInputError(f"metadata is {metadata!r:.100}: give a dict, {{'lr': 0.1}}")
    data = dict(metadata or {})
    try:
        dumps(data)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"metadata must be JSON-like: {error}") from error
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidInputError(f"tags is {tags!r:.100}: give a list of tags")
    for tag in tags:
        check_tag(tag)
    # What is nested in it may change while the state is written in the background.
    return Labels(numbers, deepcopy(data), tuple(dict.fromkeys(tags)))
