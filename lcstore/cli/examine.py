"""What ``lcstore doctor`` finds out about this machine, and about a target."""

from __future__ import annotations

import os
import platform
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lcstore.errors import LcstoreError, NotFoundError, StorageError
from lcstore.storage.local import LocalBackend
from lcstore.storage.patient import lacks_credentials
from lcstore.terminal.packages import broken_numcodecs, version_of

if TYPE_CHECKING:
    from lcstore.storage.backend import Backend
    from lcstore.storage.traits import Traits

_PACKAGES: Final = (
    "numpy", "numba", "zarr", "numcodecs", "fsspec", "ml-dtypes", "google-crc32c", "rich", "typer",
    "s3fs", "torch", "jax", "scikit-learn",
)  # fmt: skip
_ELEMENTS: Final = 1 << 21
_NONE: Final = "none yet"


def versions() -> dict[str, str | None]:
    """Return the versions of Python, lcstore and their packages; None where one is not installed."""
    from lcstore.version import __version__

    found: dict[str, str | None] = {"python": platform.python_version(), "lcstore": __version__}
    return found | {name: version_of(name) for name in _PACKAGES}


def machine() -> dict[str, Any]:
    """Return what this machine is, and whether the codec works on it."""
    from lcstore.storage.jobs import default_threads

    broken = broken_numcodecs()
    codec = _codec() if broken is None else {"ok": False, "problem": broken.message}
    return {
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": default_threads(),
        "codec": codec,
        "cache": cache(),  # after the codec has compiled what it needs
    }


def _codec() -> dict[str, Any]:
    """Code and decode some numbers, once to compile and once to measure; return what came of it."""
    import numpy as np

    from lcstore.codec import LCCodec

    values = np.random.default_rng(0).standard_normal(_ELEMENTS, dtype=np.float32)
    codec = LCCodec()
    try:
        for _ in range(2):
            began = time.perf_counter()
            frame = codec.encode(values)
            middle = time.perf_counter()
            back = np.frombuffer(codec.decode(frame), np.float32)
            ended = time.perf_counter()
        worst = float(np.abs(back - values).max())
    except Exception as error:
        return {"ok": False, "problem": f"{type(error).__name__}: {error}"}
    speeds = (values.nbytes / seconds / 1e9 for seconds in (middle - began, ended - middle))
    encode, decode = (round(speed, 2) for speed in speeds)
    if not worst < float(np.abs(values).max()):
        return {"ok": False, "problem": f"what came back is off by {worst}"}
    return {"ok": True, "problem": None, "encode_gb_s": encode, "decode_gb_s": decode}


def cache() -> dict[str, Any]:
    """Return where numba keeps compiled kernels, how many there are, and whether it can write there."""
    from lcstore.kernels import quantize

    paths = [getattr(getattr(k, "_cache", None), "cache_path", None) for k in vars(quantize).values()]
    path = next((Path(found) for found in paths if isinstance(found, str)), None)
    if path is None:
        return {"path": None, "kernels": 0, "writable": False}
    above = next(folder for folder in (path, *path.parents) if folder.exists())
    return {
        "path": str(path),
        "kernels": len(list(path.glob("*.nbc"))) if path.is_dir() else 0,
        "writable": os.access(above, os.W_OK),
    }


def target(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """Check every promise of a target, in a folder that is deleted again; return what was found.

    Raises
    ------
    LcstoreError
        It cannot be opened or reached at all.
    """
    from lcstore.index.resolve import HEADLESS, has_states
    from lcstore.storage.patient import patient
    from lcstore.storage.targets import open_backend
    from lcstore.testing import run

    backend = open_backend(url, options)
    traits: Traits | None = getattr(backend, "traits", None)  # not of folders and memory of this machine
    store, problem, reachable = _store(url, options)
    if reachable and not problem and store == _NONE and has_states(backend):
        store, problem = HEADLESS, True
    elif reachable and store == _NONE and not backend.writable:
        store, problem = "none, and no save can make one here: check the URL", True
    checks: list[dict[str, Any]] = []
    if backend.writable and reachable:
        scratch = f"{url.rstrip('/')}/lcstore-doctor-{secrets.token_hex(8)}"
        made = _made(open_backend(scratch, options))

        def opened() -> Backend:
            return patient(open_backend(scratch, options), None, None)

        try:
            found = run(opened(), opened)
        finally:
            _sweep(made)
        checks = [{"name": f.check, "problem": f.problem, "seconds": round(f.seconds, 3)} for f in found]
    return {
        "url": backend.url,
        "writable": backend.writable,
        "writing": traits.writing if traits else "whole: beside, then renamed",
        "requests": traits.requests if traits else "side by side",
        "durable": backend.durable,
        "store": store,
        "problem": problem,
        "checks": checks,
        "ok": not problem and all(check["problem"] is None for check in checks),
    }


def _store(url: str, options: dict[str, Any]) -> tuple[str, bool, bool]:
    """Return what store there is, whether that is a problem, and whether one could be there."""
    import lcstore
    from lcstore.index.resolve import lost_records

    try:
        with lcstore.open(url, "r", storage_options=options) as store:
            steps = store.steps()
            lost = "" if steps else lost_records(store.backend)
            return lost or f"{len(steps)} steps", bool(lost), True
    except NotFoundError as error:
        missing = error.__cause__
        if isinstance(missing, StorageError):  # the bucket: every promise would fail for the same reason
            return missing.message, True, False
        return _NONE, False, True
    except LcstoreError as error:
        if isinstance(error, StorageError) and lacks_credentials(error):  # every promise would fail for it
            return f"{error.message}: give them by -o, or as the target's own tools take them", True, False
        return str(error), True, True


def _made(backend: Backend) -> list[Path]:
    """Return the folders that a local target will have to make, the innermost first."""
    if not isinstance(backend, LocalBackend):
        return []  # elsewhere folders go with what is in them
    root = Path(backend.root)
    return [folder for folder in (root, *root.parents) if _is_absent(folder)]


def _is_absent(folder: Path) -> bool:
    """Return whether a folder is not there; one that may not be looked at may be, and is not made."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _sweep(made: list[Path]) -> None:
    """Take away what the trial made, unless someone else has put something there meanwhile."""
    inside = sorted(made[0].rglob("*"), reverse=True) if made else []
    for folder in (*inside, *made):
        try:
            folder.rmdir()
        except OSError:
            continue
