"""Hints where a method or argument of a store does not exist: the name here of what other tools call so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_DEVICE: Final = (
    "`to=` says which library the arrays are of, `like=` a tree whose devices they get; or use .to(device)"
)
#: By the argument that does not exist.
UNKNOWN: Final = {
    **dict.fromkeys(("device", "map_location"), _DEVICE),
    **dict.fromkeys(("start", "stop", "end"), "a range is given as steps=range(100, 200)"),
    "step": "the step is the first argument, `at`",
    **dict.fromkeys(
        ("metric", "loss"),
        "`save` takes metrics={{'loss': 1.0}}, and the best state by it is named 'best:loss'",
    ),
    "names": "targets say what is loaded: {{'model': {{'head.weight': model.head.weight}}}}; "
    "restore takes names=",
    "strict": "all has to fit; to load what does: model.load_state_dict(store.restore(step)['model'], "
    "strict=False)",
    "quality": "it is policy='high', or another policy",
    "policy": "a handle has one: lcstore.open(url, policy='high'), or store.policy = 'high' between saves",
    "run": "runs get numbers, not names: each that does not resume begins one. `lcstore ls URL --runs` lists "
    "them; store.steps, restore and resume take run=2",
}
#: By the argument that is missing.
_MISSING: Final = {
    "targets": "the state comes first, None being the latest one: {method}(None, {{'model': model}})",
    "state": "the step comes first: {method}(100, {{'model': model}})",
    "keep": "say what to keep: {method}('latest:3 | every:1000')",
    "policy": "a store is opened by lcstore.open(url)",
}
_ATTRIBUTES: Final = {
    **dict.fromkeys(("delete", "remove"), "store.retire(step) for a state, lcstore.remove(url) for a store"),
    **dict.fromkeys(("load", "get"), "store.restore(step), or store.read(step, name) for one tensor"),
    **dict.fromkeys(("prune", "gc"), "store.retain('latest:3'), then store.collect()"),
    **dict.fromkeys(("list", "ls"), "store.states(), or store.steps()"),
    "undo": "store.unretire(), which brings retired states back",
    "runs": "{(s.run, s.run_id) for s in store.states(records=False)}",
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
    """Have methods of a class say of arguments that do not exist what to use instead."""

    def decorated(cls: C) -> C:
        for name in methods:
            setattr(cls, name, hinted(f"{cls.__name__}.{name}")(getattr(cls, name)))
        return cls

    return decorated


def hinted(called: str) -> Callable[[F], F]:
    """Have a function, which users call so, say of arguments that do not exist what to use instead."""

    def decorated(function: F) -> F:
        signature = inspect.signature(function)
        by_name = [f"{one.name}=" for one in signature.parameters.values() if one.kind is one.KEYWORD_ONLY]

        @wraps(function)
        def call(*args: Any, **how: Any) -> Any:
            try:
                signature.bind(*args, **how)
            except TypeError as error:
                known = _MISSING if "missing" in str(error) else UNKNOWN
                hint = next((known[name] for name in known if repr(name) in str(error)), None)
                said = "" if hint is None else "; " + hint.format(method=function.__name__)
                if "too many positional" in str(error) and by_name:
                    said = f"; given by name: {', '.join(by_name)}"
                raise TypeError(f"{called}() {error}{said}") from None
            return function(*args, **how)

        call.__qualname__ = called
        return call  # type: ignore[return-value]

    return decorated
