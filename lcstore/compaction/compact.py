"""Adding the edges that compaction plans. No state changes: each is the sum of edges that are there."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from lcstore.cluster.tasks import Client, Task, carried_out
from lcstore.compaction.diskfull import little_room
from lcstore.compaction.latest import latest_reads
from lcstore.compaction.making import Made, Maker, known_of, make_there
from lcstore.durability import Durability
from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys, markkeys
from lcstore.graph.graph import Graph
from lcstore.graph.plan import Plan, Shortcut, plan, waits
from lcstore.graph.refs import ROOT, NodeName
from lcstore.index.contents import Contents
from lcstore.jobs.survey import OnProgress
from lcstore.layout.specs import movable_in
from lcstore.read.reader import Reader
from lcstore.storage.targets import BLOCK, bytes_free
from lcstore.units import parse_bytes, parse_seconds

#: Plans that one compaction carries out at most: each adds what the sizes of the one before show to be worth
#: it. Mostly the second has nothing.
ROUNDS: Final = 10
#: For so many saves like the latest one a disk keeps room.
_SAVES: Final = 2
#: Files of an edge, about: each may take a block more than its bytes say.
_FILES: Final = 10


@dataclass(frozen=True)
class CompactReport:
    """What a compaction did, and what it planned.

    Attributes
    ----------
    url, dry_run
        The URL of the store, and whether nothing was changed.
    planned, added
        Edges planned, and edges added: fewer if the time ran out or a collector was in the way.
    anchors
        How many of those planned set everything.
    bytes_written
        All bytes of the edges added: with parity, metadata, records and second copies. Of a dry run an
        estimate, as a forecast makes it; where damage keeps that from being known, of the weights alone.
    bytes_before, bytes_after
        Bytes of all edges' weights, before, and when all that was added, or would be, is there and the rest
        collected (estimates for what is new).
    longest_before, longest_after
        The most edges that restoring a kept state reads, before, and then.
    latest_before, latest_after
        Bytes of objects that restoring the latest state reads, before, and then (an estimate for what is
        new). None where there is no state, or damage keeps it from being known.
    skipped
        Of each edge that was not added, the step that it leads to, and why: that is gone, or the edge is
        larger than `max_bytes` leaves.
    seconds
        Wall time.
    bytes_besides
        Of `bytes_after`: anchors that no restore needs, so that damage costs little.
    """

    url: str
    dry_run: bool
    planned: int
    added: int
    anchors: int
    bytes_written: int
    bytes_before: int
    bytes_after: int
    longest_before: int
    longest_after: int
    latest_before: int | None
    latest_after: int | None
    skipped: tuple[tuple[int, str], ...]
    seconds: float
    bytes_besides: int = 0

    @property
    def is_cut_short(self) -> bool:
        """Whether the time ran out before all was added."""
        return not self.dry_run and self.added + len(self.skipped) < self.planned

    def __str__(self) -> str:
        """Return one line for a log."""
        if self.dry_run:
            return f"would be compacted: {self.planned} planned edges, about {self.bytes_written:,} bytes"
        return (
            f"compacted: {self.added} of {self.planned} planned edges added, {self.bytes_written:,} bytes, "
            f"in {self.seconds:.2f} s"
        )


class Compactor:
    """One compaction.

    Parameters
    ----------
    reader
        Reads the store, and has threads to merge with.
    durability
        What is stored besides the edges.
    max_bytes, max_seconds
        Write no more than this (``"10GB"``), records and parity too; begin nothing after this time
        (``"2h"``). What is done stays of use. A cluster goes by the bytes that were estimated.
    client
        Of the Dask cluster that is to merge; None: this process does.
    contents
        What a dry run plans for: what a collection before it would leave. None: what is there.
    """

    def __init__(
        self,
        reader: Reader,
        durability: Durability,
        *,
        max_bytes: int | str | None = None,
        max_seconds: float | str | None = None,
        on_progress: OnProgress | None = None,
        client: Client | None = None,
        contents: Contents | None = None,
    ) -> None:
        self.reader = reader
        self.backend = reader.backend
        self.index = reader.index
        self.durability = durability
        self.max_bytes = parse_bytes(max_bytes) if isinstance(max_bytes, str) else max_bytes
        self.max_seconds = parse_seconds(max_seconds) if isinstance(max_seconds, str) else max_seconds
        self.on_progress = on_progress
        self.client = client
        self.contents = contents
        self.maker = Maker(reader, durability)
        self.written = 0
        self.skipped: list[tuple[int, str]] = []
        self._nodes: Mapping[str, NodeName] = {}  # those planned for: some of them may go meanwhile

    def run(self, *, dry_run: bool, without: frozenset[str] = frozenset()) -> CompactReport:
        """Plan, and carry the plan out.

        Parameters
        ----------
        dry_run
            Plan only.
        without
            Nodes that would be let go of before.
        """
        began = time.monotonic()
        first = last = self.plan(without)
        reads_before, reads_after = latest_reads(self.reader, first)
        shortcuts, added = [*first.shortcuts] if dry_run else [], 0
        for _ in range(0 if dry_run else ROUNDS):
            shortcuts += last.shortcuts
            made = self._carry_out(last, began)
            added += made
            if made < len(last.shortcuts):
                break
            # Sizes were estimated, and are known now: by those a little more may pay.
            last = self.plan(without)
            if not last.shortcuts:
                break
        if not dry_run and last.shortcuts:
            last = self.plan(without, most=0)
        if added:
            _, reads_after = latest_reads(self.reader, last)
        elif not dry_run:
            reads_after = reads_before
        return CompactReport(
            url=self.backend.url,
            dry_run=dry_run,
            planned=len(shortcuts),
            added=added,
            anchors=sum(shortcut.base == ROOT for shortcut in shortcuts),
            bytes_written=first.written if dry_run else self.written,
            bytes_before=first.stored_before,
            bytes_after=last.stored_after,
            bytes_besides=last.stored_besides,
            longest_before=first.edges_before,
            longest_after=last.edges_after,
            latest_before=reads_before,
            latest_after=reads_after,
            skipped=tuple(self.skipped),
            seconds=time.monotonic() - began,
        )

    def _carry_out(self, planned: Plan, began: float) -> int:
        """Add the edges of a plan while there is time; return how many were."""
        added, shortcuts = 0, planned.shortcuts
        left = math.inf if self.max_seconds is None else self.max_seconds - (time.monotonic() - began)
        kept_free = self._kept_free()
        self._leave_room(kept_free, shortcuts[:1])
        results = carried_out(self._tasks(shortcuts), self.client, seconds=left)
        for done, (place, made) in enumerate(results, 1):
            self.written += made.nbytes
            if made.name is not None:
                self.index.know([keys.edge_key(made.name)])
                added += 1
            else:
                self.skipped.append((self._nodes[shortcuts[place].target].step, made.why))
            if self.on_progress is not None:
                self.on_progress("merging", done, len(shortcuts))
            self._leave_room(kept_free, shortcuts[done : done + 1])
        return added

    def _kept_free(self) -> int:
        """Return the bytes of a disk that are left for the next saves, and records that let go of states."""
        graph = self.index.graph
        latest = graph.latest()
        objects = () if latest is None else self.index.record(latest.node).edge.objects
        # Each file may take a block more than its bytes say.
        save = sum(ref.nbytes + BLOCK for ref in objects)
        return _SAVES * save + BLOCK * len(graph.nodes.keys() - graph.hidden)

    def room_on_disk(self, edges: int) -> int | None:
        """Return how many bytes so many edges may have; None of targets that do not tell."""
        free = bytes_free(self.backend)
        return None if free is None else max(0, free - self._kept_free() - edges * _FILES * BLOCK)

    def _leave_room(self, kept_free: int, coming: Sequence[Shortcut]) -> None:
        """Refuse to add an edge that would take what is kept free."""
        free = bytes_free(self.backend)
        if free is not None and any(free < kept_free + one.nbytes + _FILES * BLOCK for one in coming):
            raise little_room(self.backend.url, free, kept_free)

    def _tasks(self, shortcuts: Sequence[Shortcut]) -> list[Task[Made]]:
        """Return what is to be done: here with what is known, elsewhere with what each edge is made of."""
        url, graph = self.backend.url, self.index.graph
        standing = defaultdict[tuple[str, str], set[str]](set)
        for edge in [*graph.edges.values()]:
            standing[edge.base, edge.target].add(edge.edge)

        def run(shortcut: Shortcut) -> Callable[[Sequence[Made]], Made]:
            if self.client is None:
                return lambda made: self.maker.make(shortcut, made, self._room())
            there = frozenset(standing[shortcut.base, shortcut.target])
            return partial(
                make_there, self.backend, self.durability, shortcut, known_of(shortcut, graph), there
            )

        after = waits(shortcuts)
        return [Task("merge", url, run(shortcut), after[at]) for at, shortcut in enumerate(shortcuts)]

    def plan(
        self, without: frozenset[str] = frozenset(), graph: Graph | None = None, most: int | None = None
    ) -> Plan:
        """Return what is to be added to a graph (else to the contents), as if some nodes were let go of.

        It is estimated to take `most` bytes, or what is left of `max_bytes`.
        """
        most = self._room() if most is None else most
        if graph is None:
            graph = self.index.refresh(full=True) if self.contents is None else self.contents.graph
        self._nodes = graph.nodes
        marks = self.index.marks if self.contents is None else self.contents.marks
        kept = set(graph.nodes) - graph.hidden - without
        lacking = graph.hidden | marks.stripped.keys()
        condemned = {(name.edge, name.scope) for name in marks.condemned}
        partial: set[str] = set()
        while True:
            planned = plan(
                graph,
                kept,
                self.elements(),
                max_bytes=most,
                partial=frozenset(partial),
                durability=self.durability,
            )
            lost = self._impassable(planned, graph)
            closed = [ref for node in lost for ref in graph.into(node) if not graph.is_condemned(ref)]
            if closed:
                self.index.avoid(closed)
                for ref in closed:
                    graph.avoid(ref)  # another one in a dry run
                continue
            asked = [shortcut for shortcut in planned.shortcuts if shortcut.target in lacking]
            found = {shortcut.target for shortcut in asked if self._is_partial(shortcut, condemned)}
            found |= {shortcut.target for shortcut in planned.shortcuts if lost & _passed(shortcut)}
            if found <= partial:
                return planned
            partial |= found

    def _impassable(self, planned: Plan, graph: Graph) -> set[str]:
        """Return the states that a plan merges over and that were let go of, their layouts being lost."""
        asked = sorted(graph.hidden & set[str]().union(*map(_passed, planned.shortcuts)))
        lost = self.reader.requests.map(self._lacks_layout, asked)
        return {node for node, is_lost in zip(asked, lost, strict=True) if is_lost}

    def _lacks_layout(self, node: str) -> bool:
        try:
            self.index.layout(self.index.record(node).layout)
        except (CorruptionError, NotFoundError) as error:
            return (error.key or "").startswith(f"{keys.LAYOUTS}/")
        return False

    def _room(self) -> int | None:
        return None if self.max_bytes is None else max(0, self.max_bytes - self.written)

    def has_room(self, nbytes: int) -> bool:
        """Return whether so many bytes more may be written."""
        room = self._room()
        return room is None or nbytes <= room

    def _is_partial(self, shortcut: Shortcut, condemned: Set[tuple[str, str]]) -> bool:
        """Return whether a merge to a retired or stripped state takes what went: no kept state needs that."""
        try:
            merger, _ = self.maker.merger(shortcut)
        except (CorruptionError, NotFoundError):  # collected meanwhile
            return True
        return any(
            (keys.parse_data_key(key).edge, markkeys.array_scope(pool, op)) in condemned
            for key, pool, op in merger.path.sources()
        )

    def elements(self) -> int:
        """Return the size of the latest state in weights, at least 1: plans go by it for all states."""
        latest = self.index.graph.latest()
        if latest is None:
            return 1
        return movable_in(self.index.layout(self.index.record(latest.node).layout).tensors)


def _passed(shortcut: Shortcut) -> set[str]:
    """Return the nodes that an edge is merged over, its ends among them."""
    return {node for ref in shortcut.inputs for node in (ref.base, ref.target)}
