"""``lcstore tune``: find the settings that take the fewest bytes for a stated increase of the user's loss."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.errors import InvalidInputError
from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, Options, Pairs, Url
from lcstore.terminal.table import Table, size

if TYPE_CHECKING:
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
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Find the errors of groups of weights that take the fewest bytes at the same loss.

    The store holds states of your run, saved exactly or at high quality, as far apart as saves will be. The
    loss is yours: it is imported from MODULE (also from the current directory) and runs in this process.
    """
    if output is not None and output.suffix != ".json":
        raise typer.BadParameter("--output: a policy file ends in .json, by which it is known")
    if output is not None and not output.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {output.parent} to write {output.name} to")
    function = _imported(loss)
    with answering(url, as_json, options, pairs) as answer:
        from lcstore.format.policyfile import policy_to_json
        from lcstore.tune import Saved
        from lcstore.tune import tune as search

        states = Saved(url, step, to=to, storage_options=answer.storage_options)
        with answer.store(), answer.progress() as on_progress:  # where there is none, that is told
            found = search(
                states, function, like=like, tolerance=tolerance, evaluations=evaluations,
                most_error=most_error, groups=group, on_progress=on_progress,
            )  # fmt: skip
        if output is not None:
            _write(found, output)
        answer.give(found.to_json(), _shown(found, output), policy=policy_to_json(found.policy))


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


def _write(found: Tuned, output: Path) -> None:
    try:
        found.save(output)
    except OSError as error:
        raise InvalidInputError(f"{error.filename} cannot be written: {error.strerror}") from error


def _shown(found: Tuned, output: Path | None) -> Iterator[Table | str]:
    yield _groups(found)
    yield _policies(found)
    yield _curve(found)
    if found.tuned == found.preset:
        said = f"No policy took fewer bytes within the tolerance ({found.evaluations} evaluations)"
        yield f"{said}: stay with the preset{f', which {output} is, too' if output else ''}."
        return
    yield (
        f"{found.gain:.2f} times fewer bytes of weights than the preset, within an expected increase of "
        f"{found.tolerance:.3g} (the loss is {found.loss:.5g}); {found.evaluations} evaluations."
    )
    if found.unread:
        globs = ", ".join(glob for one in found.unread for glob in one.globs)
        yield (
            f"The loss does not see the errors of {globs}: they got the most. If it does not read them, "
            "leave them out by a rule in the policy file of --like that gives their role."
        )
    if output is None:
        yield "To keep it: --output tuned.json"
    else:
        yield f'Written: {output}. Use it: lcstore.open(url, policy="{output}")'


def _groups(found: Tuned) -> Table:
    right = ("tensors", "elements", "error", "increase alone")
    shown = Table("group", *right, right=right, title="What each group is given (errors in intervals)")
    for one in found.settings:
        alone = f"{one.alone.charged:.3g}"
        shown.row(_globs(one.globs), one.tensors, f"{one.elements:,}", f"{one.error:g}", alone)
    return shown


def _policies(found: Tuned) -> Table:
    right = ("bytes per save", "expected increase", "restored - exact", "error", "weighted error")
    shown = Table("policy", *right, right=right, title=f"Measured on {found.states} states")
    for name, one in (("preset", found.preset), ("tuned", found.tuned)):
        losses = (f"{one.cost.charged:.3g}", f"{one.cost.increase:+.3g}")
        shown.row(name, size(one.bytes_per_save), *losses, f"{one.error:.2f}", f"{one.weighted_error:.2f}")
    return shown


def _curve(found: Tuned) -> Table:
    right = ("bytes per save", "expected increase: tuned", "one error for all")
    shown = Table(*right, right=right, title="Rate and quality, by the model")
    for point in found.curve:
        same = _at(found, point.bytes_per_save)
        alike = "" if same is None else f"{same:.3g}"
        shown.row(size(point.bytes_per_save), f"{point.increase:.3g}", alike)
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
