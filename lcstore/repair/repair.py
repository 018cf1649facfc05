"""Setting aside what is damaged, so that what still has a sound path is found, and nothing else.

All is planned on an `Overlay`, which is looked at again before anything is changed. Nothing is deleted but
records that cannot be read, and of those a copy is kept. Marks do the rest, as for compaction and collection.
"""

from __future__ import annotations

import secrets
import shlex
import time
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from lcstore.check.astray import stops_a_repair, way_back
from lcstore.check.damage import NOWHERE, Harm
from lcstore.check.examination import Examination
from lcstore.check.findings import UNRECORDED, Finding, Level
from lcstore.check.lostparts import let_go_of, rest_of
from lcstore.check.mending import Mending
from lcstore.check.verify import check_level
from lcstore.edges.columns import OWN
from lcstore.errors import ConflictError, CorruptionError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import EdgeBody
from lcstore.format.marks import CondemnedRecord, RetiredRecord, TagRecord
from lcstore.format.records import EdgeRecord, utc_now
from lcstore.graph.refs import ROOT
from lcstore.index.gone import DAMAGED
from lcstore.index.links import Link
from lcstore.index.listing import READING, Listing
from lcstore.index.marked import bearers, next_seq
from lcstore.jobs.survey import OnProgress
from lcstore.layout.qualified import stem_of
from lcstore.records.partrecords import shortcut_parts
from lcstore.repair.overlay import Overlay
from lcstore.repair.repaired import Action, Deed, Loss, RepairReport
from lcstore.repair.salvage import Salvage, names_of, refuse
from lcstore.state.names import format_name
from lcstore.storage.backend import Backend, check_writable
from lcstore.version import SOFTWARE

#: How often a repair is planned, where the store changes meanwhile.
_TRIES: Final = 4


def repair(
    backend: Backend,
    *,
    dry_run: bool = False,
    level: Level = "checksum",
    on_progress: OnProgress | None = None,
) -> RepairReport:
    """Set aside what is damaged and keep everything that still has a sound path.

    What can be rebuilt, from parity or a second copy, is put back, and what was found in its place set aside.
    A state that cannot be restored is retired, so that the latest one is sound again: one that lacks weights
    or buffers too, of which `Loss.rest` says what can be read until it is collected. One that lacks only its
    exact value goes on as its track, and one that lacks only moments without them. Edges that are damaged are
    condemned, so that readers take others. Unreadable records go to ``quarantine/``. What only damage
    explains is left to `collect`. A second repair finds nothing to do; one that was cut off is completed by
    the next.

    Stop the writers of a damaged run first: one that goes on from a state that is lost is not told.

    Parameters
    ----------
    backend
        Where the store is.
    dry_run
        Only say what would be done.
    level
        How thoroughly to look for damage; see `lcstore.check.verify.verify`.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.

    Raises
    ------
    NotFoundError
        There is no store.
    StorageError, UnsupportedFormatError
        Something could not be read that may well be whole: nothing was changed, or what was damaged is so yet
        and the rest is to be repaired again.
    CorruptionError
        States would be lost, and missing objects may be there under another name: nothing was changed.
    ConflictError
        Maintenance changed the store each time that it was looked at: nothing was changed.
    """
    check_level(level)
    if not dry_run:
        check_writable(backend)
    began = time.perf_counter()
    plans: list[_Plan] = []
    while True:
        plan = _confirmed_plan(backend, level, on_progress)
        if not dry_run and stops_a_repair(plan.astray, lost=bool(plan.lost)):
            raise CorruptionError(
                f"nothing was repaired, as that lets go of what is missing: {way_back(plan.astray)}; or out "
                f"of the store if it is not that. Then: `lcstore verify {shlex.quote(backend.url)}`"
            )
        plans.append(plan)
        if dry_run or _is_carried_out(plan.overlay, on_progress, last=len(plans) == _TRIES):
            break
    remaining = tuple(one for one in plan.after.findings.of(backend.url) if _is_left(one))
    latest = plan.after.store.graph.latest()
    lost = {loss for one in plans for loss in one.lost}
    return RepairReport(
        url=backend.url,
        level=level,
        dry_run=dry_run,
        lost=tuple(sorted(lost, key=lambda loss: (loss.step, loss.node, loss.what))),
        actions=tuple(dict.fromkeys(action for one in plans for action in one.actions)),
        remaining=remaining,
        states=len(plan.after.store.kept),
        latest=None if latest is None else latest.step,
        seconds=time.perf_counter() - began,
        astray=plan.astray,
    )


def _is_carried_out(overlay: Overlay, on_progress: OnProgress | None, *, last: bool) -> bool:
    """Make the changes; return False where a collector took meanwhile what an object is rebuilt from.

    What was done stays, and the rest is planned anew, but for the last time.
    """
    try:
        for done, _ in enumerate(overlay.apply()):
            if on_progress is not None:
                on_progress("repairing", done + 1, len(overlay.steps))
    except CorruptionError:
        if last:
            raise
        return False
    return True


class _Plan(NamedTuple):
    """What a repair is going to do, and what the store is then."""

    overlay: Overlay
    after: Examination
    actions: tuple[Action, ...]
    lost: tuple[Loss, ...]
    astray: dict[str, str]


def _confirmed_plan(backend: Backend, level: Level, on_progress: OnProgress | None) -> _Plan:
    """Return a plan that lets go only of what is still lost once all has been looked at.

    Meanwhile maintenance may have added an edge, and taken away those that it stands for.
    """
    before = Listing.take(backend, READING)
    for _ in range(_TRIES):
        plan = _plan(backend, level, on_progress)
        now = Listing.take(backend, READING) if plan.lost else before
        if now.reads_as(before):
            return plan
        before = now
    raise ConflictError(
        f"{backend.url} is changed by maintenance whenever it is looked at, so what is lost cannot be told: "
        "repair it once that has ended"
    )


def _plan(backend: Backend, level: Level, on_progress: OnProgress | None) -> _Plan:
    overlay = Overlay(backend)
    salvage, records = _salvage(overlay, on_progress)
    examination = Examination(overlay, level, on_progress)
    examination.look()
    refuse(examination.store.unreadable | examination.looked.problems)
    _put_back(salvage, examination)
    planner = _Repair(overlay, examination)
    planner.run()
    lost, actions = (*salvage.lost, *planner.lost), (*salvage.actions, *planner.actions)
    after = Examination(overlay, level, on_progress)
    after.look(known=examination.looked)
    refuse(after.store.unreadable)
    missing = examination.looked.problems
    astray = records | {key: name for key, name in examination.astray.items() if key in missing}
    return _Plan(overlay, after, actions, lost, astray)


def _salvage(overlay: Overlay, on_progress: OnProgress | None) -> tuple[Salvage, dict[str, str]]:
    """Set aside the records that cannot be read; return also which of those that are missing are astray."""
    first = Examination(overlay, "structure", on_progress)
    first.store.take()
    refuse(first.store.unreadable)
    salvage = Salvage(overlay, first.store)
    salvage.run()
    return salvage, first.findings.tell_astray((), first.store.unknown)


def _put_back(salvage: Salvage, examination: Examination) -> None:
    """Put back every object that can be rebuilt, from what is stored: never from another that is rebuilt."""
    mended, mending = examination.looked.mended, Mending(examination.store, salvage.backend.below)
    for key in sorted(mended):
        ref = examination.needs[key].ref
        salvage.put_back(key, partial(mending.was, ref), mended.pop(key))


def _is_left(found: Finding) -> bool:
    return found.severity == "error" or found.check == UNRECORDED


class _Repair:
    """What is done about damaged objects and lost states, once every record can be read."""

    def __init__(self, backend: Backend, examination: Examination) -> None:
        self.backend = backend
        self.examination = examination
        self.store = examination.store
        self.judge = examination.judge
        self.actions: list[Action] = []
        self.lost: list[Loss] = []

    def run(self) -> None:
        """Plan everything."""
        self._condemn_objects()
        self._condemn_edges()
        harms = self._give_paths(self.judge.read(around=True))  # first: what stands on them is not lost
        for node in self.store.kept:
            self._let_go(node, harms.get(node, NOWHERE))

    # Edges ----------------------------------------------------------------------------------------------

    def _condemn_objects(self) -> None:
        """Keep readers off what is damaged."""
        problems = self.examination.looked.problems
        for key in [key for key in problems if self.examination.severities[key] == "error"]:
            need = self.examination.needs[key]
            if need.scope is not None:
                scope = need.scope if need.node is not None else markkeys.WHOLE_EDGE
                self._condemn(need.edge, need.node, scope, f"{key} is damaged", need.step)

    def _condemn_edges(self) -> None:
        """Keep readers off edges that do not lead where they should."""
        links = self.store.links
        for edge, proof in self.examination.looked.proofs.items():
            if self.examination.severities.get(edge) != "error":
                continue
            link = links[edge]
            scopes = sorted({link.scope_of(t) for t in np.flatnonzero(proof.wrong).tolist()})
            for scope in scopes:
                self._condemn(edge, link.node, scope, proof.why, link.step)
        for edge, record in self.store.edges.items():
            if record.target in self.store.own and edge not in links:
                self._condemn(edge, None, markkeys.WHOLE_EDGE, "its record does not fit its target", None)

    # States ---------------------------------------------------------------------------------------------

    def _let_go(self, node: str, track: Harm | None) -> None:
        """Let go of what a state lacks: its exact value, moments, or all of it."""
        going, harm = let_go_of(self.judge, node, track), self.judge.missing(node, track)
        rest = rest_of(self.judge, node, harm)
        for what in going:
            assert harm is not None
            self._retire(node, what, harm, "" if what == markkeys.EXACT_VALUE else rest)
        if markkeys.WHOLE_STATE in going:
            self._unpin(node)

    def _unpin(self, node: str) -> None:
        """Take the pins of a lost state away: they would keep it where nothing is left of it."""
        store = self.store
        if node not in store.marks.pinned:
            return
        step = store.graph.nodes[node].step
        for pin, named in bearers(store.named, "pin", store.graph.nodes).items():
            if all(name.node != node for name in named):
                continue
            seq = next_seq(store.named, "pin", pin)
            # First the others that bear it, with a number that outlasts the pin's being taken away.
            others = {name.node for name in named if name.node is not None} - {node}
            made = [TagRecord(pin, other, seq + 1, utc_now(), "pin") for other in sorted(others)]
            made.append(TagRecord(pin, None, seq, utc_now(), "pin"))
            for mark in made:
                self.backend.put(mark.key(), mark.to_bytes())
                store.named = (*store.named, markkeys.parse_tag_key(mark.key()))
            self._note("unpin", made[-1].key(), f"pin {pin!r} was taken from it: it is lost", step)
        store.see(replace(store.marks, pinned=store.marks.pinned - {node}))

    def _give_paths(self, harms: dict[str, Harm | None]) -> dict[str, Harm | None]:
        """Add an edge from the root to each state that sets everything itself and has no path.

        Return the harm to what is read of each state then.
        """
        for node in sorted(self.store.kept, key=lambda node: self.store.graph.nodes[node].order):
            own = self.store.own.get(node)
            harm = harms.get(node, NOWHERE)
            lame = harm is not None and harm.tensors is None
            if own is None or not lame or not self.judge.sets_all(own):
                continue
            if self.judge.missing(node, harm) is not None:
                continue
            columns = own.columns
            same = columns.but(op=np.full_like(columns.op, OWN), shift=np.zeros_like(columns.shift))
            body = EdgeBody(secrets.token_hex(16), ROOT, shortcut_parts(own.layout, same))
            record = EdgeRecord(node, body, utc_now(), {}, SOFTWARE)
            key = keys.edge_key(record.name)
            self.backend.put(key, record.to_bytes())
            if self.store.below(keys.COPIES):
                self.backend.put(keys.copy_key(keys.edge_stem(key)), record.to_bytes())
            self.judge.add(record)  # what stands on the state has a path with it
            harms = self.judge.read(around=True)
            self._note("anchor", key, "it sets everything itself, and now has a path that says so", own.step)
        return harms

    # Marks ----------------------------------------------------------------------------------------------

    def _condemn(self, edge: str, node: str | None, scope: str, why: str, step: int | None) -> None:
        if self.store.is_condemned(edge, scope):
            return
        mark = CondemnedRecord(edge, node, scope, utc_now())
        self.backend.put(mark.key(), mark.to_bytes())
        marks = self.store.marks
        named = marks.condemned | {markkeys.parse_condemned_key(mark.key())}
        self.store.see(replace(marks, condemned=named))
        what = "the whole edge" if scope == markkeys.WHOLE_EDGE else f"{scope} of the edge"
        self._note("condemn", mark.key(), f"{what} is not to be used: {why}", step)

    def _retire(self, node: str, what: str, harm: Harm, rest: str) -> None:
        name = self.store.graph.nodes[node]
        names = names_of(self.store, node)
        mark = RetiredRecord(node, f"{DAMAGED}{harm.cause}"[:2_000], utc_now(), what)
        self.backend.put(mark.key(), mark.to_bytes())
        tensors = _paths(self.store.own.get(node), what)
        self.lost.append(Loss(name.step, node, what, tensors, names, harm.cause, rest))
        words = {
            markkeys.WHOLE_STATE: "it is lost",
            markkeys.EXACT_VALUE: "its exact value is lost; its track is kept",
        }
        message = words.get(what, f"its {what.replace('.', ' ')} is lost; the rest is kept")
        self.store.see(self.store.marks.with_retired([markkeys.parse_retired_key(mark.key())]))
        self._note("retire", mark.key(), f"{message}: {harm.cause}", name.step)

    def _note(self, deed: Deed, key: str, message: str, step: int | None) -> None:
        self.actions.append(Action(deed, key, message, step))


def _paths(own: Link | None, what: str) -> tuple[str, ...]:
    """Return the tensors of a pool that is let go of; none where it is no pool."""
    tensors = () if own is None else own.layout.tensors
    return tuple(format_name(t.name) for t in tensors if markkeys.pool_of(stem_of(t.pool)) == what)
