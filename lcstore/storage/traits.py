"""What is known of the targets that fsspec opens, by protocol and by the class that serves it.

The page ``docs/targets.md`` and ``lcstore doctor`` say the same, in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.spec import AbstractFileSystem

#: Targets where one request publishes a whole object atomically and durably, and directories do not exist.
OBJECT_STORES: Final = frozenset(
    ["s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oci", "ocilake", "oss", "tos", "tosfs", "memory"]
)
#: Those of them that s3fs serves.
S3: Final = frozenset(["s3", "s3a"])
#: What keeps a copy here of what it reads elsewhere; what makes a write atomic is lost on the way.
CACHES: Final = frozenset(["simplecache", "filecache", "blockcache", "cached"])
ARCHIVES: Final = frozenset(["zip", "tar", "libarchive"])
WEB: Final = frozenset(["http", "https"])
_OTHERS_READ: Final = frozenset(
    ["github", "git", "gist", "reference", "data", "jlab", "jupyter", "hf", "dask", "lcstore"]
)
READ_ONLY: Final = CACHES | ARCHIVES | WEB | _OTHERS_READ
#: Targets of this machine.
HERE: Final = frozenset(["file", "local", "memory"])

#: What a class that lcstore does not know sets to True if one request publishes a whole object, durably.
SAYS_WHOLE: Final = "puts_whole_objects"

_INSTEAD: Final = "`lcstore cp` copies it to a folder or a bucket, which can be written to"


def can_be_written(url: str) -> bool:
    """Return whether what a URL names may be written to, by its protocols."""
    return READ_ONLY.isdisjoint(part.partition("://")[0] for part in url.split("::"))


@dataclass(frozen=True)
class Traits:
    """How objects get to a target and back.

    Attributes
    ----------
    whole
        Whether one request publishes a whole object, and directories do not exist.
    durable
        Whether an object that was published outlives a power cut.
    remote
        Whether there is a network, or another file, in between.
    ranges
        Whether a part of an object can be read without the rest.
    together
        Whether several threads may use one filesystem at once.
    refusal
        Why nothing can be written, and what to do instead; None where it can.
    """

    whole: bool
    durable: bool
    remote: bool
    ranges: bool
    together: bool
    refusal: str | None

    @property
    def writing(self) -> str:
        """How objects get there, for people."""
        if self.refusal is not None:
            return "no: it can only be read"
        return "whole, in one request" if self.whole else "whole: beside, then renamed"

    @property
    def requests(self) -> str:
        """How requests go, for people."""
        return "side by side" if self.together else "one after another"


def traits_of(fs: Any, *, read_only: str | None = None) -> Traits:
    """Return the traits of a filesystem.

    `read_only` is a protocol of the chain that it is the end of, over which nothing can be written.
    """
    target = target_of(fs)
    names = {target.protocol} if isinstance(target.protocol, str) else set(target.protocol)
    module = type(target).__module__.partition(".")[0]
    whole = bool(names & OBJECT_STORES) or getattr(target, SAYS_WHOLE, False) is True
    refusal = _refusal(names & READ_ONLY or ({read_only} if read_only else set()))
    if refusal is None and not whole and _renames_by_copying(target):
        refusal = (
            f"{type(target).__name__} renames by copying and deleting, so readers could see half an object; "
            "write to a folder, a bucket or SFTP. A class of yours that publishes an object whole in one "
            f"request says so: {SAYS_WHOLE} = True"
        )
    return Traits(
        whole=whole,
        durable=whole and "memory" not in names,
        remote=not names & HERE,
        # Servers of the web may answer a range with everything, and sshfs always does.
        ranges=not names & WEB and module != "sshfs",
        # Threads that share a connection of paramiko take each other's answers, and wait for ever.
        # Caches let one thread read what another has half fetched.
        together=not names & CACHES and (bool(target.async_impl) or bool(names & HERE)),
        refusal=refusal,
    )


def target_of(fs: Any) -> Any:
    """Return the filesystem that a chain of prefixed folders (``dir::``) ends at."""
    while isinstance(fs, DirFileSystem):
        fs = fs.fs
    return fs


def _refusal(names: set[str]) -> str | None:
    if not names:
        return None
    if names & CACHES:
        return "through a cache a store is only read; open the URL without the cache to write"
    if names & ARCHIVES:
        return f"an archive is only read; {_INSTEAD}"
    if names & WEB:
        return f"over HTTP a store is only read; {_INSTEAD}"
    return f"{min(names)!r} is only read; {_INSTEAD}"


def _renames_by_copying(fs: Any) -> bool:
    """Return whether a filesystem has no rename of its own, only fsspec's copy and delete."""
    # Asynchronous ones have theirs as an attribute of the object.
    return getattr(fs.mv, "__func__", None) is AbstractFileSystem.mv
