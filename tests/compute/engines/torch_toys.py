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


class Grouped(nn.Sequential):
    """Normalisation of each sample by itself."""

    def __init__(self) -> None:
        layers = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2)
        super().__init__(*layers, nn.Flatten(), nn.Linear(36, 3))


class Attending(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.words(x)).mean(dim=1))


class Recurrent(nn.Module):
    """An LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 4), nn.Linear(5, 3)
        self.cells = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(self.words(x))[0][:, -1])


class Comparing(nn.Module):
    """Centres each mini-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(x)
        return y - y.mean(dim=0)


class Branching(nn.Module):
    """Decides by a value."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(x)
        return y if y.sum() > 0 else 2 * y


class Dropping(nn.Sequential):
    """Dropout."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
