"""The worked examples of the format documents are what the code prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from lcstore.format import bodies, fields, keys, markkeys, marks, records

FOLDER = Path(__file__).parents[2] / "docs" / "format"
KINDS = (
    records.NodeRecord,
    records.EdgeRecord,
    records.StoreRecord,
    marks.TagRecord,
    marks.RetiredRecord,
    marks.CondemnedRecord,
)
EXAMPLE = re.compile(r"```python\n(.*?)```\n+```text\n(.*?)```", re.DOTALL)


def printed(source, space):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, "docs/format/records.md", "exec"), space)
    return out.getvalue()


@pytest.mark.parametrize(("page", "count"), [("records.md", 2), ("layout.md", 1)])
def test_worked_examples(page, count):
    text = (FOLDER / page).read_text(encoding="utf-8")
    examples = EXAMPLE.findall(text)
    assert len(examples) == count
    space: dict[str, object] = {}
    for source, expected in examples:
        assert printed(source, space) == expected


@pytest.mark.parametrize(
    "number",
    [
        records.MAX_GRACE_SECONDS, keys.MAX_RUN, keys.MAX_SEQ, markkeys.MAX_TAG_CHARS, marks.MAX_REASON_CHARS,
        records.MAX_SOFTWARE_CHARS,
    ],
)  # fmt: skip
def test_limits_are_those_of_the_code(number):
    assert f"{number:,}" in (FOLDER / "records.md").read_text(encoding="utf-8")


def test_every_field_is_documented():
    text = (FOLDER / "records.md").read_text(encoding="utf-8")
    for kind in (*KINDS, bodies.EdgeBody, bodies.PartBody):
        for name in kind.__dataclass_fields__:
            assert f"`{name}`" in text or (kind, name) == (bodies.PartBody, "stored")  # where it is
    assert f"| {fields.FORMAT} |" in text
