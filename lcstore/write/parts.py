"""What of a state lies in one part of an edge: its chunks, its columns and its plain values."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial

from lcstore.format import keys
from lcstore.format.bodies import ExactBody, ObjectRef, PartBody
from lcstore.format.strictjson import dumps
from lcstore.jobs.jobs import run_all
from lcstore.limits import MAX_LEAVES_BYTES, check
from lcstore.state.leaves import Leaf, encode_leaf
from lcstore.track.draft import Draft, Job
from lcstore.write.written import Written

#: Plain values of more than this many bytes go into an object of their own.
_INLINE_LEAVES = 1 << 16


def run_jobs(written: Written, jobs: Sequence[Job], executor: Executor) -> None:
    """Run the jobs of a draft side by side, each chunk written as soon as it is coded."""

    def one(job: Job) -> None:
        chunk = job()
        if chunk is not None:
            written.put_chunk(chunk)

    run_all(executor, [partial(one, job) for job in jobs])


def finish_part(written: Written, draft: Draft, leaves: Sequence[Leaf], *, exact: bool) -> PartBody:
    """Return the part whose chunks are written; its layout is still to be named."""
    written.put_metadata(draft.layout)
    values, leaves_object = _leaves(written, leaves)
    edge_objects, exact_objects = written.split(draft)
    return PartBody(
        written.part,
        tuple(edge_objects),
        draft.columns.to_bytes(),
        exact=ExactBody(tuple(exact_objects)) if exact else None,
        leaves=values,
        leaves_object=leaves_object,
    )


def _leaves(written: Written, leaves: Sequence[Leaf]) -> tuple[list[object] | None, ObjectRef | None]:
    values: list[object] = [encode_leaf(leaf) for leaf in leaves]
    data = dumps(values)
    check(len(data), MAX_LEAVES_BYTES, "the plain values of the state, in bytes")
    if len(data) <= _INLINE_LEAVES:
        return values, None
    return None, written.put_with_copy(keys.leaves_key(written.edge, written.part), data)
