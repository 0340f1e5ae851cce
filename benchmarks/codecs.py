"""MB of float32 per second, and peak memory, of every codec, encoding and decoding.

    python benchmarks/codecs.py [--sizes 10000 1000000 100000000] [--repeats 5] [--tensors 1]

The vector is drawn from a normal distribution. Times are the best of the repeats, on one core.
Memory is numpy's peak allocation while it encodes or decodes, with the result and without the
input, in multiples of the float32 vector. The ratio is the vector's bytes over the payload's.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from layers.logic.compression.codecs import (
    Codec,
    QuantisedCodec,
    SignCodec,
    SparseCodec,
    TernaryCodec,
)

CODECS: dict[str, Codec] = {
    "stc p=0.1": TernaryCodec(0.1),
    "stc p=0.01": TernaryCodec(0.01),
    "stc p=0.001": TernaryCodec(0.001),
    "top-k p=0.1": SparseCodec(0.1),
    "top-k p=0.01": SparseCodec(0.01),
    "sign": SignCodec(),
    "8 bit": QuantisedCodec(8),
    "16 bit": QuantisedCodec(16),
}


def best_s(work: Callable[[], object], repeats: int) -> float:
    """Return the shortest duration of the work in seconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the peak allocation during the work, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000, 100_000_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tensors", type=int, default=1, help="parts of the vector, of equal size")
    asked = parser.parse_args()
    print(f"{'':24}{'MB/s':^16}{'memory / vector':^18}{'ratio':>7}")
    print(f"{'parameters':>12} {'codec':<11}{'encode':>8}{'decode':>8}{'encode':>9}{'decode':>9}")
    for size in asked.sizes:
        rng = np.random.default_rng(1)
        vector = rng.standard_normal(size, np.float32)
        parts = np.linspace(0, size, asked.tensors + 1).astype(np.int64)
        repeats = asked.repeats if size < 10_000_000 else 1
        for name, codec in CODECS.items():
            payload = codec.encode(vector, parts, rng)

            def encode(codec: Codec = codec) -> object:
                return codec.encode(vector, parts, rng)  # noqa: B023

            def decode(codec: Codec = codec, payload: np.ndarray = payload) -> object:
                return codec.decode(payload, parts)  # noqa: B023

            speeds = [vector.nbytes / 1e6 / best_s(work, repeats) for work in (encode, decode)]
            peaks = [peak_bytes(work) / vector.nbytes for work in (encode, decode)]
            print(
                f"{size:>12} {name:<11}{speeds[0]:8.0f}{speeds[1]:8.0f}"
                f"{peaks[0]:9.2f}{peaks[1]:9.2f}{vector.nbytes / payload.nbytes:9.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
