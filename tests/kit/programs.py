"""Programs that tests start, forked from a process that has imported what they import, one for each set.

Whoever starts Python anew waits some seconds for its libraries, and for kernels to be read. Such a process
does both once. A program that is forked from it is a process as any other: it has its own arguments,
environment, folder, output and signals, and it comes to its end as an interpreter does. What tests imports,
memory or the command line is started anew instead.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

#: What is imported for whoever trains with torch: its optimizers import the compiler when first used.
TORCH = ("torch", "torch._dynamo")

_servers: dict[object, tuple[subprocess.Popen[bytes], socket.socket]] = {}


class Program:
    """A program that runs, as one of `subprocess.Popen`: killed, and waited for, at the end of a `with`."""

    def __init__(self, told: IO[str], stdout: IO[str], stderr: IO[str]) -> None:
        self._told, self.stdout, self.stderr = told, stdout, stderr
        self.pid = int(told.readline())
        self.returncode: int | None = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self.kill()
        self.stdout.close()
        self.wait()
        self.stderr.close()
        self._told.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end; return its status, which is negative where a signal ended it."""
        if self.returncode is None:
            self.returncode = int(self._told.readline())
        return self.returncode

    def ended(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end; return what it said from now on, and its status."""
        with self:
            said, status = self.stdout.read(), self.wait()
            self.stderr.seek(0)
            return subprocess.CompletedProcess([], status, said, self.stderr.read())


def start(
    program: Path | str,
    *arguments: object,
    using: Sequence[str] = (),
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Program:
    """Start a script, or code, where libraries are imported already.

    The environment is that of now and `env`, which libraries may read when they are imported; `quiet` is
    `-W ignore`.
    """
    out, into = os.pipe()
    told, tells = os.pipe()
    stderr = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
    job = {
        "program": program if isinstance(program, str) else Path(program).absolute(),
        "arguments": [str(each) for each in arguments],
        "folder": str((cwd or Path()).absolute()),
        "environment": os.environ | dict(env or {}),
        "quiet": quiet,
    }
    with tempfile.TemporaryFile() as described:
        pickle.dump(job, described)
        described.seek(0)
        fds = [described.fileno(), into, stderr.fileno(), tells]
        socket.send_fds(_server(tuple(using), env or {}), [b"."], fds)
    os.close(into)
    os.close(tells)
    return Program(os.fdopen(told), os.fdopen(out, encoding="utf-8"), stderr)


def run(program: Path | str, *arguments: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Start a program and wait for its end."""
    return start(program, *arguments, **how).ended()


def _server(using: tuple[str, ...], env: Mapping[str, str]) -> socket.socket:
    kind = using, tuple(sorted(env.items()))
    if kind not in _servers:
        ours, its = socket.socketpair()
        path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
        command = [sys.executable, "-P", __file__, str(its.fileno()), *using]
        process = subprocess.Popen(
            command, env=os.environ | dict(env) | {"PYTHONPATH": path}, pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        its.close()
        _servers[kind] = process, ours
        atexit.register(_end, process, ours)
    return _servers[kind][1]


def _end(process: subprocess.Popen[bytes], ours: socket.socket) -> None:
    ours.close()
    process.wait()


# In the process that forks --------------------------------------------------------------------------------


def _imported(using: Sequence[str]) -> None:
    """Import libraries, and have in memory what each program would load for itself."""
    for name in using:
        importlib.import_module(name)
    import numpy as np

    import lcstore

    for policy in ("balanced", "lossless"):
        rng = np.random.default_rng(0)
        with tempfile.TemporaryDirectory() as folder:
            for step in range(3):
                with lcstore.open(Path(folder) / "run", policy=policy) as store:
                    if step:
                        store.resume("latest")
                    weight = rng.standard_normal((64, 64)).astype(np.float32)
                    moments = {0: {"exp_avg": weight * 1e-3, "exp_avg_sq": np.square(weight)}}
                    state = {"model": {"w.weight": weight}, "optim": {"state": moments}, "step": step}
                    store.save(step, state)


def _forked() -> bool:
    """Return whether this is the forked process, and not the one that forks."""
    assert threading.active_count() == 1, f"a fork would lose threads: {threading.enumerate()}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that have threads once they are used
        return os.fork() == 0


def _job(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request; return in the process that is to be the program."""
    while True:
        _, fds, _, _ = socket.recv_fds(requests, 1, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG if fds else 0)[0]:
                pass
        if not fds:
            os._exit(0)  # nobody is left who would start programs
        if _forked():
            break
        for each in fds:
            os.close(each)
    # Between the two a process waits for the program, and tells how it ended.
    requests.close()
    described, into, stderr, tells = fds
    pid = os.fork()
    if pid:
        for each in (described, into, stderr):
            os.close(each)
        os.write(tells, f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.write(tells, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.close(tells)
    with os.fdopen(described, "rb") as file:
        job = pickle.load(file)
    for each, number in ((into, 1), (stderr, 2)):
        os.dup2(each, number)
        os.close(each)
    return job


def _become(job: dict[str, Any]) -> tuple[types.CodeType, types.ModuleType]:
    """Make of this process the program; return its code, and its module."""
    program, main = job["program"], types.ModuleType("__main__")
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    script = isinstance(program, Path)
    sys.argv = [str(program) if script else "-c", *job["arguments"]]
    sys.path.insert(0, str(program.parent) if script else "")
    sys.modules["__main__"] = main
    if script:
        main.__file__ = str(program)
    if job["quiet"]:
        warnings.simplefilter("ignore")
    text = program.read_text(encoding="utf-8") if script else program
    return compile(text, str(program) if script else "<string>", "exec"), main


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _imported(sys.argv[2:])
    gc.collect()
    gc.freeze()  # nobody looks again at what is there for good: it would be copied for each program
    _code, _main = _become(_job(socket.socket(fileno=int(sys.argv[1]))))
    exec(_code, _main.__dict__)
