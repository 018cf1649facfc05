"""Files and folders that are half written when something fails are gone, whoever writes to them yet."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Thread

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.spec import AbstractFileSystem

import lcstore
from lcstore.errors import InvalidInputError
from lcstore.exchange.newfile import check_literal, new_folder


def test_a_thread_that_writes_on_for_a_moment_leaves_no_folder(tmp_path):
    """As threads of Zarr do, whose folders are made anew for each chunk."""
    ends = time.monotonic() + 0.15

    def write_on(at: Path) -> None:
        number = 0
        while time.monotonic() < ends:
            number += 1
            with suppress(OSError):  # what it lies in was taken away a moment ago
                (at / f"array{number}").mkdir(parents=True, exist_ok=True)
            time.sleep(0.005)

    threads = []

    def begin() -> None:
        with new_folder(f"file://{tmp_path}/export.zarr", last="zarr.json") as at:
            threads.append(Thread(target=write_on, args=(Path(at),)))
            threads[0].start()
            while not Path(at).exists():
                time.sleep(0.001)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin()
    threads[0].join()
    assert not [*tmp_path.iterdir()]


def _folder(at: Path, text: str) -> None:
    at.mkdir()
    (at / "zarr.json").write_text(text)


def test_a_folder_that_does_not_get_its_name_leaves_the_one_that_has_it(tmp_path, monkeypatch):
    _folder(tmp_path / "out", "old")
    replace = os.replace

    def failing(source: str, target: str) -> None:
        if target == str(tmp_path / "out") and not source.endswith("-old"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with (
        pytest.raises(lcstore.StorageError, match="No space left"),
        new_folder(str(tmp_path / "out"), last="zarr.json", overwrite=True) as at,
    ):
        _folder(Path(at), "new")
    assert [(one.name, (one / "zarr.json").read_text()) for one in tmp_path.iterdir()] == [("out", "old")]


def test_a_link_to_a_folder_is_replaced_as_one_to_a_file_is(tmp_path):
    _folder(tmp_path / "real", "old")
    (tmp_path / "out").symlink_to("real")
    with new_folder(str(tmp_path / "out"), last="zarr.json", overwrite=True) as at:
        _folder(Path(at), "new")
    assert {one.name: (one / "zarr.json").read_text() for one in tmp_path.iterdir()} == {
        "real": "old",
        "out": "new",
    }
    assert not (tmp_path / "out").is_symlink()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="nothing tells what a descriptor is of")
def test_a_folder_is_on_stable_storage_before_it_has_its_name(tmp_path, monkeypatch):
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(fd: int) -> None:
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def named(source: str, target: str) -> None:
        done.append(f"to {os.path.basename(target)}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    with new_folder(str(tmp_path / "out"), last="zarr.json") as at:
        _folder(Path(at), "new")
        _folder(Path(at) / "inner", "new")
    assert done[-1] == "to out"
    assert done.count("zarr.json") == 2
    assert "inner" in done


def test_a_folder_is_replaced_on_a_target_that_cannot_copy_by_itself(monkeypatch):
    fs = fsspec.filesystem("memory")
    fs.pipe({"/nocopy/out/zarr.json": b"old", "/nocopy/out/gone": b"old"})
    monkeypatch.setattr(type(fs), "cp_file", AbstractFileSystem.cp_file)
    with new_folder("memory://nocopy/out", last="zarr.json", overwrite=True) as at:
        for name in ("zarr.json", "other"):
            (Path(at) / name).write_text("new")
    found = {name: fs.cat_file(name) for name in fs.find("/nocopy")}
    fs.rm("/nocopy", recursive=True)
    assert found == {"/nocopy/out/zarr.json": b"new", "/nocopy/out/other": b"new"}


@pytest.mark.parametrize("failing", ["put", "copy", None])
def test_a_folder_of_another_target_goes_once_the_new_one_is_there(failing, monkeypatch):
    fs = fsspec.filesystem("memory")
    fs.pipe({"/newfile/out/zarr.json": b"old", "/newfile/out/gone": b"old"})
    kind = type(fs)
    whole = kind.put

    def fails(self, sources, *more, **how):
        if failing == "copy" or any("zarr.json" in one for one in sources):  # the last file
            raise OSError(5, "went away")
        return whole(self, sources, *more, **how)

    if failing is not None:
        monkeypatch.setattr(kind, failing, fails)
    refused = pytest.raises(lcstore.StorageError, match="went away") if failing else nullcontext()
    with refused as error, new_folder("memory://newfile/out", last="zarr.json", overwrite=True) as at:
        for name in ("zarr.json", "other"):
            (Path(at) / name).write_text("new")
    found = {name: fs.cat_file(name) for name in fs.find("/newfile")}
    fs.rm("/newfile", recursive=True)
    new = {"/newfile/out/zarr.json": b"new", "/newfile/out/other": b"new"}
    if failing == "copy":
        (beside,) = {name.rpartition("/")[0] for name in found}
        assert found == {name.replace("/newfile/out", beside): text for name, text in new.items()}
        assert f"lies at {beside}" in str(error.value)
    else:
        assert found == ({"/newfile/out/zarr.json": b"old", "/newfile/out/gone": b"old"} if failing else new)


def test_a_path_that_is_a_pattern_is_not_overwritten():
    """``out[1]`` matches ``out1``, which was deleted in its place."""
    fs = fsspec.filesystem("memory")
    for name in ("out1", "out[1]"):
        fs.pipe_file(f"/patterns/{name}/zarr.json", b"old")
    refused = pytest.raises(InvalidInputError, match="patterns")
    with refused, new_folder("memory://patterns/out[1]", last="zarr.json", overwrite=True):
        pass
    with new_folder("memory://patterns/out[2]", last="zarr.json") as at:
        (Path(at) / "zarr.json").write_text("new")
    assert fs.cat_file("/patterns/out1/zarr.json") == fs.cat_file("/patterns/out[1]/zarr.json") == b"old"
    assert fs.cat_file("/patterns/out[2]/zarr.json") == b"new"


def test_what_is_a_pattern_to_fsspec():
    memory = fsspec.filesystem("memory")
    for path in ("/a/b", "https://host/model.npz?token=1&name=x"):
        check_literal(memory, path, path)
    check_literal(fsspec.filesystem("file"), "/a/exp[1]", "")
    inside = DirFileSystem("/exp[1]", memory)
    for fs, path in ((memory, "/a/?"), (memory, "https://host/*"), (inside, "a"), (memory, "/a/[1]")):
        with pytest.raises(InvalidInputError, match="patterns"):
            check_literal(fs, path, path)
