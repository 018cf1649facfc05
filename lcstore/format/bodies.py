"""What an edge stores, as records list it: objects, and the parts that its writers made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Self, TypeAlias

from lcstore.edges.columns import joined
from lcstore.errors import CorruptionError, InvalidInputError, TruncatedError
from lcstore.format import keyforms, keys
from lcstore.format.fields import Fields, columns_to_json, header, open_fields, written
from lcstore.format.hashing import hash_of
from lcstore.format.keyforms import DIGEST_RE, ID_RE
from lcstore.format.strictjson import dumps, loads
from lcstore.graph.refs import ROOT
from lcstore.layout.qualified import FIRST_PART
from lcstore.limits import MAX_CHUNK_BYTES, MAX_PARTS, check

#: Gives the bytes of stored objects, each what its reference says.
Fetch: TypeAlias = Callable[[Sequence["ObjectRef"]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A stored object as the record that needs it knows it."""

    key: str
    nbytes: int
    hash: str

    @classmethod
    def of(cls, key: str, data: bytes | bytearray | memoryview) -> Self:
        """Return the reference to an object of these bytes."""
        return cls(key, memoryview(data).nbytes, hash_of(data))

    def check(self, data: bytes) -> bytes:
        """Return `data`, or raise `CorruptionError` if it is not what was committed."""
        if len(data) < self.nbytes:
            raise TruncatedError(f"{len(data)} bytes instead of {self.nbytes}", key=self.key)
        if len(data) > self.nbytes:
            raise CorruptionError(f"{len(data)} bytes or more instead of {self.nbytes}", key=self.key)
        if hash_of(data) != self.hash:
            raise CorruptionError("its hash differs from the committed one", key=self.key)
        return data

    def to_json(self, folder: str) -> list[object]:
        """Return the reference as a record has it, the key relative to a folder."""
        if not self.key.startswith(f"{folder}/"):
            raise InvalidInputError(f"object {self.key!r:.200} lies outside the folder {folder}")
        return [self.key[len(folder) + 1 :], self.nbytes, self.hash]

    @classmethod
    def from_json(cls, value: object, folder: str, fields: Fields, name: str) -> Self:
        """Return the reference in an item of the field `name` of `fields`."""
        if not isinstance(value, list) or len(value) != 3:
            raise fields.wrong(name, "[name, bytes, hash]", value)
        suffix, nbytes, digest = value
        if not isinstance(suffix, str) or not keys.is_data_key(f"{folder}/{suffix}"):
            raise fields.wrong(name, "named as an object of its edge", suffix)
        if type(nbytes) is not int or not 0 <= nbytes <= MAX_CHUNK_BYTES:
            raise fields.wrong(name, f"of 0 to {MAX_CHUNK_BYTES} bytes", nbytes)
        if not isinstance(digest, str) or DIGEST_RE.fullmatch(digest) is None:
            raise fields.wrong(name, "with a hash", digest)
        return cls(f"{folder}/{suffix}", nbytes, digest)


@dataclass(frozen=True, slots=True)
class ExactBody:
    """The exact value that a part keeps: its objects, which lie in the part's own folder."""

    objects: tuple[ObjectRef, ...] = ()
    columns: dict[str, bytes] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all its objects."""
        return sum(ref.nbytes for ref in self.objects)

    def to_json(self, folder: str) -> dict[str, object]:
        """Return the exact value as a field of a part."""
        return {
            "columns": columns_to_json(self.columns),
            "objects": [ref.to_json(folder) for ref in self.objects],
        }

    @classmethod
    def from_json(cls, value: object, folder: str, *, key: str) -> Self:
        """Return the exact value in a field of a part."""
        fields = Fields(value, key=key, where="exact")
        body = cls(_objects(fields, folder), fields.columns("columns"))
        fields.done()
        return body


@dataclass(frozen=True, slots=True)
class PartBody:
    """What one writer stored of an edge.

    Attributes
    ----------
    name
        A decimal number; "0" where an edge has one part.
    objects, columns
        Its objects, and what it says of each tensor of its layout.
    layout
        Hash of its layout; None in a shortcut, which has those of its target.
    exact, leaves, leaves_object
        Its exact value and its plain values, as the format has them; None in a shortcut.
    stored
        Where it is kept, if not in the record itself.
    """

    name: str = FIRST_PART
    objects: tuple[ObjectRef, ...] = ()
    columns: dict[str, bytes] = field(default_factory=dict)
    layout: str | None = None
    exact: ExactBody | None = None
    leaves: list[object] | None = None
    leaves_object: ObjectRef | None = None
    stored: ObjectRef | None = None

    @property
    def needed(self) -> tuple[ObjectRef, ...]:
        """All objects that it needs: the part itself, and those of values, exact values and plain values."""
        exact = () if self.exact is None else self.exact.objects
        single = tuple(ref for ref in (self.leaves_object, self.stored) if ref is not None)
        return (*self.objects, *exact, *single)

    def to_json(self, edge: str) -> dict[str, object]:
        """Return the part as an edge of a record has it."""
        folder = keys.part_folder(edge, self.name)
        body: dict[str, object] = {
            "columns": columns_to_json(self.columns),
            "name": self.name,
            "objects": [ref.to_json(folder) for ref in self.objects],
        }
        if self.layout is None:
            return body
        return body | {
            "exact": None if self.exact is None else self.exact.to_json(folder),
            "layout": self.layout,
            "leaves": self.leaves,
            "leaves_object": None if self.leaves_object is None else self.leaves_object.to_json(folder),
        }

    @classmethod
    def from_fields(cls, fields: Fields, edge: str, *, own: bool, stored: ObjectRef | None = None) -> Self:
        """Return the part in these fields, of the edge of a node (`own`) or of a shortcut."""
        name = fields.form("name", keyforms.PART_RE)
        folder = keys.part_folder(edge, name)
        objects, columns = _objects(fields, folder), fields.columns("columns")
        if not own:
            return cls(name, objects, columns, stored=stored)
        part = cls(
            name,
            objects,
            columns,
            layout=fields.form("layout", DIGEST_RE),
            exact=fields.nullable(
                "exact", lambda name: ExactBody.from_json(fields.take(name), folder, key=fields.key)
            ),
            leaves=fields.nullable("leaves", fields.items),
            leaves_object=fields.nullable(
                "leaves_object", lambda name: ObjectRef.from_json(fields.take(name), folder, fields, name)
            ),
            stored=stored,
        )
        if part.leaves is not None and part.leaves_object is not None:
            raise CorruptionError("leaves are both in the record and in an object", key=fields.key)
        return part

    def to_bytes(self, edge: str) -> bytes:
        """Return the part as an object of its own, having checked that it can be read."""
        data = dumps(header("part") | {"edge": edge} | self.to_json(edge))
        return written(data, lambda data, key: _read_part(data, edge, own=self.layout is not None, key=key))


@dataclass(frozen=True, slots=True)
class EdgeBody:
    """An edge: its id, its base (a node's id or ``"root"``) and the parts that its writers made."""

    id: str
    base: str
    parts: tuple[PartBody, ...] = (PartBody(),)

    @property
    def objects(self) -> tuple[ObjectRef, ...]:
        """The objects that hold the track's value, of all parts."""
        return tuple(chain.from_iterable(part.objects for part in self.parts))

    @property
    def columns(self) -> dict[str, bytes]:
        """The columns of all parts, one after another."""
        if len(self.parts) == 1:
            return self.parts[0].columns
        return joined([part.columns for part in self.parts])

    @property
    def nbytes(self) -> int:
        """Bytes of all its objects."""
        return sum(ref.nbytes for ref in self.objects)

    @property
    def path_nbytes(self) -> int:
        """Bytes that a path over the edge reads: those of the arrays that compose."""
        names = ((keys.parse_data_key(ref.key), ref) for ref in self.objects)
        return sum(ref.nbytes for name, ref in names if name.op in keys.COMPOSED and name.parity is None)

    def to_json(self) -> dict[str, object]:
        """Return the edge as a field of a record."""
        folder = keys.edge_folder(self.id)
        return {
            "base": self.base,
            "id": self.id,
            "parts": [
                part.to_json(self.id) if part.stored is None else part.stored.to_json(folder)
                for part in self.parts
            ],
        }

    @classmethod
    def from_json(cls, value: object, *, own: bool, fetch: Fetch | None, key: str) -> Self:
        """Return the edge in a field of a record; `fetch` gets the parts that are objects of their own."""
        fields = Fields(value, key=key, where="edge")
        edge, base = fields.form("id", ID_RE), fields.form("base", ID_RE, ROOT)
        items = fields.items("parts")
        fields.done()
        check(len(items), MAX_PARTS, "number of parts of an edge", key=key)
        refs = [_part_ref(item, edge, fields) for item in items if isinstance(item, list)]
        if refs and fetch is None:
            raise CorruptionError("a part that is an object of its own was not given", key=refs[0].key)
        stored = iter(zip(refs, fetch(refs), strict=True)) if refs and fetch is not None else iter(())
        parts = tuple(_part(item, edge, own, stored, key) for item in items)
        if not parts or any(int(one.name) >= int(other.name) for one, other in pairwise(parts)):
            raise CorruptionError("the parts of an edge must be in the order of their numbers", key=key)
        if len({part.exact is None for part in parts}) > 1:
            raise CorruptionError("some parts keep an exact value, and others do not", key=key)
        return cls(edge, base, parts)

    @property
    def layout(self) -> str:
        """What its layout is known by: the hash of its only part's, or part and hash of each."""
        return join_layouts((part.name, part.layout or "") for part in self.parts)

    def part_bytes(self, refs: Sequence[ObjectRef]) -> Iterable[bytes]:
        """Return the bytes of those of its parts that are objects: all of them, in order."""
        return [part.to_bytes(self.id) for part in self.parts if part.stored is not None]


def join_layouts(layouts: Iterable[tuple[str, str]]) -> str:
    """Return one text for the layouts of an edge's parts: of part 0 alone its hash."""
    found = list(layouts)
    if len(found) == 1 and found[0][0] == FIRST_PART:
        return found[0][1]
    return ",".join(f"{part}:{digest}" for part, digest in found)


def split_layouts(layout: str) -> list[tuple[str, str]]:
    """Return part and hash of each layout that a text of `join_layouts` speaks of."""
    if ":" not in layout:
        return [(FIRST_PART, layout)]
    pairs = (item.partition(":") for item in layout.split(","))
    return [(part, digest) for part, _, digest in pairs]


def _part_ref(item: object, edge: str, fields: Fields) -> ObjectRef:
    ref = ObjectRef.from_json(item, keys.edge_folder(edge), fields, "parts")
    if ref.key != keys.part_key(edge, keys.part_name(ref.key)):
        raise fields.wrong("parts", "objects that are parts", ref.key)
    return ref


def _part(
    item: object, edge: str, own: bool, stored: Iterator[tuple[ObjectRef, bytes]], key: str
) -> PartBody:
    if isinstance(item, list):
        ref, data = next(stored)
        return _read_part(data, edge, own=own, key=ref.key, stored=ref)
    inner = Fields(item, key=key, where="edge.parts")
    part = PartBody.from_fields(inner, edge, own=own)
    inner.done()
    return part


def _read_part(data: bytes, edge: str, *, own: bool, key: str, stored: ObjectRef | None = None) -> PartBody:
    fields = open_fields(loads(data, key=key), kind="part", key=key)
    of = fields.form("edge", ID_RE)
    part = PartBody.from_fields(fields, edge, own=own, stored=stored)
    fields.done()
    if of != edge or (stored is not None and stored.key != keys.part_key(edge, part.name)):
        raise CorruptionError("the part is not the one that its name promises", key=key)
    return part


def _objects(fields: Fields, folder: str) -> tuple[ObjectRef, ...]:
    items = fields.items("objects")
    found = tuple(ObjectRef.from_json(value, folder, fields, "objects") for value in items)
    if len({ref.key for ref in found}) != len(found):
        raise CorruptionError(f"{fields.where} lists an object twice", key=fields.key)
    return found
