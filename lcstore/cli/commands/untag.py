"""``lcstore untag``: take a tag away."""

from __future__ import annotations

from typing import Annotated

import typer

from lcstore.errors import NotFoundError
from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, Options, Pairs, Url, understood

_MOST_SHOWN = 10


def untag(
    url: Url,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tag.")],
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Take a tag away from all states that have it. The states stay."""
    from lcstore.format.labels import check_tag

    understood("NAME", check_tag, name)
    with answering(url, as_json, options, pairs) as answer, answer.store(writable=True) as store:
        bearers = [state for state in store.states(records=False, retired=True) if name in state.tags]
        if not bearers:
            answer.next = f"lcstore tag {answer.quoted}"
            raise NotFoundError(f"there is no tag {name!r}")
        store.untag(name)
        steps = [state.step for state in bearers]
        shown = ", ".join(map(str, steps[:_MOST_SHOWN])) + ", ..." * (len(steps) > _MOST_SHOWN)
        said = f"The tag {name} is taken away; it was on step {shown}."
        answer.give({"url": answer.url, "tag": name, "steps": steps}, [said])
