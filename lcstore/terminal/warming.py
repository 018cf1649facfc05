"""Compiling beforehand: a small run in memory calls the kernels that saving, reading and upkeep use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.lc import LCCodec
from lcstore.dtypes import LOSSY_DTYPES, dtype_from_name
from lcstore.jobs.survey import OnProgress
from lcstore.storage.memory import MemoryBackend
from lcstore.store.opening import open_store
from lcstore.track.policy import PRESETS

#: Saves of each run: a whole state, deltas, and enough of them to be merged.
_SAVES: Final = 6
#: Bits that levels take: as few as go four to a code, up to more than a code holds.
_BITS: Final = (1, 4, 8, 24)


def warm(on_progress: OnProgress | None = None) -> None:
    """Compile the kernels, into the cache that later processes read: about a minute, once.

    Parameters
    ----------
    on_progress
        Called with "compile", how many small runs are done, and how many there are.
    """
    runs = [(name, policy, False) for name in sorted(LOSSY_DTYPES) for policy in PRESETS]
    # Arrays that may not be written, such as those of JAX, have kernels of their own.
    runs += [(name, "balanced", True) for name in sorted(LOSSY_DTYPES)]
    for done, (name, policy, read_only) in enumerate(runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _run(dtype_from_name(name), policy, read_only)
        if on_progress is not None:
            on_progress("compile", done + 1, len(runs))


def _run(dtype: np.dtype[Any], policy: str, read_only: bool) -> None:
    """Save, read and look after a few states."""
    rng = np.random.default_rng(0)
    _code(rng, dtype)
    with open_store(MemoryBackend.fresh(), policy=policy, durability="all", grace=0) as store:
        for step, state in enumerate(_states(rng, dtype, read_only)):
            store.save(step, state, exact=step == _SAVES - 2)
        store.compact()
        store.restore(1)
        store.read(_SAVES - 1, "model/a.weight", sel=slice(3, 5))
        store.diff(0, _SAVES - 1)
        store.verify(level="restore")
        store.resume(2)
        store.save(_SAVES, state)
        store.save(_SAVES + 1, state)  # weights that rest


def _states(rng: np.random.Generator, dtype: np.dtype[Any], read_only: bool) -> Iterator[dict[str, Any]]:
    """Yield the states of a run in which weights move as they do in training, and as they seldom do."""
    weight = rng.standard_normal((96, 64)).astype(np.float32)
    table = rng.standard_normal((512, 32)).astype(np.float32)
    square, far = np.square(weight), weight.astype(np.float64)

    def given(array: Array) -> Array:
        array = array.astype(dtype)
        array.flags.writeable = not read_only
        return array

    for step in range(_SAVES):
        move = rng.standard_normal(weight.shape).astype(np.float32)
        weight = weight + move * np.float32(1e-3)
        rows = rng.integers(0, len(table), 20)
        table[rows] += rng.standard_normal((20, table.shape[1])).astype(np.float32) * np.float32(1e-2)
        square = square * np.float32(0.9) + np.square(move) * np.float32(0.1)
        # Values far apart: few of them are on the scale of the others.
        apart = move * np.logspace(-20, 4, move.shape[1], dtype=np.float32)
        # Strides that grow: the sums of a merge are wide.
        far = far + move * 1e-3 * 4.0**step
        moments = {0: {"exp_avg": given(move), "exp_avg_sq": given(square)}}
        moments[1] = {"exp_avg": given(apart), "exp_avg_sq": given(np.square(apart))}
        yield {
            "model": {"a.weight": given(weight), "embedding.weight": given(table), "far.weight": given(far)},
            "optim": {"state": moments},
            "ids": np.arange(step, step + 64),
            "mask": weight[0] > 0,
        }


def _code(rng: np.random.Generator, dtype: np.dtype[Any]) -> None:
    """Code values of every width of levels: which of them a run has, nobody knows beforehand."""
    values = rng.standard_normal(4096)
    for bits, near in product(_BITS, (values, values * np.exp2(rng.integers(-8, 8, values.size)))):
        for codec in (LCCodec(bits=bits), LCCodec("log", bits=min(bits, 7))):
            codec.decode(codec.encode(np.abs(near).astype(dtype)))
    smooth = values.reshape(64, 64).cumsum(axis=0).cumsum(axis=1)
    masked = smooth.copy()
    masked[20:30, 20:30] = np.nan
    codecs = LCCodec(step_size=0.25), LCCodec(max_error=1.0), LCCodec(max_error=2.0**-28)
    for codec, field in product(codecs, (smooth, masked)):
        codec.decode(codec.encode(field.astype(dtype)))
    # What bit patterns differ by, and other integers: most of them few bits, or many; some of them zero.
    lossless, sparse = LCCodec("lossless"), rng.random(values.size) < 1 / 32
    for wide, part in product((5, 8 * dtype.itemsize - 4), (1, sparse)):
        integers = np.rint(values * np.exp2(wide - 3) * part).astype(f"i{dtype.itemsize}")
        lossless.decode(lossless.encode(integers))
