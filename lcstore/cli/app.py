"""All commands in one app. Each is in a file of its own and imports what it needs when it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from lcstore.cli.commands.hold.pin import pin, unpin
from lcstore.cli.commands.hold.tag import tag, untag
from lcstore.cli.commands.keep.collect import collect
from lcstore.cli.commands.keep.compact import compact
from lcstore.cli.commands.keep.maintain import maintain
from lcstore.cli.commands.keep.retain import retain
from lcstore.cli.commands.keep.retire import retire
from lcstore.cli.commands.keep.unretire import unretire
from lcstore.cli.commands.look.demo import demo
from lcstore.cli.commands.look.diff import diff
from lcstore.cli.commands.look.ls import ls
from lcstore.cli.commands.look.plot import plot
from lcstore.cli.commands.look.report import report
from lcstore.cli.commands.look.show import show
from lcstore.cli.commands.look.stats import stats
from lcstore.cli.commands.quality.bench import bench
from lcstore.cli.commands.quality.tune import tune
from lcstore.cli.commands.quality.warm import warm
from lcstore.cli.commands.stores.cp import cp
from lcstore.cli.commands.stores.files import export, import_
from lcstore.cli.commands.stores.rm import rm
from lcstore.cli.commands.trouble.doctor import doctor
from lcstore.cli.commands.trouble.repair import repair
from lcstore.cli.commands.trouble.verify import verify
from lcstore.terminal.synonyms import Command, Commands
from lcstore.version import __version__

app = typer.Typer(
    cls=Commands,
    help="Keep every training checkpoint: small deltas over any storage, verified on the way back.",
    epilog="Exit status: 0 good, 1 a problem was found, 2 wrong usage. New here? Run: lcstore demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Keep every training checkpoint: small deltas over any storage, verified on the way back."""


#: By what they are for, in the order in which help shows them.
_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Look": (demo, ls, show, diff, stats, plot, report),
    "Keep small": (maintain, retain, compact, collect, retire, unretire),
    "Name and hold": (tag, untag, pin, unpin),
    "Whole stores": (cp, rm),
    "Files of other tools": (import_, export),
    "Trouble": (verify, repair, doctor),
    "Set up": (warm,),
    "Quality": (tune, bench),
}


def _flowing(text: str | None) -> str:
    """Return a docstring whose lines end where the terminal does, not where the source does."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


for panel, commands in _COMMANDS.items():
    for command in commands:
        # A name that Python has taken ends in an underscore.
        name = command.__name__.rstrip("_")
        app.command(name, help=_flowing(command.__doc__), rich_help_panel=panel, cls=Command)(command)
