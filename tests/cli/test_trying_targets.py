"""What `lcstore doctor` says of a target that gives no answer or refuses, and how it is told to end."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from kit.commands import call, document
from kit.servers import needed

from lcstore.storage import targets
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.patient import Patience
from lcstore.storage.remote import FsspecBackend
from lcstore.store import opening
from lcstore.terminal import asking

OPEN = opening.open_backend


def opens(monkeypatch: pytest.MonkeyPatch, backend: object) -> None:
    """Have every URL lead to a backend."""
    assert opening.open_backend is OPEN  # imported later, it would keep what comes in the place of that
    monkeypatch.setattr(targets, "open_backend", lambda *_: backend)


@contextmanager
def accepting(*, drops: bool) -> Iterator[int]:
    """Accept connections at a port, and drop each at once, or say nothing."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    kept.append(server.accept()[0])
                    if drops:
                        kept.pop().close()

        threading.Thread(target=accept, daemon=True, name="accepting").start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for one in kept:
                one.close()


class Mute(MemoryBackend):
    """A target behind a network that answers no question about some keys."""

    remote = True

    def __init__(self, *, about: str) -> None:
        super().__init__(f"mute-{about.replace('/', '-')}-{time.monotonic_ns()}")
        self.about = about
        self.asked: list[str] = []

    def _get(self, key: str, start: int, end: int | None) -> bytes:
        self.asked.append(key)
        if self.about in key:
            threading.Event().wait(60)
        return super()._get(key, start, end)

    def _list(self, prefix: str) -> list[str]:
        if any(self.about in key for key in self.asked):
            threading.Event().wait(60)
        return super()._list(prefix)


@pytest.mark.parametrize("drops", [True, False])
def test_doctor_asks_a_target_that_gives_no_answer_nothing_more(monkeypatch, drops):
    needed("s3fs")
    monkeypatch.setattr(asking, "PATIENCE", Patience(3.0, 1))
    login = ("-o", "key=a", "-o", "secret=b")
    with accepting(drops=drops) as port:
        endpoint = f'client_kwargs={{"endpoint_url": "http://127.0.0.1:{port}"}}'
        result = call("doctor", "s3://bucket/run", *login, "-o", endpoint)
    assert result.exit_code == 1
    told = " ".join(result.stdout.split())
    assert int(re.findall(r"could not read lcstore\.json in (\d+) s:", told)[0]) < 10
    assert "Nothing else was tried: look at" in told
    for looked_at in ("AWS_ENDPOINT_URL", "region", "HTTPS_PROXY"):
        assert looked_at in told
    assert "promise" not in told


def test_doctor_ends_with_the_first_promise_that_has_no_answer(monkeypatch):
    backend = Mute(about="conformance/")
    monkeypatch.setattr(asking, "PATIENCE", Patience(0.5, 1))
    opens(monkeypatch, backend)
    about = document("doctor", "s3://bucket/run", status=1)["target"]
    assert [check["name"] for check in about["checks"]] == ["round_trip"]
    assert about["checks"][0]["seconds"] < 10
    assert "could not read conformance/" in about["silent"]
    assert about["store"] == "none yet"
    assert not about["ok"]
    assert sum("conformance/" in key for key in backend.asked) == 2  # it was asked twice, and cleaned nothing
    backend.asked.clear()
    told = " ".join(call("doctor", "s3://bucket/run").stdout.split())
    assert "Nothing else was tried" in told
    assert "What this trial wrote is left there, in lcstore-doctor-*." in told
    assert "do not keep a store there" not in told


@pytest.mark.parametrize("about", ["conformance/", "/same"])
def test_a_trial_that_is_told_to_end_does_so_in_seconds(about):
    """What waited on the way out were questions to clean up, and threads that asked."""
    code = f"""if True:
        import sys
        sys.path[:0] = {sys.path!r}
        from test_trying_targets import Mute
        from lcstore.storage import targets
        from lcstore.store import opening  # it would keep what comes in the place of `open_backend`
        backend = Mute(about={about!r})
        targets.open_backend = lambda *_: backend
        from lcstore.terminal import asking
        asking.PATIENCE = asking.Patience(60.0, 5)
        sys.argv = ["lcstore", "doctor", "s3://bucket/run"]
        from lcstore.cli import main
        import threading, time
        def tell():
            while not any({about!r} in key for key in backend.asked):
                time.sleep(0.05)
            print("asked", flush=True)
        threading.Thread(target=tell, daemon=True).start()
        main()"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "asked\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGTERM


class ServiceError(Exception):
    """What clients of S3 raise: it holds what the service said."""

    def __init__(self, code: str) -> None:
        super().__init__(f"An error occurred ({code})")
        self.response = {"Error": {"Code": code}}


def refusing(code: str, *methods: str) -> FsspecBackend:
    """Return a bucket where the service refuses some requests."""

    def refuse(self: object, *_: object, **__: object) -> None:
        kind = OSError if "Redirect" in code else PermissionError
        raise kind("The service's words") from ServiceError(code)

    fs = type("Refusing", (MemoryFileSystem,), {"protocol": "s3"} | dict.fromkeys(methods, refuse))
    return FsspecBackend(fs(), f"{code}-{time.monotonic_ns()}/run", "s3://bucket/run")


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        ("InvalidAccessKeyId", "the key is not known there: set AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", "the secret is not that of the key: set AWS_SECRET_ACCESS_KEY"),
        ("ExpiredToken", "the session has expired: get new credentials"),
        ("PermanentRedirect", "the bucket is in another region"),
        ("RequestTimeTooSkewed", "the clock of this machine is wrong"),
    ],
)
def test_doctor_says_what_to_set_where_a_service_refuses_whoever_asks(monkeypatch, code, cure):
    opens(monkeypatch, refusing(code, "cat_file", "pipe_file", "find", "info", "rm_file"))
    result = call("doctor", "s3://bucket/run")
    assert result.exit_code == 1
    told = " ".join(result.stdout.split())
    assert "The service's words" in told
    assert f": {cure}" in told
    assert "Not good: nothing else was tried." in told
    assert "may not write" not in told
    assert document("doctor", "s3://bucket/run", status=1)["target"]["checks"] == []


def test_doctor_tells_apart_what_is_not_allowed(monkeypatch):
    opens(monkeypatch, refusing("AccessDenied", "pipe_file"))
    assert "you may not write there. A store" in " ".join(call("doctor", "s3://bucket/run").stdout.split())
    opens(monkeypatch, refusing("AccessDenied", "cat_file", "pipe_file", "find", "info", "rm_file"))
    assert "you may neither read nor write" in " ".join(call("doctor", "s3://bucket/run").stdout.split())
    opens(monkeypatch, refusing("AccessDenied", "rm_file", "rm"))
    told = " ".join(call("doctor", "s3://bucket/run").stdout.split())
    assert "you may write there, and not delete" in told
    assert "lcstore-doctor-" in told
