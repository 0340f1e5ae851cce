"""Every model of the papers, trained for a few steps, on real samples if they are available."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from sklearn.datasets import load_sample_images

from layers.compute.data.dataset import Normalise, Raw, Samples, materialise
from layers.compute.data.datasets import DATASETS, Files
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from layers.compute.engines.mxnet.runtime import one_thread
from layers.logic import Training

GREY, COLOUR, TOKENS, NUMBERS = (1, 28, 28), (3, 32, 32), (25,), (60,)
# name, settings, shape of an input; "own" are blocks of this file.
MODELS: dict[str, tuple[str, Mapping[str, Any], tuple[int, ...]]] = {
    "logistic": ("logistic", {}, NUMBERS),
    "2nn": ("2nn", {}, GREY),
    "2nn-mcmahan": ("2nn-mcmahan", {}, GREY),
    "lenet5": ("lenet5", {}, GREY),
    "lenet5-colour": ("lenet5", {"padding": 0}, COLOUR),
    "cnn3": ("cnn3", {}, GREY),
    "knapsack-cnn": ("knapsack-cnn", {}, GREY),
    "vgg11s": ("vgg11s", {}, COLOUR),
    "resnet18-cifar": ("resnet18-cifar", {}, COLOUR),
    "lstm": ("lstm", {}, TOKENS),
    "own-recurrent": ("own", {}, TOKENS),
    "own-fixed-scale": ("own", {}, COLOUR),
    "own-parts": ("own", {}, NUMBERS),
    "own-layer-norms": ("own", {}, NUMBERS),
    "mobilenet": ("gluon:mobilenetv2_0.25", {"classes": 10}, COLOUR),
    "gluoncv-resnet20": ("gluoncv:cifar_resnet20_v1", {"classes": 10}, COLOUR),
}


class Recurrent(mx.gluon.HybridBlock):
    """Recurrent layers of each kind on trained word vectors; two run in both directions."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.vectors = mx.gluon.nn.Embedding(10_000, 12)
            self.gru = mx.gluon.rnn.GRU(7, num_layers=2, layout="NTC", bidirectional=True)
            self.rnn = mx.gluon.rnn.RNN(6, layout="NTC", bidirectional=True)
            self.tanh = mx.gluon.rnn.RNN(4, layout="NTC", activation="tanh")
            self.lstm = mx.gluon.rnn.LSTM(5, layout="NTC")
            self.output = mx.gluon.nn.Dense(2)

    def hybrid_forward(self, F: Any, tokens: Any) -> Any:
        return self.output(self.lstm(self.tanh(self.rnn(self.gru(self.vectors(tokens))))))


class Parts(mx.gluon.HybridBlock):
    """Parts of the inputs in another shape, turned and joined again."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.output = mx.gluon.nn.Dense(10)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        rows = F.reshape(x, shape=(0, 3, 20))
        first = F.reshape(F.slice_axis(rows, axis=1, begin=0, end=1), shape=(0, -1))
        others = F.swapaxes(F.slice_axis(rows, axis=1, begin=1, end=None), dim1=1, dim2=2)
        joined = F.identity(F.concat(F.flatten(others), first, dim=1))
        factors = F.broadcast_add(joined, F.tanh(joined))
        return self.output(F.broadcast_mul(F.clip(joined, -1.5, 1), factors))


def fixed_scale() -> Any:
    """A convolution with a BatchNorm whose scale is fixed at 1."""
    net = mx.gluon.nn.HybridSequential()
    net.add(
        mx.gluon.nn.Conv2D(4, (3, 5), strides=2, padding=(1, 2), groups=1, use_bias=False),
        mx.gluon.nn.BatchNorm(scale=False, epsilon=1e-3, momentum=0.8),
        mx.gluon.nn.MaxPool2D(3, 2, 1),
        mx.gluon.nn.Dense(10),
    )
    return net


def layer_norms() -> Any:
    """Layer normalisation along each axis, one of them without a trained scale and shift."""
    net = mx.gluon.nn.HybridSequential()
    net.add(
        mx.gluon.nn.HybridLambda(lambda F, x: F.reshape(x, shape=(0, 5, 3, 4))),
        mx.gluon.nn.LayerNorm(),
        mx.gluon.nn.LayerNorm(axis=-2, epsilon=1e-3),
        mx.gluon.nn.LayerNorm(axis=1, center=False, scale=False),
        mx.gluon.nn.Dense(10),
    )
    return net


# Factors of the scales of BatchNorm and LayerNorm.
GAMMAS = {"own-fixed-scale": 3, "own-layer-norms": 1.2, "mobilenet": 1.2}
OWN = {
    "own-recurrent": Recurrent,
    "own-fixed-scale": fixed_scale,
    "own-parts": Parts,
    "own-layer-norms": layer_norms,
}


def photographs() -> Raw:
    """Pieces of the two photographs that come with scikit-learn; their labels mean nothing."""
    pictures = np.stack(load_sample_images().images)[:, : 13 * 32]
    pieces = pictures.reshape(2, 13, 32, 20, 32, 3).transpose(0, 1, 3, 5, 2, 4)[:, ::3, ::2]
    return Raw(pieces.reshape(-1, *COLOUR), np.arange(100) % 10)


@cache
def samples(shape: tuple[int, ...], root: str) -> Samples:
    """Samples of this shape; digits and texts are real ones of `root`, or others without it."""
    rng, rows = np.random.default_rng(1), np.arange(64)
    if shape == NUMBERS:
        return Samples(rng.standard_normal((64, *shape), np.float32), rng.integers(0, 10, 64))
    if shape == COLOUR:
        return materialise(photographs(), rows, Normalise(255, 0.5))
    if not root and shape == TOKENS:
        return Samples(rng.integers(0, 10_000, (64, *shape)), rng.integers(0, 2, 64))
    if not root:
        return materialise(DATASETS["digits"]().load(Files()).test, rows, Normalise(16))
    raw = DATASETS["mnist" if shape == GREY else "sentiment140"]().load(Files(Path(root))).test
    return materialise(raw, rows, None if shape == TOKENS else Normalise(255, 0.4, 0.25))


@dataclass(frozen=True)
class Trained:
    """A trained model, and some samples with its outputs."""

    engine: MXNetEngine
    values: dict[str, np.ndarray]
    x: np.ndarray
    outputs: np.ndarray


@cache
def trained(key: str, root: str = "") -> Trained:
    """The model of this key in `MODELS`, after three steps."""
    name, settings, shape = MODELS[key]
    build = OWN[key] if name == "own" else build_model(name, **settings)
    engine = MXNetEngine(build, shape, 2 if shape == TOKENS else 10, seed=3)
    data = samples(shape, root)
    engine.train(data, Training(steps=3, batch_size=16, learning_rate=0.05), seed=5)
    weights, buffers = engine.weights.copy(), engine.buffers.copy()
    for vector, layout in ((weights, engine.layout), (buffers, engine.buffers_layout)):
        # So that a scale that is ignored shows, and deep models tell samples apart.
        for t in layout:
            if t.name.endswith("gamma"):
                vector[t.start : t.stop] *= GAMMAS.get(key, 1)
    engine.load(weights, buffers)
    values = dict(engine.definition.constants)
    for vector, layout in (
        (engine.weights, engine.layout),
        (engine.buffers, engine.buffers_layout),
    ):
        values |= {t.name: vector[t.start : t.stop].reshape(t.shape).copy() for t in layout}
    with one_thread():
        scorer = engine._scorers_of(())[len(data.x)]
        scorer.refresh()
        scorer.x[...] = data.x
        outputs = scorer.run()[0]
    x = data.x.astype(np.int64) if shape == TOKENS else data.x
    return Trained(engine, values, x, outputs)
