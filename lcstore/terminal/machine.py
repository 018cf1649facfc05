"""What this machine is: versions, cores, compiled kernels, and whether the codec works on it."""

from __future__ import annotations

import platform
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from lcstore.terminal.packages import broken_numcodecs, version_of

_PACKAGES: Final = (
    "numpy", "numba", "zarr", "numcodecs", "fsspec", "ml-dtypes", "google-crc32c", "rich", "typer",
    "s3fs", "torch", "jax", "scikit-learn",
)  # fmt: skip
_ELEMENTS: Final = 1 << 21
#: What is said where a trial could not clean up.
_LEFT: Final = "What this trial wrote is left there, in lcstore-doctor-*"
#: What to look at where a target does not answer.
_LOOK_AT: Final = (
    "look at its address (of a bucket AWS_ENDPOINT_URL and the region), and at what lies in between: a proxy "
    "(HTTPS_PROXY, NO_PROXY), a firewall"
)


def versions() -> dict[str, str | None]:
    """Return the versions of Python, lcstore and their packages; None where one is not installed."""
    from lcstore.version import __version__

    found: dict[str, str | None] = {"python": platform.python_version(), "lcstore": __version__}
    return found | {name: version_of(name) for name in _PACKAGES}


def machine() -> dict[str, Any]:
    """Return what this machine is, and whether the codec works on it."""
    from lcstore.jobs.jobs import default_threads

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
    codec = LCCodec(bits=8)
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
    """Return the folder of most compiled kernels, how many those are, and whether others are kept."""
    from lcstore.compiling.jit import all_are_kept
    from lcstore.kernels import quantize

    caches = [getattr(kernel, "_cache", None) for kernel in vars(quantize).values()]
    known = next((cache for cache in caches if hasattr(cache, "keeps")), None)
    kernels = {} if known is None else {folder: _kernels_in(folder) for folder in known.folders}
    path = max(kernels, key=kernels.__getitem__, default=None)
    return {
        "path": path,
        "kernels": 0 if path is None else kernels[path],
        "writable": known is not None and known.keeps,
        "kept": all_are_kept(),
    }


def _kernels_in(folder: str) -> int:
    """Return how many kernels are in a folder, if it is there and can be listed."""
    return len(list(Path(folder).glob("*.nbc")))


def about_kernels(cache: dict[str, Any]) -> str:
    """Return what is said of compiled kernels: where they are, and what helps if each start compiles anew."""
    from lcstore.compiling.jit import way_out

    found = f"{cache['kernels']} kernels in {cache['path']}" if cache["path"] else "none"
    return found if cache["kept"] else f"{found}, so each start compiles anew: {way_out()}"


def why_not(target: dict[str, Any]) -> str:
    """Return what is said of a target that does not keep all promises, as far as they were tried; else ""."""
    problems = {check["problem"] for check in target["checks"]} - {None}
    if target["silent"]:
        left = f" {_LEFT}." * bool(target["checks"])
        return f"{target['silent']}. Nothing else was tried: {_LOOK_AT}.{left}"
    if target["problem"] and not target["checks"]:
        return "nothing else was tried."
    return _refused(problems, readable=not target["problem"]) if problems else ""


def _refused(problems: Collection[str], *, readable: bool) -> str:
    """Return what is said of a target that keeps not all promises, for these reasons."""
    if all("no room left" in problem for problem in problems):
        return "there is no room left. What takes none works."
    forbidden = [problem for problem in problems if "PermissionError" in problem]
    if forbidden and all("could not delete" in problem for problem in forbidden):
        return f"you may write there, and not delete: saves work, but nothing can be collected. {_LEFT}."
    if forbidden and not readable:
        return "you may neither read nor write there: ask its owner for the rights to (docs/targets.md)."
    if forbidden:
        return "you may not write there. A store that is there can be read, as far as you may read its files."
    return "do not keep a store there, or ask its maintainers about what is red above."
