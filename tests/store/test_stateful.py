"""Any history of saves, failures, resumes and branches, against a plain model: what was there stays so."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from states import leaves, tracked

import lcstore
from lcstore import LcstoreError, StorageError
from lcstore.state import plan as plans
from lcstore.store import keys
from lcstore.store.memory import MemoryBackend
from lcstore.testing.faults import Fault, FaultBackend, FaultKind, Operation
from lcstore.track.columns import ADD

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BFLOAT16]
#: Rounding of a dtype relative to the largest value, and what its subnormals add.
ROUNDING = {"float32": (2.0**-22, 0.0), "float64": (2.0**-51, 0.0), "float16": (2.0**-10, 1e-7)}
SHAPES = [(8, 16), (40, 33), (3, 1, 7), (1, 1), (0, 4), (70, 40)]
WEIGHTS = [f"{name}.weight" for name in "abcd"]
KINDS: list[FaultKind] = ["eio", "lost_reply", "lost_request"]
#: So small that the pools of these states have several chunks.
CHUNK = 2048

seeds = st.integers(0, 2**32 - 1)
handles = st.integers(0, 2)
nodes = st.integers(0, 1000)


def checksums(state: Any) -> dict[str, str]:
    return {
        path: hashlib.sha256(f"{a.dtype}{a.shape}".encode() + a.tobytes()).hexdigest()
        for path, a in leaves(state).items()
    }


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


@dataclass
class Seen:
    """Per tensor of weights: its last values, the size of its last change, the largest value it ever had."""

    values: dict[str, np.ndarray] = field(default_factory=dict)
    change: dict[str, float] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)

    def after(self, state: dict[str, np.ndarray]) -> Seen:
        new = Seen()
        for path, array in state.items():
            if array.dtype not in DTYPES or not np.isfinite(array.astype(np.float64)).all():
                continue
            now = array.astype(np.float64)
            last = self.values.get(path)
            same_place = last is not None and last.shape == now.shape
            change = rms(now - last) if last is not None and same_place else rms(now)
            new.values[path] = now
            new.change[path] = change if change > 0 else self.change.get(path, 0.0)
            new.peak[path] = max(float(np.max(np.abs(now), initial=0)), self.peak.get(path, 0.0))
        return new

    def either(self, other: Seen) -> Seen:
        """What holds where it is open which of two was last."""
        paths = self.change.keys() | other.change.keys()
        change = {p: max(self.change.get(p, 0.0), other.change.get(p, 0.0)) for p in paths}
        return Seen(self.values, change, {p: max(self.peak.get(p, 0), other.peak.get(p, 0)) for p in paths})


@dataclass
class Handle:
    """An opened store, and the training run that uses it."""

    store: lcstore.Store
    faulty: FaultBackend
    armed: list[Any]
    state: dict[str, np.ndarray] = field(default_factory=dict)
    optimizer: bool = False
    epoch: int = 0
    seen: Seen = field(default_factory=Seen)
    orders: list[tuple[int, int]] = field(default_factory=list)

    def tree(self) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "model": dict(self.state),
            "epoch": self.epoch,
            "rng": bytes([self.epoch % 256]) * 5,
            "notes": [None, True, 1.5, f"epoch {self.epoch}"],
        }
        if self.optimizer:
            rng = np.random.default_rng(self.epoch)
            tree["optim"] = {
                "state": {
                    name: {
                        "step": np.float32(self.epoch),
                        "exp_avg": rng.standard_normal(array.shape).astype(np.float32) * 1e-3,
                        "exp_avg_sq": rng.random(array.shape).astype(np.float32) * 1e-6,
                    }
                    for name, array in self.state.items()
                    if name.endswith(".weight")
                },
            }
        return tree


@dataclass
class Known:
    """A node that is there, and what it gave back when it was first looked at."""

    node: str
    step: int
    order: tuple[int, int, str]
    tags: tuple[str, ...]
    sums: dict[str, str]
    plain: dict[str, object]
    seen: Seen
    tree: dict[str, Any]


class History(RuleBasedStateMachine):
    """Up to three handles on one store, each with its own training run."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = MemoryBackend.fresh()
        self.handles: list[Handle] = []
        self.known: dict[str, Known] = {}
        self.turn = 0
        self.chunks = plans.chunk_elements
        plans.chunk_elements = lambda size, dtype: CHUNK

    def teardown(self) -> None:
        plans.chunk_elements = self.chunks
        with lcstore.open(self.backend, threads=2) as fresh:
            for known in self.known.values():
                self.restores(fresh, known)
            assert not self.known or fresh.verify(level="checksum").ok
        for handle in self.handles:
            handle.store.close()

    # Handles ------------------------------------------------------------------------------------------------

    @initialize(seed=seeds, dtype=st.sampled_from(DTYPES), threads=st.sampled_from([1, 2]))
    def begin(self, seed, dtype, threads):
        handle = self.opened(threads)
        rng = np.random.default_rng(seed)
        for name, shape in zip(WEIGHTS[:3], [(40, 33), (8, 16), (70, 40)], strict=True):
            handle.state[name] = rng.standard_normal(shape).astype(dtype)
        handle.state["bn.running_mean"] = rng.standard_normal(9).astype(dtype)
        handle.state["ids"] = np.arange(12).reshape(3, 4)

    def opened(self, threads: int) -> Handle:
        armed: list[Any] = [None, 0]

        def strikes(kind: str):
            def when(operation: Operation) -> bool:
                if armed[0] == "full" and kind == "eio":
                    return operation.name == "put" and operation.number >= armed[1]
                return bool(armed[0] == kind and operation.number == armed[1])

            return when

        faulty = FaultBackend(self.backend, {strikes(kind): Fault(kind, None) for kind in KINDS})
        handle = Handle(lcstore.open(faulty, threads=threads), faulty, armed)
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
        new.state, new.optimizer, new.epoch = dict(like.state), like.optimizer, like.epoch
        if resume and self.known:
            self.go_on(new, "latest", max(self.known.values(), key=lambda k: k.order))

    # Training -----------------------------------------------------------------------------------------------

    @rule(which=handles, seed=seeds, size=st.sampled_from([1e-6, 1e-3, 1e-3, 1e-2, 1.0]))
    def train(self, which, seed, size):
        self.trained(self.handle(which), seed, size)

    def trained(self, handle: Handle, seed: int, size: float) -> None:
        rng = np.random.default_rng(seed)
        handle.epoch += 1
        with np.errstate(all="ignore"):
            for name, array in handle.state.items():
                if array.dtype in DTYPES:
                    moved = array.astype(np.float64) + rng.standard_normal(array.shape) * size
                    handle.state[name] = np.clip(moved, -6e4, 6e4).astype(array.dtype)
                elif name == "ids" and rng.random() < 0.3:
                    handle.state[name] = array + 1

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
        state = self.handle(which).state
        rng = np.random.default_rng(seed)
        if what == "add" or name not in state:
            state[name] = rng.standard_normal(shape).astype(dtype)
            return
        array = state.pop(name)
        if what == "dtype":
            state[name] = array.astype(dtype)
        elif what == "rename":
            state[WEIGHTS[seed % len(WEIGHTS)]] = array
        elif what in ("zero", "minus"):
            state[name] = np.zeros_like(array) if what == "zero" else -np.zeros_like(array)
        elif what in ("nan", "inf"):
            state[name] = array.copy()
            state[name].reshape(-1)[:1] = np.nan if what == "nan" else -np.inf
        elif what in ("grow", "tiny"):
            wide = np.clip(array.astype(np.float64) * (100 if what == "grow" else 1e-4), -6e4, 6e4)
            state[name] = wide.astype(array.dtype)

    @rule(which=handles, what=st.sampled_from(["optimizer", "bool", "complex", "scalar", "empty", "order"]))
    def change_tree(self, which, what):
        handle = self.handle(which)
        if what == "optimizer":
            handle.optimizer = not handle.optimizer
        elif what == "order":
            handle.state = dict(reversed(handle.state.items()))
        else:
            value = {
                "bool": np.array([[True, False, True]]),
                "complex": np.array([1 + 2j, complex("nan")]),
                "scalar": np.float64(handle.epoch),
                "empty": np.zeros((0, 3), np.int8),
            }[what]
            if handle.state.pop(what, None) is None:
                handle.state[what] = value

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
            self.trained(handle, seed + step, size)
            self.saved(handle, 20 + step, False, [])

    def saved(self, handle: Handle, step: int, exact: bool, tags: list[str]) -> None:
        run = max((known.order[0] for known in self.known.values()), default=0) + 1
        info = handle.store.save(step, handle.tree(), exact=exact, tags=tags)
        order = self.take_in(handle, info.node, tuple(tags), handle.seen, exact)
        if not handle.orders:
            assert order[0] == run
        assert all(order > earlier for earlier in handle.orders)
        handle.orders.append(order)
        handle.seen = self.known[info.node].seen
        assert self.listed() == set(self.known)

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
        self.trained(handle, seed, 1e-2)
        before = handle.seen
        handle.armed[:] = [kind, len(handle.faulty.log) + at]
        try:
            info = handle.store.save(step, handle.tree(), exact=exact, tags=["good"])
        except StorageError:
            info = None
        handle.armed[0] = None
        landed = self.listed() - set(self.known)
        assert len(landed) <= 1
        for node in landed:
            order = self.take_in(handle, node, ("good",), before, exact)
            handle.orders.append(order)
        if info is not None:
            assert landed == {info.node}
            handle.seen = self.known[info.node].seen
            return
        handle.seen = before.after(leaves({"model": handle.state})).either(before)
        retried = handle.store.save(step, handle.tree(), exact=exact, tags=["good"])
        # A commit that was open may have landed only now.
        for node in self.landed():
            order = self.take_in(handle, node, ("good",), handle.seen, exact)
            handle.orders.append(order)
        assert retried.node in self.known
        handle.orders.sort()
        handle.seen = self.known[retried.node].seen

    def landed(self) -> list[str]:
        """Nodes not seen before, in the order of their commits."""
        names = map(keys.parse_node_key, self.backend.list(keys.NODES))
        return [n.node for n in sorted(names, key=lambda n: n.order) if n.node not in self.known]

    def listed(self) -> set[str]:
        return {keys.parse_node_key(key).node for key in self.backend.list(keys.NODES)}

    def take_in(
        self, handle: Handle, node: str, tags: tuple[str, ...], seen: Seen, exact: bool
    ) -> tuple[int, int]:
        """Look at a new node for the first time: is it what was saved? Remember what it gave."""
        with lcstore.open(self.backend, "r", threads=1) as fresh:
            back = fresh.restore(node)
            info = fresh.info(node)
            roles = {path: role for path, (_, _, role) in fresh.paths(node).items()}
        truth, got = leaves(handle.tree()), leaves(back)
        assert list(truth) == list(got) == list(roles)
        assert {k: v for k, v in back.items() if k not in ("model", "optim")} == {
            k: v for k, v in handle.tree().items() if k not in ("model", "optim")
        }
        now = seen.after({path: truth[path] for path in truth if roles[path] == "weights"})
        for path, value in truth.items():
            assert got[path].dtype == value.dtype
            assert got[path].shape == value.shape
            if exact or roles[path] == "exact":
                assert got[path].tobytes() == value.tobytes(), path
            elif roles[path] == "weights" and got[path].tobytes() != value.tobytes():
                relative, smallest = ROUNDING.get(str(value.dtype), (2.0**-7, 0.0))
                error = rms(got[path].astype(np.float64) - value.astype(np.float64))
                peak = now.peak[path]
                assert error <= 4 * now.change[path] + peak * relative + smallest, path
            elif roles[path] == "second_moment":
                np.testing.assert_array_equal(got[path] == 0, value == 0)
        order = (info.run, info.seq)
        plain = {k: v for k, v in back.items() if k not in ("model", "optim")}
        self.known[node] = Known(node, info.step, (*order, node), tags, checksums(back), plain, now, back)
        assert info.tags == tags
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
        back = handle.store.resume(at)
        assert checksums(back) == known.sums
        assert handle.store._writer.head.node == known.node
        handle.state = dict(back["model"])
        handle.optimizer = "optim" in back
        handle.epoch = back["epoch"]
        values = {
            path: array.astype(np.float64)
            for path, array in leaves(back).items()
            if path in known.seen.values
        }
        handle.seen = Seen(values, dict(known.seen.change), dict(known.seen.peak))

    @precondition(lambda self: self.known)
    @rule(which=handles, number=nodes, by=st.sampled_from(["step", "tag", "node"]))
    def resume(self, which, number, by):
        known = self.any(number)
        at: Any = known.node
        if by == "step":
            at = known.step
        elif by == "tag" and known.tags:
            at = known.tags[0]
        self.go_on(self.handle(which), at, self.meant(at))

    @precondition(lambda self: self.known)
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
        return list(self.known.values())[number % len(self.known)]

    def meant(self, at: Any) -> Known:
        if at in self.known:
            return self.known[at]
        tagged = [known for known in self.known.values() if at in known.tags]
        if tagged:
            return tagged[-1]  # the one on which it was set last
        return max((k for k in self.known.values() if k.step == at), key=lambda known: known.order)

    # Looking ------------------------------------------------------------------------------------------------

    def restores(self, store: lcstore.Store, known: Known) -> None:
        back = store.restore(known.node)
        assert checksums(back) == known.sums
        assert {k: v for k, v in back.items() if k not in ("model", "optim")} == known.plain

    @precondition(lambda self: self.known)
    @rule(which=handles, number=nodes, name=st.sampled_from([*WEIGHTS, "ids"]), rows=st.slices(40))
    def look_at_a_part(self, which, number, name, rows):
        store, known = self.handle(which).store, self.any(number)
        path = f"model/{name}"
        part = store.restore(known.node, keys=path)
        if path not in known.sums:
            assert not leaves(part)
            with pytest.raises(lcstore.NotFoundError):
                store.read(known.node, path)
            return
        assert checksums(part) == {path: known.sums[path]}
        whole = known.tree["model"][name]
        for sel in (rows, 0 if len(whole) else (), (rows, slice(1, 3)), (..., 0), ()):
            if sel == (..., 0) and not whole.shape[-1]:
                continue
            assert store.read(known.node, path, sel).tobytes() == np.asarray(whole[sel]).tobytes()

    @invariant()
    def every_handle_sees_the_same(self):
        if not self.handles:
            return
        self.turn += 1
        handle = self.handle(self.turn)
        if not self.known:
            assert handle.store.latest_step() is None
            return
        assert handle.store.steps() == sorted({known.step for known in self.known.values()})
        latest = max(self.known.values(), key=lambda known: known.order)
        assert handle.store.latest_step() == latest.step
        assert handle.store.info().node == latest.node
        for known in (self.any(self.turn), self.any(self.turn * 7)):
            self.restores(handle.store, known)
            assert handle.store.info(known.step).node == self.meant(known.step).node
        if self.turn % 8 == 0:
            report = handle.store.verify(level="checksum")
            assert report.ok, report


_QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}

TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=30, stateful_step_count=30, **_QUIET)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestLongHistory(History.TestCase):
    settings = settings(max_examples=100, stateful_step_count=50, **_QUIET)
