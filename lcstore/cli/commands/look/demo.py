"""``lcstore demo``: a real training run is killed, and goes on from its store."""

from __future__ import annotations

import importlib.util
import multiprocessing
import shlex
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from lcstore.errors import ConflictError, InvalidInputError, LcstoreError
from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import AsJson, Options, Pairs
from lcstore.terminal.table import Table, printable, size

if TYPE_CHECKING:
    from lcstore.demo.training import Training
    from lcstore.jobs.survey import OnProgress

Event: TypeAlias = dict[str, Any]


def demo(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]", help="Where to save, new or empty; if not given, a temporary folder."
        ),
    ] = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Where the randomness begins.")] = 0,
    steps: Annotated[int, typer.Option("--steps", hidden=True, min=2)] = 400,
    every: Annotated[int, typer.Option("--every", hidden=True, min=1)] = 10,
    hidden: Annotated[int, typer.Option("--hidden", hidden=True, min=8)] = 4096,
) -> None:
    """Train a small network, kill it in the middle of a save, and see what comes back.

    It takes less than a minute, and needs scikit-learn for its images of digits.
    """
    with answering(url or "", as_json, options, pairs) as answer:
        answer.next = ""
        if importlib.util.find_spec("sklearn") is None:
            answer.next = "pip install 'lcstore[demo]'"
            raise LcstoreError("the demo trains on the digits of scikit-learn, which is not installed")
        answer.url = url or str(Path(tempfile.mkdtemp(prefix="lcstore-demo-")) / "run")
        _check_place(answer)
        from lcstore.demo.training import Training

        training = Training(answer.url, steps, every, hidden, seed, answer.storage_options)
        if not as_json:
            print(f"Training on handwritten digits, saving every {every} steps to {printable(answer.url)}\n")
        with answer.progress() as on_progress:
            facts = train(training, on_progress)
        with answer.store() as store:
            stats, verified = store.stats(), store.verify().ok
        facts |= {
            "url": answer.url,
            "seed": seed,
            "steps": steps,
            "states": stats.states,
            "bytes_raw": stats.bytes_raw["total"],
            "bytes_stored": stats.bytes_stored["total"],
            "ratio": stats.ratio,
            "every": every,
            "orphans": stats.orphans,
            "verified": verified,
        }
        answer.give(facts, _shown(facts))
    if not verified:
        raise typer.Exit(1)


def _check_place(answer: Answer) -> None:
    """Refuse a place that has anything in it, and one that a second process would not see."""
    from lcstore.storage.targets import open_backend

    backend = open_backend(answer.url, answer.storage_options)
    if answer.url.startswith("memory:"):
        raise InvalidInputError("the demo kills its process, and memory:// dies with it: give another URL")
    foreign: list[str] = []
    if backend.list("", foreign) or foreign:
        answer.next = "lcstore demo"
        raise ConflictError(
            f"{backend.url} is not empty, and the demo does not mix into what is there; "
            "without a URL it makes a folder of its own"
        )


def train(training: Training, on_progress: OnProgress) -> dict[str, Any]:
    """Train until killed in a save in the middle, resume in a new process; return what happened."""
    middle = max(training.steps // 2 // training.every, 1) * training.every
    first, exit_code = _live(replace(training, dies_at=middle), on_progress)
    second, _ = _live(training, on_progress)
    failed, restored = first[-1], second[0]
    saved = [event for event in first + second if event["event"] == "saved"]
    return {
        "failed_step": failed["step"],
        "loss_at_failure": failed["loss"],
        "exit_code": exit_code,
        "restored_step": restored["step"],
        "lost_steps": failed["step"] - restored["step"],
        "loss_when_saved": next(e["loss"] for e in saved if e["step"] == restored["step"]),
        "loss_after_restore": restored["loss"],
        "final_loss": saved[-1]["loss"],
        "saves": len(saved),
        "seconds_per_save": statistics.median(event["seconds"] for event in saved),
    }


def _live(training: Training, on_progress: OnProgress) -> tuple[list[Event], int | None]:
    """Run one training process to its end; return what it told, and its exit code."""
    from lcstore.demo.training import run

    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(training, sender), daemon=True)
    process.start()
    sender.close()  # so that the end of the process is the end of the pipe
    words = "training again" if training.dies_at is None else "training (the first steps compile)"
    events: list[Event] = []
    try:
        while True:
            event = receiver.recv()
            if event["event"] == "error":
                raise event["error"]
            events.append(event)
            on_progress(words, event["step"], training.steps)
    except EOFError:
        process.join()
        killed = process.exitcode not in (0, 1)  # 1: an exception, which was shown
        if not events or killed != (training.dies_at is not None):
            raise LcstoreError(f"the training process failed, with exit code {process.exitcode}") from None
        return events, process.exitcode
    finally:
        process.kill()
        process.join()
        receiver.close()


def _rework(facts: dict[str, Any]) -> str:
    """Return what the crash cost, and what it would have with files of whole states of as many bytes."""
    lost, every = facts["lost_steps"], facts["every"]
    apart = round(every * max(1.0, facts["ratio"]))
    return (
        f"The crash cost {lost} steps of training, which were done again; with whole states in as many "
        f"bytes, one every {apart} steps and not every {every}, it could have cost {apart}."
    )


def _shown(facts: dict[str, Any]) -> Iterator[Table | str]:
    """Yield the table, what happened in plain words, and what to try next."""
    failed, restored = facts["failed_step"], facts["restored_step"]
    table = Table("fact", "is", right=("is",), header=False)
    table.row("states saved", facts["states"])
    table.row("as whole files, as torch.save writes them", size(facts["bytes_raw"]))
    table.row("stored here, all counted", size(facts["bytes_stored"]))
    table.row("that is smaller by", f"{facts['ratio']:.1f}x")
    table.row("time per save", f"{facts['seconds_per_save'] * 1000:.0f} ms")
    table.row(f"loss at failure (step {failed})", f"{facts['loss_at_failure']:.4f}")
    table.row(f"loss when last saved (step {restored})", f"{facts['loss_when_saved']:.4f}")
    table.row(f"loss after restore (step {restored})", f"{facts['loss_after_restore']:.4f}")
    table.row("steps lost", facts["lost_steps"])
    table.row(f"loss at the end (step {facts['steps']})", f"{facts['final_loss']:.4f}")
    yield table
    yield (
        f"The training process was killed (exit code {facts['exit_code']}) in the middle of saving step "
        f"{failed}: the data was written, the record that commits it was not."
    )
    yield (
        f"So step {restored} was the latest. A new process resumed from it: weights, Adam moments, "
        "random numbers."
    )
    yield _rework(facts)
    whole = "every committed state is there" if facts["verified"] else "the store is damaged"
    yield f"The {facts['orphans']} objects of the interrupted save do no harm, and {whole}."
    yield "\nLook at it:"
    for command, target in (("ls", ""), ("show", f"@{restored}"), ("verify --level checksum", "")):
        yield f"  lcstore {command} {shlex.quote(facts['url'] + target)}"
