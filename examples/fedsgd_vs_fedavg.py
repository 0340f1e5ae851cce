"""FedSGD against FedAvg: one client a round, or the mean of eight.

After equal rounds FedAvg has eight times the updates, and after equal updates FedSGD has eight
times the rounds. The thesis counts rounds; updates are what clients compute and send.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedmx import Experiment, Server, simulate

FILE = Path(__file__).with_name("quickstart.yaml")
COHORT = 8


def main(updates: int = 160) -> None:
    fedavg = ["logic.preset=fedavg", f"logic.selector={{name: uniform, count: {COHORT}}}"]
    fedsgd = ["logic.preset=fedsgd", "logic.selector=null"]
    rounds = max(updates // COHORT, 1)
    print(f"after {rounds} rounds of FedAvg: FedSGD after as many rounds, and as many updates")
    finished("FedAvg", rounds, fedavg)
    finished("FedSGD, rounds", rounds, fedsgd)
    finished("FedSGD, updates", updates, fedsgd)

    # A client may return the sum of its gradients instead of its model; the server then takes the
    # step. The models differ only by rounding errors, which grow with the rounds.
    rounds = min(updates, 2)
    print(f"after {rounds} updates:")
    model = finished("FedSGD, model", rounds, fedsgd)
    gradient = finished("FedSGD, gradient", rounds, [*fedsgd, "logic.preset.reply=gradient"])
    apart = np.abs(model.weights - gradient.weights).max()
    print(f"  largest difference between these two models' weights: {apart:.0e}")


def finished(name: str, rounds: int, overrides: list[str]) -> Server:
    every = max(rounds // 20, 1)
    overrides = [f"rounds={rounds}", f"compute.evaluate.every={every}", *overrides]
    simulation = simulate(Experiment.read(FILE, overrides))
    *_, last = simulation
    print(f"  {name:17} {rounds:3} rounds  accuracy {last.accuracy:.3f}")
    return simulation


if __name__ == "__main__":
    main()
