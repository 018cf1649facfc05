"""``lcstore demo``: what a person sees of it."""

from __future__ import annotations

import importlib.util
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.cli.arguments import AsJson, Options, Pairs, storage_options
from lcstore.cli.demo.report import document, print_report
from lcstore.cli.output import Answer, answering, printable, progress
from lcstore.errors import ConflictError, InvalidInputError, LcstoreError

if TYPE_CHECKING:
    from lcstore.cli.demo.run import Event, Outcome
    from lcstore.cli.demo.train import Training


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
    hidden: Annotated[int, typer.Option("--hidden", hidden=True, min=8)] = 640,
) -> None:
    """Train a small network, kill it in the middle of a save, and see what comes back.

    It takes less than a minute, and needs scikit-learn for its images of digits.
    """
    opening = storage_options(options, pairs)
    with answering(url or "", as_json) as answer:
        answer.next = ""
        _check_installed(answer)
        answer.url = url or str(Path(tempfile.mkdtemp(prefix="lcstore-demo-")) / "run")
        _check_place(answer, opening)
        from lcstore.cli.demo.train import Training

        training = Training(answer.url, steps, every, hidden, seed, storage_options=opening)
        outcome = _run(answer, training)
        import lcstore

        with lcstore.open(answer.url, "r", storage_options=opening) as store:
            stats, report = store.stats(), store.verify()
        if as_json:
            answer.document(document(answer.url, training, outcome, stats, report) | asdict(outcome))
        else:
            print_report(answer, training, outcome, stats, report)
    if not report.ok:
        raise typer.Exit(1)


def _check_installed(answer: Answer) -> None:
    if importlib.util.find_spec("sklearn") is None:
        answer.next = "pip install 'lcstore[demo]'"
        raise LcstoreError("the demo trains on the digits of scikit-learn, which is not installed")


def _check_place(answer: Answer, opening: dict[str, Any]) -> None:
    """Refuse a place that has anything in it, and one that a second process would not see."""
    from lcstore.storage.targets import open_backend

    backend = open_backend(answer.url, opening)
    if answer.url.startswith("memory:"):
        raise InvalidInputError("the demo kills its process, and memory:// dies with it: give another URL")
    if not backend.writable:
        raise InvalidInputError(f"{backend.url} can only be read: give another URL")
    foreign: list[str] = []
    if backend.list("", foreign) or foreign:
        answer.next = "lcstore demo"
        raise ConflictError(
            f"{backend.url} is not empty, and the demo does not mix into what is there; "
            "without a URL it makes a folder of its own"
        )


def _run(answer: Answer, training: Training) -> Outcome:
    from lcstore.cli.demo.run import run_demo

    if not answer.as_json:
        answer.console.print(
            printable(f"Training on handwritten digits, saving every {training.every} steps to {answer.url}"),
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
    # In the middle, in a save: when everything is written but the record that makes it so.
    fail_at = max(training.steps // 2 // training.every, 1) * training.every
    with progress(answer.as_json) as bar:
        task = bar.add_task("starting (the first run compiles)", total=training.steps)

        def on_event(event: Event) -> None:
            words = {"dying": "killed", "restored": "resumed", "done": "done"}
            said = words.get(event["event"]) or ("training" if event.get("step") else "compiling")
            bar.update(task, completed=event.get("step", training.steps), description=said)

        return run_demo(training, fail_at, on_event)
