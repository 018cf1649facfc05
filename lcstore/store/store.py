"""`Store`: a store opened at a URL. What users touch."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from lcstore.durability import Durability
from lcstore.errors import BesideWarning, CorruptionError, InvalidInputError, UnrecognisedWarning, warn
from lcstore.format.labels import At, OnCorrupt, Run, check_labels, check_step
from lcstore.format.policyfile import PolicyLike, policy_from
from lcstore.format.records import StoreRecord
from lcstore.read.find import find_whole, newest_readable
from lcstore.read.into import check_targets, load_into, rest_of
from lcstore.read.resolved import Rebuilt, Resolved
from lcstore.read.snapshot import Snapshot
from lcstore.state.layout import Layout
from lcstore.state.names import Component
from lcstore.state.qualified import FIRST_PART
from lcstore.storage.backend import Backend
from lcstore.storage.deadline import deadline
from lcstore.storage.jobs import telling
from lcstore.storage.patient import PatientBackend
from lcstore.storage.survey import OnProgress
from lcstore.store.looking import Looking
from lcstore.store.upkeep import Upkeep
from lcstore.track.parted import track_of
from lcstore.track.policy import Policy
from lcstore.write.saveinfo import SaveInfo
from lcstore.write.stage import stage
from lcstore.write.unrecognised import changed_wrapping, unmet_names
from lcstore.write.writer import Writer

_log: Final = logging.getLogger("lcstore")


class Store(Looking, Upkeep):
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

    def __init__(
        self,
        backend: Backend,
        policy: Policy,
        durability: Durability,
        *,
        writable: bool,
        made: StoreRecord | None,
        grace: float,
        threads: int | None,
    ) -> None:
        super().__init__(backend, durability, writable=writable, threads=threads)
        self._writer = Writer(
            backend,
            self._index,
            self._executor,
            self._requests,
            policy=policy,
            durability=durability,
            made=made,
            grace=grace,
        )
        #: Whether the next save is to say (once) that names in the state and in the policy do not meet.
        self.looks_at_names = True
        self._looks_at_wrapping = True

    @property
    def policy(self) -> Policy:
        """The quality of what is saved. May be set, to anything that `lcstore.open` takes, between saves."""
        return self._writer.policy

    @policy.setter
    def policy(self, policy: PolicyLike) -> None:
        with self._lock:
            self._writer.change_policy(policy_from(policy))

    def save(
        self,
        step: int,
        state: Any,
        *,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        exact: bool = False,
        skip_below: float = 0.0,
        touched: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
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
        skip_below
            Save nothing if the weights have `moved` less than this since the last save of this handle. Then
            the result is of kind ``"skipped"`` and names that last state, and there is no such step. Small
            moves add up until one is saved. States with tags, and exact saves, are never skipped.
        touched
            Which rows of large tables have changed since the last call of `save`, by name: row numbers or a
            mask, ``{"model/table.weight": rows}``. Other rows are not read, but for a sample that must agree.
            So a save is quicker. It is not smaller, since rows that did not change cost about nothing anyway.
        timeout
            Seconds that the storage has for the save as a whole. For stores that were opened with a `timeout`
            or are behind a network. By default ten times the store's `timeout`, and a second more for each
            MiB of the state.
        on_progress
            Called with "save", how many chunks are coded and on their way, and how many there are.

        Raises
        ------
        InvalidInputError
            Something in the state cannot be stored; the message says where it lies.
        StorageError
            The target failed; nothing was committed, and the handle goes on.
        UnknownOutcomeError
            The target failed, and the commit may have landed or not. The next save finds out first.

        Warns
        -----
        UnrecognisedWarning
            Once for a handle: most of the state is plain, as no name or rule says that it is weights;
            or a rule of the policy matches no tensor. And once where a wrapper of the model (DDP,
            `torch.compile`) came or went, so that names changed and all is stored anew.

        Examples
        --------
        >>> info = store.save(30, state, metrics={"loss": 1.5}, tags=["last"])
        >>> info.kind
        'delta'
        >>> store.info("last").metrics
        {'loss': 1.5}
        """
        started = time.perf_counter()
        step = check_step(step)
        labels = check_labels(metrics, metadata, tags)
        if not skip_below >= 0:
            raise InvalidInputError(f"skip_below is {skip_below}; it is a distance, 0 or more")
        self._check_writable()
        with self._lock:
            self._check_open()
            staged = stage(step, state, labels, exact=exact, touched=touched, copy=False)
            if skip_below > 0 and not exact and not tags and self._writer.moved(staged) < skip_below:
                return self._writer.skipped(staged, started)
            before, is_first = self._writer.track.layout, self._writer.head is None
            with self._bounded(staged.nbytes, timeout), telling(on_progress, "save"):
                info = self._writer.save(staged, started)
            self._look_at_names(before)
            if is_first:
                self._look_at_others(info)
        _log.info("%s: saved %s", self.url, info)
        return info

    def _look_at_others(self, info: SaveInfo) -> None:
        """Warn of a run that was begun anew beside others: whoever forgot to resume is to know."""
        graph, head = self._index.graph, self._writer.head
        assert head is not None
        # By the id: two handles that begin at the same time may take the same number.
        nodes = [*graph.nodes.values()]
        others = [n for n in nodes if n.run_id != head.run_id and n.node not in graph.hidden]
        if others:
            steps = sorted(name.step for name in others)
            warn(
                f"run {head.run} begins anew at step {info.step}, beside what other runs saved to {self.url} "
                f"(steps {steps[0]} to {steps[-1]}): to go on from that, call resume or resume_into before "
                "the first save; for a store of its own, use another URL, or mode 'w-' to be sure",
                BesideWarning,
            )

    def _look_at_names(self, before: Layout | None) -> None:
        """Warn once where names in a state, in the one before and in the policy do not meet."""
        layout = self._writer.track.layout
        changed = changed_wrapping(before, layout) if self._looks_at_wrapping else None
        if changed is not None:
            self._looks_at_wrapping = False
            warn(changed, UnrecognisedWarning)
        if self.looks_at_names and layout is not None:
            self.looks_at_names = False
            for message in unmet_names(self._writer.policy, layout):
                warn(message, UnrecognisedWarning)

    def moved(self, state: Any) -> float:
        """Return how far the weights have moved since the last save of this handle.

        In the distances that saves are usually apart: 1 is about one save's worth, 0 nothing at all. Infinity
        where that is not known: before the second save, where tensors came, went or changed their shape, and
        where a value is not finite. Only samples are looked at, which takes little time.
        """
        with self._lock:
            self._check_open()
            return self._writer.moved(stage(0, state, copy=False))

    def _distrust(self) -> None:
        self._writer.distrust()

    def _bounded(self, nbytes: int, timeout: float | None) -> AbstractContextManager[None]:
        """Bound what a save of some bytes asks of the storage."""
        if isinstance(self._backend, PatientBackend):
            return deadline(self._backend.patience.whole_save(nbytes) if timeout is None else timeout)
        if timeout is not None:
            raise InvalidInputError(
                f"{self.url} is not waited for: open it with a timeout to bound its saves"
            )
        return nullcontext()

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

        The track is rebuilt from the store, not from the tree that is returned. Parameters and errors as for
        `restore`.

        Examples
        --------
        >>> again = lcstore.open("runs/gpt")  # the training process was started anew
        >>> state = again.resume()
        >>> again.save(30, state).kind
        'delta'
        """
        with telling(on_progress, "resume"):
            return self._resume(self._of_run(at, run), {}, dtype, like, to, on_corrupt)

    def rewind(
        self,
        at: At,
        *,
        dtype: str | None = None,
        like: Any = None,
        to: str = "saved",
    ) -> Any:
        """Return an earlier state and go on from it as a new run: what was saved after it went astray.

        The next save begins the new run. From then on the states that were saved upon this one are not kept
        for being the latest of their run: `retain` may let go of them, and `retire` does not refuse. Until
        then nothing has changed. Parameters and errors as for `resume`.
        """
        return self._rewind(at, {}, dtype=dtype, like=like, to=to)

    def _rewind(self, at: At, targets: Mapping[str, Any], **how: Any) -> Any:
        """Return a state, loaded into `targets`; the next save begins a run in the place of what followed."""
        with self._lock:
            state = self._resume(at, targets, **how)
            head = self._writer.head
            assert head is not None
            graph = self._index.refresh(full=True)
            self._writer.begin_anew(graph.nodes[node] for node in graph.descendants(head.node))
            return state

    def _resume(
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
        self._check_writable()
        started = time.perf_counter()
        with self._lock:
            self._check_open()
            self._writer.settle()
            built = self._rebuilt(at, on_corrupt)
            node = built.node
            track = track_of(FIRST_PART, node.layout, node.columns, built.pools, built.values)
            state = built.tree(dtype=dtype, like=like, to=to)
            if targets:
                load_into(state, targets, assign=assign)
            self._writer.stand_on(node.name, track)
        self._log_read("resumed", node.name, started)
        return state

    def _rebuilt(self, at: At, on_corrupt: OnCorrupt) -> Rebuilt:
        """Return what a state is rebuilt to; where it cannot be read, say how many saves back one can."""

        def rebuild(found: Snapshot) -> Rebuilt:
            return found.using(Resolved.rebuild)

        try:
            return find_whole(self._reader, at, rebuild, on_corrupt)
        except CorruptionError as error:
            if on_corrupt == "raise":
                error.message = f"{error.message}; {newest_readable(self._reader, at, rebuild)}"
            raise

    def resume_into(
        self,
        at: At,
        targets: Mapping[str, Any],
        *,
        assign: bool = False,
        on_corrupt: OnCorrupt = "raise",
    ) -> dict[Component, Any]:
        """Load a saved state into objects, and go on from it; return the rest, all as `restore_into` does.

        Where something does not fit, nothing was changed, and the next save goes on from what it did before.
        """
        check_targets(targets)
        return rest_of(self._resume(at, targets, on_corrupt=on_corrupt, assign=assign), targets)

    def rewind_into(
        self, at: At, targets: Mapping[str, Any], *, assign: bool = False
    ) -> dict[Component, Any]:
        """Load an earlier state into objects, and go on from it as `rewind` does; return the rest."""
        check_targets(targets)
        return rest_of(self._rewind(at, targets, assign=assign), targets)
