"""Training runs for the stateful tests: what they save, how good it has to come back, what is known of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from states import leaves

import lcstore
from lcstore.testing.faults import Fault, FaultBackend, FaultKind, Operation

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BFLOAT16]
#: Rounding of a dtype relative to the largest value, and what its subnormals add.
ROUNDING = {"float32": (2.0**-22, 0.0), "float64": (2.0**-51, 0.0), "float16": (2.0**-10, 1e-7)}
SHAPES = [(8, 16), (40, 33), (3, 1, 7), (1, 1), (0, 4), (70, 40)]
WEIGHTS = [f"{name}.weight" for name in "abcd"]
KINDS: list[FaultKind] = ["eio", "lost_reply", "lost_request"]
CRASHES: list[FaultKind] = ["crash_before", "crash_after"]
#: So small that the pools of these states have several chunks.
CHUNK = 2048


def checksums(state: Any) -> dict[str, str]:
    return {path: checksum(array) for path, array in leaves(state).items()}


def checksum(array: np.ndarray) -> str:
    return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()


def plain(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in ("model", "optim")}


#: Of so many last changes, the largest bounds the error.
RECENT = 20


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


@dataclass
class Seen:
    """Per tensor of weights: its last values, the sizes of its last changes, its largest value ever."""

    values: dict[str, np.ndarray] = field(default_factory=dict)
    changes: dict[str, tuple[float, ...]] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)

    def after(self, state: dict[str, np.ndarray]) -> Seen:
        new = Seen()
        for path, array in state.items():
            if array.dtype not in DTYPES or not np.isfinite(array.astype(np.float64)).all():
                continue
            now = array.astype(np.float64)
            last = self.values.get(path)
            same_place = last is not None and last.shape == now.shape
            change = rms(now - last) if last is not None and same_place else 0.0  # set, not added to
            new.values[path] = now
            new.changes[path] = (*self.changes.get(path, ()), change)[-RECENT:]
            new.peak[path] = max(float(np.max(np.abs(now), initial=0)), self.peak.get(path, 0.0))
        return new

    def either(self, other: Seen) -> Seen:
        """What holds where it is open which of two was last."""
        paths = self.changes.keys() | other.changes.keys()
        # The changes of this one come last: those in front are forgotten first.
        changes = {p: (other.changes.get(p, ()) + self.changes.get(p, ()))[-2 * RECENT :] for p in paths}
        return Seen(self.values, changes, {p: max(self.peak.get(p, 0), other.peak.get(p, 0)) for p in paths})

    def near(self, path: str, got: np.ndarray, value: np.ndarray) -> bool:
        """Whether a lossy value is near enough to the true one."""
        relative, smallest = ROUNDING.get(str(value.dtype), (2.0**-7, 0.0))
        error = rms(got.astype(np.float64) - value.astype(np.float64))
        # What is left of a great change may take some saves to come in, once hardly anything changes.
        return error <= 2 * max(self.changes[path]) + self.peak[path] * relative + smallest


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

    @classmethod
    def open(cls, backend: Any, threads: int) -> Handle:
        """Open a store such that `arm` can have an operation of it fail."""
        armed: list[Any] = [None, 0]

        def strikes(kind: str):
            def when(operation: Operation) -> bool:
                if armed[0] == "full" and kind == "eio":
                    return operation.name == "put" and operation.number >= armed[1]
                return bool(armed[0] == kind and operation.number == armed[1])

            return when

        faulty = FaultBackend(backend, {strikes(kind): Fault(kind, None) for kind in [*KINDS, *CRASHES]})
        return cls(lcstore.open(faulty, threads=threads, grace=0), faulty, armed)

    def arm(self, kind: str, later: int) -> None:
        """Have the operation after so many others fail; of kind "full" every put from there on."""
        self.armed[:] = [kind, len(self.faulty.log) + later]

    def disarm(self) -> None:
        self.armed[0] = None

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

    def begin(self, seed: int, dtype: np.dtype) -> None:
        rng = np.random.default_rng(seed)
        for name, shape in zip(WEIGHTS[:3], [(40, 33), (8, 16), (70, 40)], strict=True):
            self.state[name] = rng.standard_normal(shape).astype(dtype)
        self.state["bn.running_mean"] = rng.standard_normal(9).astype(dtype)
        # Plain, and large enough to be added to where it moves little.
        self.state["average.running_mean"] = rng.standard_normal(3000).astype(dtype)
        self.state["ids"] = np.arange(12).reshape(3, 4)

    def like(self, other: Handle) -> None:
        self.state, self.optimizer, self.epoch = dict(other.state), other.optimizer, other.epoch

    def train(self, seed: int, size: float) -> None:
        rng = np.random.default_rng(seed)
        self.epoch += 1
        with np.errstate(all="ignore"):
            for name, array in self.state.items():
                if array.dtype in DTYPES:
                    moved = array.astype(np.float64) + rng.standard_normal(array.shape) * size
                    self.state[name] = np.clip(moved, -6e4, 6e4).astype(array.dtype)
                elif name == "ids" and rng.random() < 0.3:
                    self.state[name] = array + 1

    def change_one(self, name: str, seed: int, what: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        state = self.state
        if what == "add" or name not in state:
            state[name] = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
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

    def change_tree(self, what: str) -> None:
        if what == "optimizer":
            self.optimizer = not self.optimizer
        elif what == "order":
            self.state = dict(reversed(self.state.items()))
        else:
            value = {
                "bool": np.array([[True, False, True]]),
                "complex": np.array([1 + 2j, complex("nan")]),
                "scalar": np.float64(self.epoch),
                "empty": np.zeros((0, 3), np.int8),
            }[what]
            if self.state.pop(what, None) is None:
                self.state[what] = value

    def back_to(self, back: dict[str, Any], seen: Seen) -> None:
        """Go on with what a resume gave back."""
        self.state = dict(back["model"])
        self.optimizer = "optim" in back
        self.epoch = back["epoch"]
        arrays = leaves(back)
        values = {path: arrays[path].astype(np.float64) for path in arrays if path in seen.values}
        self.seen = Seen(values, dict(seen.changes), dict(seen.peak))


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
    #: What it gives once its exact value is let go.
    track: dict[str, str] = field(default_factory=dict)
    #: Paths of the tensors in each pool, and of those that are stripped.
    pools: dict[str, list[str]] = field(default_factory=dict)
    stripped: set[str] = field(default_factory=set)
    #: Whether its exact value, where it has one, is not let go.
    exact: bool = True
