"""Second copies: those of what goes, those of nothing, and those that a killed process did not come to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.format.records import StoreRecord
from lcstore.index.contents import Contents
from lcstore.index.listing import COPIES, Listing
from lcstore.index.uncopied import copied_late
from lcstore.limits import MAX_RECORD_BYTES
from lcstore.records.kinds import kind_of
from lcstore.storage.backend import Backend, read_capped
from lcstore.storage.put import put_object


def copies_of(backend: Backend, going: Sequence[str]) -> list[str]:
    """Return the second copies of records of nodes and edges and of layouts, of some keys."""
    gone = {keys.parse_layout_key(key) for key in going if key.startswith(f"{keys.LAYOUTS}/")}
    gone |= {keys.parse_node_key(key).node for key in going if key.startswith(f"{keys.NODES}/")}
    gone |= {keys.edge_stem(key) for key in going if key.startswith(f"{keys.EDGES}/")}
    if not gone:
        return []
    copies = Listing.take(backend, COPIES).below(keys.COPIES)
    return [key for key in copies if keys.parse_copy_key(key) in gone]


def stray_copies(contents: Contents) -> list[str]:
    """Return the second copies of nothing that was there, which slow targets or cut off writers left."""
    known = {*contents.own, *contents.layouts, *contents.named_layouts, keys.STORE_KEY}
    known |= {keys.edge_stem(keys.edge_key(name)) for name in contents.graph.edges.values()}
    return [key for key in contents.copies if keys.parse_copy_key(key) not in known]


def put_late_copies(backend: Backend, contents: Contents) -> None:
    """Store the second copies of kept records that nobody else will store, where others are there.

    Should another collector delete such a record meanwhile, the copy is one of nothing: readers do not
    believe it, and a later collector deletes it. Where one cannot be stored, `verify` goes on to tell of it.
    """
    graph, there = contents.graph, set(contents.copies)
    stays = {keys.STORE_KEY} | {keys.node_key(graph.nodes[node]) for node in contents.kept}
    stays |= {keys.edge_key(edge) for edge in graph.edges.values() if not graph.is_condemned(edge.ref)}
    for copy, key in copied_late(graph).items() if there else ():
        if copy not in there and key in stays:
            with suppress(LcstoreError):
                put_object(backend, copy, _whole(backend, key))


def _whole(backend: Backend, key: str) -> bytes:
    """Return the bytes of a record that is what its key says."""
    data = read_capped(backend, key, MAX_RECORD_BYTES)
    kind = kind_of(key)
    if kind is None:
        StoreRecord.from_bytes(data)
    else:
        kind.reader(backend)(key, data)
    return data
