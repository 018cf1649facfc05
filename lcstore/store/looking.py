"""Restoring and looking: whatever does not move the base of the next save."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lcstore.format.labels import At, OnCorrupt, Run
from lcstore.jobs.jobs import telling
from lcstore.jobs.survey import OnProgress
from lcstore.loading.into import check_targets, load_into, rest_of
from lcstore.read.find import find, find_whole, snapshot_at
from lcstore.read.lookup import as_name
from lcstore.read.snapshot import Snapshot
from lcstore.state.names import Component, Name
from lcstore.store.overview import Overview
from lcstore.walks.compare import diff
from lcstore.walks.diff import Diff
from lcstore.walks.walk import MODEL, Walk, history, walk
from lcstore.write.naming import SNAPSHOT, pin, unpin

if TYPE_CHECKING:
    from zarr import Array, Group


class Looking(Overview):
    """The methods of `lcstore.Store` that read."""

    def at(self, at: At = None, *, run: Run = None, hold: bool = False) -> Snapshot:
        """Return a snapshot of a state: its tensors by name, read when they are asked for.

        Parameters
        ----------
        at, run
            As for `restore`.
        hold
            Pin the state until the snapshot is released: ``with store.at(1000, hold=True) as snapshot:``.
            Otherwise, if the state is let go of, it stays whole for a grace.

        Raises
        ------
        NotFoundError
            There is no such state.
        ConflictError
            It is to be held, and is being collected: too late.
        """
        at = self._of_run(at, run)
        if not hold:
            return snapshot_at(self._reader, at)
        self._check_writable()
        node, by = snapshot_at(self._reader, at).node, SNAPSHOT + secrets.token_hex(8)
        try:
            pin(self._index, self._requests, node, by)
            snapshot = snapshot_at(self._reader, node)
        except BaseException:
            unpin(self._index, node, by)
            raise
        snapshot.hold(partial(unpin, self._index, node, by))
        return snapshot

    def __getitem__(self, at: At) -> Snapshot:
        """Return a snapshot of one state: ``store[1000]["model/layers.0.weight"]``."""
        return self.at(at)

    def restore(
        self,
        at: At = None,
        *,
        run: Run = None,
        names: str | Sequence[str] | None = None,
        dtype: str | None = None,
        like: Any = None,
        to: str = "saved",
        on_corrupt: OnCorrupt = "raise",
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Return a saved state. This never moves the base of the next save.

        Parameters
        ----------
        at
            A step (its newest revision), ``"latest"`` (the default), ``"best:loss"`` (the least; or
            ``"best:accuracy:max"``), a tag, or a node's id (or 8 characters of it or more). Other processes
            may save here too: the latest is of this handle's own run once it has saved, and else of all.
        run
            Look only at the states of this run: its number as `lcstore ls` shows it, or its id.
        names
            What to return: a name with all below it (``"model"``), a glob (``"model/*.weight"``), or several
            of these. A list that is returned in part comes as a dict.
        dtype
            Cast floating tensors to this.
        like
            A tree (of tensors, real or abstract): the result has its types, devices and dtypes.
        to
            ``"saved"``: each tensor as the library that it was saved from has it (torch: on the CPU), or as a
            numpy array where this process has not imported that library. (It is saved as what it stands for.)
            ``"numpy"``, ``"torch"``, ``"jax"``: all of them so.
        on_corrupt
            ``"raise"``; ``"previous"`` gives the newest earlier state that is whole, and warns
            (`FallbackWarning`).
        on_progress
            Called with "restore", how many chunks are decoded, and how many there are.

        Raises
        ------
        NotFoundError
            There is no such state, or one of `names` matches nothing in it: the nearest are named.
        CorruptionError
            What is stored is not what was committed; the message names the object.

        Examples
        --------
        >>> state = store.restore(10, names="model")
        >>> state["model"]["weight"].shape
        (64, 64)
        >>> store.restore("best:loss")["epoch"]
        2
        """
        started = time.perf_counter()

        def tree(found: Snapshot) -> Any:
            state = found.tree(names=names, dtype=dtype, like=like, to=to)
            self._log_read("restored", found.name, started)
            return state

        with telling(on_progress, "restore"):
            return find_whole(self._reader, self._of_run(at, run), tree, on_corrupt)

    def restore_into(
        self,
        at: At,
        targets: Mapping[str, Any],
        *,
        run: Run = None,
        assign: bool = False,
        on_corrupt: OnCorrupt = "raise",
    ) -> dict[Component, Any]:
        """Load a saved state into objects: each of `targets` gets what is saved under its name.

        Objects with ``load_state_dict`` (models, optimizers) are given their part; numpy arrays and torch
        tensors are filled, in dicts and lists too. JAX's arrays cannot be: see `like` of `restore`.

        Names and shapes of all are looked at before one is changed; only objects with a `load_state_dict` of
        their own are loaded first. How a module is wrapped (``module.``, ``_orig_mod.``) sets no names apart.
        Moments go by the names of parameters, where these are known.

        Parameters
        ----------
        at, on_corrupt
            As for `restore`.
        targets
            By the names in the state. Of one that retention stripped, they are what is whole.
        run
            As for `restore`.
        assign
            Put tensors on the CPU in place of those that modules of torch have, as their ``load_state_dict``
            does: what a module on the meta device needs, and is refused without. Make optimizers afterwards.

        Returns
        -------
        dict
            The rest of the state: what is saved under other names.

        Raises
        ------
        InvalidInputError
            Something is not saved, or does not fit, or is on the meta device; nothing was changed.
        """
        check_targets(targets)
        started = time.perf_counter()
        found, state = find_whole(self._reader, self._of_run(at, run), lambda s: s.into(targets), on_corrupt)
        self._log_read("restored", found.name, started)
        updated = found.using(lambda it: it.node.layout.updated)
        load_into(state, targets, found.name, updated=updated, assign=assign)
        return rest_of(state, targets)

    def read(self, at: At, name: str | Name, sel: Any = (), *, run: Run = None, to: str = "saved") -> Any:
        """Return one tensor (or plain value), or a part of it, reading and decoding little else.

        Parameters
        ----------
        at, run, to
            As for `restore`.
        name
            ``"model/layers.0.weight"``, or a tuple of keys.
        sel
            What numpy takes as an index; a leading range of rows is decoded alone.

        Raises
        ------
        NotFoundError
            The state has no such value: the nearest names are given.
        InvalidInputError
            `sel` is given for a plain value, or does not fit the tensor.

        Examples
        --------
        >>> store.read(10, "model/weight", np.s_[:2]).shape
        (2, 64)
        """
        where = as_name(name)
        return find(self._reader, self._of_run(at, run), lambda found: found.read(where, sel, to=to))

    def history(
        self,
        name: str | Name,
        steps: Iterable[At] | None = None,
        *,
        run: Run = None,
        line: At = None,
        to: str = "saved",
    ) -> Walk[Any]:
        """Return a walk that gives one tensor (or plain value) step after step, at about one edge each.

        Values are those of `read`, with errors of their saves: a layer set to zero is nearly zero for some.
        Norms are near. Differences of neighbours are mostly error, but for a policy of an error of 0.1.

        Parameters
        ----------
        name
            As for `read`.
        steps
            A range, a list of steps, or None for all, each in its newest revision, whichever run saved it: a
            `BesideWarning` says once where these are of several lines of training, and how to choose one.
            Unless they are a list, steps that are not there, or do not have the name, are passed over.
        run, to
            As for `restore`.
        line
            Only the states that training went through up to this one, named as for `restore`: ``"latest"``
            leaves out what a rewind, or another run, left behind.

        Returns
        -------
        Walk
            An iterator of step and value, which is what ``read(step, name)`` gives, bit for bit.

        Raises
        ------
        NotFoundError
            There is no state, or none has the name; or a step of a list is not there or does not have it.
        CorruptionError
            As for `restore`.
        """
        return history(self._reader, name, steps, run=run, line=line, to=to)

    def walk(
        self,
        steps: Iterable[At] | None = None,
        names: str | Sequence[str] | None = MODEL,
        *,
        run: Run = None,
        line: At = None,
        reverse: bool = False,
        to: str = "saved",
    ) -> Walk[Any]:
        """Return a walk that gives a part of the state step after step, at about one edge each.

        Where paths are long, that is far less than restoring each state, forward and backward. The walk
        visits the states that are there now. It does not see what is saved meanwhile.

        Parameters
        ----------
        steps
            A range, a list of steps, or None for all, each in its newest revision. Steps of a range that are
            not there are passed over.
        names
            As for `restore`, but that it is the model alone if not given; None is everything. The fewer
            there are, the less is read.
        reverse
            Go through `steps` from the last to the first.
        run, to
            As for `restore`.
        line
            As for `history`.

        Returns
        -------
        Walk
            An iterator of step and tree, which is what ``restore(step, names=names)`` gives, bit for bit; an
            empty tree for a state that has nothing of these names.

        Raises
        ------
        NotFoundError
            There is no state, or one of `names` matches nothing in any; or a step of a list is not there.
        CorruptionError
            As for `restore`; raised when the walk comes to it.

        Examples
        --------
        >>> for step, tree in store.walk(range(15), names="model"):
        ...     print(step, tree["model"]["weight"].shape)
        0 (64, 64)
        10 (64, 64)
        """
        return walk(self._reader, steps, names, run=run, line=line, reverse=reverse, to=to)

    def diff(
        self,
        a: At,
        b: At = None,
        names: str | Sequence[str] | None = None,
        *,
        run: Run = None,
        other: Looking | None = None,
    ) -> Diff:
        """Return how two states differ by tensor: norm, relative change, changed share, largest change.

        Beside them stand which has the larger values (`TensorDiff.growth`), and the error that both were
        saved with. Between neighbouring saves most of a change may be that (`TensorDiff.is_mostly_error`). If
        a true change was all error, both restore the same (`TensorDiff.may_differ`).

        Parameters
        ----------
        a, b, run
            As for `restore`.
        names
            As for `restore`: what to compare.
        other
            The store that `b` is in, if it is another.

        Raises
        ------
        NotFoundError
            There is no such state, or one of `names` matches nothing in either of the two.
        CorruptionError
            As for `restore`.
        """
        theirs = self if other is None else other
        a, b = self._of_run(a, run), theirs._of_run(b, run)
        return diff(self._reader, a, b, names, None if other is None else other._reader)

    def zarr(self, at: At = None, *, run: Run = None) -> Group:
        """Return the tensors of a state as a group of zarr, nested as in the state. It can only be read.

        A chunk is decoded when it is asked for. Dtypes that Zarr has not are shown wider, with the same
        values: bfloat16 as float32. Attributes tell step, node and metrics; of an array its name and dtype.

        Parameters
        ----------
        at, run
            As for `restore`.

        Raises
        ------
        NotFoundError
            There is no such state.

        Examples
        --------
        >>> group = store.zarr(10)
        >>> group["model/weight"].shape, group.attrs["step"]
        ((64, 64), 10)
        """
        from lcstore.filesystem.hierarchies import state_group  # zarr takes half a second to import

        return state_group(self.at(at, run=run))

    def zarr_history(
        self,
        tensor: str | Name,
        steps: Iterable[At] | None = None,
        *,
        run: Run = None,
        line: At = None,
    ) -> Array[Any]:
        """Return one tensor as an array of zarr with an axis of steps before its own, a chunk for each state.

        Read in order, states cost about one edge each. Beside it in its store lie ``step`` and the metrics,
        so that xarray opens all of it: ``xarray.open_zarr(array.store)``.

        Parameters
        ----------
        tensor
            Its name, as for `read`.
        steps, run, line
            As for `history`. Unless `steps` is a list, states are passed over that do not have the tensor, or
            have it in another shape or dtype than the last: ``attrs["steps"]`` tells which are left.

        Raises
        ------
        NotFoundError
            A step of a list is not there or does not have the tensor, or no step has it.
        InvalidInputError
            States of a list have it in other shapes or dtypes.

        Examples
        --------
        >>> weights = store.zarr_history("model/weight")
        >>> weights.shape, weights.attrs["steps"]
        ((3, 64, 64), [0, 10, 20])
        >>> float(weights[-1, 0, 0] - weights[0, 0, 0]) > 0
        True
        """
        from lcstore.filesystem.hierarchies import history_array

        return history_array(self._reader, tensor, steps, run, line)
