"""What a writer goes on from, of a state that was saved: its values, and the track of what is stored."""

from __future__ import annotations

from collections.abc import Callable

from lcstore.errors import CorruptionError, FallbackWarning, LcstoreError, StorageError
from lcstore.graph.graph import Graph
from lcstore.layout.qualified import FIRST_PART
from lcstore.read.resolved import Rebuilt, Resolved
from lcstore.read.snapshot import Snapshot
from lcstore.track.parted import track_of
from lcstore.track.track import Track
from lcstore.warned import warn


def rebuilt(found: Snapshot) -> Rebuilt:
    """Return the track of a state, and its values; those alone, where the track is not whole, with a warning.

    Raises
    ------
    CorruptionError
        The values are damaged, too. The error tells of the track.

    Warns
    -----
    FallbackWarning
        The values alone are whole.
    """
    return _or_values(found, Resolved.rebuild)


def rebuilt_track(found: Snapshot) -> Rebuilt:
    """Return the track of a state alone, or what `rebuilt` does without one."""
    return _or_values(found, Resolved.rebuild_track)


def _or_values(found: Snapshot, rebuild: Callable[[Resolved], Rebuilt]) -> Rebuilt:
    try:
        return found.using(rebuild)
    except CorruptionError as error:
        damage = error
    try:
        built = found.using(Resolved.rebuild_values)
    except StorageError:
        raise
    except LcstoreError:
        raise damage from None
    message = f"step {found.step}: its values are whole, and what deltas to it need is not ({damage})"
    warn(f"{message}: the next save sets everything anew", FallbackWarning)
    return built


def track_from(built: Rebuilt, graph: Graph) -> Track:
    """Return the track that a writer goes on with; an empty one where there are values alone."""
    node = built.node
    if built.pools is None:
        return Track()
    saves = graph.saves_until(node.name)
    return track_of(FIRST_PART, node.layout, node.columns, built.pools, built.values, saves)
