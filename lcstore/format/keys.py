"""Every name in a store: how keys are built, how they are read back, and what no key may be.

The format is specified in ``docs/format/keys.md``. A name is a hint for whoever lists the store; what it
says is verified against the body that it names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from lcstore.errors import CorruptionError, InvalidInputError, LimitError
from lcstore.graph.refs import ROOT, EdgeName, NodeName
from lcstore.limits import MAX_NAME_CHARS, MAX_STEP
from lcstore.state.qualified import FIRST_PART, part_of, qualified, stem_of

Op: TypeAlias = Literal["add", "grid", "set", "exact"]
TagKind: TypeAlias = Literal["tag", "pin"]

STORE_KEY: Final = "lcstore.json"
NODES: Final = "nodes"
EDGES: Final = "edges"
LAYOUTS: Final = "layouts"
DATA: Final = "data"
#: Second copies of node records, layouts and `STORE_KEY`: no commits.
COPIES: Final = "copies"
RETIRED: Final = "retired"
CONDEMNED: Final = "condemned"
NAMES: Final = "names"
#: Where repairing puts what could not be read, each under its own key: no part of the store.
QUARANTINE: Final = "quarantine"

OPS: Final[tuple[Op, ...]] = ("add", "grid", "set", "exact")
#: Arrays of integers of the grid; those of other operations hold values.
INTEGERS: Final = frozenset({"add", "grid"})
#: Arrays that hold what composes along a path. A path over an edge reads them; the others are set afresh by
#: whoever changes them.
COMPOSED: Final = frozenset({"add", "grid", "exact"})
_OP: Final[dict[str, Op]] = {op: op for op in OPS}
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

MAX_TAG_CHARS: Final = 150
#: What is left for a tag, escaped, of the last component of its key.
_MOST_ESCAPED: Final = MAX_NAME_CHARS - len(f"tag--{0:08d}-{0:032d}-{0:032d}.json")
MAX_RUN: Final = 999_999
MAX_SEQ: Final = 99_999_999
#: Bytes of an edge: what fits 19 digits.
MAX_BYTES: Final = MAX_STEP

_ID: Final = "[0-9a-f]{32}"
_COUNT: Final = "(?:0|[1-9][0-9]{0,18})"
_PART: Final = "(?:0|[1-9][0-9]{0,4})"
_POOL: Final = "[a-z0-9][a-z0-9_-]{0,79}"
_OPS: Final = "|".join(OPS)
_SCOPE: Final = rf"edge|exact|layout|path|{_POOL}\.(?:{_OPS})"
_TAG: Final = r"(?:[a-z0-9_]|~[0-9a-f]{2})+"

_ID_RE: Final = re.compile(_ID)
_RUN_ID_RE: Final = re.compile("[0-9a-f]{8}")
_DIGEST_RE: Final = re.compile("[0-9a-f]{64}")
PART: Final = re.compile(_PART)
#: A pool as layouts of several parts name it: part 0 is not said.
_QUALIFIED: Final = re.compile(rf"(?:[1-9][0-9]{{0,4}}/)?{_POOL}")
_NODE_RE: Final = re.compile(
    rf"nodes/([0-9]{{19}})-([0-9]{{6}})\.([0-9a-f]{{8}})-([0-9]{{8}})-({_ID})-({_ID}|root)-({_COUNT})\.json"
)
_EDGE_RE: Final = re.compile(rf"edges/({_ID})-({_ID}|root)-({_ID})-({_COUNT})\.json")
_LAYOUT_RE: Final = re.compile(r"layouts/([0-9a-f]{64})\.json")
_COPY_RE: Final = re.compile(rf"copies/(?:({_ID}|[0-9a-f]{{64}})|lcstore)\.json")
_DATA_RE: Final = re.compile(
    rf"data/({_ID})/({_PART})/(?:(?:zarr|leaves|part|leaves\.copy|part\.copy)\.json"
    rf"|({_POOL})\.({_OPS})/(?:c\.({_COUNT})|p\.({_COUNT})))"
)
_TAG_RE: Final = re.compile(rf"names/(tag|pin)-({_TAG})-([0-9]{{8}})-({_ID}|none)-({_ID})\.json")
_RETIRED_RE: Final = re.compile(rf"retired/({_ID})-({_ID})-(state|exact|superseded|pool\.{_POOL})\.json")
_CONDEMNED_RE: Final = re.compile(rf"condemned/({_ID})-({_ID}|none)-({_ID})-({_SCOPE})\.json")
_SCOPE_RE: Final = re.compile(_SCOPE)
_ESCAPED: Final = re.compile("~([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class DataName:
    """What a key under ``data/`` says.

    Attributes
    ----------
    edge
        Its id.
    pool, op
        Those of the array; None for the files of a part's own folder. The pool is named as layouts of several
        parts name it (`lcstore.state.qualified`).
    chunk, parity
        Which chunk of the array it is, or which object that chunks can be rebuilt from.
    """

    edge: str
    pool: str | None
    op: Op | None
    chunk: int | None
    parity: int | None = None


@dataclass(frozen=True, slots=True)
class TagName:
    """What the key of a tag's or pin's record says. Of one name the greatest (`seq`, `record`) holds."""

    kind: TagKind
    name: str
    seq: int
    node: str | None
    record: str


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
        return self.scope in (WHOLE_EDGE, PATH) or (self.pool is not None and op in COMPOSED)


def node_key(name: NodeName) -> str:
    """Return the key of a node's record."""
    _check_number("step", name.step, MAX_STEP)
    _check_number("run", name.run, MAX_RUN)
    _check_number("seq", name.seq, MAX_SEQ)
    _check_number("nbytes", name.nbytes, MAX_BYTES)
    _check_text("run id", name.run_id, _RUN_ID_RE)
    _check_text("node id", name.node, _ID_RE)
    _check_base(name.base)
    return (
        f"nodes/{name.step:019d}-{name.run:06d}.{name.run_id}-{name.seq:08d}"
        f"-{name.node}-{name.base}-{name.nbytes}.json"
    )


def parse_node_key(key: str) -> NodeName:
    """Return what the key of a node's record says; the exact inverse of `node_key`."""
    step, run, run_id, seq, node, base, nbytes = _match(_NODE_RE, "a node's record", key).groups()
    name = NodeName(
        step=int(step), run=int(run), run_id=run_id, seq=int(seq), node=node, base=base, nbytes=int(nbytes)
    )
    if name.step > MAX_STEP or name.nbytes > MAX_BYTES:
        raise LimitError("number past 63 bits in the name of a node's record", key=key)
    return name


def edge_key(name: EdgeName) -> str:
    """Return the key of the record of an edge that compaction added."""
    _check_number("nbytes", name.nbytes, MAX_BYTES)
    _check_text("target id", name.target, _ID_RE)
    _check_text("edge id", name.edge, _ID_RE)
    _check_base(name.base)
    return f"edges/{name.target}-{name.base}-{name.edge}-{name.nbytes}.json"


def parse_edge_key(key: str) -> EdgeName:
    """Return what the key of an edge's record says; the exact inverse of `edge_key`."""
    target, base, edge, nbytes = _match(_EDGE_RE, "an edge's record", key).groups()
    if int(nbytes) > MAX_BYTES:
        raise LimitError("number past 63 bits in the name of an edge's record", key=key)
    return EdgeName(target=target, base=base, edge=edge, nbytes=int(nbytes))


def layout_key(digest: str) -> str:
    """Return the key of the layout whose bytes have this hash."""
    return f"layouts/{_check_text('layout digest', digest, _DIGEST_RE)}.json"


def parse_layout_key(key: str) -> str:
    """Return the digest in the key of a layout."""
    return _match(_LAYOUT_RE, "a layout", key)[1]


def layout_half(digest: str) -> str:
    """Return the half of a layout's digest by which a condemnation names it."""
    return _check_text("layout digest", digest, _DIGEST_RE)[:32]


def copy_key(what: str) -> str:
    """Return the key of the second copy of a node's record (by id), a layout (by hash) or `STORE_KEY`."""
    key = f"{COPIES}/{what.removesuffix('.json')}.json"
    parse_copy_key(key)
    return key


def parse_copy_key(key: str) -> str:
    """Return of what a key is the copy: the id of a node, the hash of a layout, or `STORE_KEY`."""
    found = _match(_COPY_RE, "a copy", key)
    return found[1] or STORE_KEY


def edge_folder(edge: str) -> str:
    """Return the prefix below which every object of an edge lies."""
    return f"data/{_check_text('edge id', edge, _ID_RE)}"


def part_folder(edge: str, part: str) -> str:
    """Return the prefix below which every object of a part of an edge lies."""
    return f"{edge_folder(edge)}/{_check_text('part', part, PART)}"


def part_key(edge: str, part: str) -> str:
    """Return the key of a part that is an object of its own."""
    return f"{part_folder(edge, part)}/part.json"


def group_key(edge: str, part: str = FIRST_PART) -> str:
    """Return the key of the metadata of a part's Zarr group."""
    return f"{part_folder(edge, part)}/zarr.json"


def leaves_key(edge: str, part: str = FIRST_PART) -> str:
    """Return the key of a part's plain leaves, where they are too large for the record."""
    return f"{part_folder(edge, part)}/leaves.json"


def chunk_key(edge: str, pool: str, op: Op, index: int) -> str:
    """Return the key of chunk number `index` of one Zarr array of an edge."""
    return f"{_array_folder(edge, pool, op)}/c.{_check_number('chunk', index, MAX_BYTES)}"


def parity_key(edge: str, pool: str, op: Op, index: int) -> str:
    """Return the key of object number `index` of those that chunks of one array can be rebuilt from."""
    return f"{_array_folder(edge, pool, op)}/p.{_check_number('parity', index, MAX_BYTES)}"


def part_name(key: str) -> str:
    """Return the number of the part that an object of data is of."""
    return _match(_DATA_RE, "an edge's object", key)[2]


def parse_data_key(key: str) -> DataName:
    """Return what a key under ``data/`` says."""
    edge, part, stem, op, chunk, parity = _match(_DATA_RE, "an edge's object", key).groups()
    numbers = (None if text is None else int(text) for text in (chunk, parity))
    return DataName(edge, None if stem is None else qualified(part, stem), _OP.get(op), *numbers)


def edge_of(key: str) -> str | None:
    """Return the edge that an object of data, or a record of an edge that maintenance added, is of."""
    if is_data_key(key):
        return parse_data_key(key).edge
    return parse_edge_key(key).edge if key.startswith(f"{EDGES}/") else None


def is_data_key(text: str) -> bool:
    """Return whether `text` is a key of an edge's object."""
    return _DATA_RE.fullmatch(text) is not None


def is_parity(key: str) -> bool:
    """Return whether a key is that of an object which others can be rebuilt from."""
    return is_data_key(key) and parse_data_key(key).parity is not None


def own_copy_key(key: str) -> str:
    """Return the key of the second copy that an object which is no array's lies beside."""
    return f"{key.removesuffix('.json')}.copy.json"


def has_own_copy(key: str) -> bool:
    """Return whether an object of data may have a second copy beside it: plain values, or a part."""
    return is_data_key(key) and key.endswith(("/leaves.json", "/part.json"))


def copied_from(key: str) -> str | None:
    """Return the key of what such a copy is of; None where the key is of none."""
    if not (is_data_key(key) and key.endswith(".copy.json")):
        return None
    return f"{key.removesuffix('.copy.json')}.json"


def is_part(key: str) -> bool:
    """Return whether a key is that of a part that is an object of its own."""
    return is_data_key(key) and key.endswith("/part.json")


def tag_key(name: TagName) -> str:
    """Return the key of a tag's or pin's record; tags that differ in case stay different everywhere."""
    if name.kind not in ("tag", "pin"):
        raise InvalidInputError(f"not a kind of name: {name.kind!r:.100}")
    _check_number("seq", name.seq, MAX_SEQ)
    node = NO_NODE if name.node is None else _check_text("node id", name.node, _ID_RE)
    record = _check_text("record id", name.record, _ID_RE)
    return f"names/{name.kind}-{_escape(check_tag(name.name))}-{name.seq:08d}-{node}-{record}.json"


def parse_tag_key(key: str) -> TagName:
    """Return what the key of a tag's or pin's record says; the exact inverse of `tag_key`."""
    kind, text, seq, node, record = _match(_TAG_RE, "a tag's record", key).groups()
    name = TagName("tag" if kind == "tag" else "pin", _unescape(text, key), int(seq), node, record)
    return name if node != NO_NODE else TagName(name.kind, name.name, name.seq, None, record)


def retired_key(name: RetiredName) -> str:
    """Return the key of a retirement."""
    node, record = _check_text("node id", name.node, _ID_RE), _check_text("record id", name.record, _ID_RE)
    key = f"retired/{node}-{record}-{name.what}.json"
    if _RETIRED_RE.fullmatch(key) is None:
        raise InvalidInputError(f"cannot retire {name.what!r:.100}")
    return key


def parse_retired_key(key: str) -> RetiredName:
    """Return what the key of a retirement says; the exact inverse of `retired_key`."""
    found = _match(_RETIRED_RE, "a retirement", key)
    return RetiredName(found[1], found[3], found[2])


def condemned_key(name: CondemnedName) -> str:
    """Return the key of a condemnation."""
    edge = _check_text("edge id", name.edge, _ID_RE)
    node = NO_NODE if name.node is None else _check_text("node id", name.node, _ID_RE)
    record = _check_text("record id", name.record, _ID_RE)
    key = f"condemned/{edge}-{node}-{record}-{name.scope}.json"
    if _CONDEMNED_RE.fullmatch(key) is None:
        raise InvalidInputError(f"cannot condemn {name.scope!r:.100}")
    return key


def parse_condemned_key(key: str) -> CondemnedName:
    """Return what the key of a condemnation says; the exact inverse of `condemned_key`."""
    found = _match(_CONDEMNED_RE, "a condemnation", key)
    return CondemnedName(found[1], None if found[2] == NO_NODE else found[2], found[4], found[3])


def pool_of(pool: str) -> str:
    """Return what a retirement of one pool lets go, of all parts."""
    return f"pool.{_stem(pool)}"


def array_scope(pool: str, op: Op) -> str:
    """Return the scope of a condemnation of one array, of all parts."""
    return f"{_stem(pool)}.{op}"


def is_retirable(what: str) -> bool:
    """Return whether a retirement can let go of `what`."""
    return what in (WHOLE_STATE, EXACT_VALUE, SUPERSEDED) or re.fullmatch(rf"pool\.{_POOL}", what) is not None


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


def is_id(text: str) -> bool:
    """Return whether `text` has the form of a node's, edge's or record's id."""
    return _ID_RE.fullmatch(text) is not None


def _array_folder(edge: str, pool: str, op: Op) -> str:
    if op not in OPS:
        raise InvalidInputError(f"not an op: {op!r:.100}")
    stem = _stem(pool)
    return f"{part_folder(edge, part_of(pool))}/{stem}.{op}"


def _stem(pool: str) -> str:
    return stem_of(_check_text("pool", pool, _QUALIFIED))


def _match(form: re.Pattern[str], what: str, key: str) -> re.Match[str]:
    found = form.fullmatch(key)
    if found is None:
        raise CorruptionError(f"not the name of {what}", key=key)
    return found


def _check_number(what: str, value: int, limit: int) -> int:
    if type(value) is not int or not 0 <= value <= limit:
        raise InvalidInputError(f"{what} must be an integer from 0 to {limit}, not {value!r:.100}")
    return value


def _check_text(what: str, value: str, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise InvalidInputError(f"not a {what}: {value!r:.100}")
    return value


def _check_base(base: str) -> None:
    if base != ROOT:
        _check_text("base id", base, _ID_RE)


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
