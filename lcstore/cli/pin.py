"""``lcstore pin``: keep a state, whatever a retention rule says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.cli.arguments import AsJson, AtState, Options, Pairs, state_of, storage_options
from lcstore.cli.opening import opened
from lcstore.cli.output import Answer, answering, print_lines, print_rows
from lcstore.errors import NotFoundError

if TYPE_CHECKING:
    from lcstore.store.store import Store


def pin(
    target: Annotated[str, typer.Argument(metavar="URL[@STEP]", help="A state; a store to list pins.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="WHO", help="Who pins: each pin is taken away by itself.")
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Take the pins of the state away; with --by only that one.")
    ] = False,
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Pin a state (URL@STEP), so that nothing retires it; take pins away (--delete), or list them (URL).

    A retired state that is not collected yet is brought back by pinning its node: URL@NODE.
    """
    url, state = state_of(target, at)
    opening = storage_options(options, pairs)
    if state is None and (by is not None or delete):
        raise typer.BadParameter("name the state: URL@STEP, or URL@NODE for one that is retired")
    with answering(url, as_json) as answer:
        if state is None:
            _list(answer, opening)
            return
        with opened(answer, opening, writable=True) as store:
            told = _unpin(answer, store, state, by) if delete else _pin(answer, store, state, by or "")
        if as_json:
            answer.document({"url": url} | told)


def _pin(answer: Answer, store: Store, state: int | str, by: str) -> dict[str, Any]:
    info = store.info(state)
    gone = info.node in _retired(store)
    store.pin(info.node, by)
    if not answer.as_json:
        back = " It was retired, and is back." if gone else ""
        print_lines(answer, [f"Step {info.step} is pinned (node {info.node}): nothing retires it.{back}"])
    return {"step": info.step, "node": info.node, "by": by, "brought_back": gone}


def _unpin(answer: Answer, store: Store, state: int | str, by: str | None) -> dict[str, Any]:
    info = store.info(state)
    count = store.unpin(info.node, by)
    if not count:
        answer.next = f"lcstore pin {answer.quoted}"
        raise NotFoundError("it is not pinned" + ("" if by is None else f" by {by!r}"), step=info.step)
    gone = info.node in _retired(store)
    if not answer.as_json:
        again = " It had been retired, and is hidden again." if gone else ""
        pins = "a pin" if count == 1 else f"{count} pins"
        print_lines(answer, [f"Taken from step {info.step}: {pins}.{again}"])
    return {"step": info.step, "node": info.node, "deleted": count, "retired": gone}


def _retired(store: Store) -> set[str]:
    return {state.node for state in store.states(records=False, retired=True) if state.retired}


def _list(answer: Answer, opening: dict[str, Any]) -> None:
    with opened(answer, opening) as store:
        states = store.states(records=False)
    pins = [(state.step, by, state.node) for state in states for by in state.pinned_by]
    if answer.as_json:
        about = [{"step": step, "by": by, "node": node} for step, by, node in pins]
        answer.document({"url": answer.url, "pins": about})
    elif pins:
        rows: list[tuple[object, ...]] = list(pins)
        print_rows(answer, ("step", "by", "node"), rows, right=("step",))
    else:
        print_lines(answer, [f"There are no pins. To pin a state: lcstore pin {answer.quoted}@STEP"])
