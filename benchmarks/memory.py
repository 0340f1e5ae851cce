"""Memory of a simulation with worker processes, and the number of copies of the data set.

    python benchmarks/memory.py [--workers 2 4] [--data cifar-10] [--model lenet5]

Two rounds of 10 clients, of 100 that share the data set; both are evaluated on the test split.
Memory is the sum of the proportional set sizes of all processes (`psutil`), in
which shared pages count once: the largest sample, the value at the end of
the second round, and the workers' share of it. `serial` is one process without workers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "peers"), str(HERE.parent)]

import psutil  # noqa: E402
from family import Family  # noqa: E402

CLIENTS, COHORT, ROUNDS = 100, 10, 2
SCALES = {"cifar-10": 255, "mnist": 255, "fashion-mnist": 255, "svhn": 255}
TIMEOUT_S = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--data", choices=sorted(SCALES), default="cifar-10")
    parser.add_argument("--model", default="lenet5")
    parser.add_argument("--json", metavar="EXECUTOR", help="run once and print a line of JSON")
    options = parser.parse_args()
    if options.json:
        run(options)
        return 0
    print(
        "| executor | peak MB | MB after a round | of it workers |\n|---|--:|--:|--:|", flush=True
    )
    for executor in ("serial", *(f"processes:{number}" for number in options.workers)):
        command = [sys.executable, str(Path(__file__).resolve()), "--json", executor]
        family = Family(
            [*command, "--data", options.data, "--model", options.model], {**os.environ}
        )
        try:
            code = family.wait(TIMEOUT_S)
        finally:
            family.end()
        if code:
            raise SystemExit(family.output())
        held = json.loads(family.output().splitlines()[-1])
        peak = family.peak_bytes / 1e6
        print(f"| {executor} | {peak:,.0f} | {sum(held):,.0f} | {sum(held[1:]):,.0f} |", flush=True)
    return 0


def run(options: argparse.Namespace) -> None:
    """Run the rounds, and print the megabytes of this process and of each worker."""
    from fedmx import Experiment, simulate
    from fedmx.cli.options import executor_override

    tree = {
        "rounds": ROUNDS,
        "clients": CLIENTS,
        "compute": {
            "model": options.model,
            "data": options.data,
            "normalise": {"scale": SCALES[options.data]},
            "train": {"epochs": 1, "batch_size": 50, "learning_rate": 0.05},
        },
        "logic": {"selector": {"name": "uniform", "count": COHORT}},
    }
    overrides = executor_override(options.json)
    with simulate(Experiment.parse(json.dumps(tree), "memory", overrides)) as simulation:
        for _ in simulation:
            pass
        this = psutil.Process()
        print(json.dumps([_held_mb(one) for one in (this, *this.children())]))


def _held_mb(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss / 1e6)


if __name__ == "__main__":
    sys.exit(main())
