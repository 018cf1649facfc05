"""What is under way when the program ends: it is waited for in order, and its failure is told."""

import os
from weakref import WeakValueDictionary

import pytest

from lcstore.jobs import awaited


class Work(awaited.Awaited):
    def __init__(self, name: str, waited_for: list[str]) -> None:
        super().__init__()
        self.name, self.waited_for = name, waited_for

    def wait(self) -> None:
        self.waited_for.append(self.name)
        if self.name == "broken":
            raise OSError("no space left")


@pytest.fixture
def waited_for(monkeypatch) -> list[str]:
    monkeypatch.setattr(awaited, "_awaited", WeakValueDictionary())
    return []


def test_what_was_made_last_is_waited_for_first_and_a_failure_is_told(waited_for, caplog):
    kept = [Work(name, waited_for) for name in ("first", "broken", "last")]
    awaited._finish()
    assert waited_for == [work.name for work in reversed(kept)]
    assert [str(record.exc_info[1]) for record in caplog.records] == ["no space left"]


def test_what_is_gone_or_of_another_process_is_not_waited_for(waited_for, monkeypatch):
    Work("gone", waited_for)
    foreign = Work("foreign", waited_for)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    here = Work("here", waited_for)
    assert (foreign.is_foreign, here.is_foreign) == (True, False)
    awaited._finish()
    assert waited_for == ["here"]
