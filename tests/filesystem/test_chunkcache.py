"""A cache of decoded chunks: decoded once, bounded, and by whoever is left where one fails."""

from __future__ import annotations

import contextlib
import sys
import threading

import numpy as np
import pytest

from lcstore.filesystem.chunkcache import ChunkCache


def made(keys):
    return [np.full(100, key, np.uint8) for key in keys]


def test_the_last_ones_are_held_up_to_a_bound():
    cache, asked = ChunkCache(300), []

    def make(keys):
        asked.extend(keys)
        return made(keys)

    for key in (1, 2, 3, 1, 4, 1, 2):  # 2 was the one asked for longest ago when 4 came
        assert cache.take([key], make)[key][0] == key
    assert asked == [1, 2, 3, 4, 2]
    assert [cache.lacks(key) for key in (1, 2, 3, 4)] == [False, False, True, False]


def test_one_that_is_larger_than_the_bound_is_held_alone():
    cache = ChunkCache(0)
    cache.take([1], made)
    assert not cache.lacks(1)
    assert cache.take([2, 3], made)[2][0] == 2
    assert [cache.lacks(key) for key in (1, 2, 3)] == [True, True, False]


def test_what_failed_is_tried_again():
    cache = ChunkCache(300)

    def fail(keys):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.take([1, 2], fail)
    assert cache.lacks(1)
    assert cache.take([1], made)[1][0] == 1


@pytest.mark.parametrize("where", range(1, 18))
def test_an_interrupt_leaves_no_claim_wherever_it_comes(where):
    """Whoever asked next for what was claimed waited for ever."""
    cache, seen = ChunkCache(300), set()

    def interrupt(frame, event, _):
        new = event == "line" and frame.f_code.co_name in ("take", "_make") and frame.f_lineno not in seen
        if new:  # a `with` is come by once more when it ends, where no interrupt of Python comes
            seen.add(frame.f_lineno)
            if len(seen) == where:
                sys.settrace(None)
                raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            cache.take([1], made)
    finally:
        sys.settrace(before)
    assert all(future.done() for future in cache._found.values())
    assert cache.take([1], made)[1][0] == 1


def test_who_waits_for_one_that_fails_decodes_it():
    cache, begun, end = ChunkCache(300), threading.Event(), threading.Event()
    outcome = []

    def fail(keys):
        begun.set()
        end.wait(10)
        raise MemoryError

    def first():
        try:
            cache.take([1], fail)
        except MemoryError:
            outcome.append("failed")

    def second():
        outcome.append(int(cache.take([1], made)[1][0]))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    begun.wait(10)
    threads[1].start()
    end.set()
    [thread.join(10) for thread in threads]
    assert sorted(map(str, outcome)) == ["1", "failed"]
