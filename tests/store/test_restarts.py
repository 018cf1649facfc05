"""A job whose processes save once or twice each is told what it loses each time that the next one goes on."""

import logging
import warnings

import numpy as np
import pytest

import lcstore

SAID = "each resume costs"


def state(step):
    begun, moved = (np.random.default_rng(seed).standard_normal((64, 64)) for seed in (0, 1 + step))
    return {"model": {"weight": (begun + 0.01 * moved).astype(np.float32)}}  # none is replaced: deltas


def told(caplog, process):
    """Return whether a process logs what its resumes cost."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "lcstore"):
        process()
    return SAID in caplog.text


def job(url, saves=1, *, resume=lambda store: store.resume(), policy=None, exact=False):
    """Go on from what is there, as a process of its own does, and save some states."""
    with lcstore.open(url, policy=policy) as store:
        first = store.latest_step()
        if first is not None:
            resume(store)
        first = -1 if first is None else first
        for step in range(first + 1, first + 1 + saves):
            store.save(step, state(step), exact=exact and step == first + saves)


def into(store):
    store.resume_into("latest", state(0))


def managed(url):
    with lcstore.CheckpointManager(url, every=1) as manager:
        resumed = manager.resume()
        assert resumed is not None
        manager.save(resumed.step + 1, state(resumed.step + 1))


@pytest.mark.parametrize("resume", [lambda store: store.resume(), into])
@pytest.mark.parametrize("saves", [1, 2])
def test_it_is_said_at_the_third_resume(tmp_path, caplog, resume, saves):
    said = [told(caplog, lambda: job(tmp_path, saves, resume=resume)) for _ in range(5)]
    assert said == [False, False, False, True, True]
    assert "exact=True" in caplog.text
    assert "lossless" in caplog.text


def test_a_manager_says_it(tmp_path, caplog):
    for _ in range(3):
        job(tmp_path)
    assert told(caplog, lambda: managed(tmp_path))


def test_it_is_said_once_by_a_handle(tmp_path, caplog):
    for _ in range(3):
        job(tmp_path)
    with lcstore.open(tmp_path) as store:
        assert [told(caplog, store.resume) for _ in range(2)] == [True, False]


def test_it_is_no_warning_that_ends_a_job(tmp_path):
    for _ in range(3):
        job(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job(tmp_path)


@pytest.mark.parametrize("how", [{"policy": "high"}, {"policy": "lossless"}, {"exact": True}])
def test_a_job_that_is_cured_hears_nothing(tmp_path, caplog, how):
    assert not any(told(caplog, lambda: job(tmp_path, **how)) for _ in range(5))


def test_a_job_hears_no_more_once_it_is_cured(tmp_path, caplog):
    for _ in range(3):
        job(tmp_path)
    assert told(caplog, lambda: job(tmp_path, exact=True))
    assert not told(caplog, lambda: job(tmp_path, exact=True))


def test_nor_does_one_that_is_cured_when_it_dies_once(tmp_path, caplog):
    for _ in range(3):
        job(tmp_path, exact=True)
    job(tmp_path)  # it died before its last save
    assert not told(caplog, lambda: job(tmp_path, exact=True))


def test_runs_that_crash_now_and_then_hear_nothing(tmp_path, caplog):
    assert not any(told(caplog, lambda saves=saves: job(tmp_path, saves)) for saves in (5, 1, 4, 2, 3, 1))


@pytest.mark.parametrize("saves", [1, 5])
def test_what_was_collected_counts_too(tmp_path, caplog, saves):
    with lcstore.open(tmp_path, grace=0) as store:
        store.save(0, state(0))
    for _ in range(3):
        job(tmp_path, saves)
        with lcstore.open(tmp_path) as store:
            store.retain("latest:1")
            for _ in range(2):
                store.collect()
    assert told(caplog, lambda: job(tmp_path)) == (saves == 1)
    with lcstore.open(tmp_path) as store:
        assert len(store.states()) < 3


def test_who_saves_nothing_hears_nothing(tmp_path, caplog):
    for _ in range(4):
        job(tmp_path)
    with lcstore.open(tmp_path, "r") as store:
        assert not told(caplog, store.restore)
    with lcstore.open(tmp_path) as store:
        assert not told(caplog, store.restore)
        assert not told(caplog, store.go_on_from)  # whose values are the caller's


def test_a_population_hears_nothing_of_others(tmp_path, caplog):
    """Handles that save side by side are no processes that follow each other."""
    stores = [lcstore.open(tmp_path) for _ in range(4)]
    for round_ in range(3):
        for number, store in enumerate(stores):
            store.save(10 * round_ + number, state(number))
    with lcstore.open(tmp_path) as store:
        assert not told(caplog, store.resume)
