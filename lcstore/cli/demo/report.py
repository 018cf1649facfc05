"""What the demo says at its end."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from lcstore.cli.output import Answer, printable, row, table

if TYPE_CHECKING:
    from lcstore.cli.demo.run import Outcome
    from lcstore.cli.demo.train import Training
    from lcstore.index.findings import Report
    from lcstore.store.stats import Stats


def document(url: str, training: Training, outcome: Outcome, stats: Stats, report: Report) -> dict[str, Any]:
    """Return the facts of the demo besides its `outcome`, for ``--json``."""
    return {
        "url": url,
        "seed": training.seed,
        "steps": training.steps,
        "states": stats.states,
        "bytes_raw": stats.bytes_raw["total"],
        "bytes_stored": stats.bytes_stored["total"],
        "ratio": stats.ratio,
        "orphans": stats.orphans,
        "lost_steps": outcome.failed_step - outcome.restored_step,
        "verified": report.ok,
    }


def print_report(answer: Answer, training: Training, outcome: Outcome, stats: Stats, report: Report) -> None:
    """Print the table, what happened in plain words, and what to try next."""
    shown = table("fact", "is", right=("is",))
    shown.show_header = False
    rework = "not reached" if outcome.rework is None else str(outcome.rework)
    row(shown, "states saved", stats.states)
    row(shown, "bytes raw", f"{stats.bytes_raw['total']:,}")
    row(shown, "bytes stored, all counted", f"{stats.bytes_stored['total']:,}")
    row(shown, "ratio", f"{stats.ratio:.1f}x")
    row(shown, "time per save", f"{outcome.seconds_per_save * 1000:.0f} ms")
    row(shown, f"loss at failure (step {outcome.failed_step})", f"{outcome.loss_at_failure:.4f}")
    row(shown, f"loss when last saved (step {outcome.restored_step})", f"{outcome.loss_when_saved:.4f}")
    row(shown, f"loss after restore (step {outcome.restored_step})", f"{outcome.loss_after_restore:.4f}")
    row(shown, "steps of rework", rework)
    row(shown, f"loss at the end (step {training.steps})", f"{outcome.final_loss:.4f}")
    answer.console.print(shown)
    for line in (*_story(outcome, stats, report), "", *_next(answer.url, outcome)):
        answer.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def _story(outcome: Outcome, stats: Stats, report: Report) -> list[str]:
    lost = outcome.failed_step - outcome.restored_step
    how = "SIGKILL" if outcome.exit_code == -9 else f"exit code {outcome.exit_code}"
    back = (
        f"The loss was back to where it had been after {_steps(outcome.rework)} of rework; "
        f"{_steps(lost)} had been lost."
        if outcome.rework is not None
        else f"The loss did not come back to where it had been; {_steps(lost)} had been lost."
    )
    whole = "every committed state is there" if report.ok else "the store is damaged"
    return [
        f"The training process was killed ({how}) in the middle of saving step {outcome.failed_step}: "
        "the data was written, the record that commits it was not.",
        f"So step {outcome.restored_step} was the latest. A new process resumed from it: weights, Adam "
        "moments, random numbers.",
        back,
        f"The {stats.orphans} objects of the interrupted save do no harm, and {whole}.",
    ]


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _next(url: str, outcome: Outcome) -> list[str]:
    place = shlex.quote(url)
    return [
        "Look at it:",
        f"  lcstore ls {place}",
        f"  lcstore show {shlex.quote(f'{url}@{outcome.restored_step}')}",
        f"  lcstore verify {place} --level checksum",
    ]
