"""A restored state in the shape of another: the containers of a `like` tree around the values of a store.

A store gives named tuples and dataclasses back as dicts, because data never names code. A caller who has
such a tree at hand, real or abstract, gets its own types back here.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, cast

from lcstore.errors import InvalidInputError
from lcstore.limits import MAX_TREE_DEPTH, check
from lcstore.state.containers import dynamic_fields, open_object, to_object, where
from lcstore.state.cures import cure
from lcstore.state.frameworks import is_array, is_instance, is_variable, value_of
from lcstore.state.leaves import is_leaf
from lcstore.state.names import Name
from lcstore.state.torchobjects import is_made, made_like, parts_of


def is_abstract(obj: object) -> bool:
    """Return whether `obj` stands for a tensor in a `like` tree, values or not: it has shape and dtype."""
    return hasattr(obj, "shape") and hasattr(obj, "dtype") and not isinstance(obj, type)


def fill_like(like: Any, fill: Callable[[Name, Any], Any]) -> Any:
    """Return a tree with the containers of `like` and the leaves that `fill` gives.

    Parameters
    ----------
    like
        A state as `flatten` takes it; tensors may be abstract (``jax.ShapeDtypeStruct``, meta tensors).
        Named tuples, dataclasses, mappings and variables of Flax NNX keep their type (static fields of a
        dataclass are taken over); an object with ``state_dict()`` becomes the dict that it returns.
    fill
        Is given name and leaf, a tensor or a plain value, and returns what belongs there.

    Raises
    ------
    InvalidInputError
        `like` holds something that is no container, tensor or plain value, or holds itself.
    """
    return _fill(like, (), fill)


def _fill(obj: Any, path: Name, fill: Callable[[Name, Any], Any]) -> Any:
    if is_variable(obj):
        return obj.replace(_fill(value_of(obj), path, fill))
    if is_made(obj):
        return made_like(obj, {key: _fill(part, (*path, key), fill) for key, part in parts_of(obj).items()})
    if is_leaf(obj) or is_array(obj):
        return fill(path, obj)
    check(len(path), MAX_TREE_DEPTH - 1, "nesting of the like tree")
    if is_instance(obj, "flax.nnx", "State"):
        # What it gives of itself are states, too; what it has are dicts, which are another tree for JAX.
        return type(obj)(_fill(dict(obj.raw_mapping), path, fill))
    found = open_object(obj, path)
    if found is None:
        if is_abstract(obj):
            return fill(path, obj)
        raise InvalidInputError(
            f"a {type(obj).__qualname__} at {where(path)} of the like tree is no tensor: "
            f"{cure(obj).replace('store ', 'give ', 1)}"
        )
    items = zip(found.keys, found.children, strict=True)
    children = [_fill(child, (*path, key), fill) for key, child in items]
    plain = to_object(found.kind, found.keys, children)
    if type(obj) in (dict, OrderedDict, list, tuple) or callable(getattr(obj, "state_dict", None)):
        return plain
    if isinstance(obj, Mapping):
        return _rebuild_mapping(obj, plain)
    if isinstance(obj, tuple) and hasattr(type(obj), "_fields"):
        return cast(Any, type(obj))._make(children)
    return _rebuild_dataclass(obj, children, path) if dataclasses.is_dataclass(obj) else plain


def _rebuild_dataclass(obj: Any, children: list[Any], path: Name) -> Any:
    """Return an instance with these fields, whatever its ``__init__`` takes, and makes of them."""
    fields = dict(zip(dynamic_fields(obj), children, strict=True))
    try:
        try:  # it may have more than its fields, which it makes of them
            made = dataclasses.replace(obj, **fields)
        except Exception:
            made = _copied(obj)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
    except (AttributeError, TypeError) as exc:
        kind = type(obj).__qualname__
        raise InvalidInputError(f"no {kind} can be made for {where(path)} of the like tree: {exc}") from exc
    return made


def _copied(obj: Any) -> Any:
    """Return a copy of an instance that nobody makes, without what it would compute anew."""
    made = copy.copy(obj)
    for name in [*getattr(made, "__dict__", ())]:
        if isinstance(getattr(type(obj), name, None), cached_property):
            object.__delattr__(made, name)
    return made


def _rebuild_mapping(obj: Any, items: dict[Any, Any]) -> Any:
    # A mapping type need not be constructible from a dict: then a dict has to do.
    try:
        cls: Any = type(obj)
        rebuilt = cls(obj.default_factory, items) if cls is defaultdict else cls(items)
    except Exception:
        return items
    return rebuilt if isinstance(rebuilt, Mapping) and rebuilt.keys() == items.keys() else items
