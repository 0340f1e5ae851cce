"""Count the strata that FedSSO finds among the clients of each setting of its figures 1 to 3.

Usage: python experiments/fedsso_clusters.py [SEED ...]

A seed draws the initial model and the partition; the default is seeds 1, 2 and 3. The clusters by
the whole step, and the clients in none, are stored in records/fedsso-clusters.json.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from cells import HERE, Cell, cells

from fedmx import Experiment, simulate
from layers.logic import SELECT

DATA = {
    "fedsso-mnist": "MNIST",
    "fedsso-cifar": "CIFAR-10",
    "fedsso-sentiment": "Sentiment140",
}
CLIENTS = {
    "iid": "IID",
    "shards": "two classes a client",
    "one-class": "one class a client",
    "E1": "an account a client",
}
SKETCH = 64
STORED = HERE / "records" / "fedsso-clusters.json"


def settings() -> dict[str, Cell]:
    """Return a cell of FedSSO for each setting, by its name in the figures."""
    patterns = [f"{group}/fedsso-*E1-s1" for group in DATA]
    return {f"{DATA[one.group]}, {CLIENTS[one.labels[1]]}": one for one in cells(patterns)}


def strata(setting: Cell, seed: int, sketch: int) -> np.ndarray:
    """Return the cluster of each client, int64 (clients,); -1: none."""
    overrides = [*setting.overrides, f"seed={seed}", f"logic.preset.sketch={sketch}", "rounds=1"]
    simulation = simulate(Experiment.read(HERE / setting.file, overrides))
    with simulation:
        list(simulation)
    labels: np.ndarray = simulation.state.memory[SELECT]["labels"]
    return labels


def main(seeds: list[int]) -> None:
    """Print a line per setting and seed, and store the clusters."""
    stored: dict[str, dict[str, list[int]]] = {}
    print(f"{'':38}{'by the whole step':>24}{f'by {SKETCH} values of it':>24}")
    columns = f"{'clients':>9}{'seed':>5}" + 2 * f"{'clusters':>12}{'in none':>12}"
    print(f"{'setting':<34}{columns}".rstrip())
    for name, setting in settings().items():
        for seed in seeds:
            found = [strata(setting, seed, sketch) for sketch in (0, SKETCH)]
            clusters = stored.setdefault(name, {"clusters": [], "in none": []})
            clusters["clusters"].append(int(found[0].max()) + 1)
            clusters["in none"].append(int((found[0] < 0).sum()))
            counts = "".join(f"{one.max() + 1:>12}{(one < 0).sum():>12}" for one in found)
            print(f"{name:<34}{len(found[0]):>9}{seed:>5}{counts}", flush=True)
    STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or [1, 2, 3])
