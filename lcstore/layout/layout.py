"""Which tensor lies where in which pool: pure data, made once and extended from state to state.

Tensors of one role and dtype lie end to end in one flat pool. A layout extends its parent: a tensor keeps its
place while shape, dtype and role stay, new tensors are appended, removed ones leave holes. So two states
that both have a tensor have it at the same place, and their pools can be added element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import LOSSY_DTYPES, dtype_from_name
from lcstore.errors import InvalidInputError
from lcstore.layout.layoutjson import check_places, read_layout, write_layout
from lcstore.layout.poolmap import Places, PoolMap
from lcstore.layout.shards import Shard
from lcstore.layout.specs import (
    POOL_ROLES,
    PoolSpec,
    TensorSpec,
    check_shape,
    chunk_elements,
    length_of_vector,
    pool_align,
    role_of,
)
from lcstore.limits import MAX_POOL_ELEMENTS, MAX_TENSORS, check
from lcstore.once import once
from lcstore.state.containers import Structure, where
from lcstore.state.frameworks import Framework
from lcstore.state.names import Name
from lcstore.state.roles import Role, is_optimizer
from lcstore.state.torchobjects import NO_NOTES, Notes
from lcstore.state.tree import Names, names_in

#: First word of a pool's name by role; the optimizer's plain values have another.
_POOL_PREFIX: Final[Mapping[Role, str]] = {
    role: word for word, role in POOL_ROLES.items() if word != "plain_optim"
}


class Entry(NamedTuple):
    """A tensor, or a shard of one, to find a place for. Of a tensor, any tuple of the first five will do."""

    name: Name
    shape: tuple[int, ...]
    dtype: str
    role: Role
    framework: Framework
    shard: Shard | None = None


class Part(NamedTuple):
    """A part of a joined layout: its name, its own layout, and the place of its first tensor."""

    name: str
    layout: Layout
    first: int


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
        By name, in the order in which they were created.
    parts
        The layouts that it was joined of, if any: see `lcstore.layout.join.join`. Its tensors are then
        those of all parts, one part after another, and not in the order of the structure.
    notes
        What is known of places in the structure besides.
    """

    structure: Structure
    tensors: tuple[TensorSpec, ...]
    pools: dict[str, PoolSpec]
    parts: tuple[Part, ...] = ()
    notes: Notes = NO_NOTES

    @once
    def names(self) -> Names:
        """The names in the structure."""
        return names_in(self.structure)

    @once
    def shards(self) -> tuple[tuple[int, ...], ...]:
        """The places in `tensors` that each tensor of the structure is made of, in its order."""
        if not self.parts:
            return tuple((place,) for place in range(len(self.tensors)))
        found: dict[Name, list[int]] = {name: [] for name in self.names.tensors}
        for place, spec in enumerate(self.tensors):
            found[spec.name].append(place)
        return tuple(map(tuple, found.values()))

    @once
    def wholes(self) -> tuple[TensorSpec, ...]:
        """The tensors of the structure, in its order; one of several shards has the place of the first."""
        if not self.parts:
            return self.tensors
        first = (self.tensors[places[0]] for places in self.shards)
        return tuple(spec._replace(shape=spec.whole_shape, shard=None) for spec in first)

    def stored(self, wholes: Iterable[int]) -> list[int]:
        """Return which of `tensors` some of `wholes` are made of."""
        return [*wholes] if not self.parts else [place for whole in wholes for place in self.shards[whole]]

    def put_together(self, values: Mapping[int, Array], wholes: Iterable[int]) -> dict[int, Array]:
        """Return flat values of some of `wholes`, given those of what they are made of."""
        if not self.parts:
            return {whole: values[whole] for whole in wholes}
        return {whole: self._put_together(values, whole) for whole in wholes}

    def _put_together(self, values: Mapping[int, Array], whole: int) -> Array:
        places = self.shards[whole]
        if len(places) == 1:
            return values[places[0]]
        out = np.empty(self.wholes[whole].shape, values[places[0]].dtype)
        for place in places:
            spec = self.tensors[place]
            here = tuple(slice(low, high) for low, high in spec.box)
            out[here] = values[place].reshape(spec.shape)
        return out.reshape(-1)

    @once
    def index(self) -> dict[Name, int]:
        """The position of each tensor among `wholes`, by name."""
        return {spec.name: place for place, spec in enumerate(self.wholes)}

    @once
    def named(self) -> dict[Name, int]:
        """The position among `wholes` by every name: a tensor that is tied has several."""
        return {**self.index, **{name: self.index[first] for name, first in self.names.ties.items()}}

    def names_of(self, spec: TensorSpec) -> list[Name]:
        """Return all names of a tensor."""
        return [spec.name, *self._others.get(spec.name, ())]

    @once
    def updated(self) -> dict[Name, list[list[Name]]]:
        """All names of each tensor that an optimizer updates, in its order, by the optimizer's name."""
        return {
            optimizer: [[name, *self._others.get(name, ())] for name in names]
            for optimizer, names in self.notes.updates.items()
        }

    @once
    def _others(self) -> dict[Name, list[Name]]:
        found: dict[Name, list[Name]] = {}
        for name, first in self.names.ties.items():
            found.setdefault(first, []).append(name)
        return found

    @once
    def places(self) -> Places:
        """Where the tensors lie."""
        return Places.of(self.tensors, self.pools)

    @once
    def maps(self) -> dict[str, PoolMap]:
        """The tensors of each pool in the order in which they lie, by the pool's name."""
        return self.places.maps(self.pools)

    @once
    def weights(self) -> Array:
        """Which tensors are weights: ``bool``, per tensor."""
        return self._each(lambda pool: pool.role == "weights", np.bool_)

    @once
    def plain(self) -> Array:
        """Which tensors are plain, with no exact value besides their track: ``bool``, per tensor."""
        return self._each(lambda pool: pool.role == "plain", np.bool_)

    @once
    def movable(self) -> Array:
        """Which tensors an edge may add to: ``bool``, per tensor."""
        return self._each(lambda pool: pool.is_movable, np.bool_)

    @once
    def spare_bits(self) -> Array:
        """By how many bits patterns of a plain tensor are shorter than a digest: ``uint64``; 0 of others."""
        return self._each(lambda pool: max(0, 64 - 8 * pool.itemsize) * (pool.role == "plain"), np.uint64)

    def within(self, pools: Container[str]) -> Array:
        """Return which tensors lie in pools of these names, of whatever part: ``bool``, per tensor."""
        return self._each(lambda pool: pool.stem in pools, np.bool_)

    def _each(self, say: Callable[[PoolSpec], Any], dtype: Any) -> Array:
        """Return what is said of the pool of each tensor."""
        return np.array([say(pool) for pool in self.pools.values()], dtype)[self.places.pool]

    def touched(self, pool: str, chunk: int) -> Array:
        """Return which tensors a chunk holds a piece of: ``bool``, per tensor; none of an unknown pool."""
        there: Array | list[int] = self.maps[pool].pieces(chunk).tensor if pool in self.maps else []
        return np.isin(np.arange(len(self.tensors)), there)

    def places_in(self, base: Layout) -> Array:
        """Return where another layout has each tensor at the same place: ``int64``, -1 where it has not."""
        if base is self:
            return np.arange(len(self.tensors))
        known = self._known_places.get(id(base))
        if known is not None and known[0]() is base:
            return known[1]
        places = np.array([base._by_place.get(spec.place, -1) for spec in self.tensors], np.int64)
        for gone in [key for key, (held, _) in list(self._known_places.items()) if held() is None]:
            self._known_places.pop(gone, None)
        self._known_places[id(base)] = ref(base), places
        return places

    def goes_on_from(self, base: Layout) -> Array:
        """Return which of `base.tensors` each tensor of the next state may go on from; -1 where none.

        None of a pool that is smaller than in the base: that was laid out afresh, and is set.
        """
        before = {name: pool.size for name, pool in base.pools.items()}
        afresh = self._each(lambda pool: pool.size < before.get(pool.name, 0), np.bool_)
        return np.where(afresh, -1, self.places_in(base))

    @once
    def _by_place(self) -> dict[Any, int]:
        return {spec.place: place for place, spec in enumerate(self.tensors)}

    @once
    def _known_places(self) -> dict[int, tuple[ref[Layout], Array]]:
        """The answers of `places_in`, which is asked once for each edge of a path."""
        return {}

    @once
    def entries(self) -> list[Entry]:
        """What was asked for when the layout was made."""
        return [Entry(s.name, s.shape, s.dtype, s.role, s.framework, s.shard) for s in self.tensors]

    def to_json(self) -> dict[str, Any]:
        """Return the layout as a JSON value, the same for equal layouts."""
        return write_layout(self.structure, self.tensors, self.pools, self.notes)

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
        structure, tensors, pools, notes = read_layout(value)
        found = cls(structure, tensors, pools, notes=notes)
        check_places(tensors, found.places, found.maps.values())
        return found


def make_layout(
    structure: Structure,
    entries: Iterable[tuple[Any, ...]],
    parent: Layout | None = None,
    *,
    fresh: bool = False,
    covered: Set[Role] = frozenset(),
    notes: Notes = NO_NOTES,
) -> Layout:
    """Return a layout with a place for every tensor.

    Parameters
    ----------
    structure
        That of the state, from `flatten`.
    entries
        One for each tensor of the structure, in its order: name, shape, dtype name, role, framework, and of a
        shard which one it is.
    parent
        The layout of the state before. A tensor of the same name, shape, dtype and role keeps its place (the
        framework may change), new ones are appended behind the parent's pool. A pool of which less than half
        would hold anything is laid out afresh.
    fresh
        Lay everything out anew: no holes, no place kept. For an anchor.
    covered
        Roles of the pools that have parity: new ones are cut into more chunks.
    notes
        Of `FlatState`.

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
    state = wanted, structure, notes
    if parent is not None and not fresh and state == (parent.entries, parent.structure, parent.notes):
        return parent
    wanted = [Entry(*entry) for entry in wanted]
    _check_entries(structure, wanted)
    layout = _grown(structure, wanted, parent if not fresh else None, frozenset(), covered)
    wasted = _wasted(layout)
    if wasted:
        layout = _grown(structure, wanted, parent, wasted, covered)
    layout = replace(layout, notes=notes)
    return parent if parent is not None and layout == parent else layout


def _check_entries(structure: Structure, entries: Sequence[Entry]) -> None:
    check(len(entries), MAX_TENSORS, "number of tensors")
    paths = names_in(structure).tensors
    if paths != [entry.name for entry in entries]:
        raise InvalidInputError("the entries are not the tensors of the structure, in its order")
    for path, shape, dtype, role, _, shard in entries:
        dtype_from_name(dtype)
        if role not in _POOL_PREFIX or (role != "plain" and dtype not in LOSSY_DTYPES):
            raise InvalidInputError(f"the {dtype} tensor at {where(path)} cannot have the role {role!r}")
        check_shape(shape)
        if shard is not None and not shard.fits(shape):
            raise InvalidInputError(f"the shard at {where(path)} does not lie within its tensor")


def _fits(before: TensorSpec, entry: Entry) -> bool:
    had = (before.shape, before.dtype, before.role, before.shard)
    return had == (entry.shape, entry.dtype, entry.role, entry.shard)


def _grown(
    structure: Structure,
    wanted: Sequence[Entry],
    parent: Layout | None,
    afresh: Set[str],
    covered: Set[Role],
) -> Layout:
    growth = _Growth(parent, afresh, covered)
    # What is alike is coded as one if it lies side by side.
    order = sorted(enumerate(wanted), key=lambda one: length_of_vector(one[1].role, one[1].shape))
    placed = sorted((number, growth.place(entry)) for number, entry in order)
    return Layout(structure, tuple([spec for _, spec in placed]), growth.pool_specs())


def _wasted(layout: Layout) -> set[str]:
    """Return the pools of which less than half holds a tensor."""
    used = dict.fromkeys(layout.pools, 0)
    for spec in layout.tensors:
        align = layout.pools[spec.pool].align
        used[spec.pool] += -(-spec.size // align) * align
    return {name for name, pool in layout.pools.items() if 2 * used[name] < pool.size}


class _Growth:
    """Pools while they grow; those of `afresh` begin anew, without what they were."""

    def __init__(self, parent: Layout | None, afresh: Set[str], covered: Set[Role]) -> None:
        self.parent = parent
        self.afresh = afresh
        self.covered = covered
        self.sizes = {name: pool.size for name, pool in parent.pools.items()} if parent else {}
        for name in afresh:
            del self.sizes[name]

    def place(self, entry: Entry) -> TensorSpec:
        path, shape, dtype, role, framework, shard = entry
        before = self._before(path)
        if before is not None and _fits(before, entry):
            return before if before.framework == framework else before._replace(framework=framework)
        prefix = "plain_optim" if role == "plain" and is_optimizer(path) else _POOL_PREFIX[role]
        pool = f"{prefix}-{dtype}"
        offset = self.sizes.get(pool, 0)
        align = pool_align(role)
        end = offset + -(-math.prod(shape) // align) * align
        self.sizes[pool] = check(end, MAX_POOL_ELEMENTS, f"number of elements of pool {pool}")
        return TensorSpec(path, shape, dtype, role, framework, pool, offset, shard)

    def _before(self, path: Name) -> TensorSpec | None:
        place = self.parent.index.get(path) if self.parent else None
        before = self.parent.tensors[place] if self.parent and place is not None else None
        return None if before is None or before.pool in self.afresh else before

    def pool_specs(self) -> dict[str, PoolSpec]:
        known = self.parent.pools if self.parent else {}
        specs = {}
        for name, size in self.sizes.items():
            dtype = name.partition("-")[2]
            covered = role_of(name) in self.covered
            new = chunk_elements(size, dtype, covered=covered)
            specs[name] = PoolSpec(name, dtype, size, known[name].chunk if name in known else new)
        return specs
