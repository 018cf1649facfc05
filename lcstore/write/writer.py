"""Saving: a staged state is written as an edge, committed by one record, and looked after once."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterable
from concurrent.futures import Executor, Future

from lcstore.arrays import Array
from lcstore.durability import Durability
from lcstore.errors import LcstoreError, StorageError, UnknownOutcomeError
from lcstore.format import keys
from lcstore.format.bodies import split_layouts
from lcstore.format.records import StoreRecord
from lcstore.graph.graph import Graph
from lcstore.graph.refs import ROOT, NodeName
from lcstore.index.index import Index
from lcstore.index.listing import Listing, committed
from lcstore.index.standing import is_broken, is_going, is_taken_away
from lcstore.layout.layout import Layout
from lcstore.records.kinds import is_store
from lcstore.staging.notfinite import NotFinite
from lcstore.staging.stage import Staged
from lcstore.staging.touched import Touched
from lcstore.state.names import Name
from lcstore.track.motion import moved
from lcstore.track.policy import Policy
from lcstore.track.track import Track
from lcstore.write.apart import check_around
from lcstore.write.commit import Commit, confirm_store, make_store, prepare, put_copy_late, put_marks
from lcstore.write.edgewrite import EdgeWrite, Quality
from lcstore.write.guard import Guard, tell_of_loss
from lcstore.write.instant import Instant
from lcstore.write.saveinfo import SaveInfo, phases, saved, skipped
from lcstore.write.superseded import Superseded

#: How often a state is saved anew when a collector takes what it stands on, or its own objects.
_TRIES = 3


class Writer:
    """Writes states one after another, each as a delta to the one before. One save at a time.

    Parameters
    ----------
    index
        What is there, and where.
    executor, requests
        Threads to code with, and threads that wait for the target.
    policy
        The quality.
    durability
        What is stored besides, so that damage costs little.
    made
        What makes this a store, written with the first save; None where it is one already.
    grace
        Seconds for which collectors leave alone what no record names, at the least.
    """

    def __init__(
        self,
        index: Index,
        executor: Executor,
        requests: Executor,
        *,
        policy: Policy,
        durability: Durability,
        made: StoreRecord | None,
        grace: float,
    ) -> None:
        self.index, self.backend = index, index.backend
        self.executor = executor
        self.requests = requests
        self.grace = grace
        self._made = made
        self.policy = policy
        self.durability = durability
        self.track = Track()
        self.head: NodeName | None = None
        self.run: int | None = None
        self.run_id = secrets.token_hex(4)
        self.seq = 0
        #: Whether the node that this handle goes on from is another's, so that it may be let go of meanwhile.
        self._foreign = False
        #: Whether the head was committed, and not yet looked at: a collector may have taken it away.
        self._doubtful = False
        #: Tensors of which late saves had values that no grid holds, as in `Quality`.
        self.plain: dict[Name, int] = {}
        self.not_finite = NotFinite()  # of the head, where this handle saved it
        #: The layout that the head names, and its hash, where the head is this handle's own and acknowledged.
        self._named_layout: tuple[Layout, str] | None = None
        self._touched = Touched()
        self._superseded = Superseded()
        #: A commit that was left open.
        self._open: Commit | None = None
        #: Records that were being stored when something interrupted: they may be there without their copies.
        self._interrupted: dict[NodeName, bytes] = {}
        #: When the first object of the save under way was put.
        self._began = Instant()
        self._guard = Guard(index, executor, durability)
        #: Whether the track is what a reader of the head gets. If not, the next save sets everything anew.
        self.sound = True

    @property
    def is_own(self) -> bool:
        """Whether this handle saved what it stands on, and stands there still."""
        return self.head is not None and not self._foreign

    def stand_on(self, head: NodeName, track: Track, *, follows: bool, sound: bool = True) -> None:
        """Go on from a node and its track. If the track is not `sound`, the next save sets everything anew.

        A run that `follows` the one before, as that of a process which was started anew, supersedes it. Upon
        the state of another run, the next save begins one.
        """
        self.settle()
        self.head, self.track, self.sound, self._foreign = head, track, sound, True
        self.plain, self.not_finite, self._doubtful, self._named_layout = {}, NotFinite(), False, None
        self._touched.forget()
        self._superseded.stand_on(head, self.index.graph, self.run_id, follows=follows)
        if self.run is not None and head.run_id != self.run_id:  # a run has one line
            self.run, self.run_id, self.seq = None, secrets.token_hex(4), 0
        record = self.index.record(head.node)
        if self.durability.copies and not record.stats.get("record_copies", True):
            return  # the layout is stored again, with its copy
        if track.layout is not None and record.layout == split_layouts(record.layout)[0][1]:
            # What is built upon is looked for after the commit, and with it goes its layout.
            self._named_layout = track.layout, record.layout

    def begin_anew(self, superseded: Iterable[NodeName]) -> None:
        """Go on as another run, whose first commit supersedes some nodes."""
        self.run, self.run_id, self.seq = None, secrets.token_hex(4), 0
        self._superseded.take(superseded, "an earlier state")

    def distrust(self) -> None:
        """Build on nothing that was written before: the next save sets everything anew."""
        self.head, self.sound = None, False
        self._foreign, self._named_layout = True, None

    def settle(self) -> None:
        """Find out about a commit that was left open, by writing the same record again and looking at it.

        Raises
        ------
        UnknownOutcomeError, StorageError
            It is still open.
        """
        if self._open is not None:
            try:
                with self._open.write.staged.named():
                    self._open.put()
            except UnknownOutcomeError:
                raise
            except LcstoreError as error:
                message = "the last commit is still open: save again once the storage answers"
                raise UnknownOutcomeError(message, key=self._open.key, step=error.step) from error
            self.accept(self._open)
            self._open = None
        if self._doubtful and self.head is not None:
            head = self.head
            base = self.index.graph.nodes.get(head.base)
            # Whoever looks at states with this handle lists them: that it or its base is gone may be known.
            gone = head.node not in self.index.graph.nodes or (head.base != ROOT and base is None)
            if gone:
                self._disown(head)
            else:
                self._is_let_go(base, head.step)

    def save(self, staged: Staged, started: float, *, kept: bool = True) -> SaveInfo:
        """Commit a state: write its edge, store the record, look around, and only then acknowledge.

        Parameters
        ----------
        staged
            The state.
        started
            When the save began, by `time.perf_counter`.
        kept
            Whether the next save may be a delta to this state. If not, an anchor leaves no track in memory.

        Raises
        ------
        StorageError
            Nothing was committed, and nothing changed.
        UnknownOutcomeError
            The commit is open; the next save settles it.
        """
        try:
            self.settle()
        except LcstoreError:
            self._touched.note(staged)
            raise
        flattened = time.perf_counter()
        touched = self._touched.note(staged)
        for _ in range(_TRIES):
            commit = self._attempt(staged, touched, kept)
            if commit is None:
                continue
            base = commit.write.base
            with self._superseded.recording(self.backend, self.requests, self.run, self.run_id):
                gone = self._is_let_go(base, staged.step)
            if not gone:  # this one is acknowledged
                self._superseded.let_go(self.backend)
                seconds = phases(started, flattened, commit.write.coded, time.perf_counter())
                return self._guard.protect(saved(commit, seconds), commit.name, self.track)
        raise LcstoreError(
            "a collector keeps condemning what is being saved: stop it, and save again", step=staged.step
        )

    def change_policy(self, policy: Policy) -> None:
        """Save with another quality from now on."""
        kept = ("error", "bytes_per_save", "weighted")
        if any(getattr(policy, name) != getattr(self.policy, name) for name in kept):
            self.track.forget_budget()
        self.policy = policy

    def moved(self, staged: Staged) -> float:
        """Return how far a state is from the head, as `lcstore.track.motion.moved` does."""
        if self.head is None or not self.sound or self._doubtful or self._open is not None:
            return math.inf  # a save looks first whether the head stands
        names = (name for name, _ in staged.flat.tensors)
        return moved(self.track.held, dict(zip(names, staged.arrays, strict=True)))

    def skipped(self, staged: Staged, started: float) -> SaveInfo:
        """Return what is said of a state that is not saved, as it is about the head."""
        assert self.head is not None
        self._touched.note(staged)
        return skipped(self.head, staged, time.perf_counter() - started)

    def accept(self, commit: Commit) -> None:
        """Take over a commit that is there: it is the head, and what is saved next stands on it."""
        self.index.add(commit.name, commit.record, len(commit.data))  # whatever interrupts, it knows its head
        commit.write.accept()
        self.plain, self.not_finite = commit.write.plain, commit.write.not_finite
        self.head = commit.name
        self.sound, self._doubtful = commit.write.kept, True

    def _attempt(self, staged: Staged, touched: dict[Name, Array], kept: bool) -> Commit | None:
        """Write and commit a state once; on any failure the track is as it was.

        Return None where the head is gone: the state must not name it, as soon nothing may tell of it.
        """
        base = self.head if self.sound else None
        plain = {} if base is None else self.plain
        quality = Quality(self.policy, plain, touched)
        self._began = Instant.now()
        listed = self._list_nodes()
        made = self._make(listed)
        write = EdgeWrite(
            staged,
            base,
            self.track,
            quality,
            self.backend,
            self.executor,
            requests=self.requests,
            durability=self.durability,
            kept=kept,
        )
        sound, self.sound = self.sound, False  # until the commit, or the way back, whatever interrupts
        sent = False
        try:
            write.write()
            graph = None if listed is None else listed.result()
            if graph is not None:
                self._number_run(graph)
            if not self._is_head_there(graph):
                self._stand_on_nothing(staged.step)
                self.sound = write.undo() and sound
                write.written.take_away()
                return None
            commit = self._prepare(write)
            write.written.end()
            if made is not None:
                self.grace, self._made = made.result()
            sent = True
            self._put(commit)
        except BaseException as error:
            self.sound = write.undo() and sound
            if not sent or (isinstance(error, StorageError) and not error.outcome_unknown):
                write.written.take_away()
            elif self.durability.copies and not isinstance(error, StorageError):
                self._interrupted[commit.name] = commit.data
            raise
        self.accept(commit)
        for name, data in tuple(self._interrupted.items()):
            if put_copy_late(self.backend, name, data):
                del self._interrupted[name]
        self._touched.forget()
        return commit

    def _make(self, listed: Future[Graph] | None) -> Future[tuple[int, StoreRecord | None]] | None:
        """Begin to make this a store, or to look which process did; None where it is one already."""
        if self._made is None:
            return None
        copies = self.durability.copies
        if self.head is not None:
            return self.requests.submit(confirm_store, self.backend, self._made, copies=copies)
        check_around(self.backend)  # before anything is stored
        return self.requests.submit(make_store, self.backend, self._made, listed, copies=copies)

    def _list_nodes(self) -> Future[Graph] | None:
        """Begin to list the nodes where the first save of a handle, or after a resume, needs to know them."""
        return self.requests.submit(self.index.refresh) if self.run is None or self._foreign else None

    def _number_run(self, graph: Graph) -> None:
        """Give the run its number, if it has none, and the next commit a later one than any that is there."""
        self.run = self.run or graph.next_run()
        self.seq = max(self.seq, graph.last_seq())

    def _is_head_there(self, graph: Graph | None) -> bool:
        """Return whether the head is there: in a graph just listed, or else by a look at its record."""
        if self.head is None:
            return True
        return self._guard.is_there(self.head, self.grace) if graph is None else self.head.node in graph.nodes

    def _prepare(self, write: EdgeWrite) -> Commit:
        """Return the commit of an edge; all that has to be stored before its record is on its way."""
        assert self.run is not None
        self.seq += 1  # every attempt takes a number
        layout = write.written.put_layout(write.draft.layout, self._named_layout)
        commit = prepare(write, layout, run=self.run, run_id=self.run_id, seq=self.seq, parent=self.head)
        put_marks(self.backend, commit)
        return commit

    def _put(self, commit: Commit) -> None:
        commit.write.written.count(len(commit.data))
        try:
            commit.put()
        except UnknownOutcomeError:
            # The track stays where it is: the next save writes this very record again.
            self._open = commit
            commit.write.leave_open()
            self._touched.forget()  # what is noted from now on has changed since this one
            raise

    def _is_let_go(self, base: NodeName | None, step: int) -> bool:
        """Return whether a collector takes away anything of the node just committed, or of what it stands on.

        Where one does, the next state sets everything anew, and takes the place of the node. A collector
        that condemns anything from now on lists the records once more, and finds the node. A base that this
        handle committed needs no such look, as the latest node of every run is kept; unless it was retired
        all the same: by a repair, by a run that went on from an earlier state, or with its whole run.
        """
        assert self.head is not None
        record = self.index.record(self.head.node)
        try:
            known = None if self._named_layout is None else self._named_layout[1]
            new_layouts = [digest for _, digest in split_layouts(record.layout) if digest != known]
            seen = self._look_around(record.edge.id, base, bool(new_layouts))
            self._guard.look(seen)
            own = None if self._foreign else base
            if own is not None and self._guard.is_given_up(own, seen, self.grace):
                self._foreign = True
                seen = self._look_around(record.edge.id, base, bool(new_layouts))
            gone = is_taken_away(seen, record.edge.id, record.objects, new_layouts)
            if base is not None and self._foreign:
                gone = gone or is_going(self.index, base.node, seen)
        except StorageError as error:
            raise UnknownOutcomeError(
                "the state is stored, but whether a collector let go of what it stands on could not be "
                "listed: save again, which looks first",
                step=step,
            ) from error
        if not gone:
            self._foreign = self._doubtful = False
            self._guard.looked = self._began
            layout = self.track.layout
            self._named_layout = None if layout is None else (layout, record.layout)
        else:
            self._disown(self.head, broken=is_broken(self.index, self.run_id, record, base, seen))
        return gone

    def _look_around(self, edge: str, base: NodeName | None, layouts: bool) -> Listing:
        """List what tells whether the edge just committed, and what it stands on, stays and is there."""
        resumed = base is not None and self._foreign
        # What was resumed was read a moment ago.
        watched = self._guard.folders(None if base is None or resumed else base.node)
        more = [keys.LAYOUTS, *watched] if layouts else watched
        if base is not None and not resumed:
            more = [keys.RETIRED, *more]
        if resumed:
            return self.index.look(committed(edge, more, builds=True))
        young = self._began.is_within(self.grace / 2)
        return Listing.take(self.backend, committed(edge, more, at_once=young), self.requests)

    def _disown(self, name: NodeName, *, broken: bool = False) -> None:
        """Have the next state take the place of a node that is not acknowledged, as what it needs may go."""
        self._superseded.disown(name.node, "what it needs was let go of")
        if broken:
            self._superseded.let_go(self.backend, name.node)
        self._stand_on_nothing(name.step)

    def _stand_on_nothing(self, step: int) -> None:
        """Have the next state set everything anew; where the store went, it makes one again."""
        self.head, self._foreign, self._doubtful, self._named_layout = None, False, False, None
        if not is_store(self.backend):
            self._made = StoreRecord(int(self.grace))
            tell_of_loss(self.backend, step)
