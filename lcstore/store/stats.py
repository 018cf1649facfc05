"""What a store holds, in numbers, from its records: one listing, and every record read once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lcstore.errors import LcstoreError
from lcstore.graph.names import ROOT
from lcstore.store import keys
from lcstore.store.backend import Backend
from lcstore.store.records import EdgeRecord, NodeRecord, ObjectRef, read_edge, read_node
from lcstore.store.survey import OnProgress, ReadRecord, read_records, spread


@dataclass(frozen=True)
class Stats:
    """A store in numbers.

    Attributes
    ----------
    states, steps, runs, anchors, deltas
        Counts; a step that was saved twice is one step and two states.
    shortcuts
        Edges that maintenance added.
    bytes_raw
        Of the tensors of all states, by kind (``anchor``, ``delta``) and in ``total``.
    bytes_stored
        Of everything that records need, by kind (``anchor``, ``delta``, ``exact`` values, ``shortcut``),
        of the ``records`` themselves (with plans and tags), and in ``total``.
    pools
        Stored bytes by pool and what is stored of it: ``weights-float32.add``.
    orphans, orphan_bytes
        Objects of no record: what interrupted saves left, or saves under way. Not in the total.
    unreadable
        The records that could not be read, each with why: the numbers lack them.
    """

    url: str
    states: int
    steps: int
    runs: int
    anchors: int
    deltas: int
    shortcuts: int
    bytes_raw: dict[str, int]
    bytes_stored: dict[str, int]
    pools: dict[str, int]
    orphans: int
    orphan_bytes: int
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Raw bytes per stored byte, everything that is stored counted."""
        return self.bytes_raw["total"] / max(self.bytes_stored["total"], 1)


class _Count:
    """Numbers while they are added up."""

    def __init__(self) -> None:
        self.raw: Counter[str] = Counter(anchor=0, delta=0)
        self.stored: Counter[str] = Counter(anchor=0, delta=0, exact=0, shortcut=0, records=0)
        self.pools: Counter[str] = Counter()
        self.known: set[str] = set()
        self.unreadable: dict[str, str] = {}

    def objects(self, kind: str, refs: tuple[ObjectRef, ...]) -> None:
        for ref in refs:
            if ref.key in self.known:
                continue
            self.known.add(ref.key)
            self.stored[kind] += ref.nbytes
            name = keys.parse_data_key(ref.key)
            self.pools["other" if name.pool is None else f"{name.pool}.{name.op}"] += ref.nbytes

    def node(self, record: NodeRecord) -> None:
        kind = "anchor" if record.edge.base == ROOT else "delta"
        self.raw[kind] += int(record.stats.get("bytes_raw", 0))
        self.objects(kind, record.edge.objects)
        if record.leaves_object is not None:
            self.objects(kind, (record.leaves_object,))
        if record.exact is not None:
            self.objects("exact", record.exact.objects)

    def edge(self, record: EdgeRecord) -> None:
        self.objects("shortcut", record.edge.objects)

    def tally(self, read: ReadRecord[NodeRecord] | ReadRecord[EdgeRecord]) -> None:
        self.stored["records"] += read.nbytes
        if read.error is not None:
            self.unreadable[read.key] = read.error.message
        elif isinstance(read.record, NodeRecord):
            self.node(read.record)
        elif read.record is not None:
            self.edge(read.record)


def stats(backend: Backend, on_progress: OnProgress | None = None) -> Stats:
    """Count what a store holds.

    Parameters
    ----------
    backend
        Where the store is.
    on_progress
        Told how many records have been read.

    Raises
    ------
    CorruptionError
        A name in the store is not one of lcstore's. (A record that cannot be read is counted as that.)
    """
    nodes = backend.list(keys.NODES)
    names = [keys.parse_node_key(key) for key in nodes]
    everything = backend.list("")
    edges = [key for key in everything if key.startswith(f"{keys.EDGES}/")]
    count = _Count()
    for node in read_records(backend, nodes, read_node, on_progress=on_progress):
        count.tally(node)
    for edge in read_records(backend, edges, read_edge):
        count.tally(edge)
    count.stored["records"] += _sizes(backend, [key for key in everything if _is_mark(key)])
    data = [key for key in everything if key.startswith(f"{keys.DATA}/")]
    orphans = [key for key in data if key not in count.known]
    return Stats(
        url=backend.url,
        states=len(names),
        steps=len({name.step for name in names}),
        runs=len({(name.run, name.run_id) for name in names}),
        anchors=sum(name.base == ROOT for name in names),
        deltas=sum(name.base != ROOT for name in names),
        shortcuts=len(edges),
        bytes_raw=dict(count.raw) | {"total": count.raw.total()},
        bytes_stored=dict(count.stored) | {"total": count.stored.total()},
        pools=dict(sorted(count.pools.items())),
        orphans=len(orphans),
        orphan_bytes=_sizes(backend, orphans),
        unreadable=count.unreadable,
    )


def _is_mark(key: str) -> bool:
    """Tell the objects that count as records besides those of nodes and edges."""
    return key == keys.STORE_KEY or key.partition("/")[0] in (
        keys.PLANS, keys.NAMES, keys.RETIRED, keys.CONDEMNED,
    )  # fmt: skip


def _sizes(backend: Backend, found: list[str]) -> int:
    def size(key: str) -> int:
        try:
            return backend.size(key)
        except LcstoreError:
            return 0  # deleted since it was listed; `verify` is what looks for damage

    return sum(spread(size, found))
