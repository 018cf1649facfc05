"""One look at a whole store: what is wrong with it, and what that comes to. Behind `verify` and `repair`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.check.damage import NOWHERE, Damage, Harm, Judge
from lcstore.check.findings import LOST, Findings, Level, Severity, VerifyReport, ranges_of
from lcstore.check.going import needed
from lcstore.check.looker import Need, check_leaves
from lcstore.check.lostparts import let_go_of, rest_of
from lcstore.check.mending import Mending
from lcstore.check.objects import Looked, Objects, Sample
from lcstore.check.readable import Readable
from lcstore.cluster.tasks import Client
from lcstore.errors import CorruptionError, LcstoreError, NotFoundError, StorageError
from lcstore.format import keys, markkeys
from lcstore.format.records import NodeRecord
from lcstore.graph.refs import ROOT
from lcstore.index.gone import none_left, unrecorded
from lcstore.index.links import Link, own_link, shortcut_link
from lcstore.index.listing import AGAIN, Listing
from lcstore.jobs.survey import OnProgress
from lcstore.layout.qualified import stem_of
from lcstore.once import once
from lcstore.storage.backend import Backend

_NO_TRACK: Final = "its exact value can be restored, and a resume goes on from that with an anchor"
_EXACT_ONLY: Final = f"{_NO_TRACK}; then retire this one: nothing is collected while it is there"


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
    kept_in_part, let_go_in_part
        Those of them that a repair keeps without what they lack; and those that it lets go of as a whole,
        though some of their names can be read.
    astray
        The missing objects that may be there under another name: that, by key.
    """

    def __init__(
        self,
        backend: Backend,
        level: Level,
        on_progress: OnProgress | None = None,
        sample: Sample | None = None,
        until: float = math.inf,
        client: Client | None = None,
    ) -> None:
        self.backend = backend
        self.level = level
        self.on_progress = on_progress
        self.sample = sample or Sample()
        self.until = until
        self.client = client
        self.findings = Findings()
        self.store = Readable(backend, self.findings, on_progress)
        self.needs: dict[str, Need] = {}
        self.looked = Looked()
        self.severities: dict[str, Severity] = {}
        self.missing: dict[str, Harm] = {}
        self.kept_in_part: set[str] = set()
        self.let_go_in_part: set[str] = set()
        self.astray: dict[str, str] = {}

    def look(self, known: Looked | None = None) -> None:
        """Look at the objects, or take what an earlier look at the same ones found."""
        self.store.take()
        for node, record in self.store.records.items():
            self._node(node, record)
        self._shortcuts()
        objects = Objects(self.store, self.level, self.sample, self.until, self.on_progress, self.client)
        self.needs = objects.needs
        self.looked = objects.look() if known is None else known
        self.mending, self.judge = Mending(self.store), Judge(self.store, Damage())
        if known is None:
            self._look_again()
            self._mend()
        wrong = {edge: proof.wrong for edge, proof in self.looked.proofs.items()}
        self.judge = Judge(self.store, Damage.of(self.looked.problems, wrong))
        self._orphans()
        self._none_left()
        self._objects()
        found = self.store.unreadable | self.store.mended | self.looked.problems | self.looked.mended
        gone = {key for key, error in found.items() if isinstance(error, NotFoundError)}
        lost = {key for key in gone if self.severities.get(key) != "info"}
        self.astray = self.findings.tell_astray(lost, self.store.unknown)
        self._digests()
        self._states()

    # What records say -----------------------------------------------------------------------------------

    def _node(self, node: str, record: NodeRecord) -> None:
        """Check that a whole record fits its layout, and that its parent is there or accounted for."""
        store = self.store
        key = keys.node_key(record.name(node))
        severity: Severity = "info" if node in store.graph.hidden else "error"
        parent = record.parent
        if parent is not None and parent not in store.graph.nodes and parent not in store.marks.retired:
            message = f"its parent, node {parent}, is missing, and no record says that it was retired"
            self.findings.add(severity, "parent", key, message, step=record.step)
        if record.layout not in store.layouts:
            where = store.missing_layout(record.layout)
            if where not in store.unreadable and where not in store.listed:
                message = "a layout that a record needs is missing"
                self.findings.add(severity, "layout", where, message, step=record.step)
            return
        try:
            link = own_link(node, record, store.layouts[record.layout])
            for part in record.edge.parts:
                if part.leaves_object is None:
                    check_leaves(part.leaves, store.stored_layouts[part.layout or ""], key)
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
                self.findings.add(
                    "error", "record", key, f"node {claimed[edge]} was saved with the same edge"
                )
            if own is None:
                if record.target not in self.store.graph.nodes:
                    gone = self.store.is_condemned(edge, markkeys.WHOLE_EDGE)
                    known = gone or self._lacks_records or record.target in self.store.marks.retired
                    why = "" if known else f": collected as this was made, or {LOST}"
                    message = f"it leads to a state that is not there any more{why}"
                    self.findings.add("info", "orphan", key, message)
                continue
            try:
                self.store.shortcuts[edge] = shortcut_link(record, own)
            except LcstoreError as error:
                severity: Severity = "info" if self.store.is_condemned(edge, markkeys.WHOLE_EDGE) else "error"
                self.findings.unreadable("record", key, error, severity=severity)

    # Objects --------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Forget objects that were taken away on purpose since the store was listed."""
        gone = [key for key, error in self.looked.problems.items() if isinstance(error, NotFoundError)]
        if not gone:
            return
        listing = Listing.take(self.backend, AGAIN)
        listing.drop_unparsable(lambda key, error: None)
        there = {*listing.below(keys.NODES), *listing.below(keys.EDGES)}
        now = set(listing.condemned)
        if now - self.store.marks.condemned:
            self.store.see(replace(self.store.marks, condemned=frozenset(now)))
        for key in gone:
            need = self.needs[key]
            if self._record_key(need) not in there:
                del self.looked.problems[key]

    def _mend(self) -> None:
        """Find out what of all that is missed can be made again; nothing is written."""
        for key, problem in list(self.looked.problems.items()):
            need = self.needs[key]
            if self._missed(need) and isinstance(problem, CorruptionError | NotFoundError):
                try:
                    self.mending.was(need.ref)
                    self.looked.mended[key] = self.looked.problems.pop(key)
                except CorruptionError:
                    pass
                except StorageError as error:  # whether it can be made again is not known
                    where = error.key if error.key in self.needs else key
                    self.looked.problems[where] = error

    def _record_key(self, need: Need) -> str:
        if need.node is None:
            return keys.edge_key(self.store.edges[need.edge].name)
        return keys.node_key(self.store.records[need.node].name(need.node))

    @once
    def needed(self) -> set[str]:
        """The nodes that something is missed of."""
        return needed(self.store.graph)

    def _target(self, need: Need) -> str:
        """Return the node that the edge of an object leads to."""
        return need.node or self.store.edges[need.edge].target

    def _missed(self, need: Need) -> bool:
        """Return whether something is missed where an object is gone."""
        return self._target(need) in self.needed and not self.excused(need) and self.judge.counts(need)

    def excused(self, need: Need) -> bool:
        """Return whether a record explains that an object is gone."""
        return self.store.is_condemned(need.edge, need.scope or markkeys.WHOLE_EDGE)

    def _severity(self, need: Need) -> Severity:
        """Return how much damage to an object matters: it is an error unless no kept state may need it."""
        store, marks = self.store, self.store.marks
        if self.excused(need):
            return "info"
        name = keys.parse_data_key(need.ref.key)
        if name.parity is not None:
            return "warning" if self._missed(need) else "info"
        link = store.shortcuts.get(need.edge) if need.node is None else store.own.get(need.node)
        if need.node is not None and need.node not in store.graph.hidden:
            let_go = stem_of(name.pool or "") in marks.stripped.get(need.node, ())
            if need.exact:
                return "info" if let_go or need.node in marks.inexact else "error"
            if not let_go:
                return "error"
        elif need.exact or (need.node is not None and name.chunk is None):
            return "info"
        if link is None or name.pool is None or name.chunk is None:
            target = self._target(need)
            behind = {target} | (store.graph.descendants(target) if target in store.graph.nodes else set())
            return "error" if behind & set(store.kept) else "info"
        return "error" if self.judge.reach(link, link.layout.touched(name.pool, name.chunk)) else "info"

    def _objects(self) -> None:
        for key, problem in self.looked.problems.items():
            need = self.needs.get(key)
            if need is None:  # nothing that is left speaks of it
                continue
            severity = self.severities[key] = self._severity(need)
            if severity != "info":
                self.findings.unreadable("object", key, problem, step=need.step, severity=severity)
            elif not isinstance(problem, NotFoundError) or not self.excused(need):
                why = "; it is condemned" if self.excused(need) else "; no state needs it"
                self.findings.unreadable("object", key, problem, step=need.step, severity="info", why=why)
        for key, problem in self.looked.mended.items():
            self.findings.mended(key, problem, step=self.needs[key].step if key in self.needs else None)

    def _digests(self) -> None:
        """Add a finding for each edge that does not lead where it should."""
        links = self.store.links
        for edge, proof in self.looked.proofs.items():
            link = links[edge]
            left = proof.wrong & ~self._condemned_tensors(link)
            severity: Severity = "error" if left.any() and self.judge.reach(link, left) else "info"
            self.severities[edge] = severity
            self.findings.add(severity, "digest", link.key, proof.why, step=link.step)

    def _condemned_tensors(self, link: Link) -> Array:
        """Return which tensors are let go of where this edge holds them: ``bool``, per tensor."""
        return np.array(
            [self.store.is_condemned(link.id, link.scope_of(t)) for t in range(link.columns.op.size)], bool
        )

    @property
    def _lacks_records(self) -> bool:
        return any(key.startswith((keys.NODES, keys.EDGES)) for key in self.store.unreadable)

    def _orphans(self) -> None:
        """Add findings for objects of no record: worth knowing, and harmless."""
        store = self.store
        by_edge: defaultdict[str, list[str]] = defaultdict(list)
        for key in store.below(keys.DATA):
            if key not in self.needs and keys.copied_from(key) not in self.needs:
                by_edge[keys.parse_data_key(key).edge].append(key)
        condemned = {name.edge for name in store.marks.condemned}
        for edge, found in by_edge.items():
            why = f"left by an interrupted save, or of one under way; or {LOST}"
            if edge in condemned:
                why = "condemned, and not collected yet"
            elif self._lacks_records:
                why = "of an interrupted save, or of a record that could not be read"
            what = "1 object" if len(found) == 1 else f"{len(found)} objects"
            self.findings.add("info", "orphan", keys.edge_folder(edge), f"{what} of no record: {why}")
        used = {part.layout for record in store.records.values() for part in record.edge.parts}
        for digest in sorted(set(store.stored_layouts) - used):
            why = "left by collected states, or of a save under way: harmless, a later collect deletes it"
            if self._lacks_records:
                why = "it may be of a record that could not be read"
            self.findings.add("info", "orphan", keys.layout_key(digest), f"a layout of no record: {why}")

    # What it comes to -----------------------------------------------------------------------------------

    def _states(self) -> None:
        """Find out which kept states cannot be restored, and tell of those that nothing else explains."""
        harms = self.judge.read()
        around: Mapping[str, Harm | None] | None = None
        cut_off = {node for node in self.store.kept if node not in harms}
        for node in self.store.kept:
            harm = self.judge.missing(node, harms.get(node, NOWHERE))
            if harm is not None:
                if around is None:  # seldom: only where something is damaged
                    around = self.judge.read(around=True)
                best = around.get(node, NOWHERE)
                left = self.judge.missing(node, best)
                if left is not None:
                    self.missing[node] = harm
                    if markkeys.WHOLE_STATE not in let_go_of(self.judge, node, best):
                        self.kept_in_part.add(node)
                    elif rest_of(self.judge, node, left):
                        self.let_go_in_part.add(node)
            elif harms.get(node) is not None and self.judge.missing(node, harms[node], exact=False):
                name = self.store.graph.nodes[node]
                self.findings.add("warning", "track", keys.node_key(name), _NO_TRACK, step=name.step)
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
        """Add findings for kept states without a path, the topmost of lost ones that stand on each other."""
        graph = self.store.graph
        lost = cut_off & self.missing.keys()
        top = {node for node in lost if graph.nodes[node].base not in lost}
        below = set[str]().union(*(graph.descendants(node) for node in top))
        # Names that form a circle have no topmost node; each of them says so.
        for node in sorted(top | (lost - below)):
            behind = len(graph.descendants(node) & lost)
            also = f", and {behind} states that stand on it" if behind else ""
            self._no_path("error", node, f"it cannot be restored{also}")
        for node in sorted(cut_off - lost):
            if self.judge.sets_all(self.store.own[node]):
                self._no_path("error", node, "it sets everything: `lcstore repair` gives it a path")
            else:
                self._no_path("warning", node, _EXACT_ONLY)

    def _no_path(self, severity: Severity, node: str, message: str) -> None:
        name = self.store.graph.nodes[node]
        missing = name.base != ROOT and name.base not in self.store.graph.nodes
        why = f"its base, node {name.base}, is missing" if missing else "no path leads to it"
        self.findings.add(severity, "path", keys.node_key(name), f"{why}: {message}", step=name.step)

    def report(self, seconds: float) -> VerifyReport:
        """Return the report."""
        store, looked = self.store, self.looked
        self._unfinished()
        kept = [store.graph.nodes[node] for node in store.kept]
        stripped = {node for node in store.kept if store.marks.stripped.get(node)}
        whole = (name for name in kept if name.node not in self.missing and name.node not in stripped)
        good = max(whole, key=lambda name: name.order, default=None)
        at: int | str | None = None if good is None else good.step
        if good is not None and store.graph.at_step(good.step) is not good:
            at = good.node
        findings = self.findings.of(self.backend.url, at)
        later = {one.key for one in findings if one.is_later}
        lost = {node for node, harm in self.missing.items() if harm.cause not in later}
        return VerifyReport(
            url=self.backend.url,
            level=self.level,
            findings=findings,
            states=len(kept),
            objects=looked.objects,
            bytes_read=looked.nbytes,
            skipped=looked.skipped,
            complete=looked.complete,
            lost=tuple(sorted(store.graph.nodes[node].step for node in lost)),
            good=None if good is None else good.step,
            seconds=seconds,
            lost_ranges=ranges_of(kept, lost),
            kept_in_part=ranges_of(kept, self.kept_in_part & lost),
            let_go_in_part=ranges_of(kept, self.let_go_in_part & lost),
            stripped=ranges_of(kept, stripped),
            astray=self.astray,
            unread=sum(one.is_unread for one in findings),
        )

    def _unfinished(self) -> None:
        looked = self.looked
        if not looked.complete:
            skipped = f"{looked.skipped} of {looked.objects + looked.skipped} objects were not looked at"
            message = f"the time was over: {skipped}; give more time, or a sample"
            self.findings.add("info", "time", None, message)

    def _none_left(self) -> None:
        """Tell of a store that had states and has none: as it should be only if its owner let go of all."""
        graph = self.store.graph
        lost = "" if graph.nodes else unrecorded(self.store.listing)
        self.findings.none_left(lost, none_left(graph), damaged=bool(self.store.lost))
