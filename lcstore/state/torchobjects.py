"""What objects of torch say of themselves: what a module trains, and what a tensor is made of.

A tensor may be made of others, as the moments of an 8-bit optimizer are of codes and their scales. Its parts
are stored, and a `Made` says what makes a tensor of them again. Data never names code: the class is looked
up among those that were declared safe to make from data, as torch does for files
(`torch.serialization.add_safe_globals`, which the libraries that define them call themselves).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.limits import MAX_TREE_DEPTH, check
from lcstore.state.containers import where
from lcstore.state.frameworks import defined, is_instance
from lcstore.state.leaves import decode_leaf, encode_leaf, is_leaf
from lcstore.state.names import Name
from lcstore.state.roles import Role
from lcstore.state.torchtensors import is_shard


class Made(NamedTuple):
    """What makes a tensor of its parts: its class, and what that is told besides, as JSON."""

    kind: str
    context: Any


class Notes(NamedTuple):
    """What is known of places in a state besides what lies there.

    Attributes
    ----------
    made
        Tensors that are made of others, which lie below their names.
    updates
        By the name of an optimizer the tensors that it updates, in its order.
    """

    made: dict[Name, Made]
    updates: dict[Name, tuple[Name, ...]]


#: For states of which nothing is known besides.
NO_NOTES: Final = Notes({}, {})


def roles_said(module: Any) -> dict[str, Role]:
    """Return the roles of tensors of a module, by their keys in its ``state_dict()``.

    A parameter that is trained is weights, whatever its name; a buffer is plain. Of a frozen parameter, which
    may be a mask, a table of positions or the scale of a quantized layer, the module says nothing.
    """
    said: dict[str, Role] = {name: "plain" for name, _ in module.named_buffers(remove_duplicate=False)}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            said[name] = "weights"
    return said


def is_optimizer(obj: object) -> bool:
    """Return whether `obj` is an optimizer of torch."""
    return is_instance(obj, "torch.optim", "Optimizer")


def parameters_of(optimizer: Any) -> list[Any]:
    """Return the parameters that an optimizer updates, in its order."""
    return list(chain.from_iterable(group["params"] for group in optimizer.param_groups))


def is_made(obj: object) -> bool:
    """Return whether `obj` is a tensor of torch that is made of others, whole on this process."""
    if not is_instance(obj, "torch", "Tensor") or not hasattr(obj, "__tensor_flatten__"):
        return False
    tensor: Any = obj
    return not tensor.is_nested and not is_shard(tensor)


def parts_of(tensor: Any) -> dict[str, Any]:
    """Return what a tensor is made of, by name."""
    return {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}


def made_of(tensor: Any) -> Made:
    """Return what makes a tensor of its parts again.

    Raises
    ------
    InvalidInputError
        Its class was not declared, or is told something that no store holds. The caller adds its name.
    """
    kind = _called(type(tensor))
    if kind not in _declared():
        raise InvalidInputError(
            f"a {kind} is made of other tensors, and its class is not declared safe to make from data: call "
            f"torch.serialization.add_safe_globals([{type(tensor).__name__}]), or store its parts"
        )
    try:
        return Made(
            kind, _encoded([tensor.__tensor_flatten__()[1], list(tensor.shape), list(tensor.stride())])
        )
    except InvalidInputError as error:
        raise InvalidInputError(
            f"a {kind} is made of other tensors and of {error.message}, which a store cannot hold: store "
            "what it was made from, or its parts"
        ) from None


def made_again(made: Made, parts: Mapping[str, Any]) -> Any:
    """Return a tensor of its parts; `InvalidInputError` where this process cannot make it."""
    cls = _declared().get(made.kind)
    if cls is None:
        raise InvalidInputError(
            f"it was a {made.kind:.200}, which nothing that is imported here declares safe to make: import "
            "the library that it is from, or restore with to='numpy', which gives its parts"
        )
    context, shape, stride = _decoded(made.context)
    try:
        return cls.__tensor_unflatten__(dict(parts), context, sys.modules["torch"].Size(shape), tuple(stride))
    except Exception as error:
        # The class may refuse in many ways what another version of it stored.
        raise InvalidInputError(
            f"no {made.kind} can be made of what is stored ({error}): restore with to='numpy', which gives "
            "its parts"
        ) from error


def is_part(name: Name, made: Mapping[Name, Made]) -> bool:
    """Return whether the tensor `name` is part of another, and means nothing in another dtype."""
    return bool(made) and any(name[:length] in made for length in range(len(name)))


def with_made(tree: Any, made: Mapping[Name, Made]) -> Any:
    """Return a tree of which some dicts, the parts of tensors, have become those tensors.

    Raises
    ------
    InvalidInputError
        One cannot be made; the message says where.
    """
    for name in sorted(made, key=len, reverse=True):  # what lies deeper may be a part
        tree = _put(tree, name, name, made[name])
    return tree


def _put(tree: Any, name: Name, left: Name, made: Made) -> Any:
    if not left:
        try:
            return made_again(made, tree)
        except InvalidInputError as error:
            raise InvalidInputError(f"the tensor at {where(name)}: {error.message}") from error
    key: Any = left[0]
    child = _put(tree[key], name, left[1:], made)
    if isinstance(tree, tuple):
        return (*tree[:key], child, *tree[key + 1 :])
    tree[key] = child
    return tree


def made_like(tensor: Any, parts: Mapping[str, Any]) -> Any:
    """Return a tensor that is made as another one is, of other parts."""
    context = tensor.__tensor_flatten__()[1]
    return type(tensor).__tensor_unflatten__(dict(parts), context, tensor.shape, tensor.stride())


def checked_context(context: Any) -> Any:
    """Return a stored context; `CorruptionError` if none was ever stored so."""
    decoded = _decoded(context)
    sizes = decoded[1:] if type(decoded) is list and len(decoded) == 3 else [None]
    if not all(type(size) is list and all(type(number) is int for number in size) for size in sizes):
        raise CorruptionError("what a stored tensor was made of cannot be right")
    return context


def _called(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _declared() -> dict[str, Any]:
    """Return the classes of tensors that this process holds safe to be made from data, by name."""
    torch = sys.modules["torch"]
    listed: list[Any] = getattr(torch.serialization, "get_safe_globals", list)()
    return {
        _called(cls): cls
        for cls in listed
        if isinstance(cls, type) and issubclass(cls, torch.Tensor) and hasattr(cls, "__tensor_unflatten__")
    }


def _encoded(value: Any) -> Any:
    """Return plain values, dtypes, lists, tuples and dicts of them as JSON."""
    if is_leaf(value):
        return encode_leaf(value)
    if is_instance(value, "torch", "dtype"):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, tuple):  # a torch.Size is one
        return {"tuple": [_encoded(item) for item in value]}
    if type(value) is list:
        return [_encoded(item) for item in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: _encoded(item) for key, item in value.items()}}
    raise InvalidInputError(f"a {_called(type(value))}")


def _decoded(value: Any, depth: int = 0) -> Any:
    check(depth, MAX_TREE_DEPTH, "depth of what a stored tensor was made of")
    if type(value) is list:
        return [_decoded(item, depth + 1) for item in value]
    (word, said), *more = value.items() if type(value) is dict and value else [("", None)]
    if word == "tuple" and type(said) is list and not more:
        return tuple([_decoded(item, depth + 1) for item in said])
    if word == "dict" and type(said) is dict and not more:
        return {key: _decoded(item, depth + 1) for key, item in said.items()}
    if word == "dtype" and type(said) is str and not more:
        return _dtype(said)
    return decode_leaf(value)


def _dtype(name: str) -> Any:
    """Return a dtype of torch; its name where torch is not there."""
    found = defined("torch", name)
    return found if is_instance(found, "torch", "dtype") else name
