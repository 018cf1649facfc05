"""What to store instead of an object that a state cannot hold: the message that refuses it says so.

A store gives back what it was given, or does not take it: a path that came back as a string, or a member of
an enum as a number, would be found out long after the save. So the program says itself what is to be stored.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import random
import types
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lcstore.errors import InvalidInputError
from lcstore.state.frameworks import defined, is_instance
from lcstore.state.torchtensors import is_shard

#: How many values that cannot be stored a message names.
_REFUSED_SHOWN: Final = 5
_GENERAL: Final = (
    "a state holds arrays, plain values (int, float, complex, str, bytes, bool, None), dicts, lists and "
    "tuples of them, and objects with state_dict()"
)
#: What is stored as the dict of its attributes.
NAMESPACES: Final = (argparse.Namespace, types.SimpleNamespace)
#: Types of the standard library and of numpy, and what of an object `x` of theirs to store.
_CURES: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((enum.Enum,), "store x.value, or x.name"),
    (NAMESPACES, "store vars(x)"),
    ((pathlib.PurePath,), "store str(x)"),
    ((np.random.Generator,), "store x.bit_generator.state, and set it again"),
    ((np.random.BitGenerator,), "store x.state, and set it again"),
    ((np.random.RandomState,), "store x.get_state(legacy=False), and x.set_state(...) again"),
    ((np.random.SeedSequence,), "store x.state, and numpy.random.SeedSequence(**state) is it again"),
    ((random.Random,), "store x.getstate(), and x.setstate(...) again"),
    ((set, frozenset), "store sorted(x)"),
    ((deque,), "store list(x), or of many entries one array of each field (np.stack), which takes far less"),
    ((range,), "store list(x)"),
    ((datetime.timedelta,), "store x.total_seconds()"),
    ((datetime.datetime, datetime.date, datetime.time), "store x.isoformat()"),
    ((decimal.Decimal, fractions.Fraction, uuid.UUID, np.dtype), "store str(x)"),
    ((bytearray, memoryview), "store bytes(x)"),
    ((slice,), "store (x.start, x.stop, x.step)"),
    (
        (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial, type),
        "code is no data",
    ),
    ((int,), "store int(x)"),
    ((float,), "store float(x)"),
    ((str,), "store str(x)"),
    ((bytes,), "store bytes(x)"),
    ((complex,), "store complex(x)"),
)
#: The same of types of libraries, by module and name: nobody imports them to look.
_ELSEWHERE: Final[tuple[tuple[str, str, str], ...]] = (
    ("torch", "Generator", "store x.get_state(), and x.set_state(...) again"),
    ("torch", "dtype", "store str(x)"),
    ("torch", "device", "store str(x)"),
    ("flax.nnx", "Rngs", "store nnx.state(x), and nnx.update(x, ...) again"),
    ("flax.nnx", "Pytree", "store nnx.state(x, nnx.Param), or more of it, and nnx.update(x, ...) again"),
    ("flax.nnx", "Object", "store nnx.state(x, nnx.Param), or more of it, and nnx.update(x, ...) again"),
)
#: Types of keys that are neither a string nor an integer of 64 bits, and what of such a key is one.
_KEYS: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((enum.Enum,), "key.name"),
    ((bool, np.bool_, np.integer), "int(key)"),
    ((str,), "key.encode(errors='replace').decode()"),
    ((bytes,), "key.decode('latin-1')"),
)
#: What to do about tensors of torch that have no values as they are: a test, and what is said.
_TENSORS: Final[tuple[tuple[Callable[[Any], bool], str], ...]] = (
    (
        is_shard,
        "store x.full_tensor(), which all ranks call (of a model and optimizer, what get_state_dict of "
        "torch.distributed.checkpoint.state_dict gives, with full_state_dict=True)",
    ),
    (lambda x: "Uninitialized" in type(x).__name__, "run one batch through the model before"),
    (lambda x: hasattr(x, "get_mask"), "store x.get_data() and x.get_mask()"),
    (lambda x: x.is_meta, "load or make its values first: model.to_empty(device=...)"),
    (lambda x: x.is_nested, "store x.unbind()"),
    (lambda x: x.is_quantized, "store x.int_repr(), and its scale and zero point"),
    (lambda x: _name(x.layout) != "strided", "store x.to_dense(), or its indices and values"),
    (lambda x: _name(x.dtype) == "complex32", "store torch.view_as_real(x)"),
    (lambda x: type(x).__name__ == "Tensor" and x.dtype.itemsize == 1, "store x.view(torch.uint8)"),
)


def _name(obj: object) -> str:
    """Return the name of a dtype or a layout of torch."""
    return str(obj).removeprefix("torch.")


#: What to do about arrays of numpy that hold no numbers, by kind of dtype; others say so themselves.
_KINDS: Final = {
    "U": "store x.tolist()",
    "S": "store x.tolist()",
    "T": "store x.tolist()",
    "O": "store x.tolist()",
}


def tensor_cure(obj: Any) -> str:
    """Return what to do about a tensor without values to store, to be put behind why it has none."""
    if isinstance(obj, np.ndarray | np.generic):
        said = _KINDS.get(obj.dtype.kind)
        return f" ({said})" if said else ""
    if not is_instance(obj, "torch", "Tensor"):
        return ""
    found = next((said for test, said in _TENSORS if test(obj)), "store what it was made from")
    return f" ({found})"


def _is_tree_of_jax(obj: Any) -> bool:
    """Return whether JAX, if it is there, knows the class of `obj` as a tree."""
    all_leaves = defined("jax.tree_util", "all_leaves")
    return all_leaves is not None and not all_leaves([obj])


def cure(obj: Any) -> str:
    """Return what to do about an object that a state cannot hold."""
    for module, name, said in _ELSEWHERE:
        if is_instance(obj, module, name):
            return said
    found = next((said for kinds, said in _CURES if isinstance(obj, kinds)), None)
    if found is None and _is_tree_of_jax(obj):
        return "store jax.tree.leaves(x), and jax.tree.unflatten(jax.tree.structure(x), leaves) again"
    return found or _GENERAL


def has_own_cure(obj: Any) -> bool:
    """Return whether `cure` knows `obj` as one of a library."""
    return any(is_instance(obj, module, name) for module, name, _ in _ELSEWHERE)


def key_cure(key: object) -> str:
    """Return what to write in the place of a key that a state cannot hold."""
    return next((said for kinds, said in _KEYS if isinstance(key, kinds)), "str(key), or a name of yours")


class Refused:
    """What of a state cannot be stored: all of it is told at once."""

    def __init__(self) -> None:
        self._errors: list[InvalidInputError] = []

    def tensor(self, obj: Any, where: str, why: InvalidInputError) -> None:
        """Note a tensor."""
        error = InvalidInputError(f"the tensor at {where} cannot be stored: {why.message}{tensor_cure(obj)}")
        error.__cause__ = why
        self._errors.append(error)

    def other(self, obj: Any, where: str) -> None:
        """Note an object."""
        name = f"{type(obj).__module__}.{type(obj).__qualname__}"
        article = "an" if name[0] in "aeio" else "a"
        self._errors.append(InvalidInputError(f"{article} {name} at {where} cannot be stored: {cure(obj)}"))

    def check(self) -> None:
        """Raise `InvalidInputError` if there is anything, naming the first few."""
        if not self._errors:
            return
        error, more = self._errors[0], len(self._errors) - _REFUSED_SHOWN
        error.message = "; ".join(one.message for one in self._errors[:_REFUSED_SHOWN])
        error.message += f"; and {more} more such value{'s' * (more > 1)}" if more > 0 else ""
        raise error
