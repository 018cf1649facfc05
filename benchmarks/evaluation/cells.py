"""Results that are kept: each is a JSON file, so that an evaluation goes on where it stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS
from benchmarks.peers import Missing


class Cells:
    """A folder of results by key.

    Attributes
    ----------
    missing : set of str
        What was left out, and why.
    """

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.missing: set[str] = set()
        self._folder: Path = RESULTS / ("evaluation-quick" if quick else "evaluation")
        self._folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return the result of that key, computed now if it is not there; None where a library is missing."""
        file = self._folder / f"{key}.json"
        if file.exists():
            return json.loads(file.read_text(encoding="utf-8"))
        began = time.monotonic()
        try:
            value = compute()
        except Missing as missing:
            if str(missing) not in self.missing:
                print(f"left out: {missing}", flush=True)
            self.missing.add(str(missing))
            return None
        text = json.dumps(value, default=float)
        beside = file.with_suffix(".part")
        beside.write_text(text + "\n", encoding="utf-8")
        os.replace(beside, file)
        print(f"{key}: {time.monotonic() - began:.1f} s", flush=True)
        return json.loads(text)
