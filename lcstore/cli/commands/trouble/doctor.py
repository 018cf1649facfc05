"""``lcstore doctor``: is everything here that lcstore needs, and does a target keep its promises?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, Options, Pairs
from lcstore.terminal.machine import about_kernels, why_not
from lcstore.terminal.table import Table
from lcstore.version import UPGRADE


def doctor(
    url: Annotated[
        str | None,
        typer.Argument(metavar="[URL]", help="Try this target; what it writes is deleted again."),
    ] = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Show versions and what this machine can do; with a URL, what the target can."""
    with answering(url or "", as_json, options, pairs) as answer:
        from lcstore.terminal.machine import machine, versions
        from lcstore.terminal.target import target

        answer.next = ""
        about: dict[str, Any] = {"versions": versions(), "machine": machine()}
        if url is not None:
            with answer.progress("trying the target"):
                about["target"] = target(url, answer.storage_options)
        answer.give(about, _tables(about, answer.quoted))
        failed = not about["machine"]["codec"]["ok"] or not about.get("target", {}).get("ok", True)
    if failed:
        raise typer.Exit(1)


def _tables(about: dict[str, Any], quoted: str) -> Iterator[Table | str]:
    shown = Table("package", "version")
    for name, version in about["versions"].items():
        shown.row(name, version or "not installed", style=None if version else "dim")
    yield shown
    yield _machine(about["machine"])
    if "target" in about:
        yield from _target(about["target"], quoted)


def _machine(here: dict[str, Any]) -> Table:
    facts = Table("here", "")
    facts.row("platform", here["platform"])
    facts.row("cores", here["cores"])
    facts.row("compiled kernels", about_kernels(here["cache"]))
    codec = here["codec"]
    if codec["ok"]:
        speeds = f"{codec['encode_gb_s']:.1f} GB/s in, {codec['decode_gb_s']:.1f} GB/s out, one thread"
        facts.row("codec", f"good: {speeds}")
    else:
        facts.row("codec", f"broken: {codec['problem']}", style="red")
    return facts


def _target(target: dict[str, Any], quoted: str) -> Iterator[Table | str]:
    facts = Table("target", target["url"])
    look = f"; are they whole? lcstore verify {quoted}" * target["store"].endswith(" steps")
    facts.row("store", target["store"] + look, style="red" if target["problem"] else None)
    if target["problem"] and not target["checks"]:
        yield facts
        yield f"Not good: {why_not(target)}"
        return
    facts.row("objects are written", target["writing"])
    facts.row("requests go", target["requests"])
    facts.row("a save outlives a power cut", "yes" if target["durable"] else "if the target's disks do")
    yield facts
    if target["checks"]:
        checks = Table("promise", "kept", "seconds", right=("seconds",))
        for check in target["checks"]:
            style = "red" if check["problem"] else None
            checks.row(check["name"], check["problem"] or "yes", f"{check['seconds']:.2f}", style=style)
        yield checks
    if against := why_not(target):
        yield f"Not good: {against}"
        return
    yield "Good: this target keeps every promise that lcstore needs." if target["checks"] else "Good."
    if "upgrade lcstore" in target["store"]:
        yield f"But the store that lies there is of a newer version. Next: {UPGRADE}"
    elif target["problem"]:
        yield f"But the store that lies there is damaged, or cannot be read. Next: lcstore verify {quoted}"
