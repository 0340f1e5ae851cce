"""How many strata FedSSO finds among 100 clients of MNIST: IID, two shards each, one class each.

Usage: python experiments/fedsso_clusters.py [SEED ...]

A seed draws the initial model and the partition; without any, seeds 1, 2 and 3.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fedmx import Experiment, simulate
from layers.logic import SELECT

SETTING = Path(__file__).parent / "mnist-fedsso.yaml"
PARTITIONS = {
    "IID": "iid",
    "two classes": "{name: shards, per_client: 2}",
    "one class": "one-class",
}


SKETCH = 64


def strata(partition: str, seed: int, sketch: int) -> np.ndarray:
    """Return the cluster of each client, int64 (100,); -1: none."""
    overrides = (f"compute.partition={partition}", f"seed={seed}", f"logic.preset.sketch={sketch}")
    simulation = simulate(Experiment.read(SETTING, [*overrides, "rounds=1"]))
    with simulation:
        list(simulation)
    labels: np.ndarray = simulation.state.memory[SELECT]["labels"]
    return labels


def main(seeds: list[int]) -> None:
    """Print a line a partition and seed."""
    print(f"{'':19}{'by the whole step':>25}{f'by {SKETCH} values of it':>25}")
    print(f"{'partition':<14}{'seed':>5}" + 2 * f"{'clusters':>12}{'in none':>13}")
    for name, partition in PARTITIONS.items():
        for seed in seeds:
            print(f"{name:<14}{seed:>5}", end="")
            for sketch in (0, SKETCH):
                labels = strata(partition, seed, sketch)
                print(f"{labels.max() + 1:>12}{(labels < 0).sum():>13}", end="", flush=True)
            print()


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or [1, 2, 3])
