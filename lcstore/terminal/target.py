"""What ``lcstore doctor`` finds out about a target."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lcstore.errors import LcstoreError, NotFoundError, StorageError
from lcstore.storage.local import LocalBackend
from lcstore.terminal.asking import cure_of, on_trial

if TYPE_CHECKING:
    from lcstore.storage.backend import Backend
    from lcstore.storage.traits import Traits

_NONE: Final = "none yet"
_NO_ROOM: Final = "there is no room left"


def target(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """Check every promise of a target, in a folder that is deleted again; return what was found.

    Raises
    ------
    LcstoreError
        It cannot be opened or reached at all.
    """
    from lcstore.index.resolve import headless
    from lcstore.storage.targets import open_backend
    from lcstore.testing import run

    inner, silence = open_backend(url, options), list[str]()
    traits: Traits | None = getattr(inner, "traits", None)  # not of folders and memory of this machine
    backend = on_trial(inner, silence)
    store, problem, reachable = _store(backend)
    if reachable and not problem and store == _NONE and (lacks := headless(backend)):
        store, problem = lacks, True
    elif reachable and store == _NONE and not backend.writable:
        store, problem = "none, and no save can make one here: check the URL", True
    if silence:
        store, problem, reachable = silence[0], True, False
    checks: list[dict[str, Any]] = []
    if backend.writable and reachable:
        scratch = f"{url.rstrip('/')}/lcstore-doctor-{secrets.token_hex(8)}"
        made = _made(open_backend(scratch, options))

        def opened() -> Backend:
            return on_trial(open_backend(scratch, options), silence)

        try:
            found = run(opened(), opened, lambda: bool(silence))
        finally:
            _sweep(made)
        checks = [
            {"name": f.check, "problem": _brief(f.problem), "seconds": round(f.seconds, 3)} for f in found
        ]
    return {
        "url": backend.url,
        "writable": backend.writable,
        "writing": traits.writing if traits else "whole: beside, then renamed",
        "requests": traits.requests if traits else "side by side",
        "durable": backend.durable,
        "store": store,
        "problem": problem,
        "silent": silence[0] if silence else None,
        "checks": checks,
        "ok": not problem and all(check["problem"] is None for check in checks),
    }


def _store(backend: Backend) -> tuple[str, bool, bool]:
    """Return what store there is, whether that is a problem, and whether one could be there."""
    import lcstore
    from lcstore.index.resolve import lost_records

    try:
        with lcstore.open(backend, "r") as store:
            steps = store.steps()
            lost = "" if steps else lost_records(store.backend)
            if steps:
                store.info()  # of which nothing is known where this user may not read it
            return lost or f"{len(steps)} steps", bool(lost), True
    except NotFoundError as error:
        missing = error.__cause__
        if isinstance(missing, StorageError):  # the bucket: every promise would fail for the same reason
            return missing.message, True, False
        return _NONE, False, True
    except LcstoreError as error:
        if cure := cure_of(error):  # every promise would fail for it
            return f"{error.message.rstrip('.')}: {cure}", True, False
        return str(error), True, True


def _brief(problem: str | None) -> str | None:
    """Return a problem without the ways to make room, which are of stores and not of this trial."""
    return _NO_ROOM if problem and _NO_ROOM in problem else problem


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
