"""How far a state has moved since the last commit: what tells whether it is worth a save."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_name
from lcstore.edges.grid import same_bits
from lcstore.layout.specs import TensorSpec
from lcstore.state.names import Name
from lcstore.track import samples
from lcstore.track.held import Held


def moved(held: Held, arrays: Mapping[Name, Array]) -> float:
    """Return how far weights have moved since the last commit, in updates from commit to commit.

    The root mean square of the change over that of the updates, both over all weights and taken from
    samples (the trigger of SPARQ-SGD, Singh, Data, George, Diggavi 2019, on checkpoints).

    Parameters
    ----------
    held
        What the last commit left.
    arrays
        Flat tensors by name.

    Returns
    -------
    float
        0 where nothing moved. Infinity where that cannot be said: tensors came, went or changed their size
        or dtype, a value is not finite, weights that are plain changed, or no update scale is known
        yet, as until the second commit.
    """
    layout, columns = held.layout, held.columns
    if layout is None or columns is None or arrays.keys() != layout.index.keys():
        return math.inf
    # What moved further once, than it usually does, still usually moves as far as its update scale says.
    change, usual, movement = 0.0, 0.0, np.minimum(columns.movement, columns.scale).tolist()
    for index, spec in enumerate(layout.tensors):
        flat, last = arrays[spec.name], held.known.get(spec.name)
        if flat.size != spec.size or dtype_name(flat.dtype) != spec.dtype:
            return math.inf
        if _plain_weights(spec) and not same_bits(flat, held.of(spec)):
            return math.inf
        if spec.role != "weights" or not spec.size:
            continue
        if last is None:
            return math.inf
        now = samples.take(flat)
        if not np.isfinite(now).all():
            return math.inf
        change = math.hypot(change, math.sqrt(spec.size) * samples.rms(now - last.sample))
        usual = math.hypot(usual, math.sqrt(spec.size) * movement[index])
    if change == 0:
        return 0.0
    return change / usual if usual > 0 else math.inf


def _plain_weights(spec: TensorSpec) -> bool:
    """Return whether a plain tensor looks like weights, as a count of steps does not."""
    return spec.role == "plain" and len(spec.shape) > 1 and not np.issubdtype(spec.dtype, np.integer)
