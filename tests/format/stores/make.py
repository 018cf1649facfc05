"""Makes a store that later versions go on reading, and the digests of what it gives back.

This is run by hand, once for each new number of the format or feature of its frames, by the version that is
to be read for good::

    PYTHONPATH=tests python tests/format/stores/make.py tests/format/stores/format-0
    PYTHONPATH=tests python tests/format/stores/make.py tests/format/stores/format-0-signs one-way

No test runs it, and no test writes what it makes: where a test of `test_old_stores.py` fails, the library is
to be mended, and not the fixture.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from kit.given import all_given

import lcstore
from lcstore.coders import format as f

#: Shapes and dtypes of what lies on grids, with its two moments.
_WEIGHTS = {
    "a.weight": ((64, 32), "float32"),
    "b.weight": ((32, 32), "float64"),
    "c.weight": ((32, 32), "float16"),
    "d.weight": ((32, 32), "bfloat16"),
}
_MOMENTS = ("a.weight", "b.weight", "d.weight")
#: What is no weight, and never changes: the dtypes that nothing else here has.
_OTHERS = ("bool", "complex64", "float8_e4m3fn", "int4")
#: A save whose path since the last anchor is so long has an anchor beside it.
_DURABILITY = lcstore.Durability(anchor_every=3)
#: Of another run: weights of which every bit is kept, and moments that are dropped.
_PLAIN = lcstore.Policy(rules={"model/b.weight": "plain"}, first_moment=0)


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


class Training:
    """A pretend run, whose values are few, so that a store of it is small."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(55)
        self.count = 0
        self.weights = {name: self._sparse(shape, 16) / 64 for name, (shape, _) in _WEIGHTS.items()}
        self.table = self.rng.integers(0, 256, 2250, np.uint8)
        self.others = {
            name: self.rng.integers(0, 2, 48).astype(np.float32).astype(_dtype(name)) for name in _OTHERS
        }

    def _sparse(self, shape: tuple[int, ...], one_of: int) -> np.ndarray:
        return np.where(self.rng.random(shape) < 1 / one_of, self.rng.integers(-3, 4, shape), 0).astype(float)

    def _vector(self, size: int) -> np.ndarray:
        return np.exp2(self.rng.integers(-3, 3, size)).astype(np.float32)

    def step(self) -> dict[str, Any]:
        """Train one interval, and return the state."""
        self.count += 1
        for name, weight in self.weights.items():
            self.weights[name] = weight + self._sparse(weight.shape, 32) / 512
        self.table[self.rng.integers(0, self.table.size, 5)] += 1
        model: dict[str, Any] = {
            name: self.weights[name].astype(_dtype(dtype)) for name, (_, dtype) in _WEIGHTS.items()
        }
        model["tied.weight"] = model["a.weight"]
        model["torch.weight"] = torch.from_numpy(model["c.weight"][:16].copy()).to(torch.bfloat16)
        return {
            "model": model,
            "optimizer": {"state": self._moments(), "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.99)}]},
            "table": self.table.copy(),
            "others": self.others,
            "random": random.Random(self.count).getstate()[1][:8],
            "generator": np.random.default_rng(self.count).bit_generator.state,
            "python": [
                None,
                True,
                "text",
                2**70,
                float("nan"),
                -float("inf"),
                1 + 2j,
                b"\x00\xff",
                self.count,
            ],
        }

    def _moments(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for number, name in enumerate(_MOMENTS):
            (rows, columns), dtype = _WEIGHTS[name]
            rows //= 2
            second = np.outer(self._vector(rows), self._vector(columns)) * 1e-6
            second *= np.where(self.rng.random(second.shape) < 0.05, 2.0 ** self.rng.integers(5, 12), 1)
            second[rows // 2 :: 3] = 0
            first = self._sparse((rows, columns), 16) * 1e-3
            found[number] = {
                "step": self.count,
                "exp_avg": first.astype(np.float32),
                "exp_avg_sq": second.astype(_dtype(dtype)),
            }
        found[len(_MOMENTS)] = {
            "step": self.count,
            "exp_avg": (self._sparse((512,), 4) * 1e-3).astype(np.float32),
            "exp_avg_sq": self._vector(512) * np.float32(1e-6),
        }
        return found


def train(url: Path) -> None:
    """Make a store that has a little of everything."""
    training = Training()
    with lcstore.open(url, durability=_DURABILITY, grace="1d") as store:
        for step in range(0, 50, 10):
            store.save(
                step,
                training.step(),
                metrics={"loss": 1 / (1 + step), "gone": float("nan")},
                metadata={"note": ["ü", {"of": step}]},
                tags=["first"] if step == 0 else [],
            )
        store.tag("moved", 20)
        store.tag("moved", 40)
        store.tag("taken away", 40)
        store.untag("taken away")
        store.pin(20, by="somebody")
    with lcstore.open(url, durability="none", policy=_PLAIN) as store:
        store.resume()  # a second run, which supersedes the first and saves its last step anew
        store.save(40, {**training.step(), "note": "long " * 20_000}, exact=True)
    with lcstore.open(url, durability="none") as store:
        store.retire(10, "to see whether a retired state comes back")
        store.compact()
        store.collect()  # nothing is deleted within the grace: what nobody needs is condemned


def train_one_way(url: Path) -> None:
    """Make a store of rows that move one way each: deltas, moments and merged edges have relative signs."""
    rng = np.random.default_rng(85)
    weight = rng.integers(-64, 64, (16, 64)) / 256
    with lcstore.open(url, policy="high", durability=_DURABILITY) as store:
        for step in range(0, 40, 10):
            moved = rng.choice([-1, 1], (16, 1)) * rng.integers(0, 3, weight.shape)
            moved[rng.random(weight.shape) < step / 40] = 0  # packed levels at first, tokens then
            weight = weight + moved / 512
            second = np.outer(np.exp2(rng.integers(-3, 3, 16)), np.exp2(rng.integers(-3, 3, 64)))
            moments = {"step": step, "exp_avg": moved * 1e-3, "exp_avg_sq": second * 1e-6}
            state = {name: np.float32(value) if name != "step" else value for name, value in moments.items()}
            model = {"a.weight": weight.astype(np.float32)}
            store.save(step, {"model": model, "optimizer": {"state": {0: state}, "param_groups": [{}]}})
        store.compact()
    chunks = [f.HEADER.unpack_from(path.read_bytes()) for path in url.glob("data/*/*/*/c.*")]
    assert sum(fields[14] == f.RELATIVE for fields in chunks) > 6


def main(target: str, kind: str = "") -> None:
    """Write ``target.zip`` and ``target.json``."""
    with tempfile.TemporaryDirectory() as folder:
        url = Path(folder) / "store"
        (train_one_way if kind == "one-way" else train)(url)
        with lcstore.open(url, "r") as store:
            given = all_given(store)
        with zipfile.ZipFile(f"{target}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
            for path in sorted(url.rglob("*")):
                if path.is_file():
                    packed.write(path, path.relative_to(url))
    Path(f"{target}.json").write_text(json.dumps(given, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
