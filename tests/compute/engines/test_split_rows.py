"""Which convolutions get three input channels; that they compute the same is in test_widen."""

from __future__ import annotations

import json
from typing import Any

import mxnet as mx
import pytest
from mxnet.gluon import nn

from layers.compute.engines.mxnet.rewriting import split_rows


def kernels(symbol: Any) -> list[str]:
    nodes = json.loads(symbol.tojson())["nodes"]
    return [node["attrs"]["kernel"] for node in nodes if node["op"] == "Convolution"]


def two(**first: Any) -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(**{"channels": 8, "kernel_size": 5, **first}), nn.Conv2D(8, 5))
    return net(mx.sym.var("data"))


@pytest.mark.parametrize(("size", "rows"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 3)])
def test_the_first_kernel_has_a_third_of_the_rows(size: int, rows: int) -> None:
    split = split_rows(two(kernel_size=size), (4, 1, 28, 28), 8)
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
def test_other_convolutions_stay_as_they_are(
    what: str, first: dict[str, Any], data: tuple[int, ...], channels: int
) -> None:
    net = two(**first)
    assert kernels(split_rows(net, data, channels)) == kernels(net), what
