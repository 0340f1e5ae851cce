"""VGG11*: a VGG of eight convolutions, small enough to send; 865,482 parameters."""

from __future__ import annotations

from typing import Any

# Channels of the convolutions; max pooling by 2 follows each group.
GROUPS = ((32,), (64,), (128, 128), (128, 128), (128, 128))


def vgg11s(classes: int = 10) -> Any:
    """Return VGG11* for inputs (3, 32, 32): neither batch normalisation nor dropout.

    Convolutions of 3 x 3 with padding and ReLU, then dense layers of 128, 128 and `classes`.
    Source: Sattler et al., "Robust and Communication-Efficient Federated Learning from Non-IID
    Data", 2019, section VI.
    """
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    for group in GROUPS:
        for channels in group:
            net.add(nn.Conv2D(channels, kernel_size=3, padding=1, activation="relu"))
        net.add(nn.MaxPool2D(pool_size=2, strides=2))
    net.add(nn.Dense(128, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(classes))
    return net
