"""Time that goes by while a test does not wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lcstore.index import contents


def put_forward(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have those who collect find states let go of so many seconds earlier."""

    def now() -> str:
        return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()

    monkeypatch.setattr(contents, "utc_now", now)
