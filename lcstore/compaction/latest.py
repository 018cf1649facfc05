"""What a restore of the latest state reads: now, and once a plan of compaction is carried out."""

from __future__ import annotations

from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.graph.plan import Plan
from lcstore.read.reader import Reader
from lcstore.read.snapshot import Snapshot


def latest_reads(reader: Reader, plan: Plan) -> tuple[int, int] | tuple[None, None]:
    """Return the bytes of objects that it reads now, and about how many it will read.

    What it reads along the path shrinks as the path does. An exact value and what the state's own edge sets
    stay what they are: names alone do not tell which of all that it reads. None where there is no state, or
    damage keeps it from being known.
    """
    latest = reader.index.graph.latest()
    if latest is None:
        return None, None
    try:
        found, own = Snapshot(reader, latest).using(
            lambda state: (state.objects_to_read(state.node.wholes), state.node.record.edge.id)
        )
    except LcstoreError:
        return None, None
    now, names = sum(found.values()), {key: keys.parse_data_key(key) for key in found}
    along = sum(
        found[key]
        for key, name in names.items()
        if name.op in keys.COMPOSED and (name.op, name.edge) != ("exact", own)
    )
    share = min(1.0, along / max(1, plan.newest_before))
    return now, now + round(share * (plan.newest_after - plan.newest_before))
