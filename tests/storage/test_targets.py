"""From URLs to backends."""

from __future__ import annotations

import io
import pickle
import zipfile

import pytest

from lcstore.errors import InvalidInputError
from lcstore.storage import memory
from lcstore.storage.backend import Backend, read_capped, storage_clock
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.remote import FsspecBackend
from lcstore.storage.targets import backend_on, open_backend


@pytest.mark.parametrize(
    "form", [str, lambda path: path, lambda path: f"file://{path}", lambda path: f"local://{path}"]
)
def test_local_paths(tmp_path, form):
    backend = open_backend(form(tmp_path / "a b"))
    assert isinstance(backend, LocalBackend)
    backend.put("x", b"x")
    assert (tmp_path / "a b" / "x").read_bytes() == b"x"


def test_a_local_url_can_be_opened_again(tmp_path):
    backend = open_backend(tmp_path / "ä b%20#")
    backend.put("x", b"x")
    assert open_backend(backend.url).get("x") == b"x"


def test_relative_and_home_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    open_backend("run").put("x", b"1")
    open_backend("~/run").put("x", b"2")
    assert (tmp_path / "run/x").read_bytes() == b"1"
    assert (tmp_path / "home/run/x").read_bytes() == b"2"


def test_a_relative_path_stays_where_it_was_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    backend = open_backend("run")
    monkeypatch.chdir("/")
    backend.put("x", b"1")
    assert (tmp_path / "run/x").exists()


def test_memory_is_shared_by_name():
    open_backend("memory://one").put("x", b"x")
    assert open_backend("memory://one/").get("x") == b"x"
    assert isinstance(open_backend("memory://two"), MemoryBackend)
    assert open_backend("memory://two").list("") == []
    assert pickle.loads(pickle.dumps(MemoryBackend("one"))).get("x") == b"x"


def test_a_fresh_memory_backend_belongs_to_nobody_else():
    one, other = MemoryBackend.fresh({"x": b"1"}), MemoryBackend.fresh()
    assert (one.list(""), other.list("")) == (["x"], [])
    snapshot = one.snapshot()
    one.put("y", b"2")
    assert snapshot == {"x": b"1"}
    with pytest.raises(InvalidInputError):
        pickle.dumps(one)


def test_a_backend_is_returned_as_it_is():
    backend = MemoryBackend.fresh()
    assert open_backend(backend) is backend
    assert isinstance(backend, Backend)


@pytest.mark.parametrize("url", ["", "nosuchprotocol://x", 3, None, b"/x", object()])
def test_what_cannot_be_opened(url):
    with pytest.raises(InvalidInputError):
        open_backend(url)


def test_options_for_targets_that_take_none(tmp_path):
    for url in (str(tmp_path), "memory://x"):
        with pytest.raises(InvalidInputError, match="key"):
            open_backend(url, {"key": "secret"})


def test_chains_and_archives_are_only_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "store.zip", "w") as archive:
        archive.writestr("run/nodes/x", b"x")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/x").write_bytes(b"x")
    archived = open_backend(f"zip://run::file://{tmp_path}/store.zip")
    assert (archived.list("nodes"), archived.get("nodes/x")) == (["nodes/x"], b"x")
    cached = open_backend(
        f"simplecache::file://{tmp_path}/plain", {"simplecache": {"cache_storage": str(tmp_path / "c")}}
    )
    assert cached.get("x") == b"x"
    for backend in (archived, cached):
        assert isinstance(backend, FsspecBackend)
        assert not backend.writable
        with pytest.raises(InvalidInputError, match="only be read"):
            backend.put("y", b"y")


@pytest.mark.parametrize("url", ["zip:///data/runs.zip", "tar://runs.tar"])
def test_an_archive_comes_after_two_colons(url):
    with pytest.raises(InvalidInputError, match=r"names no archive.*FOLDER::ARCHIVE"):
        open_backend(url)


def test_an_archive_that_options_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "store.zip", "w") as archive:
        archive.writestr("run/nodes/x", b"x")
    assert open_backend("zip://run", {"fo": f"{tmp_path}/store.zip"}).get("nodes/x") == b"x"


def test_a_capped_read_never_asks_for_more():
    backend = MemoryBackend.fresh({"x": b"12345"})
    assert read_capped(backend, "x", 5) == b"12345"
    with pytest.raises(Exception, match="longer than the limit of 4"):
        read_capped(backend, "x", 4)


def test_the_storage_s_clock_leaves_nothing_behind(tmp_path):
    import time

    for backend in (MemoryBackend.fresh(), LocalBackend(tmp_path)):
        assert abs(storage_clock(backend) - time.time()) < 5
        assert backend.list("") == []


def test_buffers_that_are_none():
    backend = MemoryBackend.fresh()
    for data in ("text", 3, None, io.BytesIO(b"x"), memoryview(bytes(8))[::2]):
        with pytest.raises(InvalidInputError):
            backend.put("x", data)
    for start, end in ((-1, None), (2, 1), (None, -1)):
        with pytest.raises(InvalidInputError):
            backend.get("x", start, end)


@pytest.mark.parametrize("url", ["s3:/bucket/run", "file:/data/run", "file:rel/run", "memory:/run"])
def test_a_url_that_lost_a_slash_is_no_path(url):
    with pytest.raises(InvalidInputError, match="no two slashes"):
        open_backend(url)


@pytest.mark.parametrize("url", ["file://tmp/x", "local://x", "file://tmp"])
def test_a_url_of_a_file_that_lost_a_slash_is_none_of_this_folder(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = url.partition("://")[2]
    with pytest.raises(InvalidInputError, match=f"file:///{path} is .* and ./{path} "):
        open_backend(url)
    assert open_backend(f"file:///{path}").url == f"file:///{path}"
    assert (
        open_backend(f"file://./{path}").url == open_backend(f"./{path}").url == f"file://{tmp_path}/{path}"
    )
    assert open_backend("file://~/x").url == open_backend("~/x").url


def test_the_name_of_this_machine_is_no_folder():
    with pytest.raises(InvalidInputError, match="file:///data/run is"):
        open_backend("file://localhost/data/run")


@pytest.mark.parametrize("url", ["a::b/run", "exp::lr=1/run", "file:///data/a::b"])
def test_paths_that_would_be_chains_are_refused(url, tmp_path, monkeypatch):
    """Or all that begin alike would be one store."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="which chains URLs"):
        open_backend(url)
    assert not [*tmp_path.iterdir()]


def test_a_chain_of_a_protocol_that_nobody_knows_is_told_so():
    with pytest.raises(InvalidInputError, match="Protocol not known: foo"):
        open_backend("foo://a::b")


def test_a_colon_in_a_path_is_fine():
    assert open_backend("a:b/run").url.endswith("a:b/run")
    assert open_backend("./s3:/run").url.endswith("s3:/run")


@pytest.mark.parametrize(
    "url",
    [
        "s3://user:s3cret@bucket/run",
        "simplecache::s3://user:s3cret@bucket/run",
        "gs://a:s3cret@b",
        "s3://user:s3cret/more@bucket",
    ],
)
def test_a_bucket_has_no_password_before_it(url):
    with pytest.raises(InvalidInputError, match="storage_options") as caught:
        open_backend(url)
    assert "s3cret" not in str(caught.value)


def test_a_bucket_that_is_an_access_point_has_no_password():
    pytest.importorskip("s3fs")
    url = "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/name/run"
    backend = open_backend(url, {"anon": True})
    assert backend.url.endswith("accesspoint/name/run")


def test_a_bucket_that_is_an_access_point_is_listed(monkeypatch):
    """Its name has a slash in it: the part before that was asked for as the bucket."""
    pytest.importorskip("s3fs")
    bucket = "arn:aws:s3:eu-west-1:123456789012:accesspoint/name"

    def find(path, prefix="", detail=False):
        assert (path, prefix) == (bucket, "run/nodes/")
        return {f"{path}/{prefix}x": {"size": 3}}

    backend = open_backend(f"s3://{bucket}/run", {"anon": True})
    monkeypatch.setattr(backend._fs, "find", find)
    assert backend.list("nodes") == ["nodes/x"]


@pytest.mark.parametrize("path", ["x?versionId=3", "?versionId=3", "a?versionId=/run"])
def test_a_path_that_the_client_of_s3_cuts_is_refused(path):
    """All objects of the store were written over one."""
    fs = pytest.importorskip("s3fs").S3FileSystem(anon=True)
    for opens in (lambda: open_backend(f"s3://bucket/{path}", {"anon": True}),
                  lambda: backend_on(fs, f"bucket/{path}")):  # fmt: skip
        with pytest.raises(InvalidInputError, match="cuts names of objects"):
            opens()
    assert open_backend("s3://bucket/x?version=3", {"anon": True})


@pytest.mark.parametrize("options", ["anon", 3, [1]])
def test_options_that_are_no_dict(tmp_path, options):
    with pytest.raises(InvalidInputError, match="storage_options is a dict"):
        open_backend(str(tmp_path), options)


def test_a_store_in_memory_that_was_sent_elsewhere_says_so(monkeypatch):
    sent = pickle.dumps(MemoryBackend("sent-elsewhere"))
    assert pickle.loads(sent).url == "memory://sent-elsewhere"
    monkeypatch.setattr(memory, "_spaces", {})
    with pytest.raises(InvalidInputError, match=r"sent-elsewhere .* whose memory this one does not"):
        pickle.loads(sent)
