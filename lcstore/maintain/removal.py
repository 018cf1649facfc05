"""Deleting a whole store: what it is made of, and nothing else that lies in the same place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lcstore.errors import ConflictError, LcstoreError, NotFoundError
from lcstore.format import keys, markkeys
from lcstore.index.lengths import lengths_of
from lcstore.index.marked import pins_by_node, tags_by_node
from lcstore.index.rights import check_deletable
from lcstore.jobs.survey import OnProgress
from lcstore.records.kinds import FOLDERS, is_own
from lcstore.storage.backend import Backend
from lcstore.units import counted, listed

_BATCH: Final = 500


@dataclass(frozen=True)
class RemoveReport:
    """What was deleted of a store, or would be.

    Attributes
    ----------
    url, dry_run
        Where it was, and whether nothing was changed.
    states
        How many states it had, those too that were let go of and are still there.
    first, last
        Their least and greatest steps; None where there is none.
    objects, nbytes
        How many objects, records among them, and how many bytes.
    foreign
        Names that are not lcstore's: they are left where they are.
    pinned, pinned_by
        Steps of the states that are pinned, and who pins them, as far as they said who they are.
    tags
        The tags that find a state.
    """

    url: str
    dry_run: bool
    states: int
    first: int | None
    last: int | None
    objects: int
    nbytes: int
    foreign: tuple[str, ...]
    pinned: tuple[int, ...] = ()
    pinned_by: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def marked(self) -> str:
        """What somebody wanted to keep of it, in words: pins and tags; "" where there are none."""
        by = f", by {listed(self.pinned_by)}" if self.pinned_by else ""
        pinned = f"{counted(len(self.pinned), 'pinned state')}{by}" if self.pinned else ""
        return "; ".join(filter(None, [pinned, f"tags {listed(self.tags)}" if self.tags else ""]))


def remove_store(
    backend: Backend, *, dry_run: bool = False, on_progress: OnProgress | None = None
) -> RemoveReport:
    """Delete a store. Interrupted and called again, it goes on; its own record goes last.

    Raises
    ------
    NotFoundError
        There is nothing of a store.
    StorageError
        This user could not delete all of it. Nothing is deleted, and nothing shown as going.
    ConflictError
        Something was stored meanwhile: a run is still writing. What was there before is deleted.
    """
    own, foreign = _listed(backend)
    if not own:
        raise NotFoundError(f"there is no store at {backend.url}", missing="store")
    check_deletable(backend)
    nodes = [keys.parse_node_key(key) for key in own if key.startswith(f"{keys.NODES}/")]
    steps, at = [name.step for name in nodes], {name.node: name.step for name in nodes}
    named = [markkeys.parse_tag_key(key) for key in own if key.startswith(f"{keys.NAMES}/")]
    pins = {node: by for node, who in pins_by_node(named, at).items() if (by := who - {markkeys.UNRETIRED})}
    report = RemoveReport(
        url=backend.url,
        dry_run=dry_run,
        states=len(steps),
        first=min(steps, default=None),
        last=max(steps, default=None),
        objects=len(own),
        nbytes=_bytes(backend, own),
        foreign=tuple(sorted(foreign)),
        pinned=tuple(sorted(at[node] for node in pins)),
        pinned_by=tuple(sorted({who for those in pins.values() for who in those} - {""})),
        tags=tuple(sorted({tag for tags in tags_by_node(named, at).values() for tag in tags})),
    )
    if not dry_run:
        _delete(backend, own, on_progress)
    return report


def _listed(backend: Backend) -> tuple[list[str], list[str]]:
    """Return the keys of what is there of a store, and the names of what is not its own."""
    foreign: list[str] = []
    found = backend.list("", foreign)
    own = [key for key in found if is_own(key)]
    return sorted(own), foreign + [key for key in found if not is_own(key)]


def _bytes(backend: Backend, own: Sequence[str]) -> int:
    """Return how many bytes there are; 0 where the target does not say: it may delete all the same."""
    try:
        return sum(lengths_of(backend, own).values())
    except LcstoreError:
        return 0


def _delete(backend: Backend, own: Sequence[str], on_progress: OnProgress | None) -> None:
    done = 0
    for folder in FOLDERS:
        found = [key for key in own if key.startswith(f"{folder}/")]
        for at in range(0, len(found), _BATCH):
            batch = found[at : at + _BATCH]
            backend.delete_many(batch)
            done += len(batch)
            if on_progress is not None:
                on_progress("deleting", done, len(own))
    left = [key for key in _listed(backend)[0] if key != keys.STORE_KEY]
    if left:
        raise ConflictError(
            f"{len(left)} objects were stored meanwhile, so a run is still writing: stop it, and delete the "
            "store again",
            key=left[0],
        )
    backend.delete(keys.STORE_KEY)
    bare = getattr(backend, "inner", backend)  # a directory that is waited for is one
    tidy: Callable[[Sequence[str]], None] | None = getattr(bare, "tidy", None)
    if tidy is not None:
        tidy(FOLDERS)
