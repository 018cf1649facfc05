"""Restoring and looking: whatever does not move the base of the next save."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from lcstore.errors import CorruptionError, FallbackWarning, NotFoundError
from lcstore.format.labels import At, OnCorrupt, check_at, check_choice
from lcstore.index.info import StepInfo, step_info
from lcstore.index.listing import Listed, list_states
from lcstore.read.convert import TARGETS, fill, patterns, shaped
from lcstore.read.diff import Compared, Diff, compare, compared
from lcstore.read.handle import Handle
from lcstore.read.into import check_targets, load_into, rest_of
from lcstore.read.metrics import best_of
from lcstore.read.reader import Node, box_window
from lcstore.read.view import StepView
from lcstore.read.walk import Walk, Walker, stops
from lcstore.state.layout import Layout
from lcstore.state.names import Component, Name, format_name, matcher, parse_name
from lcstore.state.tree import MISSING, Selection, select, structure_names, unflatten
from lcstore.storage.survey import OnProgress

T = TypeVar("T")


class Looking(Handle):
    """The methods of `lcstore.Store` that read."""

    def restore(
        self,
        at: At = None,
        *,
        keys: str | Sequence[str] | None = None,
        dtype: str | None = None,
        like: Any = None,
        to: str = "numpy",
        on_corrupt: OnCorrupt = "raise",
    ) -> Any:
        """Return a saved state. This never moves the base of the next save.

        Parameters
        ----------
        at
            A step (its newest revision), ``"latest"`` (the default), a tag, or a node's id.
        keys
            Name globs of what to return: ``"model/**"``. A list that is returned in part comes as a dict.
        dtype
            Cast floating tensors to this.
        like
            A tree (of tensors, real or abstract): the result has its types, devices and dtypes.
        to
            ``"numpy"``; ``"torch"``, ``"jax"``; ``"saved"`` for each tensor as it came.
        on_corrupt
            ``"raise"``; ``"previous"`` gives the newest earlier state that is whole, and warns
            (`FallbackWarning`).

        Raises
        ------
        NotFoundError
            There is no such state.
        CorruptionError
            What is stored is not what was committed; the message names the object.
        """
        chosen = patterns(keys)

        def use(node: Node) -> Any:
            part = select(node.layout.structure, matcher(chosen))
            values = self._reader.values(node, part.tensors)
            return self._tree(node, values, part.structure, part.tensors, part.leaves, dtype, like, to)

        return self._reading_or_previous(at, use, on_corrupt)

    def _reading_or_previous(self, at: At, use: Callable[[Node], T], on_corrupt: OnCorrupt) -> T:
        check_choice("on_corrupt", on_corrupt, get_args(OnCorrupt))
        try:
            return self._reading(at, use)
        except CorruptionError as error:
            if on_corrupt == "raise":
                raise
            return self._previous(at, use, error)

    def _previous(self, at: At, use: Callable[[Node], T], error: CorruptionError) -> T:
        """Return the newest state before a damaged one that is whole."""
        graph = self._catalog.graph
        damaged = self._catalog.resolve(check_at(at))
        earlier = [n for n in graph.nodes.values() if n.order < damaged.order and n.node not in graph.hidden]
        for name in sorted(earlier, key=lambda name: name.order, reverse=True):
            try:
                found = self._reading(name.node, use)
            except (CorruptionError, NotFoundError):
                continue
            message = f"step {damaged.step} is damaged ({error}): this is step {name.step} instead"
            warnings.warn(message, FallbackWarning, stacklevel=4)
            return found
        raise error

    def restore_into(
        self, at: At, targets: Mapping[str, Any], *, on_corrupt: OnCorrupt = "raise"
    ) -> dict[Component, Any]:
        """Load a saved state into objects: each of `targets` gets what is saved under its name.

        Objects with ``load_state_dict`` (models, optimizers) are given their part; numpy arrays and torch
        tensors are filled, in dicts and lists too: ``{"model": {"w": w}}``. JAX's arrays cannot be filled:
        see `like` of `restore`.

        `targets` are by the names in the state; `at` and `on_corrupt` are as for `restore`.

        Returns
        -------
        dict
            The rest of the state: what is saved under other names.

        Raises
        ------
        InvalidInputError
            Something is not saved, or does not fit; arrays are filled only where all of them fit.
        """
        check_targets(targets)
        state = self.restore(at, to="saved", on_corrupt=on_corrupt)
        load_into(state, targets)
        return rest_of(state, targets)

    def read(self, at: At, path: str | Name, sel: Any = ()) -> Any:
        """Return one tensor (or plain value), or a part of it, reading and decoding little else.

        Parameters
        ----------
        at
            As for `restore`.
        path
            ``"model/layers.0.weight"``, or a tuple of keys.
        sel
            What numpy takes as an index; a leading range of rows is decoded alone.
        """
        where = parse_name(path) if isinstance(path, str) else tuple(path)
        return self._reading(at, lambda node: self._read(node, where, sel))

    def _read(self, node: Node, where: Name, sel: Any) -> Any:
        index = node.layout.index.get(where)
        if index is None:
            return self._leaf(node, where)
        shape = node.layout.wholes[index].shape
        window = box_window(shape, sel)
        if window is None:
            flat = self._reader.values(node, [index])[index]
            return np.asarray(flat.reshape(shape)[sel])
        box, rest = window
        return np.asarray(self._reader.region(node, index, box)[rest])

    def history(self, path: str | Name, steps: Iterable[At] | None = None) -> Walk[Any]:
        """Give one tensor (or plain value) step after step, at about one edge for each step.

        Parameters
        ----------
        path
            As for `read`.
        steps
            A range, a list of steps, or None for all, each in its newest revision. Unless they are a list,
            steps that are not there, or do not have the path, are passed over.

        Returns
        -------
        Walk
            An iterator of step and value, which is what ``read(step, path)`` gives, bit for bit.

        Raises
        ------
        NotFoundError
            A step of a list is not there or does not have the path, or no step has it.
        CorruptionError
            As for `restore`.
        """
        where = parse_name(path) if isinstance(path, str) else tuple(path)
        visited = stops(self._catalog, self._listed(full=True), steps)
        walker = Walker(self._reader)

        def choose(node: Node) -> list[int]:
            index = node.layout.index.get(where)
            return [] if index is None else [index]

        def use(node: Node) -> Any:
            self._check_open()
            index = node.layout.index.get(where)
            if index is None:
                _, leaves = structure_names(node.layout.structure)
                return self._leaf(node, where) if where in leaves or visited.listed else MISSING
            if not visited.listed and any(map(node.has_let_go, node.layout.shards[index])):
                return MISSING
            shape = node.layout.wholes[index].shape
            return np.asarray(walker.values(node, [index])[index].reshape(shape))

        return Walk(walker, visited, choose, use, self._reading, must=format_name(where))

    def walk(
        self,
        steps: Iterable[At] | None = None,
        keys: str | Sequence[str] | None = "model/**",
        *,
        reverse: bool = False,
        to: str = "numpy",
    ) -> Walk[Any]:
        """Give a part of the state step after step, at about one edge for each step.

        That is far less than restoring each of them where paths are long, forward and backward. The
        states are those that are there now; saves meanwhile are not seen.

        Parameters
        ----------
        steps
            A range, a list of steps, or None for all, each in its newest revision. Steps of a range that are
            not there are passed over.
        keys
            Name globs, as for `restore`.
        reverse
            Go through `steps` from the last to the first.
        to
            As for `restore`.

        Returns
        -------
        Walk
            An iterator of step and tree, which is what ``restore(step, keys=keys)`` gives, bit for bit.

        Raises
        ------
        NotFoundError
            A step of a list is not there.
        CorruptionError
            As for `restore`; raised when the walk comes to it.
        """
        check_choice("to", to, TARGETS)
        matches = matcher(patterns(keys))
        visited = stops(self._catalog, self._listed(full=True), steps, reverse=reverse)
        walker = Walker(self._reader)
        last: list[tuple[Layout, Selection]] = []

        def part(node: Node) -> Selection:
            if not last or last[0][0] is not node.layout:
                last[:] = [(node.layout, select(node.layout.structure, matches))]
            return last[0][1]

        def use(node: Node) -> Any:
            self._check_open()
            chosen = part(node)
            values = walker.values(node, chosen.tensors)
            return self._tree(node, values, *chosen, dtype=None, like=None, to=to)

        return Walk(walker, visited, lambda node: part(node).tensors, use, self._reading)

    def diff(
        self,
        a: At,
        b: At = None,
        keys: str | Sequence[str] | None = None,
        *,
        other: Looking | None = None,
    ) -> Diff:
        """Say how two states differ, tensor by tensor: norm, relative change, changed share, largest change.

        Parameters
        ----------
        a, b
            As for `restore`.
        keys
            Name globs of what to compare.
        other
            The store that `b` is in, if it is another.

        Raises
        ------
        NotFoundError
            There is no such state.
        CorruptionError
            As for `restore`.
        """
        matches = matcher(patterns(keys))
        walker = Walker(self._reader)
        first = self._side(a, matches, walker)
        if other is None:
            return compare(first, self._side(b, matches, walker), self._executor)
        return compare(first, other._side(b, matches, Walker(other._reader)), self._executor)

    def _side(self, at: At, matches: Callable[[Name], bool], walker: Walker) -> Compared:
        return self._reading(at, lambda node: compared(self.url, node, matches, walker, self._reader))

    def best_step(self, metric: str, mode: Literal["min", "max"] = "min") -> int:
        """Return the step whose newest revision has the best value of a metric.

        NaN never wins; of equals the later commit does.

        Raises
        ------
        NotFoundError
            No step has the metric as a number; the message says which metrics there are.
        """
        check_choice("mode", mode, ("min", "max"))
        while True:
            graph = self._listed(full=True)
            names = [name for step in graph.steps() if (name := graph.at_step(step)) is not None]
            try:
                records = self._catalog.records([name.node for name in names], self._executor)
            except (CorruptionError, NotFoundError):
                listed = self._listed(full=True)
                if all(name.node in listed for name in names):
                    raise
                continue  # one of them was collected meanwhile
            return best_of(records, metric, mode).step

    def _leaf(self, node: Node, where: Name) -> Any:
        _, leaves = structure_names(node.layout.structure)
        if where not in leaves:
            inside = any(path[: len(where)] == where for path in (*node.layout.index, *leaves))
            what = "holds several values at" if inside else "has no value at"
            raise NotFoundError(
                f"step {node.record.step} {what} {format_name(where)!r} (integer keys are written #1): "
                f"`lcstore show {self.url}@{node.record.step}` lists what it has"
            )
        return self._reader.leaves(node)[leaves.index(where)]

    def _tree(
        self,
        node: Node,
        values: Mapping[int, Any],
        structure: Any,
        tensors: Sequence[int],
        leaves: Sequence[int],
        dtype: str | None,
        like: Any,
        to: str,
    ) -> Any:
        all_leaves = self._reader.leaves(node)
        specs = node.layout.wholes
        if like is not None:
            arrays = {specs[t].name: shaped(values[t], specs[t], dtype, "numpy") for t in tensors}
            _, leaf_paths = structure_names(node.layout.structure)
            plain = {leaf_paths[i]: all_leaves[i] for i in leaves}
            return fill(like, {path: np.asarray(array) for path, array in arrays.items()}, plain)
        objects = [shaped(values[t], specs[t], dtype, to) for t in tensors]
        return unflatten(structure, objects, [all_leaves[i] for i in leaves])

    def __getitem__(self, at: At) -> StepView:
        """Return a view of one state: ``store[1000]["model/layers.0.weight"]``."""
        return StepView(self, self._node(at).name.node)

    def __contains__(self, step: object) -> bool:
        """Say whether a step is there."""
        if isinstance(step, bool) or not isinstance(step, int | np.integer):
            return False
        return self._listed(full=True).at_step(int(step)) is not None

    def __iter__(self) -> Iterator[int]:
        """Give every step that can be restored, in rising order: what `in` looks for."""
        return iter(self.steps())

    def steps(self) -> list[int]:
        """Return every step that can be restored, in rising order."""
        return self._listed(full=True).steps()

    def latest_step(self) -> int | None:
        """Return the step of the latest commit (which need not be the greatest), or None."""
        latest = self._listed().latest()
        return None if latest is None else latest.step

    def info(self, at: At = None) -> StepInfo:
        """Return what is recorded of a state, without reading any of its tensors."""
        return self._reading(at, lambda node: step_info(node.name.node, node.record))

    def paths(self, at: At = None) -> dict[str, tuple[tuple[int, ...], str, str]]:
        """Return shape, dtype and role of each tensor of a state by its path."""
        node = self._node(at)
        return {format_name(s.name): (s.shape, s.dtype, s.role) for s in node.layout.wholes}

    def leaves(self, at: At = None) -> dict[str, object]:
        """Return the plain values of a state by path, without reading any of its tensors."""
        node = self._node(at)
        _, paths = structure_names(node.layout.structure)
        return dict(zip(map(format_name, paths), self._reader.leaves(node), strict=True))

    def states(
        self,
        *,
        records: bool = True,
        limit: int | None = None,
        retired: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[Listed]:
        """Return every state, each revision by itself; see `lcstore.index.listing.list_states`."""
        self._check_open()
        return list_states(
            self._backend, records=records, limit=limit, retired=retired, on_progress=on_progress
        )
