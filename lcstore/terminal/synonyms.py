"""Hints where a command or an option does not exist: the name here of what other tools call so."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from lcstore.storage.masking import without_secrets
from lcstore.terminal.answer import told

_WRONG_USAGE: Final = 2
#: Where the nearest name would mislead.
_COMMANDS: Final = {
    **dict.fromkeys(("restore", "load", "resume", "checkout"), "lcstore.open('URL').restore(STEP) in Python"),
    **dict.fromkeys(("convert", "save-as"), "lcstore export URL@STEP FILE, or lcstore import FILES... STORE"),
    **dict.fromkeys(("ingest", "add"), "lcstore import FILES... STORE"),
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
        "lcstore retire URL@STEP lets go of a state, lcstore unretire URL@STEP brings it back, and lcstore "
        "unretire URL all that went",
    ),
    **dict.fromkeys(("notes", "metadata"), "lcstore show URL@STEP, which has the metadata of a state"),
    **dict.fromkeys(
        ("read", "cat", "get"),
        "lcstore export URL@STEP FILE.npz NAME, or in Python lcstore.open('URL', 'r').read(STEP, NAME)",
    ),
    **dict.fromkeys(("du", "size"), "lcstore stats URL, of a store or of all below a folder"),
    "runs": "lcstore ls URL --runs",
    "history": "in Python: lcstore.open('URL', 'r').history(NAME)",
    "save": "in Python: lcstore.open('URL').save(step, state)",
    "copy": "lcstore cp URL TO",
}
#: By an option, or a command and its option.
_OPTIONS: Final = {
    **dict.fromkeys(("--step", "--tag", "--node"), "name the state after the store: URL@STEP"),
    **dict.fromkeys(("--force", "--yes", "-y", "-f"), "--apply, where a command only shows what it would do"),
    **dict.fromkeys(("--sort", "--filter"), "--json, which prints all there is, for a tool that sorts it"),
    "--dry-run": "leave --apply out, so that it is only shown",
    "--grace": "where no run is left, this frees space: lcstore collect URL --grace 0 --run-is-dead --apply",
    "ls --sort": "lcstore ls URL --best METRIC, which has the best store or run first; --json has all",
    "pin --run": "lcstore ls URL --retired --run RUN names its states, and lcstore pin URL@NODE brings one "
    "back, for as long as it stays pinned",
    "--all": "--retired, which also lists what was let go of: all else is listed anyway",
    "--names": "it stands after the file: lcstore export URL@STEP FILE 'model/**'",
    "--runs": "lcstore ls URL --runs",
}
#: What is said where too few arguments were given, or too many.
_USAGE: Final = {
    "import": "name the files, and after them the store: lcstore import FILES... STORE",
    "report": "the page is named so: lcstore report URL -o FILE",
    "rm": "it takes one store; of several, this shows what would go, and deletes it with --apply behind "
    '"$url": for url in URL ...; do lcstore rm "$url"; done',
}


class Command(TyperCommand):
    """A command, and what is said of options that it does not take."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed."""
        with _as_json("--json" in args, ctx.info_name):
            return self._parsed(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _as_json(ctx.params.get("as_json", False), ctx.info_name):
            return super().invoke(ctx)

    def _parsed(self, ctx: Any, args: list[str]) -> list[str]:
        typed, name = [*args], ctx.info_name
        takes_state = self.params[0].metavar in ("URL@STEP", "URL[@STEP]")
        if takes_state and len(args) > 1 and args[1].isdecimal() and not re.search("^-|@", args[0]):
            state = without_secrets(f"{args[0]}@{args[1]}")
            ctx.fail(f"A state is named so: lcstore {name} {shlex.join([state, *args[2:]])}")
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # of click, or of the copy of it that newer versions of typer have
            kind, option = type(error).__name__, getattr(error, "option_name", "")
            instead = _OPTIONS.get(f"{name} {option}") or _OPTIONS.get(option)
            if kind == "NoSuchOption" and instead:
                ctx.fail(f"No such option: {option}. Instead, {_with_url(instead, typed)}")
            if kind in ("MissingParameter", "UsageError") and name in _USAGE:
                ctx.fail(f"{error.format_message().rstrip('.')}: {_with_url(_USAGE[name], typed)}")  # type: ignore[attr-defined]
            if kind == "BadParameter" and "is not one of" in str(error):  # help says what each of them means
                about = getattr(getattr(error, "param", None), "help", None) or ""
                error.message = f"{error.message.removeprefix('Value error, ')} {about}"  # type: ignore[attr-defined]
            raise


@contextmanager
def _as_json(wanted: bool, name: str) -> Iterator[None]:
    """Have wrong usage told as the JSON document, too, where one is wanted."""
    try:
        yield
    except Exception as error:
        if wanted and getattr(error, "exit_code", 0) == _WRONG_USAGE and hasattr(error, "format_message"):
            said = without_secrets(error.format_message())
            print(json.dumps(told("usage", said, f"lcstore {name} --help"), indent=2))
        raise


def _with_url(hint: str, typed: list[str]) -> str:
    """Return a hint with the URL that was typed in the place of the word."""
    url = next((text for text in typed if not text.startswith("-") and not text.isdecimal()), "URL")
    url = without_secrets(url)
    store, mark, _ = url.rpartition("@")
    whole = hint.replace("URL@STEP", shlex.quote(url)) if mark else hint
    return whole.replace("URL", shlex.quote(store if mark else url))


class Commands(TyperGroup):
    """The commands, and a hint where one does not exist."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed."""
        if args and args[0] in _COMMANDS:
            ctx.fail(f"No such command {args[0]!r}. Instead, {_with_url(_COMMANDS[args[0]], args[1:])}")
        return super().resolve_command(ctx, args)
