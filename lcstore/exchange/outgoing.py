"""A state, or a part of one, on its way to a file: what is said of it first, and its tensors one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.exchange.filekeys import file_keys, parts_left_out
from lcstore.exchange.manifest import Manifest, Row
from lcstore.jobs.survey import OnProgress
from lcstore.layout.specs import TensorSpec
from lcstore.read.lookup import part_of
from lcstore.read.resolved import Resolved
from lcstore.read.snapshot import Snapshot
from lcstore.read.stream import Chosen, choose, stream
from lcstore.state.names import Name, format_name
from lcstore.state.tree import names_in

#: Bytes of tensors that are decoded before they are written.
_AHEAD: Final = 256 << 20


@dataclass(frozen=True)
class Outgoing:
    """What is written of a state.

    Attributes
    ----------
    snapshot, names
        The state, and which part of it.
    manifest
        What is said of it besides its tensors.
    places
        What each of its tensors is called in the file, and its shape and dtype, in the order of the state.
    ties
        Further keys, each with that of the tensor which is the same one.
    left_out
        How many parts that all names begin with were asked for, and are not said in keys.
    on_progress
        Called with "export", the tensors that are written, and how many there are.
    """

    snapshot: Snapshot
    names: str | Sequence[str] | None
    manifest: Manifest
    places: dict[str, TensorSpec]
    ties: dict[str, str]
    left_out: int
    on_progress: OnProgress | None

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(spec.nbytes for spec in self.places.values())

    def largest_first(self) -> list[str]:
        """Return the keys by the size of an element, so that each tensor lies where its dtype may."""
        return sorted(self.places, key=lambda key: -self.places[key].itemsize)

    def tensors(self, keys: Sequence[str] | None = None) -> Iterator[tuple[str, Array]]:
        """Yield keys and tensors, in C order: those of `keys`, one after another; little of them is held."""
        wanted = [*self.places] if keys is None else [*keys]
        by_name = {format_name(self.places[key].name): key for key in wanted}
        chosen = self.snapshot.using(lambda state: self._chosen(state, wanted))
        flow = stream(self.snapshot.using, chosen, to="numpy", ahead=_AHEAD)
        with closing(flow):
            for done, (name, value) in enumerate(flow, 1):
                yield by_name[name], np.ascontiguousarray(value).reshape(np.shape(value))
                if self.on_progress is not None:
                    self.on_progress("export", done, len(wanted))

    def tree(self) -> Any:
        """Return all of it as tensors of torch, without the levels that keys leave out."""
        tree = self.snapshot.tree(names=self.names, to="torch")
        for _ in range(self.left_out):
            (tree,) = tree.values() if isinstance(tree, Mapping) else tree
        return tree

    def _chosen(self, state: Resolved, wanted: Sequence[str]) -> Chosen:
        found = choose(state, self.names)
        names = [self.places[key].name for key in wanted]
        return Chosen(found.layout, names, {name: found.wholes[name] for name in names})


def outgoing(
    snapshot: Snapshot,
    names: str | Sequence[str] | None,
    *,
    dotted: bool = True,
    on_progress: OnProgress | None = None,
) -> Outgoing:
    """Return what is written of a state; `NotFoundError` where one of `names` matches nothing in it.

    Tensors are called by `file_keys`, or, if not `dotted`, by the texts of their names.
    """

    def use(state: Resolved) -> Outgoing:
        node = state.node
        part = part_of(node, names, snapshot.url)
        found = names_in(part.structure)
        named: list[Name] = [*found.tensors, *found.ties]
        left_out = parts_left_out(names, named)
        keys = file_keys(named, left_out, dotted=dotted)
        # The name that a tensor has in this part, which may be a further one of it in the whole.
        specs = [
            node.layout.wholes[place]._replace(name=name)
            for name, place in zip(found.tensors, part.tensors, strict=True)
        ]
        places = dict(zip(keys, specs, strict=False))
        by_name = dict(zip(named, keys, strict=True))
        rows = [Row(key, spec.dtype, spec.framework) for key, spec in places.items()]
        leaves: list[Any] = [state.leaves[place] for place in part.leaves] if part.leaves else []
        return Outgoing(
            snapshot,
            names,
            Manifest(snapshot.step, part.structure, leaves, rows),
            places,
            {by_name[name]: by_name[first] for name, first in found.ties.items()},
            left_out,
            on_progress,
        )

    return snapshot.using(use)
