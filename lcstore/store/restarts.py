"""What a job loses that is started anew after each save or two, each time from a state with an error."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final

from lcstore.format import keys
from lcstore.format.records import NodeRecord
from lcstore.graph.lines import ends_of_short_runs
from lcstore.graph.refs import ROOT, NodeName
from lcstore.index.index import Index
from lcstore.read.node import Node
from lcstore.track.policy import PRESETS, Policy

_log: Final = logging.getLogger("lcstore")

#: A job falls behind where so many runs before the one that resumes had resumed, too, ...
_RUNS: Final = 2
#: ... and each of them saved so often at the most: one that saves more often loses less by a resume.
_SAVES: Final = 2


def falls_behind(index: Index, node: Node, policy: Policy) -> bool:
    """Return whether a job that goes on from a state loses much of what it trains by resumes.

    By names, and by records as far as the resume has read them. No job does that saves as near as `high`
    from now on.
    """
    nearest = PRESETS["high"].error
    if policy.error is None or nearest is None or policy.error <= nearest:
        return False
    if node.exact and _is_exact(node.record):
        return False
    ends = [*islice(ends_of_short_runs(index.graph, node.name.node, _SAVES), _RUNS)]
    return len(ends) == _RUNS and not any(_was_saved_exactly(index, end) for end in ends)


def tell_of_restarts(url: str, step: int, policy: Policy) -> None:
    """Log what each resume of such a job costs, and what to do: a warning might end a job that runs alone."""
    _log.warning(
        "%s: resumed from step %d, and the %d runs before had each saved once or twice after a resume. "
        "From a state with an error, as under the policy %r, each resume costs up to 0.7 of what is "
        "trained between two saves (under 'balanced'; more under 'small', and of tables under "
        "SparseAdam): a job that is started anew each time falls behind. Nothing is lost where the last "
        "save of each process is exact=True (it takes about the bytes of the state), or all are under "
        "policy='lossless' (each takes what changed). Under 'high' saves are small, and a resume costs "
        "0.4 at the most (docs/how-often.md)",
        *(url, step, _RUNS, policy.name),
    )


def _was_saved_exactly(index: Index, end: NodeName) -> bool:
    """Return whether a state is known to be exact, and not for being the first alone."""
    found = index.known.peek(keys.node_key(end))
    return found is not None and end.base != ROOT and _is_exact(found[0])


def _is_exact(record: NodeRecord) -> bool:
    return bool(record.stats.get("exact", 0))
