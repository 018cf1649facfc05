"""What a caller asks for by name, found in a state; and what may have been meant where nothing is found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from shlex import quote
from typing import Final

from lcstore.errors import InvalidInputError, NotFoundError
from lcstore.read.node import Node, hurt_by
from lcstore.state.names import Component, Name, format_name, is_glob, leading, matcher, parse_name
from lcstore.state.tree import Selection, names_in, select

#: Names that are looked through for those nearest to one that is not there.
_LOOKED_AT: Final = 5_000
#: How many of the names at the top of a state a message gives.
_TOP_SHOWN: Final = 8
_SEPARATORS: Final = str.maketrans("", "", "/.#~_* ")


def as_name(name: str | Name) -> Name:
    """Return a name that is given as text or as a tuple of keys.

    Raises
    ------
    InvalidInputError
        It is neither.
    """
    if isinstance(name, str):
        return parse_name(name)
    if not isinstance(name, tuple | list):
        raise InvalidInputError(
            f"a name is text such as 'model/layers.0.weight', or a tuple of keys, not {name!r:.100}"
        )
    return tuple(name)


def tensors_at(node: Node, name: Name) -> list[int]:
    """Return the place of a tensor among `Layout.wholes`, in a list; none where no tensor has this name."""
    tensor = node.layout.named.get(name)
    return [] if tensor is None else [tensor]


class Wanted:
    """What a caller wants of states, by name.

    Parameters
    ----------
    names
        ``"model/fc.weight"``, ``"model"`` for all below it, globs such as ``"model/*.bias"``, or several of
        these; None for everything.

    Raises
    ------
    InvalidInputError
        It is an iterator.
    """

    def __init__(self, names: str | Sequence[str] | None) -> None:
        if isinstance(names, Iterator):  # used up where a read is tried again
            raise InvalidInputError("names is a text or a list of them, not an iterator: give list(names)")
        texts = ["**"] if names is None else [names] if isinstance(names, str) else list(names)
        self._whole = "**" in texts
        self._texts = {text: place for place, text in reversed([*enumerate(texts)])}
        self._globs = {text: matcher(text) for text in texts if is_glob(text)}
        #: What was found nowhere yet. A state that holds nothing at all is a whole state.
        self.missing: dict[str, None] = dict.fromkeys(text for text in texts if text not in ("", "**"))

    def part(self, node: Node) -> Selection:
        """Return the part of a state that is wanted."""
        structure, names = node.layout.structure, node.layout.names
        if self._whole and not self.missing and not names.ties:
            return Selection(structure, [*range(len(names.tensors))], [*range(len(names.leaves))])
        return select(structure, self._matches)

    def _matches(self, name: Name) -> bool:
        if self._whole and not self.missing:
            return True
        found = self._found(name)
        for text in found if self.missing else ():
            self.missing.pop(text, None)
        return bool(found)

    def _found(self, name: Name) -> set[str]:
        """Return which texts mean a name."""
        # A key may hold an asterisk: every text may be meant as it stands.
        found = self._texts.keys() & leading(name)
        found.update(text for text, matches in self._globs.items() if matches(name))
        return found

    def place(self, name: Name) -> int:
        """Return which text is the first that means a name that is wanted."""
        return min(self._texts[text] for text in self._found(name))

    def check(self, nodes: Iterable[Node], url: str) -> None:
        """Refuse what matches nothing in any of the states, once `part` was asked for each of them."""
        seen = list(nodes)
        if self.missing and seen:
            raise absent(next(iter(self.missing)), seen, url)


def part_of(node: Node, names: str | Sequence[str] | None, url: str) -> Selection:
    """Return the part of one state that is wanted; `NotFoundError` where a name or glob matches nothing."""
    wanted = Wanted(names)
    part = wanted.part(node)
    wanted.check([node], url)
    return part


def part_for(node: Node, targets: Iterable[Component]) -> Selection:
    """Return the part of a state that is read for targets: all; of a stripped one, they and what is whole."""
    if not node.stripped:
        return part_of(node, None, "")
    hurt = hurt_by(node.layout, node.stripped).difference(targets)
    return select(node.layout.structure, lambda name: not name or name[0] not in hurt)


def names_of(node: Node, names: str | Sequence[str] | None = None, url: str = "") -> list[Name]:
    """Return the names of a state's tensors, then those of its plain values: all, or those wanted."""
    found = names_in(part_of(node, names, url).structure)
    return [*found.tensors, *found.ties, *found.leaves]


def in_order(node: Node, names: str | Sequence[str] | None = None, url: str = "") -> list[Name]:
    """Return what `names_of` does, in the order of `names`: all that the first one means come first."""
    found = names_of(node, names, url)
    return found if names is None or isinstance(names, str) else sorted(found, key=Wanted(names).place)


def absent(text: str, nodes: Sequence[Node], url: str) -> NotFoundError:
    """Return the error that says of a name or glob that no state has it, and what may have been meant."""
    step = nodes[-1].record.step
    names = list(dict.fromkeys(name for node in nodes for name in names_of(node)))
    matches = matcher(text) if is_glob(text) else None
    if any(text in leading(name)[:-1] or (matches is not None and matches(name)) for name in names):
        said = (
            f"step {step} holds several values at {text!r}: restore({step}, names={text!r}) gives all of them"
        )
    elif text in nodes[-1].record.metrics:
        said = (
            f"{text!r} is no part of the state of step {step}, but a metric of it: of all states, "
            f"[(s.step, s.metrics.get({text!r})) for s in store.states()]"
        )
    else:
        what = "nothing that matches" if is_glob(text) else "no value at"
        listed = f"`lcstore show {quote(f'{url}@{step}')}` lists all"
        said = f"step {step} has {what} {text!r}; {_instead(text, names)}: {listed}"
    return NotFoundError(said, step=step, missing="tensor")


def _instead(text: str, names: Sequence[Name]) -> str:
    """Return the names nearest to one that is not there, or else those at the top of the state."""
    near = nearest(text, names)
    if near:
        return f"the nearest is {' or '.join(map(repr, near))}"
    top = list(dict.fromkeys(leading(name)[1] for name in names if name))
    if not top:
        return "it holds nothing that has a name"
    return f"it has {', '.join(map(repr, top[:_TOP_SHOWN]))}{', ...' * (len(top) > _TOP_SHOWN)}"


def nearest(text: str, names: Sequence[Name]) -> list[str]:
    """Return up to two texts among names, and among what they lie below, that `text` may have meant."""
    looked = names[:_LOOKED_AT]
    known = list(dict.fromkeys([*map(format_name, looked), *(t for n in looked for t in leading(n)[1:])]))
    asked, last = text.strip("*/"), text.rpartition("/")[2]
    # `model.0.weight` and `model/layers/0/weight` are the same to people: only the separators differ.
    folded = asked.translate(_SEPARATORS)
    found = [name for name in known if name.translate(_SEPARATORS) == folded]
    # Names begin at the top of a state, which a glob such as `layers.*` leaves out.
    deeper = f"**/{text}"
    found += [deeper] if is_glob(text) and any(map(matcher(deeper), looked)) else []
    found += get_close_matches(asked, known, n=2) if asked else []
    found += [name for name in known if name.rpartition("/")[2] == last][:1]
    return list(dict.fromkeys(found))[:2]
