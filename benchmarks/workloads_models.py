"""The networks that the benchmarks train with PyTorch: LeNet-5, a small AlexNet and a byte-level GPT."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class LeNet5(nn.Module):
    """LeNet-5 for 28x28 images: 61,706 parameters, ReLU and max pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class SmallAlexNet(nn.Module):
    """Five convolutions, the first with a stride, then three layers with dropout, as AlexNet has.

    For 28x28 images; 894,378 parameters. Weights begin as He et al. say: the default would not move for
    hundreds of steps.
    """

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 96, 3, padding=1)
        self.conv4 = nn.Conv2d(96, 96, 3, padding=1)
        self.conv5 = nn.Conv2d(96, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 9, 640)
        self.fc2 = nn.Linear(640, 480)
        self.fc3 = nn.Linear(480, 10)
        self.dropout = dropout
        for name, weight in self.named_parameters():
            if weight.dim() >= 2 and not name.startswith("fc3"):
                nn.init.kaiming_normal_(weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.relu(self.conv3(F.relu(self.conv2(x))))
        x = F.max_pool2d(F.relu(self.conv5(F.relu(self.conv4(x)))), 2).flatten(1)
        x = F.dropout(F.relu(self.fc1(x)), self.dropout, self.training)
        x = F.dropout(F.relu(self.fc2(x)), self.dropout, self.training)
        return self.fc3(x)


class Block(nn.Module):
    """One pre-norm transformer block without biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A byte-level GPT: learned positions, no biases, tied head (8,999,040 parameters by default)."""

    def __init__(self, layers: int = 5, width: int = 384, heads: int = 6, time: int = 128) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.positions = nn.Embedding(time, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # Projections back into the residual stream start smaller, as their outputs add up.
                into_residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if into_residual else 0.02)

    def forward(self, text: Tensor) -> Tensor:
        x = self.tokens(text) + self.positions.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        # The head is the embedding itself, used as a function: the state has the shared tensor once.
        return F.linear(self.norm(x), self.tokens.weight)
