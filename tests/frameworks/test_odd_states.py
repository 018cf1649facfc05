"""Odd states are trained, saved and resumed: beside a run that never stopped, and an exact resume."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest

import lcstore
from lcstore.storage.memory import MemoryBackend

torch = pytest.importorskip("torch")
runs = pytest.importorskip("odd_runs")
optim = torch.optim

#: States of a few thousand values are small, and hold much that is plain.
pytestmark = pytest.mark.filterwarnings("ignore::lcstore.UnrecognisedWarning")

#: A save each so many steps, the step that is resumed from, and the end.
EVERY, RESUMED, END = 4, 20, 33
#: By policy, so many saves earlier the exact run was no better than what is resumed is now. Under `small` a
#: state is two saves behind, and begins without its first moments.
BEHIND = {"lossless": 0, "high": 1, "balanced": 1, "small": 3}


def adam(parameters):
    return optim.AdamW(parameters, lr=3e-3)


def installed(library: str, name: str) -> Callable[[Any], Any]:
    """What makes an optimizer of a library, which may not be there."""

    def make(parameters):
        return getattr(pytest.importorskip(library), name)(parameters, lr=3e-3)

    return make


class Case(NamedTuple):
    """What is trained, and what of its state is to come back bit for bit: parts of names."""

    make: Callable[[], Any]
    optimizer: Callable[[Any], Any]
    exact: tuple[str, ...] = ()
    full: bool = False


CASES = {
    "BatchNorm": Case(runs.normed, adam, ("running_mean", "running_var", "num_batches_tracked", "bias")),
    "LoRA": Case(runs.Adapted, adam, ("base.bias",)),
    "tied": Case(runs.Tied, adam),
    "masks": Case(runs.Masked, adam, ("causal", "model/weight")),
    "centered RMSprop": Case(
        runs.plain, lambda p: optim.RMSprop(p, lr=1e-3, centered=True), ("square_avg", "grad_avg")
    ),
    "momentum": Case(runs.plain, lambda p: optim.SGD(p, lr=0.1, momentum=0.9), ("bias",)),
    "average, schedule, scaler": Case(
        runs.plain,
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        ("schedule", "scaler", "n_averaged"),
        full=True,
    ),
    "bfloat16": Case(lambda: runs.Narrow(torch.bfloat16), adam, ("e4m3fn", "e5m2")),
    "float16": Case(lambda: runs.Narrow(torch.float16), lambda p: optim.SGD(p, lr=0.1), ("e4m3fn", "e5m2")),
    "8 bits": Case(runs.plain, lambda p: runs.Adam8(p, 3e-3), ("codes", "scale")),
    "bitsandbytes": Case(
        runs.plain, installed("bitsandbytes.optim", "AdamW8bit"), ("state", "absmax", "qmap")
    ),
    "torchao": Case(runs.plain, installed("torchao.optim", "AdamW8bit"), ("codes", "scale", "qmap")),
}


class Trained(NamedTuple):
    """A run that never stopped: the loss by step, what was saved at one of them, and what it had there."""

    losses: dict[int, float]
    saved: bytes
    values: dict[str, Any]
    last: dict[str, Any]
    backends: dict[str, MemoryBackend]


def made(name: str, seed: int):
    case = CASES[name]
    return runs.Run(case.make, case.optimizer, seed, full=case.full)


@cache
def trained(name: str) -> Trained:
    run = made(name, 0)
    backends = {policy: MemoryBackend.fresh() for policy in BEHIND}
    managers = [
        lcstore.CheckpointManager(backend, every=EVERY, policy=policy) for policy, backend in backends.items()
    ]
    losses, kept = {}, None
    for manager in managers:
        manager.save(0, run.parts)  # an optimizer has kept nothing as yet
    for step in run.train(range(1, END)):
        losses[step] = run.tested()
        for manager in managers if step <= RESUMED + 2 else ():
            manager.save(step, run.parts)
        if step == RESUMED:
            kept = run.saved(), run.values()
    for manager in managers:
        manager.close()
    assert kept is not None
    return Trained(losses, *kept, run.values(), backends)


@pytest.fixture(autouse=True)
def quick(monkeypatch, one_thread):
    """Have small models on one thread, and nothing compiled, as torchao does with each step."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


@pytest.mark.parametrize("policy", BEHIND)
@pytest.mark.parametrize("name", CASES)
def test_what_is_resumed_goes_on_as_the_exact_state_does(name, policy):
    before = trained(name)
    run = made(name, 1)
    with lcstore.CheckpointManager(before.backends[policy], every=EVERY, policy=policy) as manager:
        resumed = manager.resume_into(run.parts)
        assert resumed.step == RESUMED
        assert manager.store.info(RESUMED).kind == "delta"
        found = run.values()
        assert found.keys() == before.values.keys()
        lossless = [name for name, value in before.values.items() if found[name] == value]
        parts = CASES[name].exact if policy != "lossless" else ("",)
        wanted = [name for name in before.values if any(part in name for part in parts)]
        assert set(wanted) <= set(lossless)
        assert len(wanted) >= len(parts)
        assert policy == "lossless" or len(lossless) < len(found)

        other = made(name, 2)
        other.load(before.saved)
        ours = {RESUMED: run.tested()}
        for step, _ in zip(
            run.train(range(RESUMED + 1, END)), other.train(range(RESUMED + 1, END)), strict=True
        ):
            ours[step] = run.tested()
            manager.save(step, run.parts)
        assert other.values() == before.last
        assert other.tested() == before.losses[END - 1]
        assert manager.store.info("latest").kind == "delta"
    assert all(map(math.isfinite, ours.values()))
    if policy == "lossless":
        assert ours == {step: loss for step, loss in before.losses.items() if step >= RESUMED}
        assert run.values() == before.last
    for step, loss in ours.items():
        assert loss <= before.losses[step - EVERY * BEHIND[policy]] * 1.001


@pytest.mark.parametrize("name", CASES)
def test_a_state_before_the_first_step_begins_anew(name):
    """Moments appear with the first step: a state without them takes them from an optimizer that has some."""
    before = trained(name)
    run, fresh = made(name, 1), made(name, 0)
    for _ in run.train(range(1, 3)):
        pass
    lcstore.open(before.backends["balanced"]).restore_into(0, run.parts)
    assert run.values() == fresh.values()
