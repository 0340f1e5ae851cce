"""Seconds per round of a simulation, its memory and its start-up, with one process or several.

    python benchmarks/simulate.py [--model lenet5] [--executor processes:2] [--rounds 5] [--json]
    python benchmarks/simulate.py --scale [--executor processes:2]

The work: 100 clients with 600 images of 28 x 28 (random), 10 clients per round, 5 epochs in batches
of 10, plain SGD at 0.04, no evaluation. `--scale` instead varies the population, and then the
cohort, with 60 images per client and 1 epoch. Memory is the sampled proportional set size of all
processes, in which shared pages count once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "peers"), str(HERE.parent)]

from family import Family  # noqa: E402
from work import BATCH, CLIENTS, COHORT, EPOCHS, IMAGES, RATE, Clock  # noqa: E402

SCALE_IMAGES, SCALE_EPOCHS = 60, 1
POPULATIONS = (10, 100, 1_000, 10_000)
COHORTS = (10, 100, 1_000)
TIMEOUT_S = 3600.0


def main() -> int:
    options = _options()
    if options.json:
        simulate(options)
    elif options.scale:
        scale(options)
    else:
        line = measure(options.model, options.executor, options.rounds)
        print(
            f"{line['model']:7} {options.executor:12} {line['round_s']:.3f} s a round (median of "
            f"{len(line['rounds_s'])}, least {line['least_round_s']:.3f}), peak "
            f"{line['peak_mb']} MB over all processes, {line['startup_s']:.1f} s to the end of "
            f"the first round"
        )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=["2nn", "lenet5"], default="2nn")
    parser.add_argument("--executor", default="serial", help="serial, processes:N or ray")
    parser.add_argument("--rounds", type=int, default=5, help="measured, after the first")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="in the population")
    parser.add_argument("--cohort", type=int, default=COHORT, help="a round")
    parser.add_argument("--images", type=int, default=IMAGES, help="a client")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--json", action="store_true", help="print a line of JSON, no memory")
    parser.add_argument("--scale", action="store_true", help="how the cost grows")
    parser.add_argument("--figure", type=Path, default=HERE.parent / "docs" / "scale.svg")
    return parser.parse_args()


def simulate(options: argparse.Namespace) -> None:
    """Do the work in this process and its workers, and print the measurements."""
    from fedmx.cli.options import executor_override
    from fedmx.experiment.model import Experiment
    from fedmx.simulation.simulate import simulate
    from fedmx.version import __version__

    clock = Clock(options.rounds)
    tree = {
        "rounds": clock.rounds + 1,  # the last round would be evaluated
        "clients": options.clients,
        "compute": {
            "model": options.model,
            "data": {
                "name": "mnist_shaped:images",
                "clients": options.clients,
                "per_client": options.images,
            },
            "normalise": {"scale": 255},
            "train": {"epochs": options.epochs, "batch_size": BATCH, "learning_rate": RATE},
            "evaluate": {"every": clock.rounds + 1},
        },
        "logic": {"selector": {"name": "uniform", "count": options.cohort}},
    }
    overrides = executor_override(options.executor)
    experiment = Experiment.parse(
        json.dumps(tree), "benchmark", overrides, folder=HERE, modules=None
    )
    with simulate(experiment) as simulation:
        for _, _ in zip(range(clock.rounds), simulation, strict=False):
            clock.tick()
        clock.report("fedmx", __version__, options.model, simulation.weights.size)


def measure(model: str, engine: str, rounds: int, more: Sequence[str] = ()) -> dict[str, Any]:
    """Run the work in processes of its own; return what it says, with its peak memory."""
    command = [sys.executable, str(Path(__file__).resolve()), "--json", "--model", model]
    command += ["--executor", engine, "--rounds", str(rounds), *more]
    family = Family(command, os.environ)
    try:
        code = family.wait(TIMEOUT_S)
    finally:
        family.end()
    if code:
        raise SystemExit(family.output())
    line: dict[str, Any] = json.loads(family.output().splitlines()[-1])
    return {**line, "peak_mb": round(family.peak_bytes / 1e6)}


def scale(options: argparse.Namespace) -> None:
    """Print how seconds and memory grow with the population and with the cohort; draw both."""
    common = ["--images", str(SCALE_IMAGES), "--epochs", str(SCALE_EPOCHS)]
    sweeps = [
        ("clients in the population", [(number, COHORT) for number in POPULATIONS]),
        ("clients a round", [(max(COHORTS), number) for number in COHORTS]),
    ]
    found = []
    for title, sizes in sweeps:
        print(f"| {title} | s a round | peak MB | start-up s |\n|--:|--:|--:|--:|", flush=True)
        points = []
        for clients, cohort in sizes:
            more = [*common, "--clients", str(clients), "--cohort", str(cohort)]
            line = measure(options.model, options.executor, options.rounds, more)
            grown = clients if title.endswith("population") else cohort
            points.append((grown, line["round_s"], line["peak_mb"]))
            print(
                f"| {grown:,} | {line['round_s']:.3f} | {line['peak_mb']:,} "
                f"| {line['startup_s']:.1f} |",
                flush=True,
            )
        found.append((title, points))
        print()
    draw(found, options)


def draw(
    sweeps: list[tuple[str, list[tuple[int, float, int]]]], options: argparse.Namespace
) -> None:
    """Write a figure: a column for each sweep, seconds above memory."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(sweeps), figsize=(8, 5), sharex="col", squeeze=False)
    for column, (title, points) in enumerate(sweeps):
        numbers, seconds, megabytes = zip(*points, strict=True)
        for row, (values, label) in enumerate(((seconds, "seconds a round"), (megabytes, "MB"))):
            axis = axes[row][column]
            axis.plot(numbers, values, marker="o")
            axis.set_xscale("log")
            axis.set_ylim(bottom=0)
            axis.set_ylabel(label)
            if label.startswith("seconds") and "a round" in title:
                axis.set_yscale("log")
                axis.set_ylim(bottom=min(values) / 2)
        axes[-1][column].set_xlabel(title)
    figure.suptitle(f"{options.model}, executor {options.executor}")
    figure.tight_layout()
    figure.savefig(options.figure)


if __name__ == "__main__":
    sys.exit(main())
