"""The server process's time per task, by the number of clients per round.

    python benchmarks/cohort.py [--model lenet5] [--cohorts 10 100 1000] [--rounds 3] [--profile]

1,000 clients of 20 images of 28 x 28 (random), 1 epoch in batches of 10, no evaluation, two worker
processes. The server's time is the processor time of its process per task. Workers are idle while
they are neither running nor waiting for a free core, so other work on the machine does not count.
`--profile` prints a profile of the server's time instead.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import psutil  # noqa: E402

from fedmx import Experiment, simulate  # noqa: E402

CLIENTS, IMAGES, BATCH = 1_000, 20, 10
COHORTS = (10, 100, 1_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=["2nn", "lenet5"], default="2nn")
    parser.add_argument("--cohorts", type=int, nargs="+", default=COHORTS)
    parser.add_argument("--rounds", type=int, default=3, help="measured, after the first")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--preset", default="fedavg")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    print("| clients a round | server, ms a task | workers idle | s a round |\n|--:|--:|--:|--:|")
    for cohort in options.cohorts:
        measure(options, cohort)


def measure(options: argparse.Namespace, cohort: int) -> None:
    """Run a few rounds and print a line of the table."""
    with simulate(_experiment(options, cohort)) as simulation:
        rounds = iter(simulation)
        next(rounds)  # compiles
        workers = [worker.pid for worker in psutil.Process().children()]
        profile = cProfile.Profile(time.process_time)
        server_ms, idle, seconds = [], [], []
        for _ in range(options.rounds):
            began_s, cpu_s = time.monotonic(), time.process_time()
            used_s = sum(map(_scheduled_s, workers))
            if options.profile:
                profile.enable()
            next(rounds)
            profile.disable()
            wall_s = time.monotonic() - began_s
            used_s = sum(map(_scheduled_s, workers)) - used_s
            seconds.append(wall_s)
            server_ms.append(1e3 * (time.process_time() - cpu_s) / cohort)
            idle.append(max(1 - used_s / wall_s / len(workers), 0))
    print(
        f"| {cohort:,} | {statistics.median(server_ms):.2f} | {statistics.median(idle):.0%} "
        f"| {statistics.median(seconds):.3f} |",
        flush=True,
    )
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def _experiment(options: argparse.Namespace, cohort: int) -> Experiment:
    tree = {
        "rounds": options.rounds + 2,
        "clients": CLIENTS,
        "executor": {"processes": options.workers},
        "compute": {
            "model": options.model,
            "data": {"name": "mnist_shaped:images", "clients": CLIENTS, "per_client": IMAGES},
            "normalise": {"scale": 255},
            "train": {"epochs": 1, "batch_size": BATCH, "learning_rate": 0.04},
            "evaluate": {"every": options.rounds + 2},
        },
        "logic": {"preset": {"name": options.preset, "count": cohort}},
    }
    return Experiment.parse(json.dumps(tree), "cohort", folder=HERE, modules=None)


def _scheduled_s(process: int) -> float:
    """Return how long the main thread has run or waited for a free core."""
    ran_ns, waited_ns, _ = Path(f"/proc/{process}/schedstat").read_text().split()
    return (int(ran_ns) + int(waited_ns)) / 1e9


if __name__ == "__main__":
    main()
