"""What this machine is: versions, cores, compiled kernels, and whether the codec works on it."""

from __future__ import annotations

import os
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


def why_not(problems: Collection[str]) -> str:
    """Return what is said of a target that keeps not all promises, for these reasons."""
    if all("no room left" in problem for problem in problems):
        return "there is no room left. What takes none works."
    if any("PermissionError" in problem for problem in problems):
        return "you may not write there. A store that is there can be read, as far as you may read its files."
    return "do not keep a store there, or ask its maintainers about what is red above."
