"""A run goes on under the policy that it was saved with, unless somebody says otherwise."""

import logging

import numpy as np
import pytest

import lcstore


def state(step):
    rng = np.random.default_rng(step)
    return {"model": {"weight": rng.standard_normal((64, 64)).astype(np.float32) * (1 + step)}}


@pytest.fixture
def url(tmp_path):
    return tmp_path / "run"


def save(url, first, last, **how):
    with lcstore.open(url, **how) as store:
        if first:
            store.resume()
        for step in range(first, last):
            store.save(step, state(step))
        return store.policy


@pytest.mark.parametrize("policy", ["lossless", "high", "small"])
def test_a_resumed_run_keeps_its_policy(url, policy):
    save(url, 0, 3, policy=policy)
    assert save(url, 3, 6).name == policy
    with lcstore.open(url, "r") as store:
        assert {store.info(step).policy for step in range(6)} == {policy}
        if policy == "lossless":
            assert np.array_equal(store.restore(5)["model"]["weight"], state(5)["model"]["weight"])


def test_what_is_given_goes_before(url):
    save(url, 0, 3, policy="lossless")
    assert save(url, 3, 6, policy="balanced").name == "balanced"
    with lcstore.open(url) as store:
        store.policy = "high"
        store.resume()
        assert store.policy.name == "high"


def test_a_run_that_begins_is_balanced(url):
    save(url, 0, 3, policy="lossless")
    with lcstore.open(url) as store:
        with pytest.warns(lcstore.BesideWarning):
            store.save(9, state(9))
        assert store.info().policy == "balanced"


def test_a_managed_run_keeps_its_policy(url):
    for first in (0, 10):
        with lcstore.CheckpointManager(url, every=1, **({} if first else {"policy": "high"})) as manager:
            manager.resume()
            for step in range(first, first + 3):
                manager.save(step, state(step))
    with lcstore.open(url, "r") as store:
        assert store.info("latest").policy == "high"


def test_rules_have_to_be_given_again(url, caplog):
    save(url, 0, 3, policy={"**/weight": {"error": 0.1}})
    with caplog.at_level(logging.WARNING, "lcstore"):
        assert save(url, 3, 4).rules == {}
    assert "step 2 was saved under a policy with rules or bounds" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "lcstore"):
        save(url, 4, 5, policy={"**/weight": {"error": 0.1}})
    assert "policy" not in caplog.text


def test_rewinding_and_going_on_keep_it_too(url):
    save(url, 0, 3, policy="high")
    with lcstore.open(url) as store:
        store.rewind(1)
        assert store.policy.name == "high"
    with lcstore.open(url) as store:
        store.go_on_from(1)
        assert store.policy.name == "high"
