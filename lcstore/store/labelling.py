"""Tags and pins of a store that is open."""

from __future__ import annotations

from lcstore.errors import InvalidInputError, NotFoundError
from lcstore.format.labels import At, check_tag
from lcstore.index.marked import bearers
from lcstore.index.resolve import no_tag
from lcstore.read.find import named
from lcstore.store.handle import Handle
from lcstore.write.naming import pin, set_name, unpin


class Labelling(Handle):
    """The methods of `lcstore.Store` that name states, and hold them."""

    def tags(self) -> dict[str, str]:
        """Return every tag and the node that it finds: where it is on several, that is the last one set."""
        self._reader.listed()
        return self._index.tagged()

    def tag(self, name: str, at: At) -> None:
        """Set a tag on a state; ``restore(name)`` finds the one on which it was set last."""
        self._check_writable()
        if not isinstance(name, str):
            raise InvalidInputError(f"a tag is a text, not {name!r:.100}: tag(name, step)")
        check_tag(name)
        set_name(self._backend, "tag", name, self._found(at))

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

    def pin(self, at: At, by: str = "") -> str:
        """Keep a state from being retired; one that was retired is brought back.

        Parameters
        ----------
        at
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
        node = self._found_or_retired(at)
        pin(self._backend, self._index, node, by)
        return node

    def unpin(self, at: At, by: str | None = None) -> int:
        """Take the pins of a state away (or only that of one holder); return how many there were."""
        self._check_writable()
        return unpin(self._backend, self._index, self._found(at), by)

    def _found_or_retired(self, at: At) -> str:
        try:
            return self._found(at)
        except NotFoundError:
            graph = self._index.graph
            there = [*graph.nodes.values()]
            retired = [name for name in there if name.step == at and name.node in graph.hidden]
            if not retired:
                raise
            return max(retired, key=lambda name: name.order).node

    def _found(self, at: At) -> str:
        self._reader.listed()
        return named(self._reader, at).node
