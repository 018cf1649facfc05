"""docs/targets.md: its blocks run one after another, on servers of this machine."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from kit import servers
from kit.pages import blocks_of, run_blocks

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_the_page_as_it_stands(moto, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with servers.sftp(tmp_path) as files:
        # The host key is made anew each time.
        known = {name: files.options[name] for name in files.options.keys() - {"username", "password"}}
        here = {
            "http://127.0.0.1:9000": moto.options["client_kwargs"]["endpoint_url"],
            "sftp://host/data": files.url,
            '"me", "password": "secret"}': f'"{servers.KEY}", "password": "{servers.SECRET}"}} | {known}',
            "s3://bucket/run1": "s3://bucket/page",
            "bucket/run1": "bucket/page",
        }
        space: dict[str, object] = {}
        for block in blocks_of("docs/targets.md"):
            code = block.code
            for there, place in here.items():
                code = code.replace(there, place)
            if block.language == "python":
                run_blocks([replace(block, code=code)], space)
            elif "zip -qr" in code:
                subprocess.run(code, shell=True, check=True)
    assert space["weight"].shape == (64, 64)
