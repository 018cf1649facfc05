"""The layouts of an edge's parts, put together into one that readers go by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lcstore.errors import CorruptionError
from lcstore.layout.layout import Layout, Part
from lcstore.layout.qualified import FIRST_PART, qualified
from lcstore.layout.shards import misfit
from lcstore.layout.specs import PoolSpec, TensorSpec
from lcstore.state.containers import (
    LEAF,
    TENSOR,
    Structure,
    open_structure,
    tied_to,
    to_structure,
    where,
)
from lcstore.state.names import Component, Name
from lcstore.state.torchobjects import Notes
from lcstore.state.tree import structure_names


def join(parts: Sequence[tuple[str, Layout]]) -> Layout:
    """Return one layout of the tensors of all parts.

    Its pools are those of the parts, each named after its part too (`qualified`), and its tensors follow
    those of the part before. So what an edge says of each tensor is what its parts say, one after another.

    Parameters
    ----------
    parts
        Name and layout of each part, in the order of the names. A single part 0 of whole tensors is its own
        joint layout.

    Raises
    ------
    CorruptionError
        Shards of a tensor overlap, leave gaps or differ in dtype, or what one part has for a container is
        something else in another.
    """
    (first, layout), *more = parts
    if not more and first == FIRST_PART and not any(spec.shard for spec in layout.tensors):
        return layout
    tensors: list[TensorSpec] = []
    pools: dict[str, PoolSpec] = {}
    joined: list[Part] = []
    structure: Structure = None
    notes = Notes({}, {})
    for name, layout in parts:
        joined.append(Part(name, layout, len(tensors)))
        tensors += [spec._replace(pool=qualified(name, spec.pool)) for spec in layout.tensors]
        for pool in layout.pools.values():
            pools[qualified(name, pool.name)] = replace(pool, name=qualified(name, pool.name))
        notes.made.update(layout.notes.made)
        notes.updates.update(layout.notes.updates)
        structure = layout.structure if structure is None else _merge(structure, layout.structure, ())
    found = Layout(structure, tuple(tensors), pools, tuple(joined), notes)
    _check_shards(found)
    return found


def leaf_places(layout: Layout) -> list[list[tuple[int, int]]]:
    """Return where each plain value of a joined layout is: which part, and which of that part's values."""
    _, names = structure_names(layout.structure)
    found: dict[Name, list[tuple[int, int]]] = {name: [] for name in names}
    for number, part in enumerate(layout.parts):
        for place, name in enumerate(structure_names(part.layout.structure)[1]):
            found[name].append((number, place))
    return list(found.values())


def _check_shards(layout: Layout) -> None:
    for places in layout.shards:
        specs = [layout.tensors[place] for place in places]
        name, shape = specs[0].name, specs[0].whole_shape
        if any((spec.whole_shape, spec.dtype) != (shape, specs[0].dtype) for spec in specs):
            raise CorruptionError(
                f"the shards of the tensor at {where(name)} are of tensors of other shapes or dtypes"
            )
        wrong = misfit(shape, [spec.box for spec in specs])
        if wrong is not None:
            raise CorruptionError(f"the shards of the tensor at {where(name)} {wrong}")


def _merge(one: Structure, other: Structure, path: Name) -> Structure:
    """Return a structure with all that two have."""
    if one == other:
        return one
    if any(node in (TENSOR, LEAF) or tied_to(node) is not None for node in (one, other)):
        raise CorruptionError(f"two parts have values of two kinds at {where(path)}")
    kind, keys, children = open_structure(one)
    other_kind, other_keys, other_children = open_structure(other)
    if kind != other_kind or (kind in ("list", "tuple") and len(keys) != len(other_keys)):
        raise CorruptionError(f"two parts have unlike containers at {where(path)}")
    found: dict[Component, Structure] = dict(zip(keys, children, strict=True))
    for key, child in zip(other_keys, other_children, strict=True):
        found[key] = _merge(found[key], child, (*path, key)) if key in found else child
    return to_structure(kind, list(found), list(found.values()))
