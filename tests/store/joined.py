"""Parts of several writers, joined to what a record says: lcstore reads such edges, and writes none yet."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

from lcstore.errors import CorruptionError, InvalidInputError, StorageError
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, PartBody
from lcstore.format.strictjson import dumps
from lcstore.layout.join import join, leaf_places
from lcstore.layout.layout import Layout
from lcstore.state.containers import where
from lcstore.state.leaves import Leaf
from lcstore.state.tree import structure_names
from lcstore.storage.backend import Backend
from lcstore.track.draft import Draft
from lcstore.write.parts import finish_part, run_jobs
from lcstore.write.written import Written


def write_part(
    written: Written,
    draft: Draft,
    leaves: Sequence[Leaf],
    executor: Executor,
    *,
    exact: bool = False,
    apart: bool = False,
    named: tuple[Layout, str] | None = None,
) -> PartBody:
    """Code and store what one writer has of a state; nobody sees it before a record names it.

    Parameters
    ----------
    written
        Says which part of which edge it is. The edge's id is drawn once, for all writers.
    draft
        Of the writer's own track: its tensors, and shards of those that it shares with others. It is to be
        committed once the record is there, and to be rolled back if that does not come to be.
    leaves
        The plain values, in the order of the structure.
    executor
        Threads to code and write with.
    exact
        Whether the exact value is kept: all writers of an edge say the same.
    apart
        Store the part as an object of its own, so that the record of many writers stays small.
    named
        Layout and hash that the head names for this part, once the head is acknowledged: see `put_layout`.

    Raises
    ------
    InvalidInputError
        A value does not fit its grid: roll back, and draft again with `draft.off_grid` among `reset`.
    StorageError
        An object could not be stored.
    """
    try:
        run_jobs(written, draft.jobs, executor)
        if draft.off_grid:
            names = ", ".join(where(draft.layout.tensors[t].name) for t in sorted(draft.off_grid)[:3])
            raise InvalidInputError(
                f"values do not fit their grids at {names}: draft again, and set them anew"
            )
        layout = written.put_layout(draft.layout, named)
        part = replace(finish_part(written, draft, leaves, exact=exact), layout=layout)
        if not apart:
            return part
        body = part.to_bytes(written.edge)
        return replace(part, stored=written.put_with_copy(keys.part_key(written.edge, written.part), body))
    except BaseException:
        written.take_away()
        raise


def join_parts(edge: str, base: str, parts: Sequence[tuple[PartBody, Layout]]) -> EdgeBody:
    """Return the edge that parts of several writers make, having checked that they fit each other.

    Parameters
    ----------
    edge, base
        Its id and where it leads from, as all writers were told.
    parts
        With the layout of each.

    Raises
    ------
    InvalidInputError
        Two parts have one name, some keep an exact value and others do not, shards overlap or leave gaps, or
        two parts give different plain values, or unlike containers, for one name.
    """
    ordered = sorted(parts, key=lambda pair: int(pair[0].name))
    names = [part.name for part, _ in ordered]
    if not names or len(set(names)) != len(names):
        raise InvalidInputError(f"the parts of an edge are numbered, each once, not {', '.join(names)}")
    if len({part.exact is None for part, _ in ordered}) > 1:
        raise InvalidInputError("some parts keep an exact value, and others do not: all must do the same")
    try:
        joined = join([(part.name, layout) for part, layout in ordered])
    except CorruptionError as error:
        raise InvalidInputError(error.message) from error
    _check_leaves(joined, [part for part, _ in ordered])
    return EdgeBody(edge, base, tuple(part for part, _ in ordered))


def _check_leaves(joined: Layout, parts: Sequence[PartBody]) -> None:
    """Refuse plain values that two parts give differently; those in objects of their own by their hashes."""
    if not joined.parts:
        return
    names = structure_names(joined.structure)[1]
    for name, places in zip(names, leaf_places(joined), strict=True):
        values = [_leaf(parts[number], place) for number, place in places]
        if any(value != values[0] for value in values):
            raise InvalidInputError(f"two parts give different plain values at {where(name)}")


def _leaf(part: PartBody, place: int) -> object:
    if part.leaves_object is not None:
        return part.leaves_object.hash, place
    return None if part.leaves is None else dumps(part.leaves[place])


def check_stored(backend: Backend, edge: EdgeBody) -> None:
    """Check that all objects of all parts are there, before a record names them.

    Raises
    ------
    StorageError
        One is missing: its writer has not stored it here.
    """
    there = set(backend.list(keys.edge_folder(edge.id)))
    for part in edge.parts:
        for ref in part.needed:
            if ref.key not in there:
                raise StorageError(f"part {part.name} of the state is not all there", key=ref.key)
