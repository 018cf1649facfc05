"""A node as readers see it: its record and layout, and what of it is not let go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.edges.algebra import sets_weights
from lcstore.edges.columns import EXACT, Columns
from lcstore.errors import LcstoreError, LimitError, NotFoundError
from lcstore.format.records import NodeRecord
from lcstore.graph.refs import NodeName
from lcstore.layout.layout import Layout
from lcstore.once import once
from lcstore.state.names import Component, Name, format_name, leading, matcher
from lcstore.units import counted

#: How many of the names at the top of a state a message gives.
_TOP_SHOWN: Final = 8


@dataclass(frozen=True)
class Node:
    """A node with its record and layout read.

    Attributes
    ----------
    name, key
        Its name, and the key of its record.
    record, layout, columns
        What is recorded of it, where its tensors lie, and what its own edge says of them.
    exact
        Whether its exact value, where one was saved, is given. The track is given otherwise.
    stripped
        Pools that are let go.
    """

    name: NodeName
    key: str
    record: NodeRecord
    layout: Layout
    columns: Columns
    exact: bool = True
    stripped: frozenset[str] = frozenset()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the node in errors that name no object or step yet."""
        try:
            yield
        except LcstoreError as error:
            error.key = error.key or self.key
            error.step = self.record.step if error.step is None else error.step
            raise
        except MemoryError as error:
            raise LimitError(
                "there is not enough memory for what is asked for: read less, with names=",
                key=self.key,
                step=self.record.step,
            ) from error

    @property
    def set_anew(self) -> list[Name]:
        """The names of the weights that its own edge sets whole."""
        places = sets_weights(self.columns.op, self.layout)
        return [*dict.fromkeys(self.layout.tensors[place].name for place in places)]

    def has_let_go(self, tensor: int) -> bool:
        """Return whether a tensor of the layout was let go."""
        return bool(self.gone[tensor])

    @once
    def gone(self) -> Array:
        """Which tensors of the layout were let go: ``bool``, per tensor."""
        return self.layout.within(self.stripped)

    @once
    def exactly(self) -> Array:
        """Which tensors of the layout are lossy, and their exact value is given: ``bool``, per tensor."""
        kept = self.columns.op == EXACT if self.record.exact is None else True
        return ~self.layout.plain & kept & self.exact

    @property
    def everything(self) -> range:
        """All that is stored, by place among `Layout.tensors`."""
        return range(len(self.layout.tensors))

    @property
    def wholes(self) -> range:
        """All tensors of the state, by place among `Layout.wholes`."""
        return range(len(self.layout.wholes))

    @once
    def leaf_places(self) -> dict[Name, int]:
        """The place of each plain value among those of the state, by name."""
        return {name: place for place, name in enumerate(self.layout.names.leaves)}

    @property
    def has_exact(self) -> bool:
        """Whether the exact value of any of its lossy tensors is given."""
        return bool(self.exactly.any())

    def keeps_exact(self, tensor: int) -> bool:
        """Return whether the exact value of a lossy tensor is given."""
        return bool(self.exactly[tensor])

    def divide(self, wanted: Iterable[int]) -> tuple[list[int], list[int]]:
        """Divide tensors into those whose exact value is given, and the rest."""
        asked = np.array([*wanted], np.int64)
        exact = self.exactly[asked]
        return asked[exact].tolist(), asked[~exact].tolist()

    def check_kept(self, wanted: Iterable[int]) -> None:
        """Refuse tensors that were let go: part of a state is never given for the whole."""
        gone = [t for t in wanted if self.gone[t]] if self.stripped else ()
        if gone:
            first = format_name(self.layout.tensors[gone[0]].name)
            rest = spared(self.layout, self.stripped) or "names="
            raise NotFoundError(
                f"the values of {counted(len(gone), 'tensor')} of this state, {first!r} among them, were let "
                f"go, or lost to damage. Restore the rest with {rest} (a GLOB on the command line), or into "
                "these alone",
                missing="tensor",
            )


def spared(layout: Layout, gone: Collection[str]) -> str:
    """Return what of a state does not need some pools, as ``names='model'``; "" where all does."""
    hurt = {format_name((top,)) for top in hurt_by(layout, gone)}
    names = [*layout.named, *layout.names.leaves]
    tops = dict.fromkeys(leading(name)[1] for name in names if name)
    lost = layout.within(gone)
    weights = weights_by_pattern(layout, lambda places: not lost[layout.stored(places)].any())
    left = [glob for glob in weights if glob.split("/")[0] in hurt]
    left += [top for top in tops if top not in hurt]
    return called(left) if left and hurt else ""


def weights_by_pattern(layout: Layout, can_be: Callable[[list[int]], bool]) -> list[str]:
    """Return patterns for weights of one kind each, ``model/*.weight``, where all that match `can_be` read.

    Parameters
    ----------
    layout
        That of the state.
    can_be
        Says whether tensors can be read, by place among `Layout.wholes`.
    """
    named = layout.named.items()
    kinds = {
        _alike(name) for name, place in named if layout.wholes[place].role == "weights" and len(name) > 1
    }
    matching = {glob: matcher(glob) for glob in sorted(kinds)}
    found = {glob: [place for name, place in named if of(name)] for glob, of in matching.items()}
    return [glob for glob, places in found.items() if can_be(places)]


def _alike(name: Name) -> str:
    """Return a pattern for the names at the same top that end as one does."""
    top, last = format_name((name[0],)), format_name((name[-1],))
    end = f"*.{last.rpartition('.')[2]}" if "." in last else last
    return "/".join([top, *["**"] * (len(name) > 2), end])


def hurt_by(layout: Layout, gone: Collection[str]) -> set[Component]:
    """Return the keys at the top of a state of which something needs some pools."""
    tensors = layout.tensors
    return {tensors[t].name[0] for t in np.flatnonzero(layout.within(gone)).tolist() if tensors[t].name}


def called(tops: Sequence[str]) -> str:
    """Return names at the top of a state as an argument: ``names='model'``."""
    return f"names={tops[0] if len(tops) == 1 else [*tops[:_TOP_SHOWN]]!r}"
