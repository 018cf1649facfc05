"""Archives, caches and the web: they are read, whole and checked, and nothing is ever written to them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import tarfile
import urllib.parse
import zipfile

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from kit import servers
from kit.servers import small_state
from typer.testing import CliRunner

import lcstore
from lcstore import InvalidInputError, NotFoundError, StorageError
from lcstore.cli.app import app
from lcstore.storage.local import LocalBackend
from lcstore.storage.targets import backend_on

#: Clients leave their connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def reads(url, **where):
    """Assert that a store is all there."""
    with lcstore.open(url, "r", **where) as store:
        assert store.steps() == [*range(5)]
        assert store.restore(3)["n"] == 3
        assert store.at(2).info.step == 2
        assert store.verify(level="checksum").ok


def zipped(folder, target, prefix=""):
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"{prefix}{path.relative_to(folder)}")
    return target


@pytest.mark.parametrize("prefix", ["run1/", "", "old/runs/run1/"])
@pytest.mark.parametrize("named", [True, False])
def test_a_zip_file(packed, tmp_path, prefix, named):
    archive = zipped(packed / "runs/run1", tmp_path / "a.zip", prefix)
    before = archive.read_bytes()
    reads(f"zip://{prefix if named else ''}::file://{archive}")
    reads(f"zip{'://' + prefix if named and prefix else ''}::{archive}")
    assert archive.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.zip"]


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
@pytest.mark.parametrize("what", ["-C runs run1", "-C runs/run1 ."])
def test_a_tar_file(packed, tmp_path, name, what):
    flags = "-czf" if name.endswith("gz") else "-cf"
    subprocess.run(["tar", flags, str(tmp_path / name), *what.split()], check=True, cwd=packed)
    reads(f"tar::file://{tmp_path}/{name}")


def test_several_stores_in_an_archive_are_told_apart(packed, tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(packed / "runs/run1", "one")
        archive.add(packed / "runs/run1", "./two")
    reads(f"tar://one::{tmp_path}/a.tar")
    reads(f"tar://two::{tmp_path}/a.tar")
    with pytest.raises(NotFoundError):
        lcstore.open(f"tar::{tmp_path}/a.tar", "r")


def test_a_store_that_is_not_in_an_archive_is_made_by_no_save(packed, tmp_path):
    url = f"zip://none::file://{zipped(packed / 'runs/run1', tmp_path / 'a.zip', 'run1/')}"
    with pytest.raises(NotFoundError, match=r"there is no store at .*; check the URL"):
        lcstore.open(url, "r")
    listed = CliRunner().invoke(app, ["ls", url])
    assert (listed.exit_code, "first save" in listed.output) == (1, False)
    found = CliRunner().invoke(app, ["doctor", url])
    assert (found.exit_code, "no save can make one here" in " ".join(found.output.split())) == (1, True)


def test_what_is_no_archive(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"no")
    for url in (f"zip::{tmp_path}/a.zip", f"tar::{tmp_path}/a.zip", f"zip::{tmp_path}/none.zip"):
        with pytest.raises(lcstore.LcstoreError):
            lcstore.open(url, "r")


def test_a_damaged_archive_is_never_read_silently(packed, tmp_path):
    archive = zipped(packed / "runs/run1", tmp_path / "a.zip")
    body = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as whole:
        directory = whole.start_dir
    for at in range(300, directory, 97):
        body[at] ^= 0xFF
    archive.write_bytes(body)
    with pytest.raises(lcstore.LcstoreError), lcstore.open(f"zip::{archive}", "r") as store:
        store.restore(4)


@pytest.mark.parametrize("cache", ["simplecache", "filecache", "blockcache"])
def test_a_cache(packed, tmp_path, cache):
    options = {cache: {"cache_storage": str(tmp_path / "c")}}
    reads(f"{cache}::file://{packed}/runs/run1", storage_options=options)


@pytest.mark.parametrize("mode", ["a", "r+", "w-"])
@pytest.mark.parametrize(
    ("url", "instead"),
    [
        ("zip://run1::file://{}/a.zip", "lcstore cp"),
        ("simplecache::file://{}/runs/run1", "without the cache"),
        ("http://127.0.0.1:1/run1", "lcstore cp"),
        ("reference://run1", "lcstore cp"),
    ],
)
def test_writing_is_refused_when_the_store_is_opened(packed, tmp_path, url, instead, mode):
    if url.startswith("http"):
        pytest.importorskip("aiohttp")
    zipped(packed / "runs", tmp_path / "a.zip")
    shutil.copytree(packed / "runs", tmp_path / "runs")
    options = {"reference": {"fo": {}}} if url.startswith("reference") else None
    with pytest.raises(InvalidInputError, match=r"can only be read.*mode='r'") as caught:
        lcstore.open(url.format(tmp_path), mode, storage_options=options)
    assert instead in str(caught.value)


@pytest.mark.parametrize(
    "command", ["maintain {} --keep latest:1", "maintain {} --keep latest:1 --apply", "repair {} --apply"]
)
def test_maintaining_an_archive_is_refused_with_what_to_do_instead(packed, tmp_path, command):
    zipped(packed / "runs", tmp_path / "a.zip")
    url = f"zip://run1::file://{tmp_path}/a.zip"
    result = CliRunner().invoke(app, command.format(url).split())
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "can only be read (mode='r'): an archive is only read; `lcstore cp` copies it" in said
    assert "grace" not in said


def test_a_dry_collect_of_an_archive_says_that_it_is_only_read(packed, tmp_path):
    shutil.copytree(packed / "runs", tmp_path / "runs")
    with lcstore.open(tmp_path / "runs" / "run1", "r+", threads=1) as store:
        store.retain("latest:1")
        store.compact()
        assert store.collect().condemned
    zipped(tmp_path / "runs", tmp_path / "a.zip")
    url, refused = (
        f"zip://run1::file://{tmp_path}/a.zip",
        pytest.raises(InvalidInputError, match="only read;"),
    )
    with lcstore.open(url, "r", threads=1) as store, refused:
        store.collect(dry_run=True)


def test_a_manager_hears_at_once_that_it_cannot_save():
    pytest.importorskip("aiohttp")
    with pytest.raises(InvalidInputError, match="only be read"):
        lcstore.CheckpointManager("https://127.0.0.1:1/run1")


# The web ---------------------------------------------------------------------------------------------------


def test_a_folder_on_the_web(packed):
    with servers.web(packed) as site:
        reads(f"{site.url}/runs/run1")
        reads(f"{site.url}/runs/run1/")
        reads(f"simplecache::{site.url}/runs/run1")
        with pytest.raises(NotFoundError):
            lcstore.open(f"{site.url}/runs", "r")
        assert set(site.methods) <= {"GET", "HEAD"}


@pytest.mark.parametrize("name", ["run 1", "größe", "100%"])
def test_a_folder_on_the_web_whose_name_is_quoted(packed, tmp_path, name):
    shutil.copytree(packed / "runs" / "run1", tmp_path / name)
    with servers.web(tmp_path) as site:
        reads(f"{site.url}/{urllib.parse.quote(name)}")
        listed = json.loads(CliRunner().invoke(app, ["ls", site.url, "--json"]).stdout)
        (store,) = listed["stores"]
        reads(store["url"])


def test_an_archive_on_the_web(packed, tmp_path):
    zipped(packed / "runs", tmp_path / "a.zip")
    with servers.web(tmp_path) as site:
        reads(f"zip://run1::simplecache::{site.url}/a.zip")
        with pytest.raises(InvalidInputError, match="simplecache"):
            lcstore.open(f"zip://run1::{site.url}/a.zip", "r")  # it gives whole files only


def test_a_server_that_lists_nothing_does_not_look_like_an_empty_store(packed):
    with (
        servers.web(packed, lists=False) as site,
        lcstore.open(f"{site.url}/runs/run1", "r", retries=0) as store,
        pytest.raises(StorageError, match="does not list"),
    ):
        store.steps()


def test_a_place_that_is_not_on_the_web_is_not_asked_again_for_its_lists(packed, caplog):
    with servers.web(packed) as site:
        with pytest.raises(NotFoundError, match=r"there is no store at .*/runs/nun; check the URL"):
            lcstore.open(f"{site.url}/runs/nun", "r")
        assert "does not list" not in caplog.text
    with servers.web(packed, lists=False) as site, pytest.raises(NotFoundError, match="there is no store at"):
        lcstore.open(f"{site.url}/runs/nun", "r")


def test_a_url_with_a_query_names_no_folder():
    pytest.importorskip("aiohttp")
    with pytest.raises(InvalidInputError, match="query") as caught:
        lcstore.open("https://host/run1?token=s3cret", "r")
    assert "s3cret" not in str(caught.value)


# Buckets, and filesystems that are open --------------------------------------------------------------------


@pytest.fixture
def bucket(moto, packed, tmp_path):
    fs = fsspec.filesystem("s3", **moto.options)
    if not fs.exists("bucket/run1"):
        fs.put(f"{packed}/runs/run1", "bucket/run1", recursive=True)
        fs.put_file(str(zipped(packed / "runs", tmp_path / "a.zip")), "bucket/a.zip")
    fs.invalidate_cache()
    before = fs.find("bucket")
    yield fs
    fs.invalidate_cache()
    assert fs.find("bucket") == before


def test_options_reach_the_link_of_a_chain_that_they_are_for(moto, bucket, tmp_path):
    options = {"s3": moto.options}
    reads("zip://run1::s3://bucket/a.zip", storage_options=options)
    reads("s3://bucket/run1", storage_options=options)
    cache = {"simplecache": {"cache_storage": str(tmp_path / "cache")}}
    reads("simplecache::s3://bucket/run1", storage_options=options | cache)
    assert os.listdir(tmp_path / "cache")
    with pytest.raises(InvalidInputError, match="by link") as caught:
        lcstore.open("simplecache::s3://bucket/run1", "r", storage_options=moto.options)
    assert servers.SECRET not in str(caught.value)


def test_a_filesystem_that_is_open(bucket):
    reads(None, fs=bucket, path="bucket/run1")
    reads(None, fs=bucket, path="s3://bucket/run1/")
    reads(None, fs=DirFileSystem("bucket", bucket), path="run1")
    reads(None, fs=DirFileSystem("bucket/run1", bucket))
    with bucket.open("bucket/a.zip") as file:
        reads(None, fs=fsspec.filesystem("zip", fo=file))


def test_a_local_filesystem_that_is_open_is_a_directory(tmp_path):
    backend = backend_on(DirFileSystem(str(tmp_path), fsspec.filesystem("file")), "run")
    assert isinstance(backend, LocalBackend)
    assert backend.durable
    with lcstore.open(fs=fsspec.filesystem("file"), path=tmp_path / "run") as store:
        store.save(0, small_state(0))
    with lcstore.CheckpointManager(fs=fsspec.filesystem("file"), path=tmp_path / "run", every=1) as manager:
        assert manager.resume().step == 0


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"path": "run"},
        {"url": "run", "path": "run"},
        {"url": "run", "fs": fsspec.filesystem("memory"), "path": "run"},
        {"fs": fsspec.filesystem("memory"), "path": "run", "storage_options": {"key": "x"}},
        {"fs": fsspec.filesystem("memory")},
        {"fs": fsspec.filesystem("memory"), "path": "/"},
        {"fs": "s3", "path": "bucket/run"},
        {"url": "s3://"},
    ],
)
def test_a_place_that_is_none_or_two(given):
    with pytest.raises(InvalidInputError):
        lcstore.open(**given)


def test_a_disk_that_turns_read_only_is_said_to_be(tmp_path, monkeypatch):
    with lcstore.open(tmp_path / "run") as store:
        store.save(0, small_state(0))

        def refuse(*_args, **_how):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path))

        monkeypatch.setattr(LocalBackend, "_put", refuse)
        with pytest.raises(
            StorageError, match="the file system is read-only: what only reads goes on working"
        ):
            store.save(1, small_state(1))
        monkeypatch.undo()
        assert store.restore(0)["n"] == 0
        store.save(2, small_state(2))
    assert lcstore.open(tmp_path / "run", "r").latest_step() == 2
