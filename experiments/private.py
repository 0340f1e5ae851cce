"""What central differential privacy costs: MNIST among 1,000 clients, at several budgets.

    python experiments/private.py [--rounds 200] [--seeds 3] [--hours 1] [--at-once 2] [--table]
                                  [--only 2nn IID]

1,000 clients have 60 images each, IID or of two labels (shards). Poisson sampling draws each with
probability 0.1 in each of 200 rounds; 5 local epochs in batches of 10 at rate 0.1; clip 0.3, delta
1e-4, and the noise of the budget for all rounds. The run without privacy has the same sampling and
weights. The accuracy is that of the last model.

A finished run is a line of runs/private/results.jsonl and does not run again; `--table` prints
what is there. It needs the extra `privacy`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from resumable import finished, resumable_options, run_cells

from fedmx import Experiment, simulate

RESULTS = Path("runs/private/results.jsonl")
BUDGETS = ("none", "8", "4", "2")
PARTITIONS: Mapping[str, Any] = {"IID": "iid", "shards": {"name": "shards", "per_client": 2}}
MODELS = {"2nn": "2nn", "softmax": "logistic"}
CLIENTS, PROBABILITY, CLIP, DELTA = 1000, 0.1, 0.3, 1e-4


@dataclass(frozen=True)
class Cell:
    """A run.

    Attributes:
        model: a key of `MODELS`.
        partition: a key of `PARTITIONS`.
        seed: of the run.
        rounds: how many rounds it has.
        epsilon: one of `BUDGETS`.
    """

    model: str
    partition: str
    seed: int
    rounds: int
    epsilon: str

    def experiment(self) -> Experiment:
        """Return its experiment."""
        budget = {"name": "central", "clip": CLIP, "delta": DELTA}
        return Experiment(
            seed=self.seed,
            rounds=self.rounds,
            clients=CLIENTS,
            compute={
                "model": MODELS[self.model],
                "data": "mnist",
                "normalise": {"scale": 255},
                "partition": PARTITIONS[self.partition],
                "evaluate": {"every": self.rounds},
                "train": {"epochs": 5, "batch_size": 10, "learning_rate": 0.1},
            },
            privacy=None if self.epsilon == "none" else {**budget, "epsilon": float(self.epsilon)},
            logic={
                "preset": {"name": "fedavg", "weights": "uniform"},
                "selector": {"name": "poisson", "probability": PROBABILITY},
                "min_updates": 0,
            },
        )

    def run(self) -> dict[str, Any]:
        """Run it, and return its results."""
        began = time.monotonic()
        *_, last = simulate(self.experiment())
        spent = {} if last.epsilon is None else {"spent": last.epsilon}
        return {"accuracy": last.accuracy, **spent, "seconds": time.monotonic() - began}


def cells(rounds: int, seeds: int, only: Sequence[str] = ()) -> Iterator[Cell]:
    """Yield all runs; those of the first seed come first.

    Args:
        rounds: of each run.
        seeds: how many there are, from 1.
        only: names of models, partitions and budgets; of each kind that is named, no others run.
    """
    for seed in range(1, seeds + 1):
        for epsilon in BUDGETS:
            for partition in PARTITIONS:
                for model in MODELS:
                    cell = Cell(model, partition, seed, rounds, epsilon)
                    if all(_is_wanted(one, kind, only) for one, kind in _names(cell)):
                        yield cell


def _names(cell: Cell) -> tuple[tuple[str, Sequence[str]], ...]:
    return (cell.model, [*MODELS]), (cell.partition, [*PARTITIONS]), (cell.epsilon, BUDGETS)


def _is_wanted(name: str, kind: Sequence[str], only: Sequence[str]) -> bool:
    named = [one for one in kind if one in only]
    return not named or name in named


def table(rounds: int) -> Iterator[str]:
    """Yield the lines of the table: medians over the seeds with their range, in percent."""
    found = {cell: one for cell, one in finished(RESULTS, Cell).items() if cell.rounds == rounds}
    yield f"\n{rounds} rounds: accuracy in %, median over the seeds (least to greatest)\n"
    yield f"| model | clients | {' | '.join(f'epsilon {one}' for one in BUDGETS)} |"
    yield f"|---|---|{'--:|' * len(BUDGETS)}"
    for model in MODELS:
        for partition in PARTITIONS:
            texts = []
            for epsilon in BUDGETS:
                kind = (model, partition, epsilon)
                of_seeds = [
                    100 * one["accuracy"]
                    for cell, one in found.items()
                    if (cell.model, cell.partition, cell.epsilon) == kind
                ]
                texts.append(_text(of_seeds))
            yield f"| {model} | {partition} | {' | '.join(texts)} |"


def _text(accuracies: Sequence[float]) -> str:
    if len(accuracies) < 2:
        return "".join(f"{one:.2f}" for one in accuracies)
    return f"{median(accuracies):.2f} ({min(accuracies):.2f} to {max(accuracies):.2f})"


def main() -> None:
    """Run what is not finished until the time is up, and print the table."""
    parser = resumable_options(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    options = parser.parse_args()
    if not options.table:
        run_cells(RESULTS, cells(options.rounds, options.seeds, options.only), options)
    print("\n".join(table(options.rounds)))


if __name__ == "__main__":
    main()
