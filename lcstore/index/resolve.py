"""Which node a user means, and what is said where there is none."""

from __future__ import annotations

import logging
import os
import posixpath
import re
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from shlex import quote
from typing import Any, Final

from lcstore.errors import InvalidInputError, LcstoreError, NotFoundError
from lcstore.format import keys
from lcstore.format.keyforms import is_beginning, is_number
from lcstore.format.markkeys import TagName
from lcstore.graph.graph import Graph
from lcstore.graph.refs import NodeName
from lcstore.index.gone import none_left, unrecorded
from lcstore.index.listing import LATEST, SAVED, Listing
from lcstore.index.marked import bearers, bearers_of_tags
from lcstore.storage.backend import Backend, exists, mapped
from lcstore.storage.finding import FEW_LOOKS, MARK, MARKER, look_at, stores_below
from lcstore.storage.masking import without_secrets
from lcstore.storage.memory import memory_names

#: What is worth a line at a terminal, and no warning.
HINTS: Final = logging.getLogger("lcstore.hints")

_CUT_OFF: Final = "If a copy to here was cut off, the same `lcstore cp` goes on with it"
#: Of a place that lacks what makes it a store.
_HEADLESS: Final = (
    f"{keys.STORE_KEY} is missing here, and so is its second copy, beside records of states: the next save "
    f"of a training run writes it anew, and so does a repair. {_CUT_OFF}"
)
#: Tags that a message names.
_TAGS_SHOWN: Final = 5
_RUNS_SHOWN: Final = 10
_NODES_SHOWN: Final = 5
#: Stores that a message names.
_BELOW_SHOWN: Final = 5
#: The beginning of an id as other tools cut theirs, too short to name a node by.
_CUT_ID: Final = re.compile("[0-9a-f]{4,7}")


def resolved(graph: Graph, at: object, run: str | int | None, own: str | None) -> NodeName | None:
    """Return the node of a step, of an id, or the latest one; None where there is none: it may be a tag.

    Parameters
    ----------
    graph, at
        The nodes, and what the user calls one.
    run
        Look only at the nodes of this run number or run id.
    own
        The run that this handle writes: the latest one, and that of a step, is its own while it has any.
    """
    if at is None or at == "latest":
        return (graph.latest(own) if own is not None and run is None else None) or graph.latest(run)
    if isinstance(at, int):
        return (graph.at_step(at, own) if own is not None and run is None else None) or graph.at_step(at, run)
    if isinstance(at, str):
        if run is not None:
            raise InvalidInputError(
                f"{at!r:.100} names one state: `run` goes with a step, 'latest' or 'best:loss'"
            )
        return graph.nodes.get(at)
    raise InvalidInputError(
        f"a state is named by step, 'latest', 'best:loss', tag or node id, not {at!r:.100}"
    )


def hint_of_others(graph: Graph, url: str, at: object, taken: NodeName) -> None:
    """Log which node was taken for a step that several have, and what the others are called."""
    nodes = graph.revisions(at) if isinstance(at, int) else ()
    others = [f"{name.node} (run {name.run})" for name in nodes if name != taken]
    if others:
        shown = ", ".join(others[: -_NODES_SHOWN - 1 : -1]) + ", ..." * (len(others) > _NODES_SHOWN)
        HINTS.info(
            "%s: step %d was saved %d times; this is node %s of run %d. By id there is also %s",
            url, at, len(nodes), taken.node, taken.run, shown,
        )  # fmt: skip


def begins(graph: Graph, url: str, at: object) -> NodeName | None:
    """Return the node whose id begins so, with 8 characters or more; None where there is none.

    Raises
    ------
    InvalidInputError
        Several do; the message names them.
    """
    if not isinstance(at, str) or not is_beginning(at):
        return None
    found = [name for node, name in [*graph.nodes.items()] if node.startswith(at)]
    if len(found) > 1:
        shown = ", ".join(f"{name.node} (step {name.step})" for name in found[:_NODES_SHOWN])
        more = ", ..." * (len(found) > _NODES_SHOWN)
        raise InvalidInputError(f"the ids of {len(found)} nodes in {url} begin with {at!r}: {shown}{more}")
    return found[0] if found else None


def check_run(graph: Graph, url: str, run: str | int | None) -> None:
    """Refuse a run that has no state, naming those that have, and a number that two runs took at once."""
    if run is None:
        return
    shown = graph.shown()
    ids = sorted({name.run_id for name in shown if name.run == run})
    if len(ids) > 1:
        raise InvalidInputError(
            f"{len(ids)} runs that began at the same time in {url} took the number {run}: "
            f"name one of them by its id, {' or '.join(map(repr, ids[:_RUNS_SHOWN]))}"
        )
    if graph.latest(run) is None:
        runs = runs_there(graph)
        about = f"; `lcstore ls {quote(url)} --runs` tells of them" * bool(runs)
        raise NotFoundError(
            f"there is no run {run!r:.100} in {url}; its runs are {runs or 'none yet'}{about}", missing="run"
        )


def runs_there(graph: Graph) -> str:
    """Return number and id of each run that has a state, as text; "" where there is none."""
    there = sorted({(name.run, name.run_id) for name in graph.shown()})
    runs = ", ".join(f"{number} ({run_id})" for number, run_id in there[:_RUNS_SHOWN])
    return runs + ", ..." * (len(there) > _RUNS_SHOWN)


def absent(
    graph: Graph,
    named: Sequence[TagName],
    url: str,
    at: object,
    run: str | int | None,
    is_going: Callable[[str], bool],
) -> NotFoundError:
    """Return the error that says that there is no such node, of a run where one is named, and what there is.

    `is_going` says of a retired one whether something that it may need is condemned.
    """
    what = "no state" if at in (None, "latest") else f"no state {at!r:.100}"
    if isinstance(at, str) and is_number(at):
        what += " (a step is an integer, not a text)"
    elif isinstance(at, str) and _CUT_ID.fullmatch(at):
        what += " (the beginning of a node's id has 8 characters or more)"
    borne = bearers(named, "tag", graph.nodes)
    bearer = borne[at][-1].node if isinstance(at, str) and at in borne else at
    retired = _retired(graph, url, bearer, run, is_going)
    where = url if run is None else f"run {run} of {url}"
    there = holds(graph, url, bearers_of_tags(named, graph), at, run)
    step = at if isinstance(at, int) else None
    return NotFoundError(f"there is {what} in {where}; {retired}{there}", step=step, missing="state")


def no_store(
    backend: Backend, url: object = None, storage_options: Mapping[str, Any] | None = None
) -> NotFoundError:
    """Return the error that says that nothing was saved here yet, or that what says so is missing.

    By the URL as the user gave it, if that is one, and its options, it also names the stores that may have
    been meant.
    """
    if lacks := headless(backend):
        said = f"{lacks}; `lcstore verify {quote(backend.url)}` says what is there"
        return NotFoundError(f"no store can be read at {backend.url}: {said}", missing="store")
    meant = _meant(os.fspath(url), storage_options) if isinstance(url, str | os.PathLike) else ""
    begins = "the first save in mode 'a' creates one" if backend.writable else "check the URL"
    return NotFoundError(f"there is no store at {backend.url}; {begins}{meant}", missing="store")


def _meant(url: str, storage_options: Mapping[str, Any] | None) -> str:
    """Return what may have been meant by a place that is no store: stores below it, or names like its own."""
    found: list[str] = []
    with suppress(LcstoreError):
        found = stores_below(url, storage_options, levels=2, most=_BELOW_SHOWN + 1, looks=FEW_LOOKS)
    found = [one for one in found if one != url.rstrip("/")]  # unless it was made in this moment
    if not found:
        meant = ", ".join(map(without_secrets, near(url, storage_options)))
        return f". Beside it is {meant}" if meant else ""
    below = ", ".join(map(without_secrets, found[:_BELOW_SHOWN]))
    return f". Below it are {below}" + ", ..." * (len(found) > _BELOW_SHOWN)


def near(url: str, storage_options: Mapping[str, object] | None = None) -> list[str]:
    """Return the folders beside a URL that may have been meant by it, the nearest first; none if it is there.

    For a message: it takes one listing of the folder that all of them lie in, and a failure is no answer.
    """
    before, slash, name = url.rstrip("/").rpartition("/")
    if "::" in url or not name:
        return []
    beside: Collection[str] = []
    if url.startswith("memory://"):
        inside = f"{before.removeprefix('memory:/').strip('/')}/".lstrip("/")
        names = [one.removeprefix(inside) for one in memory_names(MARK) if one.startswith(inside)]
        beside = {one.partition("/")[0] for one in names}
    else:
        with suppress(LcstoreError), mapped("list", without_secrets(url)):
            look, root = look_at(url, dict(storage_options or {}))
            folder = posixpath.dirname(root)
            if folder or "://" not in url:  # what lies beside a bucket is other people's
                found = look(folder or ".")
                if found is not None and MARKER not in found.files:  # of a store it would be its parts
                    beside = found.folders
    return [] if name in beside else [f"{before}{slash}{one}" for one in get_close_matches(name, beside)]


def headless(backend: Backend) -> str:
    """Return what is said of a place that is no store and has parts of one; "" where none is seen."""
    try:
        if Listing.take(backend, LATEST).below(keys.NODES):
            return _HEADLESS
        saved = Listing.take(backend, SAVED)
        lost = unrecorded(saved) or "Objects of a save are here, and no record" * bool(saved.data)
        return f"{lost}. {_CUT_OFF}" if lost else ""
    except LcstoreError:
        return ""


def lost_records(backend: Backend) -> str:
    """Return what is said of a store without a record of a state, if records may be lost; "" of a new one."""
    if not exists(backend, keys.STORE_KEY):
        return ""
    return unrecorded(Listing.take(backend, SAVED))


def holds(
    graph: Graph, url: str, tags: Iterable[str] = (), at: object = None, run: str | int | None = None
) -> str:
    """Return what a store holds, or a run of it, and the steps or tags that may have been meant."""
    steps = graph.steps(run)
    if not steps:
        left = none_left(graph)
        look = f". {left}: `lcstore ls {quote(url)} --retired`" if left else ""
        return "it holds none" + (look or f": `lcstore verify {quote(url)}` says whether any was lost")
    near = ""
    shown = sorted(tags)
    if isinstance(at, int):
        place = bisect(steps, at)
        near = f" (nearest: {', '.join(map(str, steps[max(place - 1, 0) : place + 1]))})"
    elif isinstance(at, str) and shown:
        near = f" and the tags {', '.join(map(repr, shown[:_TAGS_SHOWN]))}"
        near += ", ..." if len(shown) > _TAGS_SHOWN else ""
    count = f"{len(steps)} step{'s' if len(steps) > 1 else ''} from {steps[0]} to {steps[-1]}"
    own = "" if run is None else f" --run {run}"
    return f"it holds {count}{near}: `lcstore ls {quote(url)}{own}`"


def no_tag(tags: Iterable[str], url: str, name: str) -> NotFoundError:
    """Return the error that says that no state has a tag, and which may have been meant."""
    near = " or ".join(map(repr, get_close_matches(name, sorted(tags), n=2)))
    meant = f"; the nearest is {near}" if near else ""
    said = f"there is no tag {name!r} in {url}{meant}: `lcstore tag {quote(url)}` lists all"
    return NotFoundError(said, missing="tag")


def _deleted(graph: Graph, at: object) -> str:
    """Return what retirements tell of states that are gone: their nodes, as far as later states name them."""
    gone = graph.hidden - graph.nodes.keys()
    if at in gone:
        return "it was let go of, and is deleted; "
    latest = graph.latest()
    if gone and isinstance(at, int) and latest is not None and at < latest.step:
        return "states were let go of here and are deleted: the output of the night that did it says which; "
    return ""


def _retired(
    graph: Graph, url: str, at: object, run: str | int | None, is_going: Callable[[str], bool]
) -> str:
    """Return what may still be had of a step that was retired, or of a node that a tag was set on."""
    gone = (n for n in [*graph.nodes.values()] if at in (n.step, n.node) and n.node in graph.hidden)
    found = [n for n in gone if run is None or run in (n.run, n.run_id)]
    if not found:
        return _deleted(graph, at)
    node = found[-1].node
    it = "it" if node != at else f"step {found[-1].step}, on which it was set,"
    if node in graph.condemned_nodes:
        return (
            f"{it} was let go of, and is being deleted; as long as it can be read, "
            f"`lcstore export {quote(f'{url}@{node}')} state.safetensors` saves its values; "
        )
    if is_going(node):
        listed = f"`lcstore ls {quote(url)} --retired`"
        whether = f"{listed} says whether it is being collected, or a pin brings it back"
        return f"{it} was let go of, and {whether}; "
    return (
        f"{it} was retired, and until it is collected its id still finds it, {node}, and "
        f"`lcstore pin {quote(f'{url}@{at}')}` brings it back for as long as it stays pinned; "
    )
