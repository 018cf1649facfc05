"""What nearly every run compiles first, and processes beside it that compile it at the same time.

Numba compiles one kernel after another in a process, whatever the number of threads. Its cache on disk is
shared: a kernel that another process has compiled meanwhile is only read. So the first process on a machine
that finds nothing in the cache has others begin at the end of the list, while it begins where its run does.

    python -m lcstore.compiling.ahead 0 1     compile all of the list: the first share of one
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any, Final

#: Kernels of a run of float32 weights with Adam's moments, in the order in which saves, deltas and restores
#: need them, and the types of their arguments; ``!`` marks an array that may not be written.
TYPICAL: Final[tuple[tuple[str, str], ...]] = (
    ("kernels.sample.gather", "float32[::1], int64[::1], float64[::1]"),
    ("kernels.grid.largest_pattern", "uint32[::1], int64, uint32[::1]"),
    ("kernels.planes.split_planes", "uint32[::1], int64, uint8[::1], int64[::1]"),
    (
        "kernels.quantize.coarse_levels",
        "float32[::1], int32[::1], int64, int16[::1], float64[::1], int16[::1], int8[::1], "
        "int64[::1], int64[::1]",
    ),
    ("bitkernels.pack.any_level", "int8[::1]"),
    ("bitkernels.huffman.histogram", "uint8[::1], int64[::1]"),
    ("bitkernels.relative.to_relative", "int8[::1], int64[::1], int64"),
    ("bitkernels.pack.count_symbols", "int8[::1], int64, int64, int64[::1]"),
    ("bitkernels.huffman.code_lengths", "int64[::1], uint8[::1]"),
    ("bitkernels.huffman.assign_codes", "uint8[::1], uint32[::1]"),
    ("bitkernels.huffman.write_lengths", "uint8[::1], uint8[::1]"),
    ("bitkernels.huffman.code_bits", "int64[::1], uint8[::1]"),
    (
        "bitkernels.pack.encode_pack",
        "int8[::1], int64[::1], int64, int64, int64, int64, uint32[::1], uint8[::1], uint16[:, ::1]",
    ),
    ("bitkernels.runs.tokenize", "int8[::1], int64, uint8[::1], uint32[::1], int64[::1]"),
    ("bitkernels.runs.extra_bits", "uint8[::1]"),
    ("bitkernels.huffman.entropy", "int64[::1], float64[::1]"),
    ("kernels.scales.equal_runs", "int16[::1], int16[::1], uint32[::1]"),
    (
        "kernels.factored.fit_roots",
        "float32[::1], int32[::1], int64, int64, float64[::1], float32[::1], float32[::1]",
    ),
    ("kernels.sample.cross", "int32[::1], int64, int64[::1], int32[:, ::1], int32[:, ::1]"),
    (
        "kernels.offsets.offsets",
        "int32[::1], float32[::1], float32[::1], float32[::1], int64, int64, int64, float64[::1], "
        "float64[::1]",
    ),
    (
        "kernels.factored.factored_levels",
        "int32[::1], int64, int16[::1], int16[::1], int64, int64, int64, int8[::1], int64[::1]",
    ),
    ("kernels.factored.arrange_rows", "int8[::1], int64, uint32[::1], int64"),
    ("kernels.quantize.linear_values", "int8[::1], float64[::1], int64, float32[::1]"),
    ("kernels.factored.factored_values", "int8[::1], int64, int16[::1], int16[::1], int64, int32[::1]"),
    ("kernels.sample.root_mean_square", "float64[::1], float64[::1]"),
    (
        "kernels.sample.follow_mean",
        "float64[::1], float64, float64, float64[::1], float64[::1], float64[::1]",
    ),
    ("kernels.sample.shares", "float64[::1], int64[::1], float64, float64, float64, float64[::1]"),
    ("kernels.rows.note_sizes", "float32[::1], float32, float64, bool, float32[::1], float32[::1]"),
    (
        "kernels.advance.advance",
        "int64[:, ::1], int64[::1], float32[::1], float32[::1], float32[::1], int32[::1], "
        "int8[::1], int64[::1], int64, float32, float32, int64, uint64[::1]",
    ),
    (
        "bitkernels.runs.encode_runs",
        "int8[::1], int64[::1], int64, uint8[::1], uint32[::1], int64[::1], uint32[::1], "
        "uint8[::1], uint16[:, ::1]",
    ),
    ("kernels.sample.residuals", "int32[::1], int64[::1], float64, float64[::1], float64[::1], float64[::1]"),
    ("kernels.rows.misses", "float32[::1], int32[::1], int64, int64[::1], int64, float64, float64[::1]"),
    ("bitkernels.huffman.fill_table", "uint32[::1], uint64[::1], uint64[::1], uint8[::1]"),
    ("bitkernels.huffman.fill_table", "uint32[::1], uint8[::1], uint8[::1], uint8[::1]"),
    ("kernels.planes.join_four", "uint8[::1]!, uint8[::1]!, uint8[::1]!, uint8[::1]!, uint32[::1]"),
    ("bitkernels.huffman.join_codes", "uint64[::1], uint8[::1], int64, uint64[:, ::1], uint16[::1]"),
    (
        "bitkernels.pack.decode_pack",
        "uint64[::1], int64, uint16[:, ::1], uint64[:, ::1], uint16[::1], int64, int8[::1], int64",
    ),
    (
        "bitkernels.escapes.decode_escapes",
        "uint64[::1], int64, uint16[:, ::1], int8[::1], int64, int64, int64[::1], int64[::1]",
    ),
    ("bitkernels.relative.from_relative", "int8[::1], int64[::1], int64[::1], int64"),
    ("kernels.factored.factored_values", "int64[::1], int64, int64[::1], int16[::1], int64, int32[::1]"),
    (
        "kernels.adding.add_frames",
        "int64, uint64[::1], int64[:, ::1], uint16[::1], uint64[:, :, ::1], uint16[:, ::1], uint8[:, ::1], "
        "uint8[:, ::1], int16[::1], int64, int8[::1], int64[::1], int64[::1], int8[::1], int32[::1]",
    ),
    ("kernels.grid.to_grids", "float32[::1], int64[::1], int64[::1], float32[::1], float32, int32[::1]"),
    ("kernels.digest.digest_pieces", "uint32[::1], int64[::1], int64[::1], int64[::1], uint64[::1]"),
    ("kernels.digest.digest_pieces", "int32[::1], int64[::1], int64[::1], int64[::1], uint64[::1]"),
    ("kernels.grid.from_grids", "int32[::1], int64[::1], int64[::1], float64[::1], float32[::1]"),
)

#: Processes beside the first one, at most.
_MOST: Final = 3
#: Helpers that are not done after so many seconds are gone.
_PATIENCE: Final = 120
#: In the cache's folder while helpers are at work: of many processes that begin at once, one starts them.
_MARK: Final = "compiling"
#: In the environment of helpers, which start none.
HELPER: Final = "LCSTORE_COMPILES_AHEAD"


def signature(types: str) -> tuple[Any, ...]:
    """Return the types of arguments as numba has them."""
    from numba.core import sigutils
    from numba.core import types as numba_types

    args: list[Any] = []
    for text in types.replace(":, ", ":,").split(", "):
        (made,), _ = sigutils.normalize_signature(f"({text.rstrip('!')},)")
        if text.endswith("!"):
            made = numba_types.Array(made.dtype, made.ndim, "C", readonly=True)
        args.append(made)
    return tuple(args)


def is_typical(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Return whether a kernel is in the list for arguments of these types."""
    name = f"{function.__module__.removeprefix('lcstore.')}.{function.__name__}"
    return any(name == listed and args == signature(types) for listed, types in TYPICAL)


def compile_share(first: int, of: int) -> None:
    """Compile each `of`-th kernel of the list, from the end on, into the cache.

    All types of a kernel are one process's: two that add to its index at once would lose one of them.
    """
    names = list(dict.fromkeys(name for name, _ in TYPICAL[::-1]))[first::of]
    for name, types in TYPICAL[::-1]:
        if name in names:
            module, _, function = name.rpartition(".")
            getattr(import_module(f"lcstore.{module}"), function).compile(signature(types))


def start_helpers(cache: Path) -> list[Popen[bytes]]:
    """Start processes that compile into `cache`, where there are cores for them and none are at work.

    They end by themselves. Nothing depends on them: whatever fails is compiled by who needs it.
    """
    count = min(_MOST, _cores() - 1)
    if count < 1 or os.environ.get(HELPER) or not _claim(cache / _MARK):
        return []
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environ = {**os.environ, "PYTHONPATH": path, HELPER: "1"}
    begun = []
    for share in range(count):
        command = [sys.executable, "-m", __name__, str(share), str(count), str(cache / _MARK)]
        with suppress(OSError):
            begun.append(Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, env=environ))
    for process in begun:  # so that none is left over
        threading.Thread(target=process.wait, daemon=True).start()
    return begun


def _cores() -> int:
    """Return how many cores helpers may have a part of: none in a program that Python is only built into."""
    if "python" not in Path(sys.executable or "").name:
        return 0
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _claim(mark: Path) -> bool:
    """Return whether this process is the one to start helpers."""
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        if mark.exists() and time.time() - mark.stat().st_mtime > _PATIENCE:
            mark.unlink()
        mark.touch(exist_ok=False)
    except OSError:
        return False
    return True


def main(share: str, of: str, mark: str | None = None) -> None:
    """Compile a share; the one that takes the first share takes the mark away."""
    os.environ[HELPER] = "1"
    try:
        compile_share(int(share), int(of))
    finally:
        if mark is not None and share == "0":
            Path(mark).unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
