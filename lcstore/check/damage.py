"""Which states cannot be restored, given what is damaged, over the paths that readers take or any other."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.check.looker import Need
from lcstore.check.readable import Readable
from lcstore.format import keys
from lcstore.format.records import EdgeRecord
from lcstore.graph.paths import DAMAGED, TwoWayPaths, cheapest_paths, path_in
from lcstore.graph.refs import ROOT, EdgeRef
from lcstore.index.links import Link, shortcut_link
from lcstore.layout.qualified import stem_of

#: In the place of a cause: no path leads to the node.
NO_PATH: Final = "no path"


class Harm(NamedTuple):
    """What of a node cannot be had.

    Attributes
    ----------
    tensors
        ``bool``, per tensor of its layout; None: nothing can.
    cause
        Key of an object that is to blame, or `NO_PATH`.
    """

    tensors: Array | None
    cause: str


#: Of a node that no path leads to.
NOWHERE: Final = Harm(None, NO_PATH)


def weight_of(harm: Harm | None) -> tuple[bool, int]:
    """Return what decides which of two harms is the lesser; None is the least."""
    if harm is None:
        return False, 0
    return (True, 0) if harm.tensors is None else (False, int(harm.tensors.sum()))


@dataclass
class Damage:
    """What was found to be damaged or missing.

    Attributes
    ----------
    objects
        Keys, by edge.
    tensors
        By edge, tensors that it does not lead to the value committed: ``bool``, per tensor.
    """

    objects: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    tensors: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, objects: Iterable[str], tensors: Mapping[str, Array] | None = None) -> Damage:
        """Put damage together."""
        damage = cls(tensors=dict(tensors or {}))
        for key in objects:
            damage.objects[keys.parse_data_key(key).edge].add(key)
        return damage


class Judge:
    """What damage comes to.

    Parameters
    ----------
    store
        What there is. Its marks may change between questions.
    damage
        What is wrong with it.
    """

    def __init__(self, store: Readable, damage: Damage) -> None:
        self.store = store
        self.damage = damage
        self._touched: dict[tuple[str, keys.Op], Array] = {}
        self.outgoing: defaultdict[str, list[EdgeRef]] = defaultdict(list)
        for ref in store.refs():
            self._link(ref)

    def add(self, record: EdgeRecord) -> None:
        """Take in an edge of maintenance."""
        name, store = record.name, self.store
        store.edges[name.edge] = record
        store.shortcuts[name.edge] = shortcut_link(record, store.own[name.target])
        store.graph.add_edge(name)
        self._link(name.ref)

    def _link(self, ref: EdgeRef) -> None:
        self.outgoing[ref.base].append(ref)

    # Along paths ----------------------------------------------------------------------------------------

    def read(self, *, around: bool = False) -> dict[str, Harm | None]:
        """Return the harm to what readers find of each node to which a path leads; None where it is whole.

        With `around` it is the least that readers find on their ways around edges that are damaged. As they
        do, it leaves out what spoiled a kept state, edge by edge, until that leads to no other edges.
        """
        harms = self._read(frozenset())
        found, avoided = harms, frozenset[str]()
        while around:
            new = self._culprits(harms, found) - avoided
            if not new:
                break
            avoided |= new
            found = self._read(avoided)
            harms |= {n: h for n, h in found.items() if weight_of(h) < weight_of(harms.get(n, NOWHERE))}
        return harms

    def _culprits(self, harms: Mapping[str, Harm | None], found: Mapping[str, Harm | None]) -> set[str]:
        """Return the edges that spoil, on the paths last found, kept states that no path gave so far."""
        lost = [n for n in self.store.kept if self.missing(n, harms.get(n, NOWHERE)) is not None]
        lacking = [(node, self.missing(node, found.get(node, NOWHERE))) for node in lost]
        links = self.store.links
        return {_name_of(h.cause, links) for node, h in lacking if h and self._depends(node, h)} - {""}

    def _depends(self, node: str, harm: Harm) -> bool:
        """Return whether another path may give what a node lacks: what it sets, only one that leads back."""
        own, bad = self.store.own.get(node), harm.tensors
        if own is None or bad is None:
            return own is not None
        on = (link.effect for ref in self.outgoing[node] if (link := self.store.link(ref)))
        kept = any(effect.carry(bad, own.layout, False).any() for effect in on)
        return kept or bool((bad & ~own.effect.sets).any())

    def _read(self, damaged: Container[str]) -> dict[str, Harm | None]:
        """Return the harm to each node over the cheapest path, edges of some names being a last resort."""
        graph = self.store.graph

        def avoided(ref: EdgeRef) -> int:
            return DAMAGED if (ref.edge or ref.target) in damaged else graph.is_condemned(ref)

        paths = cheapest_paths(self.outgoing, graph.nodes, avoided)
        after: defaultdict[str, list[EdgeRef]] = defaultdict(list)
        for path in paths.values():
            if path.last is not None:
                after[path.last.base].append(path.last)
        harms: dict[str, Harm | None] = {ROOT: None}
        queue = deque([ROOT])
        while queue:
            node = queue.popleft()
            for ref in after[node]:
                harms[ref.target] = self.go(harms[node], ref)
                queue.append(ref.target)
        closed = [node for node in graph.nodes if node not in paths or paths[node].avoided]
        if closed:
            open_paths = TwoWayPaths(ref for ref in self.store.refs() if not avoided(ref)).all()
            for node in closed:
                self._go_around(node, path_in(open_paths, node), harms)
        del harms[ROOT]
        return harms

    def _go_around(self, node: str, path: Sequence[EdgeRef] | None, harms: dict[str, Harm | None]) -> None:
        """Lessen the harm to a node, where a path that leads past it and back gives more of it.

        What such a path loses is read over the one that leads forward.
        """
        if path is None or node not in self.store.own:
            return
        harm: Harm | None = None
        for ref in path:
            harm = self.go_back(harm, ref) if ref.backward else self.go(harm, ref)
        forward = harms.get(node, NOWHERE)
        if harm is not None and forward is not None and harm.tensors is not None:
            bad = harm.tensors & (True if forward.tensors is None else forward.tensors)
            harm = Harm(bad, forward.cause) if bad.any() else None
        if weight_of(harm) < weight_of(forward):
            harms[node] = harm

    def go(self, base: Harm | None, ref: EdgeRef) -> Harm | None:
        """Return the harm behind an edge, given that before it."""
        own = self.store.own.get(ref.target)
        if own is None:
            return Harm(None, self._unusable(ref.target))
        link = self.store.link(ref)
        if link is None:
            return Harm(None, self.store.key_of(ref))
        if base is not None and base.tensors is None:
            return base
        if base is None and not self.is_hurt(link) and not self.is_hurt(own):
            return None
        here = self.hurt(link) | (link.effect.owned & self.hurt(own))
        before = np.zeros_like(here)
        if base is not None and base.tensors is not None:
            before = link.effect.carry(base.tensors, self.store.own[ref.base].layout, False)
        if not (here | before).any():
            return None
        if base is not None and before.any():
            return Harm(here | before, base.cause)
        return Harm(here, self._cause(link) or self._cause(own) or link.key)

    def go_back(self, target: Harm | None, ref: EdgeRef) -> Harm | None:
        """Return the harm to the base of an edge that is gone over backward, given that to its target."""
        link, base = self.store.link(ref), self.store.own.get(ref.base)
        if link is None or base is None:
            return Harm(None, self.store.key_of(ref))
        if target is not None and target.tensors is None:
            return target
        good = link.effect.passes & ~self.hurt(link)
        if target is not None and target.tensors is not None:
            good &= ~target.tensors
        places = link.layout.places_in(base.layout)
        bad = np.ones(len(base.layout.tensors), bool)
        bad[places[good & (places >= 0)]] = False
        cause = target.cause if target is not None else self._cause(link) or link.key
        return Harm(bad, cause) if bad.any() else None

    def missing(
        self,
        node: str,
        harm: Harm | None,
        *,
        exact: bool | None = None,
        stripped: Collection[str] | None = None,
    ) -> Harm | None:
        """Return what a restore of a node lacks.

        Parameters
        ----------
        node, harm
            A node, and what its track lacks over the path that is taken; `NOWHERE` where none is.
        exact, stripped
            Whether its exact value counts where it was saved, and which pools are let go; as the marks of the
            store say if not given.
        """
        own, marks = self.store.own.get(node), self.store.marks
        if own is None:
            return Harm(None, self._unusable(node))
        if harm is None and not self.is_hurt(own):
            return None
        record = self.store.records[node]
        hurt = self.damage.objects.get(own.id, set())
        lost = next((ref.key for ref in record.leaves_objects if ref.key in hurt), None)
        if lost is not None:
            return Harm(None, lost)
        gone = own.layout.within(marks.stripped.get(node, ()) if stripped is None else stripped)
        keeps = node not in marks.inexact if exact is None else exact
        exactly = self.exact_of(node) if keeps else np.zeros_like(gone)
        bad = exactly & ~gone & self.touched(own, "exact")
        cause = self._cause(own)
        tracked = ~exactly & ~gone
        if tracked.any() and self.sets_all(own, tracked):
            bad |= tracked & self.hurt(own)
        elif tracked.any() and harm is not None:
            if harm.tensors is None:
                return harm
            if (tracked & harm.tensors).any():
                bad, cause = bad | (tracked & harm.tensors), harm.cause
        return Harm(bad, cause or own.key) if bad.any() else None

    def exact_of(self, node: str) -> Array:
        """Return which tensors of a node were saved with their exact value: ``bool``, per tensor."""
        own, whole = self.store.own[node], self.store.records[node].exact is not None
        out: Array = ~own.layout.plain & (whole | own.effect.holds("exact"))
        return out

    @staticmethod
    def sets_all(own: Link, tensors: Array | None = None) -> bool:
        """Return whether an own edge sets all (or some) tensors, so that no path is needed for them."""
        return bool(own.effect.sets[slice(None) if tensors is None else tensors].all())

    def reach(self, link: Link, tensors: Array) -> bool:
        """Return whether any kept state may need some tensors of the target of an edge, over any path."""
        wrong = {link.target: tensors}
        queue = deque([link.target])
        while queue:
            node = queue.popleft()
            own = self.store.own.get(node)
            if own is None:
                continue
            bad = wrong[node]
            if node not in self.store.graph.hidden:
                gone = own.layout.within(self.store.marks.stripped.get(node, ()))
                if (bad & ~gone).any():
                    return True
            for ref in self.outgoing[node]:
                out = self.store.link(ref)
                if out is None:
                    continue
                on = out.effect.carry(bad, own.layout, False)
                known = wrong.get(ref.target)
                if on.any() and (known is None or (on & ~known).any()):
                    wrong[ref.target] = on if known is None else on | known
                    queue.append(ref.target)
        return False

    def counts(self, need: Need) -> bool:
        """Return whether an object of an edge counts: parity of what no kept state may need does not."""
        name, own = keys.parse_data_key(need.ref.key), self.store.own.get(need.node or "")
        if name.parity is None or name.op is None or own is None:
            return True
        if need.exact:
            return own.target not in self.store.marks.hidden | self.store.marks.inexact
        return self.reach(own, own.layout.within({stem_of(name.pool or "")}) & own.effect.holds(name.op))

    # Of one edge ----------------------------------------------------------------------------------------

    def touched(self, link: Link, array: keys.Op) -> Array:
        """Return the tensors of which an array of an edge has a damaged chunk: ``bool``, per tensor."""
        known = self._touched.get((link.id, array))
        if known is None:
            known = np.zeros(len(link.layout.tensors), bool)
            for key in self.damage.objects.get(link.id, ()):
                name = keys.parse_data_key(key)
                if name.op == array and name.pool is not None and name.chunk is not None:
                    known |= link.layout.touched(name.pool, name.chunk)
            self._touched[link.id, array] = known
        return known

    def hurt(self, link: Link) -> Array:
        """Return the tensors that an edge itself leads to a wrong value: ``bool``, per tensor."""
        spoiled = link.effect.spoiled(partial(self.touched, link))
        out: Array = spoiled | self.damage.tensors.get(link.id, False)
        return out

    def is_hurt(self, link: Link) -> bool:
        """Return whether anything of an edge is damaged."""
        return bool(self.damage.objects.get(link.id)) or link.id in self.damage.tensors

    def _cause(self, link: Link) -> str | None:
        chunks = [k for k in self.damage.objects.get(link.id, ()) if not k.endswith(".json")]
        return min(chunks, default=link.key if link.id in self.damage.tensors else None)

    def _unusable(self, node: str) -> str:
        """Return the key of what makes the record of a node useless."""
        key = keys.node_key(self.store.graph.nodes[node])
        record = self.store.records.get(node)
        if record is not None and record.layout not in self.store.layouts:
            return self.store.missing_layout(record.layout)
        return key


def _name_of(cause: str, links: Mapping[str, Link]) -> str:
    """Return what an edge goes by that an object or a record is of: its node, where it is one's own."""
    if cause.startswith(f"{keys.NODES}/"):
        return keys.parse_node_key(cause).node
    edge = keys.edge_of(cause) or ""
    link = links.get(edge)
    return edge if link is None else link.node or edge
