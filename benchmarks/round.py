"""A simulated round against its bare local steps.

    python benchmarks/round.py [--rounds 5] [--model lenet5] [--model 2nn]

100 clients with 600 images of 28 x 28 (random; the time does not depend on their content), 10
clients per round, 5 epochs in batches of 10, plain SGD. "Bare" is `Engine.train` on the same
clients' samples, in turns with the rounds, in this process. There is no evaluation.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from fedmx import Assembly, Experiment, simulate

CLIENTS, IMAGES, COHORT = 100, 600, 10


def images() -> dict[str, np.ndarray]:
    """Return random images and labels for all clients."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (CLIENTS * IMAGES, 1, 28, 28)).astype(np.uint8)
    y = rng.integers(0, 10, CLIENTS * IMAGES)
    return {"x_train": x, "y_train": y, "x_test": x[:100], "y_test": np.arange(100) % 10}


def measure(model: str, rounds: int) -> None:
    experiment = Experiment(
        rounds=rounds + 2,
        clients=CLIENTS,
        compute={
            "model": model,
            "data": images,
            "normalise": {"scale": 255},
            "train": {"epochs": 5, "batch_size": 10, "learning_rate": 0.04},
            "evaluate": {"every": rounds + 2},
        },
        logic={"selector": {"name": "uniform", "count": COHORT}},
    )
    assembly = Assembly(experiment)
    simulation = simulate(assembly)
    engine, training = assembly.engine, assembly.logic.training_of(1)
    weights, buffers = engine.initial(1)
    samples = [assembly.samples_of(client) for client in range(COHORT)]
    walls: list[float] = []
    bare: list[float] = []
    running = iter(simulation)
    for turn in range(rounds + 1):
        began = time.perf_counter()
        next(running)
        walls.append(time.perf_counter() - began)
        began = time.perf_counter()
        for client in range(COHORT):
            engine.load(weights, buffers)
            engine.train(samples[client], training, seed=turn)
        bare.append(time.perf_counter() - began)
    walls, bare = walls[1:], bare[1:]  # the first turn compiles
    ratios = [one / other for one, other in zip(walls, bare, strict=True)]
    steps = COHORT * 5 * IMAGES // 10
    print(
        f"{model:8} round {statistics.median(walls):7.3f} s   "
        f"bare steps {statistics.median(bare):7.3f} s ({1e6 * min(bare) / steps:.0f} us a step)   "
        f"ratio median {statistics.median(ratios):.3f}, min {min(ratios):.3f}, "
        f"max {max(ratios):.3f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", action="append")
    arguments = parser.parse_args()
    for name in arguments.model or ["2nn", "lenet5"]:
        measure(name, arguments.rounds)
