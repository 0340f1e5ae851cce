"""FedSSO's clustering of many clients: seconds of CPU, and peak memory of the process.

    python benchmarks/fedsso.py --clients 1000 4000 10000

Each number of clients runs in a separate process. The clients' sketches are generated here, so that
only the selector is measured.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from layers.logic import OpenRound, Selector

KINDS = 20  # of clients


def measure(clients: int, values: int) -> None:
    """Cluster and select once, and print a row of the table."""
    from layers.logic import OpenRound
    from layers.logic.algorithms.fedsso import FedSSO

    rng = np.random.default_rng(1)
    centres = rng.standard_normal((KINDS, values))
    answers = {}
    for client in range(clients):
        step = centres[client % KINDS] + 0.1 * rng.standard_normal(values)
        answers[client] = {"sketch": step.astype(np.float32)}
    selector = FedSSO(sketch=values)
    samples = dict.fromkeys(range(clients), 20)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    first = OpenRound(samples)
    once_s = seconds_until_tasks(selector, first, answers)
    second = OpenRound(samples, number=2, memory=first.memory, survey=first.survey)
    each_s = seconds_until_tasks(selector, second, {})
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    strata = len({lane.group for lane in second.planned})
    print(
        f"| {clients:,} | {once_s:.1f} | {1000 * each_s:.1f} | {before_mb:.0f} | {peak_mb:.0f} "
        f"| {strata} |",
        flush=True,
    )


def seconds_until_tasks(selector: Selector, round: OpenRound, answers: Mapping[int, Any]) -> float:
    """Return the processor time that a selector takes until its clients train."""
    began = time.process_time()
    steps = selector.run(round)
    next(steps)
    steps.send(answers)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 4000, 10_000])
    parser.add_argument("--sketch", type=int, default=1000)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        measure(given.clients[0], given.sketch)
        return
    print("| clients | CPU s once | CPU ms a round | MB before | peak MB | strata |")
    print("|--:|--:|--:|--:|--:|--:|", flush=True)
    for clients in given.clients:
        command = [sys.executable, __file__, "--alone", "--clients", str(clients)]
        subprocess.run([*command, "--sketch", str(given.sketch)], check=True)


if __name__ == "__main__":
    main()
