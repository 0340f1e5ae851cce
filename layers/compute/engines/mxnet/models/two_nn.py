"""2NN: two hidden layers of 128 and 64 rectified units; 109,386 parameters on 28x28 inputs."""

from __future__ import annotations

from typing import Any


def two_nn(classes: int = 10, hidden: tuple[int, int] = (128, 64)) -> Any:
    """Return 784-128-64-10 for inputs (1, 28, 28); any other input shape is flattened too."""
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(nn.Flatten())
    for units in hidden:
        net.add(nn.Dense(units, activation="relu"))
    net.add(nn.Dense(classes))
    return net
