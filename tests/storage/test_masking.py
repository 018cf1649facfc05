"""Passwords, signatures and keys are shown nowhere: not in errors, causes, logs, names or answers."""

from __future__ import annotations

import io
import logging
import traceback
from contextlib import redirect_stderr, redirect_stdout

import pytest
from kit import servers

import lcstore
from lcstore.cli.app import app
from lcstore.storage.masking import harmless, without_secrets

SECRET = "pa55-w0rd"
pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sftp://me:pa55@host/x", "sftp://me:***@host/x"),
        ("sftp://me:p@55@host/x", "sftp://me:***@host/x"),
        ("sftp://me:p/55@host/x", "sftp://me:***@host/x"),
        ("sftp://:pa55@host/x", "sftp://:***@host/x"),
        ("zip::sftp://me:pa55@host/x.zip", "zip::sftp://me:***@host/x.zip"),
        ("no: 'https://me:pa55@host/x' or ftp://a:b@c", "no: 'https://me:***@host/x' or ftp://a:***@c"),
        ("https://host/x?sig=pa55&b=1", "https://host/x?***"),
        ("zip::https://host/x.zip?sig=pa55", "zip::https://host/x.zip?***"),
        ("zip::https://host/x?sig=pa55::more", "zip::https://host/x?***::more"),
        ("url='https://host/x?sig=pa55', again", "url='https://host/x?***', again"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("sftp://me@host:22/x", "sftp://me@host:22/x"),
        ("s3://bucket/a:b@c?d", "s3://bucket/a:b@c?d"),
        ("runs/what?now@12:30", "runs/what?now@12:30"),
    ],
)
def test_what_is_struck_out(text, shown):
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown
    assert str(harmless(OSError(text))).endswith(shown)


def test_an_error_without_secrets_stays_what_it_is():
    error = PermissionError(13, "no")
    assert harmless(error) is error


class Told:
    """All that a user is told."""

    def __init__(self, caplog) -> None:
        self.caplog = caplog
        self.texts: list[str] = []

    def fails(self, call) -> None:
        with pytest.raises(lcstore.LcstoreError) as caught:
            call()
        self.texts += [repr(caught.value), *traceback.format_exception(caught.value)]

    def command(self, *arguments: str) -> None:
        output = io.StringIO()
        with redirect_stdout(output), redirect_stderr(output), pytest.raises(SystemExit):
            app([*arguments])
        self.texts.append(output.getvalue())

    def check(self) -> None:
        told = "\n".join([*self.texts, self.caplog.text])
        assert len(told) > 100
        assert SECRET not in told


def test_a_url_with_a_password(packed, caplog):
    caplog.set_level(logging.INFO)
    told = Told(caplog)
    with servers.web(packed, f"me:{SECRET}") as site:
        url = site.url.replace("http://", f"http://me:{SECRET}@") + "/runs/run1"
        with lcstore.open(url, "r") as store:
            assert store.restore(2)["n"] == 2
            told.texts += [repr(store), store.url]
            told.fails(lambda: store.restore(99))
        told.fails(lambda: lcstore.open(url, "a"))
        told.fails(lambda: lcstore.open(f"{url}/none", "r"))
        wrong = url.replace("me:", "you:")
        told.fails(lambda: lcstore.open(wrong, "r", retries=1, timeout=5))
        wrongly = ["ls", "--lim", "--json"]
        for arguments in (["ls"], ["show", "--json"], ["doctor"], ["verify", "--json"], wrongly):
            told.command(*arguments, url)
            told.command(*arguments, f"{url}/none")
    told.fails(lambda: lcstore.open(url, "r", retries=1, timeout=5))
    told.command("ls", url)
    told.check()


@pytest.mark.parametrize(
    "url",
    [
        f"nosuch://me:{SECRET}@host/run",
        f"sftp:/me:{SECRET}@host/run",
        f"memory://me:{SECRET}@host/run",
        f"sftp://me:{SECRET}/x@127.0.0.1:1/run",
        f"sftp://me:{SECRET}@127.0.0.1:1/run",
        f"zip::http://me:{SECRET}@127.0.0.1:1/a.zip",
        f"zip::http://127.0.0.1:1/a.zip?sig={SECRET}",
        f"http://127.0.0.1:1/a?sig={SECRET}",
    ],
)
def test_urls_that_cannot_be_opened(url, caplog):
    told = Told(caplog)
    options = {"x": "y"} if "memory" in url else None
    told.fails(lambda: lcstore.open(url, "r", storage_options=options, retries=0))
    if "memory" not in url:
        told.command("ls", url)
    told.check()


def test_keys_in_storage_options(moto, caplog, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    told = Told(caplog)
    options = moto.options | {"key": "somebody", "secret": SECRET}
    endpoint = moto.options["client_kwargs"]["endpoint_url"]
    pairs = ["-o", "key=somebody", "-o", f"secret={SECRET}", "-o", f"endpoint_url={endpoint}"]
    told.fails(lambda: lcstore.open("s3://none/run", "r", storage_options=options))
    told.fails(lambda: lcstore.open("simplecache::s3://none/run", "r", storage_options=options))
    told.fails(lambda: lcstore.open("zip::s3://none/a.zip", "r", storage_options={"s3": options}))
    with lcstore.open("s3://bucket/secrets", storage_options=options) as store:
        store.save(0, {"n": 1})
        told.texts.append(repr(store))
        told.fails(lambda: store.restore(3))
    told.command("ls", "s3://bucket/secrets", *pairs)
    told.command("doctor", "--json", "s3://none/run", *pairs)
    told.check()
