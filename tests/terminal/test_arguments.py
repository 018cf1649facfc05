"""What is typed: ``URL@STEP``, options for the target."""

from __future__ import annotations

import pytest
import typer

from lcstore.terminal.arguments import as_run, from_json, split_at, storage_options


@pytest.mark.parametrize(
    ("typed", "url", "at"),
    [
        ("/data/run", "/data/run", None),
        ("/data/run@1000", "/data/run", 1000),
        ("/data/run@latest", "/data/run", "latest"),
        ("/data/run@my tag", "/data/run", "my tag"),
        ("/data/run@" + "1" * 32, "/data/run", "1" * 32),
        ("/data/run@1700000000000000000", "/data/run", 1_700_000_000_000_000_000),
        ("/data/run@" + "1" * 5000, "/data/run", "1" * 5000),
        ("/data/me@home/run", "/data/me@home/run", None),
        ("/data/me@home/run@5", "/data/me@home/run", 5),
        ("C:\\runs\\a", "C:\\runs\\a", None),
        ("C:\\runs\\a@5", "C:\\runs\\a", 5),
        ("C:\\me@home\\a", "C:\\me@home\\a", None),
        ("s3://bucket/run@7", "s3://bucket/run", 7),
        ("sftp://me@host/run", "sftp://me@host/run", None),
        ("sftp://me@host/run@7", "sftp://me@host/run", 7),
        ("sftp://me@host", "sftp://me@host", None),
        ("simplecache::s3://bucket/run@7", "simplecache::s3://bucket/run", 7),
        ("memory://x", "memory://x", None),
    ],
)
def test_url_and_step(typed, url, at):
    assert split_at(typed) == (url, at)


def test_a_path_that_exists_is_one(tmp_path):
    (tmp_path / "run@5").mkdir()
    assert split_at(str(tmp_path / "run@5")) == (str(tmp_path / "run@5"), None)


@pytest.mark.parametrize("typed", ["/data/run@", "@5"])
def test_half_of_it_is_wrong_usage(typed):
    with pytest.raises(typer.BadParameter):
        split_at(typed)


def test_options_for_the_target():
    pairs = ["anon=true", "key=00123", "secret=a=b", 'client={"a": 1}', "text={x"]
    assert storage_options('{"anon": false, "n": 3}', pairs) == {
        "anon": True, "n": 3, "key": "00123", "secret": "a=b", "client": {"a": 1}, "text": "{x",
    }  # fmt: skip


@pytest.mark.parametrize(("text", "pairs"), [("{", None), ("[]", None), (None, ["x"]), (None, ["=x"])])
def test_options_that_are_none(text, pairs):
    with pytest.raises(typer.BadParameter) as caught:
        storage_options(text, pairs)
    assert "Traceback" not in str(caught.value)


def test_json_that_is_none_is_told_with_its_option():
    for text in ("{", "[]"):
        with pytest.raises(typer.BadParameter, match="--file-options"):
            from_json("--file-options", text)


def test_a_run_is_named_by_its_number_or_its_id():
    runs = {
        "7": 7,
        "007": 7,
        "00000007": "00000007",
        "ab12cd34": "ab12cd34",
        "²": "²",
        "1" * 5000: "1" * 5000,
    }
    assert {text: as_run(text) for text in runs} == runs


def test_a_mistyped_metric_of_a_store_that_is_there(tmp_path):
    assert split_at(f"{tmp_path}@bset:loss") == (str(tmp_path), "bset:loss")
    assert split_at(f"{tmp_path}/none@host:22") == (f"{tmp_path}/none@host:22", None)
