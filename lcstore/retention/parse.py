"""Retention rules as text, for the command line and configuration files.

Two spellings, united with ``|`` in any mixture: the one that ``str(rule)`` gives, read as literals and
never evaluated, and a short one of words and colons.

=================================  ==========================================
``LatestN(3)``                     ``latest:3``
``EveryNSteps(1000, offset=5)``    ``every:1000:5``
``EveryNSeconds('6h')``            ``every:6h``
``EveryNSeconds('1h', 24)``        ``every:1h:24``
``BestN(2, 'loss', mode='max')``   ``best:2:loss:max``; ``best:loss`` is one
``LogSpaced(base=1.5)``            ``log:1.5``
``Budget('10GB')``                 ``budget:10GB``
``Pinned()``                       ``pinned``
``Tagged('v*', 'gold')``           ``tagged:v*:gold``
``EachRun(EveryNSteps(100))``      ``each-run:every:100``
``Strip('o/**', after=LatestN(2))``  ``strip:o/**:latest:2``
``ExactOnly(LatestN(1))``              ``exact-only:latest:1``
=================================  ==========================================
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable
from typing import Any, Final

from lcstore.errors import InvalidInputError
from lcstore.retention.base import Retention, mode_of
from lcstore.retention.keep import (
    BestN,
    Budget,
    EachRun,
    EveryNSeconds,
    EveryNSteps,
    LatestN,
    Pinned,
    Tagged,
)
from lcstore.retention.modify import ExactOnly, Strip
from lcstore.retention.spaced import LogSpaced

#: Longer than any rule that people write, and short enough for Python's parser.
MAX_RETENTION_CHARS: Final = 10_000

_CLASSES: Final[dict[str, Callable[..., Retention]]] = {
    "LatestN": LatestN,
    "EveryNSteps": EveryNSteps,
    "EveryNSeconds": EveryNSeconds,
    "BestN": BestN,
    "LogSpaced": LogSpaced,
    "Budget": Budget,
    "Pinned": Pinned,
    "Tagged": Tagged,
    "EachRun": EachRun,
    "Strip": Strip,
    "ExactOnly": ExactOnly,
}
_SHORT_EXAMPLES: Final = (
    "latest:3, every:1000, every:6h, every:1h:24, best:2:loss:min, log:2, budget:10GB, pinned, tagged:v*, "
    "each-run:every:1000, strip:optim/**:latest:2, exact-only:latest:1"
)
_SHORT: Final = re.compile(r"([a-z-]+)(?::(.*))?", re.DOTALL)
_WORD: Final = re.compile(r"([A-Za-z-]+)[\s:=(]*([^\s:=()]*)\)*")
_QUOTED_OR_MARK: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[()|]""", re.DOTALL)


def as_rule(keep: Retention | str) -> Retention:
    """Return a rule that is given as one, or as text; errors as for `parse_retention`."""
    return keep if isinstance(keep, Retention) else parse_retention(keep)


def parse_retention(text: str) -> Retention:
    """Return the rule that `text` describes.

    Parameters
    ----------
    text
        For example ``"LatestN(3) | BestN(2, 'loss')"`` or ``"latest:3 | best:2:loss"``.

    Raises
    ------
    InvalidInputError
        It describes none; the message names what is known.
    """
    given: object = text
    if not isinstance(given, str) or not given.strip():
        joined = "; rules are joined with |" if isinstance(given, list | tuple | set) else ""
        raise InvalidInputError(f"a retention rule is a text such as 'latest:3', not {text!r:.100}{joined}")
    if len(text) > MAX_RETENTION_CHARS:
        raise InvalidInputError(
            f"{len(text)} characters are no retention rule: {MAX_RETENTION_CHARS} at most"
        )
    rules = [_part(part.strip()) for part in _split(text)]
    whole = rules[0]
    for rule in rules[1:]:
        whole |= rule
    return whole


def _split(text: str) -> list[str]:
    """Return the texts between the ``|`` that are neither quoted nor in parentheses."""
    parts, start, depth = [], 0, 0
    for mark in _QUOTED_OR_MARK.finditer(text):
        depth += {"(": 1, ")": -1}.get(mark[0], 0)
        if mark[0] == "|" and depth == 0:
            parts.append(text[start : mark.start()])
            start = mark.end()
    return [*parts, text[start:]]


def _part(text: str) -> Retention:
    short = _SHORT.fullmatch(text)
    if short is not None:
        return _short(short[1], short[2].split(":") if short[2] is not None else [], text)
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _unreadable(text) from None
    return _rule(tree, text)


def _rule(tree: ast.expr, text: str) -> Retention:
    # A long union leans to the left: it is walked, not recursed into.
    right: list[ast.expr] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        right.append(tree.right)
        tree = tree.left
    rule = _call(tree, text)
    for other in reversed(right):
        rule |= _rule(other, text)
    return rule


def _call(tree: ast.expr, text: str) -> Retention:
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        hint = f" (is latest:{text} meant?)" if text.isdecimal() else ""
        raise InvalidInputError(f"{_source(tree, text)} is no retention rule{hint}; {_known()}")
    make = _CLASSES.get(tree.func.id)
    if make is None:
        meant = difflib.get_close_matches(tree.func.id, _CLASSES, n=1)
        instead = f" (is {meant[0]} meant?)" if meant else _meant(ast.get_source_segment(text, tree) or "")
        raise InvalidInputError(f"unknown retention rule {tree.func.id!r:.100}{instead}; {_known()}")
    if any(keyword.arg is None for keyword in tree.keywords):
        raise InvalidInputError(f"{_source(tree, text)}: arguments are written out, without **")
    arguments = [_argument(argument, text) for argument in tree.args]
    return _make(make, arguments, {str(item.arg): _argument(item.value, text) for item in tree.keywords})


def _argument(tree: ast.expr, text: str) -> object:
    if isinstance(tree, ast.Call | ast.BinOp):
        return _rule(tree, text)
    try:
        return ast.literal_eval(tree)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise InvalidInputError(f"{_source(tree, text)} is neither a number, a text nor a rule") from None


def _make(make: Callable[..., Retention], arguments: list[Any], named: dict[str, Any]) -> Retention:
    try:
        inspect.signature(make).bind(*arguments, **named)
    except TypeError as error:
        raise InvalidInputError(f"{_usage(make)}: {error}") from None
    return make(*arguments, **named)


def _short(word: str, arguments: list[str], text: str) -> Retention:
    if word == "strip" and len(arguments) >= 2:
        return Strip(arguments[0], after=_short_keep(arguments[1], arguments[2:], text))
    if word == "exact-only" and arguments:
        return ExactOnly(_short_keep(arguments[0], arguments[1:], text))
    return _short_keep(word, arguments, text)


def _short_keep(word: str, arguments: list[str], text: str) -> Retention:
    if word == "each-run" and arguments[:1] not in ([], [word]):
        return EachRun(_short_keep(arguments[0], arguments[1:], text))
    read = _SHORT_KEEPS.get(word)
    if read is None:
        raise _unreadable(text)
    try:
        inspect.signature(read).bind(*arguments)
    except TypeError:
        raise _unreadable(text) from None
    return read(*arguments)


def _unreadable(text: str) -> InvalidInputError:
    joined = "; rules are joined with |" if re.search(r" (or|and) |,", text) else _meant(text)
    return InvalidInputError(f"cannot read the retention rule {text!r:.200}{joined}; {_known()}")


def _meant(text: str) -> str:
    """Return the rule that may have been meant, as part of a message: ``latest:3`` for ``last=3``."""
    found = _WORD.fullmatch(text.strip())
    near = difflib.get_close_matches(found[1].lower(), _SHORT_KEEPS, n=1) if found is not None else []
    if found is None or not near:
        return ""
    meant = f"{near[0]}:{found[2]}" if found[2] else near[0]
    try:
        _short_keep(near[0], [found[2]] if found[2] else [], "")
    except InvalidInputError:
        return ""
    return f" (is {meant} meant?)"


def _latest(n: str) -> Retention:
    return LatestN(_integer(n))


def _every(n: str, second: str | None = None) -> Retention:
    if not n[-1:].isalpha():
        return EveryNSteps(_integer(n), _integer(second or "0"))
    rule = EveryNSeconds(n)
    if second is None:
        return rule
    if not second.isdecimal():
        raise InvalidInputError(
            f"every:{n} takes a count, not {second!r:.100}: every:{n} keeps one state of each {n}, however "
            f"old, and every:{n}:7 of each of the last 7"
        )
    return EveryNSeconds(n, _integer(second))


def _best(first: str, second: Any = None, third: Any = None) -> Retention:
    if first.isdigit() and second is None:
        raise InvalidInputError(
            f"best:{first} names no metric: best:{first}:loss keeps {first} states by 'loss'"
        )
    # Of "best:loss", which names a state wherever one is named, the one is kept.
    if first.isdigit() and second is not None:
        return BestN(_integer(first), second, mode_of(second, third, f"best:{first}:{second}"))
    if third is not None:
        raise InvalidInputError(f"{first!r:.100} is no whole number")
    return BestN(1, first, mode_of(first, second))


def _log(base: str = "2") -> Retention:
    if re.fullmatch(r"[0-9]{1,18}(?:\.[0-9]{1,18})?", base, re.ASCII) is None:
        raise InvalidInputError(f"{base!r:.100} is no number")
    return LogSpaced(float(base))


_SHORT_KEEPS: Final[dict[str, Callable[..., Retention]]] = {
    "latest": _latest,
    "every": _every,
    "best": _best,
    "log": _log,
    "budget": Budget,
    "pinned": Pinned,
    "tagged": Tagged,
}


def _integer(text: str) -> int:
    if re.fullmatch("[0-9]{1,18}", text, re.ASCII) is None:
        raise InvalidInputError(f"{text!r:.100} is no whole number")
    return int(text)


def _source(tree: ast.expr, text: str) -> str:
    return f"{ast.get_source_segment(text, tree) or text!r:.200}"


def _usage(make: Callable[..., Retention]) -> str:
    """Return name and parameters: ``BestN(n, metric, mode='min')``."""
    signature = inspect.signature(make)
    plain = [item.replace(annotation=inspect.Parameter.empty) for item in signature.parameters.values()]
    shown = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    return f"{getattr(make, '__name__', '')}{shown}"


def _known() -> str:
    return f"known are {', '.join(map(_usage, _CLASSES.values()))}; in short {_SHORT_EXAMPLES}"
