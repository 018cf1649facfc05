"""What a store is told to survive: every wrong value is refused, and each target has its own default."""

import math

import numpy as np
import pytest

import lcstore
from lcstore.durability import NAMED, durability_from
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.targets import keeps_twice


@pytest.mark.parametrize(
    "wrong",
    [
        {"parity": "some"},
        {"parity": None},
        {"copies": 1},
        {"anchor_ratio": 0},
        {"anchor_ratio": math.nan},
        {"anchor_ratio": "8"},
        {"anchor_every": 0},
        {"anchor_every": True},
        {"anchor_every": 1.5},
    ],
)
def test_a_wrong_value_is_refused(wrong):
    with pytest.raises(lcstore.InvalidInputError, match=f"durability: {next(iter(wrong))}"):
        lcstore.Durability(**wrong)


@pytest.mark.parametrize("wrong", ["most", None, True, 3])
def test_what_is_no_durability_is_refused(wrong):
    with pytest.raises(lcstore.InvalidInputError, match="'default', 'none', 'all'"):
        durability_from(wrong)


def test_the_names_mean_what_they_say():
    assert durability_from("default") == lcstore.Durability("kept", True, 8.0, None)
    assert durability_from("all") == lcstore.Durability("all")
    none = durability_from("none")
    assert (none.parity, none.copies, none.anchor_ratio, none.anchor_every) == ("none", False, math.inf, None)
    mine = lcstore.Durability(anchor_every=7)
    assert durability_from(mine) is mine


@pytest.mark.parametrize(
    ("url", "twice"),
    [
        ("s3://bucket/run", True),
        ("gs://bucket/run", True),
        ("az://box/run", True),
        ("sftp://host/run", False),
        ("memory://run", False),
        ("/data/run", False),
        ("file:///data/run", False),
    ],
)
def test_buckets_keep_their_objects_twice(url, twice):
    backend = MemoryBackend(f"durability-{twice}")
    backend._url = url
    assert keeps_twice(backend) is twice


def test_the_default_goes_by_the_target():
    backend = MemoryBackend("durability")
    assert lcstore.open(backend).durability == NAMED["default"]
    assert lcstore.open(backend, durability="all").durability == NAMED["all"]
    backend._url = "s3://bucket/run"
    assert lcstore.open(backend).durability == NAMED["none"]
    assert lcstore.open(backend, durability="default").durability == NAMED["default"]


def test_a_store_keeps_what_it_is_made_with(tmp_path):
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    for kind, given in (("none", "none"), ("all", "all"), ("default", None)):
        with lcstore.open(tmp_path / kind, durability=given) as store:
            for step in range(20):
                store.save(step, {"w.weight": weight + np.float32(1e-3 * step)})
        with lcstore.open(tmp_path / kind) as store:
            assert store.durability == durability_from(kind)
    with lcstore.open(tmp_path / "none", durability="default") as store:  # for this handle alone
        assert store.durability == NAMED["default"]
    with lcstore.open(tmp_path / "none") as store:
        report = store.maintain("every:5")
        assert report.compacted.added
        assert report.verified.is_sound
        assert store.stats().protection_bytes == 0
