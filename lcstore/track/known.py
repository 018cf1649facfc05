"""What is remembered of one tensor of weights: how its updates go on, how large its rows are.

None of it is needed to read anything back. A handle that resumes begins with what the record says, the update
scales and the step sizes, and with a sample of what it goes on from.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.sample import follow_mean, shares
from lcstore.layout.specs import ALIGN
from lcstore.track import samples
from lcstore.track.smallrows import Norms
from lcstore.track.stepsizes import RISE, follow
from lcstore.track.steptable import MOST_FINER

#: Parts of a tensor, of whole blocks, that may have finer step sizes than the rest.
PARTS: Final = 256
#: Elements of the sample that a part has at least.
SAMPLED: Final = 64
#: A part whose own update scale is less than this part of the tensor's has a finer step size ...
FINER_BELOW: Final = 1 / 4
#: ... by at most so many octaves.
_MOST_BY_PART: Final = 10
#: The part's scale, as a share of the tensor's, falls by this much a save: rows touched now and then stay.
HOLD: Final = 0.8
#: The mean change of a tensor takes in so much of each.
_TAKEN: Final = 1 / 4
#: The first and the longest pause between two saves that set a tensor because it was pruned: each is twice
#: the one before.
_PAUSES: Final = 8, 64
#: So many deltas after an update scale has fallen it may rise at once to what it was before.
_REMEMBERED: Final = 3
#: After how many saves the residual of rows outside the sample is let in.
_LET_IN: Final = 32


class Known(NamedTuple):
    """What is remembered of a tensor. Its methods return what they found, and what is remembered then.

    Attributes
    ----------
    sample
        ``float64[n]``: what its sampled elements were at the last commit.
    norms
        What is known of its rows; None where nobody has looked at them.
    doubled
        How many times the error that rows may have was doubled, so that it costs little.
    still
        Saves that it has been still for, while some of it had not come in yet.
    calm
        Saves that it was still for, while nothing was left in the sample.
    shares
        ``float64``, by part: its update scale as a share of the tensor's, falling slowly; None before known.
    seen, mean
        Changes seen, and the mean of the later ones, all made as long; None before the first.
    pause, paused
        Saves until it may be set again because it was pruned, and how many these were at first.
    before, left
        What the update scale was before it fell, and for how many deltas it may rise to that at once. The
        first deltas of a handle may rise to anything.
    """

    sample: Array
    norms: Norms | None = None
    doubled: int = 0
    still: int = 0
    calm: int = 0
    shares: Array | None = None
    seen: int = 0
    mean: Array | None = None
    pause: int = 0
    paused: int = 0
    before: float = math.inf
    left: int = _REMEMBERED

    def follow(self, previous: float, moved: float, *, rows: bool) -> tuple[float, Known]:
        """Return the update scale as `stepsizes.follow` does, given what it was before it fell.

        Two saves may be close together, as one that is made because the machine goes, or the first after a
        resume, and those after them as far apart as ever. What there was before a resume is not known.
        """
        scale = follow(previous, moved, rows=rows, before=self.before)
        if scale * RISE < previous and self.before < math.inf:
            return scale, self._replace(before=max(self.before, previous), left=_REMEMBERED)
        if not self.left:
            return scale, self
        left = self.left - 1
        return scale, self._replace(before=self.before if left else 0.0, left=left)

    def pruned(self) -> Known:
        """Return what is remembered of a tensor that is set because it was pruned.

        Pruning may go on for hundreds of saves. Not each of them is to take what an anchor takes.
        """
        pause = min(max(2 * self.paused, _PAUSES[0]), _PAUSES[1])
        return self._replace(pause=pause, paused=pause)

    def rest(self, count: int, *, flushed: bool) -> tuple[Array, Known]:
        """Return for each block of a tensor that is still by how many octaves its step size is finer.

        Every other block is halved with each save, so that what is left of the residual comes in at less
        than a bit per element. Where nothing is left in the sample, rows outside it are being touched: they
        take the usual step size, and all is let in now and then.
        """
        blocks = np.arange(-(-count // ALIGN))
        if flushed:
            octaves = 0 if (self.calm + 1) % _LET_IN else MOST_FINER
            return np.full(blocks.size, octaves, np.int16), self._replace(calm=self.calm + 1)
        still = self.still + 1
        return np.minimum((still + blocks % 2) // 2, MOST_FINER).astype(np.int16), self._replace(still=still)

    def trend(self, change: Array, moved: float) -> tuple[float, Known]:
        """Return which part of a tensor's change goes on from save to save, 0 to 1; 0 before it is known.

        It is how far the mean of the changes before, in which noise averages out, leads to this one. It never
        asks what the track has of them.

        Parameters
        ----------
        change, moved
            What the sample changed by since the last save, and the root mean square of that.
        """
        if not 0 < moved < math.inf:  # a mean that took in what overflows would never be a number again
            return 0.0, self
        seen, mean = self.seen, self.mean
        if mean is None or mean.size != change.size:
            seen, mean = 0, np.zeros_like(change)
        after, out = np.empty_like(mean), np.empty(1)
        follow_mean(change, moved, _TAKEN, mean, after, out)
        full = 1 - (1 - _TAKEN) ** seen  # what a mean of so few has come to, of changes that are all alike
        part = max(0.0, min(1.0, float(out[0]) / (full * change.size))) if seen else 0.0
        return part, self._replace(seen=seen + 1, mean=after)

    def by_part(self, change: Array, moved: float, count: int) -> tuple[Array | None, Known]:
        """Return for each block of a tensor by how many octaves its step size is finer, if any is.

        Parameters
        ----------
        change, moved
            What the sample changed by since the last save, and the root mean square of that.
        count
            Elements of the tensor.
        """
        part_of_block, starts = parts_of(count, change.size)
        held = self.shares
        held = np.ones(starts.size) if held is None or held.size != starts.size else held.copy()
        after = self._replace(shares=held)
        if (moved > 0 and shares(change, starts, moved, HOLD, FINER_BELOW, held) == 0) or (
            held.min() >= FINER_BELOW
        ):
            return None, after
        octaves = np.ceil(np.log2(FINER_BELOW / np.maximum(held, 2.0**-_MOST_BY_PART * FINER_BELOW)))
        return np.maximum(octaves, 0).astype(np.int16)[part_of_block], after


@lru_cache(maxsize=256)
def parts_of(count: int, sampled: int) -> tuple[Array, Array]:
    """Return the part that each block of a tensor lies in, and where each part's sample begins."""
    blocks = -(-count // ALIGN)
    parts = min(PARTS, blocks, -(-sampled // SAMPLED))
    part_of_block = np.arange(blocks) * parts // blocks
    used, starts = np.unique(part_of_block[samples.positions(count) // ALIGN], return_index=True)
    # A short last block may hold no element of the sample: it goes with the part before.
    part_of_block = np.maximum(np.searchsorted(used, part_of_block, "right") - 1, 0)
    return part_of_block, starts
