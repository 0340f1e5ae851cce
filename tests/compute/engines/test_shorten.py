"""A shortened graph gives the same bits."""

from __future__ import annotations

import json
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn

from layers.compute.engines.mxnet import execution
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from layers.compute.engines.mxnet.rewriting import shorten
from tests.compute.engines.toys import plan, samples

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def operators(symbol: Any) -> list[str]:
    return [node["op"] for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null"]


def of(*layers: Any) -> Any:
    net = nn.HybridSequential()
    net.add(*layers)
    return net(mx.sym.var("data"))


@pytest.mark.parametrize(
    ("model", "shape"), [("2nn", GREY), ("lenet5", GREY), ("cnn3", GREY), ("vgg11s", COLOUR)]
)
def test_a_paper_model_trains_to_the_same_bits(
    model: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, ends = samples(12, shape, 10, 3), []
    for way in (shorten, lambda output: output):
        monkeypatch.setattr(execution, "shorten", way)
        engine = MXNetEngine(build_model(model), shape, 10, seed=1)
        engine.train(data, plan(batch_size=4, epochs=3, learning_rate=0.05), 7)
        ends.append(engine.weights.copy())
    np.testing.assert_array_equal(*ends)


def test_relu_comes_after_max_pooling() -> None:
    net = of(nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(2), nn.Dense(3))
    assert operators(shorten(net)) == ["Convolution", "Pooling", "Activation", "FullyConnected"]


def test_a_dense_layer_needs_no_flatten() -> None:
    assert operators(shorten(of(nn.Flatten(), nn.Dense(3)))) == ["FullyConnected"]


@pytest.mark.parametrize(
    ("what", "layers"),
    [
        ("the mean is another", lambda: (nn.Activation("relu"), nn.AvgPool2D(2))),
        ("not rectified", lambda: (nn.Activation("tanh"), nn.MaxPool2D(2))),
        ("no flattening", lambda: (nn.Flatten(), nn.Dense(3, flatten=False))),
        ("read by nothing else", lambda: (nn.Dense(3), nn.Flatten())),
    ],
)
def test_what_would_give_another_result_stays(what: str, layers: Any) -> None:
    net = of(*layers())
    assert operators(shorten(net)) == operators(net), what


def test_relu_that_others_read_stays_before_the_pooling() -> None:
    rectified = mx.sym.Activation(mx.sym.var("data"), act_type="relu")
    pooled = mx.sym.Pooling(rectified, kernel=(1, 1), pool_type="max")
    both = rectified + pooled
    assert operators(shorten(both)) == operators(both)
    assert operators(shorten(mx.sym.Group([rectified, pooled])))[0] == "Activation"
