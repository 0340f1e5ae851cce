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

import numpy as np

KINDS = 20  # of clients


def measure(clients: int, values: int) -> None:
    """Cluster and select once, and print a row of the table."""
    from layers.logic import SELECT, SURVEY, Population, SelectorContext, ServerState
    from layers.logic.algorithms.fedsso import FedSSO
    from layers.logic.seeds import generator

    rng = np.random.default_rng(1)
    centres = rng.standard_normal((KINDS, values))
    answers = {}
    for client in range(clients):
        step = centres[client % KINDS] + 0.1 * rng.standard_normal(values)
        answers[client] = {"sketch": step.astype(np.float32)}
    selector = FedSSO(sketch=values)
    population = Population(dict.fromkeys(range(clients), 20))
    empty = np.zeros(0, np.float32)
    state = ServerState(0, empty, empty, {SURVEY: {"step": answers}})
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.process_time()
    state = selector.on_survey(state, population, 0)
    once_s = time.process_time() - began
    began = time.process_time()
    plan = selector.select(
        SelectorContext(population, state.memory[SELECT], 1, generator(0, "select", 1))
    )
    each_s = time.process_time() - began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    strata = len(set(plan.groups))
    print(
        f"| {clients:,} | {once_s:.1f} | {1000 * each_s:.1f} | {before_mb:.0f} | {peak_mb:.0f} "
        f"| {strata} |",
        flush=True,
    )


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
