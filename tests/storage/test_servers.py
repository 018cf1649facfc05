"""One suite over every kind of server that can be had: the backend's promises, and the life of a store."""

from __future__ import annotations

import importlib.util
import threading
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from kit import servers
from kit.servers import small_state as state

import lcstore
from lcstore.errors import InvalidInputError, LcstoreError
from lcstore.storage.finding import stores_below
from lcstore.storage.patient import patient
from lcstore.storage.remote import FsspecBackend
from lcstore.storage.targets import backend_on, open_backend
from lcstore.testing import run as run_checks

#: Clients leave their connections to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning"),
]

_NO_KEYS = {"allow_agent": False, "look_for_keys": False}


@pytest.fixture(scope="module", params=servers.KINDS)
def served(request, tmp_path_factory):
    start = getattr(servers, request.param)
    with start() if request.param == "moto" else start(tmp_path_factory.mktemp(request.param)) as place:
        if request.param == "rclone":
            # It answers a range with the checksum of the whole, which its client would compare.
            lenient = {"config_kwargs": {"response_checksum_validation": "when_required"}}
            place = replace(place, options=place.options | lenient)
        yield place


def test_the_backend_keeps_its_promises(served):
    def opened():
        return patient(open_backend(served.below("promises"), served.options), 20, 3)

    problems = {found.check: found.problem for found in run_checks(opened(), opened) if found.problem}
    assert problems == {}
    assert opened().list("") == []


def test_the_life_of_a_store(served):
    url = served.below("life")
    with lcstore.open(url, storage_options=served.options, grace=0) as store:
        for number in range(4):
            store.save(number, state(number))
    with lcstore.open(url, storage_options=served.options) as store:
        assert store.resume()["n"] == 3
        store.save(4, state(4), tags=["good"])
        store.retain("latest:1 | every:2")
        store.compact()
        store.collect(grace=0)
        store.collect(grace=0)
    with lcstore.open(url, "r", storage_options=served.options) as store:
        assert store.steps() == [0, 2, 4]  # the second run took the place of the first
        for step in store.steps():
            assert store.restore(step)["n"] == step
        assert np.allclose(store.restore("good")["w"], state(4)["w"], atol=1e-2)
        assert store.verify(level="checksum").ok
    lcstore.remove(url, storage_options=served.options)
    assert open_backend(url, served.options).list("") == []


def test_no_store_is_made_in_another_one(served):
    url = served.below("apart/runs")
    options = {"storage_options": served.options, "threads": 1}
    with lcstore.open(f"{url}/gpt", **options) as store:
        store.save(0, state(0))
    for name, said in (("", "the store .*/apart/runs/gpt lies in"), ("/gpt/lr1", "inside the store .*/gpt:")):
        with lcstore.open(f"{url}{name}", **options) as store:
            with pytest.raises(InvalidInputError, match=said):
                store.save(0, state(0))
            assert not store.backend.list("") or not name
    with lcstore.open(f"{url}/gpt2", **options) as store:
        store.save(0, state(0))
    below = stores_below(served.below("apart"), served.options)
    assert below == [f"{url}/gpt", f"{url}/gpt2"]


def test_markers_of_folders_in_a_bucket_are_nobody_s_files(moto):
    url = moto.below("marked")
    with lcstore.open(url, storage_options=moto.options) as store:
        store.save(0, {"step": 0})
        fs = store.backend.inner._fs
        fs.invalidate_cache()
        bucket, name = url.removeprefix("s3://").split("/", 1)
        folders = {path.rpartition("/")[0] for path in fs.find(f"{bucket}/{name}")}
        for folder in folders:
            fs.call_s3("put_object", Bucket=bucket, Key=folder.removeprefix(f"{bucket}/") + "/", Body=b"")
        assert store.verify().findings == ()
        assert store.steps() == [0]
    removed = lcstore.remove(url, storage_options=moto.options)
    assert removed.foreign == ()


@pytest.mark.parametrize("always", [False, True])
def test_what_s3_could_not_delete_is_not_taken_for_gone(moto, monkeypatch, always):
    """It says so of single objects in an answer that is no failure, which s3fs passes over."""
    backend = open_backend(moto.below(f"refused-{always}"), moto.options)
    keys = [f"data/{name}" for name in "abc"]
    for key in keys:
        backend.put(key, b"x")
    client = type(backend._fs)
    call = client._call_s3

    async def refusing(self, method, *given, **options):
        if method == "delete_object" and always and options["Key"].endswith("b"):
            raise PermissionError("AccessDenied")
        if method != "delete_objects":
            return await call(self, method, *given, **options)
        some = [one for one in options.pop("Delete")["Objects"] if not one["Key"].endswith("b")]
        answer = await call(self, method, *given, Delete={"Objects": some}, **options)
        return answer | {"Errors": [{"Key": "b", "Code": "InternalError", "Message": "try again"}]}

    monkeypatch.setattr(client, "_call_s3", refusing)
    with pytest.raises(LcstoreError, match="AccessDenied") if always else nullcontext():
        backend.delete_many(keys)
    assert backend.list("") == ["data/b"] * always


def test_writers_a_compactor_and_a_collector_beside_each_other(served):
    """Names are drawn, so nobody needs a write that fails if the name is taken: rclone has none."""
    url, options = served.below("beside"), served.options
    failures: list[BaseException] = []

    def guarded(work):
        def run():
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    def write(first: int):
        with lcstore.open(url, storage_options=options) as store:
            for number in range(first, first + 8, 2):
                store.save(number, state(number))

    def tend():
        for _ in range(2):
            with lcstore.open(url, storage_options=options) as store:
                store.compact()
                store.retain("latest:2 | every:4")
                store.collect()

    with lcstore.open(url, storage_options=options, grace="1h") as store:
        store.save(1000, state(1000))
    threads = [guarded(lambda: write(0)), guarded(lambda: write(1)), guarded(tend)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with lcstore.open(url, "r", storage_options=options) as store:
        kept = set(store.steps())
        assert {0, 4, 6, 7, 1000} <= kept <= {*range(8), 1000}
        for step in kept:
            assert store.restore(step)["n"] == step
        assert store.verify(level="checksum").ok


def test_files_over_ssh_by_fsspec_s_own_client(tmp_path):
    """Where sshfs is installed, it serves the URLs; a filesystem that was opened decides by itself."""
    with servers.sftp(tmp_path) as served:
        from fsspec.implementations.sftp import SFTPFileSystem

        host, _, rest = served.url.removeprefix("sftp://").partition(":")
        port, _, path = rest.partition("/")
        fs = SFTPFileSystem(host, port=int(port), username=servers.KEY, password=servers.SECRET, **_NO_KEYS)
        if importlib.util.find_spec("sshfs"):
            backend = backend_on(fs, f"/{path}/a")
            problems = {found.check: found.problem for found in run_checks(backend) if found.problem}
            assert problems == {}
        with lcstore.open(fs=fs, path=f"/{path}/b") as store:
            store.save(0, state(0))
            store.save(1, state(1))
        with lcstore.CheckpointManager(fs=fs, path=f"/{path}/b", every=1) as manager:
            assert manager.resume().step == 1


def test_a_name_over_ssh_is_never_overwritten(tmp_path):
    with servers.sftp(tmp_path) as served:
        from fsspec.implementations.sftp import SFTPFileSystem

        host, _, rest = served.url.removeprefix("sftp://").partition(":")
        port = int(rest.partition("/")[0])
        fs = SFTPFileSystem(host, port=port, username=servers.KEY, password=servers.SECRET, **_NO_KEYS)
        backend = backend_on(fs, "/home/one")
        winners: list[bytes] = []

        def put(body: bytes):
            try:
                backend.put("x", body)
            except lcstore.UnknownOutcomeError:
                return
            winners.append(body)

        threads = [threading.Thread(target=put, args=(bytes([n]) * 100_000,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1
        assert backend.get("x") == winners[0]
        assert backend.list("") == ["x"]


def test_a_connection_is_not_used_in_a_forked_process(tmp_path):
    with servers.sftp(tmp_path) as served:
        from fsspec.implementations.sftp import SFTPFileSystem

        host, _, rest = served.url.removeprefix("sftp://").partition(":")
        port = int(rest.partition("/")[0])
        fs = SFTPFileSystem(host, port=port, username=servers.KEY, password=servers.SECRET, **_NO_KEYS)
        backend = FsspecBackend(fs, "/home/one")
        backend._pid -= 1
        with pytest.raises(lcstore.StorageError, match="fork"):
            backend.list("")
