"""What counts as a container in a state, and what lies inside it: as live objects, and as JSON.

The structure of a state is a JSON value. A container takes two levels of it, so that the deepest state is
well within what a JSON parser nests::

    "tensor"                                the next tensor
    "leaf"                                  the next plain value
    ["tied", [name]]                        the tensor of that name once more
    ["dict" | "odict" | "counter", [keys], [children]]  in the order of the keys
    ["list" | "tuple", [children]]
"""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.limits import MAX_TREE_DEPTH, check
from lcstore.state.cures import has_own_cure, key_cure
from lcstore.state.frameworks import is_instance
from lcstore.state.names import Component, Name, format_name, is_component

#: A JSON value as in the table above. It may come from storage, so it is validated wherever it is walked.
Structure: TypeAlias = Any
Kind: TypeAlias = Literal["dict", "odict", "counter", "list", "tuple"]
#: The mappings that come back as what they were: a scheduler of torch that has a `Counter` asks it for more.
_MAPPINGS: Final[dict[Kind, type[dict[Any, Any]]]] = {"dict": dict, "odict": OrderedDict, "counter": Counter}

TENSOR: Final = "tensor"
LEAF: Final = "leaf"
TIED: Final = "tied"


class Container(NamedTuple):
    """One container: its kind, its keys (places, in a list or tuple) and what lies under each."""

    kind: Kind
    keys: Sequence[Component]
    children: Sequence[Any]


def where(path: Name) -> str:
    """Return `path` for a message."""
    return repr(format_name(path)) if path else "the top of the state"


def open_object(obj: Any, path: Name) -> Container | None:
    """Return the live object `obj` as a container, or None if it is none.

    Mappings keep their order. A named tuple or a dataclass instance is taken as a dict of its fields; fields
    that say they are static (``metadata`` of ``static=True``, or ``pytree_node=False`` as flax writes it)
    belong to the program and are left out. An object with a ``state_dict()`` method is what that returns.
    """
    cls = type(obj)
    if cls is dict:
        return _mapping("dict", obj, path)
    if cls is list or cls is tuple:
        return Container("list" if cls is list else "tuple", range(len(obj)), obj)
    if isinstance(obj, str | bytes | type):
        return None
    if _has_state_dict(obj):
        obj = _state_dict(obj, path)
    if isinstance(obj, Mapping):
        alike: Iterator[Kind] = (kind for kind in ("odict", "counter") if isinstance(obj, _MAPPINGS[kind]))
        return _mapping(next(alike, "dict"), obj, path)
    if isinstance(obj, tuple) and hasattr(type(obj), "_fields"):
        return _checked("dict", cast(Any, obj)._fields, obj, path)
    if isinstance(obj, list | tuple):
        return Container("list" if isinstance(obj, list) else "tuple", range(len(obj)), obj)
    if dataclasses.is_dataclass(obj):
        names = dynamic_fields(obj)
        return _checked("dict", names, [getattr(obj, name) for name in names], path)
    return None


def makes_state(obj: Any) -> bool:
    """Return whether `obj` is called for a state. Modules can be called, too, and are states themselves."""
    if not callable(obj) or isinstance(obj, type):
        return callable(obj)
    is_state = (
        isinstance(obj, Mapping | list | tuple) or dataclasses.is_dataclass(obj) or _has_state_dict(obj)
    )
    return not is_state and not has_own_cure(obj)


def dynamic_fields(obj: Any) -> list[str]:
    """Return the names of the fields of a dataclass instance that are state."""
    return [
        field.name
        for field in dataclasses.fields(obj)
        if not field.metadata.get("static", False) and field.metadata.get("pytree_node", True)
    ]


def _has_state_dict(obj: Any) -> bool:
    # Keys of nnx have every attribute: to ask for this one draws from them.
    return not is_instance(obj, "flax.nnx", "Rngs") and callable(getattr(obj, "state_dict", None))


def _state_dict(obj: Any, path: Name) -> Any:
    try:
        result = obj.state_dict()
    except Exception as exc:
        raise InvalidInputError(f"state_dict() at {where(path)} failed: {exc}") from exc
    if not isinstance(result, Mapping | list | tuple):
        kind = type(result).__qualname__
        raise InvalidInputError(f"state_dict() at {where(path)} gave a {kind}, not a dict")
    return result


def _mapping(kind: Kind, obj: Mapping[Any, Any], path: Name) -> Container:
    return _checked(kind, list(obj), list(obj.values()), path)


def _checked(kind: Kind, keys: Sequence[Any], children: Sequence[Any], path: Name) -> Container:
    for key in keys:
        if not is_component(key):
            raise InvalidInputError(
                f"key {key!r:.80} of type {type(key).__qualname__} in {where(path)} cannot be stored: "
                f"keys are strings of valid Unicode and 64-bit integers, so write {key_cure(key)}"
            )
    if len(set(keys)) < len(keys):
        raise InvalidInputError(f"{where(path)} has a key twice: save a dict of lists in its place")
    return Container(kind, keys, children)


def open_structure(node: Structure) -> Container:
    """Return the container that a stored structure node describes; `CorruptionError` if it describes none."""
    if type(node) is list and node:
        kind = node[0]
        if kind in ("list", "tuple") and len(node) == 2 and type(node[1]) is list:
            return Container(kind, range(len(node[1])), node[1])
        lists = len(node) == 3 and type(node[1]) is list and type(node[2]) is list
        if lists and type(kind) is str and kind in _MAPPINGS:
            _, keys, children = node
            if len(keys) == len(children) and all(map(is_component, keys)) and len(set(keys)) == len(keys):
                return Container(kind, keys, children)
    raise CorruptionError("a stored tree structure holds something that is no node")


def tie_to(name: Name) -> Structure:
    """Return the structure node of a place that has the tensor `name` once more."""
    return [TIED, list(name)]


def tied_to(node: Structure) -> Name | None:
    """Return the name of the tensor that a structure node has once more; None where it is no such node."""
    if type(node) is not list or not node or node[0] != TIED:
        return None
    if len(node) != 2 or type(node[1]) is not list or not all(map(is_component, node[1])):
        raise CorruptionError("a stored tree structure ties a tensor to something that is no name")
    return tuple(node[1])


def to_structure(kind: Kind, keys: Sequence[Component], children: list[Structure]) -> Structure:
    """Return the structure node of a container."""
    return [kind, children] if kind in ("list", "tuple") else [kind, list(keys), children]


def to_object(kind: Kind, keys: Sequence[Component], children: Iterable[Any]) -> Any:
    """Return the live container of a kind."""
    if kind == "list":
        return list(children)
    if kind == "tuple":
        return tuple(children)
    return _MAPPINGS[kind](dict(zip(keys, children, strict=True)))


def walk_structure(structure: Structure, visit: Callable[[Name, Structure], None]) -> None:
    """Call `visit` for every tensor, tie, plain value and empty container of a structure, in order."""

    def walk(node: Structure, path: Name) -> None:
        if node in (TENSOR, LEAF) or tied_to(node) is not None:
            visit(path, node)
            return
        check(len(path), MAX_TREE_DEPTH - 1, "depth of a stored tree structure")
        _, keys, children = open_structure(node)
        if not children:
            visit(path, node)
        for key, child in zip(keys, children, strict=True):
            walk(child, (*path, key))

    walk(structure, ())
