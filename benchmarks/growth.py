"""Leaks over 1,000 rounds: memory, open files and processes, compared with those after 100.

    python benchmarks/growth.py [--executor processes:2] [--rounds 1000] [--preset stc]
    python benchmarks/growth.py --deployed [--rounds 300]

Small rounds of a 2NN on the digits, all clients, with a preset whose clients keep a residual, and
an evaluation every ten rounds. Memory is the processes' own and what they share with each
other, without files of libraries, which other programs may share. With `--deployed` the clients
are those of benchmarks/load.py, on sockets, and the memory is the server's: Python allocations that
were not freed (tracemalloc), and the lines of code with the largest increase.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import psutil

from fedmx import Experiment, RunFolder, Server, serve, simulate
from fedmx.cli.options import executor_override
from fedmx.server.recorder import recorded

CLIENTS = 20
WARM = 20  # rounds
LINES = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--executor", default="processes:2")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--preset", default="stc")
    parser.add_argument("--deployed", action="store_true")
    options = parser.parse_args()
    if options.deployed:
        deployed(min(options.rounds, 300))
        return
    tree = {
        "rounds": options.rounds,
        "clients": 10,
        "compute": {
            "model": "2nn",
            "data": "digits",
            "normalise": {"scale": 16},
            "train": {"batch_size": 50},
            "evaluate": {"every": 10, "batch_size": 50},
        },
        "logic": {"preset": {"name": options.preset, "fraction": 1.0}},
    }
    overrides = executor_override(options.executor)
    print("| after round | MB | open files | processes |\n|--:|--:|--:|--:|", flush=True)
    this = psutil.Process()
    with simulate(Experiment.parse(json.dumps(tree), "growth", overrides)) as simulation:
        for round in simulation:
            if round.round == 10 or round.round % 100 == 0:
                family = [this, *this.children()]
                held = sum(map(_held_bytes, family)) / 1e6
                files = sum(one.num_fds() for one in family)
                print(f"| {round.round} | {held:.1f} | {files} | {len(family)} |", flush=True)


def deployed(rounds: int) -> None:
    tree = {
        "rounds": rounds,
        "clients": CLIENTS,
        "compute": {
            "model": "2nn",
            "data": "digits",
            "normalise": {"scale": 16},
            "train": {"steps": 1},
            "evaluate": {"every": rounds},
        },
        "logic": {"selector": {"name": "uniform", "fraction": 1.0}},
        "network": {"address": "127.0.0.1:0"},
    }
    experiment = Experiment.parse(json.dumps(tree), "growth")
    with tempfile.TemporaryDirectory() as parent, serve(experiment, "growth") as server:
        folder = RunFolder.create(parent, "growth", experiment.to_yaml(), {})
        command = [sys.executable, str(Path(__file__).with_name("load.py"))]
        command += ["--address", server.address, "--first", "0", "--last", str(CLIENTS)]
        clients = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _watch(server, folder, rounds)
        finally:
            clients.kill()


def _watch(server: Server, folder: RunFolder, rounds: int) -> None:
    first, begun = None, 0
    this = psutil.Process()
    print("| after round | traced KiB | MB held | open files |\n|--:|--:|--:|--:|", flush=True)
    for round in recorded(server, folder, every=1):
        if round.round == WARM:
            tracemalloc.start(8)
        if round.round >= 2 * WARM and round.round % WARM == 0 and round.round < rounds:
            del round
            gc.collect()
            now = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.Filter(False, tracemalloc.__file__)]
            )
            traced = sum(trace.size for trace in now.traces) / 1024
            at = server.state.round
            print(f"| {at} | {traced:.1f} | {_held_bytes(this) / 1e6:.1f} | {this.num_fds()} |")
            if first is None:
                first, begun, held = now, at, traced
    if first is not None:
        print(
            f"\n{(traced - held) / (at - begun):.3f} KiB a round from round {begun} to {at}; of it:"
        )
        for line in now.compare_to(first, "traceback")[:LINES]:
            print(f"\n{line.size_diff / 1024 / (at - begun):.3f} KiB, {line.count_diff} objects:")
            print("\n".join(line.traceback.format(most_recent_first=True, limit=4)))


def _held_bytes(process: psutil.Process) -> int:
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    own = [line.split() for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))]
    return sum(int(words[1]) * 1024 for words in own)


if __name__ == "__main__":
    main()
