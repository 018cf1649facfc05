"""What the kept states of a store need: edges, and of them which arrays. Plain data in, plain data out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from typing import Final, TypeAlias

import numpy as np

from lcstore.edges.algebra import Effect, array_of
from lcstore.errors import CorruptionError
from lcstore.format import keys
from lcstore.graph.refs import ROOT, EdgeRef
from lcstore.index.contents import Contents, Stored
from lcstore.layout.layout import Layout
from lcstore.layout.qualified import stem_of
from lcstore.layout.specs import role_of

#: An array of an edge, of all its parts: the edge's id, pool, op.
Needed: TypeAlias = tuple[str, str, keys.Op]

#: No edge sets the tensor: it is new in a layout that no edge of the path speaks of.
_NOWHERE: Final = -1
#: More than any operation: where a value begins is said in one number.
_OPS: Final = 8


def needed_arrays(
    contents: Contents,
    tree: Iterable[EdgeRef],
    kept: set[str],
    layout: Callable[[str], Layout],
    impassable: Container[str] = (),
) -> set[Needed]:
    """Return the arrays that restoring the kept nodes reads, when each is restored over the edges of `tree`.

    Parameters
    ----------
    contents
        The store.
    tree
        The edges that restores go over; more than one way to a node is well.
    kept
        The nodes to restore.
    layout
        Gives a layout by its digest.
    impassable
        Nodes whose layout is lost: what leads over them is not read.

    Raises
    ------
    CorruptionError
        The columns of a record do not fit its layout.
    """
    return _Needs(contents, kept, layout, impassable).run(tree)


class _Needs:
    """One walk down the tree: where the value of every tensor begins, by node."""

    def __init__(
        self,
        contents: Contents,
        kept: set[str],
        layout: Callable[[str], Layout],
        impassable: Container[str],
    ) -> None:
        self.contents = contents
        self.kept = kept
        self.layout = layout
        self.impassable = impassable
        self.edges: list[str] = []
        self.found: set[Needed] = set()
        self._number: dict[str, int] = {}
        self._seen: set[tuple[str, bytes]] = set()
        self._pools: dict[str, tuple[list[str], np.ndarray]] = {}

    def run(self, tree: Iterable[EdgeRef]) -> set[Needed]:
        children: defaultdict[str, list[EdgeRef]] = defaultdict(list)
        for ref in tree:
            children[ref.base].append(ref)
        pending = [(ref, "", np.empty(0, np.int64)) for ref in children[ROOT]]
        while pending:
            ref, base_layout, base = pending.pop()
            if ref.target in self.impassable:
                pending += [(child, "", np.empty(0, np.int64)) for child in children[ref.target]]
                continue
            own = self.contents.stored[self.contents.own[ref.target]]
            edge = own if ref.edge is None else self.contents.stored[ref.edge]
            begins = self._pass(own, edge, base_layout, base)
            self.found.update((edge.edge, pool, op) for pool, op in edge.arrays if op == "add")
            if (ref.target, begins.tobytes()) in self._seen:
                continue
            self._seen.add((ref.target, begins.tobytes()))
            if ref.target in self.kept:
                self._need(ref.target, own.layout, begins)
            pending += [(child, own.layout, begins) for child in children[ref.target]]
        return self.found

    def _pass(self, own: Stored, edge: Stored, base_layout: str, base: np.ndarray) -> np.ndarray:
        """Return where each tensor of a node begins: `_OPS` times the number of an edge, and its op."""
        layout = self.layout(own.layout)
        ops, own_ops = (np.frombuffer(stored.ops, np.uint8) for stored in (edge, own))
        if len(ops) != len(layout.tensors) or len(own_ops) != len(layout.tensors):
            raise CorruptionError(f"the columns of edge {edge.edge} do not fit its layout")
        effect = Effect.of(layout, ops, own_ops)
        begins = np.full(len(ops), _NOWHERE, np.int64)
        if base_layout:
            begins = effect.carry(base, self.layout(base_layout), _NOWHERE)
        holder = np.where(effect.owned, self._edge(own.edge), self._edge(edge.edge))
        begins[effect.sets] = (_OPS * holder + effect.op)[effect.sets]
        return begins

    def _edge(self, edge: str) -> int:
        if edge not in self._number:
            self._number[edge] = len(self.edges)
            self.edges.append(edge)
        return self._number[edge]

    def _need(self, node: str, digest: str, begins: np.ndarray) -> None:
        if digest not in self._pools:
            layout = self.layout(digest)
            names = list(dict.fromkeys(map(stem_of, layout.pools)))
            numbers = {name: number for number, name in enumerate(names)}
            of = [numbers[stem_of(spec.pool)] for spec in layout.tensors]
            self._pools[digest] = names, np.array(of, np.int64)
        names, pools = self._pools[digest]
        stripped = self.contents.marks.stripped.get(node, frozenset())
        for code in np.unique(begins * len(names) + pools).tolist():
            begin, pool = divmod(code, len(names))
            if begin < 0 or names[pool] in stripped:
                continue
            weights = role_of(names[pool]) == "weights"
            array = array_of(begin % _OPS, weights)
            if array is not None:
                self.found.add((self.edges[begin // _OPS], names[pool], array))
