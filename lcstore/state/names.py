"""Names: where a leaf lies in a state. A tuple of typed parts, and its text form for people.

A part is a string (a dict key, a field name) or an integer (an integer dict key, a place in a list). The
text form joins the parts with ``/`` without loss: every name has one text, and every text one name.

=========================  =====================================
part                       text
=========================  =====================================
``"a/b"``                  ``a~1b``
``"a~b"``                  ``a~0b``
``"#a"`` (leading ``#``)   ``~2a``
``""``                     ``~3``
``7``                      ``#7``
no parts (the state)       the empty text
=========================  =====================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeAlias

from lcstore.errors import InvalidInputError

Component: TypeAlias = str | int
Name: TypeAlias = tuple[Component, ...]

#: Integer parts fit 64 signed bits, so that a reader in any language can hold them.
MIN_INT_COMPONENT = -(1 << 63)
MAX_INT_COMPONENT = (1 << 63) - 1

_UNESCAPED = {"0": "~", "1": "/", "2": "#", "3": ""}
_WILD = frozenset("*?[")
_ESCAPE = re.compile("~(.?)", re.DOTALL)


def format_name(path: Name) -> str:
    """Return the text form of `path`: ``("model", "a/b", 0)`` gives ``"model/a~1b/#0"``."""
    return "/".join([_format_part(part) for part in path])


def _format_part(part: Component) -> str:
    if isinstance(part, int):
        return f"#{part}"
    if not part:
        return "~3"
    if "~" in part or "/" in part:
        part = part.replace("~", "~0").replace("/", "~1")
    return "~2" + part[1:] if part[0] == "#" else part


def parse_name(text: str) -> Name:
    """Return the name whose text form is `text`, the exact inverse of `format_name`.

    Raises
    ------
    InvalidInputError
        `text` is not the text form of any name: a bad escape, an empty part, ``#`` without an integer.
    """
    path = tuple(_parse_part(part, text) for part in text.split("/")) if text else ()
    # One comparison catches every second spelling: "#01", "~3x", "a~2", digits that are not ASCII.
    if format_name(path) != text:
        raise InvalidInputError(f"{text!r} is not the text form of a name")
    return path


def _parse_part(part: str, text: str) -> Component:
    if part.startswith("#"):
        digits = part[1:]
        # 20 characters hold every 64-bit integer, and keep int() away from long texts.
        if len(digits) <= 20 and digits.lstrip("-").isdecimal():
            try:
                value = int(digits)
            except ValueError:
                value = MAX_INT_COMPONENT + 1
            if is_component(value):
                return value
        raise InvalidInputError(f"{part!r} in name {text!r} is no integer (write '~2' for a leading '#')")
    return _ESCAPE.sub(lambda found: _unescape(found, text), part)


def _unescape(found: re.Match[str], text: str) -> str:
    try:
        return _UNESCAPED[found[1]]
    except KeyError:
        raise InvalidInputError(f"bad escape {found[0]!r} in name {text!r} (write '~0' for '~')") from None


def is_component(value: object) -> bool:
    """Return whether `value` can be a part: a string of valid Unicode, or an integer of 64 signed bits."""
    if type(value) is str:
        return not has_surrogates(value)
    return type(value) is int and MIN_INT_COMPONENT <= value <= MAX_INT_COMPONENT


def has_surrogates(text: str) -> bool:
    """Return whether `text` holds half of a surrogate pair, which no UTF-8 text can carry."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def match(pattern: str, path: Name) -> bool:
    """Return whether the glob `pattern` matches all of `path`.

    Parameters
    ----------
    pattern
        Texts of parts joined by ``/``. ``*``, ``?`` and ``[...]`` match within one part, by case; a part
        ``**`` matches any number of parts, none included: ``model/**`` matches ``model`` and all below it.
        So does ``model``: a pattern without any of these characters means all below it, too.
    path
        The name; its parts are compared in their text form, so ``layers/#0`` matches item 0 of a list.
    """
    return _match_parts(_split(pattern), [_format_part(part) for part in path])


def matcher(patterns: str | Iterable[str]) -> Callable[[Name], bool]:
    """Return a predicate that is true for the names that any of `patterns` matches."""
    globs = [_split(patterns)] if isinstance(patterns, str) else [_split(pattern) for pattern in patterns]

    def matches(path: Name) -> bool:
        parts = [_format_part(part) for part in path]
        return any(_match_parts(glob, parts) for glob in globs)

    return matches


@lru_cache(maxsize=1 << 16)
def matching(patterns: tuple[str, ...], path: Name) -> tuple[str, ...]:
    """Return those of some globs that match a name: each save asks the same of every tensor."""
    parts = [_format_part(part) for part in path]
    return tuple(pattern for pattern in patterns if _match_parts(_split(pattern), parts))


def is_glob(pattern: str) -> bool:
    """Return whether a pattern has characters that match more than themselves."""
    return not _WILD.isdisjoint(pattern)


def leading(path: Name) -> list[str]:
    """Return the texts of a name's leading parts, from none of them to all."""
    found = [""]
    for part in map(_format_part, path):
        found.append(f"{found[-1]}/{part}" if len(found) > 1 else part)
    return found


def nested(values: Iterable[tuple[Sequence[Any], Any]]) -> dict[Any, Any]:
    """Return values in dicts within dicts, as the parts of their names say."""
    top: dict[Any, Any] = {}
    for parts, value in values:
        inner = top
        for part in parts[:-1]:
            inner = inner.setdefault(part, {})
        inner[parts[-1]] = value
    return top


def _split(pattern: str) -> list[str]:
    parts = pattern.split("/") if pattern else []
    return parts if is_glob(pattern) else [*parts, "**"]


def _match_parts(glob: list[str], parts: list[str]) -> bool:
    # Only the last `**` seen ever needs to take one part more: the classic loop, without recursion.
    at = spot = 0
    star = -1
    resume = 0
    while spot < len(parts):
        if at < len(glob) and glob[at] == "**":
            star, resume = at, spot
            at += 1
        elif at < len(glob) and fnmatchcase(parts[spot], glob[at]):
            at += 1
            spot += 1
        elif star >= 0:
            resume += 1
            at, spot = star + 1, resume
        else:
            return False
    return all(part == "**" for part in glob[at:])
