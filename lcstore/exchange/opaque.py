"""Files of ``torch.save`` in which objects of classes lie beside tensors, read without those objects.

To torch's reader, which runs nothing but what it knows, each class is declared to be a stand-in: that takes
whatever the file gives it, and does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final

from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.torchfile import REFUSED, check_sums, load_data, torch_for
from lcstore.limits import MAX_TREE_DEPTH, check
from lcstore.state.frameworks import is_array
from lcstore.state.leaves import is_leaf
from lcstore.state.names import Name, format_name
from lcstore.units import listed

#: What torch says where a class is one of list or dict, which are filled after they were made.
_FILLED: Final = re.compile(r"Can only (append|extend|SETITEM)")
#: A file that names more classes is refused.
_MOST_CLASSES: Final = 200


def read_data(path: str, where: str) -> Checkpoint:
    """Return what a file holds with None for each object that is no data, which are named as left out.

    Raises
    ------
    InvalidInputError
        It holds no tensors but in objects, or what torch refuses whatever is declared.
    CorruptionError
        It is no such file, or damaged.
    """
    torch = torch_for(where)
    check_sums(path, where)
    found, made = _loaded(torch, path, where)
    walk = _Walk(made)
    state = walk.take(found, ())
    if walk.left and not walk.tensors:
        raise _refusal(f"no tensors but in objects{f' ({listed(walk.left)})' * any(walk.left)}", where)
    return Checkpoint(state, left_out=tuple(walk.left))


def _loaded(torch: Any, path: str, where: str) -> tuple[Any, list[Any]]:
    """Return what a file holds, and what of that stands for objects of the classes that it names."""
    declaring = getattr(torch.serialization, "safe_globals", None)
    kinds: dict[str, type] = {}
    refused: LcstoreError | None = None
    while True:  # torch tells one class at a time
        made: list[Any] = []
        classes = [(_stand_in(name, kind, made), name) for name, kind in kinds.items()]
        classes += [
            (one, f"builtins.{name}") for one, name in classes
        ]  # torch leaves that out of what it says
        try:
            with declaring(classes) if classes and declaring else nullcontext():
                return load_data(torch, path, where), made
        except (InvalidInputError, CorruptionError) as error:
            said = str(error.__cause__)
            named, filled = REFUSED.search(said), _FILLED.search(said)
            if refused is None:
                refused = error if named is None else _refusal(f"a {named[1]:.200}", where)
            if named is None or declaring is None or len(kinds) == _MOST_CLASSES:
                raise refused from error
            kind = object if filled is None else dict if filled[1] == "SETITEM" else list
            if kinds.get(named[1]) == kind:
                raise refused from error
            kinds[named[1]] = kind


def _refusal(what: str, where: str) -> InvalidInputError:
    return InvalidInputError(
        f"{where} holds {what}, which only running code that the file names could make. If you trust it, "
        "load it with weights_only=False, save what has tensors by itself (torch.save(model.state_dict(), "
        "FILE)), and give that file"
    )


def _stand_in(name: str, kind: type, made: list[Any]) -> type:
    """Return a class that is called as one of a file, and makes something empty of a kind."""

    def new(cls: type, *args: Any) -> Any:
        made.append(object.__new__(cls) if kind is object else kind())
        return made[-1]

    module, _, last = name.rpartition(".")
    nothing = {"__init__": lambda self, *args: None, "__setstate__": lambda self, state: None}
    return type(last, (), {"__module__": module or "builtins", "__new__": new, **nothing})


class _Walk:
    """One walk over what was read, each container once."""

    def __init__(self, made: Sequence[Any]) -> None:
        self.left: list[str] = []
        self.tensors = 0
        self._made = {id(one) for one in made}
        self._done: dict[int, tuple[Any, Any]] = {}  # and what it is of, so that its id stays its own

    def take(self, value: Any, path: Name) -> Any:
        """Return a value with None for each object."""
        check(len(path), MAX_TREE_DEPTH, "nesting of what a file holds")
        if id(value) in self._done:
            return self._done[id(value)][1]
        if id(value) not in self._made:
            if is_leaf(value):
                return value
            if is_array(value):
                self.tensors += 1
                return value
            if isinstance(value, dict | list):
                return self._filled(value, path)
            if isinstance(value, tuple):
                became = tuple([self.take(inner, (*path, at)) for at, inner in enumerate(value)])
                self._done[id(value)] = value, became
                return became
        known = [key if isinstance(key, str | int) else str(key) for key in path]
        self.left.append(format_name(tuple(known)))
        return None

    def _filled(self, value: Any, path: Name) -> Any:
        self._done[id(value)] = value, value
        for key, inner in [*value.items()] if isinstance(value, dict) else enumerate(value):
            value[key] = self.take(inner, (*path, key))
        return value
