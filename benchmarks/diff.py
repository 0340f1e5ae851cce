"""How long `fedmx diff` takes to find one flipped bit of one client's update in a long run.

    python benchmarks/diff.py [--rounds 200] [--round 137] [--every 10] [--model logistic]

The benchmark records two runs on the digits that differ in one bit, which a hook flips in the given
round. It times `diff` in this process, with data and models rebuilt, as in the command.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from fedmx import (
    Assembly,
    ClientContext,
    ClientSide,
    Experiment,
    Hook,
    RunFolder,
    Update,
    recorded,
    simulate,
)
from fedmx.history import diff
from fedmx.run import gather_facts
from fedmx.run.checkpoint import Keep


@dataclass(frozen=True)
class Flip(Hook):
    """Flips one bit of one client's update in one round."""

    round: int = 0
    victim: int = 0

    class Client(ClientSide):
        def send(self, update: Update, context: ClientContext) -> Update:
            if (context.round, context.client) != (self.hook.round, self.hook.victim):
                return update
            delta = update.delta.copy()
            delta.view(np.int32)[delta.size // 2] ^= 1
            return replace(update, delta=delta)


def run_of(folder: Path, options: argparse.Namespace, round: int) -> RunFolder:
    experiment = Experiment.parse(
        f"""
        {{rounds: {options.rounds}, clients: 10,
         compute: {{model: {options.model}, data: digits, normalise: {{scale: 16}},
                   train: {{batch_size: 20}}, evaluate: {{every: 50}}}},
         logic: {{selector: {{name: uniform, fraction: 1.0}},
                 hooks: [{{name: "{Path(__file__).stem}:Flip", round: {round}, victim: 3}}]}},
         run: {{folder: {folder}, checkpoint: {{every: {options.every},
               keep: {{every: {options.every}}}}}}}}}
        """,
        folder=Path(__file__).parent,
        modules=None,
    )
    assembly = Assembly(experiment)
    server = simulate(assembly)
    facts = gather_facts(
        seed=experiment.seed,
        mode="simulation",
        digest=experiment.digest(),
        engine=experiment.compute.engine,
        modules=str(Path(__file__).parent),
        **assembly.facts(),
    )
    run = RunFolder.create(folder, "run", experiment.to_yaml(), facts)
    for _ in recorded(server, run, every=options.every, keep=Keep(5, options.every)):
        pass
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--round", type=int, default=137, help="in which the bit is flipped")
    parser.add_argument("--every", type=int, default=10, help="rounds between checkpoints")
    parser.add_argument("--model", default="logistic")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        runs = [run_of(Path(folder), options, round) for round in (0, options.round)]
        ran = time.perf_counter()
        report = diff(*runs, modules=None)
        took = time.perf_counter()
    print(report.sentence)
    print(
        f"the two runs of {options.rounds} rounds took {ran - began:.1f} s, diff {took - ran:.2f} s"
    )


if __name__ == "__main__":
    main()
