"""One suite for any backend: what :class:`lcstore.storage.backend.Backend` promises, from outside.

Usable from pytest (each ``check_*`` is a test) and on a live target (`run` reports findings, and leaves
nothing behind but what a failing backend refuses to delete).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from lcstore.errors import InvalidInputError, LcstoreError, NotFoundError
from lcstore.storage.backend import Backend, told_lengths
from lcstore.storage.safekeys import is_key

#: Names that must never reach a target: they lead out of the root, or some target would rewrite them.
HOSTILE_KEYS = (
    "../escape", "a/../../escape", "a/..", "..", ".", "", "/", "/etc/escape", "a//b", "a/", "./a", "a/./b",
    ".hidden", "a/.hidden", "a.", "C:\\escape", "a\\b", "a:b", "a\0b", "a b", "a\n", "a\nb", "%2e%2e/escape",
    "A", "Nodes/x", "ä", "\u2025/escape", "\uff0e\uff0e/escape", "a*", "a?", "[a]", "a#b", "$(a)", "-a",
    "x" * 241, "x/" * 300 + "x",
)  # fmt: skip
_BIG = 1 << 20


class CheckFailedError(AssertionError):
    """A backend does not keep a promise."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check; `problem` is None where the promise is kept."""

    check: str
    problem: str | None
    seconds: float


class BackendConformance:
    """The checks, each independent of the others.

    Parameters
    ----------
    backend
        What is checked. Every check works below a folder of its own, with a random name.
    reopen
        Opens the same target again, as another process would. Without it, what needs a second view is
        checked through `backend` itself.
    """

    def __init__(self, backend: Backend, reopen: Callable[[], Backend] | None = None) -> None:
        self.backend = backend
        self.reopen = reopen or (lambda: backend)

    def check_round_trip(self) -> None:
        """What was put comes back, whole and as bytes, here and for others."""
        with self._folder() as folder:
            for size in (0, 1, 255, 4096, _BIG + 1):
                key, data = f"{folder}/{size}", secrets.token_bytes(size)
                self.backend.put(key, data)
                for backend in (self.backend, self.reopen()):
                    found = backend.get(key)
                    expect(type(found) is bytes, f"get returned {type(found).__name__}")
                    expect(found == data, f"get returned {len(found)} bytes that differ from the {size} put")

    def check_buffers(self) -> None:
        """Any flat buffer can be put, and changing it afterwards changes nothing."""
        with self._folder() as folder:
            raw = bytearray(range(256))
            wide = memoryview(bytearray(raw)).cast("d")
            for name, buffer in (("array", raw), ("view", memoryview(bytes(raw))), ("wide", wide)):
                self.backend.put(f"{folder}/{name}", buffer)
            raw[:] = bytes(256)
            wide[0] = 0.5
            for name in ("array", "view", "wide"):
                expect(
                    self.backend.get(f"{folder}/{name}") == bytes(range(256)), f"a {name} did not come back"
                )

    def check_retry(self) -> None:
        """Putting the same bytes again succeeds and changes nothing."""
        with self._folder() as folder:
            for _ in range(3):
                self.backend.put(f"{folder}/a", b"same")
            expect(self.backend.get(f"{folder}/a") == b"same", "a second put changed the object")
            expect(self.backend.list(folder) == [f"{folder}/a"], "a second put made a second name")

    def check_ranges(self) -> None:
        """A range returns those of its bytes that exist."""
        with self._folder() as folder:
            key, data = f"{folder}/a", bytes(range(100))
            self.backend.put(key, data)
            for start in (None, 0, 1, 99, 100, 101, 1000):
                for end in (None, 0, 1, 50, 100, 101, 1 << 40):
                    if end is not None and end < (start or 0):
                        continue
                    found = self.backend.get(key, start, end)
                    expect(found == data[start:end], f"range {start}:{end} returned {len(found)} wrong bytes")

    def check_missing(self) -> None:
        """An absent object is `NotFoundError`; so is the name of a folder."""
        with self._folder() as folder:
            self.backend.put(f"{folder}/deep/a", b"a")
            calls: list[Callable[[str], object]] = [self.backend.get, self.backend.size, self.backend.created]
            for key in (f"{folder}/b", f"{folder}/deep", f"{folder}/deep/a/b", f"{folder}/no/such"):
                for call in calls:
                    with expect_error(NotFoundError, f"{_name(call)} of an absent object"):
                        call(key)
            with expect_error(NotFoundError, "get of a range of an absent object"):
                self.backend.get(f"{folder}/b", 0, 10)

    def check_size(self) -> None:
        """The size is the number of bytes."""
        with self._folder() as folder:
            for size in (0, 1, 70_000):
                self.backend.put(f"{folder}/{size}", bytes(size))
                found = self.backend.size(f"{folder}/{size}")
                expect(found == size, f"size is {found}, not {size}")
                told = told_lengths(self.backend, folder).get(f"{folder}/{size}", size)
                expect(told == size, f"a listing tells of {told} bytes, not {size}")

    def check_list(self) -> None:
        """A listing has exactly the keys below its prefix, at any depth, each once."""
        with self._folder() as folder:
            keys = {f"{folder}/{name}" for name in ("a/x.json", "a/b/c/y", "a-b/z", "ab/z", "a.json", "z~-_")}
            for key in keys:
                self.backend.put(key, b"x")
            for backend in (self.backend, self.reopen()):
                for prefix in (folder, f"{folder}/a", f"{folder}/a/b", f"{folder}/ab", f"{folder}/no"):
                    self._expect_listed(
                        backend, prefix, {key for key in keys if key.startswith(f"{prefix}/")}
                    )
                everything = backend.list("")
                expect(keys <= set(everything), "a listing of everything lacks an object")
                expect(all(map(is_key, everything)), "a listing holds what is no key")

    def check_fresh_list(self) -> None:
        """A listing shows each object that was put before it, also through a handle that listed before."""
        with self._folder() as folder:
            other = self.reopen()
            for number in range(12):
                self.backend.put(f"{folder}/{number}", b"x")
                for backend in (self.backend, other):
                    found = set(backend.list(folder))
                    expected = {f"{folder}/{n}" for n in range(number + 1)}
                    expect(found == expected, f"a stale listing: {len(found)} names after {number + 1} puts")

    def check_delete(self) -> None:
        """What is deleted is gone, for others too; deleting what is absent is fine; neighbours stay."""
        with self._folder() as folder:
            for name in ("a", "b/x", "b/y"):
                self.backend.put(f"{folder}/{name}", b"x")
            for _ in range(2):
                self.backend.delete(f"{folder}/b/x")
            self.backend.delete(f"{folder}/never/was")
            for backend in (self.backend, self.reopen()):
                with expect_error(NotFoundError, "get of a deleted object"):
                    backend.get(f"{folder}/b/x")
                self._expect_listed(backend, folder, {f"{folder}/a", f"{folder}/b/y"})
            self.backend.delete_many([f"{folder}/{name}" for name in ("a", "b/x", "b/y", "never")])
            self.backend.delete_many([])
            self._expect_listed(self.backend, folder, set())
            self.backend.put(f"{folder}/b/x", b"again")
            expect(self.backend.get(f"{folder}/b/x") == b"again", "an object put after its deletion is wrong")

    def check_hostile_keys(self) -> None:
        """A name that is no key is refused by every method, before anything happens."""
        calls: list[Callable[[str], object]] = [
            self.backend.get, self.backend.size, self.backend.created, self.backend.delete,
            lambda key: self.backend.put(key, b"escaped"), lambda key: self.backend.delete_many([key]),
        ]  # fmt: skip
        before = set(self.backend.list(""))
        for key in HOSTILE_KEYS:
            for call in calls:
                with expect_error(InvalidInputError, f"key {key[:40]!r}"):
                    call(key)
            if key:
                with expect_error(InvalidInputError, f"prefix {key[:40]!r}"):
                    self.backend.list(key)
        expect(set(self.backend.list("")) <= before, "a refused key left an object behind")

    def check_atomic_put(self) -> None:
        """Whoever reads or lists while an object is being put sees all of it or none of it."""
        with self._folder() as folder:
            bodies = {f"{folder}/{number}": secrets.token_bytes(_BIG) for number in range(8)}
            done = threading.Event()
            with ThreadPoolExecutor(2) as pool:
                watchers = [pool.submit(_watch, self.reopen(), folder, bodies, done) for _ in range(2)]
                try:
                    for key, body in bodies.items():
                        self.backend.put(key, memoryview(body))
                finally:
                    done.set()
                for watcher in watchers:
                    watcher.result()

    def check_threads(self) -> None:
        """Many threads may use one handle, also for the same object and for one new folder."""
        with self._folder() as folder:
            same = secrets.token_bytes(100_000)

            def work(number: int) -> None:
                for turn in range(4):
                    key, body = f"{folder}/t/{number}-{turn}", f"{number}-{turn}".encode()
                    self.backend.put(key, body)
                    self.backend.put(f"{folder}/same", same)
                    expect(self.backend.get(key) == body, "two threads mixed up their objects")
                    expect(self.backend.get(f"{folder}/same") == same, "a shared object was torn")
                    expect(key in self.backend.list(folder), "a thread does not see its own object listed")

            with ThreadPoolExecutor(8) as pool:
                list(pool.map(work, range(8)))
            expected = {f"{folder}/t/{number}-{turn}" for number in range(8) for turn in range(4)}
            self._expect_listed(self.backend, folder, expected | {f"{folder}/same"})

    def check_delete_races_put(self) -> None:
        """A folder that empties while another thread puts into it loses nothing."""
        with self._folder() as folder:

            def work(number: int) -> None:
                for turn in range(15):
                    key = f"{folder}/deep/er/{number}-{turn}"
                    self.backend.put(key, b"x")
                    expect(self.backend.get(key) == b"x", "a deletion took away another object")
                    self.backend.delete(key)

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(work, range(4)))
            self._expect_listed(self.backend, folder, set())

    def check_created(self) -> None:
        """The storage's clock, where there is one, does not run backwards."""
        with self._folder() as folder:
            self.backend.put(f"{folder}/a", b"a")
            time.sleep(0.01)
            self.backend.put(f"{folder}/b", b"b")
            first, second = (self.backend.created(f"{folder}/{name}") for name in "ab")
            if first is None or second is None:
                expect(first is second, "only one of two objects has a time")
            else:
                expect(type(first) is float and first > 0, f"created is {first!r}")
                # One second: what the coarsest clocks round to.
                expect(second >= first - 1, "an object put later was created earlier")

    def check_leftovers(self) -> None:
        """A write that has ended leaves nothing over, and what is left over is no object."""
        with self._folder() as folder:
            before = self.backend.leftovers([folder])
            self.backend.put(f"{folder}/a", b"a")
            after = self.backend.leftovers([folder], 1.0)  # a moment before any file was written to
            expect(len(after) <= len(before), "an object that was put counts as left over")
            expect(self.backend.get(f"{folder}/a") == b"a", "an object was taken away as left over")

    @contextmanager
    def _folder(self) -> Iterator[str]:
        folder = f"conformance/{secrets.token_hex(8)}"
        try:
            yield folder
        except BaseException:
            with suppress(Exception):  # what came first is told, and ends this if it is a signal
                self._delete(folder)
            raise
        self._delete(folder)

    def _delete(self, folder: str) -> None:
        self.backend.delete_many(self.backend.list(folder))

    @staticmethod
    def _expect_listed(backend: Backend, prefix: str, expected: set[str]) -> None:
        found = backend.list(prefix)
        expect(len(found) == len(set(found)), f"a listing of {prefix!r} holds a name twice")
        wrong = set(found) ^ expected
        expect(not wrong, f"a listing of {prefix!r} is wrong about {sorted(wrong)[:3]}")


def checks() -> list[str]:
    """Return the names of all checks."""
    return [name for name in vars(BackendConformance) if name.startswith("check_")]


def run(
    backend: Backend, reopen: Callable[[], Backend] | None = None, until: Callable[[], bool] = bool
) -> list[Finding]:
    """Run every check and return what each found; nothing is raised.

    After a check for which `until` returns true no more are run.
    """
    suite = BackendConformance(backend, reopen)
    findings = []
    for name in checks():
        began = time.perf_counter()
        problem = None
        try:
            getattr(suite, name)()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        findings.append(Finding(name.removeprefix("check_"), problem, time.perf_counter() - began))
        if until():
            break
    return findings


def expect(kept: bool, problem: str) -> None:
    """Raise `CheckFailedError` unless the promise was kept."""
    if not kept:
        raise CheckFailedError(problem)


@contextmanager
def expect_error(kind: type[LcstoreError], what: str) -> Iterator[None]:
    """Raise `CheckFailedError` unless the block raises exactly this kind of error."""
    try:
        yield
    except kind:
        return
    except Exception as error:
        raise CheckFailedError(
            f"{what} raised {type(error).__name__}, not {kind.__name__}: {error}"
        ) from error
    raise CheckFailedError(f"{what} raised nothing")


def _watch(backend: Backend, folder: str, bodies: dict[str, bytes], done: threading.Event) -> None:
    """Look at a folder until `done`, and once more; every object seen must be whole."""
    last = False
    while not last:
        last = done.is_set()
        for key in backend.list(folder):
            expect(key in bodies, f"a listing showed {key!r}, which nobody put")
        for key, body in bodies.items():
            try:
                found = backend.get(key)
            except NotFoundError:
                continue
            expect(found == body, f"a reader saw {len(found)} of {len(body)} bytes")


def _name(call: Callable[[str], object]) -> str:
    return getattr(call, "__name__", "call")
