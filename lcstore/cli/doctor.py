"""``lcstore doctor``: is everything here that lcstore needs, and does a target keep its promises?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lcstore.cli.arguments import AsJson, Options, Pairs, storage_options
from lcstore.cli.output import Answer, answering, progress, row, table


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
    opening = storage_options(options, pairs)
    with answering(url or "", as_json) as answer:
        from lcstore.cli.examine import machine, versions

        answer.next = ""
        about: dict[str, Any] = {"versions": versions(), "machine": machine()}
        if url is not None:
            about["target"] = _target(answer, opening)
        if as_json:
            answer.document(about)
        else:
            _print(answer, about)
        failed = not about["machine"]["codec"]["ok"] or not about.get("target", {}).get("ok", True)
    if failed:
        raise typer.Exit(1)


def _target(answer: Answer, opening: dict[str, Any]) -> dict[str, Any]:
    from lcstore.cli.examine import target

    with progress(answer.as_json) as bar:
        bar.add_task("trying the target", total=None)
        return target(answer.url, opening)


def _print(answer: Answer, about: dict[str, Any]) -> None:
    shown = table("package", "version")
    for name, version in about["versions"].items():
        row(shown, name, version or "not installed", style=None if version else "dim")
    answer.console.print(shown)
    facts = table("here", "")
    here = about["machine"]
    row(facts, "platform", here["platform"])
    row(facts, "cores", here["cores"])
    cache = here["cache"]
    state = f"{cache['kernels']} kernels in {cache['path']}" if cache["path"] else "none"
    state += "" if cache["writable"] else ": not writable, so each start compiles anew"
    row(facts, "compiled kernels", state)
    codec = here["codec"]
    speed = ""
    if codec["ok"]:
        speed = f"good: {codec['encode_gb_s']:.1f} GB/s in, {codec['decode_gb_s']:.1f} GB/s out, one thread"
    style = None if codec["ok"] else "red"
    row(facts, "codec", speed if codec["ok"] else f"broken: {codec['problem']}", style=style)
    answer.console.print(facts)
    if "target" in about:
        _print_target(answer, about["target"])


def _print_target(answer: Answer, target: dict[str, Any]) -> None:
    facts = table("target", target["url"])
    row(facts, "store", target["store"], style="red" if target["problem"] else None)
    row(facts, "can be written", "yes" if target["writable"] else "no: it can only be read")
    row(facts, "durable when save returns", "yes" if target["durable"] else "as far as the target promises")
    answer.console.print(facts)
    if target["checks"]:
        checks = table("promise", "kept", "seconds", right=("seconds",))
        for check in target["checks"]:
            kept = "yes" if check["problem"] is None else check["problem"]
            style = None if kept == "yes" else "red"
            row(checks, check["name"], kept, f"{check['seconds']:.2f}", style=style)
        answer.console.print(checks)
    good = "Good: this target keeps every promise that lcstore needs." if target["checks"] else "Good."
    bad = "Not good: do not keep a store there, or ask its maintainers about what is red above."
    answer.console.print(good if target["ok"] else bad, highlight=False)
