"""What a manager passes on is typed as where it goes, and looked at in every call."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import numpy as np
import pytest

import lcstore
import lcstore.typing
from lcstore.manager.options import Labels, RestoreOptions, ResumeOptions
from lcstore.storage.memory import MemoryBackend
from lcstore.store.opening import OpenOptions


@pytest.mark.parametrize(
    ("options", "function", "besides"),
    [
        (OpenOptions, lcstore.open, {"url"}),
        (Labels, lcstore.Store.save, {"self", "step", "state", "metrics"}),
        (ResumeOptions, lcstore.Store.resume, {"self", "at", "on_corrupt"}),
        (RestoreOptions, lcstore.Store.restore, {"self", "at"}),
    ],
)
def test_options_are_the_arguments_of_what_takes_them(options, function, besides):
    taken = {
        name: one.annotation
        for name, one in inspect.signature(function).parameters.items()
        if name not in besides
    }
    told = {name: getattr(hint, "__forward_arg__", hint) for name, hint in options.__annotations__.items()}
    assert told == taken


def test_a_label_that_no_save_takes_is_told_before_one_is_due():
    with lcstore.CheckpointManager(MemoryBackend.fresh(), every=10) as manager:
        manager.save(0, {"w": np.eye(3)})
        with pytest.raises(TypeError, match="no argument 'metadta'; it takes metadata="):
            manager.save(1, {"w": np.eye(3)}, metadta={"a": 1})


@pytest.mark.parametrize("background", [True, False])
def test_a_manager_calls_back_with_each_save_that_was_committed(background):
    told: list[lcstore.SaveInfo] = []
    backend = MemoryBackend.fresh()
    with lcstore.CheckpointManager(backend, every=2, background=background, on_saved=told.append) as manager:
        for step in range(6):
            manager.save(step, {"w": np.eye(3) * step})
        manager.wait_until_finished()
        assert [info.step for info in told] == [0, 2, 4] == manager.all_steps()
        manager.save(6, {"w": np.eye(3)})
    assert told[-1].step == 6


def test_types_of_signatures_are_to_be_had():
    assert all(hasattr(lcstore.typing, name) for name in lcstore.typing.__all__)
    assert get_type_hints(OpenOptions)["mode"] == lcstore.typing.OpenMode
