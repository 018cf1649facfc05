"""The files of one state: what is where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any, Final

from lcstore.filesystem.chunkcache import ChunkCache
from lcstore.filesystem.decoded import Decoded, Where
from lcstore.filesystem.files import Entry, File, Folder, LazyFolder, Literal
from lcstore.filesystem.quoting import quoted
from lcstore.filesystem.tensorfiles import npy_file, safetensors_file
from lcstore.filesystem.zarrnodes import state_hierarchy
from lcstore.once import once
from lcstore.read.snapshot import Snapshot
from lcstore.state.leaves import encode_leaf, is_leaf
from lcstore.state.names import Name, format_name, nested

#: The one key of a safetensors header that is no tensor.
_METADATA: Final = "__metadata__"


class StateFolder(LazyFolder):
    """The folder of one state."""

    def __init__(self, snapshot: Snapshot, cache: ChunkCache[Where]) -> None:
        super().__init__(self._files)
        self.snapshot = snapshot
        self._cache = cache

    @once
    def created(self) -> datetime:
        """When it was saved."""
        return datetime.fromisoformat(self.snapshot.using(lambda state: state.node.record.created))

    def _files(self) -> Folder:
        source = Decoded(self.snapshot, self._cache)
        named = kept(source)
        said = {"format": "pt", "step": str(self.snapshot.step), "node": self.snapshot.node}
        texts = {format_name(name): whole for name, whole in named.items()}
        return {
            "state.safetensors": _safetensors(source, texts, said),
            "metadata.json": File([Literal(metadata_of(self.snapshot))]),
            "safetensors": LazyFolder(partial(_by_top, source, named, said)),
            "tensors": LazyFolder(lambda: nested(_npy_files(source, named))),
            "zarr": LazyFolder(lambda: state_hierarchy(source, named)),
        }


def kept(source: Decoded) -> dict[Name, int]:
    """Return the tensors of a state by all of their names; those that were let go of are left out."""
    node = source.node
    gone = {w for w in node.wholes if any(map(node.has_let_go, node.layout.shards[w]))}
    return {name: whole for name, whole in node.layout.named.items() if whole not in gone}


def metadata_of(snapshot: Snapshot) -> bytes:
    """Return what is recorded of a state, its plain values, and what there is of tensors, as JSON."""
    info = snapshot.info
    tensors = {
        name: {"shape": shape, "dtype": dtype, "role": role}
        for name, (shape, dtype, role) in snapshot.tensors().items()
    }
    values = {name: _said(value) for name, value in snapshot.leaves().items()}
    said = _said(vars(info)) | {"url": snapshot.url, "values": values, "tensors": tensors}
    return json.dumps(said, indent=2).encode()


def _said(value: Any) -> Any:
    """Return a plain value as the layout of leaves has it; nested ones part by part."""
    if isinstance(value, dict):
        return {str(key): _said(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_said(item) for item in value]
    return encode_leaf(value) if is_leaf(value) else str(value)


def _npy_files(source: Decoded, named: dict[Name, int]) -> Iterator[tuple[list[str], Entry]]:
    for name, whole in named.items():
        *folders, last = quoted(name)
        yield [*folders, f"{last}.npy"], npy_file(source, whole)


def _by_top(source: Decoded, named: dict[Name, int], said: dict[str, str]) -> Folder:
    """Return a file for each part at the top of a state, with the names that tensors have below it."""
    tops: dict[str, dict[str, int]] = {}
    for name, whole in named.items():
        if len(name) > 1:
            tops.setdefault(quoted(name)[0], {})[format_name(name[1:])] = whole
    return {f"{top}.safetensors": _safetensors(source, inside, said) for top, inside in tops.items()}


def _safetensors(source: Decoded, tensors: dict[str, int], said: dict[str, str]) -> File:
    called = {f"~x5f{text[1:]}" if text == _METADATA else text: whole for text, whole in tensors.items()}
    return safetensors_file(source, called, said)
