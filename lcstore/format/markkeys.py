"""The names of marks: tags and pins, retirements, condemnations. Specified in ``docs/format/keys.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.format import keys
from lcstore.format.keyforms import ID, ID_RE, POOL, check_number, check_text, match, stem
from lcstore.limits import MAX_NAME_CHARS

TagKind: TypeAlias = Literal["tag", "pin", "line"]
TAG_KINDS: Final[tuple[TagKind, ...]] = ("tag", "pin", "line")

#: What a retirement lets go, besides ``pool.<pool>``.
WHOLE_STATE: Final = "state"
#: That the node is the latest of its run does not keep it any more: the run went on from an earlier one.
SUPERSEDED: Final = "superseded"
#: What a condemnation is about, besides an array: ``<pool>.<op>``.
WHOLE_EDGE: Final = "edge"
#: No object: paths alone are not to go over the edge any more.
PATH: Final = "path"
#: The exact value of a node: what a retirement lets go, and what a condemnation is about.
EXACT_VALUE: Final = "exact"
#: A condemnation of a layout: the first half of the layout's digest stands where an edge's id does.
LAYOUT: Final = "layout"
#: In a name: no node. Of a tag: it is taken away; of a condemnation: the edge is no node's own.
NO_NODE: Final = "none"

#: Who pins what `unretire` brings back: the pin holds until a rule, or `retire`, lets go of the state again.
UNRETIRED: Final = "until retired again"

MAX_TAG_CHARS: Final = 150
#: What is left for a tag, escaped, of the last component of its key.
_MOST_ESCAPED: Final = MAX_NAME_CHARS - len(f"tag--{0:08d}-{0:032d}-{0:032d}.json")

_OPS: Final = "|".join(keys.OPS)
_SCOPE: Final = rf"edge|exact|layout|path|{POOL}\.(?:{_OPS})"
_KINDS: Final = "|".join(TAG_KINDS)
_TAG: Final = r"(?:[a-z0-9_]|~[0-9a-f]{2})+"
_TAG_RE: Final = re.compile(rf"names/({_KINDS})-({_TAG})-([0-9]{{8}})-({ID}|none)-({ID})\.json")
_RETIRED_RE: Final = re.compile(rf"retired/({ID})-({ID})-(state|exact|superseded|pool\.{POOL})\.json")
_CONDEMNED_RE: Final = re.compile(rf"condemned/({ID})-({ID}|none)-({ID})-({_SCOPE})\.json")
_SCOPE_RE: Final = re.compile(_SCOPE)
_ESCAPED: Final = re.compile("~([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class TagName:
    """What the key of a tag's, pin's or line's record says. Of one name the greatest (`seq`, `record`) holds.

    A line is of the node that is its `name`: it was saved upon `node`, or upon what that led to and is gone.
    """

    kind: TagKind
    name: str
    seq: int
    node: str | None
    record: str

    @property
    def about(self) -> str | None:
        """The node that it is about; None of a tag that was taken away. The name of a pin begins with it."""
        if self.kind == "line":
            return self.name
        return self.name.partition(" ")[0] if self.kind == "pin" and self.node is None else self.node


@dataclass(frozen=True, slots=True)
class RetiredName:
    """What the key of a retirement says.

    `what` is let go: ``state`` (the whole state), ``exact`` (its exact value), ``pool.<pool>``;
    ``superseded``: that it is kept as the latest of its run.
    """

    node: str
    what: str
    record: str

    @property
    def pool(self) -> str | None:
        """The pool that is let go, where it is one."""
        return self.what[5:] if self.what.startswith("pool.") else None


@dataclass(frozen=True, slots=True)
class CondemnedName:
    """What the key of a condemnation says.

    `node` is the one whose own edge it is (None: none's). `scope` is ``edge`` (all objects, and the record),
    ``exact`` (the node's exact value), ``<pool>.<op>`` (the objects of one array that the edge needs),
    ``path`` (none: readers are to take other paths) or ``layout`` (a layout: `edge` is the first half of its
    digest).
    """

    edge: str
    node: str | None
    scope: str
    record: str

    @property
    def pool(self) -> str | None:
        """The pool of the array, where it is one."""
        return self.scope.partition(".")[0] if "." in self.scope else None

    @property
    def blocks(self) -> bool:
        """Whether a path over the edge may find something gone."""
        op = self.scope.rpartition(".")[2]
        return self.scope in (WHOLE_EDGE, PATH) or (self.pool is not None and op in keys.COMPOSED)


def tag_kind(text: str) -> TagKind:
    """Return one of `TAG_KINDS` by what it is called."""
    return next(kind for kind in TAG_KINDS if kind == text)


def tag_key(name: TagName) -> str:
    """Return the key of a tag's, pin's or line's record; tags that differ in case differ everywhere."""
    if name.kind not in TAG_KINDS:
        raise InvalidInputError(f"not a kind of name: {name.kind!r:.100}")
    check_number("seq", name.seq, keys.MAX_SEQ)
    node = NO_NODE if name.node is None else check_text("node id", name.node, ID_RE)
    record = check_text("record id", name.record, ID_RE)
    return f"names/{name.kind}-{_escape(check_tag(name.name))}-{name.seq:08d}-{node}-{record}.json"


def parse_tag_key(key: str) -> TagName:
    """Return what the key of a tag's, pin's or line's record says; the exact inverse of `tag_key`."""
    kind, text, seq, node, record = match(_TAG_RE, key).groups()
    name = TagName(tag_kind(kind), _unescape(text, key), int(seq), node, record)
    return name if node != NO_NODE else TagName(name.kind, name.name, name.seq, None, record)


def retired_key(name: RetiredName) -> str:
    """Return the key of a retirement."""
    node, record = check_text("node id", name.node, ID_RE), check_text("record id", name.record, ID_RE)
    key = f"retired/{node}-{record}-{name.what}.json"
    if _RETIRED_RE.fullmatch(key) is None:
        raise InvalidInputError(f"cannot retire {name.what!r:.100}")
    return key


def parse_retired_key(key: str) -> RetiredName:
    """Return what the key of a retirement says; the exact inverse of `retired_key`."""
    found = match(_RETIRED_RE, key)
    return RetiredName(found[1], found[3], found[2])


def condemned_key(name: CondemnedName) -> str:
    """Return the key of a condemnation."""
    edge = check_text("edge id", name.edge, ID_RE)
    node = NO_NODE if name.node is None else check_text("node id", name.node, ID_RE)
    record = check_text("record id", name.record, ID_RE)
    key = f"condemned/{edge}-{node}-{record}-{name.scope}.json"
    if _CONDEMNED_RE.fullmatch(key) is None:
        raise InvalidInputError(f"cannot condemn {name.scope!r:.100}")
    return key


def parse_condemned_key(key: str) -> CondemnedName:
    """Return what the key of a condemnation says; the exact inverse of `condemned_key`."""
    found = match(_CONDEMNED_RE, key)
    return CondemnedName(found[1], None if found[2] == NO_NODE else found[2], found[4], found[3])


def pool_of(pool: str) -> str:
    """Return what a retirement of one pool lets go, of all parts."""
    return f"pool.{stem(pool)}"


def array_scope(pool: str, op: keys.Op) -> str:
    """Return the scope of a condemnation of one array, of all parts."""
    return f"{stem(pool)}.{op}"


def is_retirable(what: str) -> bool:
    """Return whether a retirement can let go of `what`."""
    return what in (WHOLE_STATE, EXACT_VALUE, SUPERSEDED) or re.fullmatch(rf"pool\.{POOL}", what) is not None


def is_scope(scope: str) -> bool:
    """Return whether a condemnation can be about `scope`."""
    return _SCOPE_RE.fullmatch(scope) is not None


def check_tag(tag: str) -> str:
    """Return `tag`, or raise `InvalidInputError` if it cannot be one."""
    if not isinstance(tag, str) or not 0 < len(tag) <= MAX_TAG_CHARS or not tag.isprintable():
        raise InvalidInputError(f"a tag is 1 to {MAX_TAG_CHARS} printable characters, not {tag!r:.200}")
    size = len(_escape(tag))
    if size > _MOST_ESCAPED:
        raise InvalidInputError(
            f"the tag {tag[:30]!r}... takes {size} characters of {_MOST_ESCAPED} in a key: "
            "all but a-z, 0-9 and _ take 3 a byte"
        )
    return tag


def _escape(tag: str) -> str:
    return "".join(chr(c) if chr(c) in _TAG_PLAIN else f"~{c:02x}" for c in tag.encode())


def _unescape(text: str, key: str) -> str:
    raw = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text).encode("latin-1")
    try:
        tag = check_tag(raw.decode())
    except ValueError as error:
        raise CorruptionError("name of a tag that cannot be one", key=key) from error
    if _escape(tag) != text:
        raise CorruptionError("name of a tag not in its one spelling", key=key)
    return tag


_TAG_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
