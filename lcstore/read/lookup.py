"""What a caller asks for by name, found in a state; and what may have been meant where nothing is found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from lcstore.errors import NotFoundError
from lcstore.read.node import Node
from lcstore.state.names import Name, format_name, matcher, parse_name
from lcstore.state.tree import Selection, names_in, select

#: What makes a text a glob, which may match nothing.
_WILD: Final = frozenset("*?[")

#: Names that are looked through for those nearest to one that is not there.
_LOOKED_AT: Final = 20_000


def as_name(name: str | Name) -> Name:
    """Return a name that is given as text or as a tuple of keys."""
    return parse_name(name) if isinstance(name, str) else tuple(name)


def tensor_at(node: Node, name: Name) -> int | None:
    """Return the place of a tensor among `Layout.wholes`; None where no tensor has this name."""
    return node.layout.named.get(name)


class Wanted:
    """Globs and exact names of what a caller wants of states.

    Parameters
    ----------
    names
        ``"model/**"``, ``"model/fc.weight"``, or several; None for everything.
    """

    def __init__(self, names: str | Sequence[str] | None) -> None:
        globs = ["**"] if names is None else [names] if isinstance(names, str) else list(names)
        self.globs: list[str] = globs
        #: Exact names that were found nowhere yet.
        self.missing: list[str] = [text for text in globs if text and not _WILD.intersection(text)]
        self._matches = matcher(globs)

    def part(self, node: Node) -> Selection:
        """Return the part of a state that is wanted."""
        missing = set(self.missing)
        found: set[str] = set()

        def matches(name: Name) -> bool:
            if not self._matches(name):
                return False
            if missing:
                found.add(format_name(name))
            return True

        selection = select(node.layout.structure, matches)
        self.missing = [text for text in self.missing if text not in found]
        return selection

    def check(self, nodes: Iterable[Node], url: str) -> None:
        """Refuse an exact name that none of the states has, once `part` was asked for each of them."""
        seen = list(nodes)
        if self.missing and seen:
            raise absent(self.missing[0], seen, url)


def part_of(node: Node, names: str | Sequence[str] | None, url: str) -> Selection:
    """Return the part of one state that is wanted; `NotFoundError` where it lacks an exact name."""
    wanted = Wanted(names)
    part = wanted.part(node)
    wanted.check([node], url)
    return part


def names_of(node: Node, names: str | Sequence[str] | None = None, url: str = "") -> list[Name]:
    """Return the names of a state's tensors, then those of its plain values: all, or those wanted."""
    found = names_in(part_of(node, names, url).structure)
    return [*found.tensors, *found.ties, *found.leaves]


def absent(text: str, nodes: Sequence[Node], url: str) -> NotFoundError:
    """Return the error that says of a name that no state has it, and what may have been meant."""
    step = nodes[-1].record.step
    names = list(dict.fromkeys(format_name(name) for node in nodes for name in names_of(node)))
    if any(name.startswith(f"{text}/") for name in names) or not text:
        glob = f"{text}/**" if text else "**"
        return NotFoundError(
            f"step {step} holds several values at {text!r}: names={glob!r} means all of them"
        )
    return NotFoundError(
        f"step {step} has no value at {text!r}{_nearest(text, names)} (integer keys are written #1): "
        f"`lcstore show {url}@{step}` lists what it has"
    )


def _nearest(text: str, names: Sequence[str]) -> str:
    last = text.rpartition("/")[2]
    found = get_close_matches(text, names[:_LOOKED_AT], n=2)
    found += [name for name in names if name.rpartition("/")[2] == last and name not in found][:1]
    return f"; the nearest is {' or '.join(map(repr, found[:2]))}" if found else ""
