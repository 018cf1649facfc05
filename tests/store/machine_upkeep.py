"""Maintenance amid it all: retiring, stripping, compacting, collecting, crashes, clocks that jump."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from kit.actors import alone, deterministic
from machine import History, handles, nodes, seeds
from machine_runs import CRASHES, DTYPES, KINDS, Handle, Known, checksums

import lcstore
from lcstore import ConflictError, InvalidInputError, NotFoundError, StorageError
from lcstore.maintain import retire as retiring
from lcstore.testing.faults import Crash
from lcstore.write import shortcut, superseded

POLICIES = [
    "latest:1",
    "latest:3 | every:2",
    "every:3s | tagged:good",
    "log:1.5",
    "budget:20kB",
    "strip:optim/**:latest:1",
    "latest:4 | strip:optim/**:latest:2 | strip:model/ids:latest:1",
    "strip:**:latest:5",
    "exact-only:latest:1",
    "exact-only:tagged:good",
    "exact-only:latest:1 | strip:optim/**:latest:2",
    "latest:3 | exact-only:every:4",
]
budgets = st.sampled_from([None, None, 2_000, 20_000])


class Kept(History):
    """Histories of a store that is maintained, by the handles that write and by others."""

    def __init__(self) -> None:
        super().__init__()
        self.retired: set[str] = set()
        self.pins: dict[str, set[str]] = {}
        self.walks: list[tuple[lcstore.Store, Any]] = []
        # What is planned depends on the names of nodes: without chance a failure can be found again.
        self.determined = ExitStack()
        self.determined.enter_context(deterministic())
        self.determined.enter_context(alone())
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.clocks = [(module, module.utc_now) for module in (superseded, shortcut, retiring)]
        for module, _ in self.clocks:
            module.utc_now = self.clock

    def teardown(self) -> None:
        for module, clock in self.clocks:
            module.utc_now = clock
        self.walks.clear()
        try:
            super().teardown()
        finally:
            self.determined.close()

    def clock(self) -> str:
        self.now += timedelta(milliseconds=1)
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def kept(self) -> list[Known]:
        return [k for k in self.known.values() if k.node not in self.retired or self.pins.get(k.node)]

    def sampled(self) -> list[Known]:
        return [self.any(self.turn * 7)]

    # What other histories look at, and these need not: so that more is saved, and more let go of.
    train = change_tree = save = resume_that_fails = None  # type: ignore[assignment]

    @initialize(
        seed=seeds,
        dtype=st.sampled_from(DTYPES),
        exact=st.sets(st.integers(0, 9), max_size=3),
        optimizer=st.booleans(),
    )
    def begin(self, seed, dtype, exact, optimizer):
        """Nothing comes of maintenance in a store of two or three states."""
        handle = self.opened(1)
        handle.begin(seed, dtype)
        handle.optimizer = optimizer
        for step in range(10):
            handle.train(seed + step, 1e-3)
            self.saved(handle, step, step in exact, ["good"] if step == 4 else [])

    @rule(
        which=handles,
        seed=seeds,
        size=st.sampled_from([1e-5, 1e-3, 1e-3, 1e-1]),
        step=st.integers(0, 30),
        count=st.integers(1, 5),
        exact=st.sampled_from([0, 0, 1, 2]),
        days=st.sampled_from([-400, -1, 0, 0, 1, 400]),
    )
    def train_and_save(self, which, seed, size, step, count, exact, days):
        """Some intervals, of which one may be saved exactly, after the clock has moved or jumped."""
        self.now += timedelta(days=days, seconds=seed % 100)
        handle = self.handle(which)
        if seed % 5 == 0:
            handle.optimizer = not handle.optimizer
        for more in range(count):
            handle.train(seed + more, size)
            self.saved(handle, step + more, exact == more + 1, ["bad"] if seed % 7 == 0 else [])

    # Letting go ---------------------------------------------------------------------------------------------

    def look_at_marks(self, expected: set[tuple[str, str]] | None) -> None:
        """Take in what is let go of by now: exactly what was expected, if that is known."""
        with lcstore.open(self.backend, "r", threads=1) as fresh:
            fresh.steps()
            marks = fresh._index.marks
        found = {(node, "state") for node in marks.retired} | {(node, "exact") for node in marks.inexact}
        found |= {(node, f"pool.{pool}") for node, pools in marks.stripped.items() for pool in pools}
        new = {(node, what) for node, what in found if node in self.known} - self.gone()
        if expected is not None:
            assert new == expected
        for node, what in new:
            known = self.known[node]
            if what == "state":
                self.retired.add(node)
            elif what == "exact":
                known.sums = {p: known.track[p] for p in known.sums}
                known.exact = False
            else:
                known.stripped |= set(known.pools[what.removeprefix("pool.")])

    def gone(self) -> set[tuple[str, str]]:
        """What was let go of before."""
        found = {(node, "state") for node in self.retired}
        for known in self.known.values():
            found |= {(known.node, "exact")} if not known.exact else set()
            found |= {(known.node, f"pool.{p}") for p, at in known.pools.items() if set(at) <= known.stripped}
        return found

    def tips(self) -> set[str]:
        newest: dict[int, Known] = {}
        for known in sorted(self.known.values(), key=lambda known: known.order):
            newest[known.order[1]] = known
        return {known.node for known in newest.values()} - self.superseded()

    def superseded(self) -> set[str]:
        """States whose place a run took that went on from them as the latest: no others."""
        with lcstore.open(self.backend, "r", threads=1) as fresh:
            fresh.steps()
            found = fresh._index.marks.superseded & self.known.keys()
        assert found <= self.resumed_as_latest
        return set(found)

    @precondition(lambda self: self.kept())
    @rule(which=handles, numbers=st.lists(nodes, min_size=1, max_size=6))
    def retire(self, which, numbers):
        store = self.handle(which).store
        for number in numbers:
            known = self.any(number)
            if known.node in self.tips() or self.pins.get(known.node):
                with pytest.raises(InvalidInputError):
                    store.retire(known.node)
                continue
            store.retire(known.node)
            self.look_at_marks({(known.node, "state")})

    @precondition(lambda self: self.kept())
    @rule(which=handles, policy=st.sampled_from(POLICIES))
    def retain(self, which, policy):
        store = self.handle(which).store
        try:
            promised = store.retain(policy, dry_run=True)
            report = store.retain(policy)
        except InvalidInputError as error:
            assert "names no state" in str(error) or "spare nothing" in str(error)
            return
        assert report.retired == tuple(replace(one, dry_run=False) for one in promised.retired)
        states = {one.node for one in report.retired if one.what == "state"}
        assert not states & (self.tips() | {node for node in self.pins if self.pins[node]})
        self.look_at_marks({(one.node, one.what) for one in report.retired})

    # Names --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.kept())
    @rule(which=handles, number=nodes, tag=st.sampled_from(["good", "bad", "gold"]), take=st.booleans())
    def tag(self, which, number, tag, take):
        store = self.handle(which).store
        if take:
            with suppress(NotFoundError) if tag in self.tagged else pytest.raises(NotFoundError):
                store.untag(tag)  # whoever had it may be collected
            self.tagged.pop(tag, None)
            with pytest.raises(NotFoundError):
                store.info(tag)
            return
        known = self.any(number)
        store.tag(tag, known.node)
        self.tagged.setdefault(tag, []).append(known.node)
        assert store.info(tag).node == known.node

    @precondition(lambda self: self.kept())
    @rule(which=handles, number=nodes, by=st.sampled_from(["", "me"]))
    def pin(self, which, number, by):
        known = self.any(number)
        self.handle(which).store.pin(known.node, by)
        self.pins.setdefault(known.node, set()).add(by)

    @precondition(lambda self: self.retired)
    @rule(which=handles, number=nodes)
    def pin_what_was_retired(self, which, number):
        """It comes back as it was, or it is too late."""
        node = sorted(self.retired)[number % len(self.retired)]
        try:
            self.handle(which).store.pin(node)
        except (ConflictError, NotFoundError):
            return
        self.pins.setdefault(node, set()).add("")
        self.restores(self.handle(which).store, self.known[node])

    @precondition(lambda self: any(self.pins.values()))
    @rule(which=handles, number=nodes, by=st.sampled_from([None, "", "me"]))
    def unpin(self, which, number, by):
        pinned = sorted(node for node, held in self.pins.items() if held)
        node = pinned[number % len(pinned)]
        going = self.pins[node] if by is None else self.pins[node] & {by}
        assert self.handle(which).store.unpin(node, by) == len(going)
        self.pins[node] = self.pins[node] - going

    # Maintenance --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.kept())
    @rule(which=handles, max_bytes=budgets)
    def compact(self, which, max_bytes):
        before = len(self.backend.list(""))
        store = self.handle(which).store
        if not store.compact(dry_run=True, max_bytes=max_bytes).planned:
            assert len(self.backend.list("")) == before
        held = sum(self.backend.size(key) for key in self.backend.list(""))
        report = store.compact(max_bytes=max_bytes)
        if max_bytes is None:
            assert report.added == report.planned
            assert not report.skipped
        else:
            # What could not be taken away at once, of an edge that took more, is no part of a store.
            now = sum(self.backend.size(key) for key in self.backend.list(""))
            assert now - held <= report.bytes_written <= max_bytes

    @precondition(lambda self: self.kept())
    @rule(which=handles)
    def collect(self, which):
        promised = self.handle(which).store.collect(dry_run=True)
        report = self.handle(which).store.collect()
        assert report.kept_states == len(self.kept())
        for name in ("deleted_objects", "deleted_bytes", "deleted_marks"):
            assert getattr(report, name) == getattr(promised, name)
        assert {known.node for known in self.kept()} <= self.listed()

    @precondition(lambda self: self.kept())
    @rule(which=handles)
    def compact_and_collect(self, which):
        """As it is done in earnest, until there is nothing left to do: soon, or it would never end."""
        store = self.handle(which).store
        for _ in range(6):
            planned, deleted = store.compact().planned, store.collect().deleted_objects
            if not planned and not deleted:
                return
        raise AssertionError("compacting and collecting finds ever more to do")

    @precondition(lambda self: self.kept())
    @rule(
        which=handles,
        what=st.sampled_from(["compact", "collect", "retain", "pin", "tag"]),
        kind=st.sampled_from([*KINDS, *CRASHES, "full"]),
        at=st.integers(0, 60),
        policy=st.sampled_from(POLICIES),
        number=nodes,
    )
    def upkeep_that_fails(self, which, what, kind, at, policy, number):
        """Whatever it got done by then, no kept state changes; and trying again works."""
        handle = self.handle(which)
        node = self.any(number).node

        def work(store: lcstore.Store) -> None:
            if what in ("compact", "collect"):
                getattr(store, what)()
            elif what == "retain":
                store.retain(policy)
            elif what == "pin":
                store.pin(node)
            else:
                store.tag("gold", node)

        handle.arm(kind, at)
        with suppress(StorageError, Crash, InvalidInputError):
            work(handle.store)
        handle.disarm()
        store = self.revived(handle).store
        self.look_at_marks(None)
        try:
            work(store)
        except InvalidInputError as error:
            assert "names no state" in str(error) or "spare nothing" in str(error)
        self.look_at_marks(None)
        if what == "pin":
            self.pins.setdefault(node, set()).add("")
        elif what == "tag":
            self.tagged.setdefault("gold", []).append(node)

    def revived(self, handle: Handle) -> Handle:
        """The handle, or a new one where its process has died."""
        if not handle.faulty.dead:
            return handle
        handle.store.close()
        new = Handle.open(self.backend, 1)
        new.like(handle)
        self.handles[self.handles.index(handle)] = new
        return new

    @rule(
        which=handles,
        step=st.integers(0, 12),
        exact=st.booleans(),
        kind=st.sampled_from(CRASHES),
        at=st.integers(0, 25),
        seed=seeds,
    )
    def save_that_dies(self, which, step, exact, kind, at, seed):
        """The process dies in a save: the state is there, as it was saved, or nothing is."""
        handle = self.handle(which)
        handle.train(seed, 1e-2)
        handle.arm(kind, at)
        with suppress(Crash):
            handle.store.save(step, handle.tree(), exact=exact, tags=["good"])
        handle.disarm()
        landed = self.landed()
        assert len(landed) <= 1 + len(handle.store._writer._superseded._disowned)
        for node in landed:
            handle.orders.append(self.take_in(handle, node, ("good",), handle.seen, exact))
            handle.seen = self.known[node].seen
        self.revived(handle)

    # Readers beside it --------------------------------------------------------------------------------------

    @precondition(lambda self: self.kept())
    @rule(which=handles, reverse=st.booleans())
    def begin_to_walk(self, which, reverse):
        store = lcstore.open(self.backend, "r", threads=1)
        meant = {known.step: self.meant(known.step).node for known in self.kept()}
        sums = {known.node: dict(known.sums) for known in self.kept()}
        self.walks.append((store.walk(reverse=reverse), meant, sums))
        self.walks = self.walks[-3:]

    @precondition(lambda self: self.walks)
    @rule(number=nodes, count=st.integers(1, 4))
    def walk_on(self, number, count):
        """A walk gives what was there when it began, or what is left of it, whatever was collected since."""
        steps, meant, sums = self.walks[number % len(self.walks)]
        for _ in range(count):
            try:
                step, tree = next(steps)
            except (StopIteration, NotFoundError):
                self.walks = [walk for walk in self.walks if walk[0] is not steps]
                return
            known = self.known[meant[step]]
            found = checksums(tree)
            wanted = [{p: s[p] for p in s if p.startswith("model/")} for s in (sums[known.node], known.sums)]
            assert found in wanted  # the exact value, or the tracked one since that was let go

    @precondition(lambda self: self.retired)
    @rule(which=handles, number=nodes)
    def read_what_was_retired(self, which, number):
        """By its id it is found until it is collected: whole and right, or not at all."""
        node = sorted(self.retired)[number % len(self.retired)]
        try:
            found = checksums(self.handle(which).store.restore(node))
        except NotFoundError:
            return
        assert found == self.known[node].sums
