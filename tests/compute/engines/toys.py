"""Small models, samples and plans for the tests of the engine."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon import nn

from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.engine import MXNetEngine

ROOT = Path(__file__).resolve().parents[3]


def path(**environment: str) -> dict[str, str]:
    """The environment of a new process that can import the project and these toys.

    MXNet's own variables, which fedmx has set in this process, are not handed on.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("MXNET_")}
    return {**env, "PYTHONPATH": str(ROOT), **environment}


def is_compiled(engine: MXNetEngine) -> bool:
    """Return whether the model runs as a bound graph, and not through autograd."""
    return engine._output is not None


def plan(**changed: Any) -> SimpleNamespace:
    usual = {"epochs": 1, "steps": None, "batch_size": 10, "learning_rate": 0.1, "momentum": 0.0}
    return SimpleNamespace(**{**usual, "weight_decay": 0.0, **changed})


def samples(n: int, shape: tuple[int, ...], classes: int, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    return Samples(rng.random((n, *shape), dtype="f"), rng.integers(0, classes, n))


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
