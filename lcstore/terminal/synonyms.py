"""What is said of commands and options that there are not: what other tools call the same."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

#: Where the nearest name would mislead.
_COMMANDS: Final = {
    **dict.fromkeys(("restore", "load", "resume", "checkout"), "in Python: lcstore.open(URL).restore(STEP)"),
    **dict.fromkeys(("convert", "save-as"), "lcstore export URL@STEP FILE, or lcstore import FILES... URL"),
    **dict.fromkeys(("ingest", "add"), "lcstore import FILES... URL"),
    **dict.fromkeys(("delete", "remove"), "lcstore retire URL@STEP for a state, lcstore rm URL for a store"),
    **dict.fromkeys(
        ("gc", "prune", "clean"),
        "lcstore retain URL --keep RULE, then lcstore collect URL; or both by lcstore maintain URL",
    ),
    **dict.fromkeys(("mv", "move", "rename"), "lcstore cp URL TO, then lcstore rm URL"),
    **dict.fromkeys(("list", "log"), "lcstore ls URL"),
    **dict.fromkeys(("info", "inspect"), "lcstore show URL@STEP for a state, lcstore stats URL for a store"),
    **dict.fromkeys(
        ("undo", "revert", "rollback"),
        "lcstore retire URL@STEP lets go of a state, lcstore pin URL@NODE brings it back",
    ),
    "history": "in Python: lcstore.open(URL).history(NAME)",
    "save": "in Python: lcstore.open(URL).save(step, state)",
    "copy": "lcstore cp URL TO",
}
_OPTIONS: Final = {
    **dict.fromkeys(("--step", "--tag", "--node"), "name the state in the URL: URL@STEP"),
    **dict.fromkeys(("--force", "--yes", "-y", "-f"), "--apply, where a command only shows what it would do"),
    **dict.fromkeys(("--sort", "--filter"), "--json, which prints all there is, for a tool that sorts it"),
    "--dry-run": "leave --apply out, so that it is only shown",
    "--grace": "to free space at once where no run is left: lcstore collect URL --grace 0 --run-is-dead",
}
_MISSING: Final = {"import": "name the files, and after them the store: lcstore import FILES... URL"}


class Command(TyperCommand):
    """A command, and what is said of options that it does not take."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # of click, or of the copy of it that newer versions of typer have
            kind, option = type(error).__name__, getattr(error, "option_name", "")
            if kind == "NoSuchOption" and option in _OPTIONS:
                ctx.fail(f"No such option: {option}. Instead, {_OPTIONS[option]}")
            if kind == "MissingParameter" and ctx.info_name in _MISSING:
                ctx.fail(f"Something is missing: {_MISSING[ctx.info_name]}")
            raise


class Commands(TyperGroup):
    """The commands, and what is said of one that there is not."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed."""
        if args and args[0] in _COMMANDS:
            ctx.fail(f"No such command {args[0]!r}. Instead, {_COMMANDS[args[0]]}")
        return super().resolve_command(ctx, args)
