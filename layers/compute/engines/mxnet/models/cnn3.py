"""CNN-3: three convolutions and two dense layers, for 28 x 28 grey images."""

from __future__ import annotations

from typing import Any


def cnn3(classes: int = 10) -> Any:
    """Return the network of three 3 x 3 convolutions; 356,298 parameters for 10 classes.

    Convolutions of 32, 64 and 64 channels without padding, each with ReLU, the first two with max
    pooling by 2; a dense layer of 512 with ReLU, and one of `classes`. This is a reconstruction:
    the paper on projected sparse ternary compression only says three convolutions and 1.36 MB.
    """
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(32, kernel_size=3, activation="relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Conv2D(64, kernel_size=3, activation="relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Conv2D(64, kernel_size=3, activation="relu"),
        nn.Dense(512, activation="relu"),
        nn.Dense(classes),
    )
    return net
