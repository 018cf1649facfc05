"""The page that walks from `save` to bytes and back names files and functions that are there."""

import re
from pathlib import Path

import lcstore

LIBRARY = Path(lcstore.__file__).parent
PAGE = (LIBRARY.parent / "docs/how-it-works.md").read_text()


def test_every_function_is_in_the_file_that_the_page_says():
    walks = PAGE.partition("## Maintaining")[0]
    named = re.findall(r"`([A-Za-z_.]+)`(?:,| \(`[a-z_]+:| \()\s*\(?`([a-z]+/[a-z_]+\.py)`", walks)
    assert len(named) >= 12
    for name, file in named:
        source = (LIBRARY / file).read_text()
        for part in name.split("."):
            assert re.search(rf"\b(def|class) {part}\b", source), f"{name} is not in {file}"


def test_every_file_is_there():
    files = set(re.findall(r"`([a-z]+/[a-z_]+\.py)`", PAGE))
    assert len(files) >= 20
    assert [file for file in files if not (LIBRARY / file).is_file()] == []


def test_every_room_is_in_the_table():
    rooms = {path.parent.name for path in LIBRARY.glob("*/__init__.py")}
    table = PAGE.partition("## Where things are")[2]
    assert rooms == set(re.findall(r"`([a-z]+)`", " ".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
