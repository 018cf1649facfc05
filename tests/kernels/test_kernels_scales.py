"""Scales: the rule of steps, and runs of equal ones."""

from __future__ import annotations

import itertools

import numpy as np
import twins
from hypothesis import given
from hypothesis import strategies as st

from lcstore.frames.scales import scale_of, shift_of, step_size_of
from lcstore.kernels import scales


def test_every_scale_stands_for_the_same_step_everywhere():
    every = np.arange(256, dtype=np.int16)
    wanted = [twins.step_size_of(scale) for scale in range(256)]
    assert [step_size_of(scale) for scale in range(256)] == wanted
    small = [scale for scale in range(256) if shift_of(scale) < 60]  # the others leave 64 bits
    assert step_size_of(every[small].astype(np.int64)).tolist() == [wanted[scale] for scale in small]
    assert [int(scales.step_size_of(every[scale])) for scale in small] == [wanted[scale] for scale in small]
    assert [scale_of(odd, shift) for odd in (1, 3, 5, 7) for shift in range(64)] == list(range(256))


@given(st.lists(st.sampled_from([-3, 7, 7, 300]), max_size=50))
def test_runs_of_equal_values(values):
    found, lengths = np.zeros(len(values), np.int16), np.zeros(len(values), np.uint32)
    count = scales.equal_runs(np.array(values, np.int16), found, lengths)
    wanted = [(value, len(list(run))) for value, run in itertools.groupby(values)]
    assert list(zip(found[:count].tolist(), lengths[:count].tolist(), strict=True)) == wanted
