"""A layout as JSON, and back from JSON that is not trusted.

::

    {"format": 0, "kind": "layout", "structure": ...,
     "pools":   [[name, size, chunk], ...],
     "tensors": [[pool name, offset, [shape], framework], ...]}

Of a shard the row goes on with the shape of its tensor, and where in that it begins. Where there are notes,
they are a field more::

    "notes":   [["made", [name], class, context] | ["updates", [name], [places of tensors]], ...]

There is one row for each tensor of the structure, in its order. Nothing is said twice, so nothing can
disagree: names follow from the structure, role and dtype from the name of the pool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final, NoReturn

import numpy as np

from lcstore.dtypes import DTYPE_NAMES, LOSSY_DTYPES, dtype_from_name
from lcstore.errors import CorruptionError, UnsupportedFormatError
from lcstore.layout.poolmap import Places, PoolMap
from lcstore.layout.shards import Shard
from lcstore.layout.specs import (
    CHUNK_MULTIPLE,
    HUGE_CHUNK_BYTES,
    POOL_ROLES,
    PoolSpec,
    TensorSpec,
    check_shape,
    pool_align,
)
from lcstore.limits import MAX_POOL_ELEMENTS, MAX_TENSORS, check
from lcstore.state.containers import Structure, where
from lcstore.state.frameworks import FRAMEWORKS
from lcstore.state.jaxkeys import WIDTHS
from lcstore.state.names import Name, is_component
from lcstore.state.torchobjects import NO_NOTES, Made, Notes, checked_context
from lcstore.state.tree import structure_names

FORMAT: Final = 0
_FIELDS: Final = frozenset({"format", "kind", "structure", "pools", "tensors"})
#: A layout has at most one pool for each first word and dtype.
_MAX_POOLS: Final = len(POOL_ROLES) * len(DTYPE_NAMES)
#: The frameworks of tensors of any shape and dtype.
_WITHOUT_RULES: Final = {*FRAMEWORKS} - {*WIDTHS, "numpy-scalar"}


def write_layout(
    structure: Structure, tensors: Sequence[TensorSpec], pools: Mapping[str, PoolSpec], notes: Notes
) -> dict[str, Any]:
    """Return the parts of a layout as a JSON value."""
    rows = _note_rows(notes, [spec.name for spec in tensors])
    return ({"notes": rows} if rows else {}) | {
        "format": FORMAT,
        "kind": "layout",
        "structure": structure,
        "pools": [[pool.name, pool.size, pool.chunk] for pool in pools.values()],
        "tensors": [_row(spec) for spec in tensors],
    }


def _note_rows(notes: Notes, names: Sequence[Name]) -> list[Any]:
    places = {name: place for place, name in enumerate(names)} if notes.updates else {}
    rows: list[Any] = [["made", list(name), *made] for name, made in notes.made.items()]
    for name, updated in notes.updates.items():
        rows.append(["updates", list(name), [places[one] for one in updated]])
    return rows


def _row(spec: TensorSpec) -> list[Any]:
    row: list[Any] = [spec.pool, spec.offset, list(spec.shape), spec.framework]
    return row if spec.shard is None else [*row, list(spec.shard.whole), list(spec.shard.start)]


def read_layout(value: Any) -> tuple[Structure, tuple[TensorSpec, ...], dict[str, PoolSpec], Notes]:
    """Return the parts of the layout of a JSON value, validated; see `Layout.from_json`."""
    if type(value) is not dict or value.get("kind") != "layout":
        _corrupt("it is no layout")
    if type(value.get("format")) is not int or value["format"] != FORMAT:
        raise UnsupportedFormatError("the layout's format is not known: upgrade lcstore")
    if value.keys() - {"notes"} != _FIELDS:
        _corrupt("it lacks a field or has one too many")
    rows, pool_rows = value["tensors"], value["pools"]
    if type(rows) is not list or type(pool_rows) is not list:
        _corrupt("tensors or pools are no list")
    check(len(rows), MAX_TENSORS, "number of tensors of a layout")
    check(len(pool_rows), _MAX_POOLS, "number of pools of a layout")
    paths, _ = structure_names(value["structure"])
    if len(paths) != len(rows):
        _corrupt(f"its structure has {len(paths)} tensors, and {len(rows)} have places")
    pools = {pool.name: pool for pool in map(_read_pool, pool_rows)}
    if len(pools) != len(pool_rows):
        _corrupt("two pools have one name")
    tensors = _read_tensors(rows, paths, pools)
    notes = _read_notes(value["notes"], paths) if "notes" in value else NO_NOTES
    return value["structure"], tensors, pools, notes


def _read_notes(rows: Any, paths: list[Name]) -> Notes:
    if type(rows) is not list or not rows:
        _corrupt("there are notes that say nothing")
    check(len(rows), MAX_TENSORS, "number of notes of a layout")
    notes = Notes({}, {})
    for row in rows:
        if type(row) is not list or len(row) < 2 or type(row[1]) is not list:
            _corrupt("a note is not about a place")
        word, name, *said = row
        if not all(map(is_component, name)):
            _corrupt("a note is about something that is no name")
        if word == "made" and len(said) == 2 and type(said[0]) is str:
            notes.made[tuple(name)] = Made(said[0], checked_context(said[1]))
        elif word == "updates" and len(said) == 1 and type(said[0]) is list:
            places = [_count(place, len(paths) - 1, "the place of a tensor in a note") for place in said[0]]
            notes.updates[tuple(name)] = tuple([paths[place] for place in places])
        else:
            _corrupt("a note says nothing that is known")
    if _note_rows(notes, paths) != rows:
        _corrupt("its notes are in no order, or two are about one place")
    return notes


def _corrupt(what: str) -> NoReturn:
    raise CorruptionError(f"a stored layout cannot be right: {what}")


def _count(value: Any, limit: int, what: str) -> int:
    if type(value) is not int:
        _corrupt(f"{what} is no integer")
    return check(value, limit, what)


def _read_pool(row: Any) -> PoolSpec:
    if type(row) is not list or len(row) != 3 or type(row[0]) is not str:
        _corrupt("a pool is not a name and two numbers")
    name = row[0]
    prefix, _, dtype = name.partition("-")
    if prefix not in POOL_ROLES:
        _corrupt("a pool has a name that none can have")
    if dtype not in DTYPE_NAMES:
        raise UnsupportedFormatError("a stored layout has a pool of an unknown dtype: upgrade lcstore")
    role, itemsize = POOL_ROLES[prefix], dtype_from_name(dtype).itemsize
    if role != "plain" and dtype not in LOSSY_DTYPES:
        _corrupt(f"pool {name!r} is lossy, and its dtype is not")
    size = _count(row[1], MAX_POOL_ELEMENTS, f"size of pool {name!r}")
    chunk = _count(row[2], HUGE_CHUNK_BYTES // itemsize, f"chunk of pool {name!r}")
    if size % pool_align(role) or not chunk or chunk % CHUNK_MULTIPLE:
        _corrupt(f"size {size} or chunk {chunk} of pool {name!r} is not a multiple of what it has to be")
    return PoolSpec(name, dtype, size, chunk)


def _read_tensors(rows: list[Any], paths: list[Name], pools: dict[str, PoolSpec]) -> tuple[TensorSpec, ...]:
    """Return the tensors of all rows: together where each is right at a glance, or else one by one."""
    at_once = _read_at_once(rows, paths, pools)
    if at_once is not None:
        return at_once
    return tuple([_read_tensor(row, path, pools) for row, path in zip(rows, paths, strict=True)])


def _read_at_once(
    rows: list[Any], paths: list[Name], pools: dict[str, PoolSpec]
) -> tuple[TensorSpec, ...] | None:
    """Return what `_read_tensor` makes of each row; None where any of them takes a closer look."""
    if {*map(type, rows)} != {list} or {*map(len, rows)} != {4}:
        return None
    names, offsets, lists, frameworks = zip(*rows, strict=True)
    kinds = [{*map(type, column)} for column in (names, offsets, lists, frameworks)]
    if kinds != [{str}, {int}, {list}, {str}]:
        return None
    if {*map(type, chain.from_iterable(lists))} - {int} or not pools.keys() >= {*names}:
        return None
    if not {*frameworks} <= _WITHOUT_RULES or min(offsets) < 0 or max(offsets) > MAX_POOL_ELEMENTS:
        return None
    shapes = [*map(tuple, lists)]
    for shape in {*shapes}:
        if min(shape, default=0) < 0:
            return None
        check_shape(shape)
    words = {name: (pool.name, pool.dtype, pool.role) for name, pool in pools.items()}
    own_names, dtypes, roles = zip(*map(words.__getitem__, names), strict=True)
    columns = (paths, shapes, dtypes, roles, frameworks, own_names, offsets)
    return tuple(map(TensorSpec._make, zip(*columns, repeat(None, len(rows)), strict=True)))


def _read_tensor(row: Any, path: Name, pools: dict[str, PoolSpec]) -> TensorSpec:
    if type(row) is not list or len(row) not in (4, 6):
        _corrupt(f"the tensor at {where(path)} has no place")
    name, offset, shape, framework, *rest = row
    pool = pools.get(name) if type(name) is str else None
    if pool is None or framework not in FRAMEWORKS or type(shape) is not list:
        _corrupt(f"pool, shape or framework of the tensor at {where(path)} is not known")
    if type(offset) is not int or not all(type(size) is int and size >= 0 for size in shape):
        _corrupt(f"offset or shape of the tensor at {where(path)} is no list of integers")
    if not 0 <= offset <= MAX_POOL_ELEMENTS:
        _corrupt(f"the tensor at {where(path)} does not fit its pool")
    check_shape(shape)
    if framework == "numpy-scalar" and shape:
        _corrupt(f"the scalar at {where(path)} has dimensions")
    if framework in WIDTHS and (pool.dtype != "uint32" or shape[-1:] != [WIDTHS[framework]]):
        _corrupt(f"the keys at {where(path)} have another dtype or width than they can have")
    shard = _read_shard(rest, shape, path) if rest else None
    return TensorSpec(path, tuple(shape), pool.dtype, pool.role, framework, name, offset, shard)


def _read_shard(row: list[Any], shape: list[int], path: Name) -> Shard:
    for numbers in row:
        if type(numbers) is not list or not all(type(number) is int and number >= 0 for number in numbers):
            _corrupt(f"the shard at {where(path)} has a shape or a place that is no list of integers")
    shard = Shard(*map(tuple, row))
    check_shape(shard.whole)
    if not shard.fits(shape):
        _corrupt(f"the shard at {where(path)} does not lie within its tensor")
    return shard


def check_places(tensors: Sequence[TensorSpec], places: Places, maps: Collection[PoolMap]) -> None:
    """Check that tensors lie within their pools, start where one may start, and share no element.

    Parameters
    ----------
    tensors, places, maps
        Those of the layout, and what lies in each of its pools.

    Raises
    ------
    CorruptionError
        One does not.
    """
    pools = [lies.pool for lies in maps]
    aligns = np.array([pool.align for pool in pools], np.int64)[places.pool]
    sizes = np.array([pool.size for pool in pools], np.int64)[places.pool]
    outside = (places.offset % aligns != 0) | (places.offset + places.size > sizes)
    if outside.any():
        _corrupt(f"the tensor at {where(tensors[int(np.argmax(outside))].name)} does not fit its pool")
    for lies in (found.lies for found in maps):
        overlaps = lies.at[1:] < (lies.at + lies.size)[:-1]
        if overlaps.any():
            tensor = lies.tensor[1 + int(np.argmax(overlaps))]
            _corrupt(f"the tensor at {where(tensors[tensor].name)} overlaps another")
