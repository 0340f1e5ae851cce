"""LeNet-5 (LeCun et al. 1998) with rectified units and max pooling; 61,706 parameters."""

from __future__ import annotations

from typing import Any


def lenet5(classes: int = 10, padding: int = 2) -> Any:
    """Return LeNet-5 for inputs (1, 28, 28); `padding` 0 is for inputs of 32x32."""
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, kernel_size=5, padding=padding, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(16, kernel_size=5, activation="relu"),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dense(120, activation="relu"),
        nn.Dense(84, activation="relu"),
        nn.Dense(classes),
    )
    return net
