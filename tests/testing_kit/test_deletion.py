"""A writer and a collector in every order: no acknowledged save is lost, whoever comes first."""

from __future__ import annotations

import pytest
from deletion import collector_of, forked, meeting
from kit import explore

from lcstore.maintain.collect import Collector

pytestmark = [pytest.mark.once, pytest.mark.unprotected]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_writer_goes_on_from_what_is_collected_in_every_order():
    found = explore(meeting(forked(), collector_of(Collector), resumed=True))
    assert found.complete
    assert found.schedules > 1000


def test_a_writer_resumes_what_is_collected():
    found = explore(meeting(forked(), collector_of(Collector), resumed=False), limit=60, samples=60)
    assert found.schedules + found.cut_short + found.sampled == 120


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_writer_resumes_what_is_collected_in_many_orders():
    scene = meeting(forked(), collector_of(Collector), resumed=False)
    explore(scene, limit=3000, samples=2000)
