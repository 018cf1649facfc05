"""What is said of methods and arguments of a store that there are not: what other tools call the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

C = TypeVar("C", bound=type)

_DEVICE: Final = (
    "`to=` says which library the arrays are of, `like=` a tree whose devices they get; or use .to(device)"
)
_TARGETS: Final = "the state comes first, None being the latest one: {method}(None, {{'model': model}})"
#: By the argument that is missing, or that there is not.
_ARGUMENTS: Final = {
    "device": _DEVICE,
    "map_location": _DEVICE,
    "step": "the step is the first argument, `at`",
    "targets": _TARGETS,
}
_ATTRIBUTES: Final = {
    **dict.fromkeys(("delete", "remove"), "store.retire(step) for a state, lcstore.remove(url) for a store"),
    **dict.fromkeys(("load", "get"), "store.restore(step), or store.read(step, name) for one tensor"),
    **dict.fromkeys(("prune", "gc"), "store.retain('latest:3'), then store.collect()"),
    **dict.fromkeys(("list", "ls"), "store.states(), or store.steps()"),
    "metrics": "[(s.step, s.metrics) for s in store.states()], or store.info(step).metrics",
    "latest": "store.latest_step()",
    "best": "store.best_step(metric)",
    "export": "lcstore.export(store[step], file)",
    "open": "lcstore.open(url)",
    "copy": "lcstore.copy(url, other)",
}


def no_attribute(given: object, name: str) -> AttributeError:
    """Return the error that says that an object has no such attribute, and what it has instead."""
    hint = f"; instead: {_ATTRIBUTES[name]}" if name in _ATTRIBUTES else ""
    said = f"{type(given).__name__!r} object has no attribute {name!r}{hint}"
    return AttributeError(said, name=name, obj=given)


def hinting(*methods: str) -> Callable[[C], C]:
    """Have methods of a class say of arguments that there are not what there is instead."""

    def decorated(cls: C) -> C:
        for name in methods:
            setattr(cls, name, _hinting(getattr(cls, name), f"{cls.__name__}.{name}"))
        return cls

    return decorated


def _hinting(method: Callable[..., Any], called: str) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def call(*args: Any, **how: Any) -> Any:
        try:
            signature.bind(*args, **how)
        except TypeError as error:
            hints = [hint for name, hint in _ARGUMENTS.items() if f"argument {name!r}" in _plain(error)]
            said = "".join(f"; {hint.format(method=method.__name__)}" for hint in hints)
            raise TypeError(f"{called}() {error}{said}") from None
        return method(*args, **how)

    call.__qualname__ = called
    return call


def _plain(error: TypeError) -> str:
    return str(error).replace("argument: ", "argument ")
