"""`Store`: a store opened at a URL. What users touch."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from threading import RLock
from types import TracebackType
from typing import Any, Self

import numpy as np

from lcstore.errors import ClosedError, InvalidInputError, NotFoundError
from lcstore.graph.graph import Graph
from lcstore.state.paths import Part, Path, format_path, matcher, parse_path
from lcstore.state.tree import flatten, select, structure_paths, unflatten
from lcstore.store import keys
from lcstore.store.backend import Backend
from lcstore.store.catalog import Catalog
from lcstore.store.convert import check_targets, fill, load_into, patterns, rest_of, shaped
from lcstore.store.findings import Level, Report
from lcstore.store.info import SaveInfo, StepInfo, step_info
from lcstore.store.jobs import Workers
from lcstore.store.labels import At, check_at, check_labels, check_step
from lcstore.store.listing import Listed, list_states
from lcstore.store.reader import Node, Reader, row_window
from lcstore.store.records import StoreRecord
from lcstore.store.stats import Stats, stats
from lcstore.store.survey import OnProgress
from lcstore.store.verify import verify
from lcstore.store.view import StepView
from lcstore.store.writer import Writer, default_threads
from lcstore.track.policy import Policy
from lcstore.track.track import Track


class Store:
    """A store of training states. Made by `lcstore.open`.

    Saves are deltas to the handle's last commit; a fresh handle begins with an anchor, or goes on from a
    node after `resume`. Looking at old states never moves that. A handle may be used by several threads; its
    saves happen one after another. Other processes may write to the same store: each makes a branch.
    """

    def __init__(
        self, backend: Backend, policy: Policy, *, writable: bool, exists: bool, threads: int | None
    ) -> None:
        self._backend = backend
        self._writable = writable
        self._exists = exists
        self._executor = Workers(threads or default_threads(), thread_name_prefix="lcstore")
        self._catalog = Catalog(backend)
        self._reader = Reader(backend, self._catalog, self._executor)
        self._writer = Writer(backend, self._catalog, self._executor, policy)
        self._lock = RLock()
        self._closed = False
        self._process = os.getpid()

    # Saving ---------------------------------------------------------------------------------------------

    def save(
        self,
        step: int,
        state: Any,
        *,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        exact: bool = False,
    ) -> SaveInfo:
        """Commit a state. When this returns, it is there (and durable, where the target can be).

        Parameters
        ----------
        step
            The training step, 0 or more. A step saved before gets another revision.
        state
            Any nesting of dicts, lists and tuples with arrays (numpy, torch, JAX, anything with
            ``__array__`` or DLPack) and plain values; objects with ``state_dict()`` are asked for it.
        metrics, metadata
            Numbers, and JSON-like data, kept with the state.
        tags
            Names to find it by.
        exact
            Keep every bit of it (a full-size save); later saves go on as small deltas.

        Raises
        ------
        InvalidInputError
            Something in the state cannot be stored; the message names its path.
        StorageError
            The target failed; nothing was committed, and the handle goes on.
        UnknownOutcomeError
            The target failed such that the commit may have landed; the next save finds out first.
        """
        started = time.perf_counter()
        step = check_step(step)
        labels = check_labels(metrics, metadata, tags)
        self._check_writable()
        with self._lock:
            self._check_open()
            flat = flatten(state)
            self._create()
            return self._writer.save(step, flat, labels, exact=exact, started=started)

    def _create(self) -> None:
        if not self._exists:
            self._backend.put(keys.STORE_KEY, StoreRecord().to_bytes())
            self._exists = True

    # Restoring ------------------------------------------------------------------------------------------

    def restore(
        self,
        at: At = None,
        *,
        keys: str | Sequence[str] | None = None,
        dtype: str | None = None,
        like: Any = None,
        to: str = "numpy",
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

        Raises
        ------
        NotFoundError
            There is no such state.
        CorruptionError
            What is stored is not what was committed; the message names the object.
        """
        node = self._node(at)
        chosen = select(node.plan.structure, matcher(patterns(keys)))
        values = self._reader.values(node, chosen.tensors)
        return self._tree(node, values, chosen.structure, chosen.tensors, chosen.leaves, dtype, like, to)

    def resume(
        self,
        at: At = None,
        *,
        dtype: str | None = None,
        like: Any = None,
        to: str = "numpy",
    ) -> Any:
        """Return a saved state and go on from it: the next save is a delta to it.

        The track is rebuilt from the store, not from the tree that is returned. Parameters and errors as for
        `restore`.
        """
        return self._resume(at, {}, dtype, like, to)

    def _resume(
        self,
        at: At,
        targets: Mapping[str, Any],
        dtype: str | None = None,
        like: Any = None,
        to: str = "saved",
    ) -> Any:
        """Return a state, loaded into `targets`, and go on from it. The base moves when all went well."""
        self._check_writable()
        with self._lock:
            self._check_open()
            self._writer.settle()
            node = self._node(at)
            everything = range(len(node.plan.tensors))
            pools, values = self._reader.rebuild(node)
            edges = {
                self._catalog.record(ref.target).edge.id if ref.edge is None else ref.edge
                for ref in self._catalog.path(node.name.node)
            }
            track = Track()
            track.stand_on(node.plan, node.columns, pools, [values[t] for t in everything])
            leaves = range(len(self._reader.leaves(node)))
            state = self._tree(node, values, node.plan.structure, everything, leaves, dtype, like, to)
            if targets:
                load_into(state, targets)
            self._writer.stand_on(node.name, edges, track)
            return state

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

    def resume_into(self, at: At, targets: Mapping[str, Any]) -> dict[Part, Any]:
        """Load a saved state into objects, and go on from it; return the rest, as `restore_into` does."""
        check_targets(targets)
        return rest_of(self._resume(at, targets), targets)

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
        node = self._node(at)
        where = parse_path(path) if isinstance(path, str) else tuple(path)
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

    # Looking --------------------------------------------------------------------------------------------

    def __getitem__(self, at: At) -> StepView:
        """Return a view of one state: ``store[1000]["model/layers.0.weight"]``."""
        return StepView(self, self._node(at).name.node)

    def __contains__(self, step: object) -> bool:
        """Say whether a step is there."""
        return isinstance(step, int) and self._listed().at_step(step) is not None

    def steps(self) -> list[int]:
        """Return every step that can be restored, in rising order."""
        return self._listed().steps()

    def latest_step(self) -> int | None:
        """Return the step of the latest commit (which need not be the greatest), or None."""
        latest = self._listed().latest()
        return None if latest is None else latest.step

    def info(self, at: At = None) -> StepInfo:
        """Return what is recorded of a state, without reading any of its tensors."""
        self._check_open()
        self._catalog.refresh()
        name = self._catalog.resolve(check_at(at))
        return step_info(name.node, self._catalog.record(name.node))

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

    def verify(self, level: Level = "structure", on_progress: OnProgress | None = None) -> Report:
        """Look for damage, changing nothing; see `lcstore.store.verify.verify`."""
        self._check_open()
        return verify(self._backend, level, on_progress)

    def stats(self, on_progress: OnProgress | None = None) -> Stats:
        """Count what the store holds; see `lcstore.store.stats.stats`."""
        self._check_open()
        return stats(self._backend, on_progress)

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._backend.url

    @property
    def backend(self) -> Backend:
        """What keeps its bytes."""
        return self._backend

    def _listed(self) -> Graph:
        self._check_open()
        return self._catalog.refresh()

    def _node(self, at: At) -> Node:
        self._check_open()
        self._catalog.refresh(edges=True)
        return self._reader.node(self._catalog.resolve(check_at(at)))

    # The handle -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the handle, once a save under way is done; closing twice is fine."""
        if os.getpid() != self._process:  # neither the lock nor the threads came along
            return
        with self._lock:
            self._closed = True
        self._executor.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise InvalidInputError(
            f"a handle of {self.url} cannot be copied or sent: send the URL, and open that"
        )

    def __repr__(self) -> str:
        return f"<lcstore.Store {self.url!r}{' closed' if self._closed else ''}>"

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"this handle of {self.url} is closed: open the store again")
        if os.getpid() != self._process:
            raise ClosedError(f"this handle of {self.url} is another process's: open the store in this one")

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise InvalidInputError(f"{self.url} was opened for reading: open it with mode 'a' or 'r+'")
