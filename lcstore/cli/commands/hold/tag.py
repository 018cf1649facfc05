"""``lcstore tag`` and ``untag``: names to find states by."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import AsJson, AtState, Options, Pairs, Url, state_of, understood
from lcstore.terminal.table import Table

if TYPE_CHECKING:
    from lcstore.store.store import Store

_MOST_SHOWN = 10


def tag(
    target: Annotated[str, typer.Argument(metavar="URL[@STEP]", help="A state; a store to list tags.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The tag.")] = None,
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Tag a state (URL@STEP NAME), or list the tags (URL). To take one away: lcstore untag URL NAME.

    A tag that several states have finds the one on which it was set last.
    """
    from lcstore.format.labels import check_tag

    url, state = state_of(target, at)
    understood("NAME", check_tag, name)
    if name is None and state is not None:
        raise typer.BadParameter("name the tag too: URL@STEP NAME")
    if name is not None and state is None:
        raise typer.BadParameter("name the state to tag: URL@STEP NAME, or URL@latest NAME")
    with answering(url, as_json, options, pairs) as answer, answer.store(writable=name is not None) as store:
        if name is None:
            _list(answer, store)
        else:
            _set(answer, store, name, state)


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
    with answering(url, as_json, options, pairs) as answer:
        answer.whole(f"lcstore untag {{store}} {shlex.quote(name)}")
        with answer.store(writable=True) as store:
            _take(answer, store, name)


def _take(answer: Answer, store: Store, name: str) -> None:
    bearers = [state for state in store.states(records=False, retired=True) if name in state.tags]
    if not bearers:
        answer.next = f"lcstore tag {answer.quoted}"
    store.untag(name)
    steps = [state.step for state in bearers]
    shown = ", ".join(map(str, steps[:_MOST_SHOWN])) + ", ..." * (len(steps) > _MOST_SHOWN)
    said = f"The tag {name} is taken away; it was on step {shown}."
    answer.give({"url": answer.url, "tag": name, "steps": steps}, [said])


def _set(answer: Answer, store: Store, name: str, state: int | str | None) -> None:
    info = store.info(state)
    last = store.tags().get(name)
    before = next((one.step for one in store.states(records=False) if one.node == last), None)
    store.tag(name, info.node)
    moved = "" if before in (None, info.step) else f" (it found step {before} before)"
    said = f"Step {info.step} is tagged {name}{moved}; it is found by: lcstore show {answer.at(name)}"
    facts = {"url": answer.url, "tag": name, "step": info.step, "node": info.node, "before": before}
    answer.give(facts, [said])


def _list(answer: Answer, store: Store) -> None:
    found, states = store.tags(), store.states(records=False)
    step = {state.node: state.step for state in states}
    bearers = {name: [state.step for state in states if name in state.tags] for name in sorted(found)}
    tags = {
        name: {"step": step.get(found[name]), "node": found[name], "steps": steps}
        for name, steps in bearers.items()
    }
    answer.give({"url": answer.url, "tags": tags}, _shown(answer, tags))


def _shown(answer: Answer, tags: dict[str, dict[str, Any]]) -> Iterator[Table | str]:
    if not tags:
        yield f"There are no tags. To set one: lcstore tag {answer.quoted}@STEP NAME"
        return
    columns = ("tag", "finds step", "on states", "node")
    table = Table(*columns, right=columns[1:3])
    for name, about in tags.items():
        table.row(name, about["step"], len(about["steps"]), about["node"])
    yield table
