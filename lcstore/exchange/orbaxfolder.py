"""Folders that Orbax writes, one for each step: trees of arrays of JAX."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import numpy as np

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.exchange.heldstate import Held
from lcstore.exchange.manifest import hosted

#: In the folder of a tree.
_TREE: Final = "_METADATA"
#: What a manager calls a tree that has no name.
_UNNAMED: Final = "default"


def read_orbax(path: str, where: str) -> Held:
    """Return what a folder holds: its tree, or the trees of its items by name.

    Raises
    ------
    InvalidInputError
        Orbax is not installed.
    CorruptionError
        It is no such folder, or damaged.
    """
    try:
        orbax = importlib.import_module("orbax.checkpoint")
    except ImportError as error:
        raise InvalidInputError(f"{where} takes Orbax: pip install orbax-checkpoint") from error
    folder = Path(path)
    items = [one.parent.name for one in sorted(folder.glob(f"*/{_TREE}"))]
    try:
        if (folder / _TREE).is_file():
            return Held(_tree(orbax, folder))
        state = {name: _tree(orbax, folder / name) for name in items}
    except Exception as error:
        text = str(error).strip().replace("\n", " ")
        raise CorruptionError(f"{where} is no whole folder of Orbax: {text:.200}") from error
    if not state:
        raise CorruptionError(f"{where} holds no tree of Orbax: nothing in it has a {_TREE}")
    return Held(state[_UNNAMED] if [*state] == [_UNNAMED] else state)


def _tree(orbax: Any, folder: Path) -> Any:
    """Return a tree, with arrays in the memory of this machine wherever they were."""
    import jax

    checkpointer = orbax.PyTreeCheckpointer()
    saved = checkpointer.metadata(folder.absolute()).item_metadata.tree
    here = {orbax.metadata.ArrayMetadata: orbax.RestoreArgs(restore_type=np.ndarray)}
    arguments = jax.tree.map(lambda leaf: here.get(type(leaf), orbax.RestoreArgs()), saved)
    tree = checkpointer.restore(folder.absolute(), restore_args=arguments)
    return jax.tree.map(_hosted, saved, tree)


def _hosted(saved: Any, leaf: Any) -> Any:
    """Return what was saved: an array of JAX says where it lay, one of numpy does not."""
    is_jax = isinstance(leaf, np.ndarray) and getattr(saved, "sharding", None) is not None
    return hosted(leaf, "jax") if is_jax else leaf
