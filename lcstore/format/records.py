"""The records of a store: small JSON objects that make something so. Specified in ``docs/format/records.md``.

Records are read with nothing taken on trust. Whoever writes one reads it back first, so none is committed
that could not be read. Columns are bytes whose meaning belongs to the track room.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Self

from lcstore.errors import CorruptionError, InvalidInputError, TruncatedError
from lcstore.format import keys
from lcstore.format.fields import (
    ID,
    RUN_ID,
    SHA256,
    Fields,
    columns_to_json,
    header,
    numbers_to_json,
    open_fields,
    record_id,
    written,
)
from lcstore.format.strictjson import dumps, loads
from lcstore.graph.names import ROOT, EdgeName, NodeName
from lcstore.limits import MAX_CHUNK_BYTES, MAX_STEP

DEFAULT_GRACE_SECONDS: Final = 86_400
#: Ten years: whoever writes more means "never", and should not collect.
MAX_GRACE_SECONDS: Final = 10 * 366 * 86_400
MAX_SOFTWARE_CHARS: Final = 200


#: A node's id is the id of its record.
node_id: Final = record_id


def utc_now() -> str:
    """Return this moment as records write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A stored object as the record that needs it knows it."""

    key: str
    nbytes: int
    sha256: str

    @classmethod
    def of(cls, key: str, data: bytes | bytearray | memoryview) -> Self:
        """Return the reference to an object of these bytes."""
        return cls(key, memoryview(data).nbytes, hashlib.sha256(data).hexdigest())

    def check(self, data: bytes) -> bytes:
        """Return `data`, or raise `CorruptionError` if it is not what was committed."""
        if len(data) < self.nbytes:
            raise TruncatedError(f"{len(data)} bytes instead of {self.nbytes}", key=self.key)
        if len(data) > self.nbytes:
            raise CorruptionError(f"{len(data)} bytes or more instead of {self.nbytes}", key=self.key)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise CorruptionError("sha256 differs from the committed one", key=self.key)
        return data


@dataclass(frozen=True, slots=True)
class EdgeBody:
    """An edge: its id, its base (a node's id or ``"root"``), its objects and the track's columns."""

    id: str
    base: str
    objects: tuple[ObjectRef, ...] = ()
    columns: dict[str, bytes] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all its objects."""
        return sum(ref.nbytes for ref in self.objects)

    @property
    def path_nbytes(self) -> int:
        """Bytes that every path over the edge reads: those of its weights."""
        start = f"{keys.edge_folder(self.id)}/{keys.WEIGHTS}"
        return sum(ref.nbytes for ref in self.objects if ref.key.startswith(start))

    def to_json(self) -> dict[str, object]:
        """Return the edge as a field of a record."""
        return {
            "base": self.base,
            "columns": columns_to_json(self.columns),
            "id": self.id,
            "objects": [_object_to_json(ref, self.id) for ref in self.objects],
        }

    @classmethod
    def from_json(cls, value: object, *, key: str) -> Self:
        """Return the edge in a field of a record."""
        fields = Fields(value, key=key, where="edge")
        edge = fields.form("id", ID)
        body = cls(edge, fields.form("base", ID, ROOT), _objects(fields, edge), fields.columns("columns"))
        fields.done()
        return body


@dataclass(frozen=True, slots=True)
class ExactBody:
    """The exact value of a node: its objects, which lie in the folder of the node's own edge."""

    objects: tuple[ObjectRef, ...] = ()
    columns: dict[str, bytes] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all its objects."""
        return sum(ref.nbytes for ref in self.objects)

    def to_json(self, edge: str) -> dict[str, object]:
        """Return the exact value as a field of a node's record."""
        return {
            "columns": columns_to_json(self.columns),
            "objects": [_object_to_json(ref, edge) for ref in self.objects],
        }

    @classmethod
    def from_json(cls, value: object, edge: str, *, key: str) -> Self:
        """Return the exact value in a field of a node's record."""
        fields = Fields(value, key=key, where="exact")
        body = cls(_objects(fields, edge), fields.columns("columns"))
        fields.done()
        return body


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The commit of a save. Its id is the hash of its bytes."""

    step: int
    run: int
    run_id: str
    seq: int
    parent: str | None
    layout: str
    created: str
    edge: EdgeBody
    exact: ExactBody | None = None
    leaves: list[object] | None = None
    leaves_object: ObjectRef | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    metadata: dict[str, object] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    stats: dict[str, int | float] = field(default_factory=dict)
    software: str = ""

    @property
    def objects(self) -> tuple[ObjectRef, ...]:
        """All objects that it needs: those of its edge, of its exact value and of its plain values."""
        exact = () if self.exact is None else self.exact.objects
        leaves = () if self.leaves_object is None else (self.leaves_object,)
        return (*self.edge.objects, *exact, *leaves)

    def to_bytes(self) -> bytes:
        """Return the record's bytes, having checked that they can be read."""
        edge, exact, leaves = self.edge.id, self.exact, self.leaves_object
        body = header("node") | {
            "created": self.created,
            "edge": self.edge.to_json(),
            "exact": None if exact is None else exact.to_json(edge),
            "leaves": self.leaves,
            "leaves_object": None if leaves is None else _object_to_json(leaves, edge),
            "metadata": self.metadata,
            "metrics": numbers_to_json(self.metrics),
            "parent": self.parent,
            "layout": self.layout,
            "run": self.run,
            "run_id": self.run_id,
            "seq": self.seq,
            "software": self.software,
            "stats": numbers_to_json(self.stats),
            "step": self.step,
            "tags": list(self.tags),
        }
        return written(dumps(body), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        """Return the record in `data`. `read_node` also checks it against its name."""
        fields = open_fields(loads(data, key=key), kind="node", key=key)
        edge = EdgeBody.from_json(fields.take("edge"), key=key)
        record = cls(
            step=fields.integer("step", MAX_STEP),
            run=fields.integer("run", keys.MAX_RUN),
            run_id=fields.form("run_id", RUN_ID),
            seq=fields.integer("seq", keys.MAX_SEQ),
            parent=fields.nullable("parent", lambda name: fields.form(name, ID)),
            layout=fields.form("layout", SHA256),
            created=fields.time("created"),
            edge=edge,
            exact=fields.nullable(
                "exact", lambda name: ExactBody.from_json(fields.take(name), edge.id, key=key)
            ),
            leaves=fields.nullable("leaves", fields.items),
            leaves_object=fields.nullable(
                "leaves_object", lambda name: _object(fields.take(name), edge.id, fields, name)
            ),
            metrics={name: float(value) for name, value in _floats(fields, "metrics").items()},
            metadata=fields.mapping("metadata"),
            tags=fields.all_checked("tags", keys.check_tag),
            stats=fields.numbers("stats"),
            software=fields.text("software", MAX_SOFTWARE_CHARS),
        )
        fields.done()
        if record.leaves is not None and record.leaves_object is not None:
            raise CorruptionError("leaves are both in the record and in an object", key=key)
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
        return written(_seal(body), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        """Return the record in `data`. `read_edge` also checks it against its name."""
        fields = open_fields(_unseal(data, key), kind="edge", key=key)
        record = cls(
            target=fields.form("target", ID),
            edge=EdgeBody.from_json(fields.take("edge"), key=key),
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
    """``lcstore.json``: the same bytes, whoever writes them first."""

    grace_seconds: int = DEFAULT_GRACE_SECONDS

    def to_bytes(self) -> bytes:
        """Return the record's bytes."""
        return written(_seal(header("store") | {"grace_seconds": self.grace_seconds}), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str = keys.STORE_KEY) -> Self:
        """Return the record in `data`."""
        fields = open_fields(_unseal(data, key), kind="store", key=key)
        record = cls(fields.integer("grace_seconds", MAX_GRACE_SECONDS))
        fields.done()
        return record


def read_node(key: str, data: bytes) -> NodeRecord:
    """Return the node's record stored under `key`, having checked hash and name against the body."""
    name = keys.parse_node_key(key)
    if record_id(data) != name.node:
        raise CorruptionError("the record is not the one that its name promises (its hash differs)", key=key)
    record = NodeRecord.from_bytes(data, key=key)
    if record.name(name.node) != name:
        raise CorruptionError("the record contradicts its name", key=key)
    return record


def read_edge(key: str, data: bytes) -> EdgeRecord:
    """Return the edge's record stored under `key`, having checked its seal and its name."""
    name = keys.parse_edge_key(key)
    record = EdgeRecord.from_bytes(data, key=key)
    if record.name != name:
        raise CorruptionError("the record contradicts its name", key=key)
    return record


#: A sealed record begins with the sha256 of all that follows the comma; "_" sorts before every other field.
_SEAL: Final = re.compile(rb'\{"_sha256":"([0-9a-f]{64})",')


def _seal(body: dict[str, object]) -> bytes:
    rest = dumps(body)[1:]
    return b'{"_sha256":"%s",%s' % (hashlib.sha256(rest).hexdigest().encode(), rest)


def _unseal(data: bytes, key: str) -> object:
    found = _SEAL.match(data)
    if found is None or hashlib.sha256(memoryview(data)[found.end() :]).hexdigest().encode() != found[1]:
        raise CorruptionError("the record's own sha256 does not match it", key=key)
    value = loads(data, key=key)
    if isinstance(value, dict):
        del value["_sha256"]
    return value


def _object_to_json(ref: ObjectRef, edge: str) -> list[object]:
    folder = f"{keys.edge_folder(edge)}/"
    if not ref.key.startswith(folder):
        raise InvalidInputError(f"object {ref.key!r:.200} lies outside the folder of edge {edge}")
    return [ref.key[len(folder) :], ref.nbytes, ref.sha256]


def _object(value: object, edge: str, fields: Fields, name: str) -> ObjectRef:
    if not isinstance(value, list) or len(value) != 3:
        raise fields.wrong(name, "[name, bytes, sha256]", value)
    suffix, nbytes, sha256 = value
    if not isinstance(suffix, str) or not keys.is_data_key(f"data/{edge}/{suffix}"):
        raise fields.wrong(name, "named as an object of its edge", suffix)
    if type(nbytes) is not int or not 0 <= nbytes <= MAX_CHUNK_BYTES:
        raise fields.wrong(name, f"of 0 to {MAX_CHUNK_BYTES} bytes", nbytes)
    if not isinstance(sha256, str) or SHA256.fullmatch(sha256) is None:
        raise fields.wrong(name, "with a sha256", sha256)
    return ObjectRef(f"data/{edge}/{suffix}", nbytes, sha256)


def _objects(fields: Fields, edge: str) -> tuple[ObjectRef, ...]:
    found = tuple(_object(value, edge, fields, "objects") for value in fields.items("objects"))
    if len({ref.key for ref in found}) != len(found):
        raise CorruptionError(f"{fields.where} lists an object twice", key=fields.key)
    return found


def _floats(fields: Fields, name: str) -> dict[str, int | float]:
    found = fields.numbers(name)
    for label, value in found.items():
        if type(value) is int and abs(value) > 1 << 53:
            raise fields.wrong(f"{name}.{label[:100]}", "a number that a float holds exactly", value)
    return found
