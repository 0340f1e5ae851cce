"""Attacks against robust rules: a heat map of the accuracy on MNIST among 50 clients.

    python experiments/byzantine.py [--partitions iid dirichlet] [--seeds 1] [--rounds 30]
                                    [--hours 1] [--at-once 2] [--table]

2NN, all 50 clients in each round, one epoch in batches of 32, rate 0.05; the samples are divided
evenly (IID) or by Dirichlet's distribution with 0.1. Each rule knows how many clients lie. 20 % of
them run every attack against every rule, and 10 and 40 % against four rules. Without an attack the
rules still expect 10 liars, which shows their cost. FLTrust's server holds 100 images. A finished
run is a line of runs/byzantine/results.jsonl and does not run again; `--table` draws the heat maps
runs/byzantine/iid.svg and dirichlet.svg, and prints the tables of what is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from resumable import finished, resumable_options, run_cells

from fedmx import Experiment, simulate

RESULTS = Path("runs/byzantine/results.jsonl")
CLIENTS, IMAGES = 50, 60_000
PARTITIONS: Mapping[str, Any] = {"iid": "iid", "dirichlet": {"name": "dirichlet", "alpha": 0.1}}
ATTACKS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "label-flipping": {},
    "back-door": {"scale": 2.0},
    "sign-flip": {},
    "gaussian": {},
    "scaling": {"scale": 10.0},
    "free-rider": {"sigma": 0.01},
    "alie": {},
    "inner-product": {},
    "min-max": {},
    "min-sum": {},
    "fang-trim": {},
    "fang-krum": {},
    "mimic": {},
}
FOUR = ("mean", "median", "nearest neighbours, trimmed mean", "fltrust")
"""The rules that also meet 10 and 40 % of liars."""


def rules(malicious: int) -> Mapping[str, Mapping[str, Any]]:
    """Return the rules by their names, for so many liars in a round."""
    trimmed = {"name": "trimmed-mean", "trim": malicious / CLIENTS}
    krum = {"name": "krum", "byzantine": malicious}
    return {
        "mean": {"name": "mean", "weights": "uniform"},
        "median": {"name": "median"},
        "trimmed mean": trimmed,
        "krum": krum,
        "multi-krum": {"name": "multi-krum", "byzantine": malicious},
        "geometric median": {"name": "geometric-median", "smoothing": 1e-6, "iterations": 4},
        "bounded norm": {"name": "norm-clip", "norm": 1.0, "weights": "uniform"},
        "centered clipping": {"name": "centered-clipping", "radius": 1.0, "iterations": 3},
        "buckets, krum": {"name": "bucketing", "size": 2, "rule": krum},
        "nearest neighbours, trimmed mean": {
            "name": "nearest-neighbour-mixing",
            "byzantine": malicious,
            "rule": trimmed,
        },
        "fltrust": {"name": "fltrust", "held_out": 100 / IMAGES},
    }


@dataclass(frozen=True)
class Cell:
    """A run.

    Attributes:
        partition: how the samples are divided.
        attack: the name of the attack, or none.
        share: of the clients that lie, or that the rule expects to.
        rule: the name of the rule.
        seed: of the run.
        rounds: of the run.
    """

    partition: str
    attack: str
    share: float
    rule: str
    seed: int = 1
    rounds: int = 30

    def experiment(self) -> Experiment:
        """Return its experiment."""
        attack = {"name": self.attack, "clients": self.share, **ATTACKS[self.attack]}
        return Experiment(
            seed=self.seed,
            rounds=self.rounds,
            clients=CLIENTS,
            attack=None if self.attack == "none" else attack,
            compute={
                "model": "2nn",
                "data": "mnist",
                "normalise": {"scale": 255},
                "partition": PARTITIONS[self.partition],
                "evaluate": {"every": self.rounds},
                "train": {"epochs": 1, "batch_size": 32, "learning_rate": 0.05},
            },
            logic={
                "selector": {"name": "uniform", "fraction": 1.0},
                "aggregator": rules(round(self.share * CLIENTS))[self.rule],
                "min_updates": CLIENTS,
                "max_update": None,
            },
        )

    def run(self) -> dict[str, Any]:
        """Run it, and return its results."""
        began = time.monotonic()
        for one in simulate(self.experiment()):
            reports = one.report.clients
        known = [one for one in reports if one.share is not None]
        return {
            "accuracy": one.accuracy,
            "attack_success": one.measured.get("attack_success"),
            "liars_share": sum(one.share or 0.0 for one in known if one.malicious)
            if known
            else None,
            "seconds": time.monotonic() - began,
        }


def cells(partitions: list[str], seeds: int, rounds: int) -> Iterator[Cell]:
    """Yield all runs: those of the first seed come first, and 20 % before 10 and 40 %."""
    for seed in range(1, seeds + 1):
        for partition in partitions:
            for attack in ATTACKS:
                for rule in rules(1):
                    yield Cell(partition, attack, 0.2, rule, seed, rounds)
            for share in (0.1, 0.4):
                for attack in ATTACKS:
                    for rule in FOUR if attack != "none" else ():
                        yield Cell(partition, attack, share, rule, seed, rounds)


Accuracies = dict[tuple[str, str], float]
"""The mean accuracy over the seeds, in percent, by attack and rule."""


def accuracies(partition: str, share: float, rounds: int) -> Accuracies:
    """Return the accuracies of one partition and one share of liars."""
    found: dict[tuple[str, str], list[float]] = {}
    for cell, one in finished(RESULTS, Cell).items():
        if (cell.partition, cell.share, cell.rounds) == (partition, share, rounds):
            found.setdefault((cell.attack, cell.rule), []).append(100 * one["accuracy"])
    return {key: mean(values) for key, values in found.items()}


def table(known: Accuracies) -> Iterator[str]:
    """Yield the lines of a table: a row for each attack, a column for each rule."""
    columns = [rule for rule in rules(1) if any(rule == key[1] for key in known)]
    yield f"| attack | {' | '.join(columns)} |"
    yield f"|---|{'--:|' * len(columns)}"
    for attack in ATTACKS:
        row = [known.get((attack, rule)) for rule in columns]
        if any(one is not None for one in row):
            cells = ("-" if one is None else f"{one:.1f}" for one in row)
            yield f"| {attack} | {' | '.join(cells)} |"


def draw(known: Accuracies, path: Path) -> None:
    """Draw the heat map: dark is accurate."""
    from matplotlib.figure import Figure

    columns = list(rules(1))
    grid = [[known.get((attack, rule), float("nan")) for rule in columns] for attack in ATTACKS]
    figure = Figure(figsize=(1 + 0.75 * len(columns), 1.5 + 0.4 * len(ATTACKS)), layout="tight")
    axes = figure.subplots()
    axes.imshow(grid, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
    axes.set_yticks(range(len(ATTACKS)), list(ATTACKS))
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            if value == value:  # not NaN
                colour = "white" if value > 60 else "black"
                axes.text(x, y, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=8)
    figure.savefig(path)


def main() -> None:
    """Run what is not finished until the time is up, then draw and print what is there."""
    parser = resumable_options(__doc__ or "")
    names = list(PARTITIONS)
    parser.add_argument("--partitions", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    if not options.table:
        planned = cells(options.partitions, options.seeds, options.rounds)
        run_cells(RESULTS, planned, options)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    for partition in options.partitions:
        for share in (0.2, 0.1, 0.4):
            found = accuracies(partition, share, options.rounds)
            if found:
                print(f"\n{partition}, {100 * share:.0f} % of the clients lie: accuracy, %\n")
                print("\n".join(table(found)))
        draw(accuracies(partition, 0.2, options.rounds), RESULTS.parent / f"{partition}.svg")


if __name__ == "__main__":
    main()
