"""What JSON says of values that it has no word for."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lcstore.errors import CorruptionError
from lcstore.terminal.printing import plain


@dataclass
class Told:
    problems: dict[str, Exception] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            Told({"verify": CorruptionError("a chunk is damaged")}),
            {"problems": {"verify": "a chunk is damaged"}},
        ),
        ({1: float("nan"), 2: 1.5}, {"1": "nan", "2": 1.5}),
        ((True, None, 3, "s3://user:secret@host/x"), [True, None, 3, "s3://user:***@host/x"]),
        (iter([b"bytes"]), ["b'bytes'"]),
    ],
)
def test_what_is_told(value, said):
    assert plain(value) == said
