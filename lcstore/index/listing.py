"""The names in a store: listed folder by folder, in an order that keeps what is seen together consistent.

Only this module lists record folders, so all orders are here, with why each is as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Executor
from typing import Final, TypeAlias

from lcstore.errors import CorruptionError, LcstoreError, StorageError
from lcstore.format import keys, markkeys
from lcstore.format.keyforms import STRAY
from lcstore.graph.refs import EdgeName, NodeName
from lcstore.index.marked import Marks, lines, pins_by_node
from lcstore.once import once
from lcstore.records.kinds import CONDEMNED, EDGE, KINDS, LAYOUT, NODE, RETIRED, TAG
from lcstore.records.lost import lost_edges, lost_nodes
from lcstore.storage.backend import Backend
from lcstore.storage.targets import keeps_twice

#: Folders to be listed: those of one group side by side, the groups one after another. "" is the whole store.
Order: TypeAlias = tuple[tuple[str, ...], ...]

#: Who looks for the latest node. With nodes and edges, second copies are listed: see `lost_nodes`.
LATEST: Final[Order] = ((keys.NODES, keys.COPIES),)
#: Who sets a tag wants the number of the last one.
TAGS: Final[Order] = ((keys.NAMES,),)
#: Who deletes records deletes their second copies first.
COPIES: Final[Order] = ((keys.COPIES,),)
#: Who asks whether what listed records need is there.
OBJECTS: Final[Order] = ((keys.DATA,),)
#: Who finds no record of a state, and asks whether there were some.
SAVED: Final[Order] = ((keys.DATA, keys.RETIRED),)
#: Who shows the states; the marks of what is listed are listed after it.
STATES: Final[Order] = ((keys.NODES, keys.COPIES), (keys.NAMES, keys.RETIRED, keys.CONDEMNED))
#: Readers see what is there whatever the order: what goes is condemned a grace before.
READING: Final[Order] = ((keys.NODES, keys.COPIES, keys.EDGES, keys.RETIRED, keys.NAMES, keys.CONDEMNED),)
#: Who builds upon a state, or pins it, once the record of that is stored: marks are deleted after the records
#: that they are about. So they are listed before those, and none that came and went is missed. What is marked
#: from then on is marked by someone who lists the records once more, and finds the new one.
BUILDING: Final[Order] = ((keys.RETIRED, keys.CONDEMNED), (keys.NODES, keys.COPIES, keys.EDGES, keys.NAMES))
#: Collectors. Condemnations first: they go last, so whatever is condemned and not listed here is seen to be
#: gone; and what is listed was condemned before the records were, so a state that needs it is seen, or its
#: writer saw the condemnation. Retirements and copies that may be swept: they are written after what they are
#: about.
#: Then data and layouts: of a save under way the record is listed, or its objects are not. Pins last: a state
#: that is seen to be retired was not pinned before that, or the pin is seen.
COLLECTING: Final[Order] = (
    (keys.CONDEMNED, keys.RETIRED, keys.COPIES),
    (keys.DATA, keys.LAYOUTS),
    (keys.NODES, keys.EDGES),
    (keys.RETIRED, keys.NAMES),
)
#: Who checks everything: what a listed record needs was stored before it, so records are listed first.
CHECKING: Final[Order] = ((keys.NODES, keys.EDGES), ("",))
#: Who finds objects missing, and looks whether they were let go. Their condemnation was there before they
#: went, and its record goes before it does: where the condemnation is not there any more, the record is not.
AGAIN: Final[Order] = ((keys.CONDEMNED,), (keys.NODES, keys.COPIES, keys.EDGES))
#: Who finds second copies missing: these go first of all, and marks go last. Who is condemned for having been
#: let go of is seen to be let go of, or to be gone.
GOING: Final[Order] = ((keys.CONDEMNED,), (keys.RETIRED,), (keys.NODES, keys.COPIES, keys.EDGES, keys.NAMES))
#: Who asks whether a merged edge was added by a try that was cut off.
REMADE: Final[Order] = ((keys.CONDEMNED,), (keys.EDGES,))
#: Who asks whether records that were listed are gone.
RECORDS: Final[Order] = ((keys.NODES, keys.EDGES),)


def committed(edge: str, more: Sequence[str], *, builds: bool = False, at_once: bool = False) -> Order:
    """Return what is listed of an edge of which the record has just been stored.

    A condemnation goes last: one that came and went took along what was there by then. So the objects of the
    edge are listed after the condemnations.

    Parameters
    ----------
    edge
        The edge's id.
    more
        Further folders.
    builds
        Whether what the edge leads from is to be looked at as well: it is another's.
    at_once
        List everything side by side: none of the objects is old enough for a collector. Were that wrong, only
        a collector that deletes them, all within this listing, could be missed.
    """
    rest = (keys.edge_folder(edge), *more)
    if builds:
        return BUILDING[0], (*BUILDING[1], *rest)
    return ((keys.CONDEMNED, *rest),) if at_once else ((keys.CONDEMNED,), rest)


def is_amiss(name: str) -> bool:
    """Return whether a foreign name lies where only records do; what servers keep for a folder does not."""
    return name.partition("/")[0] in KINDS and not name.endswith("/")


class Listing:
    """The names in a store at one time.

    Names are parsed when they are first asked for; `CorruptionError` where one cannot be.

    Attributes
    ----------
    by_folder
        Keys by folder, in no order, as of the last time that each was listed. Records of nodes and edges,
        where the whole store was listed after them, are those of both times.
    before
        Keys by folder: as of the first time, where it was listed twice.
    lost
        Keys, among those of nodes and edges, of records that are missing and have a second copy.
    foreign
        Names that are no keys.
    doubt
        Why it is not known of some second copies whether the records that they are of are lost: the target
        did not give them. Nobody may delete what such a record may name, or take a copy of this for whole.
    """

    def __init__(self, found: dict[str, list[str]]) -> None:
        self.by_folder = found
        self.before: dict[str, set[str]] = {}
        self.lost: list[str] = []
        self.foreign: list[str] = []
        self.doubt: StorageError | None = None

    @classmethod
    def take(cls, backend: Backend, order: Order, executor: Executor | None = None) -> Listing:
        """List a store; with an executor the folders of one group side by side."""
        listing = cls({})

        def one(folder: str) -> list[str]:
            return backend.list(folder, listing.foreign)

        aside = keeps_twice(backend)  # so looking for lost records is not worth a request of each reader
        for wanted in order:
            idle = keys.COPIES if aside and keys.NODES in wanted else None
            group = [folder for folder in wanted if folder != idle]
            several = executor is not None and len(group) > 1
            found = executor.map(one, group) if executor is not None and several else map(one, group)
            for folder, listed in zip(group, found, strict=True):
                listing._add(folder, listed)
        if keys.NODES in listing.by_folder:
            listing._add_lost(backend)
        return listing

    def _add_lost(self, backend: Backend) -> None:
        """Take in the nodes and edges that are known by their second copies alone."""
        copies, failed = self.by_folder.get(keys.COPIES, ()), list[StorageError]()
        for folder, lost in ((keys.NODES, lost_nodes), (keys.EDGES, lost_edges)):
            if folder in self.by_folder:
                found = list(lost(backend, copies, self.by_folder[folder], failed))
                self.by_folder[folder] += found
                self.lost += found
        self.doubt = failed[0] if failed else None

    def check_lost(self) -> None:
        """Raise the `doubt`, if there is one."""
        if self.doubt is not None:
            raise self.doubt

    def _add(self, folder: str, listed: list[str]) -> None:
        if folder:
            if folder in self.by_folder:
                self.before[folder] = set(self.by_folder[folder])
            self.by_folder[folder] = listed
            return
        early = self.by_folder
        self.by_folder = defaultdict(list)
        for key in listed:
            top = key.partition("/")[0]
            self.by_folder[top].append(key)
        for top, first in early.items():
            self.before[top] = set(first)
            self.by_folder[top] = [key for key in self.by_folder[top] if key in self.before[top]]

    def reads_as(self, before: Listing) -> bool:
        """Return whether states are read as an earlier listing showed it; both are of `READING`."""
        edges, nodes, marks = (
            [set(listing.below(folder)) for listing in (before, self)]
            for folder in (keys.EDGES, keys.NODES, keys.CONDEMNED)
        )
        return edges[0] == edges[1] and nodes[0] <= nodes[1] and marks[1] <= marks[0]

    def is_overtaken(self, backend: Backend) -> bool:
        """Return whether records that were listed are gone by now: a collector is at work.

        Its marks may have come and gone since, too. So what seems to be damaged by this listing need not be.
        """
        now = Listing.take(backend, RECORDS)
        listed = {key for folder in RECORDS[0] for key in self.before.get(folder, self.by_folder[folder])}
        return not listed - {*self.lost} <= {key for folder in RECORDS[0] for key in now.by_folder[folder]}

    def below(self, folder: str) -> list[str]:
        """Return the keys below a folder, in order."""
        return sorted(self.by_folder.get(folder, ()))

    def check_names(self) -> None:
        """Refuse, with `CorruptionError`, a name in a folder of records that no record can have.

        What it stands for is not known, and it may be all that is left of a record.
        """
        for name in filter(is_amiss, self.foreign):
            raise CorruptionError(STRAY, key=name)
        for folder, kind in KINDS.items():
            for key in self.below(folder):
                kind.parse(key)

    def drop_unparsable(self, problem: Callable[[str, LcstoreError], None]) -> None:
        """Leave out the names of records that cannot be parsed; `problem` is told of each."""
        for folder, kind in KINDS.items():
            good = []
            for key in self.below(folder):
                try:
                    kind.parse(key)
                except LcstoreError as error:
                    problem(key, error)
                else:
                    good.append(key)
            self.by_folder[folder] = good

    @once
    def nodes(self) -> list[NodeName]:
        """Nodes."""
        return [NODE.parse(key) for key in self.below(keys.NODES)]

    @once
    def edges(self) -> list[EdgeName]:
        """Edges that maintenance added."""
        return [EDGE.parse(key) for key in self.below(keys.EDGES)]

    @once
    def layouts(self) -> list[str]:
        """Digests of layouts."""
        return [LAYOUT.parse(key) for key in self.below(keys.LAYOUTS)]

    @once
    def named(self) -> tuple[markkeys.TagName, ...]:
        """Tags and pins."""
        return tuple([TAG.parse(key) for key in self.below(keys.NAMES)])

    @once
    def retired(self) -> list[markkeys.RetiredName]:
        """Retirements."""
        return [RETIRED.parse(key) for key in self.below(keys.RETIRED)]

    @once
    def condemned(self) -> list[markkeys.CondemnedName]:
        """Condemnations."""
        return [CONDEMNED.parse(key) for key in self.below(keys.CONDEMNED)]

    @once
    def data(self) -> dict[str, list[str]]:
        """Keys of objects of data, by edge; files that are not the store's are left alone."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key in filter(keys.is_data_key, self.below(keys.DATA)):
            found[keys.parse_data_key(key).edge].append(key)
        return dict(found)

    def marks(self, nodes: Container[str]) -> Marks:
        """Return what is retired, pinned and condemned, `nodes` being those that are there."""
        pins, condemned = pins_by_node(self.named, nodes), frozenset(self.condemned)
        back = frozenset(node for node, by in pins.items() if by == {markkeys.UNRETIRED})
        came_from = lines(self.named, nodes)
        kept = Marks(pinned=frozenset(pins), brought_back=back, condemned=condemned, came_from=came_from)
        return kept.with_retired(self.retired)
