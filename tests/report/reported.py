"""Stores to report on, and pages taken apart."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np

import lcstore


class Layers:
    """Four layers that move a little with every save; some may stop, or move further and further."""

    def __init__(self, prefix: str = "layers") -> None:
        self.rng = np.random.default_rng(5)
        self.names = [f"{prefix}.{place}.weight" for place in range(4)]
        self.weights = {name: self._noise() for name in self.names}
        self.factor = dict.fromkeys(self.names, 1.0)

    def _noise(self) -> np.ndarray:
        return self.rng.standard_normal((64, 64), dtype=np.float32)

    def step(self) -> dict[str, Any]:
        for name in self.names:
            self.weights[name] = self.weights[name] + np.float32(1e-3 * self.factor[name]) * self._noise()
        moments = {name: np.float32(1e-3) * self._noise() for name in self.names}
        return {"model": dict(self.weights), "optim": {"exp_avg": moments}, "epoch": 3}


def save_run(url: str, saves: int = 12, layers: Layers | None = None, **how: Any) -> None:
    """Save a run with a loss that falls."""
    layers = layers or Layers()
    with lcstore.open(url, **how) as store:
        for count in range(saves):
            store.save(10 * count, layers.step(), metrics={"loss": 1 / (count + 1)})


def save_resumed(url: str, runs: int = 9, fork: bool = True) -> None:
    """Save one state with each of some processes, which go on from one another; and a fork of the fifth."""
    for hour in range(runs):
        with lcstore.open(url) as store:
            if hour:
                store.resume()
            store.save(hour, {"hour": hour}, metrics={"recall": 0.5 if hour == 2 else 0.9 + hour / 1000})
    if fork:
        with lcstore.open(url) as store:
            store.resume(5)
            for hour in (6, 7):
                store.save(hour, {"hour": hour}, metrics={"recall": 0.7})


class Parsed(HTMLParser):
    """A page: its elements with their attributes, its text, and whether elements end where they should."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.found}

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.found if attribute in attrs]
