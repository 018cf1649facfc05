"""``lcstore tune``: find the settings that take the fewest bytes for a stated increase of the user's loss."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.cli.arguments import AsJson, Options, Pairs, Url, storage_options
from lcstore.cli.opening import reading_phases
from lcstore.cli.output import Answer, answering, print_lines, row, size, table
from lcstore.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.table import Table

    from lcstore.tune import Tuned

_EVALUATIONS = 40
_MOST_SHOWN = 3


def tune(
    url: Url,
    loss: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Your loss of a state, loss(state) -> float. This runs your code: the module is imported.",
        ),
    ],
    like: Annotated[
        str, typer.Option("--like", metavar="POLICY", help="The preset, or policy file, to compare with.")
    ] = "balanced",
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", help="Increase of the loss that is allowed; not given: that of --like."),
    ] = None,
    evaluations: Annotated[
        int, typer.Option("--evaluations", min=13, help="At most so many calls of the loss.")
    ] = _EVALUATIONS,
    most_error: Annotated[
        float | None,
        typer.Option("--most-error", help="No tensor is given more, in intervals; twice that of --like."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GLOB", help="Tensors that share a setting; repeatable."),
    ] = None,
    step: Annotated[
        list[int] | None, typer.Option("--step", help="Use this step; repeatable. The last 12 if not given.")
    ] = None,
    to: Annotated[
        str, typer.Option("--to", help="Arrays that the loss gets: saved, numpy, torch or jax.")
    ] = "saved",
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the policy file (*.json) here.")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the curve here.")] = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Find the errors of groups of weights that take the fewest bytes at the same loss.

    The store holds states of your run, saved exactly or at high quality, as far apart as saves will be. The
    loss is yours: it is imported from MODULE (also from the current directory) and runs in this process.
    """
    opening = storage_options(options, pairs)
    if output is not None and output.suffix != ".json":
        raise typer.BadParameter("--output: a policy file ends in .json, by which it is known")
    for path in (output, svg):
        if path is not None and not path.parent.is_dir():
            raise typer.BadParameter(f"there is no folder {path.parent} to write {path.name} to")
    function = _imported(loss)
    with answering(url, as_json) as answer:
        from lcstore.tune import Saved
        from lcstore.tune import tune as search

        with reading_phases(as_json) as on_progress:
            found = search(
                Saved(url, step, to=to, storage_options=opening), function, like=like, tolerance=tolerance,
                evaluations=evaluations, most_error=most_error, groups=group, on_progress=on_progress,
            )  # fmt: skip
        _write(found, output, svg)
        if as_json:
            from lcstore.format.policyfile import policy_to_json

            answer.document(found.to_json() | {"policy": policy_to_json(found.policy)})
        else:
            _print(answer, found, output, svg)


def _imported(name: str) -> Callable[[Any], float]:
    """Import the user's function; what goes wrong inside the user's module is shown as it is."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise typer.BadParameter(f"{name!r} is not MODULE:FUNCTION, such as probe:loss")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise typer.BadParameter(f"there is no module {module!r} to import") from error
    loss = getattr(found, function, None)
    if not callable(loss):
        raise typer.BadParameter(f"module {module!r} has no function {function!r}")
    return loss  # type: ignore[no-any-return]


def _write(found: Tuned, output: Path | None, svg: Path | None) -> None:
    try:
        if output is not None:
            found.save(output)
        if svg is not None:
            svg.write_text(found.svg(), encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{error.filename} cannot be written: {error.strerror}") from error


def _print(answer: Answer, found: Tuned, output: Path | None, svg: Path | None) -> None:
    for shown in (_groups(found), _policies(found), _curve(found)):
        answer.console.print(shown)
    lines = [
        f"{found.gain:.2f} times fewer bytes of weights than the preset, within an expected increase of "
        f"{found.tolerance:.3g} (the loss is {found.loss:.5g}); {found.evaluations} evaluations."
    ]
    if found.unread:
        globs = ", ".join(glob for one in found.unread for glob in one.globs)
        lines.append(
            f"The loss does not see the errors of {globs}: they got the most. If it does not read them, "
            "leave them out by a rule in the policy file of --like that gives their role."
        )
    if output is not None:
        lines.append(f'Written: {output}. Use it: lcstore.open(url, policy="{output}")')
    else:
        lines.append("To keep it: --output tuned.json")
    if svg is not None:
        lines.append(f"Drawn: {svg}")
    print_lines(answer, lines)


def _groups(found: Tuned) -> Table:
    right = ("tensors", "elements", "error", "increase alone")
    shown = table("group", *right, right=right, title="What each group is given (errors in intervals)")
    for one in found.settings:
        alone = f"{one.alone.charged:.3g}"
        row(shown, _globs(one.globs), one.tensors, f"{one.elements:,}", f"{one.error:g}", alone)
    return shown


def _policies(found: Tuned) -> Table:
    right = ("bytes per save", "expected increase", "restored - exact", "error", "weighted error")
    shown = table("policy", *right, right=right, title=f"Measured on {found.states} states")
    for name, one in (("preset", found.preset), ("tuned", found.tuned)):
        losses = (f"{one.cost.charged:.3g}", f"{one.cost.increase:+.3g}")
        row(shown, name, size(one.bytes_per_save), *losses, f"{one.error:.2f}", f"{one.weighted_error:.2f}")
    return shown


def _curve(found: Tuned) -> Table:
    right = ("bytes per save", "expected increase: tuned", "one error for all")
    shown = table(*right, right=right, title="Rate and quality, by the model")
    for point in found.curve:
        same = _at(found, point.bytes_per_save)
        alike = "" if same is None else f"{same:.3g}"
        row(shown, size(point.bytes_per_save), f"{point.increase:.3g}", alike)
    return shown


def _globs(globs: tuple[str, ...]) -> str:
    more = len(globs) - _MOST_SHOWN
    return "\n".join(globs[:_MOST_SHOWN]) + (f"\nand {more} more" if more > 0 else "")


def _at(found: Tuned, nbytes: float) -> float | None:
    """Return the increase of one error for all at so many bytes; None outside of what is known."""
    points = sorted((p.bytes_per_save, p.increase) for p in found.uniform)
    for (low, a), (high, b) in pairwise(points):
        if low <= nbytes <= high:
            return a + (b - a) * (nbytes - low) / max(high - low, 1e-9)
    return None
