"""One state on its way into a store: coded, written, and committed by one record."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import UnknownOutcomeError
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody
from lcstore.format.labels import Labels
from lcstore.format.marks import TagRecord
from lcstore.format.records import NodeRecord, node_id, utc_now
from lcstore.graph.names import ROOT, NodeName
from lcstore.index.commit import put_record
from lcstore.index.info import SaveInfo, phases
from lcstore.index.marked import next_seq
from lcstore.state.layout import make_layout
from lcstore.state.names import Name, format_name
from lcstore.state.tree import FlatState
from lcstore.track.columns import EXACT, SET
from lcstore.track.draft import Draft
from lcstore.track.grid import exponent_of
from lcstore.track.track import largest
from lcstore.version import SOFTWARE
from lcstore.write.entries import layout_entries
from lcstore.write.parts import finish_part, run_jobs
from lcstore.write.written import Written

if TYPE_CHECKING:
    from lcstore.write.writer import Writer


@dataclass
class Pending:
    """A commit whose outcome is not known yet: the record is to be written again, with the same bytes."""

    key: str
    data: bytes
    draft: Draft
    record: NodeRecord
    name: NodeName


class Saving:
    """One state on its way into the store."""

    def __init__(
        self,
        writer: Writer,
        step: int,
        flat: FlatState,
        arrays: list[Array],
        labels: Labels,
        exact: bool,
        touched: Mapping[str, Any],
    ) -> None:
        self.writer = writer
        self.step = step
        self.flat = flat
        self.arrays = arrays
        self.labels = labels
        self.exact = exact
        self.touched = touched
        self.written = Written(writer.backend, secrets.token_hex(16))
        self.sound = writer.sound

    def attempt(self, anchor: bool, started: float, flattened: float) -> SaveInfo:
        """Code, write and commit; on any failure the track is as it was."""
        writer = self.writer
        self.written = Written(writer.backend, secrets.token_hex(16))
        self.sound = writer.sound
        reset: set[Name] = set()
        while True:
            draft = self._draft(anchor, reset)
            writer.sound = False  # from here to the commit, or to the way back, whatever interrupts
            try:
                if not draft.off_grid:
                    run_jobs(self.written, draft.jobs, writer.executor)
                if not draft.off_grid:
                    coded = time.perf_counter()
                    error, lag = draft.tracking()
                    worst = draft.worst_row()
                    pending = self._commit(draft, anchor, self._stats(draft, error, worst))
                    break
            except BaseException:
                self._roll_back(draft)
                raise
            self._roll_back(draft)
            self._off_grid(draft, reset)
            # Names are unique: nothing is ever written over.
            self.written = Written(writer.backend, secrets.token_hex(16))
        writer.accept(pending)
        ended = time.perf_counter()
        return self._info(pending, lag, worst, phases(started, flattened, coded, ended))

    def _draft(self, anchor: bool, reset: set[Name]) -> Draft:
        writer = self.writer
        if anchor:
            writer.exact = set() if not reset else writer.exact
        entries = layout_entries(self.flat.tensors, writer.policy, writer.exact)
        layout = make_layout(self.flat.structure, entries, writer.track.layout, fresh=anchor)
        touched = writer.all_touched(self.touched, layout)
        return writer.track.draft(
            layout, self.arrays, writer.policy, anchor=anchor, exact=self.exact, reset=reset, touched=touched
        )

    def _roll_back(self, draft: Draft) -> None:
        draft.roll_back()
        self.writer.sound = self.sound and not draft.astray

    def _off_grid(self, draft: Draft, reset: set[Name]) -> None:
        """Decide about tensors that did not fit their grids: a new grid if there is one, exact if not."""
        for tensor in draft.off_grid:
            spec = draft.layout.tensors[tensor]
            fits = exponent_of(largest(self.arrays[tensor], spec.dtype), spec.dtype) is not None
            if not fits or spec.name in reset:
                self.writer.exact.add(spec.name)
            reset.add(spec.name)

    def _commit(self, draft: Draft, anchor: bool, stats: dict[str, int | float]) -> Pending:
        writer = self.writer
        written = self.written
        digest, layout_bytes = writer.layout_digest(draft.layout)
        written.extra += layout_bytes
        written.objects += layout_bytes > 0
        part = finish_part(written, draft, self.flat.leaves, digest, exact=self.exact)
        assert writer.run is not None
        record = NodeRecord(
            step=self.step,
            run=writer.run,
            run_id=writer.run_id,
            seq=writer.next_seq(),
            parent=writer.head.node if writer.head is not None else None,
            created=utc_now(),
            edge=EdgeBody(written.edge, ROOT if anchor or writer.head is None else writer.head.node, (part,)),
            metrics={str(k): float(v) for k, v in self.labels.metrics.items()},
            metadata=dict(self.labels.metadata),
            tags=tuple(self.labels.tags),
            stats=stats,
            software=SOFTWARE,
        )
        data = record.to_bytes()
        name = record.name(node_id(data))
        self._put_tags(name.node, record.created)
        pending = Pending(keys.node_key(name), data, draft, record, name)
        written.extra += len(data)
        written.objects += 1
        self._put_record(pending)
        return pending

    def _put_tags(self, node: str, created: str) -> None:
        """Set the tags of the node to come; one of a node that does not come to exist says nothing."""
        if not self.labels.tags:
            return
        named = [keys.parse_tag_key(key) for key in self.writer.backend.list(keys.NAMES)]
        for tag in self.labels.tags:
            mark = TagRecord(tag, node, next_seq(named, "tag", tag), created)
            self.written.put_mark(mark.key(), mark.to_bytes())

    def _put_record(self, pending: Pending) -> None:
        try:
            put_record(self.writer.backend, pending.key, pending.data)
        except UnknownOutcomeError:
            # The track stays where it is: the next save writes this very record again.
            self.writer.pending = pending
            pending.draft.keep()
            raise

    def _stats(self, draft: Draft, error: float, worst: tuple[float, Name] | None) -> dict[str, int | float]:
        stats: dict[str, int | float] = {
            "bytes_raw": sum(array.nbytes for array in self.arrays),
            "tensors": len(self.arrays),
            "exact": int(self.exact or self._comes_back_exactly(draft)),
        }
        stats |= {"error": float(error)} if np.isfinite(error) else {}
        return stats | ({"row_error": worst[0]} if worst is not None else {})

    def _comes_back_exactly(self, draft: Draft) -> bool:
        """Say whether the edge alone gives back every bit."""
        return all(
            spec.role == "plain"
            or op == EXACT
            or (op == SET and spec.role == "weights" and not array.view(np.uint8).any())
            for spec, op, array in zip(draft.layout.tensors, draft.columns.op, self.arrays, strict=True)
        )

    def _info(
        self, pending: Pending, lag: float, worst: tuple[float, Name] | None, seconds: dict[str, float]
    ) -> SaveInfo:
        record = pending.record
        anchor = record.edge.base == ROOT
        return SaveInfo(
            step=self.step,
            node=pending.name.node,
            base=None if anchor else record.edge.base,
            kind="anchor" if anchor else "delta",
            exact=bool(record.stats["exact"]),
            bytes_raw=int(record.stats["bytes_raw"]),
            bytes_stored=self.written.nbytes,
            objects=self.written.objects,
            error=record.stats.get("error"),
            lag=float(lag) if np.isfinite(lag) else None,
            seconds=seconds,
            row_error=None if worst is None else worst[0],
            row_error_at=None if worst is None else format_name(worst[1]),
        )
