"""Which tensor lies where in which pool: pure data, made once and extended from state to state.

Tensors of one role and dtype lie end to end in one flat pool. A layout extends its parent: a tensor keeps its
place while shape, dtype and role stay, new tensors are appended, removed ones leave holes. So two states
that both have a tensor have it at the same place, and their pools can be added element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from lcstore.codec.dtypes import LOSSY_DTYPES, dtype_from_name
from lcstore.errors import InvalidInputError
from lcstore.limits import MAX_POOL_ELEMENTS, MAX_TENSORS, check
from lcstore.state.containers import Structure, where
from lcstore.state.frameworks import Framework
from lcstore.state.layoutjson import read_layout, write_layout
from lcstore.state.names import Name
from lcstore.state.roles import Role, is_optimizer
from lcstore.state.specs import (
    ALIGN,
    PLAIN_ALIGN,
    PoolSpec,
    TensorSpec,
    check_shape,
    chunk_elements,
    pool_align,
)
from lcstore.state.tree import structure_names

__all__ = ["ALIGN", "PLAIN_ALIGN", "Entry", "Layout", "PoolSpec", "TensorSpec", "make_layout"]

_POOL_PREFIX: Final[Mapping[Role, str]] = {
    "weights": "weights",
    "first_moment": "first",
    "second_moment": "second",
    "plain": "plain",
}


class Entry(NamedTuple):
    """A tensor that wants a place; any tuple of these five will do."""

    name: Name
    shape: tuple[int, ...]
    dtype: str
    role: Role
    framework: Framework


@dataclass(frozen=True)
class Layout:
    """Which tensor lies where.

    Attributes
    ----------
    structure
        The tree, as `flatten` made it. Its tensors are those of the layout, in order.
    tensors
        In the order of the structure.
    pools
        By name, in the order in which they were created. A pool that holds no tensor any more stays, with
        its size.
    """

    structure: Structure
    tensors: tuple[TensorSpec, ...]
    pools: dict[str, PoolSpec]

    @cached_property
    def index(self) -> dict[Name, int]:
        """Position in `tensors` by path."""
        return {spec.name: place for place, spec in enumerate(self.tensors)}

    @cached_property
    def entries(self) -> list[Entry]:
        """What was asked for when the layout was made."""
        return [Entry(spec.name, spec.shape, spec.dtype, spec.role, spec.framework) for spec in self.tensors]

    def to_json(self) -> dict[str, Any]:
        """Return the layout as a JSON value, the same for equal layouts."""
        return write_layout(self.structure, self.tensors, self.pools)

    @classmethod
    def from_json(cls, value: Any) -> Layout:
        """Return the layout that `to_json` made `value` of, validated completely.

        Raises
        ------
        CorruptionError
            `value` is no layout, tensors overlap or leave their pool, or names do not agree.
        UnsupportedFormatError, LimitError
            It is of another format, or a number is past its limit.
        """
        return cls(*read_layout(value))


def make_layout(
    structure: Structure,
    entries: Iterable[tuple[Any, ...]],
    parent: Layout | None = None,
    *,
    fresh: bool = False,
) -> Layout:
    """Give every tensor a place.

    Parameters
    ----------
    structure
        Of the state, from `flatten`.
    entries
        One for each tensor of the structure, in its order: path, shape, dtype name, role, framework.
    parent
        The layout of the state before. A tensor of the same path, shape, dtype and role keeps its place (the
        framework may change), new ones are appended behind the parent's pool.
    fresh
        Lay everything out anew: no holes, no place kept. For an anchor.

    Returns
    -------
    Layout
        The `parent` itself where nothing changed.

    Raises
    ------
    InvalidInputError
        The entries are not the tensors of the structure, or a role does not go with its dtype.
    LimitError
        A tensor or pool is too large.
    """
    wanted: list[Any] = list(entries)
    if parent is not None and not fresh and wanted == parent.entries and structure == parent.structure:
        return parent
    wanted = [Entry(*entry) for entry in wanted]
    _check_entries(structure, wanted)
    growth = _Growth(parent if not fresh else None)
    layout = Layout(structure, tuple([growth.place(entry) for entry in wanted]), growth.pool_specs())
    return parent if parent is not None and layout == parent else layout


def _check_entries(structure: Structure, entries: Sequence[Entry]) -> None:
    check(len(entries), MAX_TENSORS, "number of tensors")
    paths, _ = structure_names(structure)
    if paths != [entry.name for entry in entries]:
        raise InvalidInputError("the entries are not the tensors of the structure, in its order")
    for path, shape, dtype, role, _ in entries:
        dtype_from_name(dtype)
        if role not in _POOL_PREFIX or (role != "plain" and dtype not in LOSSY_DTYPES):
            raise InvalidInputError(f"the {dtype} tensor at {where(path)} cannot have the role {role!r}")
        check_shape(shape)


class _Growth:
    """Pools while they grow."""

    def __init__(self, parent: Layout | None) -> None:
        self.parent = parent
        self.sizes = {name: pool.size for name, pool in parent.pools.items()} if parent else {}

    def place(self, entry: Entry) -> TensorSpec:
        path, shape, dtype, role, framework = entry
        before = self._before(path)
        if before is not None and (before.shape, before.dtype, before.role) == (shape, dtype, role):
            if before.framework == framework:
                return before
            return TensorSpec(path, shape, dtype, role, framework, before.pool, before.offset)
        prefix = "plain_optim" if role == "plain" and is_optimizer(path) else _POOL_PREFIX[role]
        pool = f"{prefix}-{dtype}"
        offset = self.sizes.get(pool, 0)
        align = pool_align(role)
        end = offset + -(-math.prod(shape) // align) * align
        self.sizes[pool] = check(end, MAX_POOL_ELEMENTS, f"number of elements of pool {pool}")
        return TensorSpec(path, shape, dtype, role, framework, pool, offset)

    def _before(self, path: Name) -> TensorSpec | None:
        place = self.parent.index.get(path) if self.parent else None
        return self.parent.tensors[place] if self.parent and place is not None else None

    def pool_specs(self) -> dict[str, PoolSpec]:
        known = self.parent.pools if self.parent else {}
        specs = {}
        for name, size in self.sizes.items():
            dtype = name.partition("-")[2]
            chunk = known[name].chunk if name in known else chunk_elements(size, dtype)
            specs[name] = PoolSpec(name, dtype, size, chunk)
        return specs
