"""Opening a store: is there one, may it be written, and by which rules."""

from __future__ import annotations

import logging
import math
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from lcstore.durability import NAMED, DurabilityLike, durability_from
from lcstore.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError
from lcstore.format import keys
from lcstore.format.policyfile import PolicyLike, policy_from
from lcstore.format.records import DEFAULT_GRACE_SECONDS, MAX_GRACE_SECONDS, StoreRecord
from lcstore.index.resolve import no_store
from lcstore.records.kinds import read_store_record
from lcstore.storage.backend import Backend, check_writable
from lcstore.storage.finding import LOOKS, stores_below
from lcstore.storage.patient import patient
from lcstore.storage.remote import NoBucketError
from lcstore.storage.targets import backend_on, keeps_twice, open_backend
from lcstore.store.hints import hinted
from lcstore.store.store import Store
from lcstore.units import parse_bytes, parse_seconds
from lcstore.write.apart import refuse

_log: Final = logging.getLogger("lcstore")

OpenMode: TypeAlias = Literal["r", "r+", "a", "w-"]


class OpenOptions(TypedDict, total=False):
    """The arguments of `open_store` but for the URL, as others pass them on."""

    mode: OpenMode
    fs: Any
    path: str | os.PathLike[str] | None
    storage_options: Mapping[str, Any] | None
    policy: PolicyLike | None
    threads: int | None
    grace: float | str | None
    durability: DurabilityLike | None
    timeout: float | None
    retries: int | None
    gpu_memory: int | str


@hinted("lcstore.open")
def open_store(
    url: str | os.PathLike[str] | Backend | None = None,
    mode: OpenMode = "a",
    *,
    fs: Any = None,
    path: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    policy: PolicyLike | None = None,
    threads: int | None = None,
    grace: float | str | None = None,
    durability: DurabilityLike | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    gpu_memory: int | str = "64MiB",
) -> Store:
    """Open a store.

    Parameters
    ----------
    url
        A local path, ``memory://name``, or any URL that fsspec opens (``s3://bucket/run1``). Archives
        (``zip://run1::s3://bucket/runs.zip``), caches (``simplecache::s3://bucket/run1``) and the web
        (``https://host/run1``) are for mode ``"r"``.
    mode
        ``"r"``: read only. ``"r+"``: read and write a store that exists. ``"a"``: the same, created on the
        first save if there is none. ``"w-"``: create; there must be none.
    fs, path
        In the place of `url`: a filesystem of fsspec that you have opened, and where in it the store is
        (``"bucket/run1"``).
    storage_options
        Passed on to the target: credentials, endpoints. Those of a chain by protocol: ``{"s3": {...}}``.
    policy
        Quality of what is saved: ``"lossless"``, ``"high"``, ``"balanced"``, ``"small"``, a policy file
        (``"tuned.json"``, or a `pathlib.Path`), rules by name glob on top of ``balanced``
        (``{"**/embed*": {"error": 0.5}}``), or a `Policy`. If not given, it is that of the state that the
        handle goes on from (`resume`), as far as records tell: rules have to be given again. It is
        ``balanced`` for a run that begins.
    threads
        Threads to code with. By default one per core, and no more than four for saves in the background.
        These, and up to 32 that wait for the target, are begun when they are needed, and stay until the
        handle is closed. So close handles that are not in use where a process has hundreds of stores.
    grace
        For a store that is created now: how long collecting waits at least between condemning and deleting.
        ``"24h"``, or seconds; a day by default. It must be longer than the longest save and restore.
    durability
        What is stored besides, so that damage costs little: a `Durability`, or the name of one.
        ``"default"``: parity of what later states stand on, records twice, anchors added now and then.
        ``"all"``: parity of everything. ``"none"``: none of it. It holds for what this handle writes. A store
        that is created with one keeps it for all handles that are given none, maintenance too. Else it is
        ``"none"`` on object stores, which keep everything several times, and ``"default"`` elsewhere.
    timeout
        Seconds that the target has for a request, all tries together. A try has half of them, while others
        may follow; what carries bytes has more. By default 60 behind a network, and no limit elsewhere.
    retries
        How often a request that fails is tried again, after pauses that double from 0.1 to 5 seconds. By
        default 5 times for targets behind a network, and never for others. Missing permissions and a full
        disk are not tried again. The logger "lcstore" tells of retries and of long silences.
    gpu_memory
        How much of each GPU's memory `save_async` may keep, so that tensors of torch are copied there first:
        bytes, or a text such as ``"2GB"``. With as much as a state takes, training hardly waits: for what has
        no room there the GPU waits until it is on the host.

    Raises
    ------
    InvalidInputError
        An argument is none of these. Modes other than ``r``: the target can only be read.
    NotFoundError
        Modes ``r`` and ``r+``: there is no store. All modes: there is no bucket to hold one.
    ConflictError
        Mode ``w-``: there is one already.
    UnsupportedFormatError
        It was written by a newer lcstore.
    StorageError
        The target failed, or did not answer in time.

    Examples
    --------
    >>> import lcstore
    >>> store = lcstore.open("runs/new", policy="high")
    >>> store.latest_step() is None  # nothing was saved yet
    True
    """
    if mode not in get_args(OpenMode):
        raise InvalidInputError(f"mode is {mode!r}; it is one of {', '.join(get_args(OpenMode))}")
    if threads is not None and not (isinstance(threads, int) and threads >= 1):
        raise InvalidInputError(f"threads is {threads!r}; it is 1 or more, or None for one per core")
    target = _target(url, fs, path, storage_options)
    if mode != "r":
        check_writable(target)
    backend = patient(target, timeout, retries)
    try:
        found = read_store_record(backend)
    except NoBucketError as error:
        raise NotFoundError(f"no store can be at {backend.url}: {error.message}", missing="store") from error
    except NotFoundError:
        found = None
    except CorruptionError as error:
        at = shlex.quote(backend.url)
        error.message += (
            f"; `lcstore verify {at}` says what else is, `lcstore repair {at}` how it is made again"
        )
        raise
    exists = found is not None
    if not exists and mode in ("r", "r+"):
        raise no_store(backend, url, storage_options)
    if exists and mode == "w-":
        raise ConflictError(f"there is a store at {backend.url} already; mode 'a' adds to it")
    given = None if durability is None else durability_from(durability)
    made = StoreRecord(DEFAULT_GRACE_SECONDS if grace is None else grace_of(grace), given)
    if found is None:
        check_place(backend)
    elif grace is not None and found.grace_seconds != made.grace_seconds and mode != "r":
        _log.warning(
            "%s keeps the grace of %s s that it was made with: a grace is for a store that is made now",
            backend.url,
            found.grace_seconds,
        )
    usual = given or (found or made).durability or NAMED["none" if keeps_twice(backend) else "default"]
    return Store(
        backend,
        None if policy is None else policy_from(policy),
        usual,
        writable=mode != "r",
        made=None if exists else made,
        grace=(found or made).grace_seconds,
        threads=threads,
        gpu_memory=_gpu_memory_of(gpu_memory),
    )


def _target(
    url: str | os.PathLike[str] | Backend | None,
    fs: Any,
    path: str | os.PathLike[str] | None,
    storage_options: Mapping[str, Any] | None,
) -> Backend:
    """Return the backend of a URL, or of a path of a filesystem."""
    if fs is None:
        if url is None or path is not None:
            raise InvalidInputError("a store lies at a URL or in a filesystem: give url, or fs and path")
        return open_backend(url, storage_options)
    if url is not None or storage_options:
        raise InvalidInputError("fs has its own credentials: give fs and path, or url and storage_options")
    return backend_on(fs, "" if path is None else path)


def check_place(backend: Backend) -> None:
    """Refuse a place for a new store that is none, as far as local folders tell; `check_around` asks others.

    Raises
    ------
    InvalidInputError
        It lies in another store's folder, or such a folder in it: what tends the outer one would take the
        inner one for files that do not belong there. Or it is the name of a state, as commands take it, or
        that of the second copies of the folder above, which would be taken for a store that lost its record.
    """
    if backend.url.rstrip("/").rpartition("/")[2] == keys.COPIES:
        raise InvalidInputError(
            f"{backend.url} would be read as second copies of a store in the folder above: call it otherwise"
        )
    scheme, _, local = backend.url.partition("://")
    if scheme != "file":
        return
    path = Path(local)
    refuse(path, next(filter(_is_store, path.parents), None), None)
    inside = stores_below(local, own=(keys.COPIES, keys.QUARANTINE), most=1, looks=LOOKS)
    refuse(path, None, inside[0] if inside else None)
    name, at, state = path.name.rpartition("@")
    if at and name and _is_store(path.with_name(name)):
        raise InvalidInputError(
            f"{path} would be read as state {state!r} of the store {path.with_name(name)}: open that, and "
            "restore the state"
        )


def _is_store(folder: Path) -> bool:
    # The folder of second copies has a copy of the first, and no states.
    return (folder / keys.STORE_KEY).is_file() and folder.name != keys.COPIES.rstrip("/")


def _gpu_memory_of(given: int | str) -> int:
    nbytes = parse_bytes(given) if isinstance(given, str) else given
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
        raise InvalidInputError(
            f"gpu_memory is {given!r:.100}; it is bytes, 0 or more, or a text such as '2GB'"
        )
    return nbytes


def grace_of(grace: float | str) -> int:
    """Return a grace in whole seconds, rounded up: of ``"24h"``, or of a number of seconds."""
    seconds = parse_seconds(grace) if isinstance(grace, str) else grace
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= MAX_GRACE_SECONDS
    ):
        raise InvalidInputError(
            f"a grace is 0 to {MAX_GRACE_SECONDS} seconds, or text such as '24h', not {grace!r}"
        )
    return math.ceil(seconds)
