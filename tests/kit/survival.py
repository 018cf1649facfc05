"""What a disk holds after a power cut: a pure function of what was done to it, and of chance.

The model is that of POSIX, with nothing added that some file system happens to do:

- Bytes written to a file are certain once `fsync` of that file returned. Before that, each write may be
  lost, whole, cut at any byte, or zeros (space that was allocated and not filled), in part or altogether.
- A change of a directory (a name made, renamed or removed) is certain once `fsync` of that directory
  returned. Before that each may have survived or not, whatever became of those before and after it. A
  rename survives as a whole or not at all; between two directories it is certain when both are.
- `fsync` of a file makes no name certain, and `fsync` of a directory no bytes: a rename may have survived
  where the bytes of its file did not.
- What lies below a directory whose name was lost is lost.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

ChangeKind: TypeAlias = Literal["link", "move", "unlink", "write", "resize", "sync"]
#: Number of a file or directory; a name is an entry of a directory that says a number.
Inode: TypeAlias = int

TOP: Inode = 0
_SECTOR = 512


@dataclass(frozen=True, slots=True)
class Change:
    """One thing done to the disk.

    Attributes
    ----------
    kind
        ``link``: a name was made in `folder` for `inode`. ``move``: the name became `to_name` in
        `to_folder`. ``unlink``: it was removed. ``write``: `data` at byte `offset` of `inode`. ``resize``:
        `inode` was cut or extended to `offset` bytes. ``sync``: fsync of `inode` returned.
    """

    kind: ChangeKind
    inode: Inode
    folder: Inode = -1
    name: str = ""
    to_folder: Inode = -1
    to_name: str = ""
    offset: int = 0
    data: bytes = b""


@dataclass
class Tree:
    """Directories with their entries, and the bytes of files, by number."""

    folders: dict[Inode, dict[str, Inode]] = field(default_factory=lambda: {TOP: {}})
    files: dict[Inode, bytes] = field(default_factory=dict)

    def paths(self) -> dict[str, bytes | None]:
        """Return what can be reached from the top: relative path to bytes, None for a directory."""
        found: dict[str, bytes | None] = {}
        pending = [("", TOP)]
        while pending:
            above, folder = pending.pop()
            for name, inode in self.folders[folder].items():
                path = above + name
                if inode in self.folders:
                    found[path] = None
                    pending.append((f"{path}/", inode))
                else:
                    found[path] = self.files.get(inode, b"")
        return found


def after_power_loss(
    before: Tree, changes: Sequence[Change], folders: Iterable[Inode], seed: int
) -> dict[str, bytes | None]:
    """Return what is found when the power comes back.

    Parameters
    ----------
    before
        What was certain at the start.
    changes
        What was done since, in order.
    folders
        The numbers, of those that `changes` made, that are directories.
    seed
        What chance does with all that was not certain; same seed, same outcome.

    Returns
    -------
    dict
        Relative path to bytes, None for a directory.
    """
    return _replay(before, changes, folders, _Chance(f"{seed}/{len(changes)}", len(changes)))


def without_power_loss(
    before: Tree, changes: Sequence[Change], folders: Iterable[Inode]
) -> dict[str, bytes | None]:
    """Return what is there when nothing is lost."""
    return _replay(before, changes, folders, None)


def _replay(
    before: Tree, changes: Sequence[Change], folders: Iterable[Inode], chance: _Chance | None
) -> dict[str, bytes | None]:
    certain = _certain(changes)
    tree = Tree(
        {inode: dict(entries) for inode, entries in before.folders.items()}
        | {inode: {} for inode in folders},
        dict(before.files),
    )
    for number, change in enumerate(changes):
        if change.kind == "sync":
            continue
        safe = chance is None or number in certain
        if change.kind in ("write", "resize"):
            _write(tree.files, change, None if safe else chance)
        elif safe or (chance is not None and chance.keeps_name(number)):
            _rename(tree.folders, change)
    return tree.paths()


def _certain(changes: Sequence[Change]) -> set[int]:
    """Return the places of the changes that a later fsync made certain."""
    certain: set[int] = set()
    open_: dict[Inode, list[int]] = {}
    waits: dict[int, int] = {}
    for number, change in enumerate(changes):
        if change.kind == "sync":
            for earlier in open_.pop(change.inode, ()):
                waits[earlier] -= 1
                if not waits[earlier]:
                    certain.add(earlier)
            continue
        where = {change.inode} if change.kind in ("write", "resize") else {change.folder}
        if change.kind == "move":
            where.add(change.to_folder)
        waits[number] = len(where)
        for inode in where:
            open_.setdefault(inode, []).append(number)
    return certain


def _rename(folders: Mapping[Inode, dict[str, Inode]], change: Change) -> None:
    entries = folders[change.folder]
    if change.kind == "link":
        entries[change.name] = change.inode
    elif change.kind == "unlink":
        entries.pop(change.name, None)
    else:
        if entries.get(change.name) == change.inode:
            del entries[change.name]
        folders[change.to_folder][change.to_name] = change.inode


def _write(files: dict[Inode, bytes], change: Change, chance: _Chance | None) -> None:
    old = files.get(change.inode, b"")
    if change.kind == "resize":
        if chance is None or chance.random.random() < 0.5:
            files[change.inode] = old[: change.offset].ljust(change.offset, b"\0")
        return
    data = change.data if chance is None else chance.written(change.data)
    if data:
        files[change.inode] = (
            old[: change.offset].ljust(change.offset, b"\0") + data + old[change.offset + len(data) :]
        )


class _Chance:
    """What becomes of the things that were not certain.

    Each cut has a temper, so that the extremes (all is lost, all survives, only names, only bytes, a journal
    that stops at one moment) are as common as any mixture.
    """

    def __init__(self, seed: str, changes: int) -> None:
        self.random = random.Random(seed)
        names = self.random.choice(["none", "all", "some", "some", "journal"])
        self.names = {"none": 0.0, "all": 1.0, "journal": 1.0}.get(names, self.random.random())
        self.stop = self.random.randrange(changes + 1) if names == "journal" else changes
        self.bytes = self.random.choice(["lost", "whole", "cut", "zeros", "any", "any"])

    def keeps_name(self, number: int) -> bool:
        return self.random.random() < self.names and number < self.stop

    def written(self, data: bytes) -> bytes:
        """Return what is found of a write."""
        fate = self.bytes if self.bytes != "any" else self.random.choice(["lost", "whole", "cut", "zeros"])
        if fate == "lost" or not data:
            return b""
        if fate == "whole":
            return data
        cut = self.random.randrange(len(data))
        if fate == "cut":
            return data[:cut]
        if self.random.random() < 0.5:
            return data[:cut] + bytes(len(data) - cut)
        return b"".join(
            part if self.random.random() < 0.5 else bytes(len(part))
            for part in (data[at : at + _SECTOR] for at in range(0, len(data), _SECTOR))
        )
