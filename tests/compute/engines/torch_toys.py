"""Modules of PyTorch for the tests of its engine."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Normed(nn.Module):
    """Batch normalisation and dropout, as a user writes them."""

    def __init__(self, width: int = 8, rate: float = 0.3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(rate)
        )
        self.head = nn.Linear(width * 36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


class Adapted(nn.Module):
    """A frozen layer with a trainable product of two thin ones beside it, and a frozen table."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 5).requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 5, bias=False)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.base(x) + self.up(self.down(x))))


class Words(nn.Module):
    """Counts tokens through an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x).mean(dim=1))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.two(torch.relu(self.one(x))))


class Two(nn.Module):
    """A model with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(x), x


def counting() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3))


def in_float64() -> nn.Module:
    return nn.Linear(6, 3).double()


def by_hand(
    module: nn.Module, x: Tensor, y: Tensor, rate: float, bf16: bool = False
) -> dict[str, Tensor]:
    """The tensors after one step of PyTorch's own optimiser."""
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), rate, momentum=0.9, weight_decay=0.01)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        outputs = module(x)
    nn.functional.cross_entropy(outputs.float(), y).backward()
    optimizer.step()
    return module.state_dict()
