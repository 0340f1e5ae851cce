"""2NN and LeNet-5 in PyTorch, and local training, for every contender that has PyTorch."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from work import BATCH, CLASSES, EPOCHS, IMAGES, RATE, client_data


def build(model: str) -> nn.Sequential:
    """Return the model for inputs (1, 28, 28), layer by layer as `layers/compute/models` has it."""
    if model == "2nn":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, CLASSES),
        )
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


def count(net: nn.Module) -> int:
    """Return how many parameters the model has."""
    return sum(parameter.numel() for parameter in net.parameters())


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
