"""The cost of the journal, as a share of a simulated round of LeNet-5.

    python benchmarks/journal.py [--rounds 3] [--clients 10]

Times all calls that keep the journal: `Journal.append`, `Journal.conclude`, and `Journal.record`
with the line that goes into journal.jsonl. The hashes of the updates are part of `append`. Images
are random, 600 for each client. The exit code is 1 if the share is above 2 %.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from fedmx import Experiment, RunFolder, recorded, simulate
from fedmx.journal.journal import Journal

BAR = 0.02  # the largest share


def images(clients: int) -> dict[str, np.ndarray]:
    """Return random images and labels, 600 for each client."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (clients * 600, 1, 28, 28)).astype(np.uint8)
    y = rng.integers(0, 10, clients * 600)
    return {"x_train": x, "y_train": y, "x_test": x[:100], "y_test": y[:100]}


def timed(owner: Any, name: str, spent: list[float]) -> None:
    """Add the seconds of each call of a method to `spent`."""
    call: Callable[..., Any] = getattr(owner, name)

    def measured(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*given, **named)
        finally:
            spent.append(time.perf_counter() - began)

    setattr(owner, name, measured)


def measure(rounds: int, clients: int) -> float:
    """Return the share of the journal in the rounds, and print it."""
    experiment = Experiment(
        rounds=rounds,
        clients=clients,
        compute={
            "model": "lenet5",
            "data": lambda: images(clients),
            "normalise": {"scale": 255},
            "train": {"epochs": 5, "batch_size": 10},
            "evaluate": {"every": rounds},
        },
        logic={"selector": {"name": "uniform", "fraction": 1.0}},
    )
    spent: list[float] = []
    for owner, name in (
        (Journal, "append"),
        (Journal, "conclude"),
        (Journal, "record"),
        (RunFolder, "append_journal"),
    ):
        timed(owner, name, spent)
    with tempfile.TemporaryDirectory() as place, simulate(experiment) as simulation:
        folder = RunFolder.create(Path(place), "run", "{}", {})
        began = time.perf_counter()
        for _ in recorded(simulation, folder):
            pass
        took_s = time.perf_counter() - began
    share = sum(spent) / took_s
    print(
        f"{clients} clients: {took_s / rounds:.2f} s a round, the journal "
        f"{1e3 * sum(spent) / rounds:.2f} ms: {100 * share:.3f} % (at most {100 * BAR:.0f} %)"
    )
    return share


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=10)
    arguments = parser.parse_args()
    raise SystemExit(measure(arguments.rounds, arguments.clients) > BAR)
