"""What the sum of some clients' updates still shows of their samples: an attack on the 2NN's steps.

    python benchmarks/sum_attack.py [--clients 1 2 5 20] [--samples 1 10] [--repeats 10]

Each client takes one step of SGD on its samples of MNIST from the initial model. The attacker
has the sum of the updates alone. In the first layer a row of the weights' gradient, divided by
that of the bias, is a weighted mean of the samples at which its unit is active (Phong et al.
2018); where one sample is, it is that sample. Each line has the share of all samples that are
recognisable in some row: with a correlation above 0.9; and the mean over samples of the best
correlation. For comparison it has the correlation with the mean of all samples of the sum.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from fedmx import Assembly, Experiment
from layers.compute.data.dataset import Samples
from layers.compute.engines.engine import Engine

RECOGNISED = 0.9


def main(clients: Sequence[int], samples: Sequence[int], repeats: int) -> None:
    experiment = Experiment(
        rounds=1,
        clients=100,
        compute={"model": "2nn", "data": "mnist", "normalise": {"scale": 255}, "engine": "numpy"},
        logic={"preset": "fedavg"},
    )
    assembly = Assembly(experiment)
    engine, rng = assembly.engine, np.random.default_rng(1)
    engine.load(*engine.initial(1))
    data = assembly.data.test_samples
    for each in samples:
        for number in clients:
            found = [
                best_correlations(engine, chosen(data, number * each, rng)) for _ in range(repeats)
            ]
            best, of_mean = (np.concatenate([one[at] for one in found]) for at in (0, 1))
            print(
                f"{number} clients with {each} samples each: {np.mean(best > RECOGNISED):.0%} are "
                f"recognisable; mean of the best correlations {best.mean():.2f}, with the mean of "
                f"all samples {of_mean.mean():.2f}"
            )


def chosen(data: Samples, number: int, rng: np.random.Generator) -> Samples:
    rows = np.sort(rng.choice(len(data), number, replace=False))
    return Samples(data.x[rows], data.y[rows])


def best_correlations(engine: Engine, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """Return for each sample its correlation with the row that shows it best, and with the mean.

    A sum of the clients' updates is one step on all of their samples, but for a factor.
    """
    gradient = engine.gradient(samples)
    weights, bias = (gradient[one.start : one.stop] for one in engine.layout[:2])
    rows = weights.reshape(bias.size, -1)[np.abs(bias) > 1e-12]
    images = samples.x.reshape(len(samples), -1)
    rows = rows[rows.std(axis=1) > 0]
    best = np.abs(correlations(images, rows)).max(axis=1)
    return best, np.abs(correlations(images, images.mean(axis=0)[None]))[:, 0]


def correlations(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the correlation of each row with each row of the other."""
    scaled = [
        (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
        for rows in (one.astype(np.float64), other.astype(np.float64))
    ]
    return np.asarray(scaled[0] @ scaled[1].T / one.shape[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 2, 5, 20])
    parser.add_argument("--samples", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    main(given.clients, given.samples, given.repeats)
