"""The examples of docs/states.md run as they stand."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def test_the_page_holds():
    blocks = re.findall(r"^```python\n(.*?)^```", _PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) == 3
    space: dict[str, Any] = {}
    for block in blocks:
        if "import torch" in block:
            if find_spec("torch") is None:
                continue
            exec(compile(block, str(_PAGE), "exec"), space)  # saves, and then
        exec(compile(block, str(_PAGE), "exec"), space)  # goes on
    assert space["rest"]["step"] == 0
