"""Any history of saves, failures, resumes and branches, against a plain model: what was there stays so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from machine_runs import (
    CHUNK,
    DTYPES,
    KINDS,
    SHAPES,
    WEIGHTS,
    Handle,
    Known,
    Seen,
    checksum,
    checksums,
    plain,
)
from states import leaves, tracked

import lcstore
from lcstore import LcstoreError, NotFoundError, StorageError
from lcstore.edges.columns import ADD
from lcstore.format import keys
from lcstore.layout import layout as layouts
from lcstore.read.resolved import Resolved
from lcstore.state.names import format_name
from lcstore.storage.memory import MemoryBackend

seeds = st.integers(0, 2**32 - 1)
handles = st.integers(0, 2)
nodes = st.integers(0, 1000)


class History(RuleBasedStateMachine):
    """Up to three handles on one store, each with its own training run."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = MemoryBackend.fresh()
        self.handles: list[Handle] = []
        self.known: dict[str, Known] = {}
        #: By tag: the nodes that it was set on since it was last taken away, the last one last.
        self.tagged: dict[str, list[str]] = {}
        #: Nodes that a handle went on from as the latest: then they are not kept as the latest of their run.
        self.resumed_as_latest: set[str] = set()
        self.turn = 0
        self.chunks = layouts.chunk_elements
        layouts.chunk_elements = lambda size, dtype, covered=False: CHUNK

    def teardown(self) -> None:
        layouts.chunk_elements = self.chunks
        with lcstore.open(self.backend, threads=2) as fresh:
            for known in self.kept():
                self.restores(fresh, known)
            assert not self.known or fresh.verify(level="checksum").ok
        for handle in self.handles:
            handle.store.close()

    def kept(self) -> list[Known]:
        """The nodes that must be there."""
        return list(self.known.values())

    # Handles ------------------------------------------------------------------------------------------------

    @initialize(seed=seeds, dtype=st.sampled_from(DTYPES), threads=st.sampled_from([1, 2]))
    def begin(self, seed, dtype, threads):
        self.opened(threads).begin(seed, dtype)

    def opened(self, threads: int) -> Handle:
        handle = Handle.open(self.backend, threads)
        self.handles.append(handle)
        return handle

    def handle(self, number: int) -> Handle:
        return self.handles[number % len(self.handles)]

    @rule(which=handles, threads=st.sampled_from([1, 2]), resume=st.booleans())
    def another_handle(self, which, threads, resume):
        """A second process: it writes beside the others, or goes on from the latest state."""
        like = self.handle(which)
        if len(self.handles) == 3:
            self.handles.pop(0).store.close()
        new = self.opened(threads)
        new.like(like)
        if resume and self.kept():
            self.go_on(new, "latest", max(self.kept(), key=lambda k: k.order))

    # Training -----------------------------------------------------------------------------------------------

    @rule(which=handles, seed=seeds, size=st.sampled_from([1e-6, 1e-3, 1e-3, 1e-2, 1.0]))
    def train(self, which, seed, size):
        self.handle(which).train(seed, size)

    @rule(
        which=handles,
        name=st.sampled_from(WEIGHTS),
        seed=seeds,
        what=st.sampled_from(
            ["add", "remove", "dtype", "rename", "zero", "minus", "nan", "inf", "grow", "tiny"]
        ),
        dtype=st.sampled_from(DTYPES),
        shape=st.sampled_from(SHAPES),
    )
    def change_one(self, which, name, seed, what, dtype, shape):
        self.handle(which).change_one(name, seed, what, dtype, shape)

    @rule(which=handles, what=st.sampled_from(["optimizer", "bool", "complex", "scalar", "empty", "order"]))
    def change_tree(self, which, what):
        self.handle(which).change_tree(what)

    # Saving -------------------------------------------------------------------------------------------------

    @rule(
        which=handles,
        step=st.integers(0, 12),
        exact=st.sampled_from([False, False, True]),
        tags=st.lists(st.sampled_from(["good", "bad"]), max_size=2, unique=True),
    )
    def save(self, which, step, exact, tags):
        self.saved(self.handle(which), step, exact, tags)

    @rule(which=handles, seed=seeds, size=st.sampled_from([1e-5, 1e-3, 1e-1]), count=st.integers(1, 3))
    def train_and_save(self, which, seed, size, count):
        handle = self.handle(which)
        for step in range(count):
            handle.train(seed + step, size)
            self.saved(handle, 20 + step, False, [])

    def saved(self, handle: Handle, step: int, exact: bool, tags: list[str]) -> None:
        run = max((known.order[1] for known in self.known.values()), default=0) + 1
        info = handle.store.save(step, handle.tree(), exact=exact, tags=tags)
        order = self.take_in(handle, info.node, tuple(tags), handle.seen, exact)
        if not handle.orders:
            assert order[1] == run
        assert all(order > earlier for earlier in handle.orders)
        handle.orders.append(order)
        handle.seen = self.known[info.node].seen
        assert {known.node for known in self.kept()} <= self.listed() <= set(self.known)

    @rule(
        which=handles,
        step=st.integers(0, 12),
        exact=st.booleans(),
        kind=st.sampled_from([*KINDS, "full"]),
        at=st.integers(0, 11),
        seed=seeds,
    )
    def save_that_fails(self, which, step, exact, kind, at, seed):
        """One operation fails; whatever came of it, a retry works and the handle goes on rightly."""
        handle = self.handle(which)
        handle.train(seed, 1e-2)
        before = handle.seen
        handle.arm(kind, at)
        try:
            info = handle.store.save(step, handle.tree(), exact=exact, tags=["good"])
        except StorageError:
            info = None
        handle.disarm()
        landed = self.listed() - set(self.known)
        assert len(landed) <= 1
        for node in landed:
            handle.orders.append(self.take_in(handle, node, ("good",), before, exact))
        if info is not None:
            handle.store._writer._superseded.let_go(self.backend)  # as the next save does
            assert landed == {info.node}
            handle.seen = self.known[info.node].seen
            return
        handle.seen = before.after(leaves({"model": handle.state})).either(before)
        retried = handle.store.save(step, handle.tree(), exact=exact, tags=["good"])
        # A commit that was open may have landed only now.
        for node in self.landed():
            handle.orders.append(self.take_in(handle, node, ("good",), handle.seen, exact))
        assert retried.node in self.known
        handle.orders.sort()
        handle.seen = self.known[retried.node].seen

    def landed(self) -> list[str]:
        """Nodes not seen before, in the order of their commits."""
        names = map(keys.parse_node_key, self.backend.list(keys.NODES))
        new = self.listed() - set(self.known)
        return [n.node for n in sorted(names, key=lambda n: n.order) if n.node in new]

    def listed(self) -> set[str]:
        """Nodes that are there, but for those that a writer let go of before it acknowledged them."""
        there = {keys.parse_node_key(key).node for key in self.backend.list(keys.NODES)}
        return there - {node for node in there - set(self.known) if self.is_disowned(node)}

    def is_disowned(self, node: str) -> bool:
        alive = [handle.store._writer for handle in self.handles if not handle.faulty.dead]
        if any(node in writer._superseded._disowned for writer in alive):
            return True
        marks = [key for key in self.backend.list(keys.RETIRED) if key.startswith(f"{keys.RETIRED}/{node}-")]
        return any(b"not acknowledged" in self.backend.get(key) for key in marks)

    def take_in(
        self, handle: Handle, node: str, tags: tuple[str, ...], seen: Seen, exact: bool
    ) -> tuple[int, int]:
        """Look at a new node for the first time: is it what was saved? Remember what it gave."""
        with lcstore.open(self.backend, "r", threads=1) as fresh:
            back = fresh.restore(node)
            info = fresh.info(node)
            roles = {path: role for path, (_, _, role) in fresh.paths(node).items()}
            track, pools = _without_exactness(fresh, node)
        truth, got = leaves(handle.tree()), leaves(back)
        assert list(truth) == list(got) == list(roles)
        assert plain(back) == plain(handle.tree())
        now = seen.after({path: truth[path] for path in truth if roles[path] == "weights"})
        for path, value in truth.items():
            assert got[path].dtype == value.dtype
            assert got[path].shape == value.shape
            if exact or roles[path] == "plain":
                assert got[path].tobytes() == value.tobytes(), path
            elif roles[path] == "weights" and got[path].tobytes() != value.tobytes():
                assert now.near(path, got[path], value), path
            elif roles[path] == "second_moment":
                np.testing.assert_array_equal(got[path] == 0, value == 0)
        order = (info.seq, info.run)
        self.known[node] = Known(
            node, info.step, (*order, node), tags, checksums(back), plain(back), now, back, track, pools
        )
        for tag in tags:
            self.tagged.setdefault(tag, []).append(node)
        assert info.tags == tuple(sorted(tags))
        head = handle.store._writer.head
        if head is not None and head.node == node and not exact:
            ops = handle.store._writer.track.columns.op
            held = tracked(handle.store)
            for path, op in zip(roles, ops, strict=True):
                if op == ADD:
                    assert held[path] == got[path].tobytes(), path
        return order

    # Going back ---------------------------------------------------------------------------------------------

    def go_on(self, handle: Handle, at: Any, known: Known) -> None:
        if known.stripped:
            head = handle.store._writer.head
            with pytest.raises(NotFoundError):
                handle.store.resume(at)
            assert handle.store._writer.head == head
            return
        back = handle.store.resume(at)
        if at == "latest":
            self.resumed_as_latest.add(known.node)
        assert checksums(back) == known.sums
        assert handle.store._writer.head.node == known.node
        handle.back_to(back, known.seen)

    @precondition(lambda self: self.kept())
    @rule(which=handles, number=nodes, by=st.sampled_from(["step", "tag", "node"]))
    def resume(self, which, number, by):
        known = self.any(number)
        at: Any = known.node
        if by == "step":
            at = known.step
        elif by == "tag":
            at = next((tag for tag, on in self.tagged.items() if known.node in on), at)
        self.go_on(self.handle(which), at, self.meant(at, self.handle(which)))

    @precondition(lambda self: self.kept())
    @rule(which=handles, number=nodes)
    def resume_that_fails(self, which, number):
        """What cannot be given back moves nothing."""
        handle = self.handle(which)
        head = handle.store._writer.head
        with pytest.raises(LcstoreError):
            handle.store.resume_into(self.any(number).node, {"nothing": np.zeros(3)})
        with pytest.raises(LcstoreError):
            handle.store.resume(self.any(number).node, like={"model": {"nothing": np.zeros(3)}})
        assert handle.store._writer.head == head

    def any(self, number: int) -> Known:
        return self.kept()[number % len(self.kept())]

    def own(self, handle: Handle) -> list[Known]:
        """Those kept that the run of a handle saved, as far as it has saved."""
        mine = [known for known in self.kept() if known.order[:2] in handle.orders]
        return [known for known in mine if known.order[1] == handle.orders[-1][1]]

    def meant(self, at: Any, handle: Handle | None = None) -> Known:
        if at in self.known:
            return self.known[at]
        kept = {known.node: known for known in self.kept()}
        tagged = [kept[node] for node in self.tagged.get(at, ()) if node in kept]
        if tagged:
            return tagged[-1]  # the one on which it was set last
        own = [] if handle is None else [known for known in self.own(handle) if known.step == at]
        return max(own or (k for k in kept.values() if k.step == at), key=lambda known: known.order)

    # Looking ------------------------------------------------------------------------------------------------

    def restores(self, store: lcstore.Store, known: Known) -> None:
        if not known.stripped:
            back = store.restore(known.node)
            assert checksums(back) == known.sums
            assert plain(back) == known.plain
            return
        with pytest.raises(NotFoundError):
            store.restore(known.node)
        rest = [path for path in known.sums if path not in known.stripped]
        if rest:
            found = checksums(store.restore(known.node, names=rest))
            assert found == {path: known.sums[path] for path in rest}

    @precondition(lambda self: self.kept())
    @rule(which=handles, number=nodes, name=st.sampled_from([*WEIGHTS, "ids"]), rows=st.slices(40))
    def look_at_a_part(self, which, number, name, rows):
        store, known = self.handle(which).store, self.any(number)
        path = f"model/{name}"
        if path in known.stripped:
            with pytest.raises(NotFoundError):
                store.read(known.node, path)
            return
        if path not in known.sums:
            for look in (store.read, lambda at, exact: store.restore(at, names=exact)):
                with pytest.raises(NotFoundError, match="lcstore show"):
                    look(known.node, path)
            with pytest.raises(NotFoundError, match="nothing that matches"):
                store.restore(known.node, names=f"{path}/**")
            return
        part = store.restore(known.node, names=path)
        assert checksums(part) == {path: known.sums[path]}
        whole = part["model"][name]
        for sel in (rows, 0 if len(whole) else (), (rows, slice(1, 3)), (..., 0), ()):
            if sel == (..., 0) and not whole.shape[-1]:
                continue
            assert store.read(known.node, path, sel).tobytes() == np.asarray(whole[sel]).tobytes()

    def sampled(self) -> list[Known]:
        """Those that are restored after every rule."""
        return [self.any(self.turn), self.any(self.turn * 7)]

    @invariant()
    def every_handle_sees_the_same(self):
        if not self.handles:
            return
        self.turn += 1
        handle = self.handle(self.turn)
        kept = self.kept()
        if not kept:
            assert handle.store.latest_step() is None
            return
        assert handle.store.steps() == sorted({known.step for known in kept})
        # The latest of a handle that saves is its own run's.
        mine = self.own(handle)
        latest = max(mine or kept, key=lambda known: known.order)
        assert handle.store.latest_step() == latest.step
        assert handle.store.info().node == latest.node
        for known in self.sampled():
            self.restores(handle.store, known)
            assert handle.store.info(known.step).node == self.meant(known.step, handle).node
        if self.turn % 8 == 0:
            report = handle.store.verify(level="checksum")
            assert report.ok, report


def _without_exactness(store: lcstore.Store, node: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """What a node would give without its exact value, and which tensors lie in which pool."""
    state = Resolved(store._reader, store._index.refresh(full=True).nodes[node])
    composer = state.compose(state.node.everything)
    sums: dict[str, str] = {}
    pools: dict[str, list[str]] = {}
    for tensor, spec in enumerate(state.node.layout.tensors):
        path = format_name(spec.name)
        sums[path] = checksum(composer.values(tensor).reshape(spec.shape))
        pools.setdefault(spec.pool, []).append(path)
    return sums, pools
