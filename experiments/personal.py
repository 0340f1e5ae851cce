"""Personal models against the global one, and against plain fine-tuning.

    python experiments/personal.py [--model cnn] [--rounds 100] [--seeds 3] [--hours 1]
                                   [--at-once 2] [--table]

Fashion-MNIST among 20 clients, with a Dirichlet distribution of 0.1 or with two labels a client.
All clients take part in each round, with one epoch in batches of 10 and rate 0.005. These are the
settings of PFLlib's benchmark, but for its 2,000 rounds; `--model cnn` is its network. The accuracy
is the mean over the clients, each with the model that it uses, on test samples of its own labels.

A finished run is a line of runs/personal/results.jsonl and does not run again; `--table` prints
what is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from mxnet.gluon import Block, nn
from resumable import finished, resumable_options, run_cells

from fedmx import Experiment, simulate

RESULTS = Path("runs/personal/results.jsonl")
PARTITIONS: Mapping[str, dict[str, Any]] = {
    "Dirichlet 0.1": {"name": "dirichlet", "alpha": 0.1, "min_samples": 40},
    "two labels": {"name": "label-quantity", "per_client": 2},
}
METHODS: Mapping[str, dict[str, Any]] = {
    "fedavg": {},
    "fine-tuning": {},
    "fedper": {},
    "lg-fedavg": {},
    "fedrep": {"head_epochs": 1},
    "fedbabu": {"tune_epochs": 5},
    "ditto": {"lam": 0.1},
    "apfl": {"alpha": 0.5},
    "pfedme": {"lam": 15.0, "inner_rate": 0.005},
    "per-fedavg": {"alpha": 0.005},
}
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "Dirichlet 0.1": {
        "fedavg": 85.85,
        "per-fedavg": 95.10,
        "pfedme": 97.25,
        "apfl": 97.25,
        "ditto": 97.47,
    },
    "two labels": {
        "fedavg": 80.41,
        "per-fedavg": 99.18,
        "pfedme": 99.35,
        "apfl": 99.41,
        "ditto": 99.44,
        "fedper": 99.47,
    },
}
"""Percent, as PFLlib's page has them."""


def pfllib_cnn() -> Block:
    """PFLlib's CNN: two convolutions with ReLU and max pooling, and a dense layer of 512."""
    net = nn.HybridSequential()
    for channels in (32, 64):
        net.add(nn.Conv2D(channels, kernel_size=5, activation="relu"), nn.MaxPool2D(2))
    net.add(nn.Dense(512, activation="relu"), nn.Dense(10))
    return net


MODELS: Mapping[str, Any] = {"cnn": pfllib_cnn, "2nn": "2nn"}


@dataclass(frozen=True)
class Cell:
    """A run.

    Attributes:
        model: a key of `MODELS`.
        partition: a key of `PARTITIONS`.
        seed: of the run.
        rounds: how many rounds it has.
        method: a key of `METHODS`.
    """

    model: str
    partition: str
    seed: int
    rounds: int
    method: str

    def run(self) -> dict[str, Any]:
        """Run it, and return its results."""
        began = time.monotonic()
        experiment = Experiment(
            seed=self.seed,
            rounds=self.rounds,
            clients=20,
            compute={
                "model": MODELS[self.model],
                "data": "fashion-mnist",
                "normalise": {"scale": 255, "mean": 0.5, "std": 0.5},
                "partition": PARTITIONS[self.partition],
                "evaluate": {"every": self.rounds, "personal": True},
                "train": {"batch_size": 10, "learning_rate": 0.005},
            },
            logic={"preset": {"name": self.method, "fraction": 1.0, **METHODS[self.method]}},
        )
        *_, last = simulate(experiment)
        record = last.record()
        names = [name for name in record if name.startswith(("personal_", "newcomer_", "client_"))]
        measured = {name: record[name] for name in names}
        return {**measured, "seconds": time.monotonic() - began}


def cells(model: str, rounds: int, seeds: int) -> Iterator[Cell]:
    """Yield all runs; those of the first seed come first."""
    for seed in range(1, seeds + 1):
        for partition in PARTITIONS:
            for method in METHODS:
                yield Cell(model, partition, seed, rounds, method)


def table(model: str, rounds: int, partition: str) -> Iterator[str]:
    """Yield the lines of a table: means over the seeds that all methods have, in percent."""
    found = {
        (cell.seed, cell.method): one
        for cell, one in finished(RESULTS, Cell).items()
        if (cell.model, cell.rounds, cell.partition) == (model, rounds, partition)
    }
    seeds = sorted({seed for seed, _ in found})
    seeds = [seed for seed in seeds if all((seed, name) in found for name in METHODS)]
    yield f"\n{model}, {rounds} rounds, {partition}, {len(seeds)} seeds\n"
    yield "| method | own model | above FedAvg | worst tenth | newcomers | global model | PFLlib |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name in METHODS if seeds else ():
        runs = [found[seed, name] for seed in seeds]
        pairs = [(found[seed, name], found[seed, "fedavg"]) for seed in seeds]
        above = mean(
            one["personal_accuracy_mean"] - other["client_accuracy_mean"] for one, other in pairs
        )
        keys = ("personal_accuracy_worst_tenth", "newcomer_accuracy_mean", "client_accuracy_mean")
        own, *others = (
            f"{100 * mean(one[key] for one in runs):.2f}"
            for key in ("personal_accuracy_mean", *keys)
        )
        published = PUBLISHED[partition].get(name)
        text = f"{100 * above:+.2f}", *others, "" if published is None else f"{published:.2f}"
        yield f"| {name} | {own} | {' | '.join(text)} |"


def main() -> None:
    """Run what is not finished until the time is up, and print the tables."""
    parser = resumable_options(__doc__ or "")
    parser.add_argument("--model", choices=list(MODELS), default="cnn")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if not options.table:
        run_cells(RESULTS, cells(options.model, options.rounds, options.seeds), options)
    for partition in PARTITIONS:
        print("\n".join(table(options.model, options.rounds, partition)))


if __name__ == "__main__":
    main()
