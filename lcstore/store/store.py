"""`Store`: a store opened at a URL. What users touch."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lcstore.errors import NotFiniteWarning
from lcstore.format.labels import At, OnCorrupt, Run
from lcstore.graph.lines import ends_of_runs, followers
from lcstore.jobs.jobs import telling
from lcstore.jobs.survey import OnProgress
from lcstore.loading.into import check_targets, load_into, rest_of
from lcstore.read.find import find_whole, warn_of_later
from lcstore.read.rebuilding import rebuilt, rebuilt_track, track_from
from lcstore.state.names import Component
from lcstore.store.hints import hinting, no_attribute
from lcstore.store.looking import Looking
from lcstore.store.restarts import falls_behind, tell_of_restarts
from lcstore.store.saving import Saving
from lcstore.store.upkeep import Upkeep
from lcstore.units import counted
from lcstore.warned import warn

_log: Final = logging.getLogger("lcstore")


@hinting("__init__", "save", "save_async", "restore", "restore_into", "resume", "resume_into", "rewind")
@hinting("rewind_into", "history", "retain")
class Store(Saving, Looking, Upkeep):
    """A store of training states. Made by `lcstore.open`.

    A save is a delta to the last commit of this handle. The first save of a handle is an anchor, unless it
    goes on from a state by `resume`. Looking at other states never changes what the next save is a delta to.
    Several threads may use a handle: its saves happen one after another. Several processes may write to one
    store: each makes a branch of its own.

    Examples
    --------
    Those of the methods go on from this one:

    >>> import numpy as np
    >>> import lcstore
    >>> store = lcstore.open("runs/gpt")
    >>> for step in (0, 10, 20):
    ...     weight = np.full((64, 64), 1 + step / 1000, np.float32)
    ...     state = {"model": {"weight": weight}, "epoch": step // 10}
    ...     info = store.save(step, state, metrics={"loss": 30 - step})
    """

    if not TYPE_CHECKING:  # a type checker is to know what there is not

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

    def resume(
        self,
        at: At = None,
        *,
        run: Run = None,
        dtype: str | None = None,
        like: Any = None,
        to: str = "saved",
        on_corrupt: OnCorrupt = "raise",
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Return a saved state and go on from it: the next save is a delta to it.

        The track is rebuilt from the store, not from the tree that is returned. Where no state is named, the
        same training goes on: from the next save on, the state is not kept for being the latest of its run.
        Parameters and errors as for `restore`.

        Examples
        --------
        >>> again = lcstore.open("runs/gpt")  # the training process was started anew
        >>> state = again.resume()
        >>> again.save(30, state).kind
        'delta'
        """
        with telling(on_progress, "resume"):
            state = self._resume(self._of_run(at, run), {}, dtype, like, to, on_corrupt)
        self._counts_on = at in (None, "latest")
        return state

    def go_on_from(self, at: At = None, *, run: Run = None) -> None:
        """Have the next save be a delta to a saved state, for a caller who has its values already.

        It takes half of the memory of `resume`, which returns them, unless damage has it read all values.
        Parameters and errors as for `restore`.
        """
        self._check_writable()
        with self._alone():
            self._writer.settle()
            self._counts_on = at in (None, "latest")
            latest = self._counts_on and run is None
            built = find_whole(self._reader, self._of_run(at, run), rebuilt_track, "raise")
            track = track_from(built, self._index.graph)
            self._writer.stand_on(built.node.name, track, follows=latest, sound=built.pools is not None)
            self._go_on_with_policy(built.node.record)

    def rewind(
        self,
        at: At,
        *,
        run: Run = None,
        dtype: str | None = None,
        like: Any = None,
        to: str = "saved",
    ) -> Any:
        """Return an earlier state and go on from it as a new run: what was saved after it went astray.

        The next save begins the new run. From then on the latest of the states that were saved upon this one
        is no longer protected as the latest of a run: `retain` and `retire` may let go of all of them. Until
        then nothing has changed. Parameters and errors as for `resume`.
        """
        return self._rewind(self._of_run(at, run), {}, dtype=dtype, like=like, to=to)

    @property
    def step(self) -> int | None:
        """The step of the state that the next save goes on from: saved or resumed last; None without one."""
        head = self._writer.head
        return None if head is None else head.step

    @property
    def node(self) -> str | None:
        """The id of the state that the next save goes on from: saved or resumed last; None without one."""
        head = self._writer.head
        return None if head is None else head.node

    def _rewind(self, at: At, targets: Mapping[str, Any], **how: Any) -> Any:
        """Return a state, loaded into `targets`; the next save begins a run in the place of what followed."""
        self._check_writable()
        with self._alone():
            self._index.refresh(full=True)  # first: whatever fails, the next save goes on from where it did
            state = self._go_on(at, targets, **how)
            head, graph = self._writer.head, self._index.graph
            assert head is not None
            self._counts_on = False
            self._writer.begin_anew(ends_of_runs(graph, followers(graph, head.node)))
            return state

    def _resume(self, at: At, targets: Mapping[str, Any], *how: Any, **more: Any) -> Any:
        """Return a state, loaded into `targets`, and go on from it, nothing else being saved meanwhile."""
        self._check_writable("; to load a state and save nothing, restore_into or restore")
        with self._alone():
            return self._go_on(at, targets, *how, **more)

    def _go_on(
        self,
        at: At,
        targets: Mapping[str, Any],
        dtype: str | None = None,
        like: Any = None,
        to: str = "saved",
        on_corrupt: OnCorrupt = "raise",
        assign: bool = False,
    ) -> Any:
        """Return a state, loaded into `targets`, and go on from it. The base moves when all went well."""
        started = time.perf_counter()
        self._writer.settle()
        built = find_whole(self._reader, at, rebuilt, on_corrupt)
        node = built.node
        track = track_from(built, self._index.graph)
        state = built.tree(dtype=dtype, like=like, to=to)
        if targets:
            load_into(state, targets, node.name, updated=node.layout.updated, assign=assign)
        latest = at in (None, "latest")
        if latest:
            warn_of_later(self._reader, node.name)
        self._writer.stand_on(node.name, track, follows=latest, sound=built.pools is not None)
        self._go_on_with_policy(node.record)
        self._log_read("resumed", node.name, started)
        if self._looks_at_runs and falls_behind(self._index, node, self.policy):
            self._looks_at_runs = False
            tell_of_restarts(self.url, node.name.step, self.policy)
        if count := node.record.stats.get("not_finite"):
            bad = f"{counted(int(count), 'tensor')} of weights {'is' if count == 1 else 'are'} not finite"
            warn(
                f"{self.url}: training goes on from step {node.name.step}, of which {bad} (NaN or infinite): "
                "store.rewind goes back to a state before",
                NotFiniteWarning,
            )
        return state

    def resume_into(
        self,
        at: At,
        targets: Mapping[str, Any],
        *,
        run: Run = None,
        assign: bool = False,
        on_corrupt: OnCorrupt = "raise",
    ) -> dict[Component, Any]:
        """Load a saved state into objects, and go on from it; return the rest, all as `restore_into` does.

        Where something does not fit, nothing was changed, and the next save goes on from what it did before.
        """
        check_targets(targets)
        found = self._resume(self._of_run(at, run), targets, on_corrupt=on_corrupt, assign=assign)
        self._counts_on = at in (None, "latest")
        return rest_of(found, targets)

    def rewind_into(
        self, at: At, targets: Mapping[str, Any], *, run: Run = None, assign: bool = False
    ) -> dict[Component, Any]:
        """Load an earlier state into objects, and go on from it as `rewind` does; return the rest."""
        check_targets(targets)
        return rest_of(self._rewind(self._of_run(at, run), targets, assign=assign), targets)
