"""What JAX computes behind a loop that goes on, and waiting for it."""

from __future__ import annotations

import sys
from contextlib import suppress


def wait_for(state: object) -> bool:
    """Wait until JAX has computed all arrays of a state; return whether any are its own."""
    jax = sys.modules.get("jax")
    found = False
    with suppress(Exception):  # what it failed with is met where the arrays are read
        if jax is not None:
            found = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
            jax.block_until_ready(state)
    return found


def wait_for_all() -> None:
    """Wait until JAX has computed all arrays that are in use: where it has made none, this takes a GPU."""
    jax = sys.modules.get("jax")
    with suppress(Exception):
        if jax is not None:
            jax.block_until_ready(jax.live_arrays())
