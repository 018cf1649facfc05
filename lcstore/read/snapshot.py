"""A state, resolved once: what everything that looks at it is made from."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import RLock
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from lcstore.dtypes import dtype_from_name
from lcstore.errors import CorruptionError, FallbackWarning, InvalidInputError, NotFoundError
from lcstore.format.labels import check_choice
from lcstore.graph.refs import NodeName
from lcstore.index.info import StepInfo, step_info
from lcstore.read.convert import tree_of
from lcstore.read.lookup import as_name, names_of, part_for, part_of
from lcstore.read.node import Node
from lcstore.read.one import read_one
from lcstore.read.reader import Reader
from lcstore.read.resolved import Resolved
from lcstore.read.rest import rest
from lcstore.read.stream import Stream, choose, stream
from lcstore.state.frameworks import TARGETS
from lcstore.state.names import Component, Name, format_name
from lcstore.state.tree import Selection
from lcstore.storage.backend import Backend
from lcstore.warned import warn

T = TypeVar("T")

#: How often a state is looked for anew when a collector took something away meanwhile.
_TRIES: Final = 4


class Snapshot(Mapping[str, Any]):
    """One state of a store, looked at. Made by ``store[step]`` and ``store.at(step)``. Thread-safe.

    It is a mapping from the names of the state's tensors and plain values to the values. Each is read when
    it is asked for. The node, the path to it, and whether it gives exact values are settled when it is made.
    After that nothing is listed, unless something that it reads is missing or damaged. Then it looks for
    another path, which gives the same values. Reading what was let go of meanwhile is an error.

    Maintenance leaves it whole for a grace. What ``store.at(step, hold=True)`` returns is pinned for longer.
    It pickles as the address of the store, its storage options (credentials too), and the keys of the
    records that it needs. Unpickled in another process, it reads without a listing.

    Examples
    --------
    >>> snapshot = store[10]
    >>> list(snapshot)
    ['model/weight', 'epoch']
    >>> snapshot["epoch"]
    1
    >>> snapshot.sel["model/weight", :2].shape
    (2, 64)
    """

    def __init__(
        self, reader: Reader, name: NodeName, exact: bool | None = None, *, tried: bool = False
    ) -> None:
        self._reader = reader
        #: Whether it is one of several that are tried: errors do not say then what else can be read.
        self._tried = tried
        self._name = name
        self._lock = RLock()
        self._state: Resolved | None = Resolved(reader, name, exact)
        #: Whether it gives the exact value, if the node has one.
        self._exact = self._state.exact
        self._release: Callable[[], object] | None = None

    @property
    def name(self) -> NodeName:
        """The name that its node is listed by."""
        return self._name

    @property
    def step(self) -> int:
        """The training step."""
        return self._name.step

    @property
    def node(self) -> str:
        """The id of the node."""
        return self._name.node

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._reader.url

    @property
    def info(self) -> StepInfo:
        """What is recorded of the state."""

        def use(state: Resolved) -> StepInfo:
            record = state.node.record
            index = self._reader.index
            known = index.tags().get(self.node, ()) if index.is_listed else None
            return step_info(self.node, record, len(record.to_bytes()), known, inexact=state.let_go)

        return self.using(use)

    @property
    def nbytes(self) -> int:
        """Bytes of the state's tensors in memory."""
        return self.using(
            lambda state: sum(s.size * dtype_from_name(s.dtype).itemsize for s in state.node.layout.wholes)
        )

    def bytes_to_read(self, names: str | Sequence[str] | None = None) -> int:
        """Return the bytes of stored objects that the tensors under these names (or all) are read from."""
        objects = self.using(lambda it: it.objects_to_read(part_of(it.node, names, self.url).tensors))
        return sum(objects.values())

    # Names ----------------------------------------------------------------------------------------------

    def names(self, names: str | Sequence[str] | None = None) -> list[str]:
        """Return the names of the state's tensors, then those of its plain values; only those that match."""
        return self.using(lambda state: [*map(format_name, names_of(state.node, names, self.url))])

    def tensors(self) -> dict[str, tuple[tuple[int, ...], str, str]]:
        """Return shape, dtype and role of each tensor by its name."""

        def use(state: Resolved) -> dict[str, tuple[tuple[int, ...], str, str]]:
            layout = state.node.layout
            found = ((name, layout.wholes[place]) for name, place in layout.named.items())
            return {format_name(name): (spec.shape, spec.dtype, spec.role) for name, spec in found}

        return self.using(use)

    def set_anew(self) -> list[str]:
        """Return the names of the weights that are no delta: new, moved too far, or laid out afresh."""
        return self.using(lambda state: [*map(format_name, state.node.set_anew)])

    def updated(self) -> dict[str, list[str]]:
        """Return which tensors each optimizer of torch updates, by its name, in the order of its numbers."""
        return self.using(lambda state: {format_name(name): [format_name(tensor[0]) for tensor in tensors]
                                         for name, tensors in state.node.layout.updated.items()})  # fmt: skip

    def leaves(self) -> dict[str, object]:
        """Return the plain values by name, reading no tensor."""
        return self.using(
            lambda state: dict(zip(map(format_name, state.node.leaf_places), state.leaves, strict=True))
        )

    def __contains__(self, name: object) -> bool:
        """Return whether the state has a tensor or plain value of this name. Nothing is decoded."""
        if not isinstance(name, str | tuple):
            return False
        try:
            where = as_name(name)
        except InvalidInputError:
            return False
        return self.using(lambda state: where in state.node.layout.named or where in state.node.leaf_places)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    # Values ---------------------------------------------------------------------------------------------

    def read(self, name: str | Name, sel: Any = (), *, to: str = "saved") -> Any:
        """Return one tensor (or plain value), or a part of it, reading and decoding little else.

        Parameters
        ----------
        name
            ``"model/layers.0.weight"``, or a tuple of keys.
        sel
            What numpy takes as an index; a leading range of rows is decoded alone.
        to
            As for `Store.restore`.

        Raises
        ------
        NotFoundError
            The state has no such value, or it was let go of.
        CorruptionError
            What is stored is not what was committed; the message names the object.
        """
        where = as_name(name)
        return self.using(lambda state: read_one(state, where, sel, to))

    def __getitem__(self, name: str | Name) -> Any:
        """Return one tensor or plain value."""
        return self.read(name)

    @property
    def sel(self) -> Rows:
        """Parts of tensors by index: ``snapshot.sel["model/embed.weight", 3:9]``."""
        return Rows(self)

    def stream(
        self, names: str | Sequence[str] | None = None, *, to: str = "saved", ahead: int | None = None
    ) -> Stream:
        """Return an iterator of names and values; the next are decoded while the caller uses the first.

        A model can be used layer by layer before all of it is there, or filled without a second copy of it.
        Each value is what `tree` gives, bit for bit; a tensor with several names is one object. When the
        caller leaves the iterator (``break``, ``close()``), its work ends.

        Parameters
        ----------
        names
            As for `Store.restore`. Of a list, all that its first name means come first, and so on. Otherwise
            the order is that of `names`: tensors as they were saved, then plain values.
        to
            As for `Store.restore`.
        ahead
            Bytes of tensors that are held before they are asked for, at most; the next one is held in any
            case. The fewer there are, the more often a chunk is decoded again. If not given, so many that
            all threads have work: some chunks for each, of up to 64 MiB.

        Raises
        ------
        NotFoundError
            One of `names` matches nothing, or tensors were let go of: before anything is given.
        CorruptionError
            A value is not what was committed; raised when its turn comes.

        Examples
        --------
        >>> for name, value in store[10].stream("model"):
        ...     print(name, value.shape)
        model/weight (64, 64)
        """
        check_choice("to", to, TARGETS)
        if ahead is not None and not (isinstance(ahead, int) and ahead >= 0):
            raise InvalidInputError(f"ahead is a number of bytes, 0 or more, not {ahead!r:.100}")
        chosen = self.using(
            partial(choose, names=names if names is None or isinstance(names, str) else [*names])
        )
        return stream(self.using, chosen, to=to, ahead=ahead)

    def items(self) -> ItemsView[str, Any]:
        """Return all names with their values, which come as those of `stream` do."""
        return _Items(self)

    def tree(
        self,
        *,
        names: str | Sequence[str] | None = None,
        dtype: str | None = None,
        like: Any = None,
        to: str = "saved",
    ) -> Any:
        """Return the state or a part of it, as it was saved; parameters and errors as for `Store.restore`."""

        return self._tree(lambda node: part_of(node, names, self.url), dtype=dtype, like=like, to=to)

    def into(self, targets: Iterable[Component]) -> tuple[Snapshot, Any]:
        """Return itself and the state to load targets from; of a stripped one, they and what is whole."""
        return self, self._tree(lambda node: part_for(node, targets))

    def _tree(self, choose: Callable[[Node], Selection], **how: Any) -> Any:
        def use(state: Resolved) -> Any:
            part = choose(state.node)
            values = state.values(part.tensors)
            leaves = state.leaves if part.leaves else ()  # they may be an object of their own
            return tree_of(state.node, part, values, leaves, **how)

        return self.using(use)

    def using(self, use: Callable[[Resolved], T]) -> T:
        """Return what `use` makes of the state.

        It is tried again where maintenance changed the path meanwhile, and where another path leads around
        what is damaged (`FallbackWarning`).
        """
        damage: CorruptionError | None = None
        left = _TRIES
        while True:
            left -= 1
            state = self._resolved()
            try:
                state.check_same()
                found = use(state)
            except CorruptionError as error:
                if not (self._is_news(state) and left > 0):
                    self._check_not_going(error)
                    if not self._reader.index.avoid_damage(self.node, error.key):
                        if "`lcstore " not in error.message:
                            error.message += "" if self._tried else rest(state, error.key)
                            error.message += f"; `lcstore repair {self.url}` says what is lost"
                        raise
                    damage = damage or error
                self._forget(state)
                continue
            if damage is not None:
                message = f"the state was read over another path: {damage}; run `lcstore repair {self.url}`"
                warn(message, FallbackWarning)
            return found

    def _resolved(self) -> Resolved:
        """Return the state as it was resolved last, or resolve it as the last listing shows it."""
        self._reader.check_not_closed()
        if self._reader.process != os.getpid() and not self._is_in_memory:
            # A fork: neither locks nor threads nor connections came along.
            self._lock = RLock()
            self.__dict__.update(copy.deepcopy(self).__dict__)
        self._reader.check_open()
        with self._lock:
            if self._state is None:
                # A `NotFoundError` where it was collected, though its record be remembered.
                name = self._reader.index.name(self.node)
                self._state = Resolved(self._reader, name, self._exact)
            return self._state

    def _forget(self, state: Resolved) -> None:
        with self._lock:
            if self._state is state:
                self._state = None

    def _is_news(self, state: Resolved) -> bool:
        """List everything anew; return whether the state is to be read otherwise than it was."""
        index = self._reader.index
        return index.news(lambda: index.situation(self.node), state.situation)

    def _check_not_going(self, error: CorruptionError) -> None:
        """Refuse a retired state that a collector has begun to take away: that is no damage."""
        index = self._reader.index
        if self.node in index.graph.hidden and index.is_going(self.node):
            said = f"node {self.node} was retired, and what it needs is being collected"
            raise NotFoundError(f"{said}: it is too late to read it", missing="state") from error

    # Keeping and sending ----------------------------------------------------------------------------------

    def hold(self, release: Callable[[], object]) -> None:
        """Take over a pin: `release` takes it away."""
        self._release = release

    def release(self) -> None:
        """Take away the pin of a snapshot that is held; of others, and again, this does nothing."""
        release = self._release
        if release is not None:
            release()
            self._release = None  # not where that failed: it can be asked for again

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def _is_in_memory(self) -> bool:
        return self.url.startswith("memory:")

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_in_memory:
            raise InvalidInputError(
                f"a snapshot of {self.url} cannot be sent: no other process sees this one's memory. "
                "Use a store in a directory or a bucket"
            )
        with self._lock:
            state = self._state or Resolved(self._reader, self._name, self._exact)
        return _unpickled, (self._reader.backend, self._name, state.keys, self._exact)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<lcstore.Snapshot of step {self.step} in {self.url!r}, node {self.node}>"


class _Items(ItemsView[str, Any]):
    """Names and values of a snapshot."""

    _mapping: Snapshot

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return self._mapping.stream()


class Rows:
    """Indexes tensors of a snapshot: the name first, then what numpy takes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, index: Any) -> Any:
        """Return a part of a tensor."""
        if isinstance(index, str):
            return self._snapshot.read(index)
        if not isinstance(index, tuple) or not index or not isinstance(index[0], str):
            raise InvalidInputError("a part of a tensor is asked for by its name and an index: sel['w', 3:9]")
        return self._snapshot.read(index[0], index[1:])


def _unpickled(backend: Backend, name: NodeName, known: list[str], exact: bool) -> Snapshot:
    return Snapshot(Reader.alone(backend, known), name, exact)
