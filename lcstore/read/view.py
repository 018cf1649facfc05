"""``store[step]``: one state, looked at piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lcstore.index.info import StepInfo

if TYPE_CHECKING:
    from lcstore.read.looking import Looking


class StepView(Mapping[str, Any]):
    """The tensors of one state by path, read when they are asked for."""

    def __init__(self, store: Looking, node: str) -> None:
        self._store = store
        self.node = node

    def __getitem__(self, path: str) -> Any:
        """Return one tensor (or plain value)."""
        return self._store.read(self.node, path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.paths(self.node))

    def __len__(self) -> int:
        return len(self._store.paths(self.node))

    @property
    def info(self) -> StepInfo:
        """What is recorded of the state."""
        return self._store.info(self.node)

    def tree(self, **options: Any) -> Any:
        """Return the whole state; options as for `Store.restore`."""
        return self._store.restore(self.node, **options)

    def __repr__(self) -> str:
        info = self.info
        return f"<state at step {info.step} of {self._store.url!r}, {info.tensors} tensors>"
