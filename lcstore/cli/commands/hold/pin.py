"""``lcstore pin`` and ``unpin``: keep a state, whatever a retention says, and let it be again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.errors import NotFoundError
from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import AsJson, AtState, Options, Pairs, state_of
from lcstore.terminal.stores import below_of, list_pins, pins_of
from lcstore.terminal.table import Table, counted

if TYPE_CHECKING:
    from lcstore.store.store import Store


def pin(
    target: Annotated[
        str, typer.Argument(metavar="URL[@STEP]", help="A state; a store, or a place of some, to list pins.")
    ],
    by: Annotated[
        str | None, typer.Option("--by", metavar="WHO", help="Who pins. Each name has a pin of its own.")
    ] = None,
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Pin a state (URL@STEP), so that nothing retires it; or list the pins of a store, or of all below.

    A retired state that is not collected yet is brought back by pinning it, by its step or node, for as long
    as it stays pinned. To take pins away: lcstore unpin.
    """
    url, state = state_of(target, at)
    if state is None and by is not None:
        raise typer.BadParameter("name the state: URL@STEP")
    with answering(url, as_json, options, pairs) as answer:
        below = below_of(answer) if state is None else []
        if below:
            list_pins(answer, below)
            return
        with answer.store(writable=state is not None) as store:
            if state is None:
                pins = pins_of(store)
                answer.give({"url": answer.url, "pins": pins}, _shown(answer, pins))
            else:
                _pin(answer, store, state, by or "")


def unpin(
    target: Annotated[str, typer.Argument(metavar="URL@STEP", help="The state.")],
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="WHO", help="Only the pin of this name; else all, of others too."),
    ] = None,
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Take the pins of a state away, so that it can be retired; one that was retired is hidden again."""
    url, state = state_of(target, at)
    if state is None:
        raise typer.BadParameter("name the state: URL@STEP")
    with answering(url, as_json, options, pairs) as answer, answer.store(writable=True) as store:
        try:
            info = store.info(state)
        except NotFoundError:  # its record may be lost: its pins are taken away, or this is raised again
            count = store.unpin(state, by)
            facts = {"url": answer.url, "step": None, "node": state, "by": [] if by is None else [by]}
            said = f"Taken from node {state}, which is not there: {counted(count, 'pin')}."
            answer.give(facts, [said], deleted=count, retired=False)
            return
        pins = (one.pinned_by for one in store.states(records=False) if one.node == info.node)
        held = [who for those in pins for who in those if by in (None, who)]
        count = store.unpin(info.node, by)
        if not count:
            answer.next = f"lcstore pin {answer.quoted}"
            raise NotFoundError("it is not pinned" + ("" if by is None else f" by {by!r}"), step=info.step)
        gone = _is_retired(store, info.node)
        again = " It had been retired, and is hidden again." if gone else ""
        whose = ", ".join(f"of {who!r}" if who else "without a name" for who in held)
        taken = ("a pin" if count == 1 else f"{count} pins") + f" ({whose})" * bool(held)
        facts = {"url": answer.url, "step": info.step, "node": info.node, "by": held}
        answer.give(facts, [f"Taken from step {info.step}: {taken}.{again}"], deleted=count, retired=gone)


def _pin(answer: Answer, store: Store, state: int | str, by: str) -> None:
    hidden = {one.node for one in store.states(records=False, retired=True) if one.retired}
    info = store.info(store.pin(state, by))
    gone = info.node in hidden
    back = " It was retired, and is back as long as it is pinned: unpin hides it again." if gone else ""
    said = f"Step {info.step} is pinned (node {info.node}): nothing retires it.{back}"
    facts = {"url": answer.url, "step": info.step, "node": info.node}
    answer.give(facts, [said], by=by, brought_back=gone)


def _is_retired(store: Store, node: str) -> bool:
    """Return whether a state was let go of."""
    return any(one.retired for one in store.states(records=False, retired=True) if one.node == node)


def _shown(answer: Answer, pins: list[dict[str, Any]]) -> Iterator[Table | str]:
    if not pins:
        yield f"There are no pins. To pin a state: lcstore pin {answer.quoted}@STEP"
        return
    table = Table("step", "by", "node", right=("step",))
    for pin in pins:
        table.row(*pin.values())
    yield table
