"""Joins train to the same bits without oneDNN's gradient, which leaves something in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn
from mxnet.gluon.contrib.nn import HybridConcurrent

from layers.compute.engines.mxnet import execution
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.rewriting import join_flat
from tests.compute.engines.memory import grown
from tests.compute.engines.toys import plan, samples

COLOUR = (3, 12, 12)


def concurrent(*branches: Any, axis: int = 1) -> Any:
    join = HybridConcurrent(axis=axis)
    join.add(*branches)
    return join


def joined_channels() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, padding=1, activation="relu"))
    net.add(concurrent(nn.Conv2D(16, 1), nn.Conv2D(8, 3, padding=1), nn.MaxPool2D(3, 1, 1)))
    net.add(nn.Conv2D(16, 3, activation="relu"), nn.Dense(10))
    return net


def joined_features() -> Any:
    net = nn.HybridSequential()
    net.add(concurrent(nn.Dense(7, activation="tanh"), nn.Dense(5)), nn.Dense(10))
    return net


def joins(symbol: Any) -> list[int]:
    """Return the number of dimensions of each join, for a batch of one."""
    inner = symbol.get_internals()
    _, shapes, _ = inner.infer_shape(data=(1, *COLOUR))
    known = dict(zip(inner.list_outputs(), shapes, strict=True))
    nodes = json.loads(symbol.tojson())["nodes"]
    return [len(known[f"{node['name']}_output"]) for node in nodes if node["op"] == "Concat"]


@pytest.mark.parametrize("build", [joined_channels, joined_features])
def test_a_model_with_joins_trains_to_the_same_bits(
    build: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, ends = samples(12, COLOUR, 10, 3), []
    for way in (join_flat, lambda output, example: output):
        monkeypatch.setattr(execution, "join_flat", way)
        engine = MXNetEngine(build, COLOUR, 10, seed=1)
        engine.train(data, plan(batch_size=4, epochs=3, learning_rate=0.05), 7)
        ends.append(engine.weights.copy())
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("build", [joined_channels, joined_features])
def test_a_local_step_of_a_model_with_joins_leaves_nothing_in_memory(
    build: Callable[[], Any],
) -> None:
    engine = MXNetEngine(build, COLOUR, 10)
    data, steps = samples(40, COLOUR, 10), 10
    assert grown(lambda: engine.train(data, plan(steps=steps), seed=1), 20) / steps < 100


@pytest.mark.parametrize("build", [joined_channels, joined_features])
def test_joins_have_three_dimensions(build: Callable[[], Any]) -> None:
    assert joins(join_flat(build()(mx.sym.var("data")), COLOUR)) == [3]


def test_joins_of_rows_and_models_without_joins_stay_as_they_are() -> None:
    rows = mx.sym.concat(mx.sym.var("data"), mx.sym.var("data"), dim=2)
    assert joins(join_flat(rows, COLOUR)) == [4]
    dense = nn.Dense(3)(mx.sym.var("data"))
    assert join_flat(dense, COLOUR) is dense
