"""Running jobs side by side, such that when one fails none is still at work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Executor, wait


def run_all(executor: Executor, jobs: Iterable[Callable[[], object]]) -> None:
    """Run jobs, and return when all are done.

    If one fails (or this thread is interrupted), those that have not begun are dropped, those at work are
    waited for, and then the first failure is raised: whoever handles it finds nothing moving any more.
    """
    futures = [executor.submit(job) for job in jobs]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        for future in futures:
            future.cancel()
        wait(futures)
    for future in futures:
        if not future.cancelled():
            future.result()
