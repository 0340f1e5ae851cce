"""The blocks of channels are those that oneDNN works on, under its own limit, too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from layers.compute.engines.mxnet.rewriting import LIMIT, block, channels_in_a_block

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
def test_a_block_is_of_the_best_instructions_that_are_left(
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


@pytest.mark.parametrize("limit", [None, "AVX2", "SSE41", "avx2"])
def test_onednn_sees_the_same_instructions(limit: str | None) -> None:
    told = {name: value for name, value in os.environ.items() if name != LIMIT}
    told |= {"DNNL_VERBOSE": "1"} | ({LIMIT: limit} if limit else {})
    done = subprocess.run(
        [sys.executable, "-c", TELL], env=told, capture_output=True, text=True, check=True
    )
    says = next(line for line in done.stdout.splitlines() if ",isa:" in line).partition("isa:")[2]
    expected = next(channels for name, channels in NAMES.items() if says.startswith(name))
    assert done.stdout.splitlines()[-1] == f"block {expected}"


def test_this_process_has_one_answer() -> None:
    assert block() is block()
    assert block() in (1, 8, 16)
