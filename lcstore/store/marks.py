"""Records about what exists already: tags and pins, retirements, condemnations.

Each is named after the hash of its own bytes: a name verifies its body, a retry writes the same object
again, and two writers never write one name. Specified in ``docs/format/records.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from lcstore.errors import CorruptionError
from lcstore.store import keys
from lcstore.store.fields import ID, header, open_fields, record_id, written
from lcstore.store.strictjson import dumps, loads

MAX_REASON_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class TagRecord:
    """A tag or pin set on a node, or taken away (`node` is None). Of one name the greatest (`seq`, id) holds.

    A pin keeps its node from retirement; its `name` is the node's id, or any text that says who holds it.
    """

    name: str
    node: str | None
    seq: int
    created: str
    kind: keys.TagKind = "tag"

    def to_bytes(self) -> bytes:
        """Return the record's bytes, having checked that they can be read."""
        body = {"created": self.created, "name": self.name, "node": self.node, "seq": self.seq}
        return written(dumps(header(self.kind) | body), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        """Return the record in `data`. `read_tag` also checks it against its name."""
        fields = open_fields(loads(data, key=key), kind=("tag", "pin"), key=key)
        record = cls(
            name=fields.checked("name", keys.check_tag),
            node=fields.nullable("node", lambda field: fields.form(field, ID)),
            seq=fields.integer("seq", keys.MAX_SEQ),
            created=fields.time("created"),
            kind="pin" if fields.kind == "pin" else "tag",
        )
        fields.done()
        return record

    def key(self) -> str:
        """Return the key under which this record is stored."""
        return keys.tag_key(self._name(record_id(self.to_bytes())))

    def _name(self, record: str) -> keys.TagName:
        return keys.TagName(self.kind, self.name, self.seq, self.node, record)


@dataclass(frozen=True, slots=True)
class RetiredRecord:
    """A node whose whole state, or only its exact value, the retention policy lets go."""

    node: str
    reason: str
    created: str
    what: keys.RetiredWhat = "state"

    def to_bytes(self) -> bytes:
        """Return the record's bytes, having checked that they can be read."""
        body = {"created": self.created, "node": self.node, "reason": self.reason, "what": self.what}
        return written(dumps(header("retired") | body), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        """Return the record in `data`. `read_retired` also checks it against its name."""
        fields = open_fields(loads(data, key=key), kind="retired", key=key)
        record = cls(
            node=fields.form("node", ID),
            reason=fields.text("reason", MAX_REASON_CHARS),
            created=fields.time("created"),
            what="exact" if fields.one_of("what", "state", "exact") == "exact" else "state",
        )
        fields.done()
        return record

    def key(self) -> str:
        """Return the key under which this record is stored."""
        return keys.retired_key(self._name(record_id(self.to_bytes())))

    def _name(self, record: str) -> keys.RetiredName:
        return keys.RetiredName(self.node, self.what, record)


@dataclass(frozen=True, slots=True)
class CondemnedRecord:
    """Objects of an edge that will be deleted: of one pool, of its exact value, or all of them."""

    edge: str
    created: str
    pool: str | None = None
    exact: bool = False

    @property
    def scope(self) -> str:
        """What is condemned, as the record's name says it."""
        if self.exact:
            return keys.EXACT_VALUE
        return keys.WHOLE_EDGE if self.pool is None else keys.pool_scope(self.pool)

    def to_bytes(self) -> bytes:
        """Return the record's bytes, having checked that they can be read."""
        body = {"created": self.created, "edge": self.edge, "exact": self.exact, "pool": self.pool}
        return written(dumps(header("condemned") | body), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        """Return the record in `data`. `read_condemned` also checks it against its name."""
        fields = open_fields(loads(data, key=key), kind="condemned", key=key)
        record = cls(
            edge=fields.form("edge", ID),
            created=fields.time("created"),
            pool=fields.nullable("pool", lambda field: fields.form(field, keys.POOL)),
            exact=fields.boolean("exact"),
        )
        fields.done()
        if record.exact and record.pool is not None:
            raise CorruptionError("condemns both a pool and an exact value", key=key)
        return record

    def key(self) -> str:
        """Return the key under which this record is stored."""
        return keys.condemned_key(self._name(record_id(self.to_bytes())))

    def _name(self, record: str) -> keys.CondemnedName:
        return keys.CondemnedName(self.edge, self.scope, record)


def read_tag(key: str, data: bytes) -> TagRecord:
    """Return the tag's or pin's record stored under `key`, having checked hash and name against the body."""
    name = keys.parse_tag_key(key)
    _check_hash(key, data, name.record)
    record = TagRecord.from_bytes(data, key=key)
    _check_name(key, name, record._name(name.record))
    return record


def read_retired(key: str, data: bytes) -> RetiredRecord:
    """Return the retirement stored under `key`, having checked hash and name against the body."""
    name = keys.parse_retired_key(key)
    _check_hash(key, data, name.record)
    record = RetiredRecord.from_bytes(data, key=key)
    _check_name(key, name, record._name(name.record))
    return record


def read_condemned(key: str, data: bytes) -> CondemnedRecord:
    """Return the condemnation stored under `key`, having checked hash and name against the body."""
    name = keys.parse_condemned_key(key)
    _check_hash(key, data, name.record)
    record = CondemnedRecord.from_bytes(data, key=key)
    _check_name(key, name, record._name(name.record))
    return record


def _check_hash(key: str, data: bytes, promised: str) -> None:
    if record_id(data) != promised:
        raise CorruptionError("the record is not the one that its name promises (its hash differs)", key=key)


def _check_name(key: str, promised: object, found: object) -> None:
    if promised != found:
        raise CorruptionError("the record contradicts its name", key=key)
