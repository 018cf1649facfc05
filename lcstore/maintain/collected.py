"""What a collection did."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lcstore.maintain.dead import Silence


@dataclass(frozen=True)
class CollectReport:
    """What a collection did; of a dry run, what it would do now, by the clock of this machine.

    Attributes
    ----------
    url, dry_run
        The URL of the store, and whether nothing was changed.
    condemned
        Number of arrays, exact values, edges and layouts newly condemned.
    waiting
        Condemned before or now, and too young to be deleted: how many of these.
    waiting_objects, waiting_bytes, waiting_seconds
        What they come to, and in how many seconds all of it is old enough to be deleted.
    deleted_objects, deleted_states, deleted_shortcuts
        What went: objects of data, with layouts; nodes; edges that maintenance had added.
    deleted_bytes
        Of all that went, with the records and second copies, as a `Forecast` counts bytes: marks, of some
        hundred bytes each, are left out.
    deleted_marks
        Retirements, condemnations and tags that nothing refers to any more.
    kept_states, retired_states, spared_states
        States that stay; those that were let go of and stay; and those of them that stay as they went lately.
    grace_seconds
        How long this collection waited between condemning and deleting.
    silence
        Where the grace was cut short: how long no run had written.
    deleted_leftovers, deleted_leftover_bytes
        Files that went which killed processes left in the middle of a write, and their bytes: these are among
        `deleted_bytes`.
    uncondemned
        How many more are to be condemned once there is room for the records that say so.
    condemned_states
        States that were let go of and of which something is condemned now: no more to be brought back.
    waiting_leftovers, waiting_leftover_bytes, leftover_seconds
        Those that stay, as somebody wrote to them less than so many seconds ago.
    """

    url: str
    dry_run: bool
    condemned: int
    waiting: int
    deleted_objects: int
    deleted_bytes: int
    deleted_states: int
    deleted_shortcuts: int
    deleted_marks: int
    kept_states: int
    grace_seconds: float
    silence: Silence | None = None
    retired_states: int = 0
    waiting_objects: int = 0
    waiting_bytes: int = 0
    waiting_seconds: float = 0.0
    deleted_leftovers: int = 0
    deleted_leftover_bytes: int = 0
    waiting_leftovers: int = 0
    waiting_leftover_bytes: int = 0
    leftover_seconds: float = 0.0
    uncondemned: int = 0
    condemned_states: int = 0
    spared_states: int = 0

    @property
    def makes_room(self) -> bool:
        """Whether anything went."""
        return any((self.deleted_objects, self.deleted_states, self.deleted_marks, self.deleted_leftovers))

    @property
    def wrong(self) -> str:
        """What is wrong, in words: always "", as whatever stops a collection is raised."""
        return ""

    def __str__(self) -> str:
        """Return one line for a log."""
        went = (
            f"{self.deleted_bytes:,} bytes of {self.deleted_objects} objects and {self.deleted_states} states"
        )
        if self.dry_run:
            later = f"{self.waiting_bytes:,} bytes go later"
            return f"would be collected: {went}, {later}, {self.kept_states} states kept"
        return (
            f"collected: {went} deleted, {self.condemned} arrays, values and edges condemned, "
            f"{self.waiting} wait for their grace, {self.kept_states} states kept"
            f"{f', no room to condemn {self.uncondemned} more' * bool(self.uncondemned)}"
        )


def together(first: CollectReport, then: CollectReport) -> CollectReport:
    """Return what two collections in a row did."""
    counts = ["condemned", *(name for name in vars(first) if name.startswith("deleted_"))]
    sums = {name: getattr(first, name) + getattr(then, name) for name in counts}
    return replace(then, **sums)
