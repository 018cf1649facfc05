"""Files that someone renamed or moved: which of the missing objects they may be, and how they come back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.graph.refs import NodeName
from lcstore.units import counted

#: Of a key behind its top folder: so many components at the most.
_DEEPEST: Final = 4
_WORD: Final = re.compile("[A-Za-z0-9]+")
_MOST_TOLD: Final = 3


def likely(missing: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """Return which of the missing objects there may be under another name: names, by key.

    Such a name ends as the key does behind its top folder, wherever the file lies; one component may have
    something before or behind it: ``ID.bak/0/plain-int64.set/c.0``, ``ID/0/plain-int64.set/c.0 (copy)``.
    """
    ends = {key.partition("/")[2] or key: key for key in missing}
    found: dict[str, str] = {}
    for name in sorted(names):
        key = next((ends[end] for end in _ends(name) if end in ends), None)
        if key is not None:
            found.setdefault(key, name)
    return found


def as_nodes(names: Iterable[str], nodes: Collection[str] | None) -> set[str]:
    """Return the keys of the records of nodes (None: of any) that files are named like, wherever they lie.

    Those that such a node stands on are among them.
    """
    found: dict[str, NodeName] = {}
    for name in names:
        key = f"{keys.NODES}/{name.rpartition('/')[2]}"
        with suppress(LcstoreError):
            found[key] = keys.parse_node_key(key)
    if nodes is None:
        return {*found}
    wanted = {*nodes}
    for one in sorted(found.values(), key=lambda one: one.order, reverse=True):
        wanted |= {one.base} if one.node in wanted else set()
    return {key for key, one in found.items() if one.node in wanted}


def _ends(name: str) -> Iterator[str]:
    """Yield the ends of a name, each also without what may have been put to one of its components."""
    parts = name.split("/")[-_DEEPEST:]
    for start in range(len(parts)):
        for at in range(start, len(parts)):
            for part in _parts(parts[at]):
                yield "/".join((*parts[start:at], part, *parts[at + 1 :]))


def _parts(component: str) -> Iterator[str]:
    """Yield a component of a name, and its beginnings and ends of whole words."""
    yield component
    for word in _WORD.finditer(component):
        yield component[: word.end()]
        yield component[word.start() :]


def stops_a_repair(astray: Iterable[str], *, lost: bool) -> bool:
    """Return whether a repair would let go of something that is astray: of states, or of a state's record."""
    return any(lost or key.startswith(f"{keys.NODES}/") for key in astray)


def way_back(astray: Mapping[str, str]) -> str:
    """Return how objects that are astray come back: what is to be moved where; "" where none are."""
    if not astray:
        return ""
    moves = [*dict.fromkeys(_move(name, key) for key, name in sorted(astray.items()))]
    told = _told(moves)
    what = ", ".join(told[:_MOST_TOLD]) + ", ..." * (len(told) > _MOST_TOLD)
    return f"{counted(len(astray), 'missing object')} may be there under another name: move {what}"


def _told(moves: Iterable[tuple[str, str]]) -> list[str]:
    """Return what is to be moved where; several files that go from one folder to another, as one."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, key in moves:
        (source, _, last), (into, _, called) = name.rpartition("/"), key.rpartition("/")
        alike.setdefault((source, into) if source and last == called else (name, key), []).append(
            f"{shlex.quote(name)} to {key}"
        )
    return [
        told[0] if len(told) == 1 else f"{len(told)} files of {shlex.quote(f'{source}/')} to {into}/"
        for (source, into), told in alike.items()
    ]


def _move(name: str, key: str) -> tuple[str, str]:
    """Return which file or folder is to be moved to where: no more is said of a path than is to change."""
    while key.count("/") > 1 and name.rpartition("/")[2] == key.rpartition("/")[2] and "/" in name:
        name, key = name.rpartition("/")[0], key.rpartition("/")[0]
    return name, key
