"""Any history of saves, failures, resumes, branches and maintenance: what was acknowledged stays so."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from machine import History
from machine_upkeep import Kept

pytestmark = pytest.mark.once

_QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}

TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=10, stateful_step_count=30, **_QUIET)

TestKept = Kept.TestCase
TestKept.settings = settings(max_examples=10, stateful_step_count=50, derandomize=True, **_QUIET)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestLongHistory(History.TestCase):
    settings = settings(max_examples=100, stateful_step_count=50, **_QUIET)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestLongKept(Kept.TestCase):
    settings = settings(max_examples=100, stateful_step_count=50, **_QUIET)


@pytest.mark.soak
@pytest.mark.timeout(7200)
class TestVeryLongKept(Kept.TestCase):
    settings = settings(max_examples=20, stateful_step_count=300, **_QUIET)
