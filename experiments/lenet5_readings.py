"""Variants of LeNet-5 for inputs (1, 28, 28): other pooling, other initial values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxnet.gluon import Block


def average_pooling() -> Block:
    """Return LeNet-5 with average pooling, as in LeCun et al. (1998)."""
    from mxnet.gluon import nn

    return _lenet5(nn.AvgPool2D)


def uniform(scale: float = 0.07) -> Block:
    """Return LeNet-5 whose weights begin between -`scale` and `scale`, MXNet's default."""
    import mxnet as mx
    from mxnet.gluon import nn

    return _lenet5(nn.MaxPool2D, lambda _: {"weight": mx.init.Uniform(scale)})


def xavier(magnitude: float = 2.24) -> Block:
    """Return LeNet-5 with Xavier of a lower magnitude; 2.24 is that of MXNet's tutorials."""
    import mxnet as mx
    from mxnet.gluon import nn

    return _lenet5(nn.MaxPool2D, lambda _: {"weight": mx.init.Xavier(magnitude=magnitude)})


def pytorch(classes: int = 10, padding: int = 2) -> Block:
    """Return LeNet-5 whose weights and biases begin within 1 / sqrt(n), PyTorch's default.

    n is the number of inputs of a unit.
    """
    import mxnet as mx
    from mxnet.gluon import nn

    def initial(inputs: int) -> dict[str, Any]:
        limit = mx.init.Uniform(inputs**-0.5)
        return {"weight": limit, "bias": limit}

    return _lenet5(nn.MaxPool2D, initial, classes, padding)


def _lenet5(
    pool: Any,
    initial: Callable[[int], dict[str, Any]] = lambda inputs: {},
    classes: int = 10,
    padding: int = 2,
) -> Block:
    """Return LeNet-5; `initial` gives the initialisers of a layer by the inputs of its units."""
    from mxnet.gluon import nn

    def settings(inputs: int) -> dict[str, Any]:
        return {f"{name}_initializer": value for name, value in initial(inputs).items()}

    flat = 16 * (((28 + 2 * padding - 4) // 2 - 4) // 2) ** 2
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, kernel_size=5, padding=padding, activation="relu", **settings(25)),
        pool(2),
        nn.Conv2D(16, kernel_size=5, activation="relu", **settings(6 * 25)),
        pool(2),
        nn.Flatten(),
        nn.Dense(120, activation="relu", **settings(flat)),
        nn.Dense(84, activation="relu", **settings(120)),
        nn.Dense(classes, **settings(84)),
    )
    return net
