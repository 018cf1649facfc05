"""The names of what a store keeps: how keys are built, how they are read back, and what no key may be.

The format is specified in ``docs/format/keys.md``. A name is a hint for whoever lists the store; what it
says is verified against the body that it names. Marks (tags, retirements, condemnations) have names of their
own: `lcstore.format.markkeys`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from lcstore.errors import InvalidInputError, LimitError
from lcstore.format.keyforms import (
    COUNT,
    DIGEST_RE,
    ID,
    ID_RE,
    PART,
    PART_RE,
    POOL,
    RUN_ID_RE,
    check_base,
    check_number,
    check_text,
    match,
    stem,
)
from lcstore.graph.refs import EdgeName, NodeName
from lcstore.layout.qualified import FIRST_PART, part_of, qualified
from lcstore.limits import MAX_STEP

Op: TypeAlias = Literal["add", "grid", "set", "exact"]

STORE_KEY: Final = "lcstore.json"
NODES: Final = "nodes"
EDGES: Final = "edges"
LAYOUTS: Final = "layouts"
DATA: Final = "data"
#: Second copies of records of nodes and edges, layouts and `STORE_KEY`: no commits.
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

MAX_RUN: Final = 999_999
MAX_SEQ: Final = 99_999_999
#: Bytes of an edge: what fits 19 digits.
MAX_BYTES: Final = MAX_STEP

_OPS: Final = "|".join(OPS)
_NODE_RE: Final = re.compile(
    rf"nodes/([0-9]{{19}})-([0-9]{{6}})\.([0-9a-f]{{8}})-([0-9]{{8}})-({ID})-({ID}|root)-({COUNT})\.json"
)
_EDGE_RE: Final = re.compile(rf"edges/({ID})-({ID}|root)-({ID})-({COUNT})\.json")
_LAYOUT_RE: Final = re.compile(r"layouts/([0-9a-f]{64})\.json")
_COPY_RE: Final = re.compile(
    rf"copies/(?:({ID}|[0-9a-f]{{64}}|{ID}-(?:{ID}|root)-{ID}-{COUNT})|lcstore)\.json"
)
_DATA_RE: Final = re.compile(
    rf"data/({ID})/({PART})/(?:(?:zarr|leaves|part|leaves\.copy|part\.copy)\.json"
    rf"|({POOL})\.({_OPS})/(?:c\.({COUNT})|p\.({COUNT})))"
)


@dataclass(frozen=True, slots=True)
class DataName:
    """What a key under ``data/`` says.

    Attributes
    ----------
    edge
        Its id.
    pool, op
        Those of the array; None for the files of a part's own folder. The pool is named as layouts of several
        parts name it (`lcstore.layout.qualified`).
    chunk, parity
        Which chunk of the array it is, or which object that chunks can be rebuilt from.
    """

    edge: str
    pool: str | None
    op: Op | None
    chunk: int | None
    parity: int | None = None


def node_key(name: NodeName) -> str:
    """Return the key of a node's record."""
    check_number("step", name.step, MAX_STEP)
    check_number("run", name.run, MAX_RUN)
    check_number("seq", name.seq, MAX_SEQ)
    check_number("nbytes", name.nbytes, MAX_BYTES)
    check_text("run id", name.run_id, RUN_ID_RE)
    check_text("node id", name.node, ID_RE)
    check_base(name.base)
    return (
        f"nodes/{name.step:019d}-{name.run:06d}.{name.run_id}-{name.seq:08d}"
        f"-{name.node}-{name.base}-{name.nbytes}.json"
    )


def parse_node_key(key: str) -> NodeName:
    """Return what the key of a node's record says; the exact inverse of `node_key`."""
    step, run, run_id, seq, node, base, nbytes = match(_NODE_RE, key).groups()
    name = NodeName(
        step=int(step), run=int(run), run_id=run_id, seq=int(seq), node=node, base=base, nbytes=int(nbytes)
    )
    if name.step > MAX_STEP or name.nbytes > MAX_BYTES:
        raise LimitError("number past 63 bits in the name of a node's record", key=key)
    return name


def step_of(key: str) -> int | None:
    """Return the step of the node whose record has a key; None where it is no node's."""
    return parse_node_key(key).step if key.startswith(f"{NODES}/") else None


def edge_key(name: EdgeName) -> str:
    """Return the key of the record of an edge that compaction added."""
    check_number("nbytes", name.nbytes, MAX_BYTES)
    check_text("target id", name.target, ID_RE)
    check_text("edge id", name.edge, ID_RE)
    check_base(name.base)
    return f"edges/{name.target}-{name.base}-{name.edge}-{name.nbytes}.json"


def parse_edge_key(key: str) -> EdgeName:
    """Return what the key of an edge's record says; the exact inverse of `edge_key`."""
    target, base, edge, nbytes = match(_EDGE_RE, key).groups()
    if int(nbytes) > MAX_BYTES:
        raise LimitError("number past 63 bits in the name of an edge's record", key=key)
    return EdgeName(target=target, base=base, edge=edge, nbytes=int(nbytes))


def edge_stem(key: str) -> str:
    """Return by what the second copy of an edge's record is known: all that the key of the record says."""
    parse_edge_key(key)
    return key.removeprefix(f"{EDGES}/").removesuffix(".json")


def stem_key(stem: str) -> str:
    """Return the key of the edge's record that has a stem; the inverse of `edge_stem`."""
    key = f"{EDGES}/{stem}.json"
    parse_edge_key(key)
    return key


def layout_key(digest: str) -> str:
    """Return the key of the layout whose bytes have this hash."""
    return f"layouts/{check_text('layout digest', digest, DIGEST_RE)}.json"


def parse_layout_key(key: str) -> str:
    """Return the digest in the key of a layout."""
    return match(_LAYOUT_RE, key)[1]


def layout_half(digest: str) -> str:
    """Return the half of a layout's digest by which a condemnation names it."""
    return check_text("layout digest", digest, DIGEST_RE)[:32]


def copy_key(what: str) -> str:
    """Return the key of the second copy of a node's record, a layout, an edge's record or `STORE_KEY`.

    Parameters
    ----------
    what
        The id of the node, the hash of the layout, the `edge_stem` of the edge, or `STORE_KEY`.
    """
    key = f"{COPIES}/{what.removesuffix('.json')}.json"
    parse_copy_key(key)
    return key


def parse_copy_key(key: str) -> str:
    """Return of what a key is the copy, as `copy_key` is told it."""
    found = match(_COPY_RE, key)
    return found[1] or STORE_KEY


def edge_folder(edge: str) -> str:
    """Return the prefix below which every object of an edge lies."""
    return f"data/{check_text('edge id', edge, ID_RE)}"


def part_folder(edge: str, part: str) -> str:
    """Return the prefix below which every object of a part of an edge lies."""
    return f"{edge_folder(edge)}/{check_text('part', part, PART_RE)}"


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
    return f"{_array_folder(edge, pool, op)}/c.{check_number('chunk', index, MAX_BYTES)}"


def parity_key(edge: str, pool: str, op: Op, index: int) -> str:
    """Return the key of object number `index` of those that chunks of one array can be rebuilt from."""
    return f"{_array_folder(edge, pool, op)}/p.{check_number('parity', index, MAX_BYTES)}"


def part_name(key: str) -> str:
    """Return the number of the part that an object of data is of."""
    return match(_DATA_RE, key)[2]


@lru_cache(maxsize=1 << 14)  # upkeep asks of the same keys again and again
def parse_data_key(key: str) -> DataName:
    """Return what a key under ``data/`` says."""
    edge, part, array, op, chunk, parity = match(_DATA_RE, key).groups()
    numbers = (None if text is None else int(text) for text in (chunk, parity))
    return DataName(edge, None if array is None else qualified(part, array), _OP.get(op), *numbers)


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


def is_metadata(key: str) -> bool:
    """Return whether a key is that of the metadata of a part's Zarr group."""
    return is_data_key(key) and key.endswith("/zarr.json")


def is_part(key: str) -> bool:
    """Return whether a key is that of a part that is an object of its own."""
    return is_data_key(key) and key.endswith("/part.json")


def _array_folder(edge: str, pool: str, op: Op) -> str:
    if op not in OPS:
        raise InvalidInputError(f"not an op: {op!r:.100}")
    array = stem(pool)
    return f"{part_folder(edge, part_of(pool))}/{array}.{op}"
