"""Properties that are worked out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801
    """A property that is worked out once. Several threads may do so at a time: the last is remembered.

    Before Python 3.12 `functools.cached_property` holds one lock for all objects of a class. So
    one that reads from storage has all others wait, and a child of a fork may find it held for ever.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make = make
        self.__doc__ = make.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        """Return what is made, and remember it in the owner."""
        if owner is None:  # asked of the class, as builders of documentation do
            return self  # type: ignore[return-value]
        made = owner.__dict__[self.make.__name__] = self.make(owner)
        return made
