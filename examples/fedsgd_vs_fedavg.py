"""FedSGD against FedAvg: one client after the other, or ten at a time and their mean.

FedSGD's clients may return their model or the sum of their gradients; the models agree.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedmx import Experiment, simulate

FILE = Path(__file__).with_name("quickstart.yaml")


def main(rounds: int = 20) -> None:
    common = [f"rounds={rounds}"]
    settings = {
        "FedAvg": [],
        "FedSGD, model": ["logic.preset=fedsgd", "logic.select=null"],
        "FedSGD, gradient": [
            "logic.preset={name: fedsgd, reply: gradient}",
            "logic.select=null",
        ],
    }
    weights = {}
    for name, overrides in settings.items():
        simulation = simulate(Experiment.read(FILE, [*common, *overrides]))
        *_, last = simulation
        weights[name] = simulation.weights
        print(f"{name:18} accuracy {last.accuracy:.3f} after {last.round} rounds")
    apart = np.abs(weights["FedSGD, model"] - weights["FedSGD, gradient"]).max()
    print(f"largest difference between the two FedSGD models: {apart:.1e}")


if __name__ == "__main__":
    main()
