"""The one decorator for kernels: what they may rely on is said here and nowhere else.

- nopython, and no GIL: several chunks are coded at a time, by threads.
- no fast-math: results are the same bytes on every machine.
- `checked=True` on everything that reads stored bytes: a bad index is an error, never foreign memory.
  (The flag is not transitive in numba, so helpers called by a checked kernel are checked themselves.)
- compiled code is cached on disk, and a cache that cannot be read or written is only a slower start.
- numba is imported at the first call of any: who only looks at a store never waits for that.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import cache, partial, update_wrapper
from importlib import import_module
from pathlib import Path
from threading import RLock, Thread, current_thread, main_thread
from types import FunctionType
from typing import Any, Final, TypeVar, overload
from zlib import crc32

from lcstore.compiling.ahead import is_typical, start_helpers
from lcstore.futures import SafeFuture
from lcstore.garbage import garbage_waits

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_log: Final = logging.getLogger("lcstore")
_lock: Final = RLock()
#: How many kernels this process has loaded or compiled.
_readied = 0
#: Locks that a fork under way has taken.
_held: Final[list[Any]] = []
#: What numba calls the places that one user can fill for all.
_SHARED: Final = ("UserProvidedCacheLocator", "InTreeCacheLocator")
_KEPT: Final = (
    "kernels that nothing has needed here before are compiled, which takes up to a minute, or more "
    "where others are at work, and is kept for later processes: `lcstore warm` does it beforehand"
)
_LOST: Final = "kernels are compiled, which takes a minute or more at each start, as they cannot be kept"


def _stamp() -> tuple[tuple[str, int, int], ...]:
    """Return what tells this state of the kernels from others: name, checksum and size of each file.

    Times would tell them apart where the same files were installed once more.
    """
    here = Path(__file__).parent
    files = sorted([*here.glob("*.py"), *here.parent.glob("*kernels/*.py")])
    return tuple((file.name, crc32(data := file.read_bytes()), len(data)) for file in files)


_STAMP = _stamp()


class _TolerantCache:
    """Caches of numba that count as empty when they are torn, unreadable or cannot be written.

    Numba itself looks only at the file that a kernel is in; helpers from other files are compiled into it, so
    the cache is stale when any of them changes.

    Parameters
    ----------
    own
        Where this process keeps kernels, and reads them; None where it can write nowhere.
    shared
        Where others may have kept them, to be read alone.
    """

    #: Whether it was said that kernels are compiled: nobody is to wait for that and not know why.
    told = False
    #: Whether others were asked to compile what this process will need next.
    helped = False
    #: Whether a kernel was compiled that no later process can read.
    lost = False

    def __init__(self, own: Any, shared: Any = None) -> None:
        self._own, self._shared = own, shared
        self._inner = own or shared
        for place in self._caches():
            place._cache_file._source_stamp = _STAMP

    @property
    def folders(self) -> list[str]:
        """The folders that kernels are read from."""
        return [place.cache_path for place in self._caches()]

    @property
    def keeps(self) -> bool:
        """Whether what is compiled can be kept."""
        return self._own is not None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        for place in self._caches():
            found = self._read(place, sig, target_context)
            if found is not None:
                return found
        if self.keeps and not _TolerantCache.helped and is_typical(self._own._py_func, sig):
            _TolerantCache.helped = True
            start_helpers(Path(self._own.cache_path))
        if not _TolerantCache.told:
            _TolerantCache.told = True
            _log.warning(_KEPT if self.keeps else f"{_LOST}: {way_out()}")
        return None

    def _read(self, place: Any, sig: Any, target_context: Any) -> Any:
        try:
            return place.load_overload(sig, target_context)
        except Exception:
            if place is self._own:
                self._forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            self._own.save_overload(sig, data)
        except Exception:  # there is none, or it can be written no more
            _TolerantCache.lost = True
            self._forget()

    def _caches(self) -> list[Any]:
        return [place for place in (self._own, self._shared) if place is not None]

    def _forget(self) -> None:
        try:
            self._own.flush()
        except Exception:
            return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def way_out() -> str:
    """Return what helps where this process can keep no kernels."""
    place = os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent.parent
    return (
        f"`lcstore warm`, run once by who may write to {place}, compiles them for all users; "
        "or set NUMBA_CACHE_DIR to a folder that this user may write to, such as /var/cache/lcstore"
    )


def all_are_kept() -> bool:
    """Return whether later processes can read all kernels that this one has needed."""
    return not _TolerantCache.lost


def _caches_of(function: FunctionType) -> tuple[Any, Any]:
    """Return the cache that this process can write, and one that others may have filled; None for none."""
    from numba.core.caching import FunctionCache

    def made(kind: Any) -> Any:
        try:
            return kind(function)
        except RuntimeError:  # no such place
            return None

    own, shared = made(FunctionCache), made(_shared_cache())
    same = own is not None and shared is not None and own.cache_path == shared.cache_path
    return own, None if same else shared


@cache
def _shared_cache() -> Any:
    """Return the kind of numba's cache that takes a folder wherever it is looked for first.

    Numba itself passes over a folder that it cannot write. Kernels that lie there may be read all the same.
    """
    from numba.core.caching import FunctionCache

    kind = FunctionCache._impl_class
    unasked = {"ensure_cache_path": lambda _: None}
    places = [one for one in kind._locator_classes if one.__name__.lstrip("_") in _SHARED]
    found = [type(one.__name__, (one,), unasked) for one in places]
    return type(
        "Shared", (FunctionCache,), {"_impl_class": type("Found", (kind,), {"_locator_classes": found})}
    )


def _apart(call: Callable[[], R]) -> R:
    """Return what a call returns; where this is the main thread, of a thread that no interrupt comes to.

    One that came while numba is imported, or a kernel is loaded, would leave modules that are half there or a
    lock that is taken: no save of this process would ever work again. It comes while the call is waited for.
    """
    if current_thread() is not main_thread():
        return call()
    answer = SafeFuture[R]()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    thread = Thread(target=run, name="lcstore-kernels")
    try:
        thread.start()
    except RuntimeError:  # no thread is to be had: the process ends
        return call()
    return answer.result()


class _Later:
    """What numba makes of a function, made at its first call, or when it is first looked into."""

    _made: Any = None

    def __init__(self, function: FunctionType, make: Callable[[FunctionType], Any]) -> None:
        update_wrapper(self, function)
        self._function, self._how = function, make

    def __call__(self, *args: Any) -> Any:
        return (self._made or self._make())(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made or self._make(), name)

    def _make(self) -> Any:
        return _apart(self._made_once)

    def _made_once(self) -> Any:
        with _lock:
            if self._made is None:
                import_module("numpy.ma")  # numba does later, and a process may be forked just then
                self._made = self._how(self._function)
                names, name = self._function.__globals__, self._function.__name__
                if names.get(name) is self:  # who calls it by its module calls what numba made
                    names[name] = self._made
        return self._made


def _wait_for_kernels() -> None:
    """Wait until no thread is about to make or compile a kernel, and have none begin: a process is forked.

    In its child a lock that another thread holds is held for ever.
    """
    with _lock:
        pass  # nobody imports numba any more
    numba_lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    # In this order: who compiles a kernel makes its helpers.
    for lock in (numba_lock, _lock):
        if lock is not None:
            lock.acquire()
            _held.append(lock)


def _go_on() -> None:
    held = _held[::-1]
    _held.clear()  # another fork may begin with the last release
    for lock in held:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_kernels, after_in_parent=_go_on, after_in_child=_go_on)


def readied() -> int:
    """Return how many kernels this process has loaded or compiled: what needs one first takes longer."""
    return _readied


def say_nothing() -> None:
    """Have nothing said of compilation in this process: somebody asked for it."""
    _TolerantCache.told = True


def _undisturbed(compile_for: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Have no interrupt come to numba, and Python's collector wait for it.

    It makes many objects: collecting them would take a tenth of the time.
    """

    def made(signature: Any) -> Any:
        global _readied
        _readied += 1
        with garbage_waits():
            return compile_for(signature)

    return lambda signature: _apart(partial(made, signature))


def _compiled(function: FunctionType, *, checked: bool, inline: bool) -> Any:
    from numba import njit

    # In a copy of its module the names of helpers stand for what numba has made of them.
    known = {**function.__globals__}
    for name in function.__code__.co_names:
        if isinstance(helper := known.get(name), _Later):
            known[name] = helper._make()
    copy = FunctionType(function.__code__, known, None, function.__defaults__, function.__closure__)
    options = {"nogil": True, "boundscheck": checked, "fastmath": False, "error_model": "numpy"}
    # What C would call is nobody's need, and takes time to compile.
    dispatcher = njit(**options, no_cfunc_wrapper=True)(copy)
    if inline:
        return dispatcher
    dispatcher.compile = _undisturbed(dispatcher.compile)
    own, shared = _caches_of(copy)
    if own is not None or shared is not None:  # a package in an archive has neither
        dispatcher._cache = _TolerantCache(own, shared)
    return dispatcher


def intrinsic(function: Any) -> Any:
    """Have a function say what code stands for a call of it, as numba's decorator of this name."""

    def made(function: FunctionType) -> Any:
        from numba.extending import intrinsic

        return intrinsic(function)

    return _Later(function, made)


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(*, checked: bool = ..., inline: bool = ...) -> Callable[[F], F]: ...
def kernel(function: F | None = None, *, checked: bool = False, inline: bool = False) -> Any:
    """Compile `function` as a kernel on its first call.

    Parameters
    ----------
    function
        Takes arrays and numbers, fills arrays, returns a status or a count (:mod:`lcstore.compiling.status`).
    checked
        Check every index. For kernels that read bytes from storage.
    inline
        A helper of other kernels: it is compiled into them and is not cached by itself.
    """

    def later(f: Any) -> Any:
        return _Later(f, partial(_compiled, checked=checked, inline=inline))

    return later if function is None else later(function)
