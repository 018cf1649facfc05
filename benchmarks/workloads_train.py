"""Training runs that are a function of their seed: the same states on every run with the same libraries.

A batch is drawn from the seed and the iteration number alone, so a run that continues from a stored state
sees the batches that the first run saw.
"""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.workloads_models import GPT, LeNet5, SmallAlexNet

#: The result of a sum depends on how many threads share it, so the number belongs to the workload.
THREADS = 2
BATCH = {"lenet": 64, "cnn": 32, "gpt": 6}
TIME = 128
WARMUP = 50
NOT_CORPUS = {"site-packages", "__pycache__", "test", "tests", "idlelib", "lib2to3", "pydoc_data"}

Batch = tuple[Tensor, Tensor]


@dataclass
class Run:
    """A model in training. `iteration` counts the updates made."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batch: Callable[[int], Batch]
    held_out: list[Batch]
    rate: Callable[[int], float]
    fingerprint: dict[str, Any]
    clip: float | None = None
    iteration: int = 0
    #: Seed of what the model draws by itself (dropout); None where it draws nothing.
    noise: int | None = None

    def advance(self, to: int) -> None:
        """Train until `to` updates have been made."""
        self.model.train()
        while self.iteration < to:
            if self.noise is not None:  # a function of the iteration, like the batches: nothing to be saved
                torch.manual_seed((self.noise << 32) + self.iteration)
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate(self.iteration)
            self.optimizer.zero_grad(set_to_none=True)
            _loss(self.model, self.batch(self.iteration)).backward()
            if self.clip is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            self.iteration += 1

    @torch.no_grad()
    def loss(self) -> float:
        """Mean held-out loss, over the same examples each time."""
        self.model.eval()
        return float(np.mean([_loss(self.model, batch).item() for batch in self.held_out]))

    def state(self) -> dict[str, Any]:
        """The training state as numpy arrays (copies) in the structure of PyTorch's state dicts."""
        return {"model": _to_numpy(self.model.state_dict()), "optim": _to_numpy(self.optimizer.state_dict())}

    def load(self, state: dict[str, Any], iteration: int) -> None:
        """Continue from a state such as `state` gives, taken after `iteration` updates.

        Plain SGD has no state of its own, so weights alone will do.
        """
        self.model.load_state_dict(_to_torch(state["model"]))
        if "optim" in state:
            self.optimizer.load_state_dict(_to_torch(state["optim"]))
        elif self.optimizer.state or not isinstance(self.optimizer, torch.optim.SGD):
            raise ValueError("the optimizer has moments, and the state has none")
        self.iteration = iteration

    def parameter_paths(self) -> list[str]:
        """Paths of the parameters in the order in which the optimizer numbers them."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        return [f"model/{names[id(p)]}" for group in self.optimizer.param_groups for p in group["params"]]


def start_run(name: str, seed: int = 0) -> Run:
    """A run of the named workload (`lenet`, `cnn` or `gpt`) at iteration 0."""
    torch.set_num_threads(THREADS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {"lenet": _lenet, "cnn": _cnn, "gpt": _gpt}[name](seed)


def states(
    name: str, every: int, *, start: int | None = None, seed: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Train without end; yield the iteration number and the training state every `every` iterations.

    Parameters
    ----------
    name : {"lenet", "gpt"}
        The workload.
    every : int
        Iterations between two states.
    start : int, optional
        Iteration of the first state; `every` if not given.
    seed : int
        Seed of the initial weights and of the batches.
    """
    run = start_run(name, seed)
    at = every if start is None else start
    while True:
        run.advance(at)
        yield at, run.state()
        at += every


def _lenet(seed: int) -> Run:
    return _on_digits(seed, LeNet5(), BATCH["lenet"], 0.01)


def _cnn(seed: int) -> Run:
    run = _on_digits(seed, SmallAlexNet(), BATCH["cnn"], 0.01)
    run.noise = seed
    return run


def _on_digits(seed: int, model: nn.Module, size: int, rate: float) -> Run:
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = torch.from_numpy(digits.images.astype(np.float32) / 16)[:, None]
    images = F.interpolate(small, size=(28, 28), mode="bilinear", align_corners=False)
    labels = torch.from_numpy(digits.target.astype(np.int64))
    order = np.random.default_rng(seed).permutation(len(labels))
    train, held_out = order[:1500], order[1500:]

    def batch(iteration: int) -> Batch:
        picked = np.random.default_rng((seed, iteration)).choice(train, size, replace=False)
        return images[picked], labels[picked]

    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    fingerprint = _fingerprint(seed, digits.images.tobytes(), batch=size)
    return Run(model, optimizer, batch, [(images[held_out], labels[held_out])], lambda _: rate, fingerprint)


def gpt_run(batch: int, seed: int = 0, **shape: int) -> Run:
    """A run of a GPT of another shape than the workload's (layers, width, heads), at iteration 0."""
    torch.set_num_threads(THREADS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _gpt(seed, batch, **shape)


def _gpt(seed: int, size: int = BATCH["gpt"], **shape: int) -> Run:
    train, held_out = (np.frombuffer(part, np.uint8) for part in corpus())

    def cut(text: np.ndarray, rng: np.random.Generator, windows: int) -> Batch:
        at = rng.integers(0, len(text) - TIME, windows)
        both = torch.from_numpy(text[at[:, None] + np.arange(TIME + 1)].astype(np.int64))
        return both[:, :-1], both[:, 1:]

    model = GPT(time=TIME, **shape)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    gains = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}]
    fixed = np.random.default_rng(seed)
    return Run(
        model,
        torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True),
        batch=lambda iteration: cut(train, np.random.default_rng((seed, iteration)), size),
        held_out=[cut(held_out, fixed, 16) for _ in range(2)],
        rate=lambda iteration: 1e-3 * min(1.0, (iteration + 1) / WARMUP),
        fingerprint=_fingerprint(seed, train.tobytes() + held_out.tobytes(), batch=size),
        clip=1.0,
    )


def corpus() -> tuple[bytes, bytes]:
    """Source text of the standard library, sorted by path; every twentieth file is held out."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if not NOT_CORPUS.intersection(path.relative_to(root).parts)
    )
    texts = [(root / name).read_bytes() for name in files]
    held_out = texts[::20]
    del texts[::20]
    return b"".join(texts), b"".join(held_out)


def _fingerprint(seed: int, data: bytes, batch: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "batch": batch,
        "threads": THREADS,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "data_bytes": len(data),
        "data_sha256": hashlib.sha256(data).hexdigest(),
    }


def _loss(model: nn.Module, batch: Batch) -> Tensor:
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def _to_numpy(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        # A copy: the next update would change the array under the reader.
        return tree.detach().to(torch.float32).numpy().copy()
    if isinstance(tree, dict):
        return {key: _to_numpy(value) for key, value in tree.items()}
    return [_to_numpy(value) for value in tree] if isinstance(tree, list) else tree


def _to_torch(tree: Any) -> Any:
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree.copy())
    if isinstance(tree, dict):
        return {key: _to_torch(value) for key, value in tree.items()}
    return [_to_torch(value) for value in tree] if isinstance(tree, list) else tree
