"""States that a run supersedes: none of them is kept any more for being the latest of its run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final

from lcstore.errors import LcstoreError
from lcstore.format import markkeys
from lcstore.format.marks import RetiredRecord
from lcstore.format.records import utc_now
from lcstore.graph.graph import Graph
from lcstore.graph.refs import NodeName
from lcstore.index.gone import NOT_ACKNOWLEDGED
from lcstore.storage.backend import Backend
from lcstore.storage.put import put_record

_log: Final = logging.getLogger("lcstore")


class Superseded:
    """States that a run supersedes once it has committed, and that it disowned, until records say so."""

    def __init__(self) -> None:
        #: States that no record says yet to be superseded, each with where the run begins.
        self._left: list[tuple[NodeName, str]] = []
        #: By node, the record that is to let go of it altogether.
        self._disowned: dict[str, RetiredRecord] = {}

    def take(self, names: Iterable[NodeName], start: str) -> None:
        """Supersede these states, and no others; `start` says where the run begins, for people."""
        self._left = [(name, start) for name in names]

    def stand_on(self, head: NodeName, graph: Graph, run_id: str, *, follows: bool) -> None:
        """Supersede what a handle leaves behind as it goes on from `head`, which is let go of no more.

        That is `head` itself, where it is the end of another run and the next one `follows` it; and the end
        of the handle's own run, where it goes on from another: nobody saves upon that end any more.
        """
        self._disowned.pop(head.node, None)
        self._left = []
        if head.run_id == run_id:
            return
        if follows and head == graph.latest(head.run_id):
            self._left.append((head, "it"))
        if (left := graph.latest(run_id)) is not None:
            self._left.append((left, "a state of another"))

    def disown(self, node: str, why: str) -> None:
        """Let go of a node once another is acknowledged: until then it may be all that the run has."""
        self._disowned.setdefault(node, RetiredRecord(node, f"{NOT_ACKNOWLEDGED}: {why}", utc_now()))

    def let_go(self, backend: Backend, *nodes: str) -> None:
        """Store the records of some nodes that were disowned; of all once another state is acknowledged."""
        try:
            for node in nodes or [*self._disowned]:
                mark = self._disowned[node]
                put_record(backend, mark.key(), mark.to_bytes())
                del self._disowned[node]
        except LcstoreError as error:
            _log.warning("states that were not acknowledged stay listed until the next save: %s", error)

    @contextmanager
    def recording(self, backend: Backend, requests: Executor, run: int | None, run_id: str) -> Iterator[None]:
        """Store the records while a ``with`` block is at work: a run that has committed is there for good."""
        recorded = requests.submit(self._record, backend, run, run_id) if self._left else None
        try:
            yield
        finally:
            if recorded is not None:
                recorded.result()

    def _record(self, backend: Backend, run: int | None, run_id: str) -> None:
        try:
            while self._left:
                name, start = self._left[-1]
                why = f"run {run} went on from {start}"
                mark = RetiredRecord(name.node, why, utc_now(), markkeys.SUPERSEDED, run_id)
                put_record(backend, mark.key(), mark.to_bytes())
                self._left.pop()
        except LcstoreError as error:
            _log.warning("states that this run takes the place of stay kept until the next save: %s", error)
