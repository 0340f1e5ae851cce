"""Microseconds per local step, for Gluon's own Trainer and for fedmx's engine, side by side.

    python benchmarks/local_step.py [--rounds 5] [--steps 900] [--models 2nn lenet5]

Each way runs in a separate process, in turns (A B C A B C ...), so that other work on the machine
affects all equally. Each turn times stretches of 60 steps; the figures are the median and the
minimum of all stretches. Gluon's loop is the usual one: a hybridized net, `autograd.record`,
loss, backward, `Trainer.step`. It runs in MXNet's default environment, with one OpenMP
thread, and in the environment that fedmx sets. The ratio is that of the fastest of these to fedmx.
Both take batches of 10 from 600 images of 28x28: fedmx gathers each from the shuffled samples and
keeps the loss; Gluon's loop slices images that are already in order, and ignores the loss.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parent.parent
BATCH, IMAGES = 10, 600
STRETCH = IMAGES // BATCH
CASES = ("trainer, default", "trainer, 1 thread", "trainer, as fedmx", "fedmx")


def environment(case: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MXNET_")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    if case == "trainer, default":
        env.pop("OMP_NUM_THREADS", None)
    else:
        env["OMP_NUM_THREADS"] = "1"
    return env


def stretches_us(train: Callable[[int], None], steps: int) -> list[float]:
    """Return microseconds per step of each stretch, after two that do not count."""
    train(2 * STRETCH)
    seen = []
    for _ in range(steps // STRETCH):
        began = time.perf_counter()
        train(STRETCH)
        seen.append((time.perf_counter() - began) / STRETCH * 1e6)
    return seen


def fedmx_us(model: str, steps: int) -> list[float]:
    import numpy as np

    from layers.compute.engines.mxnet.engine import MXNetEngine
    from layers.compute.engines.mxnet.models import build_model

    rng = np.random.default_rng(1)
    samples = SimpleNamespace(
        x=rng.random((IMAGES, 1, 28, 28), dtype="f"), y=rng.integers(0, 10, IMAGES)
    )
    engine = MXNetEngine(build_model(model), (1, 28, 28), 10)

    def train(n: int) -> None:
        plan = {"epochs": 1, "batch_size": BATCH, "learning_rate": 0.01, "momentum": 0.0}
        engine.train(samples, SimpleNamespace(**plan, steps=n, weight_decay=0.0), seed=1)

    return stretches_us(train, steps)


def trainer_us(model: str, steps: int, as_fedmx: bool) -> list[float]:
    if not as_fedmx:
        sys.modules["layers.compute.engines.mxnet.runtime"] = SimpleNamespace(prepare=lambda: None)
    import layers.compute  # noqa: F401, I001  (before mxnet: it sets the environment)
    import mxnet as mx
    from mxnet import autograd, gluon

    from layers.compute.engines.mxnet.models import build_model

    rng = mx.nd.random
    x, y = rng.uniform(shape=(IMAGES, 1, 28, 28)), rng.randint(0, 10, shape=IMAGES)
    net = build_model(model)()
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})

    def train(n: int) -> None:
        for i in range(n):
            start = i * BATCH % IMAGES
            batch, labels = x[start : start + BATCH], y[start : start + BATCH]
            with autograd.record():
                loss = loss_of(net(batch), labels)
            loss.backward()
            trainer.step(BATCH)
        mx.nd.waitall()

    return stretches_us(train, steps)


def measure(case: str, model: str, steps: int) -> list[float]:
    command = [sys.executable, __file__, "--case", case, "--models", model, "--steps", str(steps)]
    done = subprocess.run(
        command, env=environment(case), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"local_step: {case}, {model} failed:\n{done.stderr}")
    return [float(us) for us in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--models", nargs="+", default=["2nn", "lenet5"])
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case == "fedmx":
        print(*fedmx_us(asked.models[0], asked.steps))
        return
    if asked.case:
        print(*trainer_us(asked.models[0], asked.steps, asked.case == "trainer, as fedmx"))
        return
    print(f"microseconds a local step, batch {BATCH}, {asked.rounds} turns of {asked.steps} steps")
    for model in asked.models:
        seen: dict[str, list[float]] = {case: [] for case in CASES}
        for _ in range(asked.rounds):
            for case in CASES:
                seen[case].extend(measure(case, model, asked.steps))
        print(f"\n{model:<20}{'median':>9}{'least':>9}")
        for case, us in seen.items():
            print(f"  {case:<18}{statistics.median(us):9.0f}{min(us):9.0f}")
        best = {
            name: min(of(seen[case]) for case in CASES[:-1]) / of(seen["fedmx"])
            for name, of in (("median", statistics.median), ("least", min))
        }
        print(f"  {'trainer / fedmx':<18}{best['median']:9.2f}{best['least']:9.2f}")


if __name__ == "__main__":
    main()
