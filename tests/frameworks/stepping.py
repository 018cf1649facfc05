"""One step of an optimizer from its own state, and one from the state that a store gives back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

POLICIES = ("high", "balanced", "small")
#: Steps that have been made when the state is saved.
SAVED = (1, 12)
#: So many steps are made after the last of them, and lead so near to where the exact state leads.
MORE, NEAR = 50, 0.5
SHAPES = ((48, 96), (160, 40))
#: A step from restored statistics may be that much larger than the exact one, and in its largest element:
#: Lamb scales a step to the size of the weights, and first moments below a bit are off by their own size.
SANE, LARGEST = 4.0, 6.0


def gradients(steps: int, seed: int = 0) -> Iterator[list[np.ndarray]]:
    """Yield gradients of very different sizes by row and by element, with rows that are seldom touched."""
    rng = np.random.default_rng(seed)
    sizes = [10.0 ** (rng.random(shape) * 4 - 6 + rng.random((shape[0], 1)) * 3) for shape in SHAPES]
    for _ in range(steps):
        touched = [(rng.random((len(size), 1)) < 0.3) | (np.arange(len(size)) < 4)[:, None] for size in sizes]
        yield [
            ((rng.standard_normal(size.shape) + 0.3) * size * rows).astype(np.float32)
            for size, rows in zip(sizes, touched, strict=True)
        ]


def weights(seed: int = 1) -> list[np.ndarray]:
    """Return weights to begin with."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(shape) * 0.05).astype(np.float32) for shape in SHAPES]


def assert_sane(step: np.ndarray, exact: np.ndarray) -> None:
    """Check a step of one tensor against the one that the exact statistics make."""
    assert np.isfinite(step).all()
    assert np.abs(step).max() <= LARGEST * np.abs(exact).max()
    assert np.linalg.norm(step) <= SANE * np.linalg.norm(exact)
