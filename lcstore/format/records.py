"""The records of a store: small JSON objects that make something so. Specified in ``docs/format/records.md``.

Records are read with nothing taken on trust. Whoever writes one reads it back first, so none is committed
that could not be read. What the bytes of columns mean is said in `lcstore.edges`.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Final, Self, cast, get_args

from lcstore.durability import Durability, Parity
from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import EdgeBody, ExactBody, Fetch, ObjectRef
from lcstore.format.fields import (
    Fields,
    header,
    numbers_to_json,
    open_fields,
    record_id,
    written,
)
from lcstore.format.hashing import hash_of
from lcstore.format.keyforms import ID_RE, RUN_ID_RE
from lcstore.format.strictjson import dumps, loads
from lcstore.graph.refs import EdgeName, NodeName
from lcstore.limits import MAX_STEP

DEFAULT_GRACE_SECONDS: Final = 86_400
#: Ten years: whoever writes more means "never", and should not collect.
MAX_GRACE_SECONDS: Final = 10 * 366 * 86_400
MAX_SOFTWARE_CHARS: Final = 200
#: The numbers of a save that count something.
_COUNTS: Final = frozenset(
    {"bytes_besides", "bytes_raw", "exact", "moments_not_finite", "not_finite", "record_copies", "tensors"}
)


#: A node's id is the id of its record.
node_id: Final = record_id


def utc_now() -> str:
    """Return this moment as records write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def distinct_now() -> str:
    """Return this moment with digits drawn by chance: two records that say the same are two then."""
    return f"{utc_now()[:-1]}{int(secrets.token_hex(4), 16) % 1000:03d}Z"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The commit of a save. Its id is the hash of its bytes."""

    step: int
    run: int
    run_id: str
    seq: int
    parent: str | None
    created: str
    edge: EdgeBody
    metrics: dict[str, float] = field(default_factory=dict)
    metadata: dict[str, object] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    stats: dict[str, int | float] = field(default_factory=dict)
    software: str = ""

    @property
    def objects(self) -> tuple[ObjectRef, ...]:
        """All objects that it needs: those of its edge, of its exact value and of its plain values."""
        return tuple(chain.from_iterable(part.needed for part in self.edge.parts))

    @property
    def layout(self) -> str:
        """What the layout of its parts is known by."""
        return self.edge.layout

    @property
    def exact(self) -> ExactBody | None:
        """The exact value that its parts keep; None where they keep none."""
        kept = [part.exact for part in self.edge.parts if part.exact is not None]
        if len(kept) < 2:
            return kept[0] if kept else None
        return ExactBody(tuple(chain.from_iterable(exact.objects for exact in kept)))

    @property
    def leaves_objects(self) -> tuple[ObjectRef, ...]:
        """The objects that hold plain values."""
        return tuple(part.leaves_object for part in self.edge.parts if part.leaves_object is not None)

    def to_bytes(self) -> bytes:
        """Return the record's bytes, having checked that they can be read."""
        body = header("node") | {
            "created": self.created,
            "edge": self.edge.to_json(),
            "metadata": self.metadata,
            "metrics": numbers_to_json(self.metrics),
            "parent": self.parent,
            "run": self.run,
            "run_id": self.run_id,
            "seq": self.seq,
            "software": self.software,
            "stats": numbers_to_json(self.stats),
            "step": self.step,
            "tags": list(self.tags),
        }
        return written(dumps(body), partial(self.from_bytes, fetch=self.edge.part_bytes))

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str, fetch: Fetch | None = None) -> Self:
        """Return the record in `data`. `read_node` also checks it against its name."""
        fields = open_fields(loads(data, key=key), kind="node", key=key)
        edge = EdgeBody.from_json(fields.take("edge"), own=True, fetch=fetch, key=key)
        record = cls(
            step=fields.integer("step", MAX_STEP),
            run=fields.integer("run", keys.MAX_RUN),
            run_id=fields.form("run_id", RUN_ID_RE),
            seq=fields.integer("seq", keys.MAX_SEQ),
            parent=fields.nullable("parent", lambda name: fields.form(name, ID_RE)),
            created=fields.time("created"),
            edge=edge,
            metrics={name: float(value) for name, value in _floats(fields, "metrics").items()},
            metadata=fields.mapping("metadata"),
            tags=fields.all_checked("tags", markkeys.check_tag),
            stats=fields.numbers("stats", _COUNTS),
            software=fields.text("software", MAX_SOFTWARE_CHARS),
        )
        fields.done()
        return record

    def name(self, node: str) -> NodeName:
        """Return the name of this record, `node` being its id."""
        return NodeName(
            step=self.step,
            run=self.run,
            run_id=self.run_id,
            seq=self.seq,
            node=node,
            base=self.edge.base,
            nbytes=self.edge.path_nbytes,
        )


@dataclass(frozen=True, slots=True)
class EdgeRecord:
    """An edge that compaction added to `target`."""

    target: str
    edge: EdgeBody
    created: str
    stats: dict[str, int | float] = field(default_factory=dict)
    software: str = ""

    def to_bytes(self) -> bytes:
        """Return the record's bytes, having checked that they can be read."""
        body = header("edge") | {
            "created": self.created,
            "edge": self.edge.to_json(),
            "software": self.software,
            "stats": numbers_to_json(self.stats),
            "target": self.target,
        }
        return written(_seal(body), partial(self.from_bytes, fetch=self.edge.part_bytes))

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str, fetch: Fetch | None = None) -> Self:
        """Return the record in `data`. `read_edge` also checks it against its name."""
        fields = open_fields(_unseal(data, key), kind="edge", key=key)
        record = cls(
            target=fields.form("target", ID_RE),
            edge=EdgeBody.from_json(fields.take("edge"), own=False, fetch=fetch, key=key),
            created=fields.time("created"),
            stats=fields.numbers("stats"),
            software=fields.text("software", MAX_SOFTWARE_CHARS),
        )
        fields.done()
        return record

    @property
    def name(self) -> EdgeName:
        """The name of this record."""
        return EdgeName(
            target=self.target, base=self.edge.base, edge=self.edge.id, nbytes=self.edge.path_nbytes
        )


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """``lcstore.json``: the same bytes, whoever writes them first.

    `durability` is that of handles which give none; None: that of the target.
    """

    grace_seconds: int = DEFAULT_GRACE_SECONDS
    durability: Durability | None = None

    def to_bytes(self) -> bytes:
        """Return the record's bytes."""
        body = header("store") | {"grace_seconds": self.grace_seconds}
        if self.durability is not None:
            ratio = numbers_to_json({"anchor_ratio": self.durability.anchor_ratio})
            body["durability"] = asdict(self.durability) | ratio
        return written(_seal(body), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str = keys.STORE_KEY) -> Self:
        """Return the record in `data`."""
        fields = open_fields(_unseal(data, key), kind="store", key=key)
        grace = fields.integer("grace_seconds", MAX_GRACE_SECONDS)
        record = cls(grace, _durability(fields, key) if fields.has("durability") else None)
        fields.done()
        return record


def _durability(fields: Fields, key: str) -> Durability:
    inner = Fields(fields.mapping("durability"), key=key, where="durability")
    ratio = inner.number("anchor_ratio")
    every = inner.nullable("anchor_every", lambda name: inner.integer(name, MAX_STEP))
    parity, copies = inner.one_of("parity", *get_args(Parity)), inner.boolean("copies")
    inner.done()
    try:
        return Durability(cast(Parity, parity), copies, ratio, every)
    except InvalidInputError as error:
        raise CorruptionError(f"durability holds what it cannot: {error.message}", key=key) from error


def read_node(key: str, data: bytes, fetch: Fetch | None = None) -> NodeRecord:
    """Return the node's record stored under `key`, having checked hash and name against the body.

    `fetch` gets the parts that are objects of their own.
    """
    name = keys.parse_node_key(key)
    if record_id(data) != name.node:
        raise CorruptionError("the record is not the one that its name promises (its hash differs)", key=key)
    record = NodeRecord.from_bytes(data, key=key, fetch=fetch)
    if record.name(name.node) != name:
        raise CorruptionError("the record contradicts its name", key=key)
    return record


def read_edge(key: str, data: bytes, fetch: Fetch | None = None) -> EdgeRecord:
    """Return the edge's record stored under `key`, having checked its seal and its name; `fetch` as there."""
    name = keys.parse_edge_key(key)
    record = EdgeRecord.from_bytes(data, key=key, fetch=fetch)
    if record.name != name:
        raise CorruptionError("the record contradicts its name", key=key)
    return record


#: A sealed record begins with the hash of all that follows the comma; "_" sorts before every other field.
_SEAL: Final = re.compile(rb'\{"_hash":"([0-9a-f]{64})",')


def _seal(body: dict[str, object]) -> bytes:
    rest = dumps(body)[1:]
    return b'{"_hash":"%s",%s' % (hash_of(rest).encode(), rest)


def _unseal(data: bytes, key: str) -> object:
    found = _SEAL.match(data)
    if found is None or hash_of(memoryview(data)[found.end() :]).encode() != found[1]:
        raise CorruptionError("the record's own hash does not match it", key=key)
    value = loads(data, key=key)
    if isinstance(value, dict):
        del value["_hash"]
    return value


def _floats(fields: Fields, name: str) -> dict[str, int | float]:
    found = fields.numbers(name)
    for value in found.values():
        if type(value) is int and abs(value) > 1 << 53:
            raise fields.wrong(name, "numbers that floats hold exactly", value)
    return found
