"""What a store is to survive by itself: parity, second copies, and how often an anchor is added."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from lcstore.errors import InvalidInputError

Parity: TypeAlias = Literal["kept", "all", "none"]


@dataclass(frozen=True)
class Durability:
    """What is stored besides a state, so that no single fault loses more than that state's own.

    Attributes
    ----------
    parity
        Where a lost or damaged chunk can be rebuilt. ``"kept"``: in all arrays but those that each save
        stores whole (moments: damage to one costs that one state's tensors only). ``"all"``: in those too.
        ``"none"``: nowhere.
    copies
        Whether records of nodes and edges, layouts and ``lcstore.json`` are stored twice.
    anchor_ratio
        An anchor is added once the path since the last one costs this many times what an anchor does. So
        with 8, anchors take at most an eighth of what lies between them. Infinity: never for that reason.
    anchor_every
        An anchor is added once the path since the last one is this many edges long, whatever that takes. In
        a model that is mostly frozen it may be many times what is saved. None: never for that reason.

    Raises
    ------
    InvalidInputError
        A value is none of these.
    """

    parity: Parity = "kept"
    copies: bool = True
    anchor_ratio: float = 8.0
    anchor_every: int | None = None

    def __post_init__(self) -> None:
        if self.parity not in get_args(Parity):
            said = ", ".join(map(repr, get_args(Parity)))
            raise InvalidInputError(f"durability: parity is {self.parity!r:.100}; it is one of {said}")
        if type(self.copies) is not bool:
            raise InvalidInputError(f"durability: copies is {self.copies!r:.100}; it is True or False")
        ratio, every = self.anchor_ratio, self.anchor_every
        if type(ratio) not in (int, float) or not ratio > 0:
            raise InvalidInputError(f"durability: anchor_ratio is {ratio!r:.100}; it is a number above 0")
        if every is not None and (type(every) is not int or every < 1):
            raise InvalidInputError(f"durability: anchor_every is {every!r:.100}; it is 1 or more, or None")


#: A `Durability`, or the name of one.
DurabilityLike: TypeAlias = Durability | Literal["default", "none", "all"]

#: What is kept where the target itself keeps nothing twice; nothing; and that no tensor at all is lost.
NAMED: Final = {
    "default": Durability(),
    "none": Durability("none", copies=False, anchor_ratio=math.inf),
    "all": Durability("all"),
}


def durability_from(value: DurabilityLike) -> Durability:
    """Return what `value` means.

    Raises
    ------
    InvalidInputError
        It is neither a `Durability` nor the name of one.
    """
    if isinstance(value, Durability):
        return value
    if not isinstance(value, str) or value not in NAMED:
        raise InvalidInputError(
            f"durability is a Durability or one of {', '.join(map(repr, NAMED))}, not {value!r:.100}"
        )
    return NAMED[value]
