"""A widened graph is the same function of the same arguments, with the same gradient."""

from __future__ import annotations

import json
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mxnet.gluon import nn

from layers.compute.engines.mxnet import rewriting
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from layers.compute.engines.mxnet.rewriting import widen
from tests.compute.engines.toys import PlainBlock, is_compiled, plan, samples

SHAPE = (2, 12, 12)


def convolutions(symbol: Any) -> list[int]:
    nodes = json.loads(symbol.tojson())["nodes"]
    return [int(n["attrs"]["num_filter"]) for n in nodes if n["op"] == "Convolution"]


def widened(build: Any, shape: tuple[int, ...], block: int = 16) -> tuple[Any, Any]:
    output = build()(mx.sym.var("data"))
    shapes, _, _ = output.infer_shape(data=(1, *shape))
    return output, widen(output, dict(zip(output.list_arguments(), shapes, strict=True)), block)


def sequence(*layers: Any) -> Any:
    def build() -> Any:
        net = nn.HybridSequential()
        for make in layers:
            net.add(make())
        return net

    return build


def chain(channels: list[int], pool: bool, bias: bool, kernel: int = 3) -> Any:
    def build() -> Any:
        net = nn.HybridSequential()
        for count in channels:
            net.add(nn.Conv2D(count, kernel, padding=1, activation="tanh", use_bias=bias))
            if pool:
                net.add(nn.MaxPool2D(2, strides=1))
        net.add(nn.Flatten(), nn.Dense(3))
        return net

    return build


@pytest.fixture(params=[1, 8, 16])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks as on another CPU: what is computed does not depend on this one's instructions."""
    channels: int = request.param
    monkeypatch.setattr(rewriting, "block", lambda: channels)
    return channels


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    inputs=st.sampled_from([1, 2]),
    channels=st.lists(st.sampled_from([3, 6, 8, 10, 16, 20, 32]), min_size=1, max_size=4),
    kernel=st.sampled_from([2, 3, 5]),
    pool=st.booleans(),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_gradient_is_that_of_the_model_as_written(
    block: int, inputs: int, channels: list[int], kernel: int, pool: bool, bias: bool, seed: int
) -> None:
    build = chain(channels, pool, bias, kernel)
    shape = (inputs, *SHAPE[1:])
    data = samples(7, shape, 3, seed)
    compiled = MXNetEngine(build, shape, 3, seed=seed)
    plain = MXNetEngine(lambda: PlainBlock(build), shape, 3, seed=seed)
    assert is_compiled(compiled)
    assert [t[1:] for t in compiled.layout] == [t[1:] for t in plain.layout]
    expected = plain.gradient(data)
    np.testing.assert_allclose(compiled.gradient(data), expected, rtol=1e-3, atol=1e-5)
    for engine in (compiled, plain):
        engine.train(data, plan(batch_size=3, epochs=3, learning_rate=0.05, momentum=0.5), seed)
    np.testing.assert_allclose(compiled.weights, plain.weights, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(("block", "channels"), [(16, [16, 16]), (8, [8, 16]), (1, [6, 16])])
def test_lenets_six_channels_become_a_block(block: int, channels: list[int]) -> None:
    narrow, wide = widened(build_model("lenet5"), (1, 28, 28), block)
    assert (convolutions(narrow), convolutions(wide)) == ([6, 16], channels)
    assert wide.list_arguments() == narrow.list_arguments()


def test_a_chain_of_narrow_convolutions_widens_together() -> None:
    narrow, wide = widened(chain([10, 6, 16], False, False), SHAPE)
    assert (convolutions(narrow), convolutions(wide)) == ([10, 6, 16], [16, 16, 16])


@pytest.mark.parametrize(
    ("what", "build"),
    [
        ("blocks already", chain([16, 32], True, True)),
        ("read by something else", chain([6], True, True)),
        ("the next has no blocks", chain([6, 10], True, True)),
        ("a fast kernel for 24", chain([24], True, True)),
        ("too much to add", chain([3, 16], True, True)),
        ("dropout draws by channel", sequence(
            lambda: nn.Conv2D(6, 3), lambda: nn.Dropout(0.5), lambda: nn.Conv2D(16, 3)
        )),
        ("groups", sequence(lambda: nn.Conv2D(6, 3), lambda: nn.Conv2D(6, 3, groups=2))),
        ("statistics", sequence(lambda: nn.Conv2D(6, 3), nn.BatchNorm, lambda: nn.Conv2D(16, 3))),
    ],
)  # fmt: skip
def test_what_cannot_be_widened_stays_as_it_is(what: str, build: Any) -> None:
    narrow, wide = widened(build, SHAPE)
    assert convolutions(narrow) == convolutions(wide), what


@pytest.mark.parametrize(("block", "channels"), [(16, [16, 32]), (8, [16, 24]), (1, [10, 20])])
def test_what_dropout_reads_is_cut_to_the_models_own_channels(
    block: int, channels: list[int]
) -> None:
    narrow, wide = widened(build_model("knapsack-cnn"), (1, 28, 28), block)
    assert convolutions(wide) == channels
    data = (4, 1, 28, 28)
    shapes, _, _ = narrow.infer_shape(data=data)
    given = dict(zip(narrow.list_arguments(), shapes, strict=True))
    seen = []
    for graph in (narrow, wide):
        inside = graph.get_internals()
        dropped = mx.sym.Group([inside[n] for n in inside.list_outputs() if "dropout" in n])
        seen.append(dropped.infer_shape(**{n: given[n] for n in dropped.list_arguments()})[1])
    assert seen[0] == seen[1]
    assert seen[0]


def test_a_convolution_whose_output_is_also_added_stays_as_it_is() -> None:
    class Residual(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.first, self.second = nn.Conv2D(6, 3), nn.Conv2D(6, 3, padding=1)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            h = self.first(x)
            return h + self.second(h)

    _, wide = widened(Residual, SHAPE)
    assert convolutions(wide) == [6, 6]
