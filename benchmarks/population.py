"""The cost of a round beside training, and memory, as the population grows to a million clients.

    python benchmarks/population.py                       # all selectors that follow the cohort
    python benchmarks/population.py --selectors uniform --populations 1000 1000000

Each population runs in a separate process; the processes take turns, one round each, so that other
work on the machine slows all of them. Times are CPU times, which other work affects least;
training is measured and subtracted.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

POPULATIONS = (1_000, 10_000, 100_000, 1_000_000)
SELECTORS: Mapping[str, Mapping[str, Any]] = {
    "uniform": {},
    "round-robin": {},
    "by-size": {"aggregator": {"name": "mean", "weights": "uniform"}},
    "clustered": {"aggregator": {"name": "mean", "weights": "plan"}},
    "power-of-choice": {"aggregator": {"name": "mean", "weights": "uniform"}},
    "concurrent": {"aggregator": "fedbuff"},
}
COHORT = 100
CONCURRENCY = 1_000  # of the selector concurrent, whose versions have COHORT updates


def serve(selector: str, clients: int, devices: bool) -> None:
    """Run a round for each line on standard input, and print its time."""
    from fedmx import Experiment
    from fedmx.run.checkpoint import write_checkpoint
    from fedmx.simulation.simulate import simulate
    from layers.compute.engines.mxnet.engine import MXNetEngine

    trained_s = 0.0
    train = MXNetEngine.train

    def measured(engine: MXNetEngine, *args: Any, **settings: Any) -> Any:
        nonlocal trained_s
        began = time.process_time()
        report = train(engine, *args, **settings)
        trained_s += time.process_time() - began
        return report

    MXNetEngine.train = measured  # type: ignore[method-assign]
    settings: dict[str, Any] = {"name": selector, "count": COHORT}
    if selector == "concurrent":
        settings = {"name": selector, "concurrency": CONCURRENCY, "buffer": COHORT}
    if selector == "power-of-choice":
        settings["loss"] = "reported"
    clock = {"devices": "lognormal", "availability": "chance"} if devices else {}
    tree = {
        "rounds": 1_000_000,
        "clients": clients,
        "compute": {
            "model": "2nn",
            "data": {"name": "blobs", "samples": [10, 30]},
            "train": {"batch_size": 10},
            "evaluate": {"every": 1_000_000},
        },
        "logic": {"selector": settings, **SELECTORS[selector]},
        "clock": clock,
    }
    began = time.process_time()
    with (
        simulate(Experiment.from_dict(tree)) as simulation,
        tempfile.TemporaryDirectory() as folder,
    ):
        started_s = time.process_time() - began
        rounds = simulation.rounds()
        for _ in sys.stdin:
            trained_s, began = 0.0, time.process_time()
            next(rounds)
            beside_s = time.process_time() - began - trained_s
            path = Path(folder) / "checkpoint.safetensors"
            began = time.process_time()
            write_checkpoint(path, simulation.state.round, simulation.checkpoint())
            measured_now = {
                "beside_s": beside_s,
                "checkpoint_s": time.process_time() - began,
                "checkpoint_bytes": path.stat().st_size,
                "started_s": started_s,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
            print(json.dumps(measured_now), flush=True)


def compare(selector: str, populations: list[int], rounds: int, devices: bool) -> None:
    """Print a table of one selector."""
    command = [sys.executable, __file__, "--serve", selector]
    command += ["--devices"] if devices else []
    servers = [
        subprocess.Popen(
            [*command, "--populations", str(clients)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for clients in populations
    ]
    found: list[list[dict[str, float]]] = [[] for _ in servers]
    for _ in range(rounds + 1):
        for place, server in enumerate(servers):
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write("\n")
            server.stdin.flush()
            found[place].append(json.loads(server.stdout.readline()))
    for server in servers:
        server.communicate()
    print(f"\n{selector}{', lognormal devices, available by chance' if devices else ''}")
    print(
        "| population | CPU ms a round beside training | to the first | peak MB | above the first "
        "| checkpoint CPU ms | checkpoint KB | CPU s to start |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    first = 0.0
    for clients, records in zip(populations, found, strict=True):
        beside_ms = 1000 * statistics.median(record["beside_s"] for record in records[1:])
        first = first or beside_ms
        last = records[-1]
        above = last["peak_mb"] - found[0][-1]["peak_mb"]
        print(
            f"| {clients:,} | {beside_ms:.1f} | {beside_ms / first:.2f} | {last['peak_mb']:.0f} "
            f"| {above:+.0f} | {1000 * last['checkpoint_s']:.1f} "
            f"| {last['checkpoint_bytes'] / 1000:.0f} | {last['started_s']:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--populations", type=int, nargs="+", default=list(POPULATIONS))
    parser.add_argument("--selectors", nargs="+", choices=SELECTORS, default=list(SELECTORS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--devices", action="store_true", help="with virtual time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.populations[0], given.devices)
        return
    for selector in given.selectors:
        compare(selector, given.populations, given.rounds, given.devices)


if __name__ == "__main__":
    main()
