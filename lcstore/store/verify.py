"""Look at everything in a store and say what is wrong with it. Reads only, and goes on past what it finds."""

from __future__ import annotations

import hashlib
import shlex
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, get_args

from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError, NotFoundError, TruncatedError
from lcstore.limits import MAX_LEAVES_BYTES
from lcstore.state.leaves import decode_leaf
from lcstore.state.plan import Plan
from lcstore.state.tree import structure_paths
from lcstore.store import keys
from lcstore.store.backend import Backend
from lcstore.store.damage import unreachable
from lcstore.store.findings import Findings, Level, Report
from lcstore.store.inventory import Inventory
from lcstore.store.records import EdgeBody, NodeRecord, ObjectRef
from lcstore.store.strictjson import loads
from lcstore.store.survey import OnProgress, spread
from lcstore.track.columns import Columns

#: Objects are read in pieces of this many bytes, by so many threads: memory stays small whatever their size.
_PIECE: Final = 32 << 20
_READERS: Final = 8


def verify(backend: Backend, level: Level = "structure", on_progress: OnProgress | None = None) -> Report:
    """Verify a store. Nothing in it is changed, and it may be in use meanwhile.

    Parameters
    ----------
    backend
        Where the store is.
    level
        ``"structure"``: every record is read and checked against its name, and every object that a record
        lists is there with the right length. ``"checksum"``: every object is read too, and is what was
        committed.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.

    Raises
    ------
    NotFoundError
        There is no store.
    StorageError
        The store could not be listed. (An object that cannot be read is a finding.)
    """
    if level not in get_args(Level):
        raise InvalidInputError(f"level is {level!r}; it is one of {', '.join(get_args(Level))}")
    return _Verifier(backend, level, on_progress).run()


@dataclass(frozen=True, slots=True)
class _Need:
    """An object that a record needs.

    Attributes
    ----------
    node, edge
        The node whose record it is, or the edge that maintenance added.
    spreads
        Whether what stands on the node needs it too.
    """

    ref: ObjectRef
    node: str | None
    edge: str
    step: int | None
    spreads: bool


class _Verifier:
    """One look at a store."""

    def __init__(self, backend: Backend, level: Level, on_progress: OnProgress | None) -> None:
        self.backend = backend
        self.level = level
        self.on_progress = on_progress
        self.findings = Findings()
        self.store = Inventory(backend, self.findings, on_progress)
        self.bytes_read = 0

    def run(self) -> Report:
        """Look, and report."""
        began = time.perf_counter()
        self.store.take()
        for node, record in self.store.records.items():
            self._record(node, record)
        needs = list(self._needs())
        self._objects(needs)
        self._orphans({need.ref.key for need in needs})
        lost = self._paths()
        return self._report(lost, len(needs), time.perf_counter() - began)

    # What a record says ---------------------------------------------------------------------------------

    def _record(self, node: str, record: NodeRecord) -> None:
        """A record that is whole fits its plan, and its parent is there or accounted for."""
        key = keys.node_key(record.name(node))
        parent = record.parent
        if parent is not None and parent not in self.store.graph.nodes and parent not in self.store.retired:
            message = f"its parent, node {parent}, is missing, and no record says that it was retired"
            self.findings.add("error", "parent", key, message, step=record.step)
        plan = self.store.plans.get(record.plan)
        if plan is None:
            self.store.damage.break_node(node)
            where = keys.plan_key(record.plan)
            if where not in self.store.listed:
                message = "a plan that a record needs is missing"
                self.findings.add("error", "plan", where, message, step=record.step)
            return
        try:
            Columns.from_bytes(record.edge.columns, len(plan.tensors), key=key)
            _fits(record.edge, plan, key)
            if record.leaves_object is None:
                _check_leaves(record.leaves, plan, key)
        except LcstoreError as error:
            self.store.damage.break_node(node)
            self.findings.unreadable("record", key, error, step=record.step)

    # Objects --------------------------------------------------------------------------------------------

    def _needs(self) -> Iterator[_Need]:
        for node, record in self.store.records.items():
            edge, step = record.edge.id, record.step
            for ref in record.edge.objects:
                yield _Need(ref, node, edge, step, spreads=True)
            if record.leaves_object is not None:
                yield _Need(record.leaves_object, node, edge, step, spreads=False)
            for ref in record.exact.objects if record.exact is not None else ():
                yield _Need(ref, node, edge, step, spreads=False)
        for shortcut in self.store.edges.values():
            for ref in shortcut.edge.objects:
                yield _Need(ref, None, shortcut.edge.id, None, spreads=True)

    def _objects(self, needs: list[_Need]) -> None:
        wanted = [need for need in needs if need.ref.key in self.store.listed or not self._condemned(need)]
        workers = _READERS if self.level == "checksum" else 2 * _READERS
        problems = spread(self._look, wanted, workers=workers, phase="objects", on_progress=self.on_progress)
        for need, (problem, nbytes) in zip(wanted, problems, strict=True):
            self.bytes_read += nbytes
            if problem is None:
                continue
            self._harm(need)
            self.findings.unreadable("object", need.ref.key, problem, step=need.step)

    def _harm(self, need: _Need) -> None:
        """Note what a damaged object comes to. Zarr's metadata is for other readers: it costs no state."""
        if need.ref.key.endswith("/zarr.json"):
            return
        name = keys.parse_data_key(need.ref.key)
        if need.node is None:
            self.store.damage.break_edge(need.edge)
        elif not need.spreads or name.pool is None:
            self.store.damage.lose(need.node)
        else:
            self.store.damage.break_node(need.node, name.pool)

    def _condemned(self, need: _Need) -> bool:
        """Say whether a record explains that an object is gone."""
        name = keys.parse_data_key(need.ref.key)
        scopes = [keys.WHOLE_EDGE] + ([keys.EXACT_VALUE] if name.op == "exact" and not need.spreads else [])
        if name.pool is not None and name.op is not None and need.spreads:
            scopes.append(keys.array_scope(name.pool, name.op))
        return any((need.edge, scope) in self.store.condemned for scope in scopes)

    def _look(self, need: _Need) -> tuple[LcstoreError | None, int]:
        """Return what is wrong with an object, and how many bytes were read."""
        ref = need.ref
        try:
            if ref.key not in self.store.listed:
                raise NotFoundError("it is missing", key=ref.key)
            if self.level == "structure":
                _check_length(ref, self.backend.size(ref.key))
                return None, 0
            if ref.key.endswith("/leaves.json"):
                self._read_leaves(need)
            elif _digest(self.backend, ref) != ref.sha256 and _digest(self.backend, ref) != ref.sha256:
                # Read twice: a bit may have flipped on the way.
                raise CorruptionError("its sha256 differs from the committed one", key=ref.key)
        except LcstoreError as error:
            return error, 0
        return None, ref.nbytes

    def _read_leaves(self, need: _Need) -> None:
        ref = need.ref
        data = ref.check(self.backend.get(ref.key, 0, ref.nbytes + 1))
        plan = self.store.plans.get(self.store.records[need.node].plan) if need.node is not None else None
        if plan is not None:
            _check_leaves(loads(data, key=ref.key, max_bytes=MAX_LEAVES_BYTES), plan, ref.key)

    def _orphans(self, needed: set[str]) -> None:
        """Objects of no record are worth knowing, and harmless."""
        by_edge: defaultdict[str, list[str]] = defaultdict(list)
        for key in self.store.below(keys.DATA):
            if key not in needed:
                by_edge[keys.parse_data_key(key).edge].append(key)
        condemned = {edge for edge, _ in self.store.condemned}
        for edge, found in by_edge.items():
            why = "left by an interrupted save, or of one under way"
            if edge in condemned:
                why = "condemned, and not collected yet"
            elif self.store.unread:
                why = "of an interrupted save, or of a record that could not be read"
            what = "1 object" if len(found) == 1 else f"{len(found)} objects"
            self.findings.add("info", "orphan", keys.edge_folder(edge), f"{what} of no record: {why}")
        used = {record.plan for record in self.store.records.values()}
        for digest in sorted(set(self.store.plans) - used):
            message = "a plan of no record that could be read"
            self.findings.add("info", "orphan", keys.plan_key(digest), message)

    # What it comes to -----------------------------------------------------------------------------------

    def _paths(self) -> set[str]:
        graph = self.store.graph
        cut_off, topmost = unreachable(graph)
        for name in topmost:
            missing = name.base not in graph.nodes
            why = f"its base, node {name.base}, is missing" if missing else "no path leads to it"
            behind = len(graph.descendants(name.node) & cut_off)
            also = f", and {behind} states that stand on it" if behind else ""
            message = f"{why}: it cannot be restored{also}"
            self.findings.add("error", "path", keys.node_key(name), message, step=name.step)
        return self.store.damage.lost(graph, self.store, cut_off)

    def _report(self, lost: set[str], objects: int, seconds: float) -> Report:
        graph = self.store.graph
        whole = [name for node, name in graph.nodes.items() if node not in lost]
        good = max(whole, key=lambda name: name.order, default=None)
        url = self.backend.url
        findings = []
        for finding in sorted(self.findings.made, key=lambda finding: finding.order):
            command = finding.next
            if command is None and finding.severity == "error" and good is not None:
                at = good.step if graph.at_step(good.step) is good else good.node
                command = f"lcstore show {shlex.quote(f'{url}@{at}')}"
            if command is not None:
                command = command.replace("{url}", shlex.quote(url))
            findings.append(replace(finding, next=command))
        return Report(
            url=url,
            level=self.level,
            findings=tuple(findings),
            states=len(graph.nodes),
            objects=objects,
            bytes_read=self.bytes_read,
            lost=tuple(sorted(graph.nodes[node].step for node in lost)),
            good=None if good is None else good.step,
            seconds=seconds,
        )


def _fits(edge: EdgeBody, plan: Plan, key: str) -> None:
    """Every chunk that an edge lists lies in a pool of its plan."""
    for ref in edge.objects:
        name = keys.parse_data_key(ref.key)
        if name.pool is None:
            continue
        pool = plan.pools.get(name.pool)
        if pool is None:
            raise CorruptionError(f"it lists an object of pool {name.pool!r}, unknown to its plan", key=key)
        if name.chunk is not None and name.chunk * pool.chunk >= pool.size:
            raise CorruptionError(f"it lists chunk {name.chunk} past the end of pool {name.pool!r}", key=key)


def _check_leaves(leaves: object, plan: Plan, key: str) -> None:
    """The plain values are as many as the plan says, and each can be read."""
    if not isinstance(leaves, list):
        raise CorruptionError("it has no plain values", key=key)
    _, paths = structure_paths(plan.structure)
    if len(leaves) != len(paths):
        raise CorruptionError(f"it has {len(leaves)} plain values; its plan says {len(paths)}", key=key)
    try:
        for leaf in leaves:
            decode_leaf(leaf)
    except LcstoreError as error:
        error.key = error.key or key
        raise


def _check_length(ref: ObjectRef, found: int) -> None:
    if found < ref.nbytes:
        raise TruncatedError(f"it has {found} bytes instead of {ref.nbytes}", key=ref.key)
    if found > ref.nbytes:
        raise CorruptionError(f"it has {found} bytes instead of {ref.nbytes}", key=ref.key)


def _digest(backend: Backend, ref: ObjectRef) -> str:
    """Return the sha256 of an object, having checked its length."""
    digest = hashlib.sha256()
    done = 0
    while done <= ref.nbytes:
        # The last piece asks for one byte more than there may be.
        data = backend.get(ref.key, done, min(done + _PIECE, ref.nbytes + 1))
        if not data:
            break
        digest.update(data)
        done += len(data)
    _check_length(ref, done)
    return digest.hexdigest()
