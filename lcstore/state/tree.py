"""A nested state to a flat list of tensors and one of plain values, and back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.limits import MAX_TENSORS, MAX_TREE_DEPTH, check
from lcstore.once import once
from lcstore.state.containers import (
    LEAF,
    TENSOR,
    Container,
    Structure,
    open_object,
    open_structure,
    tie_to,
    tied_to,
    to_object,
    to_structure,
    walk_structure,
    where,
)
from lcstore.state.cures import NAMESPACES, Refused
from lcstore.state.frameworks import (
    HostArray,
    is_array,
    is_instance,
    is_variable,
    memory_of,
    to_host,
    value_of,
)
from lcstore.state.leaves import Leaf, is_leaf
from lcstore.state.names import Name
from lcstore.state.roles import Role
from lcstore.state.roles import is_optimizer as in_optimizer
from lcstore.state.torchobjects import (
    Notes,
    is_made,
    is_optimizer,
    made_of,
    parameters_of,
    parts_of,
    roles_said,
)


class _Missing:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"


#: Stands for a tensor that is not there: `unflatten` leaves its place out.
MISSING: Final = _Missing()
_EMPTY: Final[Structure] = ["dict", [], []]
_END: Final = object()


@dataclass(slots=True)
class FlatState:
    """A state, taken apart.

    Attributes
    ----------
    structure
        A JSON value: everything about the state but its values. Equal for equal trees of equal kinds.
    tensors
        Name and values of each tensor, in the order of the structure.
    leaves
        The plain values, in the order of the structure.
    types
        What named tuples and other objects with fields are called, by their place. Not stored.
    counted
        The places that have a plain number called ``count``. Not stored.
    ties
        Further names of tensors, each with the one under which the tensor is among `tensors`.
    said
        What modules of torch say that their tensors are, by name; names of no tensor may be among them.
    notes
        What makes tensors of their parts again, and which tensors optimizers update.
    """

    structure: Structure = None
    tensors: list[tuple[Name, HostArray]] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    types: dict[Name, str] = field(default_factory=dict)
    counted: set[Name] = field(default_factory=set)
    ties: dict[Name, Name] = field(default_factory=dict)
    said: dict[Name, Role] = field(default_factory=dict)
    notes: Notes = field(default_factory=lambda: Notes({}, {}))


class Selection(NamedTuple):
    """Part of a structure, and which tensors and plain values (by position in the whole) belong to it."""

    structure: Structure
    tensors: list[int]
    leaves: list[int]


def flatten(state: Any, *, fetch: bool = True) -> FlatState:
    """Take `state` apart; values on GPUs are left there without `fetch`.

    A state is any nesting of dicts, lists and tuples with arrays and plain values (int, float, complex, str,
    bytes, bool, None) as leaves; it may also be one such leaf. Named tuples, dataclass instances, other
    mappings and objects with ``state_dict()`` are taken as dicts and come back as dicts; `OrderedDict` comes
    back as itself, subclasses of list and tuple as list and tuple. The same tensor at two places
    (tied weights: the same elements of the same memory) is one tensor with two names; but not where one
    of them lies in an optimizer and the other does not, since an optimizer's can be let go of by themselves.

    Raises
    ------
    InvalidInputError
        Something is none of these, a key is neither string nor 64-bit integer, or a container holds itself.
        The message says where it lies.
    LimitError
        Nesting or number of leaves is past the limits.
    """
    flat = FlatState()
    flattener = _Flattener(flat, fetch)
    flat.structure = flattener.take(state, ())
    flattener.refused.check()
    flattener.note_updated()
    return flat


class _Flattener:
    """One walk over a live state."""

    def __init__(self, flat: FlatState, fetch: bool) -> None:
        self.flat = flat
        self.fetch = fetch
        self.open: set[int] = set()
        self.count = 0
        #: The first name of each piece of memory, and what keeps that from being used for something else.
        self.first: dict[tuple[Hashable, bool], Name] = {}
        self.alive: list[Any] = []
        self.optimizers: list[tuple[Name, list[Any]]] = []
        self.refused = Refused()

    def take(self, obj: Any, path: Name) -> Structure:
        self.count += 1
        if self.count > MAX_TENSORS:
            # Also what ends a small tree of shared lists that would unfold into 2**64 leaves.
            check(self.count, MAX_TENSORS, "number of values in the state")
        if type(obj) is np.ndarray:  # first, as states hold more of these than of anything else
            return self.tensor(obj, path)
        if is_instance(obj, "torch", "Tensor"):  # and of these
            return self.made(obj, path) if is_made(obj) else self.tensor(obj, path)
        if is_leaf(obj):
            self.flat.leaves.append(obj)
            if path and path[-1] == "count":
                self.flat.counted.add(path[:-1])
            return LEAF
        if is_variable(obj):
            return self.take(value_of(obj), path)
        if is_array(obj):
            return self.tensor(obj, path)
        return self.container(obj, path)

    def made(self, obj: Any, path: Name) -> Structure:
        """Take the parts of a tensor that is made of others: they are no weights, whatever it is."""
        try:
            self.flat.notes.made[path] = made_of(obj)
        except InvalidInputError as exc:
            self.refused.tensor(None, where(path), exc)
            return LEAF
        parts = parts_of(obj)
        self.flat.said.update({(*path, key): "plain" for key in parts})
        return self.children(Container("dict", [*parts], [*parts.values()]), path)

    def tensor(self, obj: Any, path: Name) -> Structure:
        try:
            host = to_host(obj, fetch=self.fetch)
        except InvalidInputError as exc:
            self.refused.tensor(obj, where(path), exc)
            return LEAF
        memory = memory_of(obj)
        if memory is not None:
            first = self.first.setdefault((memory, in_optimizer(path)), path)
            if first is not path:
                self.flat.ties[path] = first
                return tie_to(first)
            self.alive.append(obj)
        self.flat.tensors.append((path, host))
        return TENSOR

    def container(self, obj: Any, path: Name) -> Structure:
        if id(obj) in self.open:
            raise InvalidInputError(f"the container at {where(path)} holds itself")
        if len(path) >= MAX_TREE_DEPTH:
            check(len(path) + 1, MAX_TREE_DEPTH, f"nesting of the state at {where(path[:4])}...")
        found = open_object(obj, path)
        if found is None:
            self.refused.other(obj, where(path))
            return self.take(vars(obj), path) if isinstance(obj, NAMESPACES) else LEAF
        if found.kind == "dict" and not isinstance(obj, Mapping):
            self.flat.types[path] = type(obj).__name__
        if is_instance(obj, "torch.nn", "Module"):
            self.flat.said.update(((*path, key), role) for key, role in roles_said(obj).items())
        if is_optimizer(obj):
            self.optimizers.append((path, parameters_of(obj)))
        self.open.add(id(obj))
        structure = self.children(found, path)
        self.open.discard(id(obj))
        return structure

    def children(self, found: Container, path: Name) -> Structure:
        children = [
            self.take(child, (*path, key)) for key, child in zip(found.keys, found.children, strict=True)
        ]
        return to_structure(found.kind, found.keys, children)

    def note_updated(self) -> None:
        """Note which tensors each optimizer updates, where all of them are in the state."""
        for path, parameters in self.optimizers:
            places = [(memory_of(parameter), False) for parameter in parameters]
            if all(place in self.first for place in places):
                self.flat.notes.updates[path] = tuple([self.first[place] for place in places])


def unflatten(structure: Structure, tensors: Sequence[Any], leaves: Sequence[Any]) -> Any:
    """Put a state together again.

    Parameters
    ----------
    structure
        As `flatten` or `select` made it. It is taken as untrusted.
    tensors, leaves
        One object for each tensor and plain value of the structure, in its order. Where a tensor is
        `MISSING` its place is left out, by the rules of `select`.

    Raises
    ------
    CorruptionError
        The structure is malformed, or does not have as many tensors and plain values as are given.
    LimitError
        The structure is nested too deeply.
    """
    builder = _Builder(structure, tensors, leaves)
    state = builder.build(structure, 0)
    if next(builder.tensors, _END) is not _END or next(builder.leaves, _END) is not _END:
        raise CorruptionError("there are more tensors or plain values than the tree structure has places")
    return {} if state is MISSING else state


class _Builder:
    """One walk over a stored structure."""

    def __init__(self, structure: Structure, tensors: Sequence[Any], leaves: Sequence[Any]) -> None:
        self.structure = structure
        self.given = tensors
        self.tensors = iter(tensors)
        self.leaves = iter(leaves)

    @once
    def by_name(self) -> dict[Name, Any]:
        """The tensors by name, for those that are tied to them."""
        return dict(zip(names_in(self.structure).tensors, self.given, strict=False))

    def build(self, node: Structure, depth: int) -> Any:
        if node in (TENSOR, LEAF):
            try:
                return next(self.tensors if node == TENSOR else self.leaves)
            except StopIteration:
                raise CorruptionError(f"the tree structure has more places than there are {node}s") from None
        tied = tied_to(node)
        if tied is not None:
            if tied not in self.by_name:
                raise CorruptionError("the tree structure has more places than there are tensors")
            return self.by_name[tied]
        check(depth, MAX_TREE_DEPTH - 1, "depth of a stored tree structure")
        kind, keys, nodes = open_structure(node)
        children = [self.build(child, depth + 1) for child in nodes]
        if not any(child is MISSING for child in children):
            return to_object(kind, keys, children)
        kept = {key: child for key, child in zip(keys, children, strict=True) if child is not MISSING}
        if not kept:
            return MISSING
        return to_object("odict" if kind == "odict" else "dict", list(kept), kept.values())


class Names(NamedTuple):
    """The names in a structure, each in its order: of tensors, of plain values, and more of tensors.

    `ties` has each of those with the one that is among `tensors`.
    """

    tensors: list[Name]
    leaves: list[Name]
    ties: dict[Name, Name]

    @property
    def places(self) -> dict[Name, int]:
        """The place among `tensors` of what each of their names is of, further ones last."""
        places = {name: place for place, name in enumerate(self.tensors)}
        return places | {name: places[first] for name, first in self.ties.items()}


def names_in(structure: Structure) -> Names:
    """Return the names in a structure.

    Raises
    ------
    CorruptionError, LimitError
        As for `unflatten`; or a name is tied to something that is no tensor.
    """
    found = Names([], [], {})

    def visit(path: Name, node: Structure) -> None:
        tied = tied_to(node)
        if tied is not None:
            found.ties[path] = tied
        elif isinstance(node, str):
            (found.tensors if node == TENSOR else found.leaves).append(path)

    walk_structure(structure, visit)
    if found.ties and not {*found.ties.values()} <= {*found.tensors}:
        raise CorruptionError("a stored tree structure ties a name to something that is no tensor")
    return found


def structure_names(structure: Structure) -> tuple[list[Name], list[Name]]:
    """Return the names of the tensors and of the plain values of a structure, as `names_in` does."""
    names = names_in(structure)
    return names.tensors, names.leaves


def select(structure: Structure, predicate: Callable[[Name], bool]) -> Selection:
    """Return the part of a structure whose names satisfy `predicate`.

    The predicate is asked for each tensor, plain value and empty container. A container that loses all of
    its items is dropped; a list or tuple that loses some becomes a dict from the place to the item, so
    that what is left keeps its name. If nothing is left, the structure is that of an empty dict. Of the names
    of one tensor the first that is left has it, and the others are tied to that.
    """
    selector = _Selector(structure, predicate)
    pruned = selector.prune(structure, ())
    return Selection(_EMPTY if pruned is None else pruned, selector.tensors, selector.leaves)


class _Selector:
    """One walk over a structure of which a part is kept."""

    def __init__(self, structure: Structure, predicate: Callable[[Name], bool]) -> None:
        self.structure = structure
        self.predicate = predicate
        self.tensors: list[int] = []
        self.leaves: list[int] = []
        self.seen = {TENSOR: 0, LEAF: 0}
        #: Of tensors that are kept, the name under which they are.
        self.kept: dict[int, Name] = {}

    @once
    def places(self) -> dict[Name, int]:
        """The place of each tensor by name, for those that are tied to them."""
        return names_in(self.structure).places

    def prune(self, node: Structure, path: Name) -> Structure | None:
        """Return what is kept of a node; None if nothing is."""
        tied = tied_to(node)
        if tied is not None:
            return self._tensor(self.places[tied], path) if self.predicate(path) else None
        if node in (TENSOR, LEAF):
            place = self.seen[node]
            self.seen[node] += 1
            if not self.predicate(path):
                return None
            if node == TENSOR:
                return self._tensor(place, path)
            self.leaves.append(place)
            return node
        check(len(path), MAX_TREE_DEPTH - 1, "depth of a stored tree structure")
        kind, keys, nodes = open_structure(node)
        if not nodes:
            return node if self.predicate(path) else None
        children = {
            key: child
            for key, node in zip(keys, nodes, strict=True)
            if (child := self.prune(node, (*path, key))) is not None
        }
        if not children:
            return None
        if len(children) < len(nodes) and kind != "odict":
            kind = "dict"
        return to_structure(kind, list(children), list(children.values()))

    def _tensor(self, place: int, path: Name) -> Structure:
        first = self.kept.setdefault(place, path)
        if first is not path:
            return tie_to(first)
        self.tensors.append(place)
        return TENSOR
