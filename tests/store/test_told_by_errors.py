"""What errors say to programs: what is missing, of which step, why a target failed, and what to run next."""

from __future__ import annotations

import errno
import os
import pickle
from copy import copy
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from kit.commands import document

import lcstore
from lcstore.errors import NotFoundError, StorageError, UnknownOutcomeError
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.put import put_object
from lcstore.storage.remote import FsspecBackend

STATE = {"model": {"weight": np.ones((8, 8), np.float32)}, "epoch": 1}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("told") / "run")
    with lcstore.open(url) as store:
        for step in (0, 10):
            store.save(step, STATE, metrics={"loss": 1.0}, tags=["good"] if step else ())
    return url


@pytest.mark.parametrize(
    ("ask", "missing", "step"),
    [
        (lambda store: store.restore(15), "state", 15),
        (lambda store: store.info(15), "state", 15),
        (lambda store: store[15], "state", 15),
        (lambda store: store.resume(15), "state", 15),
        (lambda store: store.tag("x", 15), "state", 15),
        (lambda store: store.restore("publishd"), "state", None),
        (lambda store: store.restore(10, run=9), "run", None),
        (lambda store: store.steps(run=9), "run", None),
        (lambda store: store.restore("best:los"), "metric", None),
        (lambda store: store.untag("publishd"), "tag", None),
        (lambda store: store.read(10, "model/wt"), "tensor", 10),
        (lambda store: store[10]["model/wt"], "tensor", 10),
        (lambda store: store.read(10, "loss"), "tensor", 10),
        (lambda store: store.read(10, "model"), "tensor", 10),
        (lambda store: store.restore(10, names="model/wt*"), "tensor", 10),
        (lambda store: [*store.history("model/wt")], "tensor", None),
    ],
)
def test_what_is_missing_is_told(url, ask, missing, step):
    with lcstore.open(url) as store, pytest.raises(NotFoundError) as caught:
        ask(store)
    assert (caught.value.kind, caught.value.missing, caught.value.step) == ("not-found", missing, step)
    assert str(caught.value).count("step 1") == str(caught.value.message).count("step 1")  # said once
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.missing, again.step, str(again)) == (missing, step, str(caught.value))


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_that_there_is_no_store_is_told(tmp_path, mode):
    with pytest.raises(NotFoundError) as caught:
        lcstore.open(tmp_path / "none", mode)
    assert caught.value.missing == "store"
    with lcstore.open(tmp_path / "none") as store, pytest.raises(NotFoundError) as caught:
        store.restore()
    assert caught.value.missing == "store"


@pytest.mark.parametrize(
    ("words", "missing", "step"),
    [
        ("show {}@15", "state", 15),
        ("show {}@10 model/wt", "tensor", 10),
        ("show {}none", "store", None),
        ("untag {} nothing", "tag", None),
        ("show {} --levl", None, None),
    ],
)
def test_commands_tell_it_too(url, words, missing, step):
    status = 2 if "--levl" in words else 1
    error = document(*words.format(url).split(), status=status)["error"]
    assert (error["missing"], error["step"], error["reason"]) == (missing, step, None)


def test_the_command_to_run_next_is_told(url):
    with lcstore.open(url) as store, pytest.raises(NotFoundError) as caught:
        store.restore(15)
    assert caught.value.next == f"lcstore ls file://{url}"
    assert StorageError("it failed").next is None


@pytest.mark.parametrize("save", [lcstore.Store.save, lcstore.Store.save_async])
def test_a_state_that_cannot_be_stored_is_named_by_its_step(save):
    with lcstore.open(MemoryBackend.fresh()) as store:
        with pytest.raises(lcstore.InvalidInputError) as caught:
            save(store, 7, {"model": object()})
        assert caught.value.step == 7


class Failing(MemoryFileSystem):
    """A filesystem that can be told to fail."""

    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    error: Exception | None = None
    cachable = False

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        if self.error is not None:
            raise copy(self.error)  # one that is raised twice is in the chain of its own causes
        super().pipe_file(path, value, **kwargs)


def of_status(status: int) -> Exception:
    """Return an error as clients of HTTP raise it."""
    error = RuntimeError("no")
    error.status = status  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(errno.EACCES, "no"), "denied"),
        (of_status(403), "denied"),
        (of_status(500), None),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "full"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), "full"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), "read-only"),
        (TimeoutError("slow"), "timeout"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), None),
    ],
)
def test_why_a_target_failed_is_told(error, reason):
    fs = Failing()
    fs.error = None
    with lcstore.open(fs=fs, path=f"/{id(error)}", retries=0) as store:
        store.save(0, STATE)
        fs.error = error
        with pytest.raises(StorageError) as caught:
            store.save(1, STATE)
        assert caught.value.reason == reason
        assert pickle.loads(pickle.dumps(caught.value)).reason == reason
        assert not isinstance(caught.value.__cause__, UnknownOutcomeError) or caught.value.outcome_unknown
        fs.error = None
        store.save(1, STATE)


def test_a_reason_is_told_though_the_cause_has_secrets():
    said = "https://host/run?sig=secret"
    fs = Failing()
    fs.error = PermissionError(errno.EACCES, said)
    backend = FsspecBackend(fs, "/secret")
    with pytest.raises(StorageError) as caught:
        backend.put("a", b"b")
    assert caught.value.reason == "denied"
    assert "secret" not in str(caught.value.__cause__)
    fs.error = TimeoutError(said)
    with pytest.raises(StorageError) as caught:
        put_object(backend, "a", b"b")
    assert caught.value.reason == "timeout"
    assert "secret" not in str(caught.value.__cause__)
