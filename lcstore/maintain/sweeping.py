"""Marks that nothing refers to any more, once something goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import replace

from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys, markkeys
from lcstore.format.marks import RetiredRecord, read_retired
from lcstore.graph.lines import moved_back
from lcstore.index.contents import Contents
from lcstore.limits import MAX_RECORD_BYTES
from lcstore.maintain.secondcopies import stray_copies
from lcstore.maintain.verdict import Scope
from lcstore.storage.backend import CLOCK, Backend, read_capped
from lcstore.write.naming import SNAPSHOT


def loose_marks(contents: Contents, gone: Sequence[Scope]) -> list[str]:
    """Return the keys of the marks that nothing refers to once some things are gone."""
    whole = {scope.edge for scope in gone if scope.is_whole}
    nodes = {node for node, edge in contents.own.items() if edge in contents.stored and edge not in whole}
    parents = {contents.parents[node] for node in nodes}
    gone_layouts = {scope.edge for scope in gone if scope.scope == markkeys.LAYOUT}
    layouts = {half for half in map(keys.layout_half, contents.layouts) if half not in gone_layouts}
    left = (set(contents.stored) | set(contents.data)) - whole | layouts
    marks = [key for key in contents.condemned if markkeys.parse_condemned_key(key).edge not in left]
    marks += [
        key
        for key in contents.retired
        if (node := markkeys.parse_retired_key(key).node) not in nodes and node not in parents
    ]
    dead = {node for node, edge in contents.own.items() if edge in whole}
    marks += [markkeys.tag_key(name) for name in contents.named if {name.node, name.about} & dead]
    return sorted(marks)


def strays(backend: Backend, contents: Contents) -> list[str]:
    """Return the keys of what is of no record, once it is old; of measurements that were cut off, too."""
    return stray_copies(contents) + _stray_names(contents) + backend.list(CLOCK)


def _stray_names(contents: Contents) -> list[str]:
    """Return the keys of tags, pins and lines that say nothing, once they are old.

    They are of nodes that are not there (of saves killed, or under way), or of pins that were taken away.
    """
    gone = (name for name in contents.named if name.about and name.about not in contents.own)
    return [markkeys.tag_key(name) for name in {*gone, *_spent_pins(contents.named)}]


def _spent_pins(named: Iterable[markkeys.TagName]) -> Iterator[markkeys.TagName]:
    """Yield the marks of pins that were taken away, but for the last of each, which says so.

    That goes too, after the others, where a snapshot was held: its pin is never set again.
    """
    pins = defaultdict[str, list[markkeys.TagName]](list)
    for name in sorted((n for n in named if n.kind == "pin"), key=lambda n: (n.seq, n.record)):
        pins[name.name].append(name)
    for *before, last in pins.values():
        if last.node is None:
            yield from before or [last] * last.name.partition(" ")[2].startswith(SNAPSHOT)


def passed_on(backend: Backend, contents: Contents, gone: Set[str]) -> Iterator[RetiredRecord]:
    """Yield the marks of ends of runs that go, set on what is the end of the run then.

    Otherwise an older state would be kept as the latest of a run that another took the place of.
    """
    names = {key: markkeys.parse_retired_key(key) for key in contents.retired}
    over = {key: name.node for key, name in names.items() if name.what == markkeys.SUPERSEDED}
    ends = moved_back(contents.graph, over.values(), gone)
    for key in [key for key, node in over.items() if node in ends]:
        # Another collector may be done with it; and what is damaged leaves too much kept, not too little.
        with suppress(NotFoundError, CorruptionError):
            mark = read_retired(key, read_capped(backend, key, MAX_RECORD_BYTES))
            yield replace(mark, node=ends[mark.node])
