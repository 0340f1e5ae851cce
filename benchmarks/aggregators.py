"""Seconds and peak memory of each aggregator's round, and of FedFV against its inner products.

    python benchmarks/aggregators.py [--size 1000000] [--updates 20] [--repeats 3]

Updates are drawn from a normal distribution. Times are the best of the repeats, on one core, with
all updates in memory. Memory is numpy's peak allocation while updates arrive one by one,
in multiples of one update; rules that need all updates hold that many.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from layers.logic import (
    AGGREGATORS,
    Aggregator,
    Contribution,
    ServerContext,
    ServerState,
    Training,
    Update,
)

EMPTY = np.zeros(0, np.float32)


def contribution_of(k: int, delta: np.ndarray) -> Contribution:
    update = Update(1, k, 10, 5, EMPTY, EMPTY, {"loss": 1.0 / (1 + k)})
    return Contribution(k, 10, delta, EMPTY, (update,), Training(), start=np.zeros_like(delta))


def fold(aggregator: Aggregator, state: ServerState, deltas: Iterable[np.ndarray]) -> None:
    context = ServerContext(
        1, None, 3, Training(), [], {}, auxiliary=lambda *_: state.weights + np.float32(0.01)
    )
    total = aggregator.begin(state, context)
    for contribution in map(contribution_of, itertools.count(), deltas):
        total = aggregator.add(total, contribution)
        del contribution
    aggregator.finish(total, state)


def drawn(size: int, updates: int) -> Iterable[np.ndarray]:
    rng = np.random.default_rng(0)
    for _ in range(updates):
        yield rng.standard_normal(size, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    state = ServerState(0, np.zeros(given.size, np.float32), EMPTY)
    deltas = list(drawn(given.size, given.updates))

    def best_s(work) -> float:
        times = []
        for _ in range(given.repeats):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return min(times)

    def all_products() -> None:
        for i, one in enumerate(deltas):
            for other in deltas[i:]:
                np.dot(one, other)

    print(f"{given.updates} updates of {given.size:,} parameters")
    print(f"{'aggregator':20} {'seconds':>9} {'memory / update':>16}")
    seconds = {}
    for name, make in AGGREGATORS.items():
        aggregator = make()
        seconds[name] = best_s(lambda aggregator=aggregator: fold(aggregator, state, deltas))
        tracemalloc.start()
        fold(aggregator, state, drawn(given.size, given.updates))
        memory = tracemalloc.get_traced_memory()[1] / (4 * given.size)
        tracemalloc.stop()
        print(f"{name:20} {seconds[name]:9.3f} {memory:16.1f}")
    products_s = best_s(all_products)
    print(f"{'inner products':20} {products_s:9.3f}   float32, each pair once")
    print(f"fedfv takes {seconds['fedfv'] / products_s:.1f} times as long as its inner products")


if __name__ == "__main__":
    main()
