"""Prefixes that wrappers of a model put before the names of its parameters.

The same model is ``fc.weight``, ``module.fc.weight`` (DataParallel, DDP) or ``_orig_mod.fc.weight``
(`torch.compile`), by how it is wrapped when it is saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import Final, TypeVar

from lcstore.state.names import Name

T = TypeVar("T")

_PREFIX: Final = re.compile(
    r"(?<![^.])(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
#: What PEFT puts into names. An adapted model has more tensors: it is told of, and not seen through.
_ADAPTED: Final = re.compile(r"^base_model\.model\.|(?<=\.)base_layer\.")


def bare(text: str) -> str:
    """Return a dotted name without the prefixes of wrappers."""
    return _PREFIX.sub("", text)


def bare_name(name: Name) -> Name:
    """Return a name, its parts without the prefixes of wrappers."""
    return tuple([bare(part) if isinstance(part, str) and "." in part else part for part in name])


def renamed(saved: Mapping[str, T], wanted: Set[str]) -> dict[str, T] | None:
    """Return `saved` under the names that are `wanted`; None unless prefixes are all that sets them apart."""
    by_bare = {bare(name): name for name in wanted}
    found = {by_bare.get(bare(name), ""): value for name, value in saved.items()}
    return found if len(found) == len(saved) == len(by_bare) and found.keys() == wanted else None


def _unwrapped(name: Name) -> Name:
    bare = bare_name(name)
    return tuple([_ADAPTED.sub("", part) if isinstance(part, str) else part for part in bare])


def changed_prefixes(before: Iterable[Name], after: Iterable[Name]) -> list[tuple[Name, Name]]:
    """Return the names that went and came, each with the other, where wrappers are all that changed."""
    before, after = {*before}, {*after}
    gone = {_unwrapped(name): name for name in before - after}
    pairs = ((gone.get(_unwrapped(name)), name) for name in after - before)
    return sorted(((old, new) for old, new in pairs if old is not None), key=str)
