"""What metadata of a distributed checkpoint says is believed where it can be so, and nowhere else."""

from __future__ import annotations

import operator
import pickle
import shutil
import warnings
from itertools import pairwise, product
from pathlib import PosixPath
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.errors import CorruptionError, LcstoreError
from lcstore.exchange.dcpfolder import read_dcp
from lcstore.exchange.dcpplan import _is_covered, check_plan

pytestmark = pytest.mark.once


@pytest.fixture
def changed(tmp_path):
    """Change the metadata of a checkpoint by a function, and read it."""
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"a": torch.ones(30), "l": [torch.ones(3)]}, checkpoint_id=str(tmp_path / "step-3"))
    path = tmp_path / "step-3" / ".metadata"

    def read(change):
        metadata = pickle.loads(path.read_bytes())
        change(metadata)
        path.write_bytes(pickle.dumps(metadata))
        return read_dcp(str(tmp_path / "step-3"), "step-3").state

    return read


def test_what_no_shard_of_a_tensor_covers_is_not_taken_from_memory(changed):
    """It was imported as values of that tensor, and the outcome said that it was exact."""
    torch = pytest.importorskip("torch")

    def change(metadata):
        metadata.state_dict_metadata["a"].size = torch.Size([50])

    with pytest.raises(CorruptionError, match="shards of 'a' are not all of it"):
        changed(change)


def test_a_place_far_into_a_list_takes_no_memory(changed):
    def change(metadata):
        metadata.planner_data["l.0"] = ("l", 10**9)

    with pytest.raises(CorruptionError, match="nearly all of which is empty"):
        changed(change)


def test_no_path_that_says_two_things_names_a_file(changed, tmp_path):
    shutil.copy(tmp_path / "step-3" / "__0_0.distcp", tmp_path / "outside")

    class Two:
        def __reduce__(self):
            said = {"_str": "../outside", "_parts": ["__0_0.distcp"], "_drv": "", "_root": ""}
            return PosixPath, (), (None, said)

    def change(metadata):
        for item in metadata.storage_data.values():
            item.relative_path = Two()

    with pytest.raises(LcstoreError):
        changed(change)


def test_lists_with_some_holes_are_read():
    paths = {f"l.{at}": ("l", at) for at in range(0, 1000, 3)}
    check_plan(SimpleNamespace(state_dict_metadata={}, planner_data=paths), "here")


def box(first, sizes):
    return SimpleNamespace(offsets=list(first), sizes=list(sizes))


@st.composite
def tensors(draw):
    """The size of a tensor, and its shards: as a mesh of processes has them, some left out or moved."""
    size = draw(st.lists(st.integers(0, 6), max_size=3))
    borders = [sorted({0, side, *draw(st.lists(st.integers(0, side), max_size=2))}) for side in size]
    parts = [[(a, b - a) for a, b in pairwise(some)] for some in borders]
    boxes = [box(*zip(*corner, strict=True)) if corner else box((), ()) for corner in product(*parts)]
    boxes = [one for one in boxes if draw(st.integers(0, 9))]
    for one in boxes:
        if size and not draw(st.integers(0, 9)):
            axis = draw(st.integers(0, len(size) - 1))
            one.offsets[axis] += draw(st.integers(-2, 2))
            one.sizes[axis] = max(0, one.sizes[axis] + draw(st.integers(-2, 2)))
    return size, boxes


@given(tensors())
def test_shards_cover_a_tensor_or_not(drawn):
    """Against a twin that paints every element."""
    size, boxes = drawn
    painted, inside = np.zeros(size, bool), True
    for one in boxes:
        ends = [*map(operator.add, one.offsets, one.sizes)]
        inside &= min(one.offsets, default=0) >= 0 and all(map(operator.le, ends, size))
        painted[tuple(slice(max(at, 0), max(end, 0)) for at, end in zip(one.offsets, ends, strict=True))] = (
            True
        )
    assert _is_covered(size, boxes) == (inside and bool(painted.all()))
