"""All commands, gathered. Each is in a file of its own and imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from lcstore.cli.collect import collect
from lcstore.cli.compact import compact
from lcstore.cli.demo.command import demo
from lcstore.cli.diff import diff
from lcstore.cli.doctor import doctor
from lcstore.cli.ls import ls
from lcstore.cli.pin import pin
from lcstore.cli.repair import repair
from lcstore.cli.retire import retire
from lcstore.cli.show import show
from lcstore.cli.stats import stats
from lcstore.cli.tag import tag
from lcstore.cli.tune import tune
from lcstore.cli.verify import verify
from lcstore.version import __version__

app = typer.Typer(
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


_COMMANDS = (
    demo, ls, show, diff, verify, repair, compact, collect, retire, tag, pin, stats, tune, doctor
)  # fmt: skip

for command in _COMMANDS:
    app.command()(command)
