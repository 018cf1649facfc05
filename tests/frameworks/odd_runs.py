"""Runs of odd states: what is trained, and what its state is made of. Small, on the CPU, alike each time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH = 64
BATCH = 32


def normed() -> nn.Module:
    """A network whose statistics are buffers."""
    return nn.Sequential(
        nn.Linear(WIDTH, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, WIDTH), nn.BatchNorm1d(WIDTH)
    )


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 96), nn.Tanh(), nn.Linear(96, WIDTH))


class Adapted(nn.Module):
    """A frozen layer with an adapter of low rank, of which one half begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.lora_A = nn.Linear(WIDTH, 32, bias=False)
        self.lora_B = nn.Linear(32, WIDTH, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x))


class Tied(nn.Module):
    """Embeddings that are the head as well."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(96, WIDTH)
        self.body = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 96, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        tokens = (x[:, :8] * 12).long().remainder(96)
        return self.head(torch.tanh(self.body(self.embed(tokens).mean(1))))[:, :WIDTH]


class Masked(nn.Module):
    """Attention under a mask of the least number that there is, and one of infinities called a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, 8)
        least = torch.finfo(torch.float32).min
        self.register_buffer("causal", torch.full((64, 64), least).triu(1))
        self.register_buffer("weight", torch.full((64, 64), -torch.inf).triu(2))

    def forward(self, x):
        q, k, v = self.qkv(x.reshape(-1, 8, 8)).chunk(3, -1)
        scores = (q @ k.mT) / WIDTH + self.causal[:8, :8] + self.weight[:8, :8]
        return self.out(scores.softmax(-1) @ v).reshape(-1, WIDTH)


class Narrow(nn.Module):
    """A trained layer of few bits, below frozen ones of eight."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        for name, kind in (("e4m3fn", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
            value = torch.randn(WIDTH, WIDTH) / 8
            self.register_parameter(name, nn.Parameter(value.to(kind), requires_grad=False))
        self.fc = nn.Linear(WIDTH, WIDTH, dtype=dtype)

    def forward(self, x):
        hidden = x @ (self.e4m3fn.float() + self.e5m2.float())
        return self.fc(hidden.to(self.fc.weight.dtype)).float()


class Coded(torch.Tensor):
    """A tensor of one byte for each element and one scale for each row: a stand-in for those of torchao."""

    @staticmethod
    def __new__(cls, codes, scale, dtype):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=dtype)

    def __init__(self, codes, scale, dtype) -> None:
        self.codes = codes
        self.scale = scale

    @classmethod
    def of(cls, values):
        scale = values.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
        return cls((values / scale).round().add(128).to(torch.uint8), scale, values.dtype)

    def value(self):
        return (self.codes.to(self.dtype) - 128) * self.scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], (self.dtype, {"rows": len(self.scale)})  # odd, as those of others are

    @classmethod
    def __tensor_unflatten__(cls, parts, context, size, stride):
        dtype, told = context
        assert told["rows"] == len(parts["scale"])
        return cls(parts["codes"], parts["scale"], dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func not in (torch.ops.aten._to_copy.default, torch.ops.aten.detach.default):
            raise NotImplementedError(str(func))
        return cls(args[0].codes.clone(), args[0].scale.clone(), args[0].dtype)

    def __repr__(self) -> str:
        return "Coded()"


torch.serialization.add_safe_globals([Coded])


class Adam8(torch.optim.Optimizer):
    """Adam with moments of 8 bits, tensors of a class of their own."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                self._step(parameter, self.state[parameter], group["lr"])

    def _step(self, parameter, state, lr) -> None:
        at = state["step"] = state.get("step", 0) + 1
        first = state["exp_avg"].value() * 0.9 if at > 1 else 0.0
        second = (state["exp_avg_sq"].value() if at > 1 else 0.0) ** 2 * 0.99
        first, second = first + 0.1 * parameter.grad, second + 0.01 * parameter.grad**2
        state["exp_avg"], state["exp_avg_sq"] = Coded.of(first), Coded.of(second.sqrt())
        size = (1 - 0.9**at) / (1 - 0.99**at) ** 0.5
        parameter -= lr / size * first / (second.sqrt() + 1e-8)


class Run:
    """A model with its optimizer, and whatever else is part of its state.

    Parameters
    ----------
    make, optimizer
        What makes the model, and of its trained parameters the optimizer.
    seed
        Of the values that the model begins with.
    full
        Keep an average of the weights, a schedule and a scaler of gradients too.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        optimizer: Callable[[Any], Any],
        seed: int = 0,
        *,
        full: bool = False,
    ) -> None:
        torch.manual_seed(seed)
        self.model = make()
        self.optimizer = optimizer([p for p in self.model.parameters() if p.requires_grad])
        self.parts = {"model": self.model, "optim": self.optimizer}
        self.full = full
        if full:
            average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
            schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=100)
            ema = torch.optim.swa_utils.AveragedModel(self.model, multi_avg_fn=average)
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=5)
            self.parts |= {"schedule": schedule, "ema": ema, "scaler": scaler}

    def train(self, steps: range) -> Iterator[int]:
        """Train, and yield each step that was made."""
        for step in steps:
            self.model.train()
            self.optimizer.zero_grad()
            loss = self.loss(step)
            if self.full:
                scaler = self.parts["scaler"]
                scaler.scale(loss).backward()
                scaler.step(self.optimizer)
                scaler.update()
                self.parts["schedule"].step()
                self.parts["ema"].update_parameters(self.model)
            else:
                loss.backward()
                self.optimizer.step()
            yield step

    def loss(self, step: int, batch: int = BATCH) -> torch.Tensor:
        """The loss of the batch of a step."""
        x = torch.randn(batch, WIDTH, generator=torch.Generator().manual_seed(step))
        y = self.model(x)
        if isinstance(self.model, Tied):
            return functional.cross_entropy(y, (x[:, 0] * 12).long().remainder(WIDTH))
        return functional.mse_loss(y, x.roll(8, 1))

    def tested(self) -> float:
        """The loss where nothing is trained."""
        self.model.eval()
        with torch.no_grad():
            return float(self.loss(1 << 20, 4 * BATCH))

    def saved(self) -> bytes:
        """All of the state, as torch saves it."""
        file = io.BytesIO()
        torch.save({name: part.state_dict() for name, part in self.parts.items()}, file)
        return file.getvalue()

    def load(self, saved: bytes) -> None:
        """Go on from a state, exactly."""
        for name, state in torch.load(io.BytesIO(saved)).items():
            self.parts[name].load_state_dict(state)

    def values(self) -> dict[str, Any]:
        """All tensors, as their bits, and plain values of the state by name."""
        return dict(_values("", {name: part.state_dict() for name, part in self.parts.items()}))


def _values(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "__tensor_flatten__"):
        value = {part: getattr(value, part) for part in value.__tensor_flatten__()[0]}
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _values(f"{name}/{key}", part)
    elif isinstance(value, torch.Tensor):
        bits = value.detach().clone().contiguous().reshape(-1).view(torch.uint8)
        yield name, (str(value.dtype), tuple(value.shape), bits.numpy().tobytes())
    else:
        yield name, value
