"""States that a store holds, one after another; a search goes through them several times."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from lcstore.errors import NotFoundError
from lcstore.store.opening import open_store

#: How many of the last states are taken, unless said otherwise.
LATEST: Final = 12
#: Policies of states that a search may take for exact.
_GOOD: Final = ("lossless", "high")
_log: Final = logging.getLogger("lcstore")


class Saved:
    """States of a store, restored one at a time as they are asked for.

    Parameters
    ----------
    url, storage_options
        As for `lcstore.open`.
    steps
        The steps to take; by default the last `LATEST` of the store. They ought to be as far apart as saves
        will be.
    to
        The kind of arrays that the loss gets, as for `lcstore.Store.restore`.

    Notes
    -----
    A state that was saved lossily is taken for exact. It should have been saved at ``high`` or better. The
    log says where one was not.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        steps: Sequence[int] | None = None,
        *,
        to: str = "saved",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._url = url
        self._options = storage_options
        self._to = to
        with open_store(url, "r", storage_options=storage_options) as store:
            known = store.steps()
            unknown = sorted(set(steps or ()) - set(known))
            if unknown:
                raise NotFoundError(
                    f"{os.fspath(url)} has no step {unknown[0]}", step=unknown[0], missing="state"
                )
            self.steps: list[int] = sorted(steps) if steps is not None else known[-LATEST:]
            infos = [store.info(step) for step in self.steps]
        lossy = [info for info in infos if not info.exact and info.policy not in _GOOD]
        if lossy:
            _log.warning(
                "%s: %d of %d states were saved under %s, and are taken for exact: gain and errors are "
                "those of other states. Tune on states saved at lossless or high",
                os.fspath(url),
                len(lossy),
                len(infos),
                lossy[-1].policy or "a policy that the store does not tell",
            )

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Any]:
        with open_store(self._url, "r", storage_options=self._options) as store:
            for _, state in store.walk(self.steps, names=None, to=self._to):
                yield state
