"""Looking at one object after another: its presence, length, hash, frame and digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lcstore.arrays import Array
from lcstore.check.findings import Level
from lcstore.check.proof import Sums
from lcstore.edges.edge import decode
from lcstore.errors import CorruptionError, LcstoreError, TruncatedError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import ObjectRef
from lcstore.format.hashing import Hasher
from lcstore.format.strictjson import loads
from lcstore.index.links import Link
from lcstore.jobs.jobs import default_threads
from lcstore.jobs.survey import spread
from lcstore.layout.layout import Layout
from lcstore.limits import MAX_LEAVES_BYTES
from lcstore.state.leaves import decode_leaf
from lcstore.state.tree import structure_names
from lcstore.storage.backend import Backend, read_twice

#: Objects are read in pieces of this many bytes, by so many threads: memory stays small whatever their size.
_PIECE: Final = 32 << 20
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class Need:
    """An object that a record needs.

    Attributes
    ----------
    node, edge
        The node whose record it is, or the edge that maintenance added.
    exact
        Whether only the exact value of the node needs it.
    """

    ref: ObjectRef
    node: str | None
    edge: str
    step: int | None
    exact: bool = False

    @property
    def owner(self) -> tuple[str | None, str]:
        """Whose it is: two records may claim one edge, of which one is wrong."""
        return self.node, self.edge

    @property
    def scope(self) -> str | None:
        """The narrowest that a condemnation of it may say; None: only the whole edge."""
        name = keys.parse_data_key(self.ref.key)
        if name.pool is None or name.op is None:
            return None
        return markkeys.EXACT_VALUE if self.exact else markkeys.array_scope(name.pool, name.op)


@dataclass(frozen=True, eq=False)
class Looker:
    """Looks at objects. Thread-safe.

    Attributes
    ----------
    backend, level
        Where, and how thoroughly.
    links
        The edges, by whose they are. One that is not here does not fit its layout, as is told of its record.
    layouts
        Those that plain values belong to, by the key of the object that holds them.
    sums
        Digests of edges that are to be proved, by edge: they grow with each object.
    """

    backend: Backend
    level: Level
    links: Mapping[tuple[str | None, str], Link]
    layouts: Mapping[str, Layout]
    sums: Mapping[str, Sums]

    def look(self, need: Need) -> tuple[LcstoreError | None, int]:
        """Return what is wrong with an object, and how many bytes were read."""
        ref = need.ref
        try:
            if self.level == "structure":
                _check_length(ref, self.backend.size(ref.key))
                return None, 0
            name = keys.parse_data_key(ref.key)
            if ref.key.endswith("/leaves.json"):
                self._read_leaves(ref)
            elif name.chunk is not None and decodes(self.level):
                self._decode(need, name, self._read(ref))
            elif _digest(self.backend, ref) != ref.hash and _digest(self.backend, ref) != ref.hash:
                # Read twice: a bit may have flipped on the way.
                raise CorruptionError("its hash differs from the committed one", key=ref.key)
        except LcstoreError as error:
            error.key = error.key or ref.key
            return error, 0
        return None, ref.nbytes

    def _read(self, ref: ObjectRef) -> bytes:
        return read_twice(lambda: ref.check(self.backend.get(ref.key, 0, ref.nbytes + 1)))

    def _decode(self, need: Need, name: keys.DataName, data: bytes) -> None:
        link = self.links.get(need.owner)
        if link is None or name.pool is None or name.op is None or name.chunk is None:
            return  # its record does not fit its layout, which is told of the record
        pool = link.layout.pools.get(name.pool)
        if pool is None:
            raise CorruptionError(f"it is of pool {name.pool!r}, unknown to its layout")
        size = min(pool.chunk, pool.size - name.chunk * pool.chunk)
        if size <= 0:
            raise CorruptionError(f"it lies past the end of pool {name.pool!r}")
        values = decode(pool, name.op, data, size)
        sums = self.sums.get(need.edge)
        if sums is not None and not need.exact:
            sums.take(name.pool, name.op, name.chunk, values)

    def _read_leaves(self, ref: ObjectRef) -> None:
        data = self._read(ref)
        layout = self.layouts.get(ref.key)
        if layout is not None:
            check_leaves(loads(data, key=ref.key, max_bytes=MAX_LEAVES_BYTES), layout, ref.key)


@dataclass(frozen=True)
class Batch:
    """Objects to be looked at together, and all that has to be known of them: it can be sent to a worker.

    Of the edges in `proved`, the digests are wanted.
    """

    backend: Backend
    level: Level
    needs: Sequence[Need]
    links: Mapping[tuple[str | None, str], Link]
    layouts: Mapping[str, Layout]
    proved: Mapping[str, Link]

    def look(self, _: object = ()) -> tuple[list[tuple[LcstoreError | None, int]], dict[str, Array]]:
        """Return what is wrong with each object, and the bytes read of it; and digests, by edge."""
        sums = {edge: Sums(link) for edge, link in self.proved.items()}
        looker = Looker(self.backend, self.level, self.links, self.layouts, sums)
        workers = 1 if decodes(self.level) else readers_of(self.level)
        looks = list(spread(looker.look, self.needs, workers=workers))
        return looks, {edge: one.found for edge, one in sums.items()}


def decodes(level: Level) -> bool:
    """Return whether objects are decoded at a level, so that the processor bounds it and not the target."""
    return level in ("decode", "restore")


def readers_of(level: Level) -> int:
    """Return how many threads look at objects."""
    if level == "structure":
        return 2 * _READERS
    return min(_READERS, default_threads()) if decodes(level) else _READERS


def check_leaves(leaves: object, layout: Layout, key: str) -> None:
    """Check that plain values are as many as the layout says, and that each can be read."""
    if not isinstance(leaves, list):
        raise CorruptionError("it has no plain values", key=key)
    _, paths = structure_names(layout.structure)
    if len(leaves) != len(paths):
        raise CorruptionError(f"it has {len(leaves)} plain values; its layout says {len(paths)}", key=key)
    try:
        for leaf in leaves:
            decode_leaf(leaf)
    except LcstoreError as error:
        error.key = error.key or key
        raise


def _check_length(ref: ObjectRef, found: int) -> None:
    if found < ref.nbytes:
        raise TruncatedError(f"it has {found} bytes instead of {ref.nbytes}", key=ref.key)
    if found > ref.nbytes:
        raise CorruptionError(f"it has {found} bytes instead of {ref.nbytes}", key=ref.key)


def _digest(backend: Backend, ref: ObjectRef) -> str:
    """Return the hash of an object, having checked its length."""
    digest = Hasher()
    done = 0
    # The last piece asks for one byte more than there may be: where that does not come, it is the end.
    while done <= ref.nbytes:
        asked = min(_PIECE, ref.nbytes + 1 - done)
        data = backend.get(ref.key, done, done + asked)
        digest.update(data)
        done += len(data)
        if not data or (done == ref.nbytes and len(data) < asked):
            break
    _check_length(ref, done)
    return digest.hexdigest()
