"""Folders that Orbax writes, one for each step: trees of arrays of JAX."""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from lcstore.errors import CorruptionError, InvalidInputError, UnrecognisedWarning
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.manifest import hosted
from lcstore.warned import warn

#: In the folder of a tree, of a JSON value, and of a manager's metrics.
_TREE: Final = "_METADATA"
_JSON: Final = "metadata"
_METRICS: Final = "metrics"
#: What says how each item was written; and the ways that are none of trees.
_HANDLERS: Final = "_CHECKPOINT_METADATA"
_OTHERS: Final = re.compile(r"(?:Array|Key)CheckpointHandler$")
#: What a manager calls a tree that has no name.
_UNNAMED: Final = "default"


def read_orbax(path: str, where: str) -> Checkpoint:
    """Return what a folder holds: its tree, or the trees and JSON values of its items by name; and metrics.

    Items of other kinds are left out, with an `UnrecognisedWarning` that names them.

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
    trees = [one.parent.name for one in sorted(folder.glob(f"*/{_TREE}")) if not _is_other(one.parent)]
    try:
        with _quiet():
            if (folder / _TREE).is_file():
                return Checkpoint(_tree(orbax, folder))
            state = {name: _tree(orbax, folder / name) for name in trees}
        values = {one.parent.name: json.loads(one.read_bytes()) for one in folder.glob(f"*/{_JSON}")}
        told = folder / _METRICS / _METRICS
        metrics = dict(json.loads(told.read_bytes())) if told.is_file() else {}
    except Exception as error:
        text = str(error).strip().replace("\n", " ")
        raise CorruptionError(f"{where} is no whole folder of Orbax: {text:.200}") from error
    state = values | state
    if not state:
        raise CorruptionError(f"{where} holds no tree of Orbax: nothing in it has a {_TREE}")
    known = {*state, *[_METRICS] * told.is_file()}
    left = sorted(one.name for one in folder.iterdir() if one.is_dir() and one.name not in known)
    if left:
        warn(f"{where}: left out, as no tree and no JSON value: {', '.join(left)}", UnrecognisedWarning)
    numbers = {name: value for name, value in metrics.items() if type(value) is float or _is_count(value)}
    return Checkpoint(state[_UNNAMED] if [*state] == [_UNNAMED] else state, metrics=numbers)


def _is_other(item: Path) -> bool:
    """Return whether an item is what Orbax writes like a tree, and is none: a single array, a random key."""
    try:
        handlers = json.loads((item.parent / _HANDLERS).read_bytes())["item_handlers"]
        return _OTHERS.search(str(handlers[item.name])) is not None
    except (OSError, ValueError, KeyError, TypeError):  # older versions say nothing of it
        return False


def _is_count(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 53


@contextmanager
def _quiet() -> Iterator[None]:
    """Have Orbax not warn that single items lack what is said of all together."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


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
