"""Restored values to what the user asked for: a library's tensors, another dtype, the shape of a tree."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_from_name
from lcstore.errors import InvalidInputError, UnsupportedFormatError
from lcstore.format.labels import check_choice
from lcstore.layout.specs import TensorSpec
from lcstore.read.lookup import nearest
from lcstore.read.node import Node
from lcstore.state.frameworks import (
    TARGETS,
    cast_array,
    convert_like,
    family_of,
    given_as,
    is_array,
    is_loaded,
    memory_of,
)
from lcstore.state.like import fill_like, is_abstract
from lcstore.state.names import Name, format_name
from lcstore.state.numbers import is_number, number_like, number_of
from lcstore.state.torchobjects import Made, is_part, with_made
from lcstore.state.tree import Selection, names_in, unflatten


def shaped(flat: Array, spec: TensorSpec, dtype: str | None, to: str) -> Any:
    """Return a tensor in its shape, cast to `dtype` if it is floating, as `to` says (`given_as`)."""
    check_choice("to", to, TARGETS)
    array = flat.reshape(spec.shape)
    if dtype is not None and family_of(array.dtype) == "float":
        array = cast_array(array, _wanted_dtype(dtype))
    return given_as(array, spec.framework, to)


def _wanted_dtype(dtype: Any) -> np.dtype[Any]:
    """Return a dtype that a caller names, as torch, numpy or a string has it."""
    text = str(dtype).removeprefix("torch.") if not isinstance(dtype, type) else np.dtype(dtype).name
    try:
        return dtype_from_name(text)
    except UnsupportedFormatError as error:
        raise InvalidInputError(f"there is no dtype {text!r:.80} to restore to") from error


def fill(like: Any, tensors: Mapping[Name, Array], leaves: Mapping[Name, Any]) -> Any:
    """Return the tree `like` with stored values in its places.

    Raises
    ------
    InvalidInputError
        The tree asks for something that is not stored, or stored otherwise; the message names them.
    """
    filler = _Filler(tensors, leaves)
    tree = fill_like(like, filler.fill)
    missing = filler.missing
    if missing:
        shown = ", ".join(repr(format_name(name)) for name in missing[:5]) + ", ..." * (len(missing) > 5)
        others = [name for name in (*tensors, *leaves) if name not in filler.asked]
        near = nearest(format_name(missing[0]), others)
        meant = f" (is {near[0]!r} meant for {format_name(missing[0])!r}?)" if near else ""
        raise InvalidInputError(
            f"the tree given as `like` asks for what is not stored as such: {shown}{meant}; restore without "
            "these, and add what is new by hand"
        )
    return tree


class _Filler:
    """What is stored, given as the leaves of a tree have it."""

    def __init__(self, tensors: Mapping[Name, Array], leaves: Mapping[Name, Any]) -> None:
        self.tensors = tensors
        self.leaves = leaves
        self.asked: set[Name] = set()
        self.missing: list[Name] = []
        #: What was given for tensors, each with its leaf: so the memory of that stays its own.
        self.made: dict[tuple[int, Hashable], tuple[Any, Any]] = {}
        #: The arrays that were given. What is tied in the store alone is given a copy of its own.
        self.given: set[int] = set()

    def fill(self, name: Name, leaf: Any) -> Any:
        """Return what is stored under a name; note where nothing is that the leaf can be."""
        self.asked.add(name)
        wants_tensor = is_array(leaf) or is_abstract(leaf)
        if not wants_tensor and name in self.leaves:
            return self.leaves[name]
        try:
            if wants_tensor and name in self.tensors:
                return self._tensor(self.tensors[name], leaf)
            if wants_tensor and is_number(self.leaves.get(name)):
                return number_like(self.leaves[name], leaf)
            if is_number(leaf) and name in self.tensors:
                return number_of(self.tensors[name], type(leaf))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"tensor {format_name(name)!r}: {error.message}; leave what does not fit out of the tree "
                "given as `like`, and add it by hand"
            ) from error
        self.missing.append(name)
        return None

    def _tensor(self, array: Array, leaf: Any) -> Any:
        """Return a tensor as its leaf has it: one for all names that are tied in store and tree."""
        memory = memory_of(leaf) if is_array(leaf) else None
        if memory is None:
            return convert_like(array, leaf)
        key = (id(array), memory)
        if key not in self.made:
            apart = array.copy() if id(array) in self.given else array
            self.made[key] = convert_like(apart, leaf), leaf
            self.given.add(id(array))
        return self.made[key][0]


def _whole(made: Mapping[Name, Made], node: Node, part: Selection) -> dict[Name, Made]:
    """Return which tensors that are made of others have all of their parts in a selection."""
    chosen = names_in(part.structure).places
    lost, there = (
        {name[:n] for name in node.layout.named if (name in chosen) == kept for n in range(len(name))}
        for kept in (False, True)
    )
    return {name: how for name, how in made.items() if name in there - lost}


def tree_of(
    node: Node,
    part: Selection,
    values: Mapping[int, Array],
    leaves: Sequence[object],
    *,
    dtype: str | None = None,
    like: Any = None,
    to: str = "saved",
) -> Any:
    """Return a part of a state as a tree.

    Parameters
    ----------
    node, part
        The state, and what of it.
    values, leaves
        Flat values of the part's tensors by their place among `Layout.wholes`; all plain values.
    dtype, like, to
        As for `Store.restore`.
    """
    specs, made = node.layout.wholes, node.layout.notes.made
    if like is None:
        objects = [
            shaped(values[t], specs[t], None if is_part(specs[t].name, made) else dtype, to)
            for t in part.tensors
        ]
        tree = unflatten(part.structure, objects, [leaves[i] for i in part.leaves])
        wanted = made and to in ("saved", "torch") and is_loaded("torch")
        return with_made(tree, _whole(made, node, part)) if wanted else tree
    arrays = [np.asarray(shaped(values[t], specs[t], dtype, "numpy")) for t in part.tensors]
    found, names = names_in(part.structure), [*node.leaf_places]
    by_name = {name: arrays[place] for name, place in found.places.items()}
    return fill(like, by_name, {names[i]: leaves[i] for i in part.leaves})
