"""Records about what exists already: tags and pins, retirements, condemnations.

Each is named after the hash of its own bytes: a name verifies its body, a retry writes the same object
again, and two writers never write one name. Specified in ``docs/format/records.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self, TypeVar

from lcstore.errors import CorruptionError
from lcstore.format import keys, markkeys
from lcstore.format.fields import header, open_fields, record_id, written
from lcstore.format.keyforms import ID_RE, RUN_ID_RE
from lcstore.format.strictjson import dumps, loads

MAX_REASON_CHARS: Final = 2_000
MAX_SCOPE_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class TagRecord:
    """A tag or pin set on a node, or taken away (`node` is None). Of one name the greatest (`seq`, id) holds.

    A pin keeps its node from retirement; its `name` is the node's id, or any text that says who holds it.
    A line says of the node that is its `name` from which kept one training came to it.
    """

    name: str
    node: str | None
    seq: int
    created: str
    kind: markkeys.TagKind = "tag"

    def to_bytes(self) -> bytes:
        """Return the record's bytes, having checked that they can be read."""
        body = {"created": self.created, "name": self.name, "node": self.node, "seq": self.seq}
        return written(dumps(header(self.kind) | body), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        """Return the record in `data`. `read_tag` also checks it against its name."""
        fields = open_fields(loads(data, key=key), kind=markkeys.TAG_KINDS, key=key)
        record = cls(
            name=fields.checked("name", markkeys.check_tag),
            node=fields.nullable("node", lambda field: fields.form(field, ID_RE)),
            seq=fields.integer("seq", keys.MAX_SEQ),
            created=fields.time("created"),
            kind=markkeys.tag_kind(fields.kind),
        )
        fields.done()
        return record

    def key(self) -> str:
        """Return the key under which this record is stored."""
        return markkeys.tag_key(self._name(record_id(self.to_bytes())))

    def _name(self, record: str) -> markkeys.TagName:
        return markkeys.TagName(self.kind, self.name, self.seq, self.node, record)


@dataclass(frozen=True, slots=True)
class RetiredRecord:
    """What of a node is let go: its whole state, only its exact value, or one pool of it.

    `run` is the id of the run that went on from an earlier state, where that is why.
    """

    node: str
    reason: str
    created: str
    what: str = markkeys.WHOLE_STATE
    run: str | None = None

    def to_bytes(self) -> bytes:
        """Return the record's bytes, having checked that they can be read."""
        body = {"created": self.created, "node": self.node, "reason": self.reason, "what": self.what}
        by = {} if self.run is None else {"run": self.run}
        return written(dumps(header("retired") | body | by), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        """Return the record in `data`. `read_retired` also checks it against its name."""
        fields = open_fields(loads(data, key=key), kind="retired", key=key)
        record = cls(
            node=fields.form("node", ID_RE),
            reason=fields.text("reason", MAX_REASON_CHARS),
            created=fields.time("created"),
            what=fields.text("what", MAX_SCOPE_CHARS),
            run=fields.form("run", RUN_ID_RE) if fields.has("run") else None,
        )
        fields.done()
        if not markkeys.is_retirable(record.what):
            raise CorruptionError("retires what nothing has", key=key)
        return record

    def key(self) -> str:
        """Return the key under which this record is stored."""
        return markkeys.retired_key(self._name(record_id(self.to_bytes())))

    def _name(self, record: str) -> markkeys.RetiredName:
        return markkeys.RetiredName(self.node, self.what, record)


@dataclass(frozen=True, slots=True)
class CondemnedRecord:
    """Objects of an edge that will be deleted: all of them, those of one array, or of its exact value.

    `node` is the one whose own edge it is; None for an edge that maintenance added, or of no record.
    """

    edge: str
    node: str | None
    scope: str
    created: str

    def to_bytes(self) -> bytes:
        """Return the record's bytes, having checked that they can be read."""
        body = {"created": self.created, "edge": self.edge, "node": self.node, "scope": self.scope}
        return written(dumps(header("condemned") | body), self.from_bytes)

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        """Return the record in `data`. `read_condemned` also checks it against its name."""
        fields = open_fields(loads(data, key=key), kind="condemned", key=key)
        record = cls(
            edge=fields.form("edge", ID_RE),
            node=fields.nullable("node", lambda field: fields.form(field, ID_RE)),
            scope=fields.text("scope", MAX_SCOPE_CHARS),
            created=fields.time("created"),
        )
        fields.done()
        if not markkeys.is_scope(record.scope):
            raise CorruptionError("condemns what no edge has", key=key)
        return record

    def key(self) -> str:
        """Return the key under which this record is stored."""
        return markkeys.condemned_key(self._name(record_id(self.to_bytes())))

    def _name(self, record: str) -> markkeys.CondemnedName:
        return markkeys.CondemnedName(self.edge, self.node, self.scope, record)


M = TypeVar("M", TagRecord, RetiredRecord, CondemnedRecord)


def read_tag(key: str, data: bytes) -> TagRecord:
    """Return the tag's or pin's record stored under `key`, having checked hash and name against the body."""
    return _read(TagRecord, markkeys.parse_tag_key(key), key, data)


def read_retired(key: str, data: bytes) -> RetiredRecord:
    """Return the retirement stored under `key`, having checked hash and name against the body."""
    return _read(RetiredRecord, markkeys.parse_retired_key(key), key, data)


def read_condemned(key: str, data: bytes) -> CondemnedRecord:
    """Return the condemnation stored under `key`, having checked hash and name against the body."""
    return _read(CondemnedRecord, markkeys.parse_condemned_key(key), key, data)


def _read(
    kind: type[M],
    name: markkeys.TagName | markkeys.RetiredName | markkeys.CondemnedName,
    key: str,
    data: bytes,
) -> M:
    if record_id(data) != name.record:
        raise CorruptionError("the record is not the one that its name promises (its hash differs)", key=key)
    record = kind.from_bytes(data, key=key)
    if record._name(name.record) != name:
        raise CorruptionError("the record contradicts its name", key=key)
    return record
