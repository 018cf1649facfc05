"""States with everything in them that a file may lose."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import ml_dtypes
import numpy as np


def odd_state(seed: int = 0) -> dict[str, Any]:
    """A state of numpy: nested, tied, of odd dtypes, shapes and names."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((48, 32)).astype(np.float32)
    return {
        "model": OrderedDict(
            [
                ("embed.weight", weight),
                ("fc.weight", rng.standard_normal((16, 32)).astype(ml_dtypes.bfloat16)),
                ("head.weight", weight),
                ("bias", rng.standard_normal(16).astype(np.float16)),
            ]
        ),
        "optim": {
            "state": {0: {"step": np.array(3.0, np.float32), "exp_avg": weight * 2, "exp_avg_sq": weight**2}},
            "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0], "foreach": None}],
        },
        "odd": {
            "a/b": [np.arange(3, dtype=np.uint8), (np.float32(2.5),)],
            "a.b": {"~#": np.zeros((0, 3))},
            7: np.array(True),
            "": rng.standard_normal((6, 4)).astype(np.float32).T,
            "complex": np.array([1 + 2j], np.complex64),
        },
        "epoch": 4,
        "rng": b"\x00\xff",
        "values": [1 + 2j, 2**70, float("inf"), "text", None, True, []],
    }


def torch_state(steps: int = 2) -> dict[str, Any]:
    """A whole state of AdamW, with tied weights; a module and an optimizer as they are."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(40, 16), torch.nn.Linear(16, 40))
    model[1].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.arange(8)).square().mean().backward()
        optimizer.step()
    return {
        "model": model,
        "optim": optimizer,
        "half": {"weight": torch.randn(8, 4).to(torch.bfloat16), "turned": torch.randn(4, 6).T},
        "one": torch.tensor(2.0),
        "none": torch.zeros(0, 3),
        "flags": torch.tensor([True, False]),
        "rng": torch.get_rng_state(),
        "epoch": 3,
    }
