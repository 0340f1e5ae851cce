"""A rewritten graph is the same function of the same arguments, with the same gradient."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mxnet.gluon import nn
from mxnet.gluon.contrib.nn import HybridConcurrent

from layers.compute.engines.mxnet import rewriting
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from layers.compute.engines.mxnet.rewriting import (
    LIMIT,
    channels_in_a_block,
    join_flat,
    shorten,
    split_rows,
    widen,
)
from tests.compute.engines.memory import grown
from tests.compute.engines.toys import PlainBlock, is_compiled
from tests.compute.engines.training import plan, samples

ZEN_3 = ("sse4_1", "avx", "avx2", "fma")
ZEN_5 = (*ZEN_3, "avx512f", "avx512bw", "avx512vl", "avx512dq")


@pytest.mark.parametrize(
    ("flags", "limit", "channels"),
    [
        (ZEN_5, None, 16),
        (ZEN_5, "", 16),
        (ZEN_5, "ALL", 16),
        (ZEN_5, "AVX512_CORE_VNNI", 16),
        (ZEN_5, "AVX512_MIC", 16),
        (ZEN_5, "AVX2_VNNI", 8),
        (ZEN_5, "AVX2", 8),
        (ZEN_5, "AVX", 8),
        (ZEN_5, "SSE41", 1),
        (ZEN_5, "avx2", 16),  # oneDNN 2.4 knows capital letters only
        (ZEN_5, "FAST", 16),
        (ZEN_3, None, 8),
        (ZEN_3, "AVX512_CORE", 8),
        (("sse4_1", "avx"), None, 8),
        (("sse4_1",), "ALL", 1),
        ((), None, 1),
    ],
)
def test_the_channels_of_a_block_follow_the_flags_and_the_limit(
    flags: tuple[str, ...], limit: str | None, channels: int
) -> None:
    assert channels_in_a_block(flags, limit) == channels


TELL = """
from layers.compute.engines.mxnet.rewriting import block
import layers.compute.engines.mxnet.engine
import mxnet as mx
weights = mx.nd.ones((16, 1, 3, 3))
mx.nd.Convolution(mx.nd.ones((1, 1, 8, 8)), weights, no_bias=True, kernel=(3, 3), num_filter=16)
mx.nd.waitall()
print("block", block())
"""
NAMES = {"Intel AVX-512": 16, "Intel AVX2": 8, "Intel AVX": 8, "Intel SSE4.1": 1}


@pytest.mark.parametrize("limit", [None, "SSE41", "avx2"])
def test_onednn_uses_the_same_instructions(limit: str | None) -> None:
    told = {name: value for name, value in os.environ.items() if name != LIMIT}
    told |= {"DNNL_VERBOSE": "1"} | ({LIMIT: limit} if limit else {})
    done = subprocess.check_output([sys.executable, "-c", TELL], env=told, text=True)
    says = next(line for line in done.splitlines() if ",isa:" in line).partition("isa:")[2]
    expected = next(channels for name, channels in NAMES.items() if says.startswith(name))
    assert done.splitlines()[-1] == f"block {expected}"


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
        monkeypatch.setattr(rewriting, "shorten", way)
        engine = MXNetEngine(build_model(model), shape, 10, seed=1)
        engine.train(data, plan(batch_size=4, epochs=3, learning_rate=0.05), 7)
        ends.append(engine.weights.copy())
    np.testing.assert_array_equal(*ends)


def test_relu_moves_behind_max_pooling() -> None:
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
def test_relu_stays_before_other_operators(what: str, layers: Any) -> None:
    net = of(*layers())
    assert operators(shorten(net)) == operators(net), what


def test_relu_with_other_readers_stays_before_the_pooling() -> None:
    rectified = mx.sym.Activation(mx.sym.var("data"), act_type="relu")
    pooled = mx.sym.Pooling(rectified, kernel=(1, 1), pool_type="max")
    both = rectified + pooled
    assert operators(shorten(both)) == operators(both)
    assert operators(shorten(mx.sym.Group([rectified, pooled])))[0] == "Activation"


SHAPE = (2, 12, 12)


def convolutions(symbol: Any) -> list[int]:
    nodes = json.loads(symbol.tojson())["nodes"]
    return [int(n["attrs"]["num_filter"]) for n in nodes if n["op"] == "Convolution"]


def widened(
    build: Any, shape: tuple[int, ...], block: int = 16, read: int | None = None
) -> tuple[Any, Any]:
    output = build()(mx.sym.var("data"))
    shapes, _, _ = output.infer_shape(data=(1, *shape))
    known = dict(zip(output.list_arguments(), shapes, strict=True))
    return output, widen(output, known, {}, block, read or block)


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


@pytest.fixture(params=[(1, 1), (8, 8), (16, 16), (16, 8)])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The channels of a block as on another CPU."""
    channels, read = request.param
    monkeypatch.setattr(rewriting, "block", lambda: channels)
    monkeypatch.setattr(rewriting, "read_block", lambda: read)
    return int(channels)


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
def test_the_gradient_equals_that_of_the_original_model(
    block: int, inputs: int, channels: list[int], kernel: int, pool: bool, bias: bool, seed: int
) -> None:
    build = chain(channels, pool, bias, kernel)
    shape = (inputs, 14, 14)  # enough for four convolutions of 5 x 5 with pooling
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
def test_lenets_six_channels_are_widened_to_a_block(block: int, channels: list[int]) -> None:
    narrow, wide = widened(build_model("lenet5"), (1, 28, 28), block)
    assert (convolutions(narrow), convolutions(wide)) == ([6, 16], channels)
    assert wide.list_arguments() == narrow.list_arguments()


def test_half_units_read_half_a_block_where_that_is_enough() -> None:
    for read, expected in ((16, []), (8, ["8"])):
        _, wide = widened(build_model("lenet5"), (1, 28, 28), 16, read)
        nodes = json.loads(wide.tojson())["nodes"]
        assert convolutions(wide) == [16, 16]
        assert [n["attrs"]["end"] for n in nodes if n["op"] == "slice_axis"] == expected


def test_a_cpu_with_half_units_reads_half_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    for half, block, read in ((True, 16, 8), (True, 8, 8), (True, 1, 1), (False, 16, 16)):
        monkeypatch.setattr(rewriting, "has_half_units", lambda half=half: half)
        monkeypatch.setattr(rewriting, "block", lambda block=block: block)
        assert rewriting.read_block() == read


@pytest.mark.parametrize("bias", [True, False])
def test_a_kernel_of_two_convolutions_is_not_padded(bias: bool) -> None:
    class Twice(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.kernel = nn.Conv2D(6, 3, padding=1, use_bias=bias)
                self.last = nn.Conv2D(16, 3)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return self.last(self.kernel(self.kernel(x)))

    narrow, wide = widened(Twice, (6, 12, 12))
    assert convolutions(narrow) == convolutions(wide) == [6, 6, 16]


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
def test_other_convolutions_are_not_widened(what: str, build: Any) -> None:
    narrow, wide = widened(build, SHAPE)
    assert convolutions(narrow) == convolutions(wide), what


@pytest.mark.parametrize(("block", "channels"), [(16, [16, 32]), (8, [16, 24]), (1, [10, 20])])
def test_channels_that_dropout_reads_are_cut_to_the_original_ones(
    block: int, channels: list[int]
) -> None:
    narrow, wide = widened(build_model("knapsack-cnn"), (1, 28, 28), block)
    assert convolutions(wide) == channels
    seen = []
    for graph in (narrow, wide):
        shapes, _, _ = graph.infer_shape(data=(4, 1, 28, 28))
        given = dict(zip(graph.list_arguments(), shapes, strict=True))
        inside = graph.get_internals()
        dropped = mx.sym.Group([inside[n] for n in inside.list_outputs() if "dropout" in n])
        seen.append(dropped.infer_shape(**{n: given[n] for n in dropped.list_arguments()})[1])
    assert seen[0] == seen[1]
    assert seen[0]


def test_a_convolution_with_a_residual_output_is_not_widened() -> None:
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


def kernels(symbol: Any) -> list[str]:
    nodes = json.loads(symbol.tojson())["nodes"]
    return [node["attrs"]["kernel"] for node in nodes if node["op"] == "Convolution"]


def two(**first: Any) -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(**{"channels": 8, "kernel_size": 5, **first}), nn.Conv2D(8, 5))
    return net(mx.sym.var("data"))


@pytest.mark.parametrize(("size", "rows"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 3)])
def test_the_first_kernel_has_a_third_of_the_rows(size: int, rows: int) -> None:
    split = split_rows(two(kernel_size=size), (4, 1, 28, 28), {}, {}, 8)
    assert kernels(split) == [f"({rows}, {size})", "(5, 5)"]


@pytest.mark.parametrize(
    ("what", "first", "data", "channels"),
    [
        ("another instruction set", {}, (4, 1, 28, 28), 16),
        ("colours", {}, (4, 3, 28, 28), 8),
        ("no blocks", {"channels": 6}, (4, 1, 28, 28), 8),
        ("steps", {"strides": 2}, (4, 1, 28, 28), 8),
        ("holes", {"dilation": 2}, (4, 1, 28, 28), 8),
        ("one row", {"kernel_size": (1, 3)}, (4, 1, 28, 28), 8),
    ],
)
def test_other_convolutions_are_not_split(
    what: str, first: dict[str, Any], data: tuple[int, ...], channels: int
) -> None:
    net = two(**first)
    assert kernels(split_rows(net, data, {}, {}, channels)) == kernels(net), what


SMALL_COLOUR = (3, 12, 12)


def concurrent(*branches: Any, axis: int = 1) -> Any:
    join = HybridConcurrent(axis=axis)
    join.add(*branches)
    return join


def with_joined_channels() -> Any:
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
    _, shapes, _ = inner.infer_shape(data=(1, *SMALL_COLOUR))
    known = dict(zip(inner.list_outputs(), shapes, strict=True))
    nodes = json.loads(symbol.tojson())["nodes"]
    return [len(known[f"{node['name']}_output"]) for node in nodes if node["op"] == "Concat"]


@pytest.mark.parametrize("build", [with_joined_channels, joined_features])
def test_a_model_with_joins_trains_to_the_same_bits(
    build: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, ends = samples(12, SMALL_COLOUR, 10, 3), []
    for way in (join_flat, lambda output, example: output):
        monkeypatch.setattr(rewriting, "join_flat", way)
        engine = MXNetEngine(build, SMALL_COLOUR, 10, seed=1)
        engine.train(data, plan(batch_size=4, epochs=3, learning_rate=0.05), 7)
        ends.append(engine.weights.copy())
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("build", [with_joined_channels, joined_features])
def test_a_local_step_of_a_model_with_joins_leaks_no_memory(build: Callable[[], Any]) -> None:
    engine = MXNetEngine(build, SMALL_COLOUR, 10)
    data, steps = samples(40, SMALL_COLOUR, 10), 10
    assert grown(lambda: engine.train(data, plan(steps=steps), seed=1), 20) / steps < 100


@pytest.mark.parametrize("build", [with_joined_channels, joined_features])
def test_joins_have_three_dimensions(build: Callable[[], Any]) -> None:
    assert joins(join_flat(build()(mx.sym.var("data")), SMALL_COLOUR)) == [3]


def test_joins_of_rows_and_models_without_joins_do_not_change() -> None:
    rows = mx.sym.concat(mx.sym.var("data"), mx.sym.var("data"), dim=2)
    assert joins(join_flat(rows, SMALL_COLOUR)) == [4]
    dense = nn.Dense(3)(mx.sym.var("data"))
    assert join_flat(dense, SMALL_COLOUR) is dense
