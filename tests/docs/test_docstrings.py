"""The examples in docstrings run, and the reference page has every public name."""

from __future__ import annotations

import doctest
import inspect
import re
from typing import Any

import pytest
from kit.pages import ROOT

import lcstore
from lcstore import LCCodec, Policy, Snapshot, Store
from lcstore.exchange.benching import bench
from lcstore.filesystem.lcstorefs import LcstoreFileSystem

#: What most deserves an example. Those of the methods go on from that of `Store`.
SHOWN: dict[str, Any] = {
    "open": lcstore.open,
    "LCCodec": LCCodec,
    "Policy": Policy,
    "Snapshot": Snapshot,
    "LcstoreFileSystem": LcstoreFileSystem,
    "export": lcstore.export,
    "import_files": lcstore.import_files,
    "bench": bench,
    **{
        name: getattr(Store, name)
        for name in ("save", "restore", "resume", "read", "walk", "zarr", "zarr_history", "retain", "compact")
    },
}


def example_of(thing: Any, space: dict[str, Any]) -> doctest.DocTest:
    """Return the example in a docstring, as it is to run in a space."""
    text = inspect.getdoc(thing) or ""
    return doctest.DocTestParser().get_doctest(text, space, thing.__name__, None, None)


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for thing in (Store, SHOWN[name]):
        example = example_of(thing, space)
        assert 1 <= len(example.examples) <= 6
        runner.run(example, clear_globs=False)
        space = example.globs
    assert runner.summarize(verbose=False).failed == 0


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\.\. auto(?:class|function):: (\w+)$", page, re.MULTILINE))
    assert ".. automodule:: lcstore.errors" in page
    errors = {name for name in lcstore.__all__ if name.endswith(("Error", "Warning"))}
    assert set(lcstore.__all__) - errors - {"__version__"} <= named
