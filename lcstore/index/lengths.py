"""How long objects are, as the target tells it: of those that no record names, or where none is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from lcstore.errors import NotFoundError
from lcstore.jobs.survey import WORKERS, spread
from lcstore.storage.backend import Backend, told_lengths


def lengths_of(backend: Backend, wanted: Iterable[str]) -> dict[str, int]:
    """Return how long some objects are, by key; 0 of those that are gone by now.

    Of many in one folder a listing of it tells, on targets where it does. Few are asked for, all at once.
    """
    folders = defaultdict[str, list[str]](list)
    for key in wanted:
        folders[key.partition("/")[0]].append(key)
    told: dict[str, int] = {}
    for folder, found in folders.items():
        told |= told_lengths(backend, folder) if len(found) > WORKERS else {}

    def size(key: str) -> int:
        try:
            return told[key] if key in told else backend.size(key)
        except NotFoundError:
            return 0

    keys = [key for found in folders.values() for key in found]
    return dict(zip(keys, spread(size, keys), strict=True))
