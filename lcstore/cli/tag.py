"""``lcstore tag``: names to find states by."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.cli.arguments import AsJson, AtState, Options, Pairs, state_of, storage_options, understood
from lcstore.cli.opening import opened
from lcstore.cli.output import Answer, answering, print_lines, print_rows
from lcstore.errors import NotFoundError

if TYPE_CHECKING:
    from lcstore.store.store import Store


def tag(
    target: Annotated[str, typer.Argument(metavar="URL[@STEP]", help="A state; a store to list tags.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The tag.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Take the tag away from all states.")] = False,
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Tag a state (URL@STEP NAME), take a tag away (URL NAME --delete), or list the tags (URL).

    A tag that several states have finds the one on which it was set last.
    """
    from lcstore.format.labels import check_tag

    url, state = state_of(target, at)
    opening = storage_options(options, pairs)
    understood("NAME", check_tag, name)
    if name is None and (delete or state is not None):
        raise typer.BadParameter("name the tag too: URL@STEP NAME, or URL NAME --delete")
    if name is not None and delete and state is not None:
        raise typer.BadParameter("a tag is taken away from all states: lcstore tag URL NAME --delete")
    if name is not None and not delete and state is None:
        raise typer.BadParameter("name the state to tag: URL@STEP NAME, or URL@latest NAME")
    with answering(url, as_json) as answer:
        if name is None:
            _list(answer, opening)
            return
        with opened(answer, opening, writable=True) as store:
            told = _delete(answer, store, name) if delete else _set(answer, store, name, state)
        if as_json:
            answer.document({"url": url, "tag": name} | told)


def _set(answer: Answer, store: Store, name: str, state: int | str | None) -> dict[str, Any]:
    info = store.info(state)
    store.tag(name, info.node)
    if not answer.as_json:
        found = shlex.quote(f"{answer.url}@{name}")
        print_lines(answer, [f"Step {info.step} is tagged {name}; it is found by: lcstore show {found}"])
    return {"step": info.step, "node": info.node}


def _delete(answer: Answer, store: Store, name: str) -> dict[str, Any]:
    bearers = [state for state in store.states(records=False, retired=True) if name in state.tags]
    if not bearers:
        answer.next = f"lcstore tag {answer.quoted}"
        raise NotFoundError(f"there is no tag {name!r}")
    store.untag(name)
    if not answer.as_json:
        steps = ", ".join(str(state.step) for state in bearers[:10]) + ", ..." * (len(bearers) > 10)
        print_lines(answer, [f"The tag {name} is taken away; it was on step {steps}."])
    return {"deleted": True, "steps": [state.step for state in bearers]}


def _list(answer: Answer, opening: dict[str, Any]) -> None:
    with opened(answer, opening) as store:
        found, states = store.tags(), store.states(records=False)
    step = {state.node: state.step for state in states}
    bearers = {name: [state.step for state in states if name in state.tags] for name in sorted(found)}
    tags = [(name, step.get(found[name]), found[name], steps) for name, steps in bearers.items()]
    if answer.as_json:
        about = {name: {"step": at, "node": node, "steps": steps} for name, at, node, steps in tags}
        answer.document({"url": answer.url, "tags": about})
    elif tags:
        rows: list[tuple[object, ...]] = [(name, at, len(steps), node) for name, at, node, steps in tags]
        columns = ("tag", "finds step", "on states", "node")
        print_rows(answer, columns, rows, right=columns[1:3])
    else:
        print_lines(answer, [f"There are no tags. To set one: lcstore tag {answer.quoted}@STEP NAME"])
