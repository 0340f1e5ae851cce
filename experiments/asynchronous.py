"""Virtual time and client updates to an accuracy: FedBuff against FedAvg, which waits.

    python experiments/asynchronous.py [--devices half-normal lognormal] [--seeds 5] [--hours 1]
                                       [--at-once 2] [--table]

MNIST among 200 clients of 300 images (IID), 2NN, 5 epochs in batches of 10, rate 0.05, until a test
accuracy of 97 %. FedBuff has `concurrency` clients at work and makes a version after `buffer`
updates, weighed by (1 + staleness)^-0.5. Its server rate is not tuned. It is the one with which all
updates in flight together move the model as much as one round of FedAvg does, at most 1:
(buffer / concurrency) (1 + concurrency / buffer)^0.5. FedAvg selects as many clients a round, or
30 % more and counts the first ones (`over_select`).

Each client's time for a task is fixed: half-normal with a mean of 60 s, as in Nguyen et al. 2022,
or lognormal with sigma 1 and a median of 60 s. A finished run is a line of
runs/asynchronous/results.jsonl and does not run again; `--table` prints the table of what is there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from resumable import finished, resumable_options, run_cells

from fedmx import Experiment, simulate
from layers.logic import Training
from layers.logic.clock import Devices
from layers.logic.clock.devices import Fleet
from layers.logic.seeds import generator

RESULTS = Path("runs/asynchronous/results.jsonl")
CLIENTS, TARGET, MEAN_S = 200, 0.97, 60.0
CONCURRENCIES, BUFFERS = (10, 50, 100), (1, 5, 10)
MOST_UPDATES = 20_000  # of a run that does not get there


@dataclass(frozen=True)
class PerClient(Devices):
    """A time for each client, in which the transfers are included.

    Attributes:
        kind: half-normal or lognormal.
    """

    kind: str = "half-normal"

    def draw(self, clients: int, seed: int) -> Fleet:
        """Draw the times, float64 (N,)."""
        z = generator(seed, "devices").standard_normal(clients)
        if self.kind == "half-normal":
            return _Times(MEAN_S * math.sqrt(math.pi / 2) * np.abs(z))
        return _Times(MEAN_S * np.exp(z))


@dataclass(frozen=True)
class _Times(Fleet):
    seconds: np.ndarray

    def train_s(self, client: int, samples: int, training: Training) -> float:
        return float(self.seconds[client])

    def upload_s(self, client: int, bytes: int, round: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Cell:
    """A run.

    Attributes:
        devices: the kind of `PerClient`.
        seed: of the run.
        clients: the concurrency, or the clients that a round needs.
        arm: the buffer; 0: FedAvg; -1: FedAvg with over-selection.
    """

    devices: str
    seed: int
    clients: int
    arm: int

    @property
    def name(self) -> str:
        """The name of its arm."""
        words = {0: "fedavg", -1: "fedavg, 30 % more"}
        return words.get(self.arm, f"fedbuff, buffer {self.arm}")

    def experiment(self) -> Experiment:
        """Return its experiment."""
        updates = self.arm if self.arm > 0 else self.clients
        return Experiment(
            seed=self.seed,
            rounds=max(MOST_UPDATES // updates, 100),
            clients=CLIENTS,
            stop={"accuracy": TARGET},
            compute={
                "model": "2nn",
                "data": "mnist",
                "normalise": {"scale": 255},
                "partition": "iid",
                "evaluate": {"every": max(10 // updates, 1)},
                "train": {"epochs": 5, "batch_size": 10, "learning_rate": 0.05},
            },
            logic=self._logic(),
            clock={"devices": PerClient(self.devices)},
        )

    def _logic(self) -> dict[str, Any]:
        if self.arm <= 0:
            preset = {"name": "fedavg", "count": self.clients}
            return {"preset": preset, "over_select": 1.3 if self.arm else 1.0}
        ratio = self.clients / self.arm
        rate = min(math.sqrt(1 + ratio) / ratio, 1.0)
        preset = {"name": "fedbuff", "concurrency": self.clients, "buffer": self.arm}
        return {"preset": {**preset, "server_learning_rate": rate}}

    def run(self) -> dict[str, Any]:
        """Run it, and return its line."""
        updates = sent = 0
        began = time.monotonic()
        for one in simulate(self.experiment()):
            updates, sent = updates + len(one.participants), sent + one.tasks
        return {
            "reached": (one.accuracy or 0.0) >= TARGET,
            "virtual_s": one.clock_elapsed_s,
            "updates": updates,
            "tasks": sent,
            "accuracy": one.accuracy,
            "seconds": time.monotonic() - began,
        }


def cells(devices: list[str], seeds: int) -> Iterator[Cell]:
    """Yield all runs; those of the first seed come first."""
    for seed in range(1, seeds + 1):
        for kind in devices:
            for clients in CONCURRENCIES:
                for arm in (0, -1, *reversed(BUFFERS)):
                    yield Cell(kind, seed, clients, arm)


def table(devices: str) -> Iterator[str]:
    """Yield the lines of the table of one kind of devices: means over seeds with all arms."""
    known = finished(RESULTS, Cell)
    found = {cell: one for cell, one in known.items() if cell.devices == devices}
    arms = (0, -1, *BUFFERS)
    for clients in CONCURRENCIES:
        seeds = [
            seed
            for seed in sorted({cell.seed for cell in found})
            if all(Cell(devices, seed, clients, arm) in found for arm in arms)
        ]
        for arm in arms if seeds else ():
            runs = [found[Cell(devices, seed, clients, arm)] for seed in seeds]
            waits = [found[Cell(devices, seed, clients, 0)] for seed in seeds]
            reached = sum(one["reached"] for one in runs)
            cells = [NOTHING] * 4
            if reached == len(runs):
                pairs = zip(runs, waits, strict=True)
                less = mean(1 - one["virtual_s"] / other["virtual_s"] for one, other in pairs)
                cells = [f"{mean(one['virtual_s'] for one in runs):,.0f}", f"{100 * less:+.0f} %"]
                cells += [f"{mean(one[key] for one in runs):,.0f}" for key in ("updates", "tasks")]
            name = Cell(devices, 0, clients, arm).name
            yield f"| {clients} | {name} | {reached} of {len(runs)} | {' | '.join(cells)} |"


NOTHING = "-"
HEAD = """
{devices}, {mean:g} s

| clients at work | algorithm | reached | virtual s | less than fedavg | updates | tasks |
|--:|---|--:|--:|--:|--:|--:|"""


def main() -> None:
    """Run what is not finished until the time is up, and print the tables."""
    parser = resumable_options(__doc__ or "")
    kinds = ["half-normal", "lognormal"]
    parser.add_argument("--devices", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if not options.table:
        run_cells(RESULTS, cells(options.devices, options.seeds), options)
    for devices in options.devices:
        print(HEAD.format(devices=devices, mean=MEAN_S))
        print("\n".join(table(devices)))


if __name__ == "__main__":
    main()
