"""Python's collector of garbage waits for blocks that make many objects, and goes on after them."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from lcstore.garbage import garbage_waits


@pytest.fixture(autouse=True)
def switched_on() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_it_waits_for_a_block_and_goes_on():
    with garbage_waits():
        assert not gc.isenabled()
        with garbage_waits():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_a_failure():
    with pytest.raises(KeyError), garbage_waits():
        raise KeyError
    assert gc.isenabled()


def test_blocks_of_several_threads_end_in_any_order():
    begun, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with garbage_waits():
            begun.set()
            may_end.wait(10)

    thread = threading.Thread(target=other)
    with garbage_waits():
        thread.start()
        begun.wait(10)
    assert not gc.isenabled()
    may_end.set()
    thread.join()
    assert gc.isenabled()


def test_one_that_somebody_has_switched_off_stays_off():
    gc.disable()
    with garbage_waits():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_block_that_was_left_at_no_end_holds_nothing_up():
    block = garbage_waits()
    block.__enter__()
    assert not gc.isenabled()
    del block  # as by an interrupt before its end
    with garbage_waits():
        pass
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:os.fork:RuntimeWarning")  # JAX may be there
def test_a_forked_process_does_not_wait_for_the_blocks_of_others():
    with garbage_waits():
        pid = os.fork()
        if not pid:
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(pid, 0)[1] == 0
