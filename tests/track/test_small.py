"""Small plain tensors are decided about together, and each as it would be by itself."""

import numpy as np
import pytest

from lcstore.edges.columns import ADD, KEEP, SET
from lcstore.layout.layout import make_layout
from lcstore.state.tree import flatten
from lcstore.track import decide
from lcstore.track.policy import PRESETS
from lcstore.track.track import Track

BALANCED = PRESETS["balanced"]


def states():
    """Yield saves of small tensors: still, moved a little, drawn anew; of several dtypes and sizes."""
    rng = np.random.default_rng(0)
    made = {}
    for size in (0, 1, 16, 128, 129):
        for dtype in (np.float16, np.float32, np.float64, np.int32, np.uint8, np.complex64):
            for number in range(12):
                made[f"{np.dtype(dtype)}.{size}.{number}"] = (100 * rng.standard_normal(size)).astype(dtype)
    for _ in range(4):
        yield made
        made = {name: array.copy() for name, array in made.items()}
        for number, array in enumerate(made.values()):
            if number % 3 == 1:
                array += np.ones(1, array.dtype)
            elif number % 3 == 2:
                array[:] = (100 * rng.standard_normal(array.size)).astype(array.dtype)


def columns_of(track):
    """Save the states; return the columns of each."""
    found = []
    for arrays in states():
        entries = [
            (path, host.array.shape, str(host.array.dtype), "plain", host.framework)
            for path, host in flatten(arrays).tensors
        ]
        layout = make_layout(flatten(arrays).structure, entries, track.layout)
        draft = track.draft(layout, [*arrays.values()], BALANCED, anchor=track.layout is None)
        for job in draft.jobs:
            job()
        draft.commit()
        found.append(draft.columns)
    return found


def test_small_tensors_are_decided_about_as_each_by_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decide, "_LEAST_SAVED", 0)  # the pools of these few tensors save less
    together = columns_of(Track())
    monkeypatch.setattr(decide, "_SMALL", 0)
    apart = columns_of(Track())
    assert {KEEP, ADD, SET} <= {*np.concatenate([columns.op for columns in together]).tolist()}
    for one, other in zip(together, apart, strict=True):
        assert one.to_bytes() == other.to_bytes()
