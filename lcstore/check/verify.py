"""Look at everything in a store and say what is wrong with it. Reads only, and goes on past what it finds."""

from __future__ import annotations

import math
import time
from typing import Final, get_args

from lcstore.check.examination import Examination
from lcstore.check.findings import Level, VerifyReport
from lcstore.check.objects import Sample
from lcstore.cluster.tasks import Client
from lcstore.errors import InvalidInputError
from lcstore.jobs.survey import OnProgress
from lcstore.storage.backend import Backend

#: How often a damaged store is looked at anew while a collector takes away what was listed.
_TRIES: Final = 3


def verify(
    backend: Backend,
    level: Level = "structure",
    on_progress: OnProgress | None = None,
    *,
    sample: tuple[int, int] = (1, 1),
    max_seconds: float | None = None,
    client: Client | None = None,
) -> VerifyReport:
    """Verify a store. Nothing in it is changed, and it may be in use meanwhile.

    Parameters
    ----------
    backend
        Where the store is.
    level
        Each includes those before. ``"structure"``: every record is read and checked against its name, and
        every object that a record lists is there with the right length. ``"checksum"``: every object is read
        too, and is what was committed. ``"decode"``: every frame is decoded. ``"restore"``: every edge leads
        from the digests of its base to those of its target, so every path to a state gives the same values.
        No more than a chunk for each processor is held at a time.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.
    sample
        ``(n, t)``: look at the n-th of t slices of the objects; t runs look at all. Records are always read.
    max_seconds
        Begin with no further object after this time. Records are always read.
    client
        A `distributed.Client`, of the Dask cluster that is to look at the objects, many in one task. They are
        looked at here if None; the records always are.

    Raises
    ------
    NotFoundError
        There is no store.
    StorageError
        The store could not be listed. (An object that cannot be read is a finding.)
    """
    check_level(level)
    number, of = sample
    if not 1 <= number <= of:
        raise InvalidInputError(f"sample is {sample!r}; it is (n, t), n being 1 to t")
    if max_seconds is not None and not max_seconds > 0:
        raise InvalidInputError(f"max_seconds is {max_seconds!r}; it is more than 0")
    began = time.perf_counter()
    until = math.inf if max_seconds is None else time.monotonic() + max_seconds
    for left in reversed(range(_TRIES)):
        examination = Examination(backend, level, on_progress, Sample(number, of), until, client)
        examination.look()
        report = examination.report(time.perf_counter() - began)
        if report.is_sound or not left or time.monotonic() >= until or not examination.store.is_overtaken():
            break
    return report


def check_level(level: str) -> None:
    """Refuse what is no level of verification."""
    if level not in get_args(Level):
        raise InvalidInputError(f"level is {level!r}; it is one of {', '.join(get_args(Level))}")
