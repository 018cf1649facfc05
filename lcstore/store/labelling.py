"""Tags and pins of a store that is open."""

from __future__ import annotations

from lcstore.errors import InvalidInputError, NotFoundError
from lcstore.format.keyforms import is_id
from lcstore.format.labels import At, Run, check_tag
from lcstore.index.marked import bearers
from lcstore.index.resolve import no_tag
from lcstore.maintain.unretire import UnretireReport, unretire
from lcstore.store.handle import Handle
from lcstore.units import parse_seconds
from lcstore.write.naming import pin, set_name, unpin


class Labelling(Handle):
    """The methods of `lcstore.Store` that name states, and hold them."""

    def tags(self) -> dict[str, str]:
        """Return every tag and the node that it finds: where it is on several, that is the last one set."""
        self._reader.listed()
        return self._index.tagged()

    def tag(self, name: str, at: At, *, run: Run = None) -> None:
        """Set a tag on a state, named as for `restore`, which finds by it the one where it was set last."""
        self._check_writable()
        if not isinstance(name, str):
            raise InvalidInputError(f"a tag is a text, not {name!r:.100}: tag(name, step)")
        check_tag(name)
        set_name(self._backend, "tag", name, self._found(at, run))

    def untag(self, name: str) -> None:
        """Take a tag away from all states, those that were let go of too.

        Raises
        ------
        NotFoundError
            No state has it.
        """
        self._check_writable()
        check_tag(name)
        self._reader.listed()
        borne = bearers(self._index.named, "tag", self._index.graph.nodes)
        if name not in borne:
            raise no_tag(borne, self._backend.url, name)
        set_name(self._backend, "tag", name, None)

    def pin(self, at: At, by: str = "", *, run: Run = None) -> str:
        """Keep a state from being retired; one that was retired is brought back.

        Parameters
        ----------
        at, run
            As for `restore`; or the step of a retired state, where no other has it.
        by
            Who pins: each holder's pin is taken away by itself.

        Returns
        -------
        str
            The node's id.

        Raises
        ------
        NotFoundError
            There is no such state, not even a retired one.
        ConflictError
            It is being collected: too late.
        """
        self._check_writable()
        node = self._found_or_retired(at, run)
        pin(self._index, self._requests, node, by)
        return node

    def unretire(
        self, at: At = None, *, run: Run = None, since: float | str | None = None, dry_run: bool = False
    ) -> UnretireReport:
        """Bring back what was let go of: one state, or all that a collect has not begun to take.

        The next retention rule decides about them anew: a wrong one is made up for so. To hold a state
        whatever a rule says, `pin` it. What was damaged, and saves that were not acknowledged, come back by
        their names alone, if at all; so do states that were let go of before `since`.

        Parameters
        ----------
        at, run
            The step of a retired state, and of which run; or its node's id; all if None.
        since
            Only what was let go of within so many seconds, or ``"12h"``, by the clocks of these machines.
        dry_run
            Only say what would come back.

        Raises
        ------
        NotFoundError
            There is no such state.
        ConflictError
            The state that is named is being collected: too late.
        """
        self._check_open() if dry_run else self._check_writable()
        if at is not None and since is not None:
            raise InvalidInputError("a state that is named comes back whenever it went: leave out `since`")
        if at is None and run is not None:
            raise InvalidInputError("name the step, too: `run` says of which run one state is")
        node = None if at is None else self._retired_first(at, run)
        seconds = parse_seconds(since) if isinstance(since, str) else since
        report = unretire(self._index, self._requests, node, since=seconds, dry_run=dry_run)
        self._log_done(report, dry_run=dry_run)
        return report

    def unpin(self, at: At, by: str | None = None, *, run: Run = None) -> int:
        """Take the pins of a state away (or only that of one holder); return how many there were.

        Of a state whose record is lost, the id of its node names it.
        """
        self._check_writable()
        try:
            node = self._found(at, run)
        except NotFoundError:
            if not (isinstance(at, str) and is_id(at) and (count := unpin(self._index, at, by))):
                raise
            return count
        return unpin(self._index, node, by)

    def _found_or_retired(self, at: At, run: Run) -> str:
        try:
            return self._found(at, run)
        except NotFoundError:
            if (retired := self._retired_at(at, run)) is None:
                raise
            return retired

    def _retired_first(self, at: At, run: Run) -> str:
        self._reader.listed()
        return self._retired_at(at, run) or self._found(at, run)

    def _retired_at(self, at: At, run: Run) -> str | None:
        """Return the last retired state of a step, of one run if that is given."""
        graph = self._index.graph
        retired = [n for n in [*graph.nodes.values()] if n.step == at and n.node in graph.hidden]
        ours = [name for name in retired if run is None or run in (name.run, name.run_id)]
        return max(ours, key=lambda name: name.order).node if ours else None
