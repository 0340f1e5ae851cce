"""The CNN of the paper on client selection as a knapsack problem; 21,840 parameters."""

from __future__ import annotations

from typing import Any


def knapsack_cnn(classes: int = 10, dropout: float = 0.5) -> Any:
    """Return two convolutions and two dense layers for inputs (1, 28, 28).

    Convolution of 10 channels, 5 x 5, max pooling by 2, ReLU; convolution of 20, dropout of whole
    channels, pooling, ReLU; dense layer of 50, ReLU, dropout; dense layer of `classes`. The paper
    gives the layers and sizes; both dropout rates are the usual ones for this network.
    """
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(10, kernel_size=5),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Activation("relu"),
        nn.Conv2D(20, kernel_size=5),
        nn.Dropout(dropout, axes=(2, 3)),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Activation("relu"),
        nn.Dense(50, activation="relu"),
        nn.Dropout(dropout),
        nn.Dense(classes),
    )
    return net
