"""Whether what a run stands on is still there: looked at a part with each save, long before it is missed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from lcstore.errors import LcstoreError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import EdgeBody
from lcstore.graph.refs import EdgeRef
from lcstore.index.index import Index
from lcstore.index.listing import Listing
from lcstore.index.standing import condemnations
from lcstore.layout.qualified import stem_of
from lcstore.layout.specs import role_of
from lcstore.storage.targets import is_near, keeps_twice

#: Every edge of the path is looked at once in so many saves,
ROUND: Final = 3
#: but no more than so many with each, of a target that answers at once and of one behind a network: a long
#: path would make every save slower. A near folder takes a third of a millisecond, where a small state is
#: saved in eight. What goes beneath a run mostly goes by its age, many objects at once, and is seen sooner.
MOST_NEAR: Final = 4
MOST_REMOTE: Final = 2
#: So many of a target that keeps everything several times, the last one among them in its turn.
MOST_KEPT_TWICE: Final = 1

_MOMENTS: Final = ("first_moment", "second_moment")


class _Watched(NamedTuple):
    """An edge of the path: its id, and the objects of which later states may be made, by their scope."""

    edge: str
    objects: tuple[tuple[str, str], ...]


class PathWatch:
    """Looks at the edges on the path to a writer's head, a few at a time, in turns."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.backend = index.backend
        #: The path; what is to be looked at of each edge; the edges by their ids, and by their targets.
        self._path: list[EdgeRef] = []
        self._known: dict[EdgeRef, _Watched] = {}
        self._by_id: dict[str, EdgeRef] = {}
        self._to: dict[str, EdgeRef] = {}
        self._asked: list[EdgeRef] = []
        self._turn = 0

    def folders(self, base: str | None) -> list[str]:
        """Return the folders of the edges on the path to a node that are to be looked at.

        Those are the last edge and the others whose turn it is; on a target that keeps everything several
        times, only those whose turn it is.
        """
        self._asked = []
        try:
            self._follow([] if base is None else self.index.path(base))
        except LcstoreError:
            self._follow([])
        path = self._path  # none with a stale listing, or a record that is gone: the next save sees more
        if keeps_twice(self.backend):
            self._asked = self._next(path, MOST_KEPT_TWICE)
        else:
            most = MOST_NEAR if is_near(self.backend) else MOST_REMOTE
            self._asked = path[-1:] + self._next(path[:-1], most)
        return [keys.edge_folder(self._known[ref].edge) for ref in self._asked]

    def looked_at(self, node: str) -> bool:
        """Return whether an edge to a node of the path is one of those that `folders` named last."""
        return any(ref.target == node for ref in self._asked)

    def sees(self, node: str) -> bool:
        """Return whether an edge to a node of the path has objects to be looked at."""
        return node in self._to and bool(self._known[self._to[node]].objects)

    def damage(self, listing: Listing) -> dict[EdgeRef, str]:
        """Return edges of the path that readers cannot rely on, each with what is wrong with it."""
        condemned = condemnations(listing, self._by_id)
        going = {(name.edge, name.scope) for name in condemned}
        hurt = {self._by_id[name.edge] for name in condemned if name.blocks}
        found = {
            ref: f"edge {self._known[ref].edge} is condemned"
            for ref in (self._path if hurt else ())
            if ref in hurt
        }
        for ref in self._asked:
            watched = self._known[ref]
            there = listing.by_folder.get(keys.edge_folder(watched.edge))
            if there is None:
                continue
            wanted = (key for key, scope in watched.objects if (watched.edge, scope) not in going)
            lost = [key for key in wanted if key not in there]
            if lost:
                found.setdefault(ref, f"object {lost[0]} is missing")
        return found

    def _follow(self, path: list[EdgeRef]) -> None:
        """Watch a path. Of one that goes on from the last one, only what is new is looked at."""
        known, new = self._known, path[len(self._path) :]
        if not self._path or path[: len(self._path)] != self._path:
            self._known, self._by_id, self._to, new = {}, {}, {}, path
        self._path = []
        for ref in new:
            watched = self._known[ref] = known.get(ref) or self._watch(ref)
            self._by_id[watched.edge] = self._to[ref.target] = ref
        self._path = path

    def _watch(self, ref: EdgeRef) -> _Watched:
        edge = self.index.record(ref.target).edge if ref.edge is None else self.index.edge(ref.edge).edge
        return _Watched(edge.id, tuple(_lasting(edge)))

    def _next(self, path: list[EdgeRef], most: int) -> list[EdgeRef]:
        """Return the edges whose turn it is: back along the path, as it grows at its end while turns pass."""
        count = min(-(-len(path) // ROUND), most)
        self._turn = (self._turn - count) % max(len(path), 1)
        return [path[(self._turn + at) % len(path)] for at in range(count)]


def _lasting(edge: EdgeBody) -> Iterable[tuple[str, str]]:
    """Yield key and scope of the objects that later states may be made of: not those of moments."""
    for ref in edge.objects:
        name = keys.parse_data_key(ref.key)
        if name.pool is not None and name.op is not None and name.chunk is not None:
            stem = stem_of(name.pool)
            if role_of(stem) not in _MOMENTS:
                yield ref.key, markkeys.array_scope(stem, name.op)
