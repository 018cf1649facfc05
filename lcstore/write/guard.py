"""What keeps a run from standing on damage: its path is looked at, and anchors are added to it."""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final

from lcstore.durability import Durability
from lcstore.errors import CorruptionError, DamageWarning, LcstoreError
from lcstore.format import keys
from lcstore.graph.anchors import Since
from lcstore.graph.refs import EdgeRef, NodeName
from lcstore.index.index import Index
from lcstore.index.listing import Listing
from lcstore.index.standing import is_kept
from lcstore.storage.backend import Backend, exists
from lcstore.track.track import Track
from lcstore.warned import warn
from lcstore.write.anchor import add_anchor
from lcstore.write.instant import Instant
from lcstore.write.pathwatch import PathWatch
from lcstore.write.saveinfo import SaveInfo

_log = logging.getLogger("lcstore")

#: Seconds: half of the silence after which a run may be taken for dead.
RECENT: Final = 30.0


class Guard:
    """Knows what of the path to a writer's head was found damaged, and adds anchors where they are due.

    Parameters
    ----------
    index
        The store, as it was listed.
    executor
        Threads to code and write anchors with.
    durability
        When an anchor is due.
    """

    def __init__(self, index: Index, executor: Executor, durability: Durability) -> None:
        self.index = index
        self.backend = index.backend
        self.executor = executor
        self.durability = durability
        self._watch = PathWatch(index)
        self._damage: dict[EdgeRef, str] = {}
        #: When the writer last found that what it stands on stays.
        self.looked = Instant()

    def folders(self, base: str | None) -> list[str]:
        """Return the folders to be listed with the next save: see `PathWatch.folders`."""
        return self._watch.folders(base)

    def look(self, listing: Listing) -> None:
        """Take in what was listed of the condemnations and of `folders`."""
        self._damage = self._watch.damage(listing)

    def is_there(self, head: NodeName, grace: float) -> bool:
        """Return whether the record of a node that the writer saved is there.

        No request is made where the writer looked around a moment ago. The writer has to know: a record
        whose parent is gone stops maintenance, if the writer dies before it finds out.
        """
        return self._looked_lately(grace) or exists(self.backend, keys.node_key(head))

    def is_given_up(self, base: NodeName, listing: Listing, grace: float) -> bool:
        """Return whether a node that the writer saved is let go of, or a record of its path was deleted.

        Parameters
        ----------
        base
            The node that the writer stands on.
        listing
            What `look` took in, and the retirements.
        grace
            Seconds for which collectors leave alone what no record names, at the least.
        """
        nodes = self.index.graph.nodes
        # Whoever looks at states with this handle lists them: it may have been seen already that it is gone.
        if not is_kept(listing, base.node) or base.node not in nodes:
            return True
        path = [nodes[node] for node in self._doubtful(base.node, grace) if node in nodes]
        return not all(exists(self.backend, keys.node_key(name)) for name in path)

    def _doubtful(self, base: str, grace: float) -> set[str]:
        """Return the nodes on the path to a writer's base whose records may be gone.

        Edges to them were found damaged; or it is the base, and nothing of its edge was looked at. No
        collector takes it from a run that looked a moment ago: a run is to be silent for a minute before a
        grace is cut short, or for a whole `grace`.
        """
        found = {ref.target for ref in self._damage}
        looked = self._watch.looked_at(base) or self._looked_lately(grace)
        return found if looked and self._watch.sees(base) else {*found, base}

    def _looked_lately(self, grace: float) -> bool:
        """Return whether the writer looked around within half of the silence that makes a run look dead."""
        return self.looked.is_within(min(RECENT, grace / 2))

    def protect(self, info: SaveInfo, head: NodeName, track: Track) -> SaveInfo:
        """Add an anchor to the state just saved where one is due, and return what the save came to.

        One is due by what the path costs, and where the state is read over what was found damaged. The save
        is acknowledged: nothing that goes wrong here harms it, and the next one tries again.

        Parameters
        ----------
        info
            What is said of the save.
        head, track
            The state, and the track that stands on it.

        Warns
        -----
        DamageWarning
            The run stood on damage.
        """
        outcome = "it is read over other edges"
        path: list[EdgeRef] | None = []
        try:
            if self._damage:
                self._leave_to_maintenance(head)
            self.index.avoid(self._damage)
            path = self._path(head)
            if (
                path is None
                or self.index.is_in_danger(head.node)
                or Since.along(path).is_due(self.durability)
            ):
                record, nbytes = add_anchor(self.backend, self.executor, track, head.node, self.durability)
                info = replace(info, bytes_stored=info.bytes_stored + nbytes, bytes_beside=nbytes)
                outcome = f"no anchor could be added to step {info.step}, the next save tries again"
                if record is not None:
                    self.index.add_edge(record)
                    outcome = f"an anchor was added to step {info.step}, from which the others are read"
        except LcstoreError as error:
            outcome = f"no anchor could be added to step {info.step}, the next save tries again: {error}"
            _log.warning("step %d is saved; %s", info.step, outcome)
        self._tell(outcome, "records that lead to it are gone" if path is None else "")
        return info

    def _path(self, head: NodeName) -> list[EdgeRef] | None:
        """Return the edges that a state is read over; None where nothing leads to it any more."""
        try:
            return self.index.path(head.node)
        except CorruptionError:
            return None

    def _leave_to_maintenance(self, head: NodeName) -> None:
        """Forget edges that are condemned, or gone, because others that were added since lead past them."""
        graph = self.index.refresh(full=True)
        path = {replace(ref, backward=False) for ref in self._path(head) or ()}

        def is_let_go(ref: EdgeRef) -> bool:
            there = ref.target in graph.nodes if ref.edge is None else ref.edge in graph.edges
            return ref not in path and (not there or graph.is_condemned(ref))

        self._damage = {ref: what for ref, what in self._damage.items() if not is_let_go(ref)}

    def _tell(self, outcome: str, lost: str) -> None:
        """Warn of the first damage that was found, or else of what was lost."""
        ref, what = next(iter(self._damage.items()), (None, lost))
        if not what:
            return
        name = None if ref is None else self.index.graph.nodes.get(ref.target)
        where = "an earlier state" if name is None else f"step {name.step}"
        warn(
            f"the run stands on {where}, and {what}: {outcome}; run `lcstore repair {self.backend.url}`",
            DamageWarning,
        )


def tell_of_loss(backend: Backend, step: int) -> None:
    """Warn that a whole store went while a run saved into it."""
    warn(
        f"the store at {backend.url} is gone, with all that was saved in it: it was moved or deleted. Step "
        f"{step} begins one anew there. If it was moved, `lcstore cp {backend.url} MOVED` puts both together",
        DamageWarning,
    )
