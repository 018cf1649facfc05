"""What an earlier copy of a store has that the source has not any more, and decides by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

from lcstore.errors import CorruptionError, LimitError, NotFoundError, UnsupportedFormatError
from lcstore.format import keys, markkeys
from lcstore.format.marks import RetiredRecord
from lcstore.graph.refs import NodeName
from lcstore.index.gone import DAMAGED
from lcstore.index.marked import bearers
from lcstore.read.reader import Reader
from lcstore.read.resolved import Resolved
from lcstore.retention.choice import BY_RULE
from lcstore.storage.backend import Backend

#: Whose names say what is asked of an earlier copy.
_LOOKED_AT: Final = (keys.NODES, keys.EDGES, keys.NAMES)


@dataclass
class Earlier:
    """What was in the target before a copy began.

    A repair of the source says of states that they are lost, and of objects that they are not to be used. An
    earlier copy may have them whole: there neither is said, or the next collect would delete what it was kept
    for. A rule of the source says what is kept there: what a copy keeps is for its own rule to say.

    Attributes
    ----------
    nodes, edges
        Ids: of states, and of edges that are no state's own. None where the target was no store yet.
    there
        The keys of all that it had.
    pinned
        By pin, who bore it.
    kept
        The states that were let go of in the source as damaged, as a whole or in part, and stay.
    outlived
        Those of which a rule of the source let go as a whole, and that stay.
    marks
        The keys of the retirements that said so.
    """

    nodes: frozenset[str] = frozenset()
    edges: frozenset[str] = frozenset()
    there: Collection[str] = ()
    pinned: dict[str, set[str]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    outlived: set[str] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, there: Collection[str]) -> Self:
        """Return what a target had with these keys, before anything was copied to it."""
        if not {keys.STORE_KEY, keys.copy_key(keys.STORE_KEY)} & {*there}:
            return cls()
        below = {folder: [key for key in there if key.startswith(f"{folder}/")] for folder in _LOOKED_AT}
        nodes = frozenset(keys.parse_node_key(key).node for key in below[keys.NODES])
        edges = frozenset(keys.parse_edge_key(key).edge for key in below[keys.EDGES])
        pins = bearers(map(markkeys.parse_tag_key, below[keys.NAMES]), "pin", nodes)
        pinned = {pin: {str(one.node) for one in those} for pin, those in pins.items()}
        return cls(nodes, edges, there, pinned)

    def keep(self, target: Backend, found: dict[str, RetiredRecord]) -> None:
        """Take note of the states that the source lets go of, by a repair or by a rule, and the target keeps.

        As damaged, it lets go of those only that the target has whole.

        Parameters
        ----------
        target
            Before any mark was copied to it.
        found
            The retirements that the target has not, by key.
        """
        going = {
            key: mark
            for key, mark in found.items()
            if mark.node in self.nodes and mark.reason.startswith((DAMAGED, *BY_RULE))
        }
        if not going:
            return
        reader = Reader.alone(target)
        graph = reader.listed()
        shown = graph.nodes.keys() - graph.hidden
        lost = {mark.node for mark in going.values() if mark.reason.startswith(DAMAGED)} & shown
        by_rule = {key: going[key] for key in going if going[key].node in shown - lost}
        self.kept = {node for node in lost if _is_whole(reader, graph.nodes[node], self.there)}
        self.outlived = {mark.node for mark in by_rule.values() if mark.what == markkeys.WHOLE_STATE}
        self.marks = {*by_rule} | {key for key, mark in going.items() if mark.node in self.kept}

    def leaves_out(self, key: str, lacking: Collection[str]) -> bool:
        """Return whether a mark of the source is left out, as the target has what it is about from before.

        `lacking` are the ids of edges of which the target has not all that is condemned.
        """
        folder = key.partition("/")[0]
        if folder == keys.CONDEMNED:
            name = markkeys.parse_condemned_key(key)
            had = name.edge in self.edges if name.node is None else name.node in self.nodes
            return had and name.edge not in lacking
        if folder == keys.NAMES:
            tag = markkeys.parse_tag_key(key)
            if tag.kind != "pin" or tag.node is not None:
                return False
            # A rule that lets go of what was brought back takes that pin away besides.
            by_rule = self.outlived if tag.name.endswith(f" {markkeys.UNRETIRED}") else set[str]()
            return not (self.kept | by_rule).isdisjoint(self.pinned.get(tag.name, ()))
        return key in self.marks


def _is_whole(reader: Reader, name: NodeName, there: Collection[str]) -> bool:
    """Return whether all is there of which a state is restored, as the names of objects tell."""
    with suppress(CorruptionError, NotFoundError, LimitError, UnsupportedFormatError):
        state = Resolved(reader, name, None)
        return state.has_leaves(there) and state.has(state.node.everything, there)
    return False


def stood_on(nodes: Iterable[NodeName], hidden: Set[str]) -> set[str]:
    """Return the nodes that are not let go of, and all that these were saved upon."""
    base = {name.node: name.base for name in nodes}
    found = set[str]()
    for node in base.keys() - hidden:
        while node in base and node not in found:
            found.add(node)
            node = base[node]
    return found


def past(nodes: Iterable[str], there: Set[str], others: Set[str]) -> set[str]:
    """Return which of the other records that are there are of the source.

    An earlier copy brought them, or a run of the source saved them there, whose store was moved away. They
    are states of runs that the source has; where the two share a state also of runs that it had, as their
    numbers tell; and edges to states. A copy that went on by itself has a run of its own, with the next
    number.
    """
    known = {key: keys.parse_node_key(key) for key in nodes}
    runs = {name.run_id for name in known.values()}
    numbers = set[int]() if there.isdisjoint(known) else {name.run for name in known.values()}
    had = {*range(1, max(numbers, default=0))} - numbers
    found = {key: keys.parse_node_key(key) for key in others if key.startswith(f"{keys.NODES}/")}
    states = {key for key, name in found.items() if name.run_id in runs or name.run in had}
    ids = {name.node for name in known.values()} | {found[key].node for key in states}
    edges = {key: keys.parse_edge_key(key) for key in others if key.startswith(f"{keys.EDGES}/")}
    return states | {key for key, edge in edges.items() if edge.target in ids}
