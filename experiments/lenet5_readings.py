"""LeNet-5 for inputs (1, 28, 28) as the thesis may have it: other pooling, other initial values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxnet.gluon import Block


def average_pooling() -> Block:
    """Return LeNet-5 with average pooling, as LeCun et al. (1998) have it."""
    from mxnet.gluon import nn

    return _lenet5(nn.AvgPool2D)


def uniform(scale: float = 0.07) -> Block:
    """Return LeNet-5 whose weights begin between -`scale` and `scale`, MXNet's default."""
    import mxnet as mx
    from mxnet.gluon import nn

    return _lenet5(nn.MaxPool2D, weight_initializer=mx.init.Uniform(scale))


def xavier(magnitude: float = 2.24) -> Block:
    """Return LeNet-5 with Xavier of a lower magnitude; 2.24 is that of MXNet's tutorials."""
    import mxnet as mx
    from mxnet.gluon import nn

    return _lenet5(nn.MaxPool2D, weight_initializer=mx.init.Xavier(magnitude=magnitude))


def _lenet5(pool: Any, **settings: Any) -> Block:
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, kernel_size=5, padding=2, activation="relu", **settings),
        pool(2),
        nn.Conv2D(16, kernel_size=5, activation="relu", **settings),
        pool(2),
        nn.Flatten(),
        nn.Dense(120, activation="relu", **settings),
        nn.Dense(84, activation="relu", **settings),
        nn.Dense(10, **settings),
    )
    return net
