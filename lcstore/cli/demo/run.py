"""The demo as its parent process sees it: start, kill, start again, count."""

from __future__ import annotations

import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from lcstore.cli.demo.train import Training, run
from lcstore.errors import LcstoreError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Event: TypeAlias = dict[str, Any]
OnEvent: TypeAlias = Callable[[Event], None]

_PATIENCE = 300.0
#: Threads of linear algebra are in each other's way on a small network, and make sums come out differently.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Outcome:
    """What happened.

    Attributes
    ----------
    failed_step, loss_at_failure
        Where the process was when it was killed.
    exit_code
        Of the killed process: -9 where it died of SIGKILL.
    restored_step, loss_when_saved, loss_after_restore
        What the store gave back, and the loss before and after its way through it.
    rework
        Steps from there until the loss was down to that at the failure; None if it never was.
    final_loss
        At the last step.
    saves, seconds_per_save, seconds_to_resume
        Saves that were acknowledged, and the time that the median one took.
    """

    failed_step: int
    loss_at_failure: float
    exit_code: int
    restored_step: int
    loss_when_saved: float
    loss_after_restore: float
    rework: int | None
    final_loss: float
    saves: int
    seconds_per_save: float
    seconds_to_resume: float


def run_demo(training: Training, fail_at: int, on_event: OnEvent) -> Outcome:
    """Train until killed at `fail_at`, resume in a new process, and train to the end."""
    first: list[Event] = []
    exit_code = _live(replace(training, dies_at=fail_at), first, on_event)
    if first[-1]["event"] != "dying":
        raise LcstoreError(f"the training was over before step {fail_at}, where it was to be killed")
    lost = _last(first, "saving")
    second: list[Event] = []
    _live(replace(training, goal=lost["loss"]), second, on_event)
    restored = _last(second, "restored")
    saved = [event for event in first + second if event["event"] == "saved"]
    rework = [e["step"] for e in second if e["event"] == "recovering" and e["loss"] <= lost["loss"]]
    return Outcome(
        failed_step=lost["step"],
        loss_at_failure=lost["loss"],
        exit_code=exit_code,
        restored_step=restored["step"],
        loss_when_saved=_last(first, "saved")["loss"],
        loss_after_restore=restored["loss"],
        rework=rework[0] - restored["step"] if rework else None,
        final_loss=saved[-1]["loss"],
        saves=len(saved),
        seconds_per_save=statistics.median(event["seconds"] for event in saved),
        seconds_to_resume=restored["seconds"],
    )


def _last(events: list[Event], name: str) -> Event:
    return next(event for event in reversed(events) if event["event"] == name)


def _live(training: Training, events: list[Event], on_event: OnEvent) -> int:
    """Run one training process to its end, which may be ours to bring about; return its exit code."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(training, sender), daemon=True)
    with _environment(_ONE_THREAD):
        process.start()
    sender.close()  # so that the end of the process is the end of the pipe
    try:
        for event in _events(receiver, process):
            events.append(event)
            on_event(event)
            if event["event"] == "dying":
                process.kill()  # SIGKILL; on Windows TerminateProcess: nothing in the process can catch it
                break
    finally:
        process.kill()
        process.join()
        receiver.close()
    return process.exitcode or 0


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables for a process that is started meanwhile; numpy reads them when it is imported."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _events(receiver: Connection, process: multiprocessing.process.BaseProcess) -> Iterator[Event]:
    """Yield what the process tells, until it is done."""
    while True:
        if not receiver.poll(_PATIENCE):
            raise LcstoreError(f"the training process said nothing for {_PATIENCE:.0f} s")
        try:
            event = receiver.recv()
        except EOFError:
            process.join()
            code = process.exitcode
            raise LcstoreError(f"the training process ended early, with exit code {code}") from None
        if event["event"] == "error":
            raise event["error"]
        yield event
        if event["event"] == "done":
            process.join()
            return
