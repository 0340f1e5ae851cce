"""Small models of Gluon for the tests of the engine."""

from typing import Any

import mxnet as mx
from mxnet.gluon import nn

from layers.compute.engines.mxnet.engine import MXNetEngine


def is_compiled(engine: MXNetEngine) -> bool:
    """Return whether the model runs as a bound graph, and not through autograd."""
    return engine._output is not None


def linear() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(3))
    return net


def wide_convolutions() -> Any:
    """32 and 64 channels: sizes that oneDNN stores in blocks."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(32, 3, padding=1, activation="relu"),
        nn.Conv2D(64, 3, strides=2, activation="relu"),
        nn.GlobalAvgPool2D(),
        nn.Dense(10),
    )
    return net


def batchnorm() -> Any:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(32, 3, padding=1),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(64, 3, strides=2),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.GlobalAvgPool2D(),
        nn.Dense(10),
    )
    return net


def dropout() -> Any:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(10, 5),
        nn.MaxPool2D(2),
        nn.Dropout(0.5),
        nn.Dense(50, activation="relu"),
        nn.Dropout(0.3),
        nn.Dense(10),
    )
    return net


class PlainBlock(mx.gluon.Block):
    """The layers of a sequential block, run by Python code that cannot be traced."""

    def __init__(self, build: Any):
        super().__init__()
        self.inner = nn.Sequential()
        for layer in build()._children.values():
            self.inner.add(layer)

    def forward(self, x: Any) -> Any:
        assert float(x.sum().asscalar()) == float(x.sum().asscalar())
        return self.inner(x)


class Untraceable(mx.gluon.HybridBlock):
    """A HybridBlock whose forward pass asks for a value, which a symbol does not have."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(3)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        assert x.shape[1] == 4
        return self.dense(x)
