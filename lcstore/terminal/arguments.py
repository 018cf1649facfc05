"""What commands share on their command lines: arguments, options, and how ``URL@STEP`` is read."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import typer

from lcstore.errors import InvalidInputError
from lcstore.format.keyforms import RUN_ID_RE, is_number
from lcstore.format.keys import STORE_KEY

if TYPE_CHECKING:
    from lcstore.retention.base import Retention

T = TypeVar("T")

_PAIR: Final = re.compile(r"[A-Za-z_]\w*=")

Url: TypeAlias = Annotated[
    str, typer.Argument(metavar="URL", help="A local path, or any URL that fsspec opens: s3://bucket/run1")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Options: TypeAlias = Annotated[
    str | None,
    typer.Option("--storage-options", metavar="JSON", help="Options for the target: '{\"anon\": true}'"),
]
Pairs: TypeAlias = Annotated[
    list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="One option for the target; repeatable.")
]
Files: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="FILES", help="Files, folders that are a checkpoint or hold some, globs, URLs."),
]
FileFormat: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--format", help="safetensors, torch, npz, zarr, transformers, dcp, orbax; by names if not given."
    ),
]
StepsFrom: TypeAlias = Annotated[
    str | None,
    typer.Option("--steps-from", metavar="REGEX", help="Finds the step in a path, as its first group."),
]
Under: TypeAlias = Annotated[
    str | None, typer.Option("--under", metavar="NAME", help="Have the tree of a file below a name.")
]
MetricsOf: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="A number in each file to be a metric; repeatable."),
]
PolicyOf: TypeAlias = Annotated[
    str | None,
    typer.Option(help="lossless, high, balanced, small or a policy file. Without: as before, or balanced."),
]
DurabilityOf: TypeAlias = Annotated[
    str | None, typer.Option(help="none, default or all: what is stored besides against damage.")
]
FileOptions: TypeAlias = Annotated[
    str | None,
    typer.Option("--file-options", metavar="JSON", help="Options for where files are; -o is the store's."),
]
AtState: TypeAlias = Annotated[
    str | None, typer.Option("--at", help="The state, where the URL itself has an @ in its last part.")
]
Glob: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[GLOB]", help="Only names that match: 'model/**'.")
]
Run: TypeAlias = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Only states of this run, by number or id.")
]
BestBy: TypeAlias = Annotated[
    str | None,
    typer.Option("--best", metavar="METRIC", help="The best state of each store, or run: loss, acc:max."),
]
Keep: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--keep", metavar="RETENTION", help="What to keep: 'latest:3 | every:1000'; repeatable."),
]
LeaveOut: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--leave-out", metavar="GLOB", help="Pass over stores below: 'eve/*'; repeatable."),
]
Apply: TypeAlias = Annotated[bool, typer.Option("--apply", help="Do it. Without this it is only shown.")]
#: What a command took once, and tells where it is now.
Moved: TypeAlias = Annotated[list[str] | None, typer.Option("--keep", hidden=True)]
MaxBytes: TypeAlias = Annotated[
    str | None, typer.Option("--max-bytes", metavar="SIZE", help="Write no more than this: 10GB.")
]
MaxSeconds: TypeAlias = Annotated[
    str | None, typer.Option("--max-seconds", metavar="TIME", help="Begin nothing after this time: 2h.")
]
Threads: TypeAlias = Annotated[
    int | None, typer.Option("--workers", min=1, help="Threads to merge with; one per core if not given.")
]
Grace: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--grace", metavar="TIME", help="Delete only what was condemned so long ago or longer: 24h."
    ),
]

_WORDS = {"true": True, "false": False, "null": None}


def storage_options(options: str | None, pairs: list[str] | None) -> dict[str, Any]:
    """Return the options that ``--storage-options`` and ``-o`` give together; a pair wins."""
    return from_json("--storage-options", options) | dict(map(_pair, pairs or ()))


def from_json(option: str, text: str | None) -> dict[str, Any]:
    """Return the options that the JSON of an option gives."""
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        # The text itself may hold a secret: it is not repeated.
        raise typer.BadParameter(f"{option} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f'{option} must be a JSON object: {{"key": "value"}}')
    return value


def _pair(pair: str) -> tuple[str, Any]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise typer.BadParameter("-o takes KEY=VALUE")
    if value in _WORDS:
        return key, _WORDS[value]
    # Digits stay text: an access key may be made of them. `--storage-options` says numbers as numbers.
    if value[:1] in ("{", "["):
        with suppress(ValueError):
            return key, json.loads(value)
    return key, value


def check_lasting(target: str, source: str) -> None:
    """Refuse a target that is gone when the command ends, unless all of this is in one process's memory."""
    if target.startswith("memory:") and not source.startswith("memory:"):
        raise typer.BadParameter(
            f"{target} lasts as long as its process: it would be gone when this one ends"
        )


def split_at(target: str) -> tuple[str, int | str | None]:
    """Take ``URL@STEP`` apart; what follows the last ``@`` is a step, ``latest``, ``best:loss``,
    a tag, or a node's id.

    An ``@`` that belongs to the URL is left in it: in a path that exists, before a slash
    (``/data/me@home/run``), or between user and host (``sftp://me@host``). Behind a store of this machine a
    tag may have slashes.
    """
    url, found, at = target.rpartition("@")
    if "/" in at and not os.path.exists(target) and os.path.exists(os.path.join(url, STORE_KEY)):
        return url, at
    is_path = any(c in at for c in "/\\") or (":" in at and not os.path.exists(url))
    is_path = is_path and not at.startswith("best:")
    if not found or os.path.exists(target) or is_path or _is_host(url):
        return target, None
    if not at or not url:
        raise typer.BadParameter(f"{target!r} is not URL@STEP: write /data/run@1000, or /data/run alone")
    return url, as_state(at)


def _is_host(url: str) -> bool:
    """Return whether `url` ends within the part that names user and host."""
    _, found, rest = url.rpartition("://")
    return bool(found) and "/" not in rest


def as_state(text: str) -> int | str:
    """Return the name of a state: a number is a step, unless it has the form of an id."""
    return int(text) if is_number(text) else text


def as_run(text: str) -> int | str:
    """Return the name of a run: its number, or its id."""
    return int(text) if is_number(text) and not RUN_ID_RE.fullmatch(text) else text


def state_of(target: str, at: str | None) -> tuple[str, int | str | None]:
    """Return the URL and the state that ``URL@STEP``, or ``URL --at STEP``, names."""
    return split_at(target) if at is None else (target, as_state(at))


def understood(option: str, read: Callable[[str], T], text: str | None) -> T | None:
    """Return what the text of an option means; text that cannot be read is wrong usage."""
    if text is None:
        return None
    try:
        return read(text)
    except InvalidInputError as error:
        raise typer.BadParameter(f"{option}: {error}") from error


def typed_again(**options: object) -> str:
    """Return options that were given, as they are typed: `max_bytes="10 MB"` as `` --max-bytes '10 MB'``.

    One that was given more than once is a list.
    """
    given = {name.replace("_", "-"): each for name, each in options.items() if each is not None}
    typed = (
        (name, text) for name, each in given.items() for text in (each if isinstance(each, list) else [each])
    )
    return "".join(f" --{name} {shlex.quote(str(text))}" for name, text in typed)


def as_typed(keeps: list[str] | None) -> str:
    """Return all ``--keep`` as one, in the words of the user."""
    return " | ".join(keeps or ())


def retention_of(keeps: list[str] | None) -> Retention:
    """Return the retention that all ``--keep`` make together."""
    from lcstore.retention.parse import parse_retention

    united: Retention | None = None
    for text in keeps or ():
        one = understood("--keep", parse_retention, text)
        united = one if united is None or one is None else united | one
    if united is None:
        raise typer.BadParameter("say what to keep: --keep 'latest:3 | every:1000'")
    return united


def divided(outputs: list[str]) -> tuple[list[str], list[str]]:
    """Return what of ``-o`` are files, and what are options for the target."""
    pairs = [text for text in outputs if _PAIR.match(text)]
    files = [text for text in outputs if not _PAIR.match(text)]
    if len(files) > 1:
        raise typer.BadParameter(f"one FILE, not {len(files)}: {', '.join(files)}")
    return files, pairs
