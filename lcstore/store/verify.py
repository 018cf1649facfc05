"""Look at everything in a store and say what is wrong with it. Reads only, and goes on past what it finds."""

from __future__ import annotations

import math
import shlex
import time
from collections import defaultdict
from dataclasses import replace
from typing import get_args

from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError, NotFoundError
from lcstore.graph.names import ROOT
from lcstore.state.plan import Plan
from lcstore.store import keys
from lcstore.store.backend import Backend
from lcstore.store.damage import NO_PATH, Damage, Harm, Judge, State
from lcstore.store.findings import Findings, Level, Report, Severity
from lcstore.store.inventory import Inventory
from lcstore.store.links import Layout, own_link, shortcut_link
from lcstore.store.marked import Marks, marks_of
from lcstore.store.records import NodeRecord
from lcstore.store.scrutiny import Looked, Need, Sample, Scrutiny, check_leaves
from lcstore.store.survey import OnProgress


def verify(
    backend: Backend,
    level: Level = "structure",
    on_progress: OnProgress | None = None,
    *,
    sample: tuple[int, int] = (1, 1),
    max_seconds: float | None = None,
) -> Report:
    """Verify a store. Nothing in it is changed, and it may be in use meanwhile.

    Parameters
    ----------
    backend
        Where the store is.
    level
        Each includes those before. ``"structure"``: every record is read and checked against its name, and
        every object that a record lists is there with the right length. ``"checksum"``: every object is read
        too, and is what was committed. ``"decode"``: every frame is decoded. ``"restore"``: every edge leads
        from the digests of its base to those of its target, so every path to a state gives the same values.
        No more than a chunk for each processor is held at a time.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.
    sample
        ``(n, t)``: look at the n-th of t slices of the objects; t runs look at all. Records are always read.
    max_seconds
        Begin with no further object after this time. Records are always read.

    Raises
    ------
    NotFoundError
        There is no store.
    StorageError
        The store could not be listed. (An object that cannot be read is a finding.)
    """
    check_level(level)
    number, of = sample
    if not 1 <= number <= of:
        raise InvalidInputError(f"sample is {sample!r}; it is (n, t), n being 1 to t")
    if max_seconds is not None and not max_seconds > 0:
        raise InvalidInputError(f"max_seconds is {max_seconds!r}; it is more than 0")
    began = time.perf_counter()
    until = math.inf if max_seconds is None else time.monotonic() + max_seconds
    examination = Examination(backend, level, on_progress, Sample(number, of), until)
    examination.look()
    return examination.report(time.perf_counter() - began)


def check_level(level: str) -> None:
    """Refuse what is no level of verification."""
    if level not in get_args(Level):
        raise InvalidInputError(f"level is {level!r}; it is one of {', '.join(get_args(Level))}")


class Examination:
    """One look at a store, and what it comes to.

    Attributes
    ----------
    store
        What its records say.
    needs
        The objects that records need, by key.
    looked
        What is wrong with them.
    severities
        How much each of them matters, by key.
    judge
        Tells what the damage comes to.
    missing
        What a restore lacks of each kept state that lacks anything.
    """

    def __init__(
        self,
        backend: Backend,
        level: Level,
        on_progress: OnProgress | None = None,
        sample: Sample | None = None,
        until: float = math.inf,
    ) -> None:
        self.backend = backend
        self.level = level
        self.on_progress = on_progress
        self.sample = sample or Sample()
        self.until = until
        self.findings = Findings()
        self.store = Inventory(backend, self.findings, on_progress)
        self.needs: dict[str, Need] = {}
        self.looked = Looked()
        self.severities: dict[str, Severity] = {}
        self.missing: dict[str, Harm] = {}

    def look(self, known: Looked | None = None) -> None:
        """Look, or take what an earlier look at the same objects found."""
        self.store.take()
        for node, record in self.store.records.items():
            self._node(node, record)
        self._shortcuts()
        scrutiny = Scrutiny(self.store, self.level, self.sample, self.until, self.on_progress)
        self.needs = scrutiny.needs
        self.looked = scrutiny.look() if known is None else known
        if known is None:
            self._look_again()
        self.judge = Judge(self.store, Damage.of(self.looked.problems, self._wrong()))
        self._orphans()
        self._objects()
        self._digests()
        self._states()

    # What records say -----------------------------------------------------------------------------------

    def _node(self, node: str, record: NodeRecord) -> None:
        """A record that is whole fits its plan, and its parent is there or accounted for."""
        store = self.store
        key = keys.node_key(record.name(node))
        severity: Severity = "info" if node in store.graph.hidden else "error"
        parent = record.parent
        if parent is not None and parent not in store.graph.nodes and parent not in store.marks.retired:
            message = f"its parent, node {parent}, is missing, and no record says that it was retired"
            self.findings.add("error", "parent", key, message, step=record.step)
        plan = store.plans.get(record.plan)
        if plan is None:
            where = keys.plan_key(record.plan)
            if where not in store.unreadable:
                message = "a plan that a record needs is missing"
                self.findings.add(severity, "plan", where, message, step=record.step)
            return
        try:
            link = own_link(node, record, store.layout(record.plan))
            if record.leaves_object is None:
                check_leaves(record.leaves, plan, key)
        except LcstoreError as error:
            self.findings.unreadable("record", key, error, step=record.step, severity=severity)
        else:
            store.own[node] = link

    def _shortcuts(self) -> None:
        claimed = {record.edge.id: node for node, record in self.store.records.items()}
        for edge, record in self.store.edges.items():
            key = keys.edge_key(record.name)
            own = self.store.own.get(record.target)
            if edge in claimed:
                self.findings.add("error", "record", key, f"node {claimed[edge]} was saved with the same edge")
            if own is None:
                if record.target not in self.store.graph.nodes:
                    message = "it leads to a state that is not there any more"
                    self.findings.add("info", "orphan", key, message)
                continue
            try:
                self.store.shortcuts[edge] = shortcut_link(record, own)
            except LcstoreError as error:
                severity: Severity = "info" if self.store.is_condemned(edge, keys.WHOLE_EDGE) else "error"
                self.findings.unreadable("record", key, error, severity=severity)

    # Objects --------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Forget objects that were taken away on purpose since the store was listed."""
        gone = [key for key, error in self.looked.problems.items() if isinstance(error, NotFoundError)]
        if not gone:
            return
        there = set(self.backend.list(keys.NODES)) | set(self.backend.list(keys.EDGES))
        now = {keys.parse_condemned_key(key) for key in self._parsed(self.backend.list(keys.CONDEMNED))}
        if now - self.store.marks.condemned:
            self.store.see(replace_condemned(self.store.marks, now))
        for key in gone:
            need = self.needs[key]
            if self._record_key(need) not in there:
                del self.looked.problems[key]

    def _parsed(self, found: list[str]) -> list[str]:
        return [key for key in found if key in self.store.listed or _parses(key)]

    def _record_key(self, need: Need) -> str:
        if need.node is None:
            return keys.edge_key(self.store.edges[need.edge].name)
        return keys.node_key(self.store.records[need.node].name(need.node))

    def excused(self, need: Need) -> bool:
        """Say whether a record explains that an object is gone."""
        return self.store.is_condemned(need.edge, need.scope or keys.WHOLE_EDGE)

    def _severity(self, need: Need) -> Severity:
        """Say how much damage to an object matters: it is an error unless no kept state may need it."""
        store, marks = self.store, self.store.marks
        if self.excused(need):
            return "info"
        name = keys.parse_data_key(need.ref.key)
        link = store.shortcuts.get(need.edge) if need.node is None else store.own.get(need.node)
        kept = need.node is not None and need.node not in store.graph.hidden
        if kept and need.node is not None:
            let_go = name.pool in marks.stripped.get(need.node, ())
            if need.exact:
                return "info" if let_go or need.node in marks.inexact else "error"
            if not let_go:
                return "error"
        elif need.exact or (need.node is not None and name.chunk is None):
            return "info"
        if link is None or name.pool is None or name.chunk is None:
            return "error"
        return "error" if self.judge.reach(link, link.layout.touched(name.pool, name.chunk)) else "info"

    def _objects(self) -> None:
        for key, problem in self.looked.problems.items():
            need = self.needs[key]
            severity = self.severities[key] = self._severity(need)
            if severity == "error":
                self.findings.unreadable("object", key, problem, step=need.step)
            elif not isinstance(problem, NotFoundError) or not self.excused(need):
                why = "; it is condemned" if self.excused(need) else "; no state needs it"
                self.findings.unreadable("object", key, problem, step=need.step, severity="info", why=why)

    def _wrong(self) -> dict[str, object]:
        return {edge: proof.wrong for edge, proof in self.looked.proofs.items()}

    def _digests(self) -> None:
        """Tell of edges that do not lead where they should."""
        for edge, proof in self.looked.proofs.items():
            link = self.judge.link(edge)
            if link is None:
                continue
            left = proof.wrong & ~self.judge.condemned_tensors(link)
            severity: Severity = "error" if left.any() and self.judge.reach(link, left) else "info"
            self.severities[edge] = severity
            self.findings.add(severity, "digest", link.key, proof.why, step=link.step)

    def _orphans(self) -> None:
        """Objects of no record are worth knowing, and harmless."""
        store = self.store
        by_edge: defaultdict[str, list[str]] = defaultdict(list)
        for key in store.below(keys.DATA):
            if key not in self.needs:
                by_edge[keys.parse_data_key(key).edge].append(key)
        condemned = {name.edge for name in store.marks.condemned}
        for edge, found in by_edge.items():
            why = "left by an interrupted save, or of one under way"
            if edge in condemned:
                why = "condemned, and not collected yet"
            elif any(key.startswith((keys.NODES, keys.EDGES)) for key in store.unreadable):
                why = "of an interrupted save, or of a record that could not be read"
            what = "1 object" if len(found) == 1 else f"{len(found)} objects"
            self.findings.add("info", "orphan", keys.edge_folder(edge), f"{what} of no record: {why}")
        used = {record.plan for record in store.records.values()}
        for digest in sorted(set(store.plans) - used):
            message = "a plan of no record that could be read"
            self.findings.add("info", "orphan", keys.plan_key(digest), message)

    # What it comes to -----------------------------------------------------------------------------------

    def _states(self) -> None:
        """Find out which kept states cannot be restored, and tell of those that nothing else explains."""
        states, _ = self.judge.read()
        cut_off = {node for node in self.store.kept if node not in states}
        for node in self.store.kept:
            harm = self.judge.missing(node, states.get(node, Harm(None, NO_PATH)))
            if harm is not None:
                self.missing[node] = harm
        self._cut_off(cut_off)
        told = {finding.key for finding in self.findings.made if finding.severity == "error"}
        silent: defaultdict[str, list[str]] = defaultdict(list)
        for node, harm in self.missing.items():
            if harm.cause not in told and node not in cut_off:
                silent[harm.cause].append(node)
        for cause, nodes in silent.items():
            first = min((self.store.graph.nodes[node] for node in nodes), key=lambda name: name.order)
            also = f", and {len(nodes) - 1} more states" if len(nodes) > 1 else ""
            message = f"it cannot be restored{also}: {cause} was let go of, or is damaged"
            self.findings.add("error", "state", keys.node_key(first), message, step=first.step)

    def _cut_off(self, cut_off: set[str]) -> None:
        """Tell of kept states to which no path leads; of those that stand on each other, of the topmost."""
        graph = self.store.graph
        for node in cut_off:
            name = graph.nodes[node]
            if name.base in cut_off and not _is_circle(graph.nodes, node):
                continue
            missing = name.base != ROOT and name.base not in graph.nodes
            why = f"its base, node {name.base}, is missing" if missing else "no path leads to it"
            behind = len(graph.descendants(node) & cut_off)
            also = f", and {behind} states that stand on it" if behind else ""
            severity: Severity = "error"
            if node in self.missing:
                message = f"{why}: it cannot be restored{also}"
            elif self.judge.sets_all(self.store.own[node]):
                message = f"{why}: it sets everything itself, and `lcstore repair` gives it a path"
            else:
                severity = "warning"
                message = (
                    f"{why}: its exact value can be restored, but nothing goes on from it, and nothing is "
                    f"collected: save it anew and retire it{also}"
                )
            self.findings.add(severity, "path", keys.node_key(name), message, step=name.step)

    def report(self, seconds: float) -> Report:
        """Return the report."""
        store, looked = self.store, self.looked
        self._unfinished()
        kept = [store.graph.nodes[node] for node in store.kept]
        good = max((n for n in kept if n.node not in self.missing), key=lambda n: n.order, default=None)
        url = self.backend.url
        findings = []
        for finding in sorted(self.findings.made, key=lambda finding: finding.order):
            command = finding.next
            if command is None and finding.severity == "error" and good is not None:
                at = good.step if store.graph.at_step(good.step) is good else good.node
                command = f"lcstore show {shlex.quote(f'{url}@{at}')}"
            if command is not None:
                command = command.replace("{url}", shlex.quote(url))
            findings.append(replace(finding, next=command))
        return Report(
            url=url,
            level=self.level,
            findings=tuple(findings),
            states=len(kept),
            objects=looked.objects,
            bytes_read=looked.nbytes,
            skipped=looked.skipped,
            complete=looked.complete,
            lost=tuple(sorted(store.graph.nodes[node].step for node in self.missing)),
            good=None if good is None else good.step,
            seconds=seconds,
        )

    def _unfinished(self) -> None:
        looked = self.looked
        if looked.complete:
            return
        message = (
            f"the time was over: {looked.skipped} of {looked.objects + looked.skipped} objects were not looked "
            "at; give more time, or a sample"
        )
        self.findings.add("info", "time", None, message)


def replace_condemned(marks: Marks, condemned: set[keys.CondemnedName]) -> Marks:
    """Return marks with other condemnations."""
    return replace(marks, condemned=frozenset(condemned))


def _parses(key: str) -> bool:
    try:
        keys.parse_condemned_key(key)
    except CorruptionError:
        return False
    return True


def _is_circle(nodes: object, node: str) -> bool:
    return False


__all__ = ["Examination", "State", "check_level", "verify", "Plan", "Layout", "marks_of"]
