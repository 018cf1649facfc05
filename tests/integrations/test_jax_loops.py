"""The loops of docs/jax.md: each is killed, goes on, and ends where one that was not killed ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit import programs
from kit.pages import LOOP, blocks_of

import lcstore

jax = pytest.importorskip("jax")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what flax itself imports
    pytest.importorskip("flax.nnx")
    pytest.importorskip("optax")

LOOPS = {
    name: block.code
    for block in blocks_of("docs/jax.md", "python")
    if LOOP in block.words
    for name in ("linen", "nnx")
    if f'"runs/{name}"' in block.code
}
LAST = 99
#: What the parameters of a run that was interrupted once may be away from those of one that was not.
BOUND = 0.1
#: Ends the process after a step, as a machine would.
KILL = """
import os, signal
def after(step, at={at}):
    if step == at:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def lossless(name: str) -> str:
    code = LOOPS[name].replace("every=10", 'every=10, policy="lossless"')
    assert code != LOOPS[name]
    return code


def until(step: int, code: str) -> str:
    """Return a loop that ends after a step."""
    assert "else 0, 100)" in code
    return code.replace("else 0, 100)", f"else 0, {step + 1})")


def start(folder: Path, code: str) -> int:
    (folder / "train.py").write_text(code, encoding="utf-8")
    using = ("jax", "flax.linen", "flax.nnx", "optax")
    return programs.run(folder / "train.py", using=using, cwd=folder, quiet=True).returncode


def params_of(url: Path) -> dict[str, np.ndarray]:
    """Return all arrays of the latest state."""
    with lcstore.open(url, "r") as store:
        assert store.latest_step() == 99
        return {name: store.read(None, name, to="numpy") for name in store.paths()}


def test_both_libraries_have_a_loop():
    assert LOOPS.keys() == {"linen", "nnx"}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_is_killed_ends_where_one_that_is_not_ends(name, tmp_path, monkeypatch):
    save = "        manager.save(step, "
    code = lossless(name)
    assert code.count(save) == 1
    killed = KILL.format(at=57) + code.replace(save, f"        after(step)\n{save}")
    assert start(tmp_path, killed) == -signal.SIGKILL
    with lcstore.open(tmp_path / "runs" / name, "r") as store:
        assert store.latest_step() in (40, 50)  # the last save may have been under way
    assert start(tmp_path, code) == 0
    whole = tmp_path / "whole"
    whole.mkdir()
    monkeypatch.chdir(whole)
    exec(compile(code, "docs/jax.md", "exec"), {})
    one, other = params_of(tmp_path / "runs" / name), params_of(whole / "runs" / name)
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[path], other[path]) for path in one)


def vector(space: dict[str, Any]) -> np.ndarray:
    """Return all that was learned."""
    learned = (
        space["state"].params if "net" in space else space["nnx"].state(space["model"], space["nnx"].Param)
    )
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(learned)])


@pytest.mark.parametrize("name", LOOPS)
def test_at_the_default_quality_it_ends_near_by(name, tmp_path, monkeypatch):
    found = {}
    for folder, parts in {"whole": (LAST,), "interrupted": (57, LAST)}.items():
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        for last in parts:
            space: dict[str, Any] = {}
            exec(compile(until(last, LOOPS[name]), "docs/jax.md", "exec"), space)
        found[folder] = vector(space)
    distance = np.linalg.norm(found["interrupted"] - found["whole"]) / np.linalg.norm(found["whole"])
    assert 0 < distance < BOUND, distance
    with lcstore.open(tmp_path / "interrupted" / "runs" / name, "r") as store:
        roles = {role for _, _, role in store.paths().values()}
        assert roles == {"weights", "first_moment", "second_moment", "plain"}
        assert store.info().kind == "delta"


SPREAD = """
import sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import lcstore

def spread(count):
    return NamedSharding(Mesh(np.array(jax.devices()[:count]), ("data",)), PartitionSpec("data"))

def state(sharding, step):
    kernel = (np.arange(4096.0).reshape(64, 64) + step).astype(jax.numpy.bfloat16)
    tree = {"params": {"kernel": kernel}, "keys": jax.random.split(jax.random.key(step), 4)}
    return jax.device_put(tree, sharding)

store = lcstore.open(sys.argv[1], policy="lossless")
for step in range(2):
    store.save(step, state(spread(4), step))
for like in (state(spread(4), 5), state(spread(2), 5), state(jax.devices()[3], 5)):
    back = store.resume(like=like)
    for one, other, wanted in zip(*map(jax.tree.leaves, (back, state(spread(4), 1), like)), strict=True):
        assert one.sharding == wanted.sharding and one.dtype == other.dtype
        if one.dtype != jax.numpy.bfloat16:
            one, other = map(jax.random.key_data, (one, other))
        assert np.array_equal(one, other)

@jax.jit
def update(tree):
    key, drawn = jax.random.split(tree["key"])
    kernel = tree["kernel"] + jax.random.normal(drawn, (64, 64))
    return {"kernel": kernel, "key": key, "count": tree["count"] + 1, "mean": tree["mean"] + kernel}

# What was put nowhere goes along with what is on any devices.
fresh = {"key": jax.random.key(0), "count": jax.numpy.zeros((), int), "mean": jax.numpy.ones((64, 64))}
fresh["kernel"] = jax.device_put(jax.numpy.ones((64, 64)), spread(4))
store.save(2, fresh)
for devices in (4, 2, 1):
    like = {**fresh, "kernel": jax.device_put(fresh["kernel"], spread(devices))}
    back = update(store.restore(2, like=like))
    for one, wanted in zip(*map(jax.tree.leaves, (back, update(like))), strict=True):
        assert one.sharding == wanted.sharding
        assert one.size > 1 or one == wanted
kernel = jax.ShapeDtypeStruct((64, 64), "bfloat16", sharding=spread(3))
try:
    store.restore(1, like={"params": {"kernel": kernel}})
except lcstore.InvalidInputError as error:
    assert "tensor 'params/kernel': it cannot lie where `like` says" in str(error), error
else:
    raise AssertionError("64 rows are no whole number on each of 3 devices")
print(len(jax.devices()), "devices")
"""


def test_arrays_on_several_devices_come_back_as_like_is_spread(tmp_path):
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-W", "ignore", "-c", SPREAD, str(tmp_path / "run")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert ended.stdout.endswith("4 devices\n"), (
        ended.stderr
    )  # JAX prints where it was asked what it cannot do
