"""``lcstore unpin``: take pins away."""

from __future__ import annotations

from typing import Annotated

import typer

from lcstore.cli.commands.pin import is_retired
from lcstore.errors import NotFoundError
from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, AtState, Options, Pairs, state_of


def unpin(
    target: Annotated[str, typer.Argument(metavar="URL@STEP", help="The state.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="WHO", help="Only the pin of this name; else all.")
    ] = None,
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Take the pins of a state away, so that it can be retired again."""
    url, state = state_of(target, at)
    if state is None:
        raise typer.BadParameter("name the state: URL@STEP")
    with answering(url, as_json, options, pairs) as answer, answer.store(writable=True) as store:
        info = store.info(state)
        count = store.unpin(info.node, by)
        if not count:
            answer.next = f"lcstore pin {answer.quoted}"
            raise NotFoundError("it is not pinned" + ("" if by is None else f" by {by!r}"), step=info.step)
        gone = is_retired(store, info.node)
        again = " It had been retired, and is hidden again." if gone else ""
        pins = "a pin" if count == 1 else f"{count} pins"
        facts = {"url": answer.url, "step": info.step, "node": info.node}
        answer.give(facts, [f"Taken from step {info.step}: {pins}.{again}"], deleted=count, retired=gone)
