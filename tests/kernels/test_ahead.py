"""What is compiled ahead: that it is what a run needs, and that processes beside the first one compile it."""

import json
import os
import subprocess
import sys
import textwrap
from subprocess import Popen
from typing import ClassVar

import pytest

from lcstore.compiling import ahead

RUN = textwrap.dedent(
    """
    import json, sys
    import numpy as np
    from numba.core import types
    import lcstore
    from lcstore.report.gather import gather

    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((256, 256), np.float32) for _ in range(4)]

    def state(step):
        moments = {}
        for i, weight in enumerate(weights):
            moved = rng.standard_normal(weight.shape, np.float32) * np.float32(1e-3)
            weight += moved**3 * np.float32(1e6) if i == 3 else moved  # mostly zeros, and others
            first = rng.standard_normal(weight.shape, np.float32) * np.float32(1e-3)
            first[::2], first[1::2] = np.abs(first[::2]), -np.abs(first[1::2])  # rows have signs
            first[rng.random(weight.shape) < 0.1] = 0  # as of nets with ReLU
            moments[i] = {"exp_avg": first, "exp_avg_sq": np.square(first), "step": step}
        return {"model": {f"{i}.weight": w for i, w in enumerate(weights)}, "optimizer": {"state": moments}}

    with lcstore.open("memory://ahead") as store:
        for step in range(20):
            store.save(step, state(step))
        store.restore()
        assert gather(store).forecast is not None  # who looks at it waits for no others

    def text(kind):
        if not isinstance(kind, types.Array):
            return str(kind)
        dims = ", ".join([":"] * (kind.ndim - 1) + ["::1"])
        return f"{kind.dtype}[{dims}]" + ("" if kind.mutable else "!")

    called = set()
    rooms = "lcstore.kernels.", "lcstore.bitkernels."
    for module in [m for name, m in sys.modules.items() if name.startswith(rooms)]:
        for name, found in vars(module).items():
            if type(getattr(found, "_cache", None)).__name__ == "_TolerantCache":
                if found.py_func.__module__ == module.__name__:
                    for args in found.signatures:
                        full = f"{module.__name__}.{name}".removeprefix("lcstore.")
                        called.add((full, ", ".join(map(text, args))))
    print(json.dumps(sorted(called)))
    """
)


def run(*command, **environ):
    """Run Python beside this process, which has the same cache if `environ` does not say otherwise."""
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.once
def test_what_a_run_needs_is_compiled_ahead():
    run("-m", "lcstore.compiling.ahead", "0", "1")
    called = {tuple(pair) for pair in json.loads(run("-c", RUN))}
    assert sorted(called - set(ahead.TYPICAL)) == [], "kernels that a run calls are missing"
    assert sorted({name for name, _ in ahead.TYPICAL} - {name for name, _ in called}) == []


def test_a_share_is_compiled_into_the_cache(tmp_path):
    mark = tmp_path / "compiling"
    mark.touch()
    names = list(dict.fromkeys(name for name, _ in ahead.TYPICAL[::-1]))
    run("-m", "lcstore.compiling.ahead", "0", str(len(names)), str(mark), NUMBA_CACHE_DIR=str(tmp_path))
    _, module, function = names[0].split(".")
    assert [file.name.startswith(f"{module}.{function}-") for file in tmp_path.rglob("*.nbi")] == [True]
    assert not mark.exists()


class Started:
    """A helper that is only taken note of."""

    commands: ClassVar[list[list[str]]] = []

    def __init__(self, command, **rest):
        self.commands.append(command)

    def wait(self):
        return 0


@pytest.fixture
def commands(monkeypatch):
    monkeypatch.setattr(ahead, "Popen", Started)
    monkeypatch.setattr(ahead, "_cores", lambda: 3)
    monkeypatch.setattr(Started, "commands", [])
    return Started.commands


def test_one_process_has_helpers_for_the_cores_that_are_left(commands, tmp_path):
    cache = tmp_path / "cache"
    assert len(ahead.start_helpers(cache)) == 2
    mark = str(cache / "compiling")
    assert [command[3:] for command in commands] == [["0", "2", mark], ["1", "2", mark]]
    assert ahead.start_helpers(cache) == [], "another process has asked for them"


def test_helpers_that_are_gone_are_started_again(commands, tmp_path):
    ahead.start_helpers(tmp_path)
    os.utime(tmp_path / "compiling", (0, 0))
    assert len(ahead.start_helpers(tmp_path)) == 2


def test_no_helpers_where_none_can_help(commands, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    assert ahead.start_helpers(tmp_path / "file") == [], "nothing can be written there"
    monkeypatch.setenv(ahead.HELPER, "1")
    assert ahead.start_helpers(tmp_path) == [], "a helper has none"
    monkeypatch.delenv(ahead.HELPER)
    monkeypatch.setattr(ahead, "_cores", lambda: 1)
    assert ahead.start_helpers(tmp_path) == [], "no core is left"


def test_a_program_that_python_is_built_into_is_not_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "Popen", None)
    for program in ("/usr/bin/editor", "", None):
        monkeypatch.setattr(ahead.sys, "executable", program)
        assert ahead.start_helpers(tmp_path) == []
    assert [*tmp_path.iterdir()] == []


def test_a_helper_that_cannot_be_started_is_done_without(commands, tmp_path, monkeypatch):
    def refused(*args: object, **rest: object) -> Popen[bytes]:
        raise OSError("no more processes")

    monkeypatch.setattr(ahead, "Popen", refused)
    assert ahead.start_helpers(tmp_path) == []


def test_only_what_is_listed_has_helpers_started():
    from lcstore.bitkernels.huffman import histogram

    (types,) = (types for name, types in ahead.TYPICAL if name == "bitkernels.huffman.histogram")
    assert ahead.is_typical(histogram.py_func, ahead.signature(types))
    assert not ahead.is_typical(histogram.py_func, ahead.signature("uint16[::1], int64[::1]"))
    assert not ahead.is_typical(test_only_what_is_listed_has_helpers_started, ())
