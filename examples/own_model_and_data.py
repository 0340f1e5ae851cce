"""Your own model and data: any Gluon block, any arrays, and your own loop over rounds."""

from __future__ import annotations

from fedmx import Experiment, simulate  # before mxnet, which then loads on every Python and numpy

# isort: split
import numpy as np
from mxnet.gluon import nn


class Net(nn.HybridSequential):
    """A small network with batch normalisation."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.add(nn.Dense(32), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(classes))


def blobs(samples: int = 1200, classes: int = 3) -> dict[str, np.ndarray]:
    """Points around `classes` centres in 10 dimensions."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1.5, (classes, 10))
    y = rng.integers(classes, size=samples)
    x = (centres[y] + rng.normal(0, 1, (samples, 10))).astype(np.float32)
    cut = samples * 4 // 5
    return {"x_train": x[:cut], "y_train": y[:cut], "x_test": x[cut:], "y_test": y[cut:]}


def main() -> None:
    experiment = Experiment(
        rounds=30,
        clients=8,
        compute={
            "model": Net,
            "data": blobs,
            "partition": {"name": "dirichlet", "alpha": 1.0},
            "train": {"epochs": 2, "batch_size": 16, "learning_rate": 0.02, "momentum": 0.9},
        },
        logic={"selector": {"name": "uniform", "fraction": 0.5}},
    )
    for round in simulate(experiment):
        print(f"round {round.round}: accuracy {round.accuracy:.3f}, clients {round.participants}")
        if round.accuracy is not None and round.accuracy > 0.93:
            break  # your own loop can stop, log, plot or save


if __name__ == "__main__":
    main()
