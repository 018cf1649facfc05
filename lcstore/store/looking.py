"""Restoring and looking: whatever does not move the base of the next save."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from lcstore.errors import CorruptionError, FallbackWarning, NotFoundError
from lcstore.state.paths import Part, Path, format_path, matcher, parse_path
from lcstore.state.tree import select, structure_paths, unflatten
from lcstore.store.convert import check_targets, fill, load_into, patterns, rest_of, shaped
from lcstore.store.handle import Handle
from lcstore.store.info import StepInfo, step_info
from lcstore.store.labels import At, check_at, check_choice
from lcstore.store.listing import Listed, list_states
from lcstore.store.reader import Node, row_window
from lcstore.store.survey import OnProgress
from lcstore.store.view import StepView


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
        on_corrupt: Literal["raise", "previous"] = "raise",
    ) -> Any:
        """Return a saved state. This never moves the base of the next save.

        Parameters
        ----------
        at
            A step (its newest revision), ``"latest"`` (the default), a tag, or a node's id.
        keys
            Path globs of what to return: ``"model/**"``. A list that is returned in part comes as a dict.
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
        check_choice("on_corrupt", on_corrupt, ("raise", "previous"))
        chosen = patterns(keys)

        def use(node: Node) -> Any:
            part = select(node.plan.structure, matcher(chosen))
            values = self._reader.values(node, part.tensors)
            return self._tree(node, values, part.structure, part.tensors, part.leaves, dtype, like, to)

        try:
            return self._reading(at, use)
        except CorruptionError as error:
            if on_corrupt == "raise":
                raise
            return self._previous(at, use, error)

    def _previous(self, at: At, use: Callable[[Node], Any], error: CorruptionError) -> Any:
        """Return the newest state before a damaged one that is whole."""
        graph = self._catalog.graph
        damaged = self._catalog.resolve(check_at(at))
        earlier = [n for n in graph.nodes.values() if n.order < damaged.order and n.node not in graph.hidden]
        for name in sorted(earlier, key=lambda name: name.order, reverse=True):
            try:
                found = use(self._reader.node(name))
            except CorruptionError:
                continue
            message = f"step {damaged.step} is damaged ({error}): this is step {name.step} instead"
            warnings.warn(message, FallbackWarning, stacklevel=3)
            return found
        raise error

    def restore_into(self, at: At, targets: Mapping[str, Any]) -> dict[Part, Any]:
        """Load a saved state into objects: each of `targets` gets what is saved under its name.

        Objects with ``load_state_dict`` (models, optimizers) are given their part; numpy arrays are filled.

        Returns
        -------
        dict
            The rest of the state: what is saved under other names.
        """
        check_targets(targets)
        state = self.restore(at, to="saved")
        load_into(state, targets)
        return rest_of(state, targets)

    def read(self, at: At, path: str | Path, sel: Any = ()) -> Any:
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
        where = parse_path(path) if isinstance(path, str) else tuple(path)
        return self._reading(at, lambda node: self._read(node, where, sel))

    def _read(self, node: Node, where: Path, sel: Any) -> Any:
        index = node.plan.index.get(where)
        if index is None:
            return self._leaf(node, where)
        spec = node.plan.tensors[index]
        window = row_window(spec.shape, sel)
        if window is None:
            flat = self._reader.values(node, [index])[index]
            return np.asarray(flat.reshape(spec.shape)[sel])
        low, high, rest = window
        flat = self._reader.window(node, index, low, high)
        return np.asarray(flat.reshape(-1, *spec.shape[1:])[rest])

    def _leaf(self, node: Node, where: Path) -> Any:
        _, leaves = structure_paths(node.plan.structure)
        if where not in leaves:
            inside = any(path[: len(where)] == where for path in (*node.plan.index, *leaves))
            what = "holds several values at" if inside else "has no value at"
            raise NotFoundError(
                f"step {node.record.step} {what} {format_path(where)!r} (integer keys are written #1): "
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
        specs = node.plan.tensors
        if like is not None:
            arrays = {specs[t].path: shaped(values[t], specs[t], dtype, "numpy") for t in tensors}
            _, leaf_paths = structure_paths(node.plan.structure)
            plain = {leaf_paths[i]: all_leaves[i] for i in leaves}
            return fill(like, {path: np.asarray(array) for path, array in arrays.items()}, plain)
        objects = [shaped(values[t], specs[t], dtype, to) for t in tensors]
        return unflatten(structure, objects, [all_leaves[i] for i in leaves])

    def __getitem__(self, at: At) -> StepView:
        """Return a view of one state: ``store[1000]["model/layers.0.weight"]``."""
        return StepView(self, self._node(at).name.node)

    def __contains__(self, step: object) -> bool:
        """Say whether a step is there."""
        return isinstance(step, int) and self._listed(full=True).at_step(step) is not None

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
        return {format_path(s.path): (s.shape, s.dtype, s.role) for s in node.plan.tensors}

    def leaves(self, at: At = None) -> dict[str, object]:
        """Return the plain values of a state by path, without reading any of its tensors."""
        node = self._node(at)
        _, paths = structure_paths(node.plan.structure)
        return dict(zip(map(format_path, paths), self._reader.leaves(node), strict=True))

    def states(
        self, *, records: bool = True, limit: int | None = None, on_progress: OnProgress | None = None
    ) -> list[Listed]:
        """Return every state, each revision by itself; see `lcstore.store.listing.list_states`."""
        self._check_open()
        return list_states(self._backend, records=records, limit=limit, on_progress=on_progress)
