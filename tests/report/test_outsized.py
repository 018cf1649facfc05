"""Weights that began far larger than others alike; and runs in which none did."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lcstore
from lcstore.report.gather import gather
from lcstore.report.outsized import outsized
from lcstore.report.words import verdict
from lcstore.storage.memory import MemoryBackend

RNG = np.random.default_rng(0)


def normal(*shape: int, std: float = 0.02) -> np.ndarray:
    return std * RNG.standard_normal(shape, np.float32)


def uniform(*shape: int, most: float) -> np.ndarray:
    return RNG.uniform(-most, most, shape).astype(np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def gpt() -> dict[str, np.ndarray]:
    """Projections into the residual stream begin smaller, norms as ones, embeddings of two sizes."""
    weights = {"wte.weight": normal(512, 32), "wpe.weight": normal(64, 32, std=0.01)}
    for place in range(6):
        block = f"blocks.{place}"
        weights |= {f"{block}.norm{n}.weight": np.ones(32, np.float32) for n in (1, 2)}
        weights |= {f"{block}.attn.{name}.weight": normal(32, 32) for name in "qkv"}
        weights |= {f"{block}.attn.out.weight": normal(32, 32, std=0.02 / 12**0.5)}
        weights |= {f"{block}.up.weight": normal(128, 32), f"{block}.down.weight": normal(32, 128, std=0.006)}
    return weights


def resnet() -> dict[str, np.ndarray]:
    """The last scale of each block begins as zeros, convolutions by their fans."""
    weights = {"stem.conv1.weight": normal(16, 3, 7, 7, std=0.05), "fc.weight": uniform(10, 64, most=0.1)}
    for layer, width in ((1, 16), (2, 32), (3, 64)):
        for block in range(2):
            within = f"layer{layer}.{block}"
            before = width // 2 if layer > 1 and not block else width
            weights[f"{within}.conv1.weight"] = normal(width, before, 3, 3, std=(2 / 9 / width) ** 0.5)
            weights[f"{within}.conv2.weight"] = normal(width, width, 3, 3, std=(2 / 9 / width) ** 0.5)
            weights |= {
                f"{within}.bn1.weight": np.ones(width, np.float32),
                f"{within}.bn2.weight": zeros(width),
            }
    return weights


def lora() -> dict[str, np.ndarray]:
    adapters = {}
    for place in range(6):
        adapters[f"layers.{place}.q.lora_A.weight"] = uniform(8, 64, most=0.125)
        adapters[f"layers.{place}.q.lora_B.weight"] = zeros(64, 8)
    return adapters


def zero_last() -> dict[str, np.ndarray]:
    """Layers of one shape of which the last begins as zeros, and another as next to nothing."""
    layers = {f"net.{place}.weight": uniform(64, 64, most=0.125) for place in range(6)}
    return layers | {"net.6.weight": normal(64, 64, std=1e-4), "net.7.weight": zeros(64, 64)}


def siren() -> dict[str, np.ndarray]:
    """The first layer begins a hundred times as large as the others: it has another shape."""
    layers = {f"net.{place}.weight": uniform(256, 256, most=6**0.5 / 16 / 30) for place in range(1, 5)}
    return {"net.0.weight": uniform(256, 2, most=0.5)} | layers


def fields() -> dict[str, np.ndarray]:
    """Tables of many resolutions, layers whose first takes one number, policies whose last gives few."""
    tables = {f"planes.{place}.weight": uniform(16, 8 << place, most=0.3) for place in range(5)}
    layers = {f"mlp.{place}.weight": uniform(512, 512, most=512**-0.5) for place in range(1, 5)}
    return (
        tables | layers | {"mlp.0.weight": uniform(512, 1, most=1), "mlp.5.weight": normal(4, 512, std=4e-4)}
    )


def by_depth() -> dict[str, np.ndarray]:
    return {f"layers.{place}.fc.weight": normal(64, 64, std=0.1 / (1 + place)) for place in range(24)}


HEALTHY = [gpt, resnet, lora, zero_last, siren, fields, by_depth]


def trained(
    weights: dict[str, np.ndarray], rate: float, first: int = 0, saves: int = 8, policy: str = "balanced"
) -> lcstore.Store:
    """Save a run whose weights move by about `rate` with each save, as Adam moves all of them alike."""
    store = lcstore.open(MemoryBackend.fresh(), policy=policy, durability="none")
    for count in range(first + saves):
        if count >= first:
            store.save(10 * count, {"model": weights})
        weights = {name: value + normal(*value.shape, std=rate) for name, value in weights.items()}
    return store


@pytest.mark.parametrize("build", HEALTHY)
@pytest.mark.parametrize(("rate", "first"), [(1e-5, 0), (1e-5, 1), (1e-3, 0), (1e-3, 1), (3e-2, 0)])
def test_of_a_run_that_began_well_nothing_is_told(build: Callable[[], dict[str, np.ndarray]], rate, first):
    notes = [one.note for one in gather(trained(build(), rate, first)).tensors.notable]
    assert not any("larger weights than" in note for note in notes)
    assert notes == [] or rate == 3e-2  # some grow by that


@pytest.mark.parametrize(
    ("build", "name"),
    [(gpt, "blocks.2.up.weight"), (resnet, "layer3.1.conv2.weight"), (siren, "net.2.weight")],
)
@pytest.mark.parametrize("rate", [1e-5, 1e-3])
def test_a_layer_that_began_a_hundred_times_as_large_is_named(build, name, rate):
    weights = build()
    if build is resnet:  # of that shape there are three
        weights["layer3.2.conv2.weight"] = weights[name].copy()
        weights["layer3.3.conv2.weight"] = weights[name].copy()
    report = gather(trained(weights | {name: 100 * weights[name]}, rate))
    (noted,) = report.tensors.notable
    assert noted.name == f"model/{name}"
    least, most = 32, 256
    said = noted.note.removeprefix("has had larger weights than others alike since step 0: its largest was ")
    low, high = map(float, said.removesuffix(" times theirs then").split(" to "))
    assert least <= low <= 100 <= high <= most
    assert noted.note in " ".join(verdict(report))


def test_it_is_told_of_one_state_and_where_values_ended_as_nan():
    weights = gpt()
    weights["blocks.4.up.weight"] *= 100
    assert len(gather(trained(weights, 1e-3, saves=1)).tensors.notable) == 1
    store = trained(weights, 1e-3)
    for step in (80, 90):
        store.save(step, {"model": {name: value * np.float32(np.nan) for name, value in weights.items()}})
    first, *others = gather(store).tensors.notable
    assert first.name == "model/blocks.4.up.weight"
    assert first.note.startswith("has had larger weights than others alike since step 0: ")
    assert "is kept bit for bit" in first.note
    assert not any("larger" in one.note for one in others)


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [
        ([0, 0, 0, 6], [0, 0, 0, 6], True),
        ([0, 0, 0, 5], [0, 0, 0, 5], False),
        ([0, 1, 2, 7], [0, 1, 2, 7], True),
        ([0, 1, 3, 9], [0, 1, 3, 9], False),
        ([0, 0, 6], [0, 0, 6], False),
        ([np.nan, 0, 0, 6], [6, 0, 0, 6], False),
        ([np.nan, 0, 0, 0, 8], [6, 0, 0, 0, 8], True),
        ([0, 0, 0, 7], [4, 5, 5, 7], False),
        ([0, 0, 0, 7], [3, 4, 4, 7], True),
        ([0, 0, 0, -9], [0, 0, 0, -9], False),
        ([0, 0, 0, 7, 7], [0, 0, 0, 7, 7], False),
    ],
)
def test_what_is_larger_than_those_alike(first, last, told):
    grid = np.array([first, [np.nan] * len(first), last, [np.nan] * len(first)], float).T
    said = outsized([range(len(first))], grid, [5, 6, 7, 8])
    assert bool(said) == told
    assert all("since step 5" in note.text for note in said.values())


def test_how_much_larger_it_may_be_has_no_end():
    grid = np.array([[-800.0], [-800], [-800], [1000]])
    assert list(outsized([range(4)], grid, [0])) == [3]
    assert outsized([], np.zeros((0, 3)), [0, 1, 2]) == {}
