"""Rules that every kernel keeps, read from the source; and what a damaged cache of compiled code does."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError

import lcstore
from lcstore.compiling import ahead, jit
from lcstore.compiling.unaligned import copy_row, item

FILES = sorted(Path(lcstore.__file__).parent.glob("*kernels/*.py"))
#: Unchecked helpers of checked kernels, with what bounds their indices.
BOUNDED_BY_THEMSELVES = {
    "any_past": "loops over its own array",
    "extra_bits": "fills 256 entries that its caller made, from constants",
}


def functions():
    for file in FILES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                yield file, node


def kernel_options(node):
    """Give the options of the project's decorator, or None where a function does not have it."""
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(call, ast.Name) and call.id == "kernel":
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            return {k.arg: ast.literal_eval(k.value) for k in keywords}
    return None


KERNELS = {
    node.name: (node, options) for _, node in functions() if (options := kernel_options(node)) is not None
}


def calls(node):
    return {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_only_the_projects_decorator_compiles(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = {a.name.rsplit(".")[-1] for a in node.names}
            assert not names & {"njit", "jit", "vectorize", "guvectorize", "prange", "cfunc", "stencil"}, (
                names
            )


def test_every_function_is_compiled():
    assert [f"{file.name}:{node.name}" for file, node in functions() if kernel_options(node) is None] == []


def test_what_reads_stored_bytes_checks_every_index():
    decoders = {
        name for name in KERNELS if name.startswith(("decode", "_decode", "take", "window", "at_end"))
    }
    assert {
        "decode_pack",
        "decode_escapes",
        "decode_runs",
        "decode_wide",
        "_decode4",
        "take_escape",
    } <= decoders
    decoders |= {"table_values"}
    assert {name for name in decoders if not KERNELS[name][1].get("checked")} == set()


def test_helpers_of_checked_kernels_are_checked_themselves():
    """The check is not passed on to callees, so one that indexes without it would be a hole."""
    for name, (node, options) in KERNELS.items():
        if not options.get("checked"):
            continue
        for callee in calls(node) & KERNELS.keys():
            helper, its_options = KERNELS[callee]
            indexes = any(isinstance(n, ast.Subscript) for part in helper.body for n in ast.walk(part))
            safe = its_options.get("checked") or not indexes or callee in BOUNDED_BY_THEMSELVES
            assert safe, f"{name} is checked, but calls {callee}, which is not"


def test_kernels_never_raise():
    for name, (node, _) in KERNELS.items():
        assert not any(isinstance(n, ast.Raise | ast.Assert | ast.Try) for n in ast.walk(node)), name


def test_a_checked_kernel_notices_an_index_outside():
    @jit.kernel(checked=True)
    def read(values, at):
        return values[at]

    @jit.kernel(inline=True)
    def helper(values, at):
        return values[at] + 1

    assert helper(np.arange(3), 1) == 2
    with pytest.raises(IndexError):
        read(np.arange(3), 3)


@pytest.mark.parametrize("at", [0, 3, 24])
def test_a_row_is_copied_to_sixteen_bytes_and_nowhere_else(at):
    @jit.kernel(checked=True)
    def copied(table, row, values, at):
        copy_row(table, row, values, at)
        return item(values, at)

    memory, table = np.zeros(40, np.int8), np.arange(48, dtype=np.uint8).view(np.uint64).reshape(3, 2)
    assert copied(table, np.uint64(2), memory, np.uint64(at)) == 32
    wanted = np.zeros(40, np.int8)
    wanted[at : at + 16] = np.arange(32, 48)
    np.testing.assert_array_equal(memory, wanted)
    with pytest.raises(TypingError):  # what is not contiguous has no such places
        copied(table, np.uint64(2), np.zeros(80, np.int8)[::2], np.uint64(at))


SCRIPT = """
import numpy as np
from lcstore.bitkernels import huffman
counts = np.zeros(256, np.int64)
huffman.histogram(np.arange(256, dtype=np.uint8), counts)
assert (counts == 1).all()
print("read")
"""
#: As for a user who may write below HOME alone: the tests may be run by root, who may write everywhere.
NOWHERE_ELSE = """
import os
from numba.core.caching import _CacheLocator

def ensure_cache_path(self, ensure=_CacheLocator.ensure_cache_path):
    if not self.get_cache_path().startswith(os.environ["HOME"]):
        raise PermissionError
    ensure(self)

_CacheLocator.ensure_cache_path = ensure_cache_path
"""


def in_a_new_process(cache, home=None):
    """Call a kernel in a process that keeps kernels in `cache`, or in `home` alone; return what it tells."""
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        ahead.HELPER: "1",  # nobody else writes to the cache
    }
    if home is not None:
        environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT if home is None else NOWHERE_ELSE + SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "read\n"
    return done.stderr


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory):
    cache = tmp_path_factory.mktemp("numba")
    in_a_new_process(cache)
    return cache


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", ["empty", "torn", "garbage"])
def test_a_damaged_cache_is_only_a_slower_start(warm_cache, suffix, damage):
    files = list(warm_cache.rglob(f"*{suffix}"))
    assert files
    for file in files:
        data = file.read_bytes()
        file.write_bytes(
            {"empty": b"", "torn": data[: len(data) // 2], "garbage": b"\x80\x04garbage"}[damage]
        )
    in_a_new_process(warm_cache)
    in_a_new_process(warm_cache)
    assert all(len(file.read_bytes()) > 20 for file in warm_cache.rglob(f"*{suffix}"))


def test_a_cache_that_cannot_be_written_is_only_a_slower_start(tmp_path):
    file = tmp_path / "cache"
    file.write_text("not a directory")
    in_a_new_process(file)


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def nowhere(tmp_path):
    """Return a home in which no folder can be made."""
    (tmp_path / "file").touch()
    return tmp_path / "file"


def test_kernels_that_another_user_compiled_are_read(tmp_path):
    cache, home = tmp_path / "cache", tmp_path / "home"
    assert "is kept for later processes" in in_a_new_process(cache)
    filled = files_in(cache)
    for place in (home, nowhere(tmp_path)):
        assert in_a_new_process(cache, place) == ""
    assert files_in(cache) == filled
    assert not files_in(home)


def test_what_another_users_cache_lacks_is_compiled_and_kept_in_ones_own(tmp_path):
    cache, home = tmp_path / "cache", tmp_path / "home"
    in_a_new_process(cache)
    for file in cache.rglob("*.nbi"):
        file.write_bytes(b"torn")
    torn = files_in(cache)
    assert "is kept for later processes" in in_a_new_process(cache, home)
    assert {path.suffix for path in files_in(home)} == {".nbi", ".nbc"}
    assert in_a_new_process(cache, home) == ""
    assert files_in(cache) == torn


def test_who_can_keep_no_kernels_is_told_once_what_helps(tmp_path):
    told = in_a_new_process(tmp_path / "cache", nowhere(tmp_path))
    assert told.count("\n") == 1
    assert (
        f"at each start, as they cannot be kept: `lcstore warm`, run once by who may write to {tmp_path}/"
        in told
    )
    assert "or set NUMBA_CACHE_DIR" in told


def test_a_change_in_any_file_of_the_room_makes_the_cache_stale(tmp_path, monkeypatch):
    from lcstore.bitkernels.huffman import histogram

    assert histogram._cache._cache_file._source_stamp == jit._stamp()
    names = {name for name, _, _ in jit._stamp()}
    assert {"bits.py", "pack.py", "jit.py"} <= names


FORKING = """
import os, signal, sys, threading, time
import numpy as np
from lcstore.compiling import jit
from lcstore.bitkernels.huffman import histogram

begun = threading.Event()

def at_work():  # as who makes a kernel, and then compiles it
    with jit._lock:
        begun.set()
        time.sleep(0.3)
        import numba
        from numba.core.compiler_lock import global_compiler_lock
    with global_compiler_lock:
        begun.set()
        time.sleep(0.3)
        histogram(np.zeros(3, np.uint8), np.zeros(256, np.int64))

threading.Thread(target=at_work).start()
children = []
for _ in range(2):
    begun.wait()
    begun.clear()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        histogram(np.zeros(3, np.uint8), np.zeros(256, np.int64))
        os._exit(0)
    children.append(child)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_can_use_kernels_whatever_was_compiled_meanwhile(tmp_path):
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        ahead.HELPER: "1",
    }
    asked = [sys.executable, "-W", "ignore", "-c", FORKING]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "0 0\n", done.stderr
