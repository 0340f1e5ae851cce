"""The papers' models in PyTorch, and local training, for every contender that has PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from work import BATCH, CLASSES, EPOCHS, IMAGES, RATE, client_data


def build(model: str) -> nn.Module:
    """Return a model with the same layers as in `layers/compute/engines/mxnet/models`."""
    return MODELS[model]()


def two_nn(first: int = 128, second: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, first),
        nn.ReLU(),
        nn.Linear(first, second),
        nn.ReLU(),
        nn.Linear(second, CLASSES),
    )


def lenet5() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, CLASSES),
    )


def cnn3() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, kernel_size=3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 512),
        nn.ReLU(),
        nn.Linear(512, CLASSES),
    )


def knapsack_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 10, kernel_size=5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, kernel_size=5),
        nn.Dropout2d(),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(50, CLASSES),
    )


def vgg11s() -> nn.Module:
    layers: list[nn.Module] = []
    before = 3
    for group in ((32,), (64,), (128, 128), (128, 128), (128, 128)):
        for channels in group:
            layers += [nn.Conv2d(before, channels, kernel_size=3, padding=1), nn.ReLU()]
            before = channels
        layers.append(nn.MaxPool2d(2))
    dense = [nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), *dense, nn.Linear(128, CLASSES))


class BasicBlock(nn.Module):
    """Two convolutions with batch normalisation, and a way around them."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.around: nn.Module = nn.Identity()
        if stride > 1:
            self.around = nn.Sequential(
                nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.around(x))


def resnet18_cifar() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    before = 64
    for channels in (64, 128, 256, 512):
        layers.append(BasicBlock(before, channels, 1 if channels == before else 2))
        layers.append(BasicBlock(channels, channels, 1))
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


class Lstm(nn.Module):
    """Fixed word vectors, two layers of 100 units, two dense layers on the last output."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Embedding.from_pretrained(torch.randn(10_000, 300), freeze=True)
        self.lstm = nn.LSTM(300, 100, num_layers=2, batch_first=True)
        self.dense = nn.Sequential(nn.Linear(100, 30), nn.ReLU(), nn.Linear(30, 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.lstm(self.vectors(tokens))
        return self.dense(outputs[:, -1]).reshape(-1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "2nn": two_nn,
    "2nn-mcmahan": partial(two_nn, 200, 200),
    "lenet5": lenet5,
    "cnn3": cnn3,
    "knapsack-cnn": knapsack_cnn,
    "vgg11s": vgg11s,
    "resnet18-cifar": resnet18_cifar,
    "lstm": Lstm,
}


def count(net: nn.Module) -> int:
    """Return the number of trainable parameters of the model."""
    return sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)


@cache  # a worker process meets a client more than once
def tensors(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a client's images (600, 1, 28, 28) and labels (600,)."""
    images, labels = client_data(client)
    return torch.from_numpy(images[:, None]), torch.from_numpy(labels)


def train(
    net: nn.Module, images: torch.Tensor, labels: torch.Tensor, *, loader: bool = False
) -> None:
    """Take a client's local steps, shuffled anew each epoch.

    Batches are indexed from the tensors. With `loader` they come from a `DataLoader` instead, as
    examples have it, which takes some 80 microseconds more a batch.
    """
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    loss_of = nn.CrossEntropyLoss()
    batches = DataLoader(TensorDataset(images, labels), batch_size=BATCH, shuffle=True)
    net.train()
    for _ in range(EPOCHS):
        orders = torch.randperm(IMAGES).split(BATCH)
        for x, y in batches if loader else ((images[order], labels[order]) for order in orders):
            optimizer.zero_grad()
            loss_of(net(x), y).backward()
            optimizer.step()
