"""What docs/json.md says of the documents that commands print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module

from kit.pages import ROOT

PAGE = (ROOT / "docs/json.md").read_text()
#: Classes that are no names of `lcstore` itself.
_ELSEWHERE = {"BenchReport": "lcstore.exchange.benching", "Tuned": "lcstore.tune"}


def rows() -> Iterator[tuple[str, str, set[str]]]:
    """Yield command, class ("" if none) and further fields of each row of the table."""
    for line in PAGE.splitlines():
        if line.startswith("| `lcstore "):
            command, cls, more = (cell.strip() for cell in line.strip("|").split("|"))
            yield command.strip("`"), cls.strip("`"), set(re.findall(r"`(\w+)`", more))


def fields_of(cls: str) -> set[str]:
    """Return the fields of a class."""
    return {field.name for field in fields(getattr(import_module(_ELSEWHERE.get(cls, "lcstore")), cls))}


def fields_said(command: str) -> set[str]:
    """Return the fields of what a command prints, as the page has them."""
    cls, more = next((cls, more) for name, cls, more in rows() if name == command)
    return more | (fields_of(cls) if cls else set())
